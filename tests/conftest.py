"""What tests share: no network, one thread, `run.py` as a user types it."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # a test that would reach a hub fails at once

import pytest
from compose import ROOT
from hypothesis import settings
from running import ONE_STEP, SHORT, run_here, start, start_forked

import pods
from pods.cli.main import main
from pods.runs.store import RunStore

here = Path(pods.__file__).is_relative_to(ROOT)
assert here, f"pods is that of {pods.__file__}: pip install -e {ROOT} makes it this folder's"

# a shell's background jobs ignore it, and so would the runs that tests start and stop
signal.signal(signal.SIGINT, signal.default_int_handler)

# the same examples everywhere, however slow the machine is
settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the kill tests run: `pytest -m kill --kills 300`."""
    add = parser.addoption
    kills = "over all phases; from 40 on 20 stops too, and a twentieth for each of two processes"
    add("--kills", type=int, default=6, help=kills)
    add("--kill-seed", type=int, default=0, help="of the moments")


PROCESSES = ("test_sweep", "test_run", "test_fork_server", "test_slurm")
"""Files that start and stop runs as processes, and wait for them: one after another."""
FIRST = (*PROCESSES, "test_several", "test_ray", "test_kill", "test_failpoints", "test_presets")
"""Files that take longest, and are not for the desk."""
THEN = ("test_fetch", "test_compiled", "test_trl", "test_math_grading", "test_gpu")
"""Other files that take long: what is short comes last, so that workers end together."""

CORE = {
    "test_rules", "test_grpo", "test_update", "test_packing", "test_engine", "test_train",
    "test_evaluate", "test_compare", "test_readme",
}  # fmt: skip
"""Files that a reviewer of the method would run: `pytest -m core`."""
BEYOND_THE_DESK = {"slow", "realdata", "vllm", "gpu", "fake_cuda"}
LIMIT_SECONDS, SLOW_LIMIT_SECONDS = 600.0, 3600.0
"""After which a test fails, but for `-m kill`: one that waits without end is named."""


@pytest.hookimpl(wrapper=True)  # before xdist reads the groups
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Keep a file's tests on one worker, and what starts processes from competing for the cores.

    Real data is where PODS_REALDATA says, or not at all.
    """
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if not marks & BEYOND_THE_DESK and item.path.stem not in FIRST:
            item.add_marker(pytest.mark.desk)
            if item.path.stem in CORE:
                item.add_marker(pytest.mark.core)
        if "xdist_group" not in marks:
            group = "processes" if item.path.stem in PROCESSES else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))  # a file's tests on one worker, mostly
        if "realdata" in marks and "PODS_REALDATA" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="PODS_REALDATA names no folder"))
    order = {name: place for place, name in enumerate((*FIRST, *THEN))}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))  # stable
    yield
    gc.freeze()  # libraries stay: to look through them at each collection takes seconds
    if config.getoption("loadgroup", False):
        assert all("@" in item.nodeid for item in items), "this pytest-xdist makes no groups"


@contextmanager
def time_limit(item: pytest.Item) -> Iterator[None]:
    """Fail if the block takes too long, also in the midst of a wait.

    The signal is one that no run uses: a run that is executed here has its own SIGALRM.
    """
    marks = {mark.name for mark in item.iter_markers()}
    seconds = SLOW_LIMIT_SECONDS if marks & BEYOND_THE_DESK else LIMIT_SECONDS
    main_thread = threading.main_thread().ident
    if "kill" in marks or main_thread is None:
        yield
        return

    def fail(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"it took more than {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, fail)
    timer = threading.Timer(seconds, signal.pthread_kill, (main_thread, signal.SIGVTALRM))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGVTALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Limit the test."""
    with time_limit(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Limit what its fixtures do, which may start a run."""
    with time_limit(item):
        yield


def pytest_unconfigure() -> None:
    """Leave the process group that a test has made here: its threads abort some exits of Python."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_initialized():
        group.destroy_process_group()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A PODS_HOME with the fetched model in it."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODS_HOME", str(folder))
        assert main(["fetch", "smollm2_135m"]) == 0
        yield folder


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A run of one step, which tests only read."""
    return run_here(*ONE_STEP, f"runs_dir={tmp_path_factory.mktemp('runs')}")


Run = Callable[..., subprocess.CompletedProcess[str]]


def finished(begin: Callable, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = begin(*arguments)
    said = process.communicate(timeout=900)
    return subprocess.CompletedProcess(arguments, process.returncode, *said)


@pytest.fixture
def run_py(tmp_path: Path) -> Run:
    """`python src/run.py ...` in a temporary folder, forked with its libraries imported."""
    return partial(finished, partial(start_forked, tmp_path, apart=True))


@pytest.fixture
def run_fresh(tmp_path: Path) -> Run:
    """The same by a fresh Python, where a fork would hide something."""
    return partial(finished, partial(start, tmp_path, stderr=subprocess.PIPE))


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems come in the order of their number, epoch after epoch."""
    from pods.method import prompt_order

    monkeypatch.setattr(prompt_order, "_permutation", lambda seed, epoch, pool: range(pool))


@pytest.fixture
def one_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure is written as SVG alone, for tests of its contents."""
    from pods.analysis.figures import style

    monkeypatch.setattr(style, "METADATA", {".svg": style.METADATA[".svg"]})


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The authors' release, written by hand."""
    from releases import write_release

    return write_release(tmp_path)


SLOW = """
import time
from pathlib import Path
def rule(group, m, rng):
    if Path("slow").exists():
        time.sleep(0.2)
    return range(m)
"""


@pytest.fixture
def slowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Return overrides for 20 small steps that wait while the file `slow` exists.

    So a run cannot end before it is stopped, however busy the machine is, and what it waits takes
    no processor's time.
    """
    (tmp_path / "slow_rules.py").write_text(SLOW)
    (tmp_path / "slow").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    small = ("nm.n=8", "nm.m=4", "budget.train_seconds=null", "budget.max_steps=20")
    return ("sampler.rule=slow_rules:rule", *SHORT, *small)


FAULTS = """
import os, signal, sys, time
from pathlib import Path
FOLDER = ' '.join(sys.argv)
def rule(group, m, rng):
    if Path('faults').exists():
        if 'seed1-' in FOLDER: os._exit(9)
        if 'seed2-' in FOLDER: os.kill(os.getpid(), signal.SIGKILL)
        if 'seed3-' in FOLDER: raise RuntimeError('a rule of mine is broken')
        if 'seed4-' in FOLDER: time.sleep(1000)
        if 'seed5-' in FOLDER: os.kill(os.getpid(), signal.SIGSTOP)
    return range(m)
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Return overrides for a rule that ends jobs badly, by seed, while the file `faults` exists."""
    (tmp_path / "my_rules.py").write_text(FAULTS)
    (tmp_path / "faults").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return ("sampler.rule=my_rules:rule", *SHORT, "budget.max_steps=1")
