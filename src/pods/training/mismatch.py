"""The mismatch monitor checks that the engine generates from the policy that is trained.

Every kept token has two log-probs: the engine's, from when it drew the token, and the trainer's,
before it learned from it. With equal weights they differ by rounding alone. One large gap may be an
unlucky batch, but a gap that stays is a fault. Under `engine.lag` the trainer has learned since, so
some rollouts are scored at once, by the weights that drew them.
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
CORRECTED = "to continue with warnings instead, set update.importance"
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
        if gap > self.bound:
            self.consecutive += 1
        else:
            self.consecutive = 0
        return self.consecutive > 0

    def check(self, line: Mapping[str, Any]) -> str | None:
        """Record a step's line; return a message for the user if its gap is past the bound.

        Raises:
            EngineMismatch: the alarm stays, or a merge loses too much of the policy's change.
        """
        alarm = self.observe(line)
        number = line["step"]
        message = (
            f"the log-probs of engine and trainer differ by {line.get(self.column) or 0:.2g} on "
            f"average, past {self.bound:g}"
        )
        if self.fails and self.consecutive >= GAP_LIMIT:
            raise EngineMismatch(
                f"step {number}, like the {GAP_LIMIT - 1} steps before it: {message} ({CORRECTED})"
            )
        if self.fails:
            self.check_merge(number, line["kept_projection"])

        return f"step {number}: {message}" if alarm else None

    def check_merge(self, number: int, kept: float | None) -> None:
        """Raise an `EngineMismatch` if a merge kept too little of the change, or enlarged it."""
        if kept is not None and not LEAST_KEPT <= kept <= 2 - LEAST_KEPT:
            raise EngineMismatch(
                f"step {number}: merging the policy into the engine's weights kept {kept:.2f} "
                f"of its update; use engine.sync=adapter or engine.dtype=float32 ({CORRECTED})"
            )


def make_monitor(config: Config) -> MismatchMonitor:
    """Make the monitor that the config asks for.

    An engine that shares the trainer's weights cannot have other ones. If weights are sharded over
    processes, the engine decodes from a copy, in `engine.dtype`.
    """
    dtypes = {config.engine.dtype, config.model.dtype, config.computed_in()}
    bound = FLOAT32_BOUND if dtypes == {"float32"} else COARSE_BOUND
    if not has_own_weights(config):
        bound = math.inf
    return MismatchMonitor(
        bound=bound,
        fails=config.update.importance == "off" and config.scores_what_is_sampled(),
        column="engine_gap" if config.engine.lag > 0 else "logprob_gap_mean",
    )


def has_own_weights(config: Config) -> bool:
    """Return whether the engine's weights are not the trainer's own."""
    return config.engine.name == "vllm" or config.sharded()


def engine_gap(worker: Worker, rollouts: list[Rollout]) -> float:
    """Return the mean distance of the engine's log-probs from those of this process's policy."""
    scores = torch.cat(score_all(UpdateContext(worker.policy, worker.config), rollouts))
    drawn = np.concatenate([rollout.logprobs for rollout in rollouts])
    return float(np.abs(scores.cpu().numpy() - drawn).mean())
