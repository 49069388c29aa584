"""The processes of one run, as each of them sees them; here there is one, which waits for nobody.

All execute the same program. The main process (rank 0) alone writes files and decides what is not a
function of the config; `joined.py` has several processes, which exchange messages.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}  # of torch.distributed, by device
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ProcessGroup:
    """The processes of one run, seen from one of them; this is the only one.

    All of them must call each method that sends messages at once: all but `share`.
    """

    rank = 0
    size = 1
    mesh: "DeviceMesh | None" = None

    @property
    def is_main(self) -> bool:
        """Whether this is the main process."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Return which of `count` rows in order this process draws; shares are equal or nearly."""
        start = count * self.rank // self.size
        stop = count * (self.rank + 1) // self.size
        return range(start, stop)

    def on_main(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function on the main process alone, and return its result on every process."""
        return function(*arguments)

    def broadcast(self, value: T) -> T:
        """Return the main process's value on every process."""
        return value

    def all_values(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        return [value]

    def all_sum(self, numbers: Sequence[float]) -> list[float]:
        """Sum each number over all processes, in float64."""
        return list(numbers)

    def all_max(self, number: float) -> float:
        """Return the largest of all processes' numbers."""
        return number

    def all_gather(self, tensors: dict[int, Tensor]) -> dict[int, Tensor]:
        """Return the tensors of all processes, which have distinct keys, in the host's memory."""
        return tensors

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace each gradient by its sum over all processes; a missing gradient counts as 0."""

    def check(self, check: Callable[[], None]) -> None:
        """Call `check()`; if it raises `Preempted` on any process, raise that on every one."""
        check()


SINGLE_PROCESS = ProcessGroup()
