"""The training clock, commits of checkpoints, and the files of the run folder."""

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from compose import composed

from pods.runs import checkpoint
from pods.runs.attempts import new_attempt, record_changes, recorded_changes, set_queued
from pods.runs.evaluations import Unfinished
from pods.runs.files import append, read_lines, replace, size, write_json
from pods.runs.freeze import freeze
from pods.runs.history import abandoned_paths, evaluation_points, newest_checkpoint, roll_back
from pods.runs.identity import difference, fingerprint, identity
from pods.runs.lock import is_held
from pods.runs.paths import SHIPPED_MODELS
from pods.runs.status import status_row
from pods.training import clock as clocks
from pods.training.clock import PHASES, TrainClock
from pods.training.resume import prune_checkpoints


def ticking(step: float = 1.0):
    """A clock that moves by `step` each time it is read."""
    return count(step, step).__next__


def test_only_phases_of_committed_steps_are_training_time():
    clock = TrainClock(now=ticking(), train_seconds=10.0)
    for name in ("generate", "update", "update"):
        with clock.phase(name):
            pass
    assert clock.train_seconds == 10.0  # nothing is committed yet
    assert clock.commit().wall == {**dict.fromkeys(PHASES, 0.0), "generate": 1.0, "update": 2.0}
    assert clock.train_seconds == 13.0
    assert sum(clock.commit().wall.values()) == 0.0
    for name in PHASES:
        with clock.phase(name):
            pass
    assert clock.commit()[:2] == (dict.fromkeys(PHASES, 1.0), {})  # no CPU seconds under this clock
    assert clock.train_seconds == 18.0 and len(PHASES) == 5


def test_cpu_seconds_are_those_that_the_process_worked_and_not_those_that_it_waited():
    clock = TrainClock()
    with clock.phase("generate"):
        time.sleep(0.05)
    for _ in range(2):
        with clock.phase("update"):
            end = time.process_time() + 0.01
            while time.process_time() < end:
                pass
    wall, cpu = clock.commit()
    assert wall["generate"] >= 0.05 and cpu["generate"] < 0.02 <= cpu["update"]
    assert clock.commit().cpu == dict.fromkeys(PHASES, 0.0)


def test_the_device_is_synchronised_at_both_ends_of_a_phase():
    events = []
    clock = TrainClock(
        now=lambda: events.append("read") or 0.0, synchronise=lambda: events.append("wait")
    )
    with clock.phase("generate"):
        events.append("work")
    assert events == ["wait", "read", "work", "wait", "read"]


def test_an_attempts_seconds_are_summed_and_its_memory_is_the_highest(monkeypatch):
    monkeypatch.setattr(clocks, "time", SimpleNamespace(perf_counter=ticking()))
    found, done = clocks.Meter(), []  # began at 1 s
    memory = iter([5, 9, 3])
    found.measure(lambda: done.append("reset"), lambda: done.append("peak") or next(memory))
    with found.phase("generate"):  # 2 to 3 s
        done.append("work")
    with pytest.raises(ValueError, match="no"), found.phase("update"):  # 4 to 5 s
        raise ValueError("no")
    with found.phase("generate"):  # 6 to 7 s
        pass
    assert done == ["reset", "work", "peak"] + 2 * ["reset", "peak"]
    assert json.loads(found.text()) == {  # at 8 s: 7 s in all
        "generate": {"seconds": 2.0, "peak_bytes": 5}, "update": {"seconds": 1.0, "peak_bytes": 9},
        "other": {"seconds": 4.0}}  # fmt: skip


def test_the_peak_of_the_host_is_in_bytes():
    [kibibytes] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert 0.99 < clocks.host_peak() / (1024 * int(kibibytes)) < 2


def write(text):
    def into(folder):
        (folder / "a").write_text(text)
        (folder / "sub").mkdir()
        (folder / "sub" / "b").write_text(text * 2)

    return into


def test_a_checkpoint_appears_complete_and_replaces_an_old_one_or_not_at_all(tmp_path):
    folder = tmp_path / "step-000001"
    (tmp_path / "step-000001.tmp").mkdir()
    (tmp_path / "step-000001.tmp" / "stray").write_text("of a commit that was killed")

    def fail(folder):
        write("half")(folder)
        raise ValueError("cannot be written")

    for text in ("one", "two"):
        checkpoint.commit(folder, write(text))
        with pytest.raises(ValueError, match="cannot be written"):
            checkpoint.commit(folder, fail)
        assert checkpoint.damage(folder) is None
        assert (folder / "sub" / "b").read_text() == text * 2
        assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
        assert set(checkpoint.manifest_files(folder)) == {"a", "sub/b"}
        assert not (folder / "stray").exists()
    (folder / "a").write_text("owt")
    assert checkpoint.damage(folder) == "a is damaged"


def test_a_checkpoint_is_put_back_if_a_commit_dies_between_its_renames(tmp_path):
    folder = tmp_path / "step-000001"
    checkpoint.commit(folder, write("old"))
    folder.rename(tmp_path / "step-000001.old")
    checkpoint.recover(tmp_path)
    assert checkpoint.damage(folder) is None and (folder / "a").read_text() == "old"
    aside = Path(shutil.copytree(folder, tmp_path / "step-000001.old"))  # cut off after both
    (aside / "a").write_text("older")
    checkpoint.recover(tmp_path)
    assert (folder / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_a_checkpoint_without_a_file_is_valid_but_not_resumed_from(tmp_path):
    run = store(tmp_path)
    commit(run, 1, 2)
    assert newest_checkpoint(run, "a") == (run.checkpoint(2), {})
    for _ in range(2):  # again, as after a crash: nothing to do
        checkpoint.remove_part(run.checkpoint(2), "a")
        assert checkpoint.damage(run.checkpoint(2)) is None
        assert not (run.checkpoint(2) / "a").exists()
    assert newest_checkpoint(run, "a") == (run.checkpoint(1), {})


def test_a_full_disk_gives_the_place_of_what_is_removed_to_the_manifest(tmp_path, monkeypatch):
    run = store(tmp_path)
    commit(run, 1, 2)
    folder = run.checkpoint(2)
    write_bytes = Path.write_bytes

    def write_if_there_is_room(path, content):
        if (folder / "a").exists():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_if_there_is_room)
    checkpoint.remove_part(folder, "a")
    assert checkpoint.damage(folder) is None and not (folder / "a").exists()


@pytest.fixture
def disk(monkeypatch):
    """The operations on the disk in order; a move lists what a power cut could still lose of it.

    A file or folder is safe in the state of its last fsync, by inode, modification time and size.
    """
    operations, safe = [], set()
    plain = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "unlink")}

    def state(path):
        status = os.stat(path)
        return status.st_ino, status.st_mtime_ns, status.st_size

    def fsync(descriptor):
        plain["fsync"](descriptor)
        safe.add(state(descriptor))
        operations.append(("synced", os.stat(descriptor).st_ino))

    def moving(name):
        def move(source, target):
            source, target = Path(source), Path(target)
            affected = [source, *(source if source.is_dir() else source.parent).rglob("*")]
            lost = sorted(path.name for path in affected if state(path) not in safe)
            plain[name](source, target)
            operations.append(("moved", target.name, lost))

        return move

    def unlink(path, **kwargs):
        plain["unlink"](path, **kwargs)
        operations.append(("removed", Path(path).name))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "unlink", unlink)
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, moving(name))
    return operations


def test_a_commit_or_removal_is_on_the_disk_before_it_is_visible_and_the_old_goes_last(
    tmp_path, disk
):
    folder = tmp_path / "step-000001"
    parent = ("synced", tmp_path.stat().st_ino)

    def moves():
        kept = [entry for entry in disk if entry[0] == "moved" or entry == parent]
        first = next((i for i, entry in enumerate(disk) if entry[0] == "removed"), None)
        if first is not None:
            assert disk.index(parent) < first
        disk.clear()
        return kept

    manifest = ("moved", checkpoint.MANIFEST, [])
    checkpoint.commit(folder, write("old"))
    assert moves() == [manifest, ("moved", "step-000001", []), parent]
    checkpoint.commit(folder, write("new"))
    assert moves() == [
        manifest, ("moved", "step-000001.old", []), ("moved", "step-000001", []), parent,
    ]  # fmt: skip
    checkpoint.remove_part(folder, "a")  # which the disk's manifest has no more by then
    (new, _), *then = disk
    assert new == "synced"  # the temporary manifest
    assert then == [
        ("moved", checkpoint.MANIFEST, []), ("synced", folder.stat().st_ino), ("removed", "a"),
    ]  # fmt: skip


def test_log_config_state_and_changes_survive_a_power_cut_and_heartbeats_do_not_wait(
    tmp_path, disk
):
    run = store(tmp_path)
    append(run.metrics_path, [{"step": 1}])
    disk.clear()
    run.write_clock(tmp_path, 1, 0.5, True)  # which describes the log
    assert disk == [("synced", run.metrics_path.stat().st_ino)]
    assert run.clock(tmp_path)["metrics_bytes"] == len('{"step": 1}\n')
    answers = Unfinished(run, 1)
    answers.add([])
    for write_file in (
        lambda: write_json(run.data_path, {"train": {}}), lambda: run.set_status(state="done"),
        lambda: record_changes(run, ["torch"]), lambda: set_queued(run, "job 1"), answers.finish,
    ):  # fmt: skip
        disk.clear()
        write_file()
        assert [name for name, *_ in disk] == ["synced", "moved", "synced"]
    disk.clear()
    store(tmp_path, "seed=1")  # its config and its identity
    assert [name for name, *_ in disk] == 2 * ["synced", "moved", "synced"]
    disk.clear()
    run.set_status(step=3)
    assert [name for name, *_ in disk] == ["moved"]


def commit(run, *steps, evaluation=True):
    """Commit checkpoints with a file `a`, the clock at as many seconds as steps."""

    def into(folder):
        write("content")(folder)
        step = int(folder.name[5:11])
        run.write_clock(folder, step, float(step), evaluation)

    for step in steps:
        checkpoint.commit(run.checkpoint(step), into)


def test_a_checkpoint_of_another_step_or_run_is_named_and_skipped(tmp_path):
    run, other = store(tmp_path), store(tmp_path, "seed=1")
    commit(run, 1, 2)
    commit(other, 4)
    shutil.copytree(run.checkpoint(1), run.checkpoint(3))
    shutil.copytree(other.checkpoint(4), run.checkpoint(4))
    newest, faults = newest_checkpoint(run, "a")
    assert newest == run.checkpoint(2)
    assert faults == {
        run.checkpoint(4): f"it is step 4 of run {other.folder.name}",
        run.checkpoint(3): f"it is step 1 of run {run.folder.name}",
    }


def store(tmp_path, *overrides):
    config = composed(f"runs_dir={tmp_path}", *overrides)
    run = freeze(config)
    assert run.config() == config
    return run


def test_what_a_run_knew_is_kept(tmp_path):
    run = store(tmp_path)
    assert run.status()["state"] == "pending"
    assert status_row(run.folder)["state"] == "pending"
    run.set_status(state="running", step=3)
    run.set_status(accuracy=0.5)
    assert freeze(composed(f"runs_dir={tmp_path}", "arm=pods")).folder == run.folder
    assert run.config().arm == "pods"  # labels follow the newest command
    assert {"state": "running", "step": 3, "accuracy": 0.5}.items() <= run.status().items()
    with run.lock():  # a run in progress is not frozen again
        freeze(composed(f"runs_dir={tmp_path}", "arm=grpo"))
    assert run.config().arm == "pods" and recorded_changes(run) == []
    for changes in (["torch"], ["torch", "data"], ["data"]):
        record_changes(run, changes)
    assert recorded_changes(run) == ["torch", "data"]
    shutil.rmtree(run.folder)
    with pytest.raises(FileNotFoundError):  # a run that was removed is not made again
        new_attempt(run)


def test_an_incomplete_last_line_is_ignored(tmp_path):
    path = tmp_path / "deep" / "lines.jsonl"
    append(path, [{"a": 1}, {"a": "\ud800"}])
    with path.open("a") as file:
        file.write('{"a": 3')
    first, _ = read_lines(path)
    assert first == {"a": 1}
    with pytest.raises(ValueError, match="Out of range"):
        append(path, [{"a": float("nan")}])


def test_a_run_has_one_name_in_whatever_order_its_keys_come_and_a_missing_key_is_a_difference():
    assert fingerprint({"seed": 0, "lr": 1}) == fingerprint({"lr": 1, "seed": 0})
    assert fingerprint({"seed": 0, "lr": 1}) != fingerprint({"seed": 1, "lr": 0})
    assert difference({"a": 1, "b": 2}, {"b": 2, "c": 3}) == ["a: 1 -> nothing", "c: nothing -> 3"]


@contextmanager
def largest_file(size):
    """A disk that takes no more than so many bytes of a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("target", ["pipe", "/dev/zero", "folder"])
def test_a_pipe_or_a_device_among_a_models_files_is_refused(tmp_path, target):
    """It has no end, so that every command would read it for ever."""
    model = shutil.copytree(SHIPPED_MODELS / "tiny", tmp_path / "model")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (model / "extra.json").symlink_to(tmp_path / target)
    with pytest.raises(ValueError, match=r"model/extra.json: must be a file$"):
        identity(composed(f"model.path={model}"))


def test_a_full_disk_leaves_files_as_they_were(tmp_path):
    path, lines = tmp_path / "a", tmp_path / "lines.jsonl"
    replace(path, "old")
    with pytest.raises(OSError, match="File too large") as failed, largest_file(1):
        replace(path, "new")
    assert failed.value.filename == str(path) and path.read_text() == "old"
    append(lines, [{"a": 1}])
    size = lines.stat().st_size
    with pytest.raises(OSError, match="the disk is full"), largest_file(size + 5):
        append(lines, [{"a": 2}])
    assert read_lines(lines) == [{"a": 1}] and lines.stat().st_size == size
    assert sorted(tmp_path.iterdir()) == [path, lines]


def test_everything_that_a_killed_process_left_is_found(tmp_path):
    run = store(tmp_path)
    left = ["status.json.tmp12", "rollouts/a.gz.tmp12", "checkpoints/b/MANIFEST.json.tmp12",
            "checkpoints/c.trash", "checkpoints/b/policy.trash",
            "checkpoints/d.tmp", "evaluations/g.tmp12",
            "attempts/001/phases.json.tmp12"]  # fmt: skip
    written = [
        "evaluations/step-000001.jsonl",
        "evaluations/step-000002.jsonl.part",
        "checkpoints/b/clock.json",
        "queued.json.tmp12",
    ]
    for name in [*left, *written]:
        path = run.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    assert sorted(abandoned_paths(run)) == sorted(run.folder / name for name in left)
    assert size(run.checkpoints) == 5 * 5 and size(run.checkpoints / "c.trash") == 5


def test_rolling_back_discards_what_came_after(tmp_path):
    run = store(tmp_path)
    for step in (1, 2, 3):
        append(run.metrics_path, [{"step": step}])
        run.write_rollouts(step, [{"step": step}])
        append(run.evaluation_path(step), [{"step": step}])
        run.checkpoint(step).mkdir(parents=True)
        if step == 2:
            logged = run.metrics_path.stat().st_size
    aside = run.checkpoint(3).with_name("step-000003.damaged")
    aside.mkdir()
    backup = tmp_path / "backup"
    backup.hardlink_to(run.metrics_path)
    roll_back(run, 2, logged)
    assert len(read_lines(backup)) == 3
    assert [row["step"] for row in read_lines(run.metrics_path)] == [1, 2]
    assert not run.evaluation_path(3).exists() and run.evaluation_path(2).exists()
    assert len(list((run.folder / "rollouts").iterdir())) == 2
    assert sorted(run.checkpoints.iterdir()) == [run.checkpoint(1), run.checkpoint(2), aside]


def test_two_processes_can_ask_about_a_lock_at_once(tmp_path):
    path = tmp_path / ".lock"
    assert not is_held(path) and not path.exists()
    path.touch()
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_held(path)


def test_stopgap_checkpoints_are_removed_even_if_one_is_half_removed(tmp_path):
    run = store(tmp_path)
    commit(run, 0, 2)
    commit(run, 4, 5, 6, evaluation=False)
    (run.checkpoint(4) / "clock.json").write_text("[]")  # or gone, as a process dies that removes
    assert evaluation_points(run) == {0: 0.0, 2: 2.0}
    prune_checkpoints(run, 6)
    assert evaluation_points(run) == {0: 0.0, 2: 2.0}
    assert not run.checkpoint(5).exists()
    assert run.checkpoint(6).exists()  # there is no later one yet


def test_a_log_that_cannot_be_read_makes_no_checkpoint_damaged(tmp_path, monkeypatch):
    run = store(tmp_path)
    commit(run, 1, 2)
    read = Path.read_bytes

    def fails(path):
        if path == run.metrics_path:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(OSError, match="Input/output error"):
        newest_checkpoint(run, "a")
    monkeypatch.undo()
    assert newest_checkpoint(run, "a") == (run.checkpoint(2), {})
