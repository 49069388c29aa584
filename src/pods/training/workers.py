"""The workers of a run: rank 0 calls a method of `Worker` on each process, also on itself.

Rank 0 makes every decision alone (which prompts, what is kept, when to stop) and holds the
`WorkerGroup`. Each other rank is a `Follower`.
"""

import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.engines.base import Engine, EngineFailed
from pods.policy.optimizer import nonfinite, restore_optimizer, save_optimizer
from pods.policy.policy import Policy
from pods.policy.process_group import POLL_SECONDS, Cancelled, ProcessGroup, lost_connections
from pods.policy.scoring import UpdateContext
from pods.policy.update import update
from pods.policy.update_stats import UpdateStats
from pods.runs.store import OPTIMIZER
from pods.system.signals import PeerLost, Preempted, Stop
from pods.types import GenerationRequest, OnCompletion, Rollout

P = ParamSpec("P")
T = TypeVar("T")
RECOVERABLE = (Preempted, Cancelled, FloatingPointError, EngineFailed)  # end one command only
DEATH_NOTICE_SECONDS = 3.0  # in which the launcher notices that a process has died
HEARTBEAT_SECONDS = 0.5  # between heartbeats in the store that all ranks share


@dataclass(frozen=True)
class Worker:
    """Policy, optimizer and engine of one process of a run."""

    config: Config
    policy: Policy
    optimizer: torch.optim.Optimizer
    engine: Engine
    process_group: ProcessGroup
    check: Callable[[], None]  # called when state is consistent; may raise to end the operation

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw this process's share of the rows; rank 0, with `on_completion`, has the first."""
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

    def sync(self) -> float | None:
        """Bring the policy's current weights into the engine; see `Engine.sync`."""
        return self.engine.sync()

    def facts(self) -> Mapping[str, Any]:
        """Return what the engine has chosen; see `Engine.facts`."""
        return self.engine.facts

    def update(
        self, rollouts: list[Rollout], advantages: NDArray[np.float64], sizes: list[int], step: int
    ) -> UpdateStats:
        """Take part in an update of the policy; see `pods.policy.update`."""
        context = UpdateContext(
            policy=self.policy,
            config=self.config,
            process_group=self.process_group,
            check=self.check,
        )
        return update(context, self.optimizer, rollouts, advantages, sizes, step)

    def nonfinite(self) -> str | None:
        """Return which of this process's weights and moments are NaN or infinite, or None."""
        return nonfinite(self.optimizer)

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


@dataclass
class WorkerGroup:
    """The processes of a run, as rank 0 sees them; an `Engine` that spreads its rows over them."""

    worker: Worker
    stop: Stop
    sent: int = 0  # number of commands so far; equal on all ranks
    cancelled: int = 0  # number of the last command that was cancelled
    busy: bool = False  # True while the last command is being carried out
    looked: float = 0.0  # time at which rank 0 last looked for heartbeats of the others
    heartbeats: int = 0  # heartbeats of the others that it has seen

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the engine has chosen; see `Engine.facts`."""
        return self.call_all(Worker.facts)[0]

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt, a share on each process; see `Engine.generate`."""
        parts = self.call_all(Worker.generate, request, on_completion=on_completion)
        if on_completion is not None:
            for part in parts[1:]:
                for index, rollouts in enumerate(part):
                    for rollout in rollouts:
                        on_completion(index, rollout.text)
        return [list(chain.from_iterable(shares)) for shares in zip(*parts, strict=True)]

    def sync(self) -> float | None:
        """Bring the policy's current weights into each engine; see `Engine.sync`."""
        return self.call_all(Worker.sync)[0]

    def update(
        self, rollouts: list[Rollout], advantages: NDArray[np.float64], sizes: list[int], step: int
    ) -> UpdateStats:
        """Update the policy on every process; see `Worker.update`."""
        return self.call_all(Worker.update, rollouts, advantages, sizes, step)[0]

    def call_all(
        self, method: Callable[Concatenate[Worker, P], T], *arguments: P.args, **local: P.kwargs
    ) -> list[T]:
        """Call a function of the worker on every process and gather the results by rank.

        Keyword arguments stay on this process.

        Raises:
            Preempted: the run was asked to stop, and all processes have stopped working.
            EngineFailed, PeerLost: another process broke down, or died.
        """
        group = self.worker.process_group
        if group.size == 1:
            return [method(self.worker, *arguments, **local)]

        self._send((method, arguments))
        try:
            error, result = attempt(partial(method, self.worker, *arguments, **local))
        except RuntimeError as broken:  # torch raises many kinds if another process has died
            if self._others_are_told_to_stop():
                raise PeerLost("another process of the run has died") from broken
            raise

        if error is not None:
            self._cancel()
        answers = group.gather((None, result), self._stop_waiting)
        self.busy = False

        if error is not None:
            raise error
        return self._results(answers)

    def _others_are_told_to_stop(self) -> bool:
        """Wait for the launcher, which asks all processes to stop once one of them has died."""
        until = time.monotonic() + DEATH_NOTICE_SECONDS
        while not self.stop.requested and time.monotonic() <= until:
            time.sleep(POLL_SECONDS)
        return self.stop.requested

    def _results(self, answers: Sequence[tuple[str | None, Any]]) -> list[Any]:
        """Return what each process answered, unless one of them met an error."""
        for rank, (error_text, _) in enumerate(answers):
            if error_text is not None:
                self.worker.check()  # raises if a request to stop is why they have stopped
                raise EngineFailed(f"process {rank}: {error_text}")
        return [result for _, result in answers]

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
        if time.monotonic() - self.looked < HEARTBEAT_SECONDS:
            return
        self.looked = time.monotonic()
        before = self.heartbeats
        with lost_connections():
            self.heartbeats = self.worker.process_group.store.add("heartbeats", 0)
        if self.heartbeats > before:
            self.stop.heartbeats += 1

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
    received: int = 0  # number of commands so far; equal on all ranks
    last_heartbeat: float = 0.0

    def heartbeat(self) -> None:
        """Send a heartbeat now and then.

        Raises:
            Cancelled: rank 0 has cancelled the command.
        """
        if time.monotonic() - self.last_heartbeat < HEARTBEAT_SECONDS:
            return
        self.last_heartbeat = time.monotonic()
        with lost_connections():
            self.process_group.store.add("heartbeats", 1)
            cancelled = self.process_group.store.check([f"cancelled/{self.received}"])
        if cancelled:
            raise Cancelled

    def serve(self, worker: Worker) -> None:
        """Carry out the commands of rank 0 until it has no more.

        Raises:
            PeerLost: rank 0 has died.
        """
        while True:
            command = self.process_group.broadcast(None)
            if command is None:
                return
            self.received += 1
            method, arguments = command
            error, result = attempt(partial(method, worker, *arguments))
            error_text = None
            if error is not None:
                error_text = f"{type(error).__name__}: {error}"
                if not isinstance(error, Cancelled | FloatingPointError):  # rank 0 reports these
                    traceback.print_exception(error)
            self.process_group.gather((error_text, result), lambda: None)


def attempt(call: Callable[[], T]) -> tuple[BaseException | None, T | None]:
    """Return the recoverable error that ended a call and None, or None and its result."""
    try:
        return None, call()
    except RECOVERABLE as error:
        return error, None
