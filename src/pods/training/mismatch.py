"""The mismatch monitor checks that the engine generates from the policy that is trained.

Every kept token has two log-probs: the engine's, from when it drew the token, and the trainer's,
before it learned from it. With equal weights they differ by rounding alone. One large gap may be an
unlucky batch, but a gap that stays is a fault. Under `engine.lag` the trainer has learned since, so
that some rollouts are scored at once, by the weights that drew them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pods.config.schema import Config
from pods.policy.scoring import UpdateContext, score_all
from pods.training.workers import Worker
from pods.types import Rollout

FLOAT32_BOUND = 1e-4  # measured: 4e-7 on tiny, 9e-6 on SmolLM2
COARSE_BOUND = 0.05  # in bfloat16 0.01 is usual, and 0.2 was reported of a stale engine
LEAST_KEPT = 0.9  # share of the change of adapters that a merge must keep
CORRECTED = "a run that corrects for it, with update.importance, goes on with alarms"
GAP_LIMIT = 3  # consecutive steps above the bound after which a run fails


class EngineMismatch(RuntimeError):
    """The engine does not generate from the policy, so that the run must not continue."""


@dataclass
class MismatchMonitor:
    """Watches the log-prob gap between engine and trainer, and the kept projection of merges."""

    bound: float  # mean gap that raises an alarm
    fails: bool = True  # otherwise there are alarms only
    column: str = "logprob_gap_mean"  # of metrics.jsonl: what it watches
    consecutive: int = 0  # consecutive alarms up to the last step that had a gap

    def observe(self, line: Mapping[str, Any]) -> bool:
        """Record a step's line, also of one logged before a resume; True: an alarm."""
        gap = line.get(self.column)
        if gap is None:  # nothing was trained on, or the step was skipped
            return False
        self.consecutive = self.consecutive + 1 if gap > self.bound else 0
        return self.consecutive > 0

    def check(self, line: Mapping[str, Any]) -> str | None:
        """Record a step's line; return a message for the user if its gap is past the bound.

        `EngineMismatch`: the alarm stays, or a merge loses too much of the policy's change.
        """
        alarm, number = self.observe(line), line["step"]
        message = (
            f"the log-probs of engine and trainer differ by {line.get(self.column) or 0:.2g} on "
            f"average, past {self.bound:g}"
        )
        if self.fails and self.consecutive >= GAP_LIMIT:
            raise EngineMismatch(
                f"step {number}, like the {GAP_LIMIT - 1} steps before it: {message} ({CORRECTED})"
            )
        kept = line["kept_projection"] if self.fails else None
        if kept is not None and not LEAST_KEPT <= kept <= 2 - LEAST_KEPT:  # it can be enlarged, too
            raise EngineMismatch(
                f"step {number}: merging the policy into the engine's weights kept {kept:.2f} "
                f"of its update; use engine.sync=adapter or engine.dtype=float32 ({CORRECTED})"
            )
        return f"step {number}: {message}" if alarm else None


def make_monitor(config: Config) -> MismatchMonitor:
    """Make the monitor that the config asks for.

    An engine that shares the trainer's weights cannot have other ones. Where weights are sharded
    over processes, the engine decodes from a copy in a dtype of its own.
    """
    engine = config.engine
    float32 = engine.dtype == config.model.dtype == config.computed_in() == "float32"
    bound = FLOAT32_BOUND if float32 else COARSE_BOUND
    if not has_own_weights(config):
        bound = math.inf
    fails = config.update.importance == "off" and config.scores_what_is_sampled()
    return MismatchMonitor(bound, fails, "engine_gap" if engine.lag > 0 else "logprob_gap_mean")


def has_own_weights(config: Config) -> bool:
    """Return whether the engine's weights are not the trainer's own."""
    return config.engine.name == "vllm" or config.sharded()


def engine_gap(worker: Worker, rollouts: list[Rollout]) -> float:
    """Return the mean distance of engines' log-probs from those of the policy of this process."""
    scores = torch.cat(score_all(UpdateContext(worker.policy, worker.config), rollouts))
    drawn = np.concatenate([rollout.logprobs for rollout in rollouts])
    return float(np.abs(scores.cpu().numpy() - drawn).mean())
