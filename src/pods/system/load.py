"""How busy this machine is, with this process's work and with that of others."""

import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pods.system.console import lossy_console
from pods.system.machine import visible_gpus

STAT = Path("/proc/stat")
HELD = 1024  # MiB of a GPU: with more of it in use, another process works on it
BUSY = 0.5  # of the cores: with a longer queue, measured times differ from run to run


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds used until now, and the load average."""

    now: float
    own: float
    """Of this process and of those of its children that have ended."""
    machine: tuple[float, float] | None
    """Of all processes together, and those that a hypervisor withheld; None: not on Linux."""
    load: float | None
    """Processes that run or wait for a core, averaged over a minute."""


def cpu_times() -> CpuTimes:
    """Read the CPU seconds of this machine and of this process."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    machine = None
    with suppress(OSError, ValueError):
        first = STAT.read_text().partition("\n")[0].split()
        user, nice, system, _, _, interrupts, soft, stolen = (
            int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in first[1:9]
        )
        machine = user + nice + system + interrupts + soft, stolen
    return CpuTimes(time.monotonic(), own, machine, load_average())


def load_average() -> float | None:
    """Return the number of processes that run or wait for a core, averaged over a minute."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def machine_load(start: CpuTimes, end: CpuTimes | None = None) -> dict[str, Any]:
    """Describe how busy the machine was between two readings.

    Args:
        start: at the start of an attempt.
        end: at its end; None: it has just started, and most is not known yet.

    Returns:
        Load averages, number of cores and, as shares of the time of all cores, what a hypervisor
        withheld (steal) and what other processes used (others); None where it is not known.
    """
    cores, steal, others = os.cpu_count() or 1, None, None
    if end is not None and start.machine and end.machine and end.now > start.now:
        total = cores * (end.now - start.now)
        used, stolen = end.machine[0] - start.machine[0], end.machine[1] - start.machine[1]
        steal, others = _share(stolen / total), _share((used - (end.own - start.own)) / total)
    return {
        "load_start": start.load,
        "load_end": end.load if end else None,
        "cores": cores,
        "steal": steal,
        "others": others,
    }


def _share(value: float) -> float:
    """Keep a share within 0 and 1: kernel and process count their time in unequal ticks."""
    return round(min(max(value, 0.0), 1.0), 4)


@lossy_console()
def warn_if_busy(device: str, own_jobs: int = 0) -> None:
    """Print one line if others keep this machine or its GPUs busy, since time is measured.

    Args:
        device: that the jobs will run on, cpu or cuda.
        own_jobs: jobs of ours that run already, and are part of the load average.
    """
    used = visible_gpus("memory.used") if device == "cuda" and not own_jobs else []
    for index, mebibytes in used:
        if mebibytes.isdigit() and int(mebibytes) > HELD:
            gib = f"{int(mebibytes) / 1024:.1f} GiB of GPU {index} are in use by another process"
            text = f"warning: {gib}: measured times will not be comparable"
            print(text, file=sys.stderr, flush=True)
    load, cores = load_average(), os.cpu_count() or 1
    if load is not None and load - own_jobs > BUSY * cores:
        text = f"load average {load:.1f} on {cores} cores: measured times will not be comparable"
        print(f"warning: {text}", file=sys.stderr, flush=True)
