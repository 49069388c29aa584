"""The processes of one run: rank, world size, and the collectives that training needs.

The main process (rank 0) alone decides what is done next, writes files and handles signals; the
others carry out its commands (`training/workers.py`). What starts them passes rank and world
size in the environment.
"""

import os
import time
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
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
POLL_SECONDS = 1e-4
BUCKET_ELEMENTS = 2**24  # gradients that are summed in one message: 64 MB in float32


class Cancelled(BaseException):
    """The main process has cancelled the current command; its results do not count."""


class ProcessGroup:
    """The processes of one run, seen from one of them; by default it is the only one."""

    rank = 0
    size = 1
    mesh: DeviceMesh | None = None
    control: dist.ProcessGroup  # gloo, for collectives on what is in the host's memory
    store: Store  # keys and values, for messages that no process waits for

    @property
    def is_main(self) -> bool:
        """Whether this is the main process."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Return which of `count` rows in order this process draws; shares are equal or nearly."""
        start = count * self.rank // self.size
        stop = count * (self.rank + 1) // self.size
        return range(start, stop)

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
            on_host = torch.device("cpu")
            dist.broadcast_object_list(values, group_src=0, group=self.control, device=on_host)
        return values[0]

    def all_gather(self, tensors: dict[int, Tensor]) -> dict[int, Tensor]:
        """Return the tensors of all processes, which have distinct keys, in the host's memory."""
        if self.size == 1:
            return tensors
        parts: list[dict[int, Tensor]] = [{}] * self.size
        on_host = {key: tensor.cpu() for key, tensor in tensors.items()}
        with lost_connections():
            dist.all_gather_object(parts, on_host, group=self.control)

        gathered: dict[int, Tensor] = {}
        for part in parts:
            gathered.update(part)
        return gathered

    def gather(self, result: Any, waiting: Callable[[], None]) -> list[Any]:
        """Call `waiting()` until all ranks are done; return their results, on rank 0 alone."""
        results = [None] * self.size if self.is_main else []
        with lost_connections():
            work = dist.barrier(group=self.control, async_op=True)
            while not work.is_completed():
                waiting()
                time.sleep(POLL_SECONDS)
            work.wait()
            dist.gather_object(result, results or None, group_dst=0, group=self.control)
        return results

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace each gradient by its sum over all processes; a missing gradient counts as 0."""
        if self.size == 1:
            return
        bucket: list[Tensor] = []
        elements = 0
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            bucket.append(parameter.grad)
            elements += parameter.grad.numel()
            if parameter is parameters[-1] or elements >= BUCKET_ELEMENTS:
                _sum_in_one_message(bucket)
                bucket = []
                elements = 0

    def check(self, check: Callable[[], None]) -> None:
        """Call `check()` on the main process; if it raises, the others raise `Cancelled` here."""
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
        if stop:
            raise raised or Cancelled


def _sum_in_one_message(gradients: Sequence[Tensor]) -> None:
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
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank = int(os.environ["RANK"])
    size = int(os.environ["WORLD_SIZE"])
    place = os.environ.get(RENDEZVOUS, "env://")

    if "://" in place:  # an open port, or torchrun's
        with lost_connections():
            store, rank, size = next(rendezvous(place, rank, size, timeout=TIMEOUT))
    else:  # a file that only this user can open; it grows by some 20 bytes with each heartbeat
        store = dist.FileStore(place, size)  # type: ignore[attr-defined]
        store.set_timeout(TIMEOUT)

    dist.init_process_group(
        BACKENDS[device],
        store=PrefixStore("torch", store),
        rank=rank,
        world_size=size,
        timeout=TIMEOUT,
    )
    group = ProcessGroup()
    group.rank = rank
    group.size = size
    group.store = PrefixStore("pods", store)
    group.control = dist.new_group(backend="gloo", timeout=TIMEOUT)
    group.mesh = init_device_mesh(device, (size,))

    return group


@cache
def mesh_of_one(device: str) -> DeviceMesh:
    """Return the mesh of a process that is alone, for what torch computes only on a mesh."""
    for variable, interface in LOOPBACK.items():
        os.environ.setdefault(variable, interface)
    if not dist.is_initialized():
        store: Store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(BACKENDS[device], store=store, rank=0, world_size=1)
    return init_device_mesh(device, (1,))
