"""The config keys of the method: n and m, rule, prompt selection, advantages, update."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from pods.config.key import Amount, Count, Flag, OwnFunction, Positive, Share, Whole, key, one_of

RULE_NAMES = (
    "max_variance",
    "max_variance_aliased",
    "max_reward",
    "percentile",
    "max_abs_advantage",
    "balanced",
    "random",
    "all",
)
Betas = Annotated[
    list[Annotated[float, Meta(ge=0, lt=1)]],
    Meta(min_length=2, max_length=2, title="two numbers in [0, 1)"),
]


@dataclass
class SamplerConfig:
    """The down-sampling rule."""

    rule: Annotated[str, one_of(RULE_NAMES), key("rule that selects m of n rollouts, or your own")]


@dataclass
class NmConfig:
    """The number of rollouts that are generated, and the number trained on."""

    n: Annotated[Count, key("rollouts generated per group")]
    m: Annotated[Count, key("rollouts kept per group")]
    groups: Annotated[Count, key("groups per prompt, each selected and normalised independently")]

    def label(self) -> str:
        """Return n and m for a reader: 64→16."""
        return f"{self.n}→{self.m}"


@dataclass
class PromptsConfig:
    """Prompt selection, before any rollout is generated."""

    selector: Annotated[
        str,
        one_of(("uniform", "greso", "mopps", "arcus", "cero")),
        key(
            "how a step's problems are selected: in random order (uniform), without those that "
            "lately had no variance (greso), by predicted success rate (mopps), near a success "
            "rate that becomes harder (arcus), by the price of rollouts (cero), or by your own "
            "function"
        ),
    ]
    rounds: Annotated[
        Count | None,
        key("rounds that prompts.selector=cero plans for, which set its step size; else null"),
    ]


@dataclass
class GroupFilterConfig:
    """Treatment of groups without reward variance, which have no advantage and no gradient."""

    name: Annotated[
        Literal["none", "skip", "resample", "greso"],
        key(
            "groups of equal rewards, whose advantages are 0: train on them (none), leave them out "
            "(skip), or sample until prompts_per_step groups have variance (resample), the further "
            "batches only as large as seems needed, from a sixth of batch to batch (greso)"
        ),
    ]
    metric: Annotated[
        Literal["reward", "correct"],
        key(
            "no variance: all rewards are equal (reward), or all are correct or all wrong (correct)"
        ),
    ]
    batch: Annotated[
        Count | None, key("prompts per sampling batch if it resamples; null: prompts_per_step")
    ]
    max_batches: Annotated[
        Count, key("most sampling batches per step; then it trains on what it has")
    ]

    @property
    def resamples(self) -> bool:
        """Whether a step samples further batches."""
        return self.name in ("resample", "greso")


@dataclass
class SamplingConfig:
    """Sampling of training rollouts."""

    temperature: Annotated[Positive, key("sampling temperature of training rollouts")]
    max_prompt_tokens: Annotated[
        Count, key("longest prompt; problems with longer ones are dropped and counted")
    ]
    max_completion_tokens: Annotated[Count, key("length at which a completion is truncated")]
    top_k: Annotated[Count | None, key("draw each token from the k likeliest; null: from all")]


@dataclass
class AdvantageConfig:
    """Advantages (r - baseline) / (std + eps), or another function of the rewards."""

    function: Annotated[OwnFunction | None, key("your own function, in place of the others")]
    baseline: Annotated[
        Literal["selected", "full", "leave_one_out", "none"],
        key(
            "what is subtracted: the mean of the kept rewards (selected), of the full group's "
            "(full), of the other kept ones (leave_one_out), or nothing (none)"
        ),
    ]
    scale: Annotated[
        Literal["std", "mean", "stratified", "none"],
        key(
            "divide by the std or mean of the kept rewards, or with advantage.baseline=full of the "
            "full group's, or by nothing (none), or weigh each reward's kept rollouts by its share "
            "of the full group over its share of the kept (stratified)"
        ),
    ]
    eps: Annotated[Amount, key("number added to the std or mean")]


@dataclass
class UpdateConfig:
    """The optimization of one step (AdamW)."""

    lr: Annotated[Positive, key("learning rate")]
    betas: Annotated[Betas, key("the two betas of AdamW")]
    weight_decay: Annotated[Amount, key("decoupled weight decay of AdamW")]
    grad_clip: Annotated[
        Positive, key("largest gradient norm; larger gradients are scaled down to it")
    ]
    schedule: Annotated[
        Literal["constant", "linear", "cosine"], key("schedule of the learning rate")
    ]
    warmup_steps: Annotated[Whole, key("steps of linear learning rate warm-up")]
    warmup_from_zero: Annotated[
        Flag, key("begin the warm-up at 0 (transformers), not lr / warmup_steps")
    ]
    schedule_steps: Annotated[Count | None, key("step at which a linear or cosine schedule ends")]
    epochs: Annotated[Count, key("passes over the rollouts of a step")]
    minibatches: Annotated[Count, key("optimizer updates per pass, each on as many whole groups")]
    aggregation: Annotated[
        Literal["sequence_mean", "token_mean", "group_token_mean", "dr_grpo"],
        key(
            "denominator of the loss, for M sequences o in G groups: 1/(M |o|), 1/tokens, "
            "1/(G tokens of the group), or 1/(M max tokens)"
        ),
    ]
    clip_low: Annotated[Share, key("PPO clip: ratios below 1 - clip_low are clipped")]
    clip_high: Annotated[Amount, key("PPO clip: ratios above 1 + clip_high are clipped")]
    entropy_beta: Annotated[Amount, key("weight of the entropy bonus")]
    logprob_temperature: Annotated[
        Literal["sampling", "one"],
        key(
            "temperature of the trainer's log-probs: the sampling's, or 1 as in the PODS authors' "
            "one-GPU code (engine and trainer are then not compared)"
        ),
    ]
    kl_beta: Annotated[Amount, key("weight of the KL divergence from the initial policy")]
    micro_batch_tokens: Annotated[
        Count,
        key(
            "tokens per forward pass, a prompt once and its completions padded to the longest; "
            "affects memory, not the gradient"
        ),
    ]
    activation_checkpointing: Annotated[
        Flag,
        key("recompute each layer in the backward pass: far less memory, about a third more time"),
    ]
    compiled: Annotated[
        Flag,
        key(
            "fuse the elementwise passes of the update by torch.compile, in models built like "
            "Llama; needs a C++ compiler, or Triton on a GPU, and starts later"
        ),
    ]
    importance: Annotated[
        Literal["off", "token_truncate", "token_mask", "sequence_mask"],
        key(
            "per-token weight for the difference between engine and trainer: the ratio of their "
            "probabilities truncated at 3, or 0 where the token's or the sequence's exceeds 3"
        ),
    ]
