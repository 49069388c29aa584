"""The processes of one run: rank, world size, and the collectives that training needs.

The main process (rank 0) alone decides what is done next, writes files and handles signals; the
others carry out its commands (`training/commands.py`). What starts them
(`launch/local_processes.py`, or
torchrun by hand across machines) passes rank and world size in the environment.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from pods.system.machine import LOOPBACK, RENDEZVOUS
from pods.system.signals import PeerLost

TIMEOUT = timedelta(days=30)  # a checkpoint may take long; whoever started them sees one die
BUCKET_ELEMENTS = 2**24  # gradients that are summed in one message: 64 MB in float32


class Cancelled(BaseException):
    """The main process has cancelled the current command; its results do not count."""


class ProcessGroup:
    """The processes of one run, seen from one of them; by default it is the only one."""

    rank, size = 0, 1
    mesh: DeviceMesh | None = None
    control: dist.ProcessGroup
    """Gloo, for collectives on what is in the host's memory."""
    store: Store
    """Key-value store for messages that no process waits for."""

    @property
    def is_main(self) -> bool:
        """Whether this is the main process."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Return which of `count` items in order this process takes; shares are equal or nearly."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def all_sum(self, numbers: Sequence[float]) -> list[float]:
        """Sum each number over all processes, in float64."""
        return self._reduce(numbers, dist.ReduceOp.SUM)

    def all_max(self, number: float) -> float:
        """Return the largest of all processes' numbers."""
        return self._reduce([number], dist.ReduceOp.MAX)[0]

    def _reduce(self, numbers: Sequence[float], operation: Any) -> list[float]:
        if self.size == 1:
            return list(numbers)
        with lost_connections():
            reduced = torch.tensor(numbers, dtype=torch.float64)
            dist.all_reduce(reduced, operation, group=self.control)
        return reduced.tolist()

    def broadcast(self, value: Any) -> Any:
        """Return the main process's value on every process."""
        if self.size == 1:
            return value
        values = [value]
        with lost_connections():
            dist.broadcast_object_list(values, 0, group=self.control, device=torch.device("cpu"))
        return values[0]

    def all_gather(self, tensors: dict[int, Tensor]) -> dict[int, Tensor]:
        """Return the tensors of all processes, which have distinct keys, in the host's memory."""
        if self.size == 1:
            return tensors
        parts: list[dict[int, Tensor]] = [{}] * self.size
        on_host = {key: tensor.cpu() for key, tensor in tensors.items()}
        with lost_connections():
            dist.all_gather_object(parts, on_host, group=self.control)
        return {key: tensor for part in parts for key, tensor in part.items()}

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace each gradient by its sum over all processes; a missing gradient counts as 0."""
        if self.size == 1:
            return
        bucket: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            bucket.append(parameter.grad)
            if sum(map(Tensor.numel, bucket)) >= BUCKET_ELEMENTS:
                _all_reduce(bucket)
                bucket = []
        if bucket:
            _all_reduce(bucket)

    def check(self, check: Callable[[], None]) -> None:
        """Call `check()` on the main process; if it raises, stop all processes at this point.

        Raises:
            Cancelled: on the other processes.
        """
        if self.size == 1:
            check()
            return
        raised: BaseException | None = None
        try:
            if self.is_main:
                check()
        except BaseException as error:
            raised = error
        stop = torch.tensor(raised is not None)
        with lost_connections():
            dist.broadcast(stop, 0, group=self.control)
        if raised is not None:
            raise raised
        if stop:
            raise Cancelled


def _all_reduce(gradients: list[Tensor]) -> None:
    """Sum gradients over all processes in one message."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    with lost_connections():
        dist.all_reduce(flat)
    sums = flat.split([gradient.numel() for gradient in gradients])
    for gradient, total in zip(gradients, sums, strict=True):
        gradient.copy_(total.view_as(gradient))


def is_connection_error(error: BaseException) -> bool:
    """Return whether torch's own messages, some of which bypass this module, lost a process."""
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


@contextmanager
def lost_connections() -> Iterator[None]:
    """Raise PeerLost for whatever a broken connection raises inside the block."""
    try:
        yield
    except (torch.OutOfMemoryError, torch.AcceleratorError):  # of this process's device
        raise
    except RuntimeError as error:
        raise PeerLost("another process of the run has died") from error


SINGLE_PROCESS = ProcessGroup()


def join(device: str) -> ProcessGroup:
    """Join the processes that were started together with this one; on cuda each takes one GPU."""
    process_group = ProcessGroup()
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, process_group.rank, process_group.size = _rendezvous()
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=PrefixStore("torch", store),
        rank=process_group.rank,
        world_size=process_group.size,
        timeout=TIMEOUT,
    )
    process_group.control = dist.new_group(backend="gloo", timeout=TIMEOUT)
    process_group.store = PrefixStore("pods", store)
    process_group.mesh = init_device_mesh(device, (process_group.size,))
    return process_group


@cache
def mesh_of_one(device: str) -> DeviceMesh:
    """Return the mesh of a process that is alone, for what torch computes only on a mesh."""
    for variable, interface in LOOPBACK.items():
        os.environ.setdefault(variable, interface)
    if not dist.is_initialized():
        backend = "nccl" if device == "cuda" else "gloo"
        store: Store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    return init_device_mesh(device, (1,))


def _rendezvous() -> tuple[Store, int, int]:
    """Return the store that all processes share, this process's rank, and the world size.

    On one machine the store is a file that only this user can open, and that grows by some 20
    bytes with each heartbeat. torchrun's store listens on a port, without authentication, for
    everyone who can reach the machine.
    """
    path = os.environ.get(RENDEZVOUS)
    if path is None:
        met: tuple[Store, int, int] = next(rendezvous("env://"))
        return met
    size = int(os.environ["WORLD_SIZE"])
    store: Store = dist.FileStore(path, size)  # type: ignore[attr-defined]
    store.set_timeout(TIMEOUT)
    return store, int(os.environ["RANK"]), size
