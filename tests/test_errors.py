"""Exit codes and one-line errors: 75 for the machine, 2 for bad input, a traceback on request."""

import errno
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import needs
import pytest
import torch
from compose import ROOT, composed
from running import RUN_PY, SHORT, run_here, science_of, start_forked, wait_for

from mathgrade import WorkerUnavailable
from pods.cli.main import VERBS, main
from pods.engines.base import EngineFailed
from pods.launch import job
from pods.launch.failures import classify
from pods.runs.freeze import freeze
from pods.runs.store import RunStore
from pods.system import machine
from pods.system.errors import is_machine_error


@pytest.mark.parametrize("name", [
    "ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "ENXIO", "ENODEV", "ESTALE", "EREMOTEIO",
    "ETIMEDOUT", "EHOSTDOWN", "ENOLCK", "ENOMEM", "EMFILE",
])  # fmt: skip
def test_a_failing_disk_or_memory_is_a_machine_error(name):
    number = getattr(errno, name)
    assert is_machine_error(OSError(number, os.strerror(number)))
    assert is_machine_error(RuntimeError(f"Error while serializing: (os error {number})"))


def test_a_file_without_permission_is_a_machine_error_in_a_run_and_bad_input_before(tmp_path):
    inside = PermissionError(errno.EPERM, "no", str(tmp_path / "metrics.jsonl"))
    assert is_machine_error(inside, tmp_path) and not is_machine_error(inside)
    assert not is_machine_error(PermissionError(errno.EACCES, "no", "/data"), tmp_path)
    assert not is_machine_error(FileNotFoundError(errno.ENOENT, "no", "x"), tmp_path)
    assert not is_machine_error(ValueError("os error"))


BAD_FOLDERS = {
    "a file": ("file", "error: file", "Not a directory"),
    "a device": ("/dev/null", "error: /dev/null", "Not a directory"),
    "not a disk": ("/proc", "/proc/default", "No such file or directory"),
    "too long a path": ("x" * 200 + ("/" + "x" * 200) * 25, "xxx", "File name too long"),
}


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_an_impossible_runs_dir_is_a_one_line_error(kind, run_py, tmp_path):
    (tmp_path / "file").touch()
    runs_dir, path, message = BAD_FOLDERS[kind]
    for overrides in ([], ["-m", "seed=0,1"]):
        result = run_py(*overrides, f"runs_dir={runs_dir}")
        assert result.returncode == 2, result.stderr
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        assert path in result.stderr and message in result.stderr


def test_an_unexpected_error_is_one_line_and_a_traceback_with_debug(run_py, tmp_path):
    for name, content in {"raises": "1 / 0", "ends": "import sys; sys.exit(3)"}.items():
        (tmp_path / f"{name}.py").write_text(content)
        result = run_py(f"sampler.rule={name}:f", f"hydra.searchpath=[file://{tmp_path}]")
        assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
    for rule in (".x:f", "../x:f", "a b", "=cmd|'x'!A1:f"):
        result = run_py(f"sampler.rule={rule!r}")
        assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
    result = run_py("runs_dir=/proc", "--debug")
    assert result.returncode == 2
    assert "Traceback" in result.stderr and "error: /proc/default" in result.stderr


def test_verbs_report_errors_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("runs").touch()
    for verb in ("status", "clean", "evaluate", "plot"):
        assert main([verb]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1
    monkeypatch.setitem(VERBS, "status", lambda options: 1 / 0)
    assert main(["status"]) == 1
    assert capsys.readouterr().err == (
        "error: ZeroDivisionError: division by zero (--debug shows the traceback)\n"
    )
    assert main(["status", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/default/figures/a.csv")

    def fail(options):
        raise full

    monkeypatch.setitem(VERBS, "status", fail)
    assert main(["status"]) == 75
    assert capsys.readouterr().err.splitlines() == [
        "error: runs/default/figures/a.csv: No space left on device",
        "fix this, then run the same command again to resume",
    ]


def test_a_console_with_an_old_encoding_gets_question_marks(tmp_path):
    freeze(composed(f"runs_dir={tmp_path}/runs", "tracking=none"))
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        [sys.executable, "-m", "pods.cli.main", "status"],
        cwd=tmp_path, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"n?m" in result.stdout and b"64?16" in result.stdout


# ---- disks that are full or fail


def mounted(kind, folder, *options):
    """Mount a file system, or skip the test without the right to."""
    folder.mkdir()
    done = subprocess.run(["mount", *options, kind, folder], capture_output=True, check=False)
    if done.returncode:
        needs.mount(done.stderr.decode())
    return folder


@pytest.fixture
def disk(tmp_path):
    """Mount a disk of 24 MB in memory."""
    folder = mounted("tmpfs", tmp_path / "disk", "-t", "tmpfs", "-o", "size=24m")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(disk):
    """Fill the disk."""
    with (disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@pytest.mark.slow
def test_a_full_disk_gives_75_at_submission_in_a_sweep_and_at_the_figure(run_py, disk):
    overrides = (
        f"runs_dir={disk}/runs",
        *SHORT,
        "checkpoint.every_steps=1",
        "evaluation.questions=4",
    )
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
    assert result.returncode == 75 and "no figure: " in result.stderr, result.stderr
    assert main(["plot", "--runs-dir", str(disk / "runs")]) == 75


@pytest.mark.slow
def test_a_disk_that_fills_up_during_a_run_gives_75_and_few_lines_also_with_wandb(tmp_path, disk):
    overrides = (f"runs_dir={disk}/runs", *SHORT, "tracking=offline", "checkpoint.every_steps=5",
             "budget.max_steps=100000")  # fmt: skip
    process = start_forked(tmp_path, *overrides)
    wait_for(lambda: any(path.read_bytes().count(b"\n") > 6
                         for path in disk.glob("runs/*/*/*/*/metrics.jsonl")))  # fmt: skip
    fill(disk)
    printed, _ = process.communicate()
    assert process.returncode == 75, printed
    assert "Logging error" not in printed and "Traceback" not in printed
    assert len(printed.splitlines()) < 20, printed


@pytest.mark.slow
def test_finished_runs_can_be_read_from_a_read_only_disk(run_py, disk, capsys):
    overrides = (f"runs_dir={disk}/runs", *SHORT, "evaluation.questions=4")
    done = run_here(*overrides)
    begun = freeze(composed(*overrides, "seed=1"))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    result = run_py(*overrides)
    assert result.returncode == 0 and "is already done" in result.stdout, result.stderr
    for more in (["seed=1"], ["seed=2"], ["-m", "seed=0,1"]):
        result = run_py(*more, *overrides)
        assert result.returncode == 75, result.stderr
        assert "Read-only file system" in result.stderr and "Traceback" not in result.stderr
    for verb, code in {"status": 0, "clean": 0, "plot": 75, "aggregate": 75}.items():
        # the run that has not started is missing, and on no machine
        missing = ["--allow-missing", "--allow-mixed"] if code else []
        assert main([verb, "--runs-dir", str(disk / "runs"), *missing]) == code, verb
    assert main(["clean", "--yes", "--runs-dir", str(disk / "runs")]) == 75
    assert "Traceback" not in capsys.readouterr().err
    assert job.execute(begun.folder) == 75
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert job.execute(begun.folder) == 0
    assert {RunStore(s.folder).status()["state"] for s in (done, begun)} == {"done"}


@pytest.mark.slow
def test_a_disk_that_fails_during_a_run_gives_75_and_the_same_command_resumes(run_py, tmp_path):
    """On an error in ext4 the kernel usually makes it read-only."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(64 * 2**20)
    try:
        subprocess.run(["mkfs.ext4", "-q", image], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        needs.mount(str(error))
    disk = mounted(image, tmp_path / "disk", "-o", "loop,errors=remount-ro")
    overrides = (
        f"runs_dir={disk}/runs",
        *SHORT,
        "budget.max_steps=40",
        "checkpoint.every_steps=10",
    )
    try:
        device = Path(subprocess.check_output(
            ["findmnt", "-no", "SOURCE", disk], text=True).strip())  # fmt: skip
        process = start_forked(tmp_path, *overrides)
        wait_for(lambda: any(path.read_bytes().count(b"\n") > 12
                             for path in disk.glob("runs/*/*/*/*/metrics.jsonl")))  # fmt: skip
        Path(f"/sys/fs/ext4/{device.name}/trigger_fs_error").write_text("1")
        printed, _ = process.communicate()
        assert process.returncode == 75, printed
        assert "Read-only file system" in printed and "Traceback" not in printed
        assert run_py(*overrides).returncode == 75
        subprocess.run(["umount", disk], check=True)
        subprocess.run(["e2fsck", "-fy", image], check=False, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, disk], check=True)
        result = run_py(*overrides)
        assert result.returncode == 0, result.stderr
        assert "resuming from step" in result.stdout + result.stderr
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_console_stops_nothing(closed, tmp_path):
    overrides = " ".join([*SHORT, "budget.max_steps=1", "evaluation.questions=4"])
    subprocess.run(["sh", "-c", f"{sys.executable} {RUN_PY} {overrides} {closed}"], cwd=tmp_path,
                   check=True)  # fmt: skip
    [folder] = (tmp_path / "runs").glob("*/*/*/seed*")
    assert RunStore(folder).status()["state"] == "done"
    code = f"{sys.executable} -m pods.cli.main status {closed}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(["sh", "-c", code], cwd=tmp_path, env=environment, check=True)


def test_running_out_of_memory_is_a_machine_error(tmp_path):
    assert is_machine_error(MemoryError())
    store = freeze(composed(f"runs_dir={tmp_path}", "tracking=none"))
    assert classify(MemoryError(), True, store)[:2] == ("preempted", 75)
    assert classify(WorkerUnavailable("no worker"), True, store)[1] == 75


OFF_THE_BUS = torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors")
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB")


def caused_by(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("error", "line"), [
    (OFF_THE_BUS, "the GPU failed (CUDA error: unspecified launch failure): see nvidia-smi and "),
    (caused_by(EngineFailed("vLLM broke down"), OFF_THE_BUS), "the GPU failed (CUDA error: "),
    (FULL, "the GPU ran out of memory (CUDA out of memory. Tried to allocate 2.00 GiB): "),
], ids=["card", "card under vLLM", "memory"])  # fmt: skip
def test_a_failure_of_a_gpu_is_one_line_and_can_be_resumed(error, line, tmp_path, capsys):
    store = freeze(composed(f"runs_dir={tmp_path}", "tracking=none"))
    state, code, text = classify(error, True, store)
    assert (state, code) == ("preempted", 75) and text.startswith(line)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[0] == f"error: {text}" and "same command" in said[1]


def test_an_error_of_our_own_kernel_is_no_failure_of_the_gpu(tmp_path):
    wrong = torch.AcceleratorError("CUDA error: device-side assert triggered")
    store = freeze(composed(f"runs_dir={tmp_path}", "tracking=none"))
    assert classify(wrong, True, store)[:2] == ("failed", 1)


def test_a_gpu_that_fails_in_a_step_loses_nothing(tmp_path, monkeypatch, capsys):
    from pods.training.worker import Worker

    overrides = (f"runs_dir={tmp_path}", *SHORT)
    update = Worker.update

    def fail_at_3(worker, rollouts, advantages, sizes, step):
        if step == 3:
            raise OFF_THE_BUS
        return update(worker, rollouts, advantages, sizes, step)

    store = freeze(composed(*overrides))
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "update", fail_at_3)
        assert job.execute(store.folder) == 75
    said = capsys.readouterr().err
    assert "error: the GPU failed (CUDA error: " in said and "Traceback" not in said
    assert store.status()["state"] == "preempted"
    assert job.execute(store.folder) == 0
    whole = run_here(f"runs_dir={tmp_path / 'whole'}", *SHORT)
    assert science_of(store.folder) == science_of(whole.folder)


@pytest.mark.parametrize(("drivers", "built_for", "line"), [
    ([], "13.0", "torch sees no GPU here; hardware=cpu runs anywhere"),
    ([("0", "550.54.15")], "13.0", "this torch is built for CUDA 13.0, for which the GPU's driver"),
    ([("0", "580.65.06")], None, "this torch is built for CPUs alone; install one"),
])  # fmt: skip
def test_why_torch_sees_no_gpu(drivers, built_for, line, monkeypatch):
    monkeypatch.setattr(machine, "visible_gpus", {"driver_version": drivers}.__getitem__)
    assert machine.why_no_gpu(built_for).startswith(line)
