"""A run whose folder something else changes stops, and the same command repairs it.

The rule of each run changes the folder at step 3, as an operator or a fault might.
"""

import json
import shutil
import sys

import pytest
from compose import composed
from running import SHORT, run_folder, science_of

from pods.cli.main import main
from pods.launch import job
from pods.runs import checkpoint
from pods.runs.freeze import Changed, freeze
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
    "its log is removed": ("log.unlink()", "metrics.jsonl has 0 bytes, but "),
    "its log is longer": ("log.open('a').write('{}\\n')", " were written"),
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


def test_a_run_whose_files_are_changed_stops_and_can_be_repaired(fault, whole, run, tmp_path):
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
        if name == "its log is removed":  # no run starts over unasked, and nothing is renamed
            assert again == 1 and "Traceback" not in printed, printed
            assert "metrics.jsonl is damaged: it is not what was written: restore" in printed
            assert not [*run_folder(tmp_path).glob("checkpoints/*.damaged")]
            shutil.rmtree(run_folder(tmp_path) / "checkpoints")
            again, printed = run()
        assert again == 0, (name, printed)
        assert science_of(run_folder(tmp_path)) == whole, name
        shutil.rmtree(tmp_path / "runs")


def test_a_rule_that_forks_leaves_one_trainer(fault, whole, run, tmp_path):
    fault("os.fork()")
    code, printed = run()
    assert code == 0 and "a fork of the run's process must not continue the run" in printed
    assert science_of(run_folder(tmp_path)) == whole


def test_a_run_whose_rule_calls_exit_has_failed(fault, run, tmp_path):
    fault("sys.exit(0)")
    assert run()[0] == 1
    status = RunStore(run_folder(tmp_path)).status()
    assert (status["state"], status["error"]) == ("failed", "SystemExit: 0")


def test_a_run_that_lost_a_file_it_must_have_is_not_done(fault, whole, run, tmp_path):
    """Evaluations are made again; an earlier checkpoint cannot be restored."""
    for name in ("evaluations/step-000000.jsonl", "data.json", "config.yaml", "identity.json",
                 "checkpoints/step-000002/selection.json"):  # fmt: skip
        fault(f"(folder / '{name}').unlink()")
        code, printed = run()
        if name.startswith("evaluations"):
            assert code == 0, printed
        elif name.startswith("checkpoints"):
            assert code == 1 and "step-000002: selection.json is missing; `pods clean" in printed
            assert RunStore(run_folder(tmp_path)).status()["state"] == "failed"
            assert main(["clean", "--state", "failed", "--yes"]) == 0
        else:
            assert code == 75 and name in printed and "same command again" in printed, printed
        if code:
            fault()
            assert run()[0] == 0, name
        assert science_of(run_folder(tmp_path)) == whole, name
        shutil.rmtree(tmp_path / "runs")


def test_a_config_that_is_edited_during_the_run_is_refused(fault, run, tmp_path):
    fault("path = folder / 'config.yaml'\n"
          "path.write_text(path.read_text().replace('max_steps: 4', 'max_steps: 5'))")  # fmt: skip
    code, printed = run()
    assert code == 75 and "config.yaml was edited: budget.max_steps: 4 -> 5" in printed
    with pytest.raises(Changed):
        run()


def forge(folder, name, content):
    """Put something else into a checkpoint, and into its manifest."""
    files = checkpoint.manifest_files(folder)
    (folder / name).write_bytes(content)
    files[name] = {"bytes": len(content), "sha256": checkpoint.sha256(folder / name)}
    (folder / checkpoint.MANIFEST).write_text(json.dumps(files, indent=1))


FORGERIES = (
    ("policy/model.safetensors", lambda _: (2**40).to_bytes(8, "little")),
    ("optimizer.safetensors", lambda _: b""),
    ("selection.json", lambda _: b"[" * 200_000),
    ("selection.json", lambda _: b'{"position": "x"}'),
    ("clock.json", lambda c: json.dumps({**json.loads(c), "train_seconds": "1"}).encode()),
)


def test_a_forged_checkpoint_is_named_and_the_one_before_is_resumed(fault, whole, run, tmp_path):
    fault("raise RuntimeError")
    assert run()[0] == 1
    fault()
    folder = run_folder(tmp_path)
    shutil.copytree(folder, tmp_path / "kept")
    for name, content in FORGERIES:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "kept", folder)
        path = RunStore(folder).checkpoint(2)
        forge(path, name, content((path / name).read_bytes()))
        code, printed = run()
        assert code == 0, (name, printed)
        assert "damaged checkpoint set aside: step-000002: " in printed, (name, printed)
        assert "resuming from step 0" in printed
        shutil.rmtree(folder / "checkpoints" / "step-000002.damaged")
        assert science_of(folder) == whole, name


def test_without_a_checkpoint_to_restore_a_run_starts_over(fault, whole, run, tmp_path):
    """A policy that was half overwritten is not the one that a run begins with."""
    fault("raise RuntimeError")
    assert run()[0] == 1
    fault()
    folder = run_folder(tmp_path)
    for step in (0, 2):
        forge(RunStore(folder).checkpoint(step), "optimizer.safetensors", b"")
    code, printed = run()
    assert code == 75, printed
    assert "holds no checkpoint to resume from; run the same command again" in printed
    assert run()[0] == 0
    for path in (folder / "checkpoints").glob("*.damaged"):
        shutil.rmtree(path)
    assert science_of(folder) == whole
