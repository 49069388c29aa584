"""Each file operation of a commit fails in every way, and no committed checkpoint is ever lost."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import needs
import pytest
from compose import ROOT
from failing_commits import ERRORS, MODES

QUICK = ("crash before", "EIO")  # a crash after one operation is one before the next
COMMITS = ("replacing a stop-gap", "of a new step")
HELPERS = ROOT / "tests" / "helpers"


@pytest.fixture(scope="module")
def tried(request):
    """The outcome of every failure that a selected test needs, by commit."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        needs.lacking("not Linux, or there is no cc here")
    selected = [item for item in request.session.items if item.path == request.path]
    modes = {item.callspec.params["mode"] for item in selected}
    memory = Path("/dev/shm")  # a thousand commits wait long for a real disk
    parent = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="failpoints-", dir=parent) as name:
        folder = Path(name).resolve()
        shim = folder / "failpoints.so"
        source, script = HELPERS / "failpoints.c", HELPERS / "failing_commits.py"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, script, folder, *modes], env=environment, check=True)
        return json.loads((folder / "tried.json").read_text())


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode in QUICK else pytest.mark.slow) for mode in MODES]
)
@pytest.mark.parametrize("commit", COMMITS)
def test_no_failure_loses_what_was_committed_and_the_commit_can_be_redone(tried, commit, mode):
    names = tried[commit]["operations"]
    cases = [case for case in tried[commit]["cases"] if case["mode"] == mode]
    expected = [k for k, name in enumerate(names, 1) if mode != "short write" or "write" in name]
    assert [case["k"] for case in cases] == expected
    assert len(names) > 20 and expected
    assert [case for case in cases if case["wrong"]] == []
    if mode in ERRORS:  # each has its number and names the folder
        number = errno.EIO if "EIO" in mode else errno.ENOSPC
        raised = [case for case in cases if case["error"]]
        assert raised
        assert [case for case in raised if case["errno"] != number or not case["named"]] == []
    else:  # there is one operation before which a crash leaves the old checkpoint, and then the new
        found = [case["found"] for case in cases]
        old = found.count("old")
        assert found == ["old"] * old + ["new"] * (len(names) - old)
        assert names[old - (mode == "crash before")].startswith("rename")
