"""Evaluation points, and the files of evaluations: each is whole or it does not exist."""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from compose import composed
from rows import every
from running import SHORT, contents, run_here

from pods.cli.main import main
from pods.launch import job
from pods.launch.backend import has_work_left
from pods.runs import checkpoint
from pods.runs.attempts import environments
from pods.runs.evaluations import (
    Unfinished,
    asked,
    due,
    due_points,
    read_evaluation,
)
from pods.runs.files import read_lines
from pods.runs.history import evaluated_steps, evaluation_points, missing_evaluations
from pods.runs.records import Damaged
from pods.runs.store import OPTIMIZER, RunStore
from pods.system.errors import AGAIN, DONE, FAILED
from pods.training import trainer

TICK = 7 / 512  # exact in binary, so that sums of it are; a step is eight phases of one
POINTS = (0, 2, 3, 4, 6)
CHUNK = 8
RECORDS = 32  # 2 repeats of 16 questions


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run whose points come from steps and from seconds."""
    folder = tmp_path_factory.mktemp("evaluate")
    return run_here(
        *SHORT, f"runs_dir={folder / 'runs'}", "nm.n=8", "nm.m=4", f"engine.max_rows={CHUNK}",
        "budget.train_seconds=null", "budget.max_steps=6", "checkpoint.every_steps=2",
        "checkpoint.every_train_seconds=0.29", "launch.jobs=1", now=count(0.0, TICK).__next__,
    )  # fmt: skip


@pytest.fixture
def copied(run, tmp_path):
    """A copy of the run, to be damaged."""
    copy = tmp_path / run.folder.relative_to(run.folder.parents[4])
    return RunStore(Path(shutil.copytree(run.folder, copy)))


def results(store):
    """Return the bytes of all files in a run folder except attempts, the state and the lock."""
    left_out = (".lock", "attempts", "status.json")
    return {n: c for n, c in contents(store.folder).items() if not n.startswith(left_out)}


def test_a_step_is_due_if_the_clock_passes_a_multiple_in_it_or_its_number_is_one():
    """Against counting: 0.75 s passes at tick 48, 96, ... of 1/64 s, also at a step's very end."""
    every = composed("checkpoint.every_steps=7", "checkpoint.every_train_seconds=0.75").checkpoint
    chance, clock = random.Random(0), 0
    for step in range(1, 400):
        ticks = chance.choice((0, 1, 5, 17, 48, 130))
        passed = any(tick % 48 == 0 for tick in range(clock + 1, clock + ticks + 1))
        is_due = due(every, step, clock / 64, (clock + ticks) / 64)  # 0.75 s are 48 ticks
        assert is_due == (passed or step % 7 == 0)
        clock += ticks
    never = composed("checkpoint.every_steps=null", "checkpoint.every_train_seconds=null")
    assert not due(never.checkpoint, 1, 0.0, 1e6)


def test_the_log_alone_gives_the_points_that_the_run_had(run):
    """A step is 8 phases of a tick: 0.29 s pass in step 3 (16 to 24 ticks), 0.58 s in step 6."""
    lines = read_lines(run.metrics_path)
    points = due_points(run.config(), lines, True)
    assert points == evaluation_points(run) == {step: step * 8 * TICK for step in POINTS}
    until = {step: seconds for step, seconds in points.items() if step < 5}
    assert due_points(run.config(), lines[:5], True) == {**until, 5: 40 * TICK}
    assert due_points(run.config(), [], True) == {0: 0.0}
    void = [{**line, "nonfinite": "the loss is NaN"} for line in lines]
    assert due_points(run.config(), void, True) == points


def line(text, number, change):
    """Text with one line changed; `change` takes and returns bytes."""
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:number], change(lines[number]), *lines[number + 1 :]])


def moved(text, *places):
    """Text whose lines come in another order, or in part."""
    return b"".join(text.splitlines(keepends=True)[i] for i in places)


DAMAGES = {  # of a file; test_study_checks.py has those of a single record
    "empty": lambda text, other: b"",
    "its last record missing": lambda text, other: line(text, RECORDS - 1, lambda row: b""),
    "cut off in a line": lambda text, other: text[:-20],
    "a record in its middle missing": lambda text, other: line(text, 9, lambda row: b""),
    "a record twice": lambda text, other: line(text, 4, lambda row: row * 2),
    "all twice": lambda text, other: text * 2,
    "a line begun after its end": lambda text, other: text + text[:30],
    "those of another step": lambda text, other: other,
    "one of another step": lambda text, other: line(text, 20, lambda row: moved(other, 20)),
    "two in the other's place": lambda text, other: moved(text, 1, 0, *range(2, RECORDS)),
    "a line that is no record": lambda text, other: line(text, 30, lambda row: b"17\n"),
    "zeros": lambda text, other: bytes(len(text)),
}


def test_a_damaged_evaluation_is_one_line_that_names_it(run, copied):
    text, other = (run.evaluation_path(step).read_bytes() for step in (2, 3))
    path, config = copied.evaluation_path(2), copied.config()
    names = [f"test-{q:04d}" for q in range(16)]
    assert [record.question for record in read_evaluation(copied, config, 2)] == names * 2

    def check(damage):
        path.write_bytes(DAMAGES[damage](text, other))
        assert path.read_bytes() != text
        with pytest.raises(Damaged, match=r"^\S*step-000002\.jsonl is damaged: .*(line|records)"):
            read_evaluation(copied, config, 2)

    every(((damage,) for damage in DAMAGES), check)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_evaluation(copied, config, 2)


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize("lost", [(0,), (3, 6), POINTS])
def test_the_same_command_makes_the_missing_evaluations_of_a_done_run(run, copied, lost, cleaned):
    """Also without the optimizer, which `pods clean` removes from a done run."""
    assert not has_work_left(copied, copied.config()) and missing_evaluations(copied) == []
    if cleaned:
        for step in POINTS:
            checkpoint.remove_part(copied.checkpoint(step), OPTIMIZER)
    before = results(copied)
    for step in lost:
        copied.evaluation_path(step).unlink()
    assert has_work_left(copied, copied.config()) and missing_evaluations(copied) == [*lost]
    copied.set_status(accuracy=None)
    assert job.execute(copied.folder) == DONE
    assert results(copied) == before
    for step in POINTS:
        path = copied.evaluation_path(step)
        assert path.read_bytes() == run.evaluation_path(step).read_bytes()
    assert copied.status()["state"] == "done" and not has_work_left(copied, copied.config())
    for fact in ("accuracy", "step", "train_seconds"):
        assert copied.status()[fact] == run.status()[fact]


def test_a_cleaned_run_whose_last_checkpoint_is_damaged_loses_nothing(copied, capfd):
    """It could only start again, which would remove every number that it measured."""
    for step in POINTS:
        checkpoint.remove_part(copied.checkpoint(step), OPTIMIZER)
    copied.evaluation_path(3).unlink()
    weights = copied.checkpoint(6) / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    before = results(copied)
    assert job.execute(copied.folder) != DONE
    assert results(copied) == before
    assert "step-000004" in capfd.readouterr().err


def test_a_process_that_only_evaluates_is_not_the_machine_that_trained(run, copied):
    copied.evaluation_path(3).unlink()
    assert job.execute(copied.folder) == DONE
    made = json.loads((copied.folder / "attempts/002/environment.json").read_text())
    assert made["only_evaluates"] is True
    assert environments(copied) == environments(run)


def test_an_evaluation_appears_whole_and_is_on_the_disk_before(copied, monkeypatch):
    seen, events = [], []
    path = copied.evaluation_path(2)
    path.unlink()
    plain = {name: getattr(os, name) for name in ("fsync", "replace")}

    def fsync(descriptor):
        plain["fsync"](descriptor)
        events.append(("synced", os.stat(descriptor).st_ino))

    def replace(source, target):
        inode = os.stat(source).st_ino
        plain["replace"](source, target)
        if Path(target) == path:
            events.append(("renamed", inode))

    def chunk(*arguments, **named):
        for answers in complete(*arguments, **named):
            seen.append(evaluated_steps(copied))
            yield answers

    complete = trainer.complete
    monkeypatch.setattr(trainer, "complete", chunk)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    assert job.execute(copied.folder) == DONE
    assert seen == [[0, 3, 4, 6]] * (RECORDS // CHUNK)
    inode = path.stat().st_ino
    at = events.index(("renamed", inode))
    assert ("synced", inode) in events[:at]
    assert events[at + 1] == ("synced", path.parent.stat().st_ino)


def test_an_evaluation_that_is_stopped_keeps_its_chunks(run, copied, monkeypatch, capfd):
    before = results(copied)
    path, calls = copied.evaluation_path(2), count(1)
    part = path.with_name("step-000002.jsonl.part")
    path.unlink()
    add = Unfinished.add

    def stopping(self, records):
        add(self, records)
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Unfinished, "add", stopping)
    assert job.execute(copied.folder) == AGAIN
    assert "stopped on request" in capfd.readouterr().err
    lines = run.evaluation_path(2).read_bytes().splitlines(keepends=True)
    assert part.read_bytes() == b"".join(lines[: 2 * CHUNK])
    assert missing_evaluations(copied) == [2]
    assert job.execute(copied.folder) == DONE
    assert next(calls) == 1 + RECORDS // CHUNK
    assert results(copied) == before == results(run)


def test_of_an_unfinished_file_whole_chunks_of_right_lines_are_kept(run, copied):
    lines = run.evaluation_path(2).read_bytes().splitlines(keepends=True)
    others = run.evaluation_path(3).read_bytes().splitlines(keepends=True)
    questions = [f"test-{q:04d}" for q in range(16)]
    requests = asked(run.config(), 2, questions)
    unfinished = Unfinished(copied, 2)
    tails = {
        "nothing": b"", "a part of a line": lines[16][:30], "zeros": bytes(300),
        "a line without its end": lines[16][:-1], "another step's": others[16],
        "one of a chunk": lines[16], "one twice": lines[15],
        "a line that is damaged, and a right one": b"17\n" + lines[17],
    }  # fmt: skip

    def check(tail):
        unfinished.path.write_bytes(b"".join(lines[:16]) + tails[tail])
        assert unfinished.keep(requests, CHUNK) == 16
        assert unfinished.path.read_bytes() == b"".join(lines[:16])

    every(((tail,) for tail in tails), check)
    unfinished.path.write_bytes(b"".join(lines))  # killed before it was renamed
    assert unfinished.keep(requests, CHUNK + 1) == RECORDS
    unfinished.path.unlink()
    assert unfinished.keep(requests, CHUNK) == 0


@pytest.mark.parametrize(("damage", "words"), [
    (lambda folder: (folder / "policy" / "model.safetensors").write_bytes(b"x"),
     "policy/model.safetensors is damaged"),
    (lambda folder: (folder / "policy" / "config.json").unlink(),
     "policy/config.json is missing"),
    (lambda folder: (folder / "clock.json").write_bytes(b"{"), "clock.json is damaged"),
    (lambda folder: (folder / "clock.json").write_bytes(b""), "clock.json is damaged"),
    (lambda folder: (folder / "clock.json").unlink(), "clock.json is missing"),
    (lambda folder: (folder / checkpoint.MANIFEST).unlink(), "cannot be read")])  # fmt: skip
def test_a_checkpoint_that_cannot_be_evaluated_is_named_and_left(copied, damage, words, capfd):
    copied.evaluation_path(2).unlink()
    damage(copied.checkpoint(2))
    assert has_work_left(copied, copied.config())  # so that the same command comes to say it
    before = results(copied)
    assert job.execute(copied.folder) == FAILED
    said = capfd.readouterr().err
    assert f"step 2 cannot be evaluated: {words}" in said.replace("step-000002 ", "")
    assert "Traceback" not in said
    assert results(copied) == before

    [command] = re.findall("`pods (clean .* --yes)` removes the run", said)
    assert main(shlex.split(command)) == DONE and not copied.folder.exists()


def test_a_checkpoint_that_is_only_to_resume_from_has_no_evaluation_to_make(copied):
    extra = copied.checkpoint(5)
    shutil.copytree(copied.checkpoint(2), extra)
    (extra / "clock.json").write_bytes(b"{")
    assert missing_evaluations(copied) == []


def test_without_a_checkpoint_an_evaluation_is_not_missing(copied):
    copied.evaluation_path(2).unlink()
    shutil.rmtree(copied.checkpoint(2))
    assert missing_evaluations(copied) == [] and not has_work_left(copied, copied.config())


def test_an_evaluation_with_another_torch_is_refused(copied, capfd):
    copied.evaluation_path(2).unlink()
    path = copied.folder / "attempts" / "001" / "environment.json"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps({**plain, "packages": {"torch": "1.0.0"}}))
    assert job.execute(copied.folder) == FAILED
    said = capfd.readouterr().err
    assert "torch: 1.0.0 -> " in said and "retry=changed" in said


def test_status_loads_no_numpy(copied):
    code = (
        "import sys; from pods.cli.main import main\n"
        "assert main(['status']) == 0 and 'numpy' not in sys.modules"
    )
    subprocess.check_output([sys.executable, "-c", code], cwd=copied.folder.parents[4])
