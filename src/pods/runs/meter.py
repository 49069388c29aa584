"""Where a process's time and memory go, by phase. A record of the attempt, not of the run."""

import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class HostMemory:
    """Peak resident memory of this process since the last reset, in bytes."""

    def reset(self) -> None:
        """Start anew, where the kernel can; elsewhere the peak is that of the whole process."""
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        """Bytes."""
        with suppress(OSError, IndexError):
            return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Meter:
    """Wall seconds and peak memory of an attempt: start, train phases, checkpoints, evaluation."""

    def __init__(self) -> None:
        """Measure the host's memory until `measure` says otherwise."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.peaks: dict[str, int] = defaultdict(int)
        self.began = time.perf_counter()
        self.measure(HostMemory().reset, HostMemory().peak)

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
