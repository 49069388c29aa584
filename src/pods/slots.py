"""A machine's devices (GPUs, or cores), and which of them a job takes, or that it must wait."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Slots:
    """Devices that jobs take and give back; each is one job's at a time.

    Jobs are asked for in their order, and one that must wait makes those after it wait, so that a
    large job is not passed by small ones for ever.
    """

    devices: Sequence[str]
    jobs: int | None = None
    """At most so many at once; None: as many as the devices last."""
    taken: list[tuple[str, ...]] = field(default_factory=list)
    """By each job that runs."""

    def take(self, need: int) -> tuple[str, ...] | None:
        """Take the first free devices; None: the job must wait.

        Raises:
            ValueError: there are not so many devices, free or not.

        >>> slots = Slots("0123")
        >>> slots.take(1), slots.take(2), slots.take(2)
        (('0',), ('1', '2'), None)
        """
        if not 1 <= need <= len(self.devices):
            raise ValueError(f"{need} of {len(self.devices)} devices")
        busy = {device for job in self.taken for device in job}
        free = [device for device in self.devices if device not in busy]
        if len(free) < need or len(self.taken) == self.jobs:
            return None
        self.taken.append(tuple(free[:need]))
        return self.taken[-1]

    def give(self, devices: tuple[str, ...]) -> None:
        """Take back what a job has held."""
        self.taken.remove(devices)


def first(slots: Slots, needs: Iterable[int]) -> list[tuple[str, ...]]:
    """Devices of the jobs that start at once, in their order, were all devices free.

    >>> first(Slots("0123"), [1, 2, 2, 1])
    [('0',), ('1', '2')]
    """
    empty, started = Slots(slots.devices, slots.jobs), []
    for need in needs:
        devices = empty.take(need)
        if devices is None:
            break
        started.append(devices)
    return started
