"""Proof, step by step, that the engine generates from the policy that is trained.

Of every kept token there are two log-probs: the engine's, from when it drew the token, and the
trainer's, before it learned from it. With the same weights they differ by rounding alone; with
stale or wrong ones by more. A short gap may be bad luck of a batch; one that stays is a fault.
"""

from dataclasses import dataclass, field

from pods.config import EngineConfig
from pods.train import Step


class NotThePolicy(RuntimeError):
    """The engine does not generate from the policy: the run must not go on."""


@dataclass
class Proof:
    """Watches the gap between engine and trainer, and what of the policy reaches the engine."""

    settings: EngineConfig
    alarms: set[int] = field(default_factory=set)
    """Steps whose mean gap was past the bound."""

    def alarm(self, step: Step) -> str | None:
        """Take note of a step; return what to tell the user if its gap is past the bound."""
        gap = None if step.update is None else step.update.logprob_gap_mean
        if gap is None or gap <= self.settings.gap_bound:  # NaN is neither
            return None
        self.alarms.add(step.step)
        return (f"step {step.step}: the engine's log-probs are {gap:.2g} from the trainer's on "
                f"average, past engine.gap_bound={self.settings.gap_bound:g}")  # fmt: skip

    def judge(self, step: Step) -> None:
        """See whether the run may go on.

        Raises:
            NotThePolicy: the alarm stays, or a merge loses too much of the policy's change.
        """
        limit, kept = self.settings.gap_limit, step.kept_projection
        if all(step.step - back in self.alarms for back in range(limit)):
            raise NotThePolicy(
                f"in {limit} steps in a row (engine.gap_limit) the engine's log-probs were not the "
                "trainer's: it generates from other weights"
            )
        if kept is not None and kept < self.settings.min_kept:
            raise NotThePolicy(
                f"step {step.step}: {kept:.2f} of the policy's change survives the merge in "
                f"engine.dtype={self.settings.dtype}; engine.sync=adapter or engine.dtype=float32 "
                f"keep it, engine.min_kept={kept:.1g} lets it be"
            )
