"""What each process of a run holds, and what it can be asked to do with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pods.config import Config
from pods.policy.load import Policy
from pods.policy.optimizer import nonfinite, restore_optimizer, save_optimizer
from pods.policy.team import Team
from pods.policy.update import UpdateStats, update
from pods.records import Rollout, Sampling
from pods.rollouts.engine import Engine, Prompt, Ready
from pods.runs.store import OPTIMIZER


@dataclass(frozen=True)
class Worker:
    """Policy, optimizer and engine of one process; all of the run's where it is the only one."""

    config: Config
    policy: Policy
    optimizer: torch.optim.AdamW
    engine: Engine
    team: Team
    check: Callable[[], None]
    """May raise where nothing is half-changed."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int],
        ready: Ready | None = None,
    ) -> list[list[Rollout]]:
        """This process's share of what `Engine.generate` would draw; `ready` hears of that."""
        mine = self.team.share(len(prompts))
        if not mine:
            return []
        told = None if ready is None else lambda place, text: ready(mine[place], text)
        asked = [prompts[i] for i in mine]
        return self.engine.generate(asked, n, sampling, [seeds[i] for i in mine], told)

    def sync(self) -> float | None:
        """See `Engine.sync`."""
        return self.engine.sync()

    def update(
        self, rollouts: list[Rollout], advantages: NDArray[np.float64], step: int
    ) -> UpdateStats:
        """Take part in an update of the policy; see `pods.policy.update`."""
        return update(
            self.policy, self.optimizer, self.config, rollouts, advantages, step,
            self.check, self.team,
        )  # fmt: skip

    def nonfinite(self) -> str | None:
        """What of this process's weights and moments is NaN or infinite; None if nothing is."""
        return nonfinite(self.optimizer)

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a checkpoint, or help the one that leads to."""
        self.policy.save(folder / "policy", self.team.leads)
        save_optimizer(self.optimizer, folder / OPTIMIZER, self.team.leads)

    def restore(self, folder: Path) -> None:
        """Read back what `save` wrote; the engine has it after the next `sync`."""
        self.load_policy(folder)
        restore_optimizer(self.optimizer, folder / OPTIMIZER)

    def load_policy(self, folder: Path) -> None:
        """Read a checkpoint's weights; the engine has them after the next `sync`."""
        self.policy.restore(folder / "policy")
