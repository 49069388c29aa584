"""Build a run's rows for W&B and TensorBoard, settings and summary, all from its own files."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from pods.config.schema import Config
from pods.runs.attempts import environments, peak_bytes
from pods.runs.evaluations import answered_questions, due_points, expected_points
from pods.runs.files import read_lines, read_or_empty
from pods.runs.history import clocks, evaluated_steps, further_sets
from pods.runs.store import RunStore
from pods.runs.tracking.examples import Example, examples
from pods.runs.tracking.names import SUMMARIES, SUMMARISE, metric_name, run_name, series_name

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a W&B history."""

    position: int
    """W&B's step, which may only grow: 2k for the log's step k, 2k + 1 for its evaluation."""
    values: Mapping[str, float]
    examples: Sequence[Example] = ()
    """Rollouts to read, with an evaluation."""


@dataclass(frozen=True)
class History:
    """The rows that a run's files hold, and what is missing between them."""

    rows: Sequence[Row]
    """The rows in order of positions."""
    gaps: Mapping[int, str]
    """A description of what is damaged or missing, by position and in their order."""

    def after(self, first: int) -> tuple[list[Row], str | None]:
        """Return the rows from a position up to the first gap, and the description of that gap.

        W&B takes no row for an earlier position later, so nothing is sent past a gap: it may be
        filled by then.
        """
        end = min((position for position in self.gaps if position >= first), default=None)
        rows = [row for row in self.rows if row.position >= first]
        if end is None:
            return rows, None
        return [row for row in rows if row.position < end], self.gaps[end]


def read_history(config: Config, store: RunStore, first: int = 0, settled: bool = False) -> History:
    """Read the rows of a run from its files.

    Args:
        first: the position to begin with; the files of earlier ones are not read.
        settled: leave out the steps after the newest checkpoint, which a resumed run repeats.
    """
    checkpoints = list(clocks(store).values())
    newest = max((clock["step"] for clock in checkpoints), default=-1)
    lines, last_step, damage = _read_log(store, first // 2)
    evaluations = _read_evaluations(config, store, first, "")
    further = {
        name: _read_evaluations(config, store, first, name)
        for name in dict.fromkeys([*config.evaluation.sets, *further_sets(store)])
    }
    points = {c["step"]: c["train_seconds"] for c in checkpoints if c["evaluation"]}
    seconds = {0: 0.0, **{line["step"]: line["train_seconds"] for line in lines}, **points}
    rows = [training_row(line) for line in lines]
    rows += [
        evaluation_row(
            step,
            seconds[step],
            records,
            {name: of_set[step] for name, of_set in further.items() if step in of_set},
            examples(store, step),
        )
        for step, records in evaluations.items()
        if step in seconds
    ]
    rows = [row for row in rows if not settled or row.values["step"] <= newest]
    rows.sort(key=lambda row: row.position)
    done = not settled and store.status()["state"] == "done"  # else the last one may yet come
    end = math.inf if done else max((row.position for row in rows), default=-1)
    due = expected_points(config, lines) if done else due_points(config, lines)
    complete = set(evaluations).intersection(*(further[name] for name in config.evaluation.sets))
    gaps = {
        2 * step + 1: f"the evaluation of step {step} is not complete"
        for step in sorted({*points, *due, *evaluated_steps(store)} - complete)
        if first <= 2 * step + 1 < end
    }
    if newest > last_step or (damage and not settled):
        shorter = f"{store.metrics_path.name} ends at step {last_step}, before the checkpoints"
        gaps[2 * last_step + 2] = damage or shorter
    return History(rows, gaps)


def training_row(line: Record) -> Row:
    """Return the numbers of a line of metrics.jsonl, under the names that W&B shows."""
    numbers = {
        metric_name(key): value for key, value in line.items() if isinstance(value, int | float)
    }
    return Row(2 * line["step"], numbers)


def evaluation_row(
    step: int,
    train_seconds: float,
    records: Sequence[Record],
    further: Mapping[str, Sequence[Record]],
    rollouts: Sequence[Example] = (),
) -> Row:
    """Return the means over the records of one evaluation, and the accuracies on further test sets.

    Args:
        step: of the checkpoint.
        train_seconds: the training clock after that step.
        records: one per repeat and question.
        further: the same for further test sets, by name.
        rollouts: some to read beside it.
    """
    means = {
        "eval/accuracy": fmean(record["correct"] for record in records),
        "eval/format": fmean(record["format"] for record in records),
        "eval/length": fmean(record["length"] for record in records),
        "eval/timeouts": fmean(record["verdict"] == "timeout" for record in records),
    }
    if records[0]["lenient"] is not None:  # the test set has the PODS authors' grader
        means["eval/lenient"] = fmean(record["lenient"] for record in records)
    for name, of_set in further.items():
        means[f"eval/{name}/accuracy"] = fmean(record["correct"] for record in of_set)
    return Row(2 * step + 1, {"step": step, "train_seconds": train_seconds, **means}, rollouts)


def _read_log(store: RunStore, first: int) -> tuple[list[dict[str, Any]], int, str | None]:
    """Read metrics.jsonl from a step up to the first damaged line.

    Returns:
        The lines, the step of the last one, and a description of the damaged one.
    """
    content = read_or_empty(store.metrics_path).split(b"\n")[:-1]
    lines: list[dict[str, Any]] = []
    for step in range(max(first, 1), len(content) + 1):
        try:
            line = json.loads(content[step - 1])
        except (ValueError, RecursionError):
            line = None
        if (
            not isinstance(line, dict)
            or line.get("step") != step
            or type(line.get("train_seconds")) not in (int, float)
        ):
            return lines, step - 1, f"{store.metrics_path.name} is damaged in line {step}"
        lines.append(line)
    return lines, len(content), None


def _read_evaluations(
    config: Config, store: RunStore, first: int, test_set: str
) -> dict[int, list[dict[str, Any]]]:
    """Return a test set's records of each complete evaluation; all have the same questions."""
    steps = sorted(step for step in evaluated_steps(store, test_set) if 2 * step + 1 >= first)
    paths = {step: store.evaluation_path(step, test_set) for step in steps}
    questions = {
        s: answered_questions(config, s, read_or_empty(p), test_set) for s, p in paths.items()
    }
    most = max(filter(None, questions.values()), key=len, default=None)
    return {s: read_lines(path) for s, path in paths.items() if most and questions[s] == most}


def settings(config: Config, store: RunStore) -> dict[str, Any]:
    """Return the arguments that describe a run to `wandb.init`, the same whoever calls it."""
    machine = [None, *environments(store)][-1]
    return {
        "project": config.tracking.project,
        "entity": config.tracking.entity,
        "id": f"{config.study}-{store.folder.name}",
        "name": run_name(config),
        "group": config.study,
        "job_type": "train",
        "tags": [
            tag[:64]  # W&B's limit
            for tag in (config.arm_name(), config.task.label(), config.model.name)
        ],
        "config": {
            **asdict(config),
            "series": series_name(config),
            "environment": machine,
        },
    }


def summary(store: RunStore, rows: Sequence[Row], state: str) -> dict[str, Any]:
    """Return what W&B shows beside the last row's values: how the run ended, and what it took."""
    summaries = {}
    for name, kinds in SUMMARIES.items():
        if values := [row.values[name] for row in rows if name in row.values]:
            summaries[name] = {kind: SUMMARISE[kind](values) for kind in kinds}
    peaks = {f"peak_bytes/{phase}": peak for phase, peak in peak_bytes(store).items()}
    skipped = store.status().get("void_steps", 0)
    return {"state": state, "void_steps": skipped, **summaries, **peaks}
