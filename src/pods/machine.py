"""What this machine lends to this process, and does for it."""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # Linux' prctl
RENDEZVOUS = "PODS_RENDEZVOUS"  # names the file by which a run's processes on one machine meet


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def launched() -> bool:
    """Whether this is one of a run's several processes: started by us, or by torchrun by hand."""
    return RENDEZVOUS in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def set_threads(threads: int) -> None:
    """Before torch and tokenizers load: they read these once."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # vLLM's C++ reports what is in order
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def python_path() -> str:
    """PYTHONPATH of a process of ours: it finds this package without being installed."""
    package = str(Path(__file__).parents[1])
    return os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Ask Linux for a signal should the parent die: this process is nobody's then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
