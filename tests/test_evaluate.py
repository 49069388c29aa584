"""Evaluation points, and `pods evaluate`: it restores lost records byte for byte."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
from compose import composed
from rows import every
from running import SHORT, contents, run_here

from pods.analysis.loading.checks import faults
from pods.analysis.loading.run_reader import open_run
from pods.cli import evaluate
from pods.cli.evaluate import evaluate_missing
from pods.engines.base import EngineFailed
from pods.launch import evaluation
from pods.runs.attempts import environments, record_changes
from pods.runs.evaluations import complete_records, due, due_points, is_complete
from pods.runs.files import read_lines, sha256
from pods.runs.history import evaluation_points
from pods.runs.store import RunStore
from pods.system.errors import AGAIN, DONE, FAILED
from pods.training import trainer as evaluating

TICK = 1 / 64  # exact in binary, so that sums of it are
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


def content(store):
    """Return the bytes of all files in a run folder except the lock and `evaluation_attempts`."""
    left_out = (".lock", "evaluation_attempts")
    return {n: c for n, c in contents(store.folder).items() if not n.startswith(left_out)}


def evaluated(store, capfd, *steps):
    """Evaluate steps in this process; return exit code and what was printed."""
    capfd.readouterr()
    return evaluation.execute(store, steps), "".join(capfd.readouterr()).strip()


def test_a_step_is_due_if_the_clock_passes_a_multiple_in_it_or_its_number_is_one():
    """Against counting: 0.75 s passes at tick 48, 96, ... of 1/64 s, also at a step's very end."""
    every = composed("checkpoint.every_steps=7", "checkpoint.every_train_seconds=0.75").checkpoint
    chance, clock = random.Random(0), 0
    for step in range(1, 400):
        ticks = chance.choice((0, 1, 5, 17, 48, 130))
        passed = any(tick % 48 == 0 for tick in range(clock + 1, clock + ticks + 1))
        assert due(every, step, clock * TICK, (clock + ticks) * TICK) == (passed or step % 7 == 0)
        clock += ticks
    never = composed("checkpoint.every_steps=null", "checkpoint.every_train_seconds=null")
    assert not due(never.checkpoint, 1, 0.0, 1e6)


def test_the_log_alone_gives_the_points_that_the_run_had(run):
    """A step is 7 phases of a tick: 0.29 s pass in step 3 (14 to 21 ticks), 0.58 s in step 6."""
    lines = read_lines(run.metrics_path)
    points = due_points(run.config(), lines, True)
    assert points == evaluation_points(run) == {step: step * 7 * TICK for step in POINTS}
    until = {step: seconds for step, seconds in points.items() if step < 5}
    assert due_points(run.config(), lines[:5], True) == {**until, 5: 35 * TICK}
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


DAMAGES = {  # of a file; test_grid.py has those of a single record
    "missing": lambda text, other: b"",
    "its last record missing": lambda text, other: line(text, RECORDS - 1, lambda row: b""),
    "cut off in a line": lambda text, other: text[:-20],
    "cut off at the end of a line": lambda text, other: text[:-1],
    "a record in its middle missing": lambda text, other: line(text, 9, lambda row: b""),
    "a record twice": lambda text, other: line(text, 4, lambda row: row * 2),
    "all twice": lambda text, other: text * 2,
    "a line begun after its end": lambda text, other: text + text[:30],
    "a blank line": lambda text, other: line(text, 4, lambda row: b"\n" + row),
    "those of another step": lambda text, other: other,
    "one of another step": lambda text, other: line(text, 20, lambda row: moved(other, 20)),
    "two in the other's place": lambda text, other: moved(text, 1, 0, *range(2, RECORDS)),
    "a line that is no record": lambda text, other: line(text, 30, lambda row: b"17\n"),
    "line ends of another system": lambda text, other: text.replace(b"\n", b"\r\n"),
    "zeros": lambda text, other: bytes(len(text)),
}


def test_an_incomplete_or_damaged_evaluation_is_detected(run):
    text, other = (run.evaluation_path(step).read_bytes() for step in (2, 3))
    names = [f"test-{q:04d}" for q in range(16)]
    assert [r.question for r in complete_records(run.config(), 2, text)][:16] == names

    def check(damage):
        damaged = DAMAGES[damage](text, other)
        assert damaged != text and isinstance(complete_records(run.config(), 2, damaged), str)

    every(((damage,) for damage in DAMAGES), check)
    repeated = text.replace(b"test-0001", b"test-0000")  # in every repeat
    assert isinstance(complete_records(run.config(), 2, repeated), str)


@pytest.mark.parametrize("first", range(0, len(DAMAGES), len(POINTS)))
def test_damaged_evaluations_are_restored_and_nothing_else_changes(run, copied, first, capfd):
    """Try all damages, one per evaluation of the run."""
    damages = dict(zip(POINTS, list(DAMAGES.values())[first:], strict=False))
    for step, damage in damages.items():
        other = run.evaluation_path(4 if step == 3 else 3).read_bytes()
        copied.evaluation_path(step).write_bytes(damage(run.evaluation_path(step).read_bytes(),
                                                        other))  # fmt: skip
    code, said = evaluated(copied, capfd, *damages)
    assert code == DONE
    assert content(copied) == content(run)
    for line in said.splitlines():  # of each to which a record was added
        step = int(line.split()[1])
        records, clock = read_lines(copied.evaluation_path(step)), step * 7 * TICK
        accuracy = sum(record["correct"] for record in records) / RECORDS
        assert line.startswith(f"step {step:>6}  train {clock:8.1f} s  accuracy {accuracy:.3f}  ")
    assert environments(copied) == environments(run)
    assert (copied.folder / "evaluation_attempts" / "001" / "environment.json").exists()


def test_only_missing_evaluations_of_a_study_are_made(run, copied, capfd):
    """Real processes, one per run; a second run lacks an evaluation that cannot be made again."""
    other = RunStore(copied.folder.with_name("seed1-0123456789"))
    shutil.copytree(copied.folder, other.folder)  # its checkpoints are of the first one
    copied.evaluation_path(0).unlink()
    copied.evaluation_path(3).write_bytes(copied.evaluation_path(4).read_bytes())
    other.evaluation_path(6).unlink()
    path = copied.evaluation_path(4)  # of whose records one is another, and valid
    assert path.with_suffix(".sha256").read_text() == f"{sha256(path)}  {path.name}\n"
    path.write_bytes(path.read_bytes().replace(b'"length": ', b'"length": 1', 1))
    said = [str(fault) for fault in faults(open_run(copied.folder), "seed 0")]
    assert "seed 0 step 4: step-000004.jsonl was changed after it was complete" in said
    before = content(other)
    assert evaluate_missing([copied.folder, other.folder]) == FAILED
    assert content(copied) == content(run) and content(other) == before
    first, *made, second, failed = capfd.readouterr().out.splitlines()
    assert first.endswith(f"/{copied.folder.name}  3 evaluations to make")
    assert second.endswith(f"/{other.folder.name}  1 evaluations to make")
    assert f"cannot be evaluated: it is step 6 of run {run.folder.name}" in failed
    assert [line.split()[1] for line in made] == ["0", "3", "4"]


def test_status_loads_no_library_nor_evaluate_if_nothing_is_missing(copied):
    before = content(copied)
    heavy = "{'torch', 'transformers', 'pandas', 'matplotlib'} & set(sys.modules)"
    code = (
        "import sys; from pods.cli.main import main\n"
        "assert main(['status']) == 0 and 'numpy' not in sys.modules\n"
        f"assert main(['evaluate']) == 0 and not {heavy}"
    )
    command, place = [sys.executable, "-c", code], copied.folder.parents[4]
    printed = subprocess.check_output(command, cwd=place, text=True)
    assert printed.endswith("\n1 runs, 5 evaluations: nothing is missing\n")
    assert content(copied) == before and not (copied.folder / "evaluation_attempts").exists()


def test_a_file_that_ends_early_is_incomplete_with_one_repeat_too(copied):
    """By itself it looks complete; data.json says how many questions there are."""
    config, path = composed("evaluation.repeats=1"), copied.evaluation_path(2)
    rows = path.read_bytes().splitlines(keepends=True)
    path.with_suffix(".sha256").unlink()
    for size in (15, 16):
        path.write_bytes(b"".join(rows[:size]))
        assert len(complete_records(config, 2, path.read_bytes())) == size
        assert is_complete(copied, config, 2) == (size == 16)
    path.write_bytes(b"".join([*rows[:8], *rows[16:24]]))  # both repeats of half of the questions
    assert len(complete_records(copied.config(), 2, path.read_bytes())) == 16
    assert not is_complete(copied, copied.config(), 2)
    record_changes(copied, ["data: test problems: 16 -> 8"])  # as retry=changed allows
    assert is_complete(copied, copied.config(), 2)


@pytest.mark.parametrize(("damage", "words"), [
    (shutil.rmtree, "its checkpoint is missing"),
    (lambda folder: (folder / "policy" / "model.safetensors").write_bytes(b"x"),
     "policy/model.safetensors is damaged"),
    (lambda folder: (folder / "MANIFEST.json").unlink(), "cannot be read")])  # fmt: skip
def test_a_checkpoint_that_cannot_be_evaluated_is_named_and_left(run, copied, damage, words, capfd):
    for step in (2, 4):
        copied.evaluation_path(step).write_bytes(copied.evaluation_path(step).read_bytes()[:-200])
    damage(copied.checkpoint(2))
    before = content(copied)
    code, said = evaluated(copied, capfd, 2, 4)
    wrong, made = said.splitlines()
    assert code == FAILED
    assert wrong.startswith("step      2  cannot be evaluated: ") and words in wrong
    assert made.startswith("step      4  ")
    name = "evaluations/step-000004.jsonl"
    assert content(copied) == {**before, name: content(run)[name]}


def test_a_running_run_is_left_alone(copied, capfd):
    copied.evaluation_path(2).unlink()
    held = "held by another process; left alone"
    for lock in (copied.lock(), nullcontext()):
        before = content(copied)
        with lock:
            assert evaluate_missing([copied.folder]) == AGAIN
            assert held in capfd.readouterr().out
            assert evaluated(copied, capfd, 2) == (AGAIN, held)
        assert content(copied) == before
        copied.set_status(state="running", host="another one")


def test_evaluations_that_resuming_makes_again_are_not_made(copied, capsys):
    """The newest checkpoint of the stopped run is that of step 4, so step 6 is made again."""
    copied.set_status(state="preempted")
    shutil.rmtree(copied.checkpoint(6))
    copied.evaluation_path(6).unlink()
    assert evaluate_missing([copied.folder]) == DONE
    assert capsys.readouterr().out == "1 runs, 4 evaluations: nothing is missing\n"
    shutil.rmtree(copied.checkpoints)
    assert evaluate_missing([copied.folder]) == DONE
    assert capsys.readouterr().out == "1 runs, 0 evaluations: nothing is missing\n"


def test_a_stopped_evaluation_keeps_whole_chunks(run, copied, monkeypatch, capfd):
    before = content(copied)
    path, plain, calls = copied.evaluation_path(2), evaluating.append, count(1)
    path.unlink()

    def stopping(*arguments):
        plain(*arguments)
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(evaluating, "append", stopping)
    code, said = evaluated(copied, capfd, 2, 4)
    assert code == AGAIN and "stopped on request" in said
    name = str(path.relative_to(copied.folder))
    kept = b"".join(before[name].splitlines(keepends=True)[: 2 * CHUNK])
    assert content(copied)[name] == kept
    assert evaluated(copied, capfd, 2)[0] == DONE
    assert next(calls) == 1 + RECORDS // CHUNK
    assert content(copied) == before == content(run)


def test_an_engine_that_fails_is_worth_another_try(copied, monkeypatch, capfd):
    path = copied.evaluation_path(2)
    valid = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*valid[: CHUNK + 1], b"damaged", *valid[CHUNK + 1 :]]))

    def failing(*arguments):
        raise EngineFailed("it broke down")
        yield

    monkeypatch.setattr(evaluating, "evaluate", failing)
    code, said = evaluated(copied, capfd, 2)
    assert code == AGAIN and "EngineFailed: it broke down" in said
    assert path.read_bytes() == b"".join(valid[:CHUNK])


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, FAILED), (errno.ENOSPC, AGAIN)])
def test_only_an_error_of_the_disk_is_worth_another_try(copied, monkeypatch, capfd, number, code):
    refused = Mock(side_effect=OSError(number, os.strerror(number)))
    monkeypatch.setattr(RunStore, "lock", refused)
    exit_code, said = evaluated(copied, capfd, 2)
    assert exit_code == code and os.strerror(number) in said


def test_the_signal_that_killed_a_process_is_printed(copied, monkeypatch, capsys):
    copied.evaluation_path(2).unlink()
    monkeypatch.setattr(subprocess, "call", lambda *_, **__: -signal.SIGKILL)
    assert evaluate_missing([copied.folder]) == FAILED
    assert f"{copied.folder.name}: killed by SIGKILL\n" in capsys.readouterr().out


def test_an_evaluation_with_another_torch_is_refused(copied, capfd):
    path = copied.folder / "attempts" / "001" / "environment.json"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps({**plain, "packages": {"torch": "1.0.0"}}))
    code, said = evaluated(copied, capfd, 2)
    assert code == FAILED and "torch: 1.0.0 -> " in said and "retry=changed" in said


def test_without_a_log_a_run_has_the_points_of_its_checkpoints(copied, monkeypatch, capsys):
    todo = []
    monkeypatch.setattr(evaluate, "make", lambda store, steps: todo.append(steps) or DONE)
    logged = copied.metrics_path.read_bytes()
    kept = copied.evaluation_path(4).read_bytes()
    copied.evaluation_path(4).unlink()
    for log, last in ((b"", 0), (b"".join(logged.splitlines(keepends=True)[:5]), 5)):
        copied.metrics_path.write_bytes(log)
        assert evaluate_missing([copied.folder]) == FAILED
        assert f"ends at step {last}, but the run at step 6\n" in capsys.readouterr().out
    copied.metrics_path.unlink()
    assert evaluate_missing([copied.folder]) == FAILED
    copied.metrics_path.write_bytes(logged)
    (copied.folder / "status.json").unlink()
    assert evaluate_missing([copied.folder]) == DONE
    assert todo == [[4]] * 4
    shutil.rmtree(copied.checkpoints)
    capsys.readouterr()
    assert evaluate_missing([copied.folder]) == DONE
    assert capsys.readouterr().out == "0 runs, 0 evaluations: nothing is missing\n"
    copied.set_status(state="done", step=7)
    copied.evaluation_path(4).write_bytes(kept)
    assert evaluate_missing([copied.folder]) == FAILED
    assert "ends at step 6, but the run at step 7\n" in capsys.readouterr().out


def test_a_damaged_log_is_named_and_the_other_runs_are_still_read(run, copied, capsys):
    other = RunStore(copied.folder.with_name("seed1-0123456789"))
    shutil.copytree(copied.folder, other.folder)
    with other.metrics_path.open("r+b") as file:
        file.write(b"x")
    assert evaluate_missing([other.folder, copied.folder]) == FAILED
    wrong, fine = capsys.readouterr().out.splitlines()
    damaged = f"{other.metrics_path} is damaged: line 1 is no record: "
    assert f"{other.folder.name}  cannot be evaluated: {damaged}" in wrong
    assert fine == "1 runs that could be read, 5 evaluations: nothing is missing"
