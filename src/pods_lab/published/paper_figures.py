"""The figures of the PODS paper that the authors' logs draw: arms, metric, window and numbers.

Source: arXiv:2504.13818 and its repository at 187f43b: `scripts/plot.py` (its setting_num stands
in each source) and `scripts/plot-{h100s,a100s}.py`. The paper states one number for five of the
figures: how many times sooner GRPO-PODS is at 99 % of GRPO's best accuracy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Arm(NamedTuple):
    """What a curve of the paper shows."""

    rule: str
    n: int
    m: int


Arms = Mapping[str, Arm]
"""The curves by their names in the paper; a baseline comes first."""


@dataclass(frozen=True)
class PaperFigure:
    """One figure: accuracy against time, and seconds per step."""

    name: str
    title: str
    family: str  # of its logs, see `release.read_release`
    arms: Arms
    times: int  # after 0, equally far apart, at which curves are drawn
    source: str
    metric: str = "accuracy"
    ratio: float | None = None  # the paper's speed-up of the second arm over the first
    digest: str = ""  # start of the SHA-256 of what these logs say at 187f43b (`reproduce.digest`)


LARGE: Arms = {"GRPO": Arm("all", 16, 16), "GRPO-PODS": Arm("max_variance", 64, 16)}
SMALL: Arms = {"GRPO": Arm("all", 8, 8), "GRPO-PODS": Arm("max_variance", 32, 8)}
EIGHT: Arms = {"GRPO-GA": Arm("all", 32, 32), "GRPO-PODS": Arm("max_variance_aliased", 128, 32)}
BY_N: Arms = {"N = 16": Arm("all", 16, 16)} | {
    f"N = {n}": Arm("max_variance", n, 16) for n in (32, 64, 128, 256)
}
BY_M: Arms = {f"M = {m}": Arm("max_variance", 64, m) for m in (16, 8, 4, 2)}
RULES = {"Max-Variance": "max_variance", "Max-Reward": "max_reward", "Random": "random"}
BY_RULE: Arms = {label: Arm(rule, 64, 16) for label, rule in RULES.items()}
# fmt: off
ALL = (
    PaperFigure("gsm8k", "GSM8K, Qwen2.5-3B-Instruct, one L40S", "gsm8k", LARGE,
                12, "plot.py, setting 3", ratio=2.0, digest="d42b2daf04183a77"),
    PaperFigure("math", "MATH, Qwen2.5-3B-Instruct, one L40S", "math", SMALL,
                12, "plot.py, setting 4", ratio=2.0, digest="511a9fa617b1dbb9"),
    PaperFigure("llama", "GSM8K, Llama-3.2-3B-Instruct, one L40S", "llama", LARGE,
                9, "plot.py, setting 6", metric="both", ratio=3.0,
                digest="c3cf79242397a6c2"),
    PaperFigure("n-scaling", "n at m = 16, GSM8K, one L40S", "gsm8k", BY_N,
                12, "plot.py, setting 1", digest="315a84da17ed76a6"),
    PaperFigure("m-scaling", "m at n = 64, GSM8K, one L40S", "gsm8k", BY_M,
                12, "plot.py, setting 2", digest="21264f7bb2777837"),
    PaperFigure("rules", "Down-sampling rules at 64 → 16, GSM8K, one L40S", "gsm8k", BY_RULE,
                12, "plot.py, setting 5", digest="870bcab93c565d07"),
    PaperFigure("h100s", "GSM8K, Qwen2.5-3B-Instruct, 8 H100", "h100s", EIGHT,
                15, "plot-h100s.py", ratio=1.71, digest="1f74323e406c9812"),
    PaperFigure("a100s", "GSM8K, 7B model, 8 A100", "a100s", EIGHT,
                15, "plot-a100s.py", ratio=1.75, digest="d241bf53310b774a"),
)
# fmt: on
FIGURES = {figure.name: figure for figure in ALL}
