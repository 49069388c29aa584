"""The processes of one run: who they are, and how they add up what each has computed.

Process 0 leads. It alone decides what is done next, writes files and hears signals; the others do
what it orders (`orders.py`). What starts them (`pods.torchrun`, or torchrun by hand where there are
several machines) says in the environment who is who.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from pods.machine import RENDEZVOUS
from pods.stop import Gone

PATIENCE = timedelta(days=30)  # a checkpoint may take long; what started them sees who dies
BUCKET = 2**24  # numbers that are added up in one message: 64 MB in float32


class Abandoned(BaseException):
    """The leader has given up what all were at; nothing of it counts."""


class Team:
    """The processes of one run, as one of them sees it; alone unless it was started as one."""

    rank, size = 0, 1
    mesh: DeviceMesh | None = None
    control: dist.ProcessGroup
    """For what is in the host's memory."""
    board: Store
    """For a word that nobody waits for."""

    @property
    def leads(self) -> bool:
        """Whether this process decides."""
        return self.rank == 0

    def share(self, count: int, rank: int | None = None) -> range:
        """Which of `count` things in a row are this process's, or another's: even parts."""
        rank = self.rank if rank is None else rank
        return range(count * rank // self.size, count * (rank + 1) // self.size)

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers of all processes, in float64."""
        if self.size == 1:
            return list(numbers)
        with lost_connections():
            found = torch.tensor(numbers, dtype=torch.float64)
            dist.all_reduce(found, group=self.control)
        return found.tolist()

    def largest(self, number: float) -> float:
        """The largest of all processes' numbers."""
        if self.size == 1:
            return number
        with lost_connections():
            found = torch.tensor(number, dtype=torch.float64)
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self.control)
        return found.item()

    def leaders(self, thing: Any) -> Any:
        """What the leader has of something that all have in their own way."""
        if self.size == 1:
            return thing
        shared = [thing]
        with lost_connections():
            dist.broadcast_object_list(shared, 0, group=self.control, device=torch.device("cpu"))
        return shared[0]

    def exchange(self, found: dict[int, Tensor]) -> dict[int, Tensor]:
        """All processes' tensors, each by a number of its own; others' are in the host's memory."""
        if self.size == 1:
            return found
        parts: list[dict[int, Tensor]] = [{}] * self.size
        here = {i: tensor.cpu() for i, tensor in found.items()}
        with lost_connections():
            dist.all_gather_object(parts, here, group=self.control)
        return {i: tensor for part in parts for i, tensor in part.items()}

    def add_up(self, parameters: Sequence[Tensor]) -> None:
        """Replace each gradient by the sum of all processes'; where one has none it counts as 0."""
        if self.size == 1:
            return
        bucket: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            bucket.append(parameter.grad)
            if sum(map(Tensor.numel, bucket)) >= BUCKET:
                self._add_up(bucket)
                bucket = []
        if bucket:
            self._add_up(bucket)

    def _add_up(self, gradients: list[Tensor]) -> None:
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with lost_connections():
            dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def check(self, check: Callable[[], None]) -> None:
        """Let the leader's `check()` raise, on it and at the same place on all others.

        Raises:
            Abandoned: on the others.
        """
        if self.size == 1:
            check()
            return
        wrong: BaseException | None = None
        try:
            if self.leads:
                check()
        except BaseException as error:
            wrong = error
        stop = torch.tensor(wrong is not None)
        with lost_connections():
            dist.broadcast(stop, 0, group=self.control)
        if wrong is not None:
            raise wrong
        if stop:
            raise Abandoned


def of_a_connection(error: BaseException) -> bool:
    """Whether an error of torch's own messages (not all go through here) is one of a lost peer."""
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


@contextmanager
def lost_connections() -> Iterator[None]:
    """Turn what a broken connection raises into one kind of error."""
    try:
        yield
    except (torch.OutOfMemoryError, torch.AcceleratorError):  # our own device's
        raise
    except RuntimeError as error:
        raise Gone("another process of the run has died") from error


ALONE = Team()


def join(device: str) -> Team:
    """Meet those that were started together with this process.

    Args:
        device: cpu, or cuda: each process takes a card of its machine.
    """
    team = Team()
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, team.rank, team.size = _meet()
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=PrefixStore("torch", store), rank=team.rank, world_size=team.size, timeout=PATIENCE,
    )  # fmt: skip
    team.control = dist.new_group(backend="gloo", timeout=PATIENCE)
    team.board = PrefixStore("pods", store)
    team.mesh = init_device_mesh(device, (team.size,))
    return team


def _meet() -> tuple[Store, int, int]:
    """The store that all share, this process's rank, and how many they are.

    On one machine it is a file that only this user can open, and that grows by some 20 bytes with
    each sign of life. torchrun's listens on a port that everyone can reach who reaches the machine,
    and asks nobody who they are.
    """
    path = os.environ.get(RENDEZVOUS)
    if path is None:
        met: tuple[Store, int, int] = next(rendezvous("env://"))
        return met
    size = int(os.environ["WORLD_SIZE"])
    store: Store = dist.FileStore(path, size)  # type: ignore[attr-defined]
    store.set_timeout(PATIENCE)
    return store, int(os.environ["RANK"]), size
