"""Simulate a sweep on GPUs: when each job starts, how long all of them take, what failures cost.

Jobs start in queue order, each as soon as enough GPUs are free; a large job at the head of the
queue waits and is never overtaken. A job runs within one machine, the fullest with enough free
GPUs. A job that fails loses its work since its last checkpoint and returns to its old position in
the queue; its GPUs stay away for a restart. Without failures this is list scheduling.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 20  # simulations with failures whose mean is reported
MAX_FAILURES = 5.0  # expected between two checkpoints; one attempt in e^5 = 150 gets that far


@dataclass(frozen=True, slots=True)
class Job:
    """One run in the queue."""

    setting: str
    hours: float
    gpus: int = 1
    checkpoint_hours: float = math.inf
    """Hours of work between two checkpoints; inf: there are none, so a failed job starts over."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures of a cluster, equally likely in each GPU-hour of a running job."""

    rate: float = 0.0
    """Failures per GPU-hour."""
    restart: float = 0.0
    """Hours until the GPUs of a failed job can be used again."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A job from one start to its end or its failure, in hours."""

    job: int
    """Index of the job in the queue."""
    start: float
    end: float
    devices: tuple[int, ...]
    """Indices of the GPUs used."""
    lost: float
    """Hours of work that must be repeated."""
    failed: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """The outcome of one simulation."""

    jobs: tuple[Job, ...]
    gpus: int
    attempts: tuple[Attempt, ...]
    """All attempts, in the order in which they started."""

    @property
    def wall(self) -> float:
        """Hours until the last job has ended."""
        return max((a.end for a in self.attempts), default=0.0)

    @property
    def idle(self) -> float:
        """The share of GPU time until then in which no job uses the GPU."""
        busy = sum((a.end - a.start) * len(a.devices) for a in self.attempts)
        return 1 - busy / (self.gpus * self.wall) if self.wall else 0.0

    @property
    def tail(self) -> float:
        """Hours from the first start of the last job to the end."""
        started = {a.job: a.start for a in reversed(self.attempts)}
        return self.wall - max(started.values(), default=0.0)

    @property
    def restarts(self) -> int:
        """The number of failed attempts."""
        return sum(a.failed for a in self.attempts)

    @property
    def lost(self) -> float:
        """GPU-hours of work that was repeated."""
        return sum(a.lost * len(a.devices) for a in self.attempts)


def lower_bound(jobs: Sequence[Job], gpus: int) -> float:
    """Return the hours that no schedule can beat: the longest job, or all work spread evenly."""
    work = sum(job.hours * job.gpus for job in jobs)
    return max(max((job.hours for job in jobs), default=0.0), work / gpus)


def simulate(
    jobs: Sequence[Job],
    gpus: int,
    failures: Failures | None = None,
    rng: np.random.Generator | None = None,
    machine: int | None = None,
) -> Schedule:
    """Simulate the queue.

    Args:
        jobs: in queue order.
        gpus: number of GPUs, or of jobs at a time.
        failures: None: there are none.
        rng: draws the failures; required where their rate is above 0.
        machine: GPUs per machine; None: all are in one.

    Raises:
        ValueError: a job needs more GPUs than one machine has, or would hardly ever reach its next
            checkpoint.

    >>> simulate([Job("a", 4), Job("b", 2), Job("c", 2)], gpus=2).wall
    4.0
    """
    size, failures = min(machine or gpus, gpus), failures or Failures()
    _check(jobs, size, failures.rate)
    done, waiting = [0.0] * len(jobs), list(range(len(jobs)))
    free = [list(range(first, min(first + size, gpus))) for first in range(0, gpus, size)]
    attempts: list[Attempt] = []
    events: list[tuple[float, int, tuple[int, ...]]] = []  # time, job to queue or -1, GPUs to free
    now = 0.0
    while waiting or events:
        while waiting and (devices := _take(free, jobs[waiting[0]].gpus)):
            index = heapq.heappop(waiting)
            attempt = _attempt(jobs[index], index, done[index], now, devices, failures.rate, rng)
            attempts.append(attempt)
            back = attempt.end + (failures.restart if attempt.failed else 0.0)
            heapq.heappush(events, (back, -1, devices))
            if attempt.failed:
                done[index] += attempt.end - attempt.start - attempt.lost
                heapq.heappush(events, (attempt.end, index, ()))
        now = events[0][0]
        while events and events[0][0] == now:  # all simultaneous events precede the next start
            _, index, devices = heapq.heappop(events)
            for device in devices:
                heapq.heappush(free[device // size], device)
            if index >= 0:
                heapq.heappush(waiting, index)
    return Schedule(tuple(jobs), gpus, tuple(attempts))


def _check(jobs: Sequence[Job], size: int, rate: float) -> None:
    """Refuse jobs too large for a machine, and failures that no job gets past."""
    for job in jobs:
        if job.gpus > size:
            raise ValueError(
                f"gpus={size}: must be at least {job.gpus}, for a job of {job.setting}"
            )
    stretches = [(job.gpus * min(job.checkpoint_hours, job.hours), job.setting) for job in jobs]
    hours, setting = max(stretches, default=(0.0, ""))
    if rate * hours > MAX_FAILURES:
        raise ValueError(
            f"failures={rate:g}: must be at most {MAX_FAILURES / hours:.3g} per GPU-hour, because "
            f"a job of {setting} takes {hours:.3g} GPU-hours to a checkpoint"
        )


def _take(free: list[list[int]], count: int) -> tuple[int, ...]:
    """Take GPUs of the fullest machine that has enough; return none where no machine has."""
    machines = [devices for devices in free if len(devices) >= count]
    if not machines:
        return ()
    fullest = min(machines, key=len)
    return tuple(heapq.heappop(fullest) for _ in range(count))


def _attempt(
    job: Job,
    index: int,
    done: float,
    now: float,
    devices: tuple[int, ...],
    rate: float,
    rng: np.random.Generator | None,
) -> Attempt:
    """Resume a job after the hours that its checkpoints keep, up to its end or a failure."""
    left, lasts = job.hours - done, math.inf
    if rate > 0:
        assert rng is not None
        lasts = float(rng.exponential(1 / (rate * job.gpus)))
    if lasts >= left:
        return Attempt(index, now, now + left, devices, 0.0, failed=False)
    reached, every = done + lasts, job.checkpoint_hours
    kept = max(done, math.floor(reached / every) * every) if every < math.inf else 0.0
    return Attempt(index, now, now + lasts, devices, reached - kept, failed=True)


def forecast(
    jobs: Sequence[Job],
    gpus: int,
    failures: Failures | None = None,
    machine: int | None = None,
) -> dict[str, float]:
    """Average the schedule over draws of the failures, the same draws in each call.

    Returns:
        gpus, bound, worst (the longest wall of the draws), and the means of wall, idle, tail,
        restarts and lost.
    """
    schedules = [
        simulate(jobs, gpus, failures, np.random.default_rng([gpus, draw]), machine)
        for draw in range(DRAWS if failures and failures.rate > 0 else 1)
    ]
    names = ("wall", "idle", "tail", "restarts", "lost")
    means = {name: float(np.mean([getattr(s, name) for s in schedules])) for name in names}
    worst = max(schedule.wall for schedule in schedules)
    return {"gpus": gpus, "bound": lower_bound(jobs, gpus), "worst": worst, **means}
