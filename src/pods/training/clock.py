"""The training clock, which is the x axis of every figure, and the meter of a process."""

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from typing import NamedTuple

from pods.config.clock_model import ClockModel

PHASES = ("generate", "reward", "select", "update", "sync")


class HostMemory:
    """Peak resident memory of this process since the last reset, in bytes.

    It is read twice per phase, in seven phases per step; both files stay open, which is 7 times as
    fast.
    """

    def __init__(self) -> None:
        """Open the files by which Linux reports it; other systems have none."""
        self.status = self.refs = None
        with suppress(OSError):
            self.status = FileIO("/proc/self/status")
            self.refs = FileIO("/proc/self/clear_refs", "w")

    def reset(self) -> None:
        """Reset the peak where the kernel can; elsewhere it stays that of the whole process."""
        if self.refs is not None:
            with suppress(OSError):
                self.refs.write(b"5")

    def peak(self) -> int:
        """Return the peak in bytes."""
        if self.status is not None:
            with suppress(OSError, IndexError):
                status = os.pread(self.status.fileno(), 4096, 0)
                return int(status.split(b"VmHWM:")[1].split(None, 1)[0]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Meter:
    """Measures the phases of an attempt: start, train phases, checkpoints, evaluation."""

    def __init__(self) -> None:
        """Measure the host's memory until `measure` says otherwise."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.peaks: dict[str, int] = defaultdict(int)
        self.began = time.perf_counter()
        memory = HostMemory()
        self.measure(memory.reset, memory.peak)

    def measure(self, reset: Callable[[], None], peak: Callable[[], int]) -> None:
        """Measure memory elsewhere from now on, such as on a GPU."""
        self._reset, self._peak = reset, peak

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
        other = time.perf_counter() - self.began - sum(self.seconds.values())
        phases = {
            name: {"seconds": round(seconds, 4), "peak_bytes": self.peaks[name]}
            for name, seconds in self.seconds.items()
        }
        return json.dumps({**phases, "other": {"seconds": round(other, 4)}}, indent=1)


class StepSeconds(NamedTuple):
    """Seconds of one step by phase."""

    wall: dict[str, float]
    cpu: dict[str, float]
    """Of all threads of this process; empty under a clock that is not the real one."""


class TrainClock:
    """Sums the seconds of the phases of committed steps; nothing else is training time.

    Engine start, checkpoints, evaluation and logging happen between phases and are not counted.
    With a model of another machine each step takes what that machine would take; only the meter
    still measures, and a run's bytes no longer depend on how fast this machine is.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        synchronise: Callable[[], None] = lambda: None,
        train_seconds: float = 0.0,
        meter: Meter | None = None,
        cpu_now: Callable[[], float] | None = None,
        model: ClockModel | None = None,
    ) -> None:
        """Start at `train_seconds`; `now` is monotonic, `synchronise` waits for the device.

        Args:
            now: source of seconds; tests pass their own, so that seconds repeat too.
            synchronise: called at both ends of a phase.
            train_seconds: seconds of the steps committed so far.
            meter: measures the phases too, for the record of the process.
            cpu_now: source of CPU seconds; None: this process's, or, where `now` is not the real
                clock, none, so that such runs repeat to the byte.
            model: seconds of a step by what it generates and trains on; None: they are measured.
        """
        self.now = now
        self.meter = meter or Meter()
        self.synchronise = synchronise
        self.train_seconds = train_seconds
        self.model = model
        self.cpu_now = cpu_now or (time.process_time if now is time.perf_counter else None)
        self._start_step()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase of the step in progress."""
        with self.meter.phase(name):
            self.synchronise()
            cpu_start = self.cpu_now() if self.cpu_now else 0.0
            start = self.now()
            yield
            self.synchronise()
            self._step.wall[name] += self.now() - start
            if self.cpu_now:
                self._step.cpu[name] += self.cpu_now() - cpu_start

    def commit(self, amounts: Mapping[str, float] | None = None) -> StepSeconds:
        """Close the step: add its seconds to the clock, and return them.

        Modelled seconds belong to no phase: they are those of the phase `modelled`.

        Args:
            amounts: rollouts and tokens of the step, which a model prices; see
                `pods.training.step.amounts`.
        """
        seconds = self._step
        if self.model is not None:
            seconds = StepSeconds({"modelled": self.model.seconds(amounts or {})}, {})
        self._start_step()
        self.train_seconds += sum(seconds.wall.values())
        return seconds

    def _start_step(self) -> None:
        cpu = dict.fromkeys(PHASES, 0.0) if self.cpu_now else {}
        self._step = StepSeconds(dict.fromkeys(PHASES, 0.0), cpu)
