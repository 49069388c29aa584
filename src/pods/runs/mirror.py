"""What W&B is told of a run: settings, rows and summary, all from the run's own files."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

from pods.config import Config
from pods.runs.attempts import environments, peak_bytes
from pods.runs.files import content_of, read_lines, read_until_damage
from pods.runs.history import clocks, evaluated_steps, evaluation_points
from pods.runs.points import answered, due_points, expected_points
from pods.runs.status import state_of
from pods.runs.store import RunStore

Record = Mapping[str, Any]
MEANS: Mapping[str, Callable[[Record], float]] = {
    "eval/accuracy": itemgetter("correct"),
    "eval/format": itemgetter("format"),
    "eval/length": itemgetter("length"),
    "eval/timeouts": lambda record: record["verdict"] == "timeout",
}
"""What an evaluation always has a mean of, by name."""
GRADED: Mapping[str, Callable[[Record], float]] = {"eval/lenient": itemgetter("lenient")}
"""And where the task has the PODS authors' grader."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a W&B history."""

    place: int
    """W&B's step: 2k for the line of step k, 2k + 1 for its evaluation; it only ever grows."""
    values: Mapping[str, float]


@dataclass(frozen=True)
class History:
    """The rows of a run, and what its files lack between them."""

    rows: Sequence[Row]
    gaps: Mapping[int, str]
    """By place, in order: what is damaged or missing there, in words."""

    def after(self, first: float) -> tuple[list[Row], str | None]:
        """The rows from a place on, up to the first gap there; and that gap.

        What is sent past a gap closes it for good: W&B takes no row for an earlier place later.
        """
        gap = min((place for place in self.gaps if place >= first), default=None)
        end = math.inf if gap is None else gap
        rows = [row for row in self.rows if first <= row.place < end]
        return rows, None if gap is None else self.gaps[gap]


def training_row(line: Mapping[str, Any]) -> Row:
    """The numbers of a line of metrics.jsonl."""
    numbers = {key: value for key, value in line.items() if isinstance(value, int | float)}
    return Row(2 * line["step"], numbers)


def evaluation_row(step: int, train_seconds: float, records: Sequence[Record]) -> Row:
    """The means of one whole evaluation.

    Args:
        step: of the checkpoint.
        train_seconds: the training clock then.
        records: one a (repeat, question).
    """
    told = MEANS if records[0]["lenient"] is None else {**MEANS, **GRADED}
    means = {name: sum(map(value, records)) / len(records) for name, value in told.items()}
    return Row(2 * step + 1, {"step": step, "train_seconds": train_seconds, **means})


def settings(config: Config, store: RunStore) -> dict[str, Any]:
    """How `wandb.init` is to know the run: the same words in every attempt and in `pods sync`."""
    label = config.arm or config.sampler.rule
    series = f"{label} {config.nm.n}→{config.nm.m}"
    machine = [None, *environments(store)][-1]
    return {
        "project": config.tracking.project,
        "entity": config.tracking.entity,
        "id": f"{config.study}-{store.folder.name}",
        "name": "/".join(store.folder.parts[-2:]),
        "group": config.study,
        "job_type": "train",
        "tags": [tag[:64] for tag in (label, config.task.name, config.model.name)],  # W&B's limit
        "config": {**asdict(config), "series": series, "environment": machine},
    }


def rows(config: Config, store: RunStore, settled: bool = False) -> list[Row]:
    """The rows of `history`, whatever is missing between them."""
    return list(history(config, store, settled).rows)


def history(config: Config, store: RunStore, settled: bool = False) -> History:
    """The run's history in order of places, and what is missing in it.

    Args:
        config: of the run.
        store: of the run.
        settled: only what no resume takes back, up to the newest checkpoint.
    """
    lines, damage = _log(store)
    points, whole = evaluation_points(store), _evaluations(config, store)
    times = {0: 0.0, **{line["step"]: line["train_seconds"] for line in lines}, **points}
    found = [*map(training_row, lines)]
    found += [evaluation_row(s, times[s], rows) for s, rows in whole.items() if s in times]
    newest = max((clock["step"] for clock in clocks(store).values()), default=-1)
    if settled:
        found = [row for row in found if row.values["step"] <= newest]
    found.sort(key=lambda row: row.place)
    done = not settled and store.status()["state"] == "done"  # else the last one may yet come
    last = math.inf if done else max((row.place for row in found), default=-1)
    expected = expected_points(config, lines) if done else due_points(config, lines)
    gaps = {2 * step + 1: f"the evaluation of step {step} is not whole"
            for step in {*points, *expected, *evaluated_steps(store)} - set(whole)
            if 2 * step + 1 < last}  # fmt: skip
    if newest > len(lines) or (damage and not settled):
        gaps[2 * len(lines) + 2] = damage or f"{store.metrics_path.name} ends with step " \
                                             f"{len(lines)}, before its checkpoints"  # fmt: skip
    return History(found, dict(sorted(gaps.items())))


def _log(store: RunStore) -> tuple[list[Mapping[str, Any]], str | None]:
    """The lines of metrics.jsonl up to the first that is damaged, and that one, in words."""
    path = store.metrics_path
    complete = content_of(path).count(b"\n")
    good: list[Mapping[str, Any]] = []
    for line in read_until_damage(path):
        if not _is_step(line, len(good) + 1):
            break
        good.append(line)
    damaged = len(good) < complete
    return good, f"{path.name} is damaged in line {len(good) + 1}" if damaged else None


def _is_step(line: object, number: int) -> bool:
    """Say whether a line's content is that of this step."""
    if not isinstance(line, dict) or line.get("step") != number:
        return False
    return type(line.get("train_seconds")) in (int, float)


def _evaluations(config: Config, store: RunStore) -> dict[int, list[dict[str, Any]]]:
    """Records of each evaluation that is whole, and asks as many questions as the others do."""
    paths = {step: store.evaluation_path(step) for step in sorted(evaluated_steps(store))}
    found = {step: answered(config, step, content_of(path)) for step, path in paths.items()}
    usual = max((names for names in found.values() if names), key=len, default=None)
    return {step: read_lines(paths[step]) for step, names in found.items()
            if names and names == usual}  # fmt: skip


def summary(store: RunStore, rows: Sequence[Row]) -> dict[str, Any]:
    """What stands beside the last row's values: how the run ended, and what it took."""
    found = [row.values["eval/accuracy"] for row in rows if "eval/accuracy" in row.values]
    accuracy = {"best_accuracy": max(found), "final_accuracy": found[-1]} if found else {}
    peaks = {f"peak_bytes/{phase}": peak for phase, peak in peak_bytes(store).items()}
    void = store.status().get("void_steps", 0)
    return {"state": state_of(store), "void_steps": void, **accuracy, **peaks}
