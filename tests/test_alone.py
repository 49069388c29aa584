"""A run whose folder is removed or moved stops, and the same command makes it again.

The rule of each run changes the folder at step 3, as an operator or a fault might.
"""

import shutil
import sys

import pytest
from compose import composed
from running import SHORT, run_folder, science_of

from pods.launch import job
from pods.runs.freeze import freeze
from pods.runs.store import RunStore

RULE = """
import os, shutil, sys
from pathlib import Path
once = []
def rule(group, m, rng):
    [folder] = Path("runs").glob("*/*/*/seed*")
    log, lock, checkpoints = folder / "metrics.jsonl", folder / ".lock", folder / "checkpoints"
    if not once and Path("fault").exists() and log.exists() and log.read_bytes().count(b"\\n") == 2:
        once.append(True)
        exec(Path("fault").read_text())
    return range(m)
"""
FAULTS = {
    "its lock is another": ("lock.unlink(); lock.touch()", ".lock was removed or replaced"),
    "its folder is removed": ("shutil.rmtree(folder)", "was removed "),
    "its folder is moved": ("folder.rename('old')", "was removed ")}  # fmt: skip


@pytest.fixture
def fault(tmp_path, monkeypatch):
    """Set the code that the rule runs at step 3; by default none."""
    (tmp_path / "my_rules.py").write_text(RULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def fault(code=""):
        (tmp_path / "fault").write_text(code)

    return fault


@pytest.fixture
def run(fault, capfd):
    """Run the same command; return the exit code and the console."""

    def run():
        sys.modules.pop("my_rules", None)
        store = freeze(composed("sampler.rule=my_rules:rule", *SHORT, "evaluation.questions=4",
                                "budget.train_seconds=null", "nm.n=8", "nm.m=4",
                                "retry=failed"))  # fmt: skip
        code = job.execute(store.folder)
        printed = capfd.readouterr()
        return code, printed.out + printed.err

    return run


@pytest.fixture
def whole(run, fault, tmp_path):
    """The results of a run that nothing disturbs."""
    fault()
    assert run()[0] == 0
    found = science_of(run_folder(tmp_path))
    shutil.rmtree(tmp_path / "runs")
    return found


def test_a_run_whose_folder_is_gone_stops_and_can_be_made_again(fault, whole, run, tmp_path):
    for name, (code, said) in FAULTS.items():
        fault(code)
        stopped, printed = run()
        assert stopped == 75, (name, printed)
        assert said in printed and "run the same command again to resume" in printed, printed
        assert "Traceback" not in printed, name
        moved = tmp_path / "old"
        if "folder" in name:  # nothing is written where it was
            assert not list((tmp_path / "runs").rglob("*.jsonl"))
            assert moved.is_dir() == (name == "its folder is moved")
        shutil.rmtree(moved, ignore_errors=True)
        fault()
        again, printed = run()
        assert again == 0, (name, printed)
        assert science_of(run_folder(tmp_path)) == whole, name
        shutil.rmtree(tmp_path / "runs")


def test_a_run_whose_rule_calls_exit_has_failed(fault, run, tmp_path):
    fault("sys.exit(0)")
    assert run()[0] == 1
    status = RunStore(run_folder(tmp_path)).status()
    assert (status["state"], status["error"]) == ("failed", "SystemExit: 0")
