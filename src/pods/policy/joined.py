"""Several processes of one run: the messages that training needs, by torch.distributed."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from pods.policy.process_group import BACKENDS, ProcessGroup, T, Ts
from pods.system.machine import LOOPBACK
from pods.system.signals import PeerLost, Preempted, Stop

TIMEOUT = timedelta(hours=6)
"""Longest wait for the others, far over that for a download or a large checkpoint. The watchdog of
a process that hangs ends it before, and so the run."""
MEETING_TIMEOUT = timedelta(minutes=15)  # torchrun's own, for processes that were started together
POLL_SECONDS = 0.01
BUCKET_ELEMENTS = 2**24  # gradients that are summed in one message: 64 MB in float32
ENDED = "ended"  # key of the store: how a process ended that met an error


class JoinedProcesses(ProcessGroup):
    """Several processes of one run, seen from one of them."""

    def __init__(self, stop: Stop, store: Store) -> None:
        """Take part in torch's process group, which this process has joined.

        `stop` is told while this process waits for others. They leave notes in the `store`.
        """
        self.stop = stop
        self.store = store
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        # gloo, for what is in the host's memory
        self.control = dist.new_group(backend="gloo", timeout=TIMEOUT)

    def on_main(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function on the main process alone, and return its result on every process."""
        result: Any = None
        if self.is_main:
            result = function(*arguments)
        return self.broadcast(result)  # type: ignore[no-any-return]

    def broadcast(self, value: T) -> T:
        """Return the main process's value on every process."""
        values = [value]
        with self._waiting():
            on_host = torch.device("cpu")
            dist.broadcast_object_list(values, group_src=0, group=self.control, device=on_host)
        return values[0]

    def all_values(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        values: list[Any] = [None] * self.size
        with self._waiting():
            dist.all_gather_object(values, value, group=self.control)
        return values

    def all_sum(self, numbers: Sequence[float]) -> list[float]:
        """Sum each number over all processes, in float64."""
        return self._reduce(numbers, dist.ReduceOp.SUM)

    def all_max(self, number: float) -> float:
        """Return the largest of all processes' numbers."""
        return self._reduce([number], dist.ReduceOp.MAX)[0]

    def _reduce(self, numbers: Sequence[float], operation: Any) -> list[float]:
        reduced = torch.tensor(numbers, dtype=torch.float64)
        with self._waiting():
            dist.all_reduce(reduced, operation, group=self.control)
        return reduced.tolist()

    def all_gather(self, tensors: dict[int, Tensor]) -> dict[int, Tensor]:
        """Return the tensors of all processes, which have distinct keys, in the host's memory."""
        gathered: dict[int, Tensor] = {}
        for part in self.all_values({key: tensor.cpu() for key, tensor in tensors.items()}):
            gathered.update(part)
        return gathered

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace each gradient by its sum over all processes; a missing gradient counts as 0."""
        bucket: list[Tensor] = []
        elements = 0
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            bucket.append(parameter.grad)
            elements += parameter.grad.numel()
            if parameter is parameters[-1] or elements >= BUCKET_ELEMENTS:
                self._sum_in_one_message(bucket)
                bucket = []
                elements = 0

    def _sum_in_one_message(self, gradients: Sequence[Tensor]) -> None:
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with self._waiting():
            dist.all_reduce(flat)
        sums = flat.split([gradient.numel() for gradient in gradients])
        for gradient, total in zip(gradients, sums, strict=True):
            gradient.copy_(total.view_as(gradient))

    def check(self, check: Callable[[], None]) -> None:
        """Call `check()`; if it raises `Preempted` on any process, raise that on every one."""
        stops = False
        try:
            check()
        except Preempted:
            stops = True
        if self.all_max(stops):
            raise Preempted

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Say that this process waits for the others; raise PeerLost if one of them has died."""
        self.stop.waiting = True
        try:
            yield
        except RuntimeError as error:
            if not self.lost_another(error):
                raise
            raise PeerLost("another process of the run has died") from error
        finally:
            self.stop.waiting = False

    @staticmethod
    def lost_another(error: BaseException) -> bool:
        """Return whether an error came of the end of another process.

        FSDP sends messages of its own, which end with an error of torch.
        """
        return isinstance(error, PeerLost | dist.DistError) or "gloo" in str(error)

    def leave_note(self, state: str, code: int, error: str) -> None:
        """Tell the main process how this one ends: the state of the run, exit code and error."""
        note = [state, code, f"process {self.rank}: {error}"]
        with suppress(RuntimeError):  # the store's process is gone, too
            self.store.set(ENDED, json.dumps(note))

    def read_note(self) -> tuple[str, int, str] | None:
        """Return what a process said that has ended; None if it could not, since it was killed."""
        with suppress(RuntimeError):
            if self.store.check([ENDED]):
                state, code, error = json.loads(self.store.get(ENDED))
                return state, code, error
        return None


def join(device: str, stop: Stop, place: Path | None = None) -> JoinedProcesses:
    """Join the processes that were started together with this one; on cuda each takes one GPU.

    Rank, world size and local rank are in the environment, as torchrun sets them. They meet at
    `place`, a file of this machine that only this user can open; None: at the address in the
    environment.
    """
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank = int(os.environ["RANK"])
    size = int(os.environ["WORLD_SIZE"])

    if place is None:
        try:
            store, rank, size = next(rendezvous("env://", rank, size, timeout=MEETING_TIMEOUT))
        except RuntimeError as error:
            raise PeerLost("the processes of the run did not meet") from error
    else:
        for variable, interface in LOOPBACK.items():  # messages stay on this machine
            os.environ.setdefault(variable, interface)
        store = dist.FileStore(str(place), size)  # type: ignore[attr-defined]

    store.set_timeout(MEETING_TIMEOUT)
    _meet(PrefixStore("here", store), rank, size)
    dist.init_process_group(
        BACKENDS[device],
        store=PrefixStore("torch", store),
        rank=rank,
        world_size=size,
        timeout=TIMEOUT,
    )
    group = JoinedProcesses(stop, PrefixStore("pods", store))
    group.mesh = init_device_mesh(device, (size,))
    return group


def _meet(store: Store, rank: int, size: int) -> None:
    """Wait until all processes are here, in Python, so that a signal can stop this one."""
    store.set(str(rank), "")
    everybody = [str(other) for other in range(size)]
    deadline = time.monotonic() + MEETING_TIMEOUT.total_seconds()
    while not store.check(everybody):
        if time.monotonic() > deadline:
            raise PeerLost("the processes of the run did not meet")
        time.sleep(POLL_SECONDS)
