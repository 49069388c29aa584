"""All processes of a run: rank 0 calls a method of `Worker` on each of them, also on itself.

Rank 0 makes every decision alone (which prompts, what is kept, when to stop) and holds the
`WorkerGroup`: to the training loop an engine, to the trainer a single worker. Each other rank is a
`Follower`.
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
import torch.distributed as dist
from numpy.typing import NDArray

from pods.engines.base import EngineFailed
from pods.policy.fsdp import is_sharded
from pods.policy.process_group import Cancelled, ProcessGroup, lost_connections
from pods.policy.update import UpdateStats
from pods.system.signals import PeerLost, Preempted, Stop
from pods.training.worker import Worker
from pods.types import GenerationRequest, OnCompletion, Rollout

P = ParamSpec("P")
T = TypeVar("T")
RECOVERABLE = (Preempted, Cancelled, FloatingPointError, EngineFailed)
"""Errors that end a command on one rank and leave all ranks able to carry out the next one."""
DEATH_NOTICE_SECONDS = 3.0  # in which the launcher notices that a process has died
HEARTBEAT_SECONDS = 0.5  # between heartbeats in the store that all ranks share
POLL_SECONDS = 1e-4


@dataclass
class WorkerGroup:
    """All processes of a run as rank 0 sees them, or the single process of a run."""

    worker: Worker
    stop: Stop
    sent: int = 0
    """Number of commands so far; equal on all ranks."""
    cancelled: int = 0
    """Number of the last command that was cancelled."""
    busy: bool = False
    """True while the last command is being carried out."""
    looked: float = 0.0
    """Time at which rank 0 last looked for heartbeats of the others."""
    heartbeats: int = 0
    """Heartbeats of the others that it has seen."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What this process's engine has chosen; see `Engine.facts`."""
        return self.worker.engine.facts

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt, a share on each process; see `Engine.generate`."""
        parts = self.call_all(Worker.generate, request, on_completion=on_completion)
        groups = [rollouts for part in parts for rollouts in part]
        if on_completion is not None:
            for index in range(len(parts[0]), len(groups)):
                for rollout in groups[index]:
                    on_completion(index, rollout.text)
        return groups

    def sync(self) -> float | None:
        """Bring the policy's current weights into every engine; see `Engine.sync`."""
        return self.call_all(Worker.sync)[0]

    def update(
        self, rollouts: list[Rollout], advantages: NDArray[np.float64], sizes: list[int], step: int
    ) -> UpdateStats:
        """Move the weights on all processes, which stay equal; see `pods.policy.update`."""
        return self.call_all(Worker.update, rollouts, advantages, sizes, step)[0]

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a checkpoint; all processes help if they are sharded."""
        if is_sharded(self.worker.policy.model):
            self.call_all(Worker.save, folder)
        else:
            self.worker.save(folder)

    def call_all(
        self, method: Callable[Concatenate[Worker, P], T], *arguments: P.args, **local: P.kwargs
    ) -> list[T]:
        """Call one method of `Worker` on every process and gather the results by rank.

        Keyword arguments stay on this process. `Preempted`: the run was asked to stop, and all
        processes have stopped working. `EngineFailed`, `PeerLost`: another one broke down, or died.
        """
        worker, group = self.worker, self.worker.process_group
        if group.size == 1:
            return [method(worker, *arguments, **local)]
        self._send((method.__name__, arguments))
        with self._peer_death_as_peer_lost():
            error, result = attempt(partial(method, worker, *arguments, **local))
        if error is not None:
            self._cancel()
        results = gather(group, (None, result), self._stop_waiting)
        self.busy = False
        if error is not None:
            raise error
        for rank, (error_text, _) in enumerate(results):
            if error_text is not None:
                worker.check()  # raises if a request to stop is why they have stopped
                raise EngineFailed(f"process {rank}: {error_text}")
        return [result for _, result in results]

    def _send(self, command: Any) -> None:
        self.sent += 1
        self.busy = True
        self.worker.process_group.broadcast(command)

    def _cancel(self) -> None:
        """Tell the other ranks to abandon the command that they are carrying out."""
        if self.cancelled < self.sent:
            self.cancelled = self.sent
            with lost_connections():
                self.worker.process_group.store.set(f"cancelled/{self.sent}", "")

    def _stop_waiting(self) -> None:
        """Cancel the command once asked to stop; pass the other ranks' heartbeats on."""
        if self.stop.requested:
            self._cancel()
        if time.monotonic() - self.looked >= HEARTBEAT_SECONDS:
            self.looked, seen = time.monotonic(), self.heartbeats
            with lost_connections():
                self.heartbeats = self.worker.process_group.store.add("heartbeats", 0)
            self.stop.heartbeats += self.heartbeats > seen

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

    @contextmanager
    def release_on_exit(self) -> Iterator[None]:
        """Let the other ranks end after the block, unless they are carrying out a command."""
        try:
            yield
        finally:
            if self.worker.process_group.size > 1 and not self.busy:
                with suppress(PeerLost):
                    self._send(None)


@dataclass
class Follower:
    """A rank other than 0, which carries out the commands of rank 0."""

    process_group: ProcessGroup
    received: int = 0
    """Number of commands so far; equal on all ranks."""
    last_heartbeat: float = 0.0

    def heartbeat(self) -> None:
        """Send a heartbeat now and then; `Cancelled`: rank 0 has cancelled the command."""
        if time.monotonic() - self.last_heartbeat < HEARTBEAT_SECONDS:
            return
        self.last_heartbeat = time.monotonic()
        with lost_connections():
            self.process_group.store.add("heartbeats", 1)
            cancelled = self.process_group.store.check([f"cancelled/{self.received}"])
        if cancelled:
            raise Cancelled

    def serve(self, worker: Worker) -> None:
        """Carry out the commands of rank 0 until it has no more; `PeerLost`: it has died."""
        while True:
            self.received += 1
            command = self.process_group.broadcast(None)
            if command is None:
                return
            name, arguments = command
            error, result = attempt(partial(getattr(worker, name), *arguments))
            error_text = None if error is None else f"{type(error).__name__}: {error}"
            if not isinstance(error, Cancelled | FloatingPointError | None):  # rank 0 reports these
                traceback.print_exception(error)
            gather(self.process_group, (error_text, result), lambda: None)


def attempt(call: Callable[[], T]) -> tuple[BaseException | None, T | None]:
    """Return the recoverable error that ended a call and None, or None and its result."""
    try:
        return None, call()
    except RECOVERABLE as error:
        return error, None


def gather(group: ProcessGroup, result: Any, waiting: Callable[[], None]) -> list[Any]:
    """Call `waiting()` until all ranks are done; return their results by rank, on rank 0 alone."""
    results = [None] * group.size if group.is_main else []
    with lost_connections():
        work = dist.barrier(group=group.control, async_op=True)
        while not work.is_completed():
            waiting()
            time.sleep(POLL_SECONDS)
        work.wait()
        dist.gather_object(result, results or None, group=group.control)
    return results
