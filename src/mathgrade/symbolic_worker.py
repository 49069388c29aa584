"""The worker process that compares expressions with sympy and math-verify.

`serve` reads one `[number, goal]` per line and writes `number verdict`. It loads the libraries once
and forks for every goal, so that each starts from the same state, and a child that takes too much
time, memory or work can be killed. Work is counted, so that a goal ends in the same verdict on
every machine; the time limits are for single steps that the count does not see. A goal is a list as
in `latex/goals.py` or `open_r1.py`; nothing else ever reaches a parser.
"""

import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1  # of Linux's prctl
WORK = 3_000_000  # profiler events, the same on every machine: about 0.7 s
CPU_SECONDS = 2
WALL_SECONDS = 2.5
PATIENCE = 4  # factor on WALL_SECONDS for a child that ran for less than half of them
MEMORY_BYTES = 512 * 2**20
VERDICTS = {20: "right", 21: "wrong", 22: "timeout"}
RIGHT, WRONG, TIMEOUT = VERDICTS


def serve() -> None:
    """Answer goals from stdin until there are no more."""
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the parent
        signal.signal(number, signal.SIG_IGN)
    disable_gmpy2()
    from mathgrade.symbolic_equality import seed_sympy, warm_up

    seed_sympy()  # before anything is cached: sympy shuffles what it tries
    replies = os.dup(1)
    discard_output()
    warm_up()
    gc.collect()
    gc.freeze()
    os.write(replies, b"ready\n")
    for line in sys.stdin:
        question, goal = json.loads(line)
        os.write(replies, f"{question} {judge(goal)}\n".encode())


def die_with_parent() -> None:
    """Have Linux kill this process if its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def disable_gmpy2() -> None:
    """Hide gmpy2 from sympy: its powers take any memory, and no signal interrupts them."""
    sys.modules["gmpy2"] = None  # type: ignore[assignment]
    os.environ["SYMPY_GROUND_TYPES"] = "python"
    os.environ["MPMATH_NOGMPY"] = "1"


def discard_output() -> None:
    """Discard whatever the libraries print."""
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)


def judge(goal: Any) -> str:
    """Ask a child, and once more with more time if the machine was too busy to run the first."""
    try:
        verdict, cpu_seconds = ask_child(goal, WALL_SECONDS)
        if verdict == "timeout" and cpu_seconds < WALL_SECONDS / 2:
            verdict, _ = ask_child(goal, PATIENCE * WALL_SECONDS)
    except OSError:  # the machine has no process or pipe left
        return "failed"
    return verdict


def ask_child(goal: Any, wall_seconds: float) -> tuple[str, float]:
    """Fork a child for a goal, and kill it if it takes too long; return verdict and CPU seconds.

    The CPU seconds of a child that ended in time do not matter: `wall_seconds` stands for them.
    """
    ended, held = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(ended)
        os.close(held)
        raise
    if child == 0:
        try:
            os.close(ended)
            prove(goal)
        finally:
            os._exit(TIMEOUT)
    os.close(held)  # the child holds the other copy, which is closed when the child ends
    poll = select.poll()
    poll.register(ended, select.POLLHUP)
    late = not poll.poll(wall_seconds * 1000)
    if late:
        os.kill(child, signal.SIGKILL)
    os.close(ended)
    _, status, usage = os.wait4(child, 0)
    verdict = VERDICTS.get(os.waitstatus_to_exitcode(status), "timeout")
    return verdict, usage.ru_utime + usage.ru_stime if late else wall_seconds


def prove(goal: Any) -> None:
    """Decide a goal within limits, and exit with the code of the verdict."""
    die_with_parent()
    os.close(0)
    set_limits()
    from mathgrade.symbolic_equality import holds, seed_sympy

    seed_sympy()
    try:
        code = RIGHT if holds(goal) else WRONG
    except (MemoryError, RecursionError):
        code = TIMEOUT
    except Exception:  # of the parser, and whatever sympy raises on what it cannot do
        code = WRONG
    os._exit(code)


def set_limits() -> None:
    """Limit memory, time, output and, most of all, work."""
    gc.disable()
    limits = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_CPU: CPU_SECONDS,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        with suppress(ValueError, OSError):  # not every system knows every limit
            resource.setrlimit(kind, (limit, limit))
    work_left = WORK

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal work_left
        work_left -= 1
        if work_left < 0:
            os._exit(TIMEOUT)

    sys.setprofile(count)
