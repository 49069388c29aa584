"""Name what W&B and TensorBoard show: every number below one of four prefixes, and the run."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from pods.config.schema import Config

AXIS = ("step", "train_seconds")
"""Numbers without a prefix: what charts are drawn over."""
TRAIN = (
    *("loss", "lr", "grad_norm", "clip_fraction", "kl", "entropy", "kept_projection"),
    *("logprob_gap", "logprob_gap_mean", "importance_mean", "importance_cut"),
    *("trained_rollouts", "trained_tokens"),
)
"""Numbers of metrics.jsonl about the update; those about rollouts and prompts are the others."""
PREFIXES = ("train", "rollouts", "time", "eval")
EXAMPLES = "rollouts/examples"
"""Name of the table of rollouts."""
SUMMARIES = {
    "eval/accuracy": ("max", "last"),
    "rollouts/reward": ("mean", "last"),
    "rollouts/correct": ("mean", "last"),
    "rollouts/length": ("mean", "last"),
    "time/generate_seconds": ("mean", "last"),
    "time/update_seconds": ("mean", "last"),
}
"""Numbers whose summary is more than their last value, with W&B's words for what it holds."""
SUMMARISE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "mean": fmean,
    "last": lambda values: values[-1],
}


def metric_name(key: str) -> str:
    """Return the name of a key of metrics.jsonl.

    >>> [metric_name(key) for key in ("step", "loss", "reward", "cpu_seconds/update")]
    ['step', 'train/loss', 'rollouts/reward', 'time/update_cpu_seconds']
    """
    unit, _, phase = key.partition("/")
    if unit in ("seconds", "cpu_seconds") and phase:
        return f"time/{phase}_{unit}"
    if key in AXIS:
        return key
    return f"train/{key}" if key in TRAIN else f"rollouts/{key}"


def series_name(config: Config) -> str:
    """Return the arm (or rule), n and m, as figures do."""
    mode = "" if config.reproduction == "ours" else f" {config.reproduction}"
    return f"{config.arm_name()}{mode} {config.nm.label()}"


def run_name(config: Config) -> str:
    """Return the name of a run in a list; runs of equal name are told apart by W&B's id."""
    return f"{series_name(config)} s{config.seed}"
