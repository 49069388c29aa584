"""What tests share: no network, one thread, `run.py` as a user types it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # a test that would reach a hub fails at once

import pytest
from compose import ROOT
from hypothesis import settings

from pods.cli import main

# a shell's background jobs ignore it, and so would the runs that tests start and stop
signal.signal(signal.SIGINT, signal.default_int_handler)

# the same examples everywhere, however slow the machine is
settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the kill test runs: `pytest -m kill --kills 300`."""
    parser.addoption("--kills", type=int, default=20, help="SIGKILLs over all phases")
    parser.addoption("--kill-seed", type=int, default=0, help="of the moments")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real data is where PODS_REALDATA says, or not at all."""
    if "PODS_REALDATA" not in os.environ:
        for item in items:
            if item.get_closest_marker("realdata"):
                item.add_marker(pytest.mark.skip(reason="PODS_REALDATA names no folder"))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A PODS_HOME with the fetched model in it."""
    folder = tmp_path_factory.mktemp("home")
    before = os.environ.get("PODS_HOME")
    os.environ["PODS_HOME"] = str(folder)
    assert main(["fetch", "smollm2_135m"]) == 0
    yield folder
    if before is None:
        del os.environ["PODS_HOME"]
    else:
        os.environ["PODS_HOME"] = before


@pytest.fixture
def run_py(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`python src/run.py ...` as a user types it, with its runs in a temporary folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "src" / "run.py"), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
