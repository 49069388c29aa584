"""Exit codes and one-line errors: 75 for the machine, 2 for bad input, a traceback on request."""

import errno
import os
import shutil
import subprocess
import sys
from contextlib import suppress
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
from pods.launch.failures import classify
from pods.runs.freeze import freeze
from pods.runs.store import RunStore
from pods.system import machine
from pods.system.errors import is_machine_error


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
    assert "Traceback" in result.stderr and "error: /proc/default" in result.stderr


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


@pytest.mark.parametrize(("drivers", "built_for", "line"), [
    ([], "13.0", "torch sees no GPU here; hardware=cpu runs anywhere"),
    ([("0", "550.54.15")], "13.0", "this torch is built for CUDA 13.0, for which the GPU's driver"),
    ([("0", "580.65.06")], None, "this torch is built for CPUs alone; install one")])  # fmt: skip
def test_why_torch_sees_no_gpu(drivers, built_for, line, monkeypatch):
    monkeypatch.setattr(machine, "visible_gpus", {"driver_version": drivers}.__getitem__)
    assert machine.why_no_gpu(built_for).startswith(line)
