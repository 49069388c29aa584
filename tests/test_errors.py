"""Exit codes and one-line errors: 75 for the machine, 2 for bad input, a traceback on request."""

import errno
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from compose import ROOT, composed
from running import RUN_PY, SHORT

from mathgrade import WorkerUnavailable
from pods.cli import status
from pods.cli.main import main
from pods.engines.base import EngineFailed
from pods.launch import job
from pods.launch.failures import classify
from pods.runs import checkpoint
from pods.runs.freeze import freeze
from pods.runs.lock import LockLost
from pods.runs.records import Damaged
from pods.runs.store import RunStore
from pods.system import machine
from pods.system.errors import FIX_AND_RESUME, RESUME, is_machine_error
from pods.system.signals import PeerLost


def test_a_failing_disk_or_memory_is_a_machine_error(tmp_path):
    assert is_machine_error(MemoryError())
    assert is_machine_error(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"))
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "ENXIO", "ENODEV", "ESTALE",
                 "EREMOTEIO", "ETIMEDOUT", "EHOSTDOWN", "ENOLCK", "ENOMEM", "EMFILE"):  # fmt: skip
        number = getattr(errno, name)
        assert is_machine_error(OSError(number, os.strerror(number))), name
        assert is_machine_error(RuntimeError(f"Error while serializing: (os error {number})"))
    # without permission it is one in a run, and bad input before
    inside = PermissionError(errno.EPERM, "no", str(tmp_path / "metrics.jsonl"))
    assert is_machine_error(inside, tmp_path) and not is_machine_error(inside)
    assert not is_machine_error(PermissionError(errno.EACCES, "no", "/data"), tmp_path)
    assert not is_machine_error(FileNotFoundError(errno.ENOENT, "no", "x"), tmp_path)
    assert not is_machine_error(ValueError("os error"))


@pytest.mark.parametrize("words", [(), ("-m", "seed=0,1")], ids=["run", "sweep"])
def test_an_impossible_runs_dir_is_a_one_line_error(words, run_py, tmp_path):
    (tmp_path / "file").touch()
    long = "x" * 200 + ("/" + "x" * 200) * 25
    for runs_dir, message in (("file", "Not a directory"), (long, "File name too long")):
        result = run_py(*words, f"runs_dir={runs_dir}")
        assert result.returncode == 2, result.stderr
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        assert runs_dir[:9] in result.stderr and message in result.stderr


@pytest.mark.parametrize("words", [
    ("hydra.job.chdir=true",), ("hydra.run.dir=elsewhere",),
    ("-m", "seed=0,1", "+hydra.job.chdir=1"),
    ("dry_run=true", "hydra.output_subdir=here"), ("hydra/job_logging=default",),
], ids=" ".join)  # fmt: skip
def test_a_run_is_not_moved_by_keys_of_hydra(words, run_py, tmp_path):
    before = set(tmp_path.rglob("*"))
    result = run_py(*words)
    assert result.returncode == 2
    said = f"error: {words[-1]}: is not used here; runs_dir=FOLDER says where runs go\n"
    assert result.stderr == said and set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("words", "said"), [
    (("runs_dir=${oc.env:NOT_SET}/r",),
     "runs_dir=${oc.env:NOT_SET}/r: Environment variable 'NOT_SET' not found"),
    (("seed=${nope},1",), "seed=${nope}: Interpolation key 'nope' not found"),
    (("arm=pdos,pods",), "arm=pdos: did you mean pods? It must be one of aliased, "),
    (("seed=0,1", "typo=2"), "typo=2: no such key; see conf/README.md"),
    (("seed=0,", "1"), "seed=0,: must be KEY=VALUE, in quotes if the shell would read it "),
])  # fmt: skip
def test_a_sweep_that_hydra_refuses_is_one_line_and_leaves_no_folder(words, said, run_py, tmp_path):
    before = set(tmp_path.rglob("*"))
    result = run_py("-m", *words)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {said}") and result.stderr.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before


def test_an_unexpected_error_is_one_line_and_a_traceback_with_debug(run_py, tmp_path):
    for name, content in {"raises": "1 / 0", "ends": "import sys; sys.exit(3)"}.items():
        (tmp_path / f"{name}.py").write_text(content)
    for rule in ("raises:f", "ends:f", "../x:f"):
        result = run_py(f"sampler.rule={rule!r}")
        assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
    result = run_py("runs_dir=/proc", "--debug")
    assert result.returncode == 2
    assert "Traceback" in result.stderr and "(/proc/default: " in result.stderr


@pytest.mark.parametrize("sweep", [(), ("-m", "seed=0,1")], ids=["run", "sweep"])
@pytest.mark.parametrize(("runs_dir", "study", "why"), [
    ("/proc/x", "default", "No such file or directory"),
    ("file/runs", "default", "Not a directory"),
    ("here", "file", "Not a directory"),
    ("n" * 300, "default", "File name too long"),
], ids=["proc", "in-a-file", "study-is-a-file", "long"])  # fmt: skip
def test_a_folder_that_cannot_be_written_is_named_by_its_keys(
    sweep, runs_dir, study, why, run_py, tmp_path
):
    (tmp_path / "here").mkdir()
    for file in (tmp_path / "file", tmp_path / "here" / "file"):
        file.touch()
    before = set(tmp_path.rglob("*"))
    words = (*sweep, f"runs_dir={runs_dir}", f"study={study}")
    said = f"runs_dir={runs_dir}, study={study}: must be folders that can be written ("
    result = run_py(*words)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {said}") and result.stderr.endswith(f": {why})\n")
    assert result.stderr.count("\n") == 1
    shown = run_py(*words, "dry_run=true")
    [line] = [line for line in (shown.stdout + shown.stderr).splitlines() if said in line]
    assert line.endswith(f": {why})")
    assert set(tmp_path.rglob("*")) == before


def test_verbs_report_errors_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("runs").touch()
    for verb in ("status", "clean", "plot"):
        assert main([verb]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1
    monkeypatch.setattr(status, "run", lambda options: 1 / 0)
    assert main(["status"]) == 1
    said = "error: ZeroDivisionError: division by zero (--debug shows the traceback)\n"
    assert capsys.readouterr().err == said
    assert main(["status", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setattr(status, "run", Mock(side_effect=ModuleNotFoundError(name="torch")))
    assert main(["status"]) == 2
    assert "error: torch is not installed: pip install 'pods-rl[train]'" in capsys.readouterr().err
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/default/figures/a.csv")
    monkeypatch.setattr(status, "run", Mock(side_effect=full))
    assert main(["status"]) == 75
    assert capsys.readouterr().err.splitlines() == [
        "error: runs/default/figures/a.csv: No space left on device",
        "fix this, then run the same command again to resume",
    ]


def test_a_console_with_an_old_encoding_gets_question_marks(tmp_path):
    freeze(composed(f"runs_dir={tmp_path}/runs", "tracking=none"))
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        [sys.executable, "-m", "pods.cli.main", "status", "default"],
        cwd=tmp_path, env=environment, capture_output=True, check=False)  # fmt: skip
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"n?m" in result.stdout and b"64?16" in result.stdout


@pytest.fixture
def disk(tmp_path):
    """Mount a disk of 24 MB in memory, or skip the test without the right to."""
    (folder := tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no right to mount: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(disk):
    """Fill the disk."""
    with (disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@pytest.mark.slow
def test_a_full_disk_gives_75_at_submission_in_a_sweep_and_at_the_figure(run_py, disk):
    words = ("checkpoint.every_steps=1", "evaluation.questions=4")
    overrides = (f"runs_dir={disk}/runs", *SHORT, *words)
    fill(disk)
    for more in ([], ["-m", "seed=0,1"]):
        result = run_py(*more, *overrides)
        assert result.returncode == 75, result.stderr
        assert result.stderr.startswith(f"error: runs_dir={disk}/runs, study=default: must be ")
        assert "No space left on device" in result.stderr and "Traceback" not in result.stderr
        assert "fix this, then run the same command again to resume" in result.stderr
    (disk / "ballast").unlink()
    # there is little more space than for the folders: jobs cannot even write their status
    for room in (60_000, 400_000, 1_500_000):
        fill(disk)
        with (disk / "ballast").open("r+b") as file:
            file.truncate((disk / "ballast").stat().st_size - room)
        result = run_py("-m", "seed=0,1,2", *overrides)
        assert result.returncode == 75, (room, result.stdout, result.stderr)
        assert "Traceback" not in result.stdout + result.stderr
        (disk / "ballast").unlink()
    result = run_py("-m", "seed=0,1,2", *overrides)
    assert result.returncode == 0, result.stderr
    shutil.rmtree(disk / "runs" / "default" / "figures")
    fill(disk)
    result = run_py("-m", "seed=0,1,2", *overrides)
    assert result.returncode == 75 and "figures" in result.stderr, result.stderr
    assert main(["plot", "--runs-dir", str(disk / "runs")]) == 75


def test_several_processes_that_cannot_meet_on_a_full_disk_say_so(disk, capsys):
    """Torch's stores only say what is the matter, and its launcher not even that."""
    store = freeze(composed(f"runs_dir={disk}/runs", "hardware.processes=2", "tracking=none"))
    fill(disk)
    assert job.execute(store.folder) == 75
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"error: {store.folder}/attempts/001/meeting-")
    assert said[0].endswith(": No space left on device") and said[1] == FIX_AND_RESUME
    assert store.status()["state"] == "pending"
    assert list(store.folder.glob("attempts/*/*")) == []
    with pytest.raises(RuntimeError) as caught:
        torch.distributed.FileStore(str(disk / "meeting"), 2).set("here", "0")
    assert is_machine_error(caught.value)


@pytest.mark.slow
def test_a_closed_console_stops_nothing(tmp_path):
    overrides = " ".join([*SHORT, "budget.max_steps=1", "evaluation.questions=4"])
    closed = "<&- >&- 2>&-"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for words in (f"{RUN_PY} {overrides}", "-m pods.cli.main status"):
        subprocess.run(["sh", "-c", f"{sys.executable} {words} {closed}"], cwd=tmp_path,
                       env=environment, check=True)  # fmt: skip
    [folder] = (tmp_path / "runs").glob("*/*/*/seed*")
    assert RunStore(folder).status()["state"] == "done"


OFF_THE_BUS = torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors")
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB")


UNDER_VLLM = EngineFailed("vLLM broke down")
UNDER_VLLM.__cause__ = OFF_THE_BUS


@pytest.mark.parametrize(("error", "code", "line"), [
    (OFF_THE_BUS, 75, "the GPU failed (CUDA error: unspecified launch failure): see nvidia-smi"),
    (UNDER_VLLM, 75, "the GPU failed (CUDA error: "),
    (FULL, 75, "the GPU ran out of memory (CUDA out of memory. Tried to allocate 2.00 GiB): "),
    (MemoryError(), 75, ""), (WorkerUnavailable("no worker"), 75, ""),
    (torch.AcceleratorError("CUDA error: device-side assert triggered"), 1, ""),  # our own kernel's
], ids=["card", "card under vLLM", "card's memory", "memory", "grading", "kernel"])  # fmt: skip
def test_a_failure_of_the_machine_can_be_resumed(error, code, line, tmp_path, capsys):
    store = freeze(composed(f"runs_dir={tmp_path}", "tracking=none"))
    state, found, text = classify(error, True, store)
    assert (state, found) == ("preempted" if code == 75 else "failed", code)
    assert text.startswith(line)
    if line:
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 2 and said[0] == f"error: {text}" and "same command" in said[1]


AGAIN, FAILED = ("preempted", 75), ("failed", 1)
FULL_DISK = OSError(errno.ENOSPC, "No space left on device", "/disk/metrics.jsonl")
UNREADABLE = PermissionError(errno.EACCES, "Permission denied", "/data/train.jsonl")
REMOVED = "{folder} was removed while the run was going on; " + RESUME
TRACE_OF_ENGINE = "pods.engines.base.EngineFailed: it broke"


@pytest.mark.parametrize(("error", "moment", "end", "said"), [
    # not started: what the user has to fix leaves the run as it was
    (ValueError("seed=x"), "new", ("pending", 1), ["error: seed=x"]),
    (ValueError("seed=x"), "resumed", ("preempted", 1), ["error: seed=x"]),
    (UNREADABLE, "new", ("pending", 1), ["error: /data/train.jsonl: Permission denied"]),
    (UNREADABLE, "resumed", ("preempted", 1), ["error: /data/train.jsonl: Permission denied"]),
    (ImportError("no peft"), "new", ("pending", 1), ["error: no peft"]),
    (Damaged(Path("log"), "cut"), "new", ("pending", 1), ["error: log is damaged: cut"]),
    (Damaged(Path("log"), "cut"), "resumed", ("preempted", 1), ["error: log is damaged: cut"]),
    (KeyError("bug"), "new", FAILED, ["KeyError: 'bug'"]),
    (KeyError("bug"), "resumed", FAILED, ["KeyError: 'bug'"]),
    (EngineFailed("it broke"), "new", FAILED, [TRACE_OF_ENGINE]),
    (EngineFailed("it broke"), "resumed", FAILED, [TRACE_OF_ENGINE]),
    # started: the error is the run's own but for damage, the machine and the engine
    (ValueError("no group"), "started", FAILED, ["ValueError: no group"]),
    (UNREADABLE, "started", FAILED, 
     ["PermissionError: [Errno 13] Permission denied: '/data/train.jsonl'"]),
    (KeyError("bug"), "started", FAILED, ["KeyError: 'bug'"]),
    (Damaged(Path("log"), "cut"), "started", ("preempted", 1), ["error: log is damaged: cut"]),
    (EngineFailed("it broke"), "started", AGAIN, [TRACE_OF_ENGINE, RESUME]),
    # whenever it occurs
    *[(FULL_DISK, moment, AGAIN,
       ["error: /disk/metrics.jsonl: No space left on device", FIX_AND_RESUME])
      for moment in ("new", "resumed", "started")],
    *[(PeerLost("a process died"), moment, AGAIN, ["error: a process died; " + RESUME])
      for moment in ("new", "resumed", "started")],
    *[(LockLost("the lock is gone"), moment, AGAIN, ["error: the lock is gone; " + RESUME])
      for moment in ("new", "started", "removed")],
    *[(error, "removed", AGAIN, ["error: " + REMOVED])
      for error in (KeyError("bug"), FULL_DISK, ValueError("x"), EngineFailed("it broke"))],
])  # fmt: skip
def test_how_a_run_ends_by_the_error_and_when_it_occurs(error, moment, end, said, tmp_path, capsys):
    store = freeze(composed(f"runs_dir={tmp_path}"))
    if moment in ("resumed", "started"):
        write = partial(store.write_clock, step=3, train_seconds=1.0, evaluation=True)
        checkpoint.commit(store.checkpoint(3), write)
    if moment == "removed":
        shutil.rmtree(store.folder)

    state, code, text = classify(error, moment in ("started", "removed"), store)

    assert (state, code) == end
    assert text.startswith(type(error).__name__)
    lines = [line.format(folder=store.folder) for line in said]
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(("drivers", "built_for", "line"), [
    ([], "13.0", "torch sees no GPU here; hardware=cpu runs anywhere"),
    ([("0", "550.54.15")], "13.0", "this torch is built for CUDA 13.0, for which the GPU's driver"),
    ([("0", "580.65.06")], None, "this torch is built for CPUs alone; install one")])  # fmt: skip
def test_why_torch_sees_no_gpu(drivers, built_for, line, monkeypatch):
    monkeypatch.setattr(machine, "visible_gpus", {"driver_version": drivers}.__getitem__)
    assert machine.why_no_gpu(built_for).startswith(line)
