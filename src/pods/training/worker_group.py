"""The worker group: rank 0 broadcasts each operation to all ranks and gathers the results.

To the training loop it is an engine, to the trainer a single worker. Rank 0 makes every decision
alone (which prompts, what is kept, when to stop); `serve` runs on the other ranks.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from pods.engines.base import EngineFailed
from pods.policy.fsdp import is_sharded
from pods.policy.process_group import Cancelled
from pods.policy.update import UpdateStats
from pods.system.signals import PeerLost, Preempted, Stop
from pods.training.commands import CommandChannel
from pods.training.worker import Worker
from pods.types import GenerationRequest, OnCompletion, Rollout

P = ParamSpec("P")
T = TypeVar("T")
RECOVERABLE = (Preempted, Cancelled, FloatingPointError, EngineFailed)
"""Errors that end a command on one rank and leave all ranks able to carry out the next one."""
DEATH_NOTICE_SECONDS = 3.0  # in which the launcher notices that a process has died
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class WorkerGroup:
    """All processes of a run as rank 0 sees them, or the single process of a run."""

    worker: Worker
    stop: Stop
    commands: CommandChannel

    @property
    def facts(self) -> Mapping[str, Any]:
        """What this process's engine has chosen; see `Engine.facts`."""
        return self.worker.engine.facts

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt, a share on each process; see `Engine.generate`."""
        parts = self._call_all(Worker.generate, request, on_completion=on_completion)
        groups = [rollouts for part in parts for rollouts in part]
        if on_completion is not None:
            for index in range(len(parts[0]), len(groups)):
                for rollout in groups[index]:
                    on_completion(index, rollout.text)
        return groups

    def sync(self) -> float | None:
        """Bring the policy's current weights into every engine; see `Engine.sync`."""
        return self._call_all(Worker.sync)[0]

    def update(
        self,
        rollouts: list[Rollout],
        advantages: NDArray[np.float64],
        sizes: list[int],
        step: int,
    ) -> UpdateStats:
        """Move the weights on all processes, which stay equal; see `pods.policy.update`."""
        return self._call_all(Worker.update, rollouts, advantages, sizes, step)[0]

    def nonfinite(self) -> str | None:
        """Return what of weights and optimizer state is NaN or infinite; None if nothing is."""
        return next(filter(None, self._call_all(Worker.nonfinite)), None)

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a checkpoint; all processes help if they are sharded."""
        if is_sharded(self.worker.policy.model):
            self._call_all(Worker.save, folder)
        else:
            self.worker.save(folder)

    def restore(self, folder: Path) -> None:
        """Read the weights and optimizer of a checkpoint on all processes."""
        self._call_all(Worker.restore, folder)

    def load_policy(self, folder: Path) -> None:
        """Read only the weights of a checkpoint on all processes, to evaluate them."""
        self._call_all(Worker.load_policy, folder)

    @contextmanager
    def release_on_exit(self) -> Iterator[None]:
        """Let the other ranks end after the block, unless they are carrying out a command."""
        try:
            yield
        finally:
            if self.worker.process_group.size > 1 and not self.commands.open:
                with suppress(PeerLost):
                    self.commands.send(None)

    def _call_all(
        self, method: Callable[Concatenate[Worker, P], T], *arguments: P.args, **local: P.kwargs
    ) -> list[T]:
        """Call one method of `Worker` on every process and gather the results by rank.

        Keyword arguments stay on this process.

        Raises:
            Preempted: the run was asked to stop; all processes have stopped working.
            EngineFailed: an engine broke down.
            PeerLost: another process has died.
        """
        worker, commands = self.worker, self.commands
        if worker.process_group.size == 1:
            return [method(worker, *arguments, **local)]
        commands.send((method.__name__, arguments))
        with self._peer_death_as_peer_lost():
            error, result = attempt(partial(method, worker, *arguments, **local))
        if error is not None:
            commands.cancel()
        results = commands.gather((None, result), self._stop_waiting)
        assert results is not None
        if error is not None:
            raise error
        for rank, (error_text, _) in enumerate(results):
            if error_text is not None:
                worker.check()  # raises if a request to stop is why they have stopped
                raise EngineFailed(f"process {rank}: {error_text}")
        return [result for _, result in results]

    @contextmanager
    def _peer_death_as_peer_lost(self) -> Iterator[None]:
        """Turn an error that comes from the death of another process into PeerLost.

        torch raises many kinds then, but the launcher asks all other processes to stop.
        """
        try:
            yield
        except RuntimeError as error:
            until = time.monotonic() + DEATH_NOTICE_SECONDS
            while not self.stop.requested:
                if time.monotonic() > until:
                    raise
                time.sleep(POLL_SECONDS)
            raise PeerLost("another process of the run has died") from error

    def _stop_waiting(self) -> None:
        """Cancel the command once asked to stop; pass the other ranks' heartbeats on."""
        if self.stop.requested:
            self.commands.cancel()
        if self.commands.others_are_alive():
            self.stop.heartbeats += 1


def serve(worker: Worker, commands: CommandChannel) -> None:
    """Carry out the commands of rank 0 until it has no more.

    Raises:
        PeerLost: rank 0 has died.
    """
    while (command := commands.receive()) is not None:
        name, arguments = command
        error, result = attempt(partial(getattr(worker, name), *arguments))
        error_text = None if error is None else f"{type(error).__name__}: {error}"
        if not isinstance(error, Cancelled | FloatingPointError | None):  # rank 0 reports these
            traceback.print_exception(error)
        commands.gather((error_text, result), lambda: None)


def attempt(call: Callable[[], T]) -> tuple[BaseException | None, T | None]:
    """Return the recoverable error that ended a call and None, or None and its result."""
    try:
        return None, call()
    except RECOVERABLE as error:
        return error, None
