"""What W&B is told of a run: settings, rows and summary, all from the run's own files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pods.config import Config
from pods.runs.attempts import environments, peak_bytes
from pods.runs.files import read_until_damage
from pods.runs.history import clocks, evaluated_steps, evaluation_points
from pods.runs.status import state_of
from pods.runs.store import RunStore

MEANS = {"eval/accuracy": "correct", "eval/format": "format", "eval/length": "length"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a W&B history."""

    place: int
    """W&B's step: 2k for the line of step k, 2k + 1 for its evaluation; it only ever grows."""
    values: Mapping[str, float]


def training_row(line: Mapping[str, Any]) -> Row:
    """The numbers of a line of metrics.jsonl."""
    numbers = {key: value for key, value in line.items() if isinstance(value, int | float)}
    return Row(2 * line["step"], numbers)


def evaluation_row(step: int, train_seconds: float, records: Sequence[Mapping[str, Any]]) -> Row:
    """The means of one whole evaluation.

    Args:
        step: of the checkpoint.
        train_seconds: the training clock then.
        records: one a (repeat, question).
    """
    means = {name: sum(row[key] for row in records) / len(records) for name, key in MEANS.items()}
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
    """The run's history in order of places, up to the first line that is damaged.

    Args:
        config: of the run.
        store: of the run.
        settled: only what no resume takes back, up to the newest checkpoint.
    """
    lines = read_until_damage(store.metrics_path)
    found = [*map(training_row, lines), *_evaluation_rows(config, store, lines)]
    if settled:
        newest = max((clock["step"] for clock in clocks(store).values()), default=-1)
        found = [row for row in found if row.values["step"] <= newest]
    return sorted(found, key=lambda row: row.place)


def _evaluation_rows(
    config: Config, store: RunStore, lines: Sequence[Mapping[str, Any]]
) -> Iterator[Row]:
    """Of each evaluation that is whole, at the clock of its checkpoint or else of its line."""
    times = {0: 0.0, **{line["step"]: line["train_seconds"] for line in lines}}
    times |= evaluation_points(store)
    steps = evaluated_steps(store)
    found = {step: read_until_damage(store.evaluation_path(step)) for step in steps}
    asked = {record["question"] for records in found.values() for record in records}
    for step, records in found.items():
        if step in times and len(records) == config.evaluation.repeats * len(asked) > 0:
            yield evaluation_row(step, times[step], records)


def summary(store: RunStore, rows: Sequence[Row]) -> dict[str, Any]:
    """What stands beside the last row's values: how the run ended, and what it took."""
    found = [row.values["eval/accuracy"] for row in rows if "eval/accuracy" in row.values]
    accuracy = {"best_accuracy": max(found), "final_accuracy": found[-1]} if found else {}
    peaks = {f"peak_bytes/{phase}": peak for phase, peak in peak_bytes(store).items()}
    void = store.status().get("void_steps", 0)
    return {"state": state_of(store), "void_steps": void, **accuracy, **peaks}
