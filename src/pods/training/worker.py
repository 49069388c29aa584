"""The worker: policy, optimizer and engine of one process, and the operations on them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.policy.optimizer import nonfinite, restore_optimizer, save_optimizer
from pods.policy.policy import Policy
from pods.policy.process_group import ProcessGroup
from pods.policy.scoring import UpdateContext
from pods.policy.update import UpdateStats, update
from pods.runs.store import OPTIMIZER
from pods.types import GenerationRequest, OnCompletion, Rollout


@dataclass(frozen=True)
class Worker:
    """Policy, optimizer and engine of one process of a run."""

    config: Config
    policy: Policy
    optimizer: torch.optim.Optimizer
    engine: Engine
    process_group: ProcessGroup
    check: Callable[[], None]
    """Called at points where the state is consistent; may raise to end the operation."""

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw this process's share of a request; `on_completion` is called for this share only."""
        share = self.process_group.share(len(request.prompts))
        if not share:
            return []
        part = replace(
            request,
            prompts=[request.prompts[i] for i in share],
            seeds=[request.seeds[i] for i in share],
        )
        if on_completion is None:
            return self.engine.generate(part)
        return self.engine.generate(part, lambda i, text: on_completion(share[i], text))

    def sync(self) -> float | None:
        """Bring the policy's current weights into the engine; see `Engine.sync`."""
        return self.engine.sync()

    def update(
        self, rollouts: list[Rollout], advantages: NDArray[np.float64], sizes: list[int], step: int
    ) -> UpdateStats:
        """Take part in an update of the policy; see `pods.policy.update`."""
        context = UpdateContext(self.policy, self.config, self.process_group, self.check)
        return update(context, self.optimizer, rollouts, advantages, sizes, step)

    def nonfinite(self) -> str | None:
        """Return which of this process's weights and moments are NaN or infinite, or None."""
        return nonfinite(self.optimizer)

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a checkpoint; other ranks than 0 only contribute."""
        self.policy.save(folder / "policy", self.process_group.is_main)
        save_optimizer(self.optimizer, folder / OPTIMIZER, self.process_group.is_main)

    def restore(self, folder: Path) -> None:
        """Restore what `save` wrote; the engine has it after the next `sync`."""
        self.load_policy(folder)
        restore_optimizer(self.optimizer, folder / OPTIMIZER)

    def load_policy(self, folder: Path) -> None:
        """Read a checkpoint's weights; the engine has them after the next `sync`."""
        self.policy.restore(folder / "policy")
