"""The resources and services that this machine gives to this process."""

import ctypes
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of Linux's prctl
RENDEZVOUS = "PODS_RENDEZVOUS"
"""Environment variable with the file at which a run's processes on one machine meet."""

_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
LOOPBACK = {"GLOO_SOCKET_IFNAME": _INTERFACE, "NCCL_SOCKET_IFNAME": f"={_INTERFACE}"}
"""Environment variables with which torch's messages stay on this machine."""

CUDA_MATH = {"tf32": False, "cudnn_attention": False, "bf16_reduced_precision_sums": False}
"""What torch may do on a card, set by `policy.load` and recorded with every attempt.

cuDNN's attention plans anew for every shape, and here almost every shape is new.
"""


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def gpus() -> list[str]:
    """Return the models of the GPUs that this process may use, without loading torch."""
    return [name or index for index, name in visible_gpus("name")]


def visible_gpus(fields: str) -> list[tuple[str, str]]:
    """Return index and fields of each GPU that this process may use, as nvidia-smi prints them.

    The fields are empty where CUDA_VISIBLE_DEVICES names a GPU by something else than its index.
    """
    try:
        listing = subprocess.run(
            ["nvidia-smi", f"--query-gpu=index,{fields}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.partition(", ") for line in listing.strip().splitlines()]
    installed = {index: values for index, comma, values in lines if comma}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    indices = installed if visible is None else [i for i in visible.split(",") if i]
    return [(index, installed.get(index, "")) for index in indices]


def why_no_gpu(built_for: str | None) -> str:
    """Say why torch sees no GPU.

    Args:
        built_for: the version of CUDA that torch was built for; None: it was built without CUDA.
    """
    drivers = [driver for _, driver in visible_gpus("driver_version") if driver]
    if not drivers:
        return "torch sees no GPU here; hardware=cpu runs anywhere"
    if built_for is None:
        return "this torch is built for CPUs alone; install one that is built for CUDA"
    return (
        f"this torch is built for CUDA {built_for}, for which the GPU's driver {drivers[0]} is too "
        "old or broken; update the driver, or install a torch built for an older CUDA"
    )


def launched() -> bool:
    """Tell whether this is one of a run's processes, which we or a user's torchrun started."""
    return RENDEZVOUS in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def set_threads(threads: int) -> None:
    """Set the CPU threads; call it before torch and tokenizers load, which read it only once."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # vLLM's C++ logs even when all is well
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def python_path() -> str:
    """Return a PYTHONPATH with which a new process finds this package without installing it."""
    package = str(Path(__file__).parents[2])
    return os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have Linux signal this process if its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
