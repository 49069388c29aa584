"""The launcher on paper: when jobs of several sizes start on so many GPUs, and what failures cost.

The rule is that of a sweep: jobs in order, each as soon as enough GPUs are free; a large one at the
head of the queue waits, and nobody overtakes it. A job stays within one machine, the fullest that
has room. A job that fails loses what it did since its last checkpoint and takes its old place in
the queue; its GPUs are away for a restart.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 20  # of the failures, whose mean is shown
MOST = 5.0  # failures expected between two checkpoints: one try in e^5 = 150 gets that far


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    setting: str
    hours: float
    gpus: int
    every: float = math.inf
    """Hours of its work between two checkpoints; inf: it has none, and starts anew."""


@dataclass(frozen=True, slots=True)
class Failures:
    """What breaks: each GPU-hour of a running job alike."""

    rate: float = 0.0
    """A GPU-hour."""
    restart: float = 0.0
    """Hours until the GPUs of a job that failed can be used again."""


@dataclass(frozen=True, slots=True)
class Try:
    """A job from a start to its end or its failure."""

    job: int
    start: float
    end: float
    devices: tuple[int, ...]
    lost: float
    """Hours of its work that are to be done again; 0 where it did not fail."""
    failed: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """All tries on so many GPUs, in the order in which they started."""

    jobs: tuple[Job, ...]
    gpus: int
    tries: tuple[Try, ...]

    @property
    def wall(self) -> float:
        """Hours until the last job has ended."""
        return max((t.end for t in self.tries), default=0.0)

    @property
    def idle(self) -> float:
        """Share of the GPUs' time until then in which no job has them."""
        busy = sum((t.end - t.start) * len(t.devices) for t in self.tries)
        return 1 - busy / (self.gpus * self.wall) if self.wall else 0.0

    @property
    def tail(self) -> float:
        """Hours from when the last job has begun, so that none is new, to the end."""
        begun = {t.job: t.start for t in reversed(self.tries)}
        return self.wall - max(begun.values(), default=0.0)

    @property
    def restarts(self) -> int:
        """Tries that failed."""
        return sum(t.failed for t in self.tries)

    @property
    def lost(self) -> float:
        """GPU-hours of work that was done again."""
        return sum(t.lost * len(t.devices) for t in self.tries)


def lower_bound(jobs: Sequence[Job], gpus: int) -> float:
    """Hours that no schedule can beat: the longest job, or all work spread evenly."""
    work = sum(job.hours * job.gpus for job in jobs)
    return max(max((job.hours for job in jobs), default=0.0), work / gpus)


def simulate(
    jobs: Sequence[Job],
    gpus: int,
    failures: Failures | None = None,
    rng: np.random.Generator | None = None,
    machine: int | None = None,
) -> Schedule:
    """Run the jobs on paper.

    Args:
        jobs: in the order of the queue.
        gpus: in all.
        failures: None: there are none.
        rng: draws when jobs fail; needed with a rate over 0.
        machine: GPUs of one machine; None: all are in one.

    Raises:
        ValueError: a job takes more GPUs than there are, or than one machine has; or failures are
            so many that it would hardly ever get to its next checkpoint.

    >>> simulate([Job("a", 4, 1), Job("b", 2, 1), Job("c", 2, 1)], gpus=2).wall
    4.0
    """
    size = min(machine or gpus, gpus)
    for job in jobs:
        if job.gpus > size:
            raise ValueError(f"gpus={size}: a job of {job.setting} takes {job.gpus}")
    failures, done, tries = failures or Failures(), [0.0] * len(jobs), []
    _must_get_on(jobs, failures.rate)
    waiting = list(range(len(jobs)))
    free = [list(range(first, min(first + size, gpus))) for first in range(0, gpus, size)]
    events: list[tuple[float, int, tuple[int, ...]]] = []  # when, the job to queue or -1, GPUs
    now = 0.0
    while waiting or events:
        while waiting and (devices := _take(free, jobs[waiting[0]].gpus)):
            index = heapq.heappop(waiting)
            made = _try(jobs[index], index, done[index], now, devices, failures.rate, rng)
            tries.append(made)
            back = made.end + (failures.restart if made.failed else 0.0)
            heapq.heappush(events, (back, -1, devices))
            if made.failed:
                done[index] += made.end - made.start - made.lost
                heapq.heappush(events, (made.end, index, ()))
        now = events[0][0]
        while events and events[0][0] == now:  # all that happens at once, before the next start
            _, index, devices = heapq.heappop(events)
            for device in devices:
                heapq.heappush(free[device // size], device)
            if index >= 0:
                heapq.heappush(waiting, index)
    return Schedule(tuple(jobs), gpus, tuple(tries))


def _must_get_on(jobs: Sequence[Job], rate: float) -> None:
    """Refuse failures that keep some job from ever getting to its next checkpoint, or its end."""
    stretches = [(job.gpus * min(job.every, job.hours), job.setting) for job in jobs]
    hours, setting = max(stretches, default=(0.0, ""))
    if rate * hours > MOST:
        raise ValueError(f"failures={rate:g}: must be at most {MOST / hours:.3g} a GPU-hour: a job "
                         f"of {setting} takes {hours:.3g} to a checkpoint")  # fmt: skip


def _take(free: list[list[int]], count: int) -> tuple[int, ...]:
    """So many GPUs of the fullest machine that has them; none where no machine has."""
    able = [there for there in free if len(there) >= count]
    if not able:
        return ()
    there = min(able, key=len)
    return tuple(heapq.heappop(there) for _ in range(count))


def _try(
    job: Job, index: int, done: float, now: float, devices: tuple[int, ...], rate: float,
    rng: np.random.Generator | None,
) -> Try:  # fmt: skip
    """Go on from the hours that are done and kept, to the end or to a failure."""
    left, lasts = job.hours - done, math.inf
    if rate > 0:
        assert rng is not None
        lasts = float(rng.exponential(1 / (rate * job.gpus)))
    if lasts >= left:
        return Try(index, now, now + left, devices, 0.0, failed=False)
    reached = done + lasts
    kept = max(done, math.floor(reached / job.every) * job.every) if job.every < math.inf else 0.0
    return Try(index, now, now + lasts, devices, reached - kept, failed=True)


def forecast(
    jobs: Sequence[Job], gpus: int, failures: Failures, machine: int | None = None
) -> dict[str, float]:
    """What to expect: means over draws of the failures, the same ones at each call.

    Returns:
        gpus, bound, wall, worst (the longest wall of the draws), idle, tail, restarts, lost.
    """
    made = [
        simulate(jobs, gpus, failures, np.random.default_rng([gpus, draw]), machine)
        for draw in range(DRAWS if failures.rate > 0 else 1)
    ]
    names = ("wall", "idle", "tail", "restarts", "lost")
    means = {name: float(np.mean([getattr(one, name) for one in made])) for name in names}
    worst = max(one.wall for one in made)
    return {"gpus": gpus, "bound": lower_bound(jobs, gpus), "worst": worst, **means}
