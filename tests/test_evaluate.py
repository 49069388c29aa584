"""Evaluation points, and `pods evaluate`: it restores lost records byte for byte."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from compose import composed
from running import SHORT

from pods.cli import evaluate
from pods.cli.evaluate import evaluate_missing
from pods.cli.main import main
from pods.engines.base import EngineFailed
from pods.launch import job, local_backend
from pods.launch.backend import Outcome
from pods.launch.evaluation import REPORT
from pods.launch.subprocesses import Heartbeat, JobProcess
from pods.runs.attempts import environments, new_attempt, recorded_changes, wall_seconds
from pods.runs.evaluations import Point, answered_questions, due, expected_points
from pods.runs.files import read_lines
from pods.runs.freeze import freeze
from pods.runs.history import evaluation_points
from pods.runs.store import RunStore
from pods.training import trainer

TICK = 1 / 64  # exact in binary, so that sums of it are
POINTS = (0, 2, 3, 4, 6)
CHUNK = 8
RECORDS = 32  # 2 repeats of 16 questions


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run whose points come from steps and from seconds."""
    folder = tmp_path_factory.mktemp("evaluate")
    config = composed(
        *SHORT, f"runs_dir={folder / 'runs'}", "nm.n=8", "nm.m=4", f"engine.max_rows={CHUNK}",
        "budget.train_seconds=null", "budget.max_steps=6", "checkpoint.every_steps=2",
        "checkpoint.every_train_seconds=0.29",
    )  # fmt: skip
    store, ticks = freeze(config), count()
    assert job.execute(store.folder, now=lambda: next(ticks) * TICK) == job.DONE
    return store


@pytest.fixture
def copied(run, tmp_path):
    """A copy of the run, to be damaged."""
    copy = tmp_path / run.folder.relative_to(run.folder.parents[4])
    return RunStore(Path(shutil.copytree(run.folder, copy)))


def content(store):
    """Return the bytes of all files in a run folder except the lock and `reevaluations`."""
    files = [p for p in store.folder.rglob("*") if p.is_file() and p.name != ".lock"]
    names = {str(path.relative_to(store.folder)): path for path in files}
    return {n: p.read_bytes() for n, p in names.items() if not n.startswith("reevaluations")}


def evaluated(store, *steps):
    """Evaluate steps in this process; return exit code and report."""
    attempt = store.folder / "reevaluations" / "000"
    shutil.rmtree(attempt, ignore_errors=True)
    attempt.mkdir(parents=True)
    points = [Point(step) for step in steps]
    return job.execute(store.folder, attempt, evaluate=points), read_lines(attempt / REPORT)


# evaluation points


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
    points = expected_points(run.config(), lines)
    assert points == evaluation_points(run) == {step: step * 7 * TICK for step in POINTS}
    until = {step: seconds for step, seconds in points.items() if step < 5}
    assert expected_points(run.config(), lines[:5]) == {**until, 5: 35 * TICK}
    assert expected_points(run.config(), []) == {0: 0.0}
    void = [{**line, "nonfinite": "the loss is NaN"} for line in lines]
    assert expected_points(run.config(), void) == points


# records


def line(text, number, change):
    """Text with one line changed; `change` takes and returns bytes."""
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:number], change(lines[number]), *lines[number + 1 :]])


DAMAGES = {
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
    "one of another step": lambda text, other: line(
        text, 20, lambda row: other.splitlines(keepends=True)[20]
    ),
    "two in the other's place": lambda text, other: b"".join(
        text.splitlines(keepends=True)[i] for i in (1, 0, *range(2, RECORDS))
    ),
    "a field missing": lambda text, other: line(
        text, 17, lambda row: row.replace(b'"finished": true, ', b"")
    ),
    "a field by another name": lambda text, other: text.replace(b"correct", b"cosrect", 1),
    "a line that is no record": lambda text, other: line(text, 30, lambda row: b"17\n"),
    "a truth value that is a word": lambda text, other: line(
        text,
        3,
        lambda row: row.replace(b'"format": false', b'"format": "no"', 1).replace(
            b'"format": true', b'"format": "yes"', 1
        ),
    ),
    "a truth value that is a number": lambda text, other: line(
        text,
        3,
        lambda row: row.replace(b'"finished": false', b'"finished": 0', 1).replace(
            b'"finished": true', b'"finished": 1', 1
        ),
    ),
    "a length below 0": lambda text, other: text.replace(b'"length": ', b'"length": -', 1),
    "a length that is a fraction": lambda text, other: text.replace(b', "fin', b'.0, "fin', 1),
    "line ends of another system": lambda text, other: text.replace(b"\n", b"\r\n"),
    "zeros": lambda text, other: bytes(len(text)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_incomplete_or_damaged_evaluation_is_detected(run, damage):
    text, other = (run.evaluation_path(step).read_bytes() for step in (2, 3))
    names = tuple(f"test-{q:04d}" for q in range(16))
    assert answered_questions(run.config(), 2, text) == names
    damaged = DAMAGES[damage](text, other)
    assert damaged != text
    assert answered_questions(run.config(), 2, damaged) is None


def test_a_question_that_replaces_another_in_every_repeat_is_detected(run):
    text = run.evaluation_path(2).read_bytes()
    assert answered_questions(run.config(), 2, text.replace(b"test-0001", b"test-0000")) is None


# pods evaluate


@pytest.mark.parametrize("first", range(0, len(DAMAGES), len(POINTS)))
def test_damaged_evaluations_are_restored_and_nothing_else_changes(run, copied, first):
    """Try all damages, one per evaluation of the run."""
    damages = dict(zip(POINTS, list(DAMAGES.values())[first:], strict=False))
    for step, damage in damages.items():
        other = run.evaluation_path(4 if step == 3 else 3).read_bytes()
        copied.evaluation_path(step).write_bytes(damage(run.evaluation_path(step).read_bytes(),
                                                        other))  # fmt: skip
    code, rows = evaluated(copied, *damages)
    assert code == job.DONE
    assert content(copied) == content(run)
    for step, row in zip(damages, rows, strict=True):
        records = read_lines(copied.evaluation_path(step))
        assert (row["step"], row["accuracy"]) == (
            step, sum(record["correct"] for record in records) / RECORDS
        )  # fmt: skip
        assert row["made"] % CHUNK == 0 and row["made"] <= RECORDS
    assert environments(copied) == environments(run) and wall_seconds(copied) == wall_seconds(run)
    assert (copied.folder / "reevaluations" / "000" / "environment.json").exists()


def test_only_missing_evaluations_of_a_study_are_made(run, copied, capsys):
    """Real processes, one per run; a second run lacks an evaluation that cannot be made again."""
    other = RunStore(copied.folder.with_name("seed1-0123456789"))
    shutil.copytree(copied.folder, other.folder)  # its checkpoints are of the first one
    copied.evaluation_path(0).unlink()
    copied.evaluation_path(3).write_bytes(copied.evaluation_path(4).read_bytes())
    other.evaluation_path(6).unlink()
    before = content(other)
    assert evaluate_missing([other.folder, copied.folder], jobs=1) == job.FAILED
    assert content(copied) == content(run) and content(other) == before
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "3 evaluations to make in 2 runs, 1 at a time"
    assert lines[0] == (
        f"[1/2] max_variance-n8-m4/{other.folder.name}  step      6  "
        f"cannot be evaluated: it is step 6 of run {run.folder.name}"
    )
    name, records = f"max_variance-n8-m4/{run.folder.name}", ["(32", "records", "added)"]
    made = [row.removeprefix("[2/2] ").split() for row in lines[1:]]
    assert [(m[0], m[2], m[-3:]) for m in made] == [(name, "0", records), (name, "3", records)]
    rows = read_lines(copied.evaluation_path(3))
    assert f"accuracy {sum(row['correct'] for row in rows) / RECORDS:.3f} " in lines[2]


def test_no_library_is_loaded_if_nothing_is_missing(copied):
    before = content(copied)
    code = (
        "import sys; from pathlib import Path; from pods.cli.evaluate import evaluate_missing; "
        f"code = evaluate_missing([Path({str(copied.folder)!r})]); "
        "assert not {'torch', 'transformers', 'pandas'} & set(sys.modules); sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "1 runs, 5 evaluations: nothing is missing\n"
    assert content(copied) == before and not (copied.folder / "reevaluations").exists()


def note_jobs(monkeypatch):
    """Let nothing be evaluated; return the list to which the jobs are added instead."""
    todo = []

    def note(jobs, at_once):
        todo.extend(jobs)
        return Outcome(stopped=False, exit_codes=[job.DONE])

    monkeypatch.setattr(evaluate, "_evaluate", note)
    return todo


def test_a_missing_question_is_detected_if_other_evaluations_have_it(copied, monkeypatch, capsys):
    """With one repeat, a file that ends early looks complete by itself."""
    config = composed("evaluation.repeats=1")
    rows = [row for row in copied.evaluation_path(2).read_bytes().splitlines(keepends=True)[:16]]
    assert len(answered_questions(config, 2, b"".join(rows[:15]))) == 15
    values = copied.config_values()
    values["evaluation"]["repeats"] = 1
    copied.write_config(values)
    for step in POINTS:
        path = copied.evaluation_path(step)
        rows = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(rows[: 15 if step == 4 else 16]))
    assert evaluate_missing([copied.folder]) == job.FAILED  # because the run's config has changed
    out = capsys.readouterr().out
    assert "1 evaluations to make in 1 runs" in out
    assert "changed since the run began: evaluation.repeats: 2 -> 1" in out
    assert len(read_lines(copied.evaluation_path(4))) == 15
    for step in (0, 2, 3):  # most are short now, and still count as incomplete
        path = copied.evaluation_path(step)
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:15]))
    todo = note_jobs(monkeypatch)
    assert evaluate_missing([copied.folder]) == job.DONE
    assert [each.evaluate for each in todo] == [tuple(map(Point, (0, 2, 3, 4)))]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (shutil.rmtree, "its checkpoint is missing"),
        (lambda folder: (folder / "policy" / "model.safetensors").write_bytes(b"x"),
         "policy/model.safetensors is damaged"),
        (lambda folder: (folder / "MANIFEST.json").unlink(), "cannot be read"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_cannot_be_evaluated_is_named_and_left(run, copied, damage, words):
    for step in (2, 4):
        copied.evaluation_path(step).write_bytes(copied.evaluation_path(step).read_bytes()[:-200])
    damage(copied.checkpoint(2))
    before = content(copied)
    code, [wrong, made] = evaluated(copied, 2, 4)
    assert code == job.FAILED
    assert wrong["step"] == 2 and words in wrong["error"]
    assert made["step"] == 4 and made["made"] == CHUNK
    name = "evaluations/step-000004.jsonl"
    assert content(copied) == {**before, name: content(run)[name]}


def test_a_running_run_is_left_alone(copied, capsys):
    copied.evaluation_path(2).unlink()
    before = content(copied)
    with copied.lock():
        assert evaluate_missing([copied.folder]) == job.AGAIN
        assert evaluated(copied, 2) == (job.AGAIN, [{"error": "held by another process; "
                                                              "left alone"}])  # fmt: skip
    assert "held by another process; left alone" in capsys.readouterr().out
    assert content(copied) == before
    copied.set_status(state="running", host="another one")
    before = content(copied)
    assert evaluate_missing([copied.folder]) == evaluated(copied, 2)[0] == job.AGAIN
    assert "held by another process; left alone" in capsys.readouterr().out
    assert content(copied) == before


def test_evaluations_that_resuming_makes_again_are_not_made(copied, capsys):
    """The newest checkpoint of the stopped run is that of step 4, so step 6 is made again."""
    copied.set_status(state="preempted")
    shutil.rmtree(copied.checkpoint(6))
    copied.evaluation_path(6).unlink()
    assert evaluate_missing([copied.folder]) == job.DONE
    assert capsys.readouterr().out == "1 runs, 4 evaluations: nothing is missing\n"
    shutil.rmtree(copied.checkpoints)
    assert evaluate_missing([copied.folder]) == job.DONE
    assert capsys.readouterr().out == "1 runs, 0 evaluations: nothing is missing\n"


def test_a_stopped_evaluation_keeps_whole_chunks_and_the_same_command_resumes(
    run, copied, monkeypatch
):
    before = content(copied)
    path, plain, calls = copied.evaluation_path(2), trainer.append, count(1)
    path.unlink()

    def stopping(*arguments):
        plain(*arguments)
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(trainer, "append", stopping)
    code, [row] = evaluated(copied, 2, 4)
    assert code == job.AGAIN and "stopped on request" in row["error"]
    name = str(path.relative_to(copied.folder))
    kept = b"".join(before[name].splitlines(keepends=True)[: 2 * CHUNK])
    assert content(copied)[f"{name}.tmp"] == kept and not path.exists()
    code, [row] = evaluated(copied, 2)
    assert code == job.DONE and row["made"] == RECORDS - 2 * CHUNK
    assert content(copied) == before == content(run)


def test_a_process_that_is_killed_loses_no_record(run, copied, monkeypatch):
    path, calls = copied.evaluation_path(2), count(1)
    path.write_bytes(line(path.read_bytes(), 4, lambda row: b"damaged" + row))
    before, plain = path.read_bytes(), trainer.append

    def deadly(*arguments):
        plain(*arguments)
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(trainer, "append", deadly)
    child = os.fork()
    if child == 0:
        evaluated(copied, 2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_bytes() == before
    monkeypatch.undo()
    assert evaluated(copied, 2)[1][0]["made"] == CHUNK
    assert content(copied) == content(run)


def test_an_engine_that_fails_loses_no_record(run, copied, monkeypatch):
    path = copied.evaluation_path(2)
    path.write_bytes(line(path.read_bytes(), 4, lambda row: b"damaged" + row))
    before = path.read_bytes()

    def failing(*arguments):
        raise EngineFailed("it broke down")
        yield

    monkeypatch.setattr(trainer, "evaluate", failing)
    assert evaluated(copied, 2) == (job.AGAIN, [{"error": "EngineFailed: it broke down"}])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EACCES, job.FAILED), (errno.ENOSPC, job.AGAIN)]
)
def test_only_an_error_of_the_disk_is_worth_another_try(copied, monkeypatch, capsys, number, code):
    copied.evaluation_path(2).unlink()

    def refused(*_):
        raise OSError(number, os.strerror(number))

    def refuse_start(*_, **__):
        refused()

    with monkeypatch.context() as patched:
        patched.setattr(local_backend, "start_job", refuse_start)
        assert evaluate_missing([copied.folder], jobs=500) == code
    first, last = capsys.readouterr().out.splitlines()
    assert first == "1 evaluations to make in 1 runs, 1 at a time"
    assert last.startswith("[1/1] not started ") and last.endswith(os.strerror(number))
    monkeypatch.setattr(RunStore, "lock", refused)
    exit_code, [row] = evaluated(copied, 2)
    assert exit_code == code and os.strerror(number) in row["error"] and "\n" not in row["error"]


def test_the_signal_that_killed_a_process_is_printed(copied, monkeypatch, capsys):
    def start_dying(job, devices, server):
        process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
        attempt, heartbeat = new_attempt(job.store, "reevaluations"), Heartbeat(job.store, 1.0)
        return JobProcess(job, process, devices, attempt, 0.0, heartbeat)

    copied.evaluation_path(2).unlink()
    monkeypatch.setattr(local_backend, "start_job", start_dying)
    assert evaluate_missing([copied.folder]) == job.FAILED
    assert f"{copied.folder.name}  killed by SIGKILL (" in capsys.readouterr().out


def test_an_evaluation_on_another_machine_marks_the_run(copied, capsys):
    path = copied.folder / "attempts" / "001" / "environment.json"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps({**plain, "cpu": "Another"}))
    assert (
        evaluated(copied, 2)[0] == job.DONE and recorded_changes(copied) == []
    )  # it was all there
    copied.evaluation_path(2).unlink()
    code, [note, row] = evaluated(copied, 2)
    assert (code, row["made"]) == (job.DONE, RECORDS)
    assert note["note"].startswith(f"trained on Another, evaluated on {plain['cpu']}: ")
    assert recorded_changes(copied) == [f"evaluation of step 2 made again on {plain['cpu']}"]
    path.write_text(json.dumps({**plain, "packages": {"torch": "1.0.0"}}))
    code, [row] = evaluated(copied, 2)
    assert code == job.FAILED and "changed since the run began: torch: 1.0.0 -> " in row["error"]
    assert row["error"].endswith("allow_changed=true on the run's command allows it and marks "
                                 "the run")  # fmt: skip


def test_without_its_log_or_status_a_run_has_the_points_of_its_checkpoints(
    copied, monkeypatch, capsys
):
    todo = note_jobs(monkeypatch)
    logged = copied.metrics_path.read_bytes()
    kept = copied.evaluation_path(4).read_bytes()
    copied.evaluation_path(4).unlink()
    for log, last in ((b"", 0), (b"".join(logged.splitlines(keepends=True)[:5]), 5)):
        copied.metrics_path.write_bytes(log)
        assert evaluate_missing([copied.folder]) == job.FAILED
        assert f"ends at step {last}, but the run at step 6\n" in capsys.readouterr().out
    copied.metrics_path.unlink()
    assert evaluate_missing([copied.folder]) == job.FAILED
    copied.metrics_path.write_bytes(logged)
    (copied.folder / "status.json").unlink()
    assert evaluate_missing([copied.folder]) == job.DONE
    assert [each.evaluate for each in todo] == [(Point(4),)] * 4
    shutil.rmtree(copied.checkpoints)
    capsys.readouterr()
    assert evaluate_missing([copied.folder]) == job.DONE
    assert capsys.readouterr().out == "0 runs, 0 evaluations: nothing is missing\n"
    copied.set_status(state="done", step=7)
    copied.evaluation_path(4).write_bytes(kept)
    assert evaluate_missing([copied.folder]) == job.FAILED
    assert "ends at step 6, but the run at step 7\n" in capsys.readouterr().out


def test_a_damaged_log_is_named_and_the_other_runs_are_still_read(run, copied, capsys):
    other = RunStore(copied.folder.with_name("seed1-0123456789"))
    shutil.copytree(copied.folder, other.folder)
    with other.metrics_path.open("r+b") as file:
        file.write(b"x")
    assert evaluate_missing([other.folder, copied.folder]) == job.FAILED
    wrong, fine = capsys.readouterr().out.splitlines()
    assert f"{other.folder.name}  cannot be read: metrics.jsonl is damaged: " in wrong
    assert fine == "1 runs that could be read, 5 evaluations: nothing is missing"


def test_the_verb_takes_a_study_and_says_which_there_are(copied, monkeypatch, capsys):
    monkeypatch.chdir(copied.folder.parents[4])
    assert main(["evaluate"]) == 0
    assert capsys.readouterr().out == "1 runs, 5 evaluations: nothing is missing\n"
    for words, message in (
        (
            ["nope"],
            f"study=nope: no runs in runs/nope of {copied.folder.parents[4]}; "
            "studies there: default",
        ),
        (["--jobs", "0"], "--jobs=0: must be at least 1"),
    ):
        assert main(["evaluate", *words]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
