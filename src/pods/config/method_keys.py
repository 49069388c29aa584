"""The config keys of the method: n and m, rule, prompt selection, advantages, update."""

from dataclasses import dataclass
from typing import Literal

from pods.config.key import FUNCTION, key, one_of

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


@dataclass
class SamplerConfig:
    """The down-sampling rule."""

    rule: str = key("rule that selects m of n rollouts, or your own", form=one_of(RULE_NAMES))


@dataclass
class NmConfig:
    """The number of rollouts that are generated, and the number trained on."""

    n: int = key("rollouts generated per group", low=1)
    m: int = key("rollouts kept per group", low=1)
    groups: int = key("groups per prompt, each selected and normalised independently", low=1)

    def label(self) -> str:
        """Return n and m for a reader: 64→16."""
        return f"{self.n}→{self.m}"


@dataclass
class PromptsConfig:
    """Prompt selection, before any rollout is generated."""

    selector: str = key(
        "how a step's problems are selected: in random order (uniform), without those that lately "
        "had no variance (greso), by predicted success rate (mopps), or by your own function",
        form=one_of(("uniform", "greso", "mopps")),
    )


@dataclass
class GroupFilterConfig:
    """Treatment of groups without reward variance, which have no advantage and no gradient."""

    name: Literal["none", "skip", "resample", "greso"] = key(
        "groups of equal rewards, whose advantages are 0: train on them (none), leave them out "
        "(skip), or sample until prompts_per_step groups have variance (resample), the further "
        "batches only as large as seems needed, from a sixth of batch to batch (greso)"
    )
    metric: Literal["reward", "correct"] = key(
        "no variance: all rewards are equal (reward), or all are correct or all wrong (correct)"
    )
    batch: int | None = key(
        "prompts per sampling batch if it resamples; null: prompts_per_step", low=1
    )
    max_batches: int = key("most sampling batches per step; then it trains on what it has", low=1)

    @property
    def resamples(self) -> bool:
        """Whether a step samples further batches."""
        return self.name in ("resample", "greso")


@dataclass
class SamplingConfig:
    """Sampling of training rollouts."""

    temperature: float = key("sampling temperature of training rollouts", above=0)
    max_prompt_tokens: int = key(
        "longest prompt; problems with longer ones are dropped and counted", low=1
    )
    max_completion_tokens: int = key("length at which a completion is truncated", low=1)
    top_k: int | None = key("draw each token from the k likeliest; null: from all", low=1)


@dataclass
class AdvantageConfig:
    """Advantages (r - baseline) / (std + eps), or another function of the rewards."""

    function: str | None = key("your own function, in place of the others", form=FUNCTION)
    baseline: Literal["selected", "full", "leave_one_out", "none"] = key(
        "what is subtracted: the mean of the kept rewards (selected), of the full group's (full), "
        "of the other kept ones (leave_one_out), or nothing (none)"
    )
    scale: Literal["std", "mean", "stratified", "none"] = key(
        "divide by the std or mean of the kept rewards, or with advantage.baseline=full of the "
        "full group's, or by nothing (none), or weigh each reward's kept rollouts by its share of "
        "the full group over its share of the kept (stratified)"
    )
    eps: float = key("number added to the std or mean", low=0)


@dataclass
class UpdateConfig:
    """The optimization of one step (AdamW)."""

    lr: float = key("learning rate", above=0)
    betas: list[float] = key("the two betas of AdamW")
    weight_decay: float = key("decoupled weight decay of AdamW", low=0)
    grad_clip: float = key("largest gradient norm; larger gradients are scaled down to it", above=0)
    schedule: Literal["constant", "linear", "cosine"] = key("schedule of the learning rate")
    warmup_steps: int = key("steps of linear learning rate warm-up", low=0)
    warmup_from_zero: bool = key("begin the warm-up at 0 (transformers), not lr / warmup_steps")
    schedule_steps: int | None = key("step at which a linear or cosine schedule ends", low=1)
    epochs: int = key("passes over the rollouts of a step", low=1)
    minibatches: int = key("optimizer updates per pass, each on as many whole groups", low=1)
    aggregation: Literal["sequence_mean", "token_mean", "group_token_mean", "dr_grpo"] = key(
        "denominator of the loss, for M sequences o in G groups: 1/(M |o|), 1/tokens, "
        "1/(G tokens of the group), or 1/(M max tokens)"
    )
    clip_low: float = key("PPO clip: ratios below 1 - clip_low are clipped", low=0, high=1)
    clip_high: float = key("PPO clip: ratios above 1 + clip_high are clipped", low=0)
    entropy_beta: float = key("weight of the entropy bonus", low=0)
    logprob_temperature: Literal["sampling", "one"] = key(
        "temperature of the trainer's log-probs: the sampling's, or 1 as in the PODS authors' "
        "one-GPU code (engine and trainer are then not compared)"
    )
    kl_beta: float = key("weight of the KL divergence from the initial policy", low=0)
    micro_batch_tokens: int = key(
        "tokens per forward pass, a prompt once and its completions padded to the longest; "
        "affects memory, not the gradient",
        low=1,
    )
    activation_checkpointing: bool = key(
        "recompute each layer in the backward pass: far less memory, about a third more time"
    )
    compiled: bool = key(
        "fuse the elementwise passes of the update by torch.compile, in models built like Llama; "
        "needs a C++ compiler, or Triton on a GPU, and starts later"
    )
    importance: Literal["off", "token_truncate", "token_mask", "sequence_mask"] = key(
        "per-token weight for the difference between engine and trainer: the ratio of their "
        "probabilities truncated at 3, or 0 where the token's or the sequence's exceeds 3"
    )
