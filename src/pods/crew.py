"""One run on several processes: the one that leads asks all to do the same thing at a time.

It asks as the loop and the experiment would ask a single process; what each of the others has made
comes back to it. What it decides (which prompts, what is kept, when to stop) it decides alone.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pods.policy.orders import Orders
from pods.policy.sharding import sharded
from pods.policy.team import Abandoned
from pods.policy.update import UpdateStats
from pods.records import Rollout, Sampling
from pods.rollouts.engine import EngineFailed, Prompt, Ready
from pods.stop import Gone, Preempted, Stop
from pods.worker import Worker

TOGETHER = (Preempted, Abandoned, FloatingPointError, EngineFailed)
"""What may end an order on one process and leave it, and all others, fit for the next one."""
NEWS_SECONDS = 3.0  # in which torchrun sees a process die
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Crew:
    """All processes of a run, as the one that leads asks them; alone, it asks itself."""

    worker: Worker
    stop: Stop
    orders: Orders

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int],
        ready: Ready | None = None,
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt, a share on each process; see `Engine.generate`."""
        parts = self._all("generate", prompts, n, sampling, seeds, ready=ready)
        found = [rollouts for part in parts for rollouts in part]
        if ready is not None:
            for place in range(len(parts[0]), len(found)):
                for rollout in found[place]:
                    ready(place, rollout.text)
        return found

    def sync(self) -> float | None:
        """Bring the policy's present weights into every engine; see `Engine.sync`."""
        kept: float | None = self._all("sync")[0]
        return kept

    def update(
        self, rollouts: list[Rollout], advantages: NDArray[np.float64], step: int
    ) -> UpdateStats:
        """Move the weights on all processes alike; see `pods.policy.update`."""
        stats: UpdateStats = self._all("update", rollouts, advantages, step)[0]
        return stats

    def nonfinite(self) -> str | None:
        """What of weights and optimizer state is NaN or infinite; None if nothing is."""
        return next(filter(None, self._all("nonfinite")), None)

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a checkpoint, whole whoever holds them."""
        if sharded(self.worker.policy.model):
            self._all("save", folder)
        else:
            self.worker.save(folder)

    def restore(self, folder: Path) -> None:
        """Read weights and optimizer of a checkpoint on all processes."""
        self._all("restore", folder)

    def load_policy(self, folder: Path) -> None:
        """Read a checkpoint's weights alone on all processes, to evaluate them."""
        self._all("load_policy", folder)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """At the end of the block the others end too, unless they are at something."""
        try:
            yield
        finally:
            self._dismiss()

    def _dismiss(self) -> None:
        if self.worker.team.size > 1 and not self.orders.open:
            with suppress(Gone):
                self.orders.give(None)

    def _all(self, name: str, *arguments: Any, **own: Any) -> list[Any]:
        """Have every process do the same, and collect what they make, in their order.

        Raises:
            Preempted: the run was asked to stop; all have left off.
            EngineFailed: an engine broke down.
            Gone: a process is no longer there.
        """
        worker, orders = self.worker, self.orders
        act = getattr(worker, name)
        if worker.team.size == 1:
            return [act(*arguments, **own)]
        orders.give((name, arguments))
        with self._blaming_the_dead():
            wrong, made = attempt(partial(act, *arguments, **own))
        if wrong is not None:
            orders.give_up()
        found = orders.collect((None, made), self._stop_waiting)
        assert found is not None
        if wrong is not None:
            raise wrong
        for rank, (trouble, _) in enumerate(found):
            if trouble is not None:
                worker.check()  # a request to stop is why they have left off
                raise EngineFailed(f"process {rank}: {trouble}")
        return [part for _, part in found]

    @contextmanager
    def _blaming_the_dead(self) -> Iterator[None]:
        """Tell an error of our own from one that comes of a process that died in the middle.

        What torch raises then has many faces, but torchrun ends all the others, this one too.
        """
        try:
            yield
        except RuntimeError as error:
            until = time.monotonic() + NEWS_SECONDS
            while not self.stop.requested:
                if time.monotonic() > until:
                    raise
                time.sleep(POLL_SECONDS)
            raise Gone("another process of the run has died") from error

    def _stop_waiting(self) -> None:
        """Call the others off once asked to stop; while they get on, so does the run."""
        if self.stop.requested:
            self.orders.give_up()
        if self.orders.others_get_on():
            self.stop.signs += 1


def follow(worker: Worker, orders: Orders) -> None:
    """Do what the process that leads asks for, until it asks no more.

    Raises:
        Gone: it is no longer there.
    """
    while (order := orders.wait()) is not None:
        name, arguments = order
        wrong, made = attempt(partial(getattr(worker, name), *arguments))
        trouble = None if wrong is None else f"{type(wrong).__name__}: {wrong}"
        if not isinstance(wrong, Abandoned | FloatingPointError | None):  # these the leader tells
            traceback.print_exception(wrong)
        orders.collect((trouble, made), lambda: None)


def attempt(act: Callable[[], Any]) -> tuple[BaseException | None, Any]:
    """What ended an act early and leaves all fit for the next one, or what it has made."""
    try:
        return None, act()
    except TOGETHER as error:
        return error, None
