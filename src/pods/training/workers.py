"""What one process of a run works with, and an engine whose rows several processes draw."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.engines.base import Engine, EngineFailed
from pods.policy.optimizer import nonfinite, restore_optimizer, save_optimizer
from pods.policy.policy import Policy
from pods.policy.process_group import ProcessGroup
from pods.policy.scoring import UpdateContext
from pods.policy.update import update
from pods.policy.update_stats import UpdateStats
from pods.runs.store import OPTIMIZER
from pods.system.signals import Preempted
from pods.types import GenerationRequest, OnCompletion, Rollout


@dataclass(frozen=True)
class Worker:
    """Policy, optimizer and engine of one process of a run.

    All processes must call each of its methods at once.
    """

    config: Config
    policy: Policy
    optimizer: torch.optim.Optimizer
    engine: Engine  # draws on this process alone
    process_group: ProcessGroup
    check: Callable[[], None]  # called when state is consistent; may raise to end the operation

    def update(
        self, rollouts: list[Rollout], advantages: NDArray[np.float64], sizes: list[int], step: int
    ) -> UpdateStats:
        """Update the policy; see `pods.policy.update`."""
        context = UpdateContext(
            policy=self.policy,
            config=self.config,
            process_group=self.process_group,
            check=self.check,
        )
        return update(context, self.optimizer, rollouts, advantages, sizes, step)

    def nonfinite(self) -> str | None:
        """Return which weights or moments of any process are NaN or infinite; None if none are."""
        faults = self.process_group.all_values(nonfinite(self.optimizer))
        return next((fault for fault in faults if fault is not None), None)

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a checkpoint; other ranks than 0 only contribute."""
        is_main = self.process_group.is_main
        self.policy.save(folder / "policy", is_main)
        save_optimizer(self.optimizer, folder / OPTIMIZER, is_main)

    def restore(self, folder: Path) -> None:
        """Restore what `save` wrote; the engine has it after the next `sync`."""
        self.load_policy(folder)
        restore_optimizer(self.optimizer, folder / OPTIMIZER)

    def load_policy(self, folder: Path) -> None:
        """Read a checkpoint's weights; the engine has them after the next `sync`."""
        self.policy.restore(folder / "policy")


@dataclass(frozen=True)
class Share:
    """What one process has drawn, or why it has not."""

    groups: list[list[Rollout]] = field(default_factory=list)
    stops: bool = False  # it was asked to stop
    failure: str | None = None  # of its engine


@dataclass(frozen=True)
class SharedEngine:
    """The engines of several processes, as one `Engine`: each draws a share of the rows."""

    engine: Engine  # of this process
    process_group: ProcessGroup

    @property
    def facts(self) -> Mapping[str, Any]:
        """What this process's engine has chosen; see `Engine.facts`."""
        return self.engine.facts

    def sync(self) -> float | None:
        """Bring the policy's current weights into this process's engine; see `Engine.sync`."""
        return self.engine.sync()

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt, a share on each process; all processes get all.

        Only the main process grades, so that `on_completion` is called on it alone.

        Raises:
            Preempted: a process was asked to stop, and none draws any more.
            EngineFailed: the engine of a process broke down.
        """
        if not self.process_group.is_main:
            on_completion = None

        shares = self.process_group.all_values(self._try_to_draw(request, on_completion))
        if any(share.stops for share in shares):
            raise Preempted
        for rank, share in enumerate(shares):
            if share.failure is not None:
                raise EngineFailed(f"process {rank}: {share.failure}")

        groups: list[list[Rollout]] = [[] for _ in request.prompts]
        for rank, share in enumerate(shares):
            for index, rollouts in enumerate(share.groups):
                groups[index] += rollouts
                if on_completion is not None and rank > 0:
                    for rollout in rollouts:
                        on_completion(index, rollout.text)
        return groups

    def _try_to_draw(self, request: GenerationRequest, on_completion: OnCompletion | None) -> Share:
        try:
            return Share(self._draw(request, on_completion))
        except Preempted:
            return Share(stops=True)
        except EngineFailed as error:
            return Share(failure=str(error))

    def _draw(
        self, request: GenerationRequest, on_completion: OnCompletion | None
    ) -> list[list[Rollout]]:
        """Draw this process's share of the rows; rank 0 has the first."""
        n = request.n
        groups: list[list[Rollout]] = [[] for _ in request.prompts]
        share = self.process_group.share(len(groups) * n)
        if not share:
            return groups

        first = share.start // n  # the prompts of which this process draws some rows
        last = math.ceil(share.stop / n)
        part = replace(
            request,
            prompts=request.prompts[first:last],
            seeds=request.seeds[first:last],
            rows=range(share.start - first * n, share.stop - first * n),
        )
        groups[first:last] = self.engine.generate(part, on_completion)

        return groups
