"""The training clock, which is the x axis of the figures, and the meter of a process."""

import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

PHASES = ("generate", "reward", "select", "update", "sync")


def host_peak() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Meter:
    """Measures the phases of an attempt: start, train phases, checkpoints, evaluation."""

    def __init__(self) -> None:
        """Measure the host's memory until `measure` says otherwise."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.peaks: dict[str, int] = defaultdict(int)
        self.began = time.perf_counter()
        self.measure(lambda: None, host_peak)

    def measure(self, reset: Callable[[], None], peak: Callable[[], int]) -> None:
        """Measure memory elsewhere from now on, such as on a GPU, where each phase has its own."""
        self._reset = reset
        self._peak = peak

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase, also if it raises; phases do not nest."""
        self._reset()
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start
            self.peaks[name] = max(self.peaks[name], self._peak())

    def text(self) -> str:
        """Return JSON: phase -> seconds and peak_bytes; the rest of the wall time is `other`."""
        phases: dict[str, dict[str, float]] = {
            name: {"seconds": round(seconds, 4), "peak_bytes": self.peaks[name]}
            for name, seconds in self.seconds.items()
        }
        other = time.perf_counter() - self.began - sum(self.seconds.values())
        phases["other"] = {"seconds": round(other, 4)}
        return json.dumps(phases, indent=1)


class StepSeconds(NamedTuple):
    """Seconds of one step by phase."""

    wall: dict[str, float]
    cpu: dict[str, float]  # of all threads of this process; empty unless the clock is the real one


@dataclass
class TrainClock:
    """Sums the seconds of the phases of committed steps; nothing else is training time.

    Engine start, checkpoints, evaluation and logging happen between phases and are not counted.
    """

    now: Callable[[], float] = time.perf_counter
    """Monotonic source of seconds; tests pass their own, so that seconds repeat too."""
    synchronise: Callable[[], None] = lambda: None  # waits for the device at both ends of a phase
    train_seconds: float = 0.0  # seconds of the steps committed so far
    meter: Meter = field(default_factory=Meter)  # of the process; it measures the phases too

    def __post_init__(self) -> None:
        self._start_step()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase of the step in progress."""
        with self.meter.phase(name):
            self.synchronise()
            start = self.now()
            cpu_start = time.process_time()
            yield
            self.synchronise()
            self._step.wall[name] += self.now() - start
            if self._step.cpu:
                self._step.cpu[name] += time.process_time() - cpu_start

    def commit(self) -> StepSeconds:
        """Close the step: add its seconds to the clock, and return them."""
        seconds = self._step
        self._start_step()
        self.train_seconds += sum(seconds.wall.values())
        return seconds

    def _start_step(self) -> None:
        is_real = self.now is time.perf_counter
        self._step = StepSeconds(
            wall=dict.fromkeys(PHASES, 0.0),
            cpu=dict.fromkeys(PHASES, 0.0) if is_real else {},
        )
