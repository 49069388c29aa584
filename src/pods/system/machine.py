"""The resources and services that this machine gives to this process."""

import atexit
import ctypes
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pods.system.console import lossy_console

BUSY_MEBIBYTES = 1024  # of a GPU: with more of it in use, another process works on it
BUSY_SHARE = 0.5  # of the cores: with a longer queue, measured times differ from run to run
CGROUPS = Path("/sys/fs/cgroup")
PR_SET_PDEATHSIG = 1  # of Linux's prctl
PARENT = "PODS_PARENT"
"""Environment variable with the process id of the one that started this."""
RENDEZVOUS = "PODS_RENDEZVOUS"
"""Environment variable with what a run's processes meet at: a file of one machine, or a URL."""
RAY = "PODS_RAY"
"""Environment variable with the address of a Ray cluster and a placement group's name there."""
_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
LOOPBACK = {"GLOO_SOCKET_IFNAME": _INTERFACE, "NCCL_SOCKET_IFNAME": f"={_INTERFACE}"}
"""Environment variables with which torch's messages stay on this machine."""

CUDA_MATH = {"tf32": False, "cudnn_attention": False, "bf16_reduced_precision_sums": False}
"""What torch may do on a card, set by `policy.load` and recorded with every attempt. cuDNN's
attention plans anew for every shape, and here almost every shape is new."""


def cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        name = re.search(r"^model name\s*:(.*)", info.read_text(), re.M)
        if name:
            return name[1].strip()
    return platform.processor()


def gpus() -> list[str]:
    """Return the models of the GPUs that this process may use, without loading torch."""
    return [name or index for index, name in visible_gpus("name")]


def visible_gpus(fields: str) -> list[tuple[str, str]]:
    """Return index and fields of each GPU that this process may use, as nvidia-smi prints them.

    The fields are empty if CUDA_VISIBLE_DEVICES names a GPU by something else than its index, or
    if there is no nvidia-smi.
    """
    installed = _installed_gpus(fields)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(installed.items())
    return [(index, installed.get(index, "")) for index in visible.split(",") if index]


def _installed_gpus(fields: str) -> dict[str, str]:
    """Ask nvidia-smi for these fields of each GPU, by its index."""
    command = ["nvidia-smi", f"--query-gpu=index,{fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):  # torch may still find a GPU
        return {}

    installed = {}
    for line in done.stdout.splitlines():
        index, comma, values = line.partition(", ")
        if comma:
            installed[index] = values
    return installed


def free_memory(device: str) -> tuple[int, int] | None:
    """Return the bytes that this process may use now, and the bytes in all; None if unknown.

    The first number includes what the process holds already, and excludes what others hold. On cuda
    both are of the first visible card, on a CPU of the machine or of a container around us.
    """
    return _memory_of_gpu() if device == "cuda" else _memory_of_machine()


def _memory_of_gpu() -> tuple[int, int] | None:
    cards = visible_gpus("memory.free,memory.total")
    if not cards:
        return None
    _, values = cards[0]
    if not values[:1].isdigit():  # or [N/A]
        return None
    free, total = values.split(", ")
    return int(free) * 2**20, int(total) * 2**20


def _memory_of_machine() -> tuple[int, int] | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux
        return None

    sizes = {}
    for line in lines:
        name, _, size = line.partition(":")
        sizes[name] = int(size.split()[0]) * 1024
    limits = [(sizes["MemAvailable"], sizes["MemTotal"])]
    limits += _control_groups()
    free, total = min(limits)
    return free + pages * os.sysconf("SC_PAGE_SIZE"), total


def _control_groups() -> Iterator[tuple[int, int]]:
    """Yield what is left and the limit of each control group (of version 2) around us."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if not line.startswith("0::"):
            continue

        ours = CGROUPS / line[len("0::") :].strip("/")  # a container may see only the root
        for folder in (ours, *ours.parents):
            with suppress(OSError, ValueError, KeyError):  # no such file, or "max"
                limit = int((folder / "memory.max").read_text())
                used = int((folder / "memory.current").read_text())
                statistics = (folder / "memory.stat").read_text().splitlines()
                cached = dict(line.split() for line in statistics)["inactive_file"]
                # the kernel drops cached files when the memory is needed
                yield limit - used + int(cached), limit


def why_no_gpu(built_for: str | None) -> str:
    """Say why torch, which was built for this version of CUDA or without it, sees no GPU."""
    drivers = [driver for _, driver in visible_gpus("driver_version") if driver]
    if not drivers:
        return "torch sees no GPU here; hardware=cpu runs anywhere"
    if built_for is None:
        return "this torch is built for CPUs alone; install one that is built for CUDA"
    cure = "update the driver, or install a torch built for an older CUDA"
    driver = f"for which the GPU's driver {drivers[0]} is too old or broken"
    return f"this torch is built for CUDA {built_for}, {driver}; {cure}"


@lossy_console()
def warn_if_busy(device: str, own_jobs: int = 0) -> None:
    """Warn if others than `own_jobs`, which run already, keep this machine or its GPUs busy."""
    reasons: list[str] = []
    if device == "cuda" and not own_jobs:
        reasons += _busy_gpus()
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    if load - own_jobs > BUSY_SHARE * cores:
        reasons.append(f"load average {load:.1f} on {cores} cores")

    for reason in reasons:
        print(f"warning: {reason}: measured times will not be comparable", file=sys.stderr)


def _busy_gpus() -> Iterator[str]:
    for index, mebibytes in visible_gpus("memory.used"):
        if mebibytes.isdigit() and int(mebibytes) > BUSY_MEBIBYTES:
            gib = int(mebibytes) / 1024
            yield f"{gib:.1f} GiB of GPU {index} are in use by another process"


def launched() -> bool:
    """Tell whether this is one of a run's processes, which we or a user's torchrun started."""
    return RENDEZVOUS in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def set_threads(threads: int) -> None:
    """Set the CPU threads; call it before torch and tokenizers load, which read it only once."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # vLLM's C++ logs even when all is well
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def cause_of_death(code: int) -> str:
    """Say how a process ended that had this exit code, which is negative after a signal."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def end_process(code: int) -> NoReturn:
    """Run exit handlers and end this process without finalizing Python.

    A thread of torch.distributed may still hold a tensor, and C++ aborts a process that releases
    one while Python is finalizing.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a closed terminal
            stream.flush()
    os._exit(code)


def python_path() -> str:
    """Return a PYTHONPATH with which a new process finds this package without installing it."""
    package = str(Path(__file__).parents[2])
    given = os.environ.get("PYTHONPATH")
    return f"{package}{os.pathsep}{given}" if given else package


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have Linux signal this process if its parent dies, or has died while this one was starting.

    Whoever starts it says in `PARENT` who that is: a process whose parent is dead has another one.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    parent = os.environ.pop(PARENT, None)  # it does not hold for this process's own children
    if parent is not None and int(parent) != os.getppid():
        os.kill(os.getpid(), number)
