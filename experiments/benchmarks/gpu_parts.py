"""The parts of gpu.py: each yields its results so far, and the complete ones last.

A part gets the command line and a deadline of `time.monotonic()`, after which it starts nothing
new. It raises `Skipped` where the machine lacks what it needs.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gpu_arms import arms
from gpu_probe import probe
from gpu_product import product
from gpu_step import growth, step
from gpu_vllm import vllm

sys.path.append(str(Path(__file__).parents[2] / "tests"))

Results = Iterator[dict[str, Any]]


def checks(options: Namespace, deadline: float) -> Results:
    """Run the checks of tests/gpu_checks.py; record the seconds of each, or its traceback."""
    from gpu_checks import CHECKS, run_all

    named = {check.__name__: partial(check, options.device) for check in CHECKS}
    yield from run_all(named)


PARTS: dict[str, Callable[[Namespace, float], Results]] = {
    "probe": probe,
    "checks": checks,
    "step": step,
    "vllm": vllm,
    "product": product,
    "arms": arms,
    "growth": growth,
}
