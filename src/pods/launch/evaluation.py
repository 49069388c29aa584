"""Evaluate checkpoints of a run that is not running: the `--evaluate` mode of `pods.launch.job`.

The records are those that the run itself would have written: the same bytes on the same machine,
apart from rounding if the run used several processes, because an evaluation uses one. The console,
the environment and points.jsonl (one line per checkpoint) go to a folder in `reevaluations/`, not
`attempts/`: attempts say on what machine the training clock was measured. If a run is evaluated on
a machine on which it never ran, its changes.json says so, because answers may differ by rounding.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.config.schema import Config
from pods.runs.attempts import record_changes
from pods.runs.evaluations import Point, answered_questions, is_record
from pods.runs.files import (
    append,
    fsync,
    json_line,
    read_lines,
    read_or_empty,
    read_until_damage,
    replace,
)
from pods.runs.history import checkpoint_fault
from pods.runs.store import RunStore
from pods.system.errors import AGAIN

if TYPE_CHECKING:
    from pods.training.trainer import Trainer

REPORT = "points.jsonl"


def report(attempt: Path, **row: object) -> None:
    """Print a row and add it to points.jsonl; on a full disk only print it."""
    print(*(f"{name}={value}" for name, value in row.items()), flush=True)
    with suppress(OSError):
        append(attempt / REPORT, [row])


def record_end(attempt: Path, error: str | None, exit_code: int) -> None:
    """Report why an evaluation ended early; the run's status.json stays as it is."""
    if error is None and exit_code == AGAIN:
        error = "stopped on request; finished records are kept"
    if error is not None:
        report(attempt, error=error)


def note_new_machine(
    config: Config,
    attempts: Sequence[Mapping[str, Any]],
    environment: Mapping[str, Any],
    attempt: Path,
) -> str | None:
    """Return this machine's name, and report it, if the run never ran on a machine like this.

    Args:
        config: of the run.
        attempts: environments of the run's attempts.
        environment: environment of this process.
        attempt: folder for the report.
    """
    kind = "gpus" if config.hardware.device == "cuda" else "cpu"
    machines = [earlier[kind] for earlier in attempts if kind in earlier]
    if not machines or environment[kind] in machines:
        return None
    if kind == "gpus" and any(set(environment[kind]) == set(names) for names in machines):
        return None  # the same model of GPU, but another number of them
    name = environment[kind] if isinstance(environment[kind], str) else ", ".join(environment[kind])
    note = f"trained on {machines[-1]}, evaluated on {name}: answers may differ by rounding"
    report(attempt, note=f"{note}, so the run is marked")
    return name


def evaluate_checkpoints(
    trainer: "Trainer", points: Sequence[Point], attempt: Path, machine: str | None
) -> bool:
    """Complete some evaluations, and return whether all of them could be.

    Args:
        trainer: of the run.
        points: the evaluations; a missing or damaged checkpoint is reported and left as it is.
        attempt: folder for the report.
        machine: name of this machine if the run never ran on one like it.
    """
    complete = True
    for point in points:
        trainer.stop.check()
        folder = trainer.store.checkpoint(point.step)
        problem = (
            checkpoint_fault(trainer.store, folder)
            if folder.is_dir()
            else "its checkpoint is missing"
        )
        if problem is None:
            _evaluate(trainer, point, attempt, machine)
        else:
            report(attempt, **_named(point), error=f"cannot be evaluated: {problem}")
            complete = False
    return complete


def _named(point: Point) -> dict[str, Any]:
    """Return the fields of a report's row that name an evaluation; the main set has no name."""
    return {"step": point.step, **({"test_set": point.test_set} if point.test_set else {})}


def _evaluate(trainer: "Trainer", point: Point, attempt: Path, machine: str | None) -> None:
    """Complete an evaluation in a temporary file, so that an interruption loses no record."""
    step, name = point
    test_set = trainer.test_sets()[name]
    started, store, config = time.perf_counter(), trainer.store, trainer.config
    trainer.workers.load_policy(store.checkpoint(step))
    trainer.loop.engine.sync()
    path = store.evaluation_path(step, name)
    temporary = path.with_name(f"{path.name}.tmp")  # only the holder of the run's lock writes it
    path.parent.mkdir(parents=True, exist_ok=True)
    records, total = _records(path, name), len(test_set.questions) * config.evaluation.repeats
    incomplete = (
        len(records) != total or answered_questions(config, step, read_or_empty(path), name) is None
    )
    if machine is not None and incomplete and not name:
        record_changes(store, [f"evaluation of step {step} made again on {machine}"])
    longer = max((records, _records(temporary, name)), key=len)
    replace(temporary, "".join(map(json_line, longer)))
    added = trainer.complete_evaluation(step, temporary, name)
    temporary.replace(path)
    fsync(path.parent)
    rows = read_lines(path)
    accuracy = sum(row["correct"] for row in rows) / len(rows)
    seconds = round(time.perf_counter() - started, 3)
    report(attempt, **_named(point), accuracy=accuracy, made=added, seconds=seconds)


def _records(path: Path, test_set: str) -> list[dict[str, Any]]:
    """Return the records of a file up to its first invalid line."""
    return list(takewhile(lambda row: is_record(row, test_set), read_until_damage(path)))


def summary(store: RunStore, attempt: Path, cause_of_death: str | None) -> str:
    """Return one line for each row of an evaluation's report.

    Args:
        store: of the run.
        attempt: folder with the report.
        cause_of_death: how the process ended, if it ended without an exit code of its own.
    """
    rows = read_lines(attempt / REPORT)
    lines = [_line(row) for row in rows]
    if cause_of_death is not None or not rows:
        lines.append(f"{cause_of_death or 'ended early'} ({attempt / 'console.log'})")
    return "\n".join(f"{store.folder.parent.name}/{store.folder.name}  {line}" for line in lines)


def _line(row: Mapping[str, Any]) -> str:
    step = f"step {row['step']:>6}  " if "step" in row else ""
    if "accuracy" not in row:
        return f"{step}{row.get('error') or row['note']}"
    added = f"{row['made']} records added" if row["made"] else "no record was missing"
    on = f" on {row['test_set']}" if "test_set" in row else ""
    return f"{step}accuracy{on} {row['accuracy']:.3f}  {row['seconds']:.1f} s  ({added})"
