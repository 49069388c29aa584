"""Where a process's time and memory go, by phase. A record of the attempt, not of the run."""

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO


class HostMemory:
    """Peak resident memory of this process since the last reset, in bytes.

    Asked twice a phase, seven phases a step: both files stay open, which is 7 times as fast.
    """

    def __init__(self) -> None:
        """Open what Linux tells it by; elsewhere there is none."""
        self.status = self.refs = None
        with suppress(OSError):
            self.status = FileIO("/proc/self/status")
            self.refs = FileIO("/proc/self/clear_refs", "w")

    def reset(self) -> None:
        """Start anew, where the kernel can; elsewhere the peak is that of the whole process."""
        if self.refs is not None:
            with suppress(OSError):
                self.refs.write(b"5")

    def peak(self) -> int:
        """Bytes."""
        if self.status is not None:
            with suppress(OSError, IndexError):
                told = os.pread(self.status.fileno(), 4096, 0)
                return int(told.split(b"VmHWM:")[1].split(None, 1)[0]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Meter:
    """Wall seconds and peak memory of an attempt: start, train phases, checkpoints, evaluation."""

    def __init__(self) -> None:
        """Measure the host's memory until `measure` says otherwise."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.peaks: dict[str, int] = defaultdict(int)
        self.began = time.perf_counter()
        memory = HostMemory()
        self.measure(memory.reset, memory.peak)

    def measure(self, reset: Callable[[], None], peak: Callable[[], int]) -> None:
        """Take memory from here on from another place, such as a GPU."""
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
        """JSON: phase -> seconds and peak_bytes; what is left of the wall time is `other`."""
        other = time.perf_counter() - self.began - sum(self.seconds.values())
        found = {
            name: {"seconds": round(seconds, 4), "peak_bytes": self.peaks[name]}
            for name, seconds in self.seconds.items()
        }
        return json.dumps({**found, "other": {"seconds": round(other, 4)}}, indent=1)
