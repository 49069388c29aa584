"""Proof, step by step, that the engine generates from the policy that is trained.

Of every kept token there are two log-probs: the engine's, from when it drew the token, and the
trainer's, before it learned from it. With the same weights they differ by rounding alone; with
other ones by more. One large gap may be bad luck of a batch; one that stays is a fault.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pods.config import Config
from pods.step import Step

FLOAT32_BOUND = 1e-4  # measured: 4e-7 on tiny, 9e-6 on SmolLM2
COARSE_BOUND = 0.05  # in bfloat16 0.01 is usual, and 0.2 was reported of a stale engine


class NotThePolicy(RuntimeError):
    """The engine does not generate from the policy: the run must not go on."""


@dataclass
class Proof:
    """Watches the gap between engine and trainer, and what of the policy reaches the engine."""

    bound: float
    """Mean gap that raises an alarm."""
    limit: int
    """Alarms in a row that end the run."""
    min_kept: float
    """Share of the policy's change that a merge must keep."""
    row: int = 0
    """Alarms in a row, up to the last step that was measured."""

    def look(self, gap: float | None) -> bool:
        """Take note of a step's mean gap; say whether it is past the bound."""
        if gap is None or math.isnan(gap):  # nothing was trained on, or the step is void
            return False
        self.row = self.row + 1 if gap > self.bound else 0
        return self.row > 0

    def keeps(self, kept: float | None) -> bool:
        """Say whether a merge is fit: it may neither lose nor, rounding up, enlarge the change."""
        return kept is None or self.min_kept == 0 or self.min_kept <= kept <= 2 - self.min_kept

    def recall(self, gaps: Iterable[float | None]) -> None:
        """Take note of the steps of a run that goes on."""
        for gap in gaps:
            self.look(gap)

    def judge(self, step: Step) -> str | None:
        """Take note of a step; return what to tell the user if its gap is past the bound.

        Raises:
            NotThePolicy: the alarm stays, or a merge loses too much of the policy's change.
        """
        gap = None if step.update is None else step.update.logprob_gap_mean
        kept = step.kept_projection
        alarm = self.look(gap)
        words = (f"the engine's log-probs are {gap or 0:.2g} from the trainer's on average, past "
                 f"engine.gap_bound={self.bound:g}")  # fmt: skip
        if self.row >= self.limit:
            raise NotThePolicy(f"step {step.step}, like {self.limit - 1} before it: {words}")
        if not self.keeps(kept):
            raise NotThePolicy(
                f"step {step.step}: the merge makes {kept:.2f} of the policy's change; "
                "engine.sync=adapter or engine.dtype=float32 keep it, engine.min_kept=0 lets it be"
            )
        return f"step {step.step}: {words}" if alarm else None


def make_proof(config: Config) -> Proof:
    """What the config asks for; an engine that shares the trainer's weights cannot have others.

    Where weights are spread over processes it decodes from a copy of its own dtype.
    """
    engine = config.engine
    fine = engine.dtype == config.model.dtype == "float32"
    bound = engine.gap_bound or (FLOAT32_BOUND if fine else COARSE_BOUND)
    if engine.name != "vllm" and not config.sharded():
        bound = math.inf
    return Proof(bound, engine.gap_limit, engine.min_kept)
