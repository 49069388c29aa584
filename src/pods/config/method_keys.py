"""The config keys of the method: n and m, rule, prompt selection, advantages, update."""

import re
from dataclasses import dataclass
from typing import Literal

from pods.config.key import ALLOCATION, CHOOSER, RULE, SELECTOR, key

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

RULES_WITH_ROUNDS = ("max_variance", "balanced")
"""Rules that say when a group has what they want; see `method.rules.enough`."""


@dataclass
class SamplerConfig:
    """The down-sampling rule."""

    rule: str = key(
        f"rule that selects m of n rollouts: {', '.join(RULE_NAMES)}, or module:function for a "
        "rule of your own",
        form=RULE,
    )


@dataclass
class NmConfig:
    """The number of rollouts that are generated, and the number trained on."""

    n: int = key("rollouts generated per group", low=1)
    m: int = key("rollouts kept per group", low=1)
    groups: int = key("groups per prompt, each selected and normalised independently", low=1)
    round: int | None = key(
        "rollouts sampled per group at a time, until it has what the rule wants or nm.n; null "
        "samples all nm.n at once",
        low=1,
    )
    menu: list[str] | None = key(
        "pairs to choose from while training, such as [n16_m16,n64_m16]; nm.n and nm.m must then "
        "be the largest of them; null: every step has nm.n and nm.m",
        default=None,
    )
    chooser: str = key(
        "what chooses from nm.menu: expected progress per second, or a function of your own",
        form=CHOOSER,
        default="expected_progress",
    )
    every_steps: int = key("steps between choices from nm.menu", low=1, default=5)
    allocation: str = key(
        "rollouts of a prompt: nm.n of each (equal), or nm.round of each and then what is left of "
        "nm.n per prompt where it is expected to gain most (knapsack), or as a function of your "
        "own says",
        form=ALLOCATION,
        default="equal",
    )

    def pairs(self) -> list[tuple[int, int]]:
        """Return n and m of each pair of the menu, or the only pair."""
        numbers = [re.findall(r"\d+", pair) for pair in self.menu or ()]
        return [(int(n), int(m)) for n, m in numbers] or [(self.n, self.m)]

    def label(self) -> str:
        """Return n and m for a reader: 64→16, or 16-64→16 where they are chosen from a menu."""
        ends = [sorted({*each}) for each in zip(*self.pairs(), strict=True)]
        return "→".join(f"{e[0]}-{e[-1]}" if len(e) > 1 else f"{e[0]}" for e in ends)


@dataclass
class GresoConfig:
    """GRESO's prompt filter, used if prompts.selector=greso."""

    p_easy: float = key(
        "initial chance that a problem is sampled again after an all-correct group; after z such "
        "groups in a row, its z-th power",
        above=0,
        high=1,
    )
    p_hard: float = key(
        "initial chance that a problem is sampled again after a group with no correct rollout; "
        "after z such groups in a row, its z-th power",
        above=0,
        high=1,
    )
    p_step: float = key("amount by which p_easy and p_hard are adjusted at a time", low=0, high=1)
    p_min: float = key("lower limit of p_easy and p_hard", above=0, high=1)
    p_max: float = key("upper limit of p_easy and p_hard", above=0, high=1)
    target_easy: float = key(
        "share of all-correct groups at or above which p_easy is lowered", low=0, high=1
    )
    target_hard: float = key(
        "share of groups with no correct rollout at or above which p_hard is lowered", low=0, high=1
    )
    adjust_after: int = key(
        "groups between adjustments of p_easy and p_hard, over which shares are computed", low=1
    )
    explore: float = key("smallest chance that a problem is sampled again", low=0.001, high=1)


@dataclass
class MoppsConfig:
    """MoPPS's prompt selection, used if prompts.selector=mopps."""

    candidates: int = key("candidate problems per problem that is selected", low=1)
    target: float = key("success rate that selected problems should be close to", low=0, high=1)
    decay: float = key("weight of earlier observations at each update; 1 keeps all", low=0, high=1)


@dataclass(kw_only=True)
class PromptsConfig:
    """Prompt selection, before any rollout is generated."""

    selector: str = key(
        "how a step's problems are selected: all in random order (uniform), without those that "
        "recently had no reward variance (greso), by predicted success rate (mopps), or by a "
        "function of your own",
        form=SELECTOR,
    )
    candidates: int = key(
        "problems that come up per prompt of a step, for a selector of your own to choose from",
        low=1,
        default=4,
    )
    greso: GresoConfig
    mopps: MoppsConfig


@dataclass
class GroupFilterConfig:
    """Treatment of groups without reward variance, which have no advantage and no gradient."""

    name: Literal["none", "skip", "resample"] = key(
        "groups without variance: train on them (none), leave them out (skip), or sample further "
        "prompts until prompts_per_step groups have variance (resample)"
    )
    metric: Literal["reward", "correct"] = key(
        "a group has no variance if all its rewards are equal (reward), or if its rollouts are all "
        "correct or all wrong (correct)"
    )
    batch: int | None = key(
        "prompts per sampling batch if group_filter=resample; null uses prompts_per_step", low=1
    )
    max_batches: int = key(
        "largest number of sampling batches per step; then it trains on what it has", low=1
    )
    adaptive: bool = key(
        "make a step's further batches only as large as seems needed, at most batch (GRESO)"
    )
    min_batch: int = key("smallest adaptive sampling batch, in prompts", low=1)
    margin: float = key("oversampling factor for adaptive resampling", low=1)


@dataclass
class SamplingConfig:
    """Sampling of training rollouts."""

    temperature: float = key("sampling temperature of training rollouts", above=0)
    max_prompt_tokens: int = key(
        "longest prompt; problems with longer ones are dropped and counted", low=1
    )
    max_completion_tokens: int = key("length at which a completion is truncated", low=1)


@dataclass
class AdvantageConfig:
    """Advantages (r - baseline) / (std + eps)."""

    baseline: Literal["selected", "full", "leave_one_out", "none"] = key(
        "what is subtracted from a reward: the mean of the kept rollouts (selected), of the full "
        "group (full), of the other kept rollouts (leave_one_out), or nothing (none)"
    )
    scale: Literal["std", "none"] = key(
        "divide by the std of the kept rewards, or of the full group's where "
        "advantage.baseline=full (std), or do not divide (none)"
    )
    ddof: int = key("1: sample std, as in the authors' code; 0: population std", low=0, high=1)
    eps: float = key("number added to the std", low=0)


@dataclass
class UpdateConfig:
    """The optimization of one step (AdamW)."""

    optimizer: Literal["adamw", "adamw_8bit"] = key(
        "AdamW with 32-bit moments, or bitsandbytes' with 8-bit ones (made for GPUs)"
    )
    lr: float = key("learning rate", above=0)
    betas: list[float] = key("the two betas of AdamW")
    weight_decay: float = key("decoupled weight decay of AdamW", low=0)
    grad_clip: float = key("largest gradient norm; larger gradients are scaled down to it", above=0)
    schedule: Literal["constant", "linear", "cosine"] = key("schedule of the learning rate")
    warmup_steps: int = key("steps of linear learning rate warm-up", low=0)
    warmup_from_zero: bool = key(
        "begin the warm-up at 0, as transformers does, instead of lr / warmup_steps"
    )
    schedule_steps: int | None = key("step at which a linear or cosine schedule ends", low=1)
    epochs: int = key("passes over the rollouts of a step", low=1)
    minibatches: int = key(
        "optimizer updates per pass, each on as many whole groups, in the order of the batch", low=1
    )
    aggregation: Literal["sequence_mean", "token_mean", "group_token_mean", "dr_grpo"] = key(
        "denominator of the loss, for M sequences o in G groups: 1/(M |o|), 1/tokens, "
        "1/(G tokens of the group), or 1/(M max tokens)"
    )
    clip_low: float = key("PPO clip: ratios below 1 - clip_low are clipped", low=0, high=1)
    clip_high: float = key(
        "PPO clip: ratios above 1 + clip_high are clipped (DAPO raises it)", low=0
    )
    dual_clip: float | None = key(
        "a loss with a negative advantage A is at most dual_clip |A|; null sets no limit", above=1
    )
    entropy_beta: float = key("weight of the entropy bonus", low=0)
    logprob_temperature: Literal["sampling", "one"] = key(
        "temperature of the trainer's log-probs: that of the sampling, or 1 as in the PODS "
        "authors' one-GPU code (engine and trainer are then not compared)"
    )
    kl_beta: float = key(
        "weight of the KL divergence from the initial policy; 0 skips the reference pass", low=0
    )
    micro_batch_tokens: int = key(
        "tokens per forward pass, counting a prompt once and padding its completions to the "
        "longest; affects memory, not the gradient",
        low=1,
    )
    activation_checkpointing: bool = key(
        "keep only each layer's input and recompute the layer in the backward pass: far less "
        "memory, about a third more time"
    )
    importance: Literal["off", "token_truncate", "token_mask", "sequence_mask"] = key(
        "per-token weight that corrects for the difference between engine and trainer log-probs: "
        "none (off), the probability ratio truncated at the cap, or 0 if the token's or the "
        "sequence's ratio exceeds the cap"
    )
    importance_cap: float = key("cap of the probability ratio in update.importance", above=0)
    nonfinite_limit: int = key(
        "consecutive steps with a NaN or infinite loss, gradient or reward after which the run "
        "fails; such a step is never applied",
        low=1,
        operational=True,
    )
