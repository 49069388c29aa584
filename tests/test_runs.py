"""The clock, checkpoints that are whole or not there, the run folder, status."""

import json
import os
import socket
import subprocess
import sys

import pytest
from compose import composed

from pods.runs import checkpoint
from pods.runs.clock import PHASES, TrainClock
from pods.runs.files import append, read_lines, truncate_to
from pods.runs.status import format_statuses, statuses
from pods.runs.store import RunStore


def ticking(step: float = 1.0):
    """A clock that moves by `step` each time it is read."""
    now = [0.0]

    def read() -> float:
        now[0] += step
        return now[0]

    return read


def test_only_phases_of_committed_steps_are_training_time():
    clock = TrainClock(now=ticking(), train_seconds=10.0)
    with clock.phase("generate"):
        pass
    with clock.phase("update"):
        pass
    with clock.phase("update"):
        pass
    assert clock.train_seconds == 10.0  # nothing is committed yet
    assert clock.commit() == {**dict.fromkeys(PHASES, 0.0), "generate": 1.0, "update": 2.0}
    assert clock.train_seconds == 13.0
    assert sum(clock.commit().values()) == 0.0


def test_the_device_is_waited_for_at_both_ends_of_a_phase():
    events = []
    clock = TrainClock(
        now=lambda: events.append("read") or 0.0, synchronise=lambda: events.append("wait")
    )
    with clock.phase("generate"):
        events.append("work")
    assert events == ["wait", "read", "work", "wait", "read"]


def write(text):
    def into(folder):
        (folder / "a").write_text(text)
        (folder / "sub").mkdir()
        (folder / "sub" / "b").write_text(text * 2)

    return into


def test_a_checkpoint_appears_whole_and_replaces_an_old_one(tmp_path):
    folder = tmp_path / "step-000001"
    for text in ("one", "two"):
        checkpoint.commit(folder, write(text))
        assert checkpoint.verify(folder)
        assert (folder / "sub" / "b").read_text() == text * 2
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert set(json.loads((folder / "MANIFEST.json").read_text())) == {"a", "sub/b"}


def test_a_crash_while_writing_leaves_no_checkpoint(tmp_path):
    def crash(folder):
        write("half")(folder)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        checkpoint.commit(tmp_path / "step-000001", crash)
    assert checkpoint.newest(tmp_path) is None
    checkpoint.commit(tmp_path / "step-000001", write("whole"))  # what was left is no obstacle
    assert checkpoint.newest(tmp_path) == tmp_path / "step-000001"


@pytest.mark.parametrize("name", ["a", "sub/b", "MANIFEST.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "bit"])
def test_damage_is_seen_and_the_one_before_is_taken(tmp_path, name, damage):
    for step in (1, 2):
        checkpoint.commit(tmp_path / f"step-00000{step}", write("content"))
    path = tmp_path / "step-000002" / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        flipped = bytes([content[0] ^ 1]) + content[1:]
        path.write_bytes({"empty": b"", "cut": content[:-1], "bit": flipped}[damage])
    assert checkpoint.newest(tmp_path) == tmp_path / "step-000001"


def test_a_thinned_checkpoint_verifies_but_is_not_gone_on_from(tmp_path):
    for step in (1, 2):
        checkpoint.commit(tmp_path / f"step-00000{step}", write("content"))
    checkpoint.thin(tmp_path / "step-000002", "a")
    assert checkpoint.verify(tmp_path / "step-000002")
    assert checkpoint.newest(tmp_path, needs="a") == tmp_path / "step-000001"
    assert checkpoint.newest(tmp_path) == tmp_path / "step-000002"
    checkpoint.thin(tmp_path / "step-000002", "a")  # again, as after a crash: nothing to do
    assert checkpoint.verify(tmp_path / "step-000002")


def store(tmp_path, *overrides):
    config = composed(f"runs_dir={tmp_path}", *overrides)
    made = RunStore.of(config)
    assert made.config() == config
    return made


def test_status_is_pending_at_first_and_keeps_what_it_knew(tmp_path):
    run = store(tmp_path)
    assert run.status()["state"] == "pending"
    assert statuses([run.folder])[0]["state"] == "pending"
    run.set_status(state="running", step=3)
    run.set_status(accuracy=0.5)
    assert RunStore.of(composed(f"runs_dir={tmp_path}", "arm=pods")).folder == run.folder
    assert run.config().arm == "pods"  # labels follow the newest command
    assert {k: run.status()[k] for k in ("state", "step", "accuracy")} == {
        "state": "running", "step": 3, "accuracy": 0.5,
    }  # fmt: skip


def test_lines_are_whole_and_a_cut_off_one_is_left_out(tmp_path):
    path = tmp_path / "deep" / "lines.jsonl"
    append(path, [{"a": 1}, {"a": "\ud800"}])
    with path.open("a") as file:
        file.write('{"a": 3')
    first, _ = read_lines(path)
    assert first == {"a": 1}
    truncate_to(path, 1)
    assert read_lines(path) == [{"a": 1}]
    with pytest.raises(ValueError, match="Out of range"):
        append(path, [{"a": float("nan")}])


def test_rolling_back_forgets_what_came_after(tmp_path):
    run = store(tmp_path)
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
        run.write_rollouts(step, [{"step": step}])
        append(run.evaluation_path(step), [{"step": step}])
        if step == 2:
            size = run.sync_metrics()
    run.roll_back(2, size)
    assert [row["step"] for row in read_lines(run.metrics_path)] == [1, 2]
    assert not run.evaluation_path(3).exists() and run.evaluation_path(2).exists()
    assert len(list((run.folder / "rollouts").iterdir())) == 2


def test_a_run_folder_has_one_owner_and_a_dead_one_lets_go(tmp_path):
    run = store(tmp_path)
    hold = (
        "import sys; from pods.runs.store import RunStore; from pathlib import Path\n"
        "with RunStore(Path(sys.argv[1])).lock():\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", hold, str(run.folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None and owner.stdout.readline() == "held\n"
    with pytest.raises(BlockingIOError), run.lock():
        pass
    owner.kill()
    owner.communicate()
    with run.lock():
        pass


def test_status_tells_a_lost_run_from_a_running_one(tmp_path):
    run = store(tmp_path)
    run.set_status(state="running", pid=os.getpid(), host=socket.gethostname())
    with run.lock():
        assert statuses([run.folder])[0]["state"] == "running"
    rows = statuses([run.folder])  # its process let go, and never said that it ended
    assert rows[0]["state"] == "lost"
    assert "max_variance" in format_statuses(rows) and "lost" in format_statuses(rows)


def test_a_run_in_progress_is_not_frozen_again(tmp_path):
    run = store(tmp_path)
    before = run.config_path.read_bytes()
    with run.lock():
        RunStore.of(composed(f"runs_dir={tmp_path}", "arm=pods"))
    assert run.config_path.read_bytes() == before


def test_stopgap_checkpoints_go_even_if_one_is_half_gone(tmp_path):
    run = store(tmp_path)
    for step, evaluation in ((0, True), (3, False), (4, False), (5, True)):
        checkpoint.commit(
            run.checkpoint(step),
            lambda folder, s=step, e=evaluation: run.write_clock(folder, s, float(s), 0, e),
        )
    (run.checkpoint(4) / "clock.json").unlink()  # a process died while removing it
    run.drop_stopgaps(5)
    assert run.evaluation_points() == {0: 0.0, 5: 5.0}
    assert not run.checkpoint(3).exists()


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "lines.jsonl"
    append(path, [{"a": 1}])
    limit = path.stat().st_size + 5
    code = (
        "import resource, signal; from pathlib import Path; from pods.runs.files import append\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        f"append(Path({str(path)!r}), [{{'a': 2}}])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode != 0 and "the disk is full" in result.stderr
    assert read_lines(path) == [{"a": 1}] and path.stat().st_size == limit - 5
