"""Read the PODS authors' runs on one GPU: one JSON file per run, one block per checkpoint.

Source: github.com/YixuanEvenXu/pods, `results/`; its `scripts/plot.py` draws them.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pods.analysis.published.imports import Published, Row, collect, describe
from pods.analysis.published.json_log import (
    CHECKPOINTS,
    QUESTIONS,
    average_repeats,
    read_log,
    read_object,
)

NAME = re.compile(
    r"Instruct-(?P<setting>(?P<task>GSM8K|GSM8K-MaxR|GSM8K-Rand|MATH-NF|Llama)-512"
    r"-(?P<n>[1-9]\d*)-(?P<m>[1-9]\d*)(?:-(?P<beta>\d+(?:\.\d+)?))?)-Run(?P<seed>[1-9]\d*)\.json"
)
RUNS = 10
RULES = {"GSM8K-MaxR": "max_reward", "GSM8K-Rand": "random"}
ARMS = {"all": "grpo", "max_variance": "pods"}
MACHINE = "NVIDIA L40S"


@dataclass(frozen=True)
class LogFamily:
    """Logs that can share a figure."""

    prefix: str
    """First word of the names of its series."""
    dataset: str
    """The test set that the authors plot."""
    base: str
    """Name of the file with the base model's evaluation."""
    minutes: int
    """Minutes between checkpoints."""
    plotted_seconds: float
    """End of the time axis of the authors' figures."""
    remark: str = ""
    """Addition to the note on the measured accuracy."""


FAMILIES = {
    "gsm8k": LogFamily("GSM8K", "gsm8k", "base-qwen.json", 30, 21600.0),
    "math": LogFamily("MATH", "math500", "base-qwen.json", 30, 21600.0),
    "llama": LogFamily(
        "Llama", "gsm8k", "base-llama.json", 10, 5400.0, " (their Llama figure: both_acc)"
    ),
}


def family_of(name: str) -> str | None:
    """Return the family of a log by its file name; None if it is not the name of a log."""
    match = NAME.fullmatch(name)
    return match["task"].split("-")[0].lower() if match else None


def read_logs(folder: Path, family: str, dataset: str | None = None) -> Published:
    """Read one family's logs (a key of `FAMILIES`); whatever is irregular is left out and named.

    The logs hold no times. As in the authors' figures, the k-th checkpoint by step is placed at k
    times the interval. Without a dataset, it is the one that the authors plot.

    Raises:
        ValueError: there is no such dataset.
    """
    of = FAMILIES[family]
    dataset = dataset or of.dataset
    if dataset not in QUESTIONS:
        raise ValueError(f"dataset={dataset}: must be one of {', '.join(sorted(QUESTIONS))}")
    names = [path.name for path in folder.glob("*.json") if family_of(path.name) == family]
    matches = sorted(filter(None, map(NAME.fullmatch, names)), key=_order)
    logs, faults = _read_all(folder, [match[0] for match in matches], dataset)
    base: list[Row] = []
    try:
        means = average_repeats(read_object(folder / of.base), dataset)
        base = [{"step": 0, "train_seconds": 0.0, **means, "shared": True}]
    except ValueError as error:
        faults.append(f"{of.base}: {error}")
    timed = {name: [*base, *_timed(rows, of.minutes)] for name, rows in logs.items()}
    return collect(
        family,
        dataset,
        [(_describe(match, of.prefix), timed.get(match[0], [])) for match in matches],
        [folder / name for name in [*(match[0] for match in matches), of.base]],
        holes=[*faults, *_unexpected(folder), *_missing(matches)],
        budget=f"{CHECKPOINTS * of.minutes / 60:g} h (nominal)",
        plotted_seconds=of.plotted_seconds,
        note=f"logs of the PODS authors: checkpoint times are nominal (k x {of.minutes} min), not "
        f"measured; accuracy is their ans_acc on {dataset}, which also takes the last number"
        f"{of.remark}; the point at 0 s is the base model, evaluated once and shared by all runs",
    )


def _order(match: re.Match[str]) -> tuple[str, int, int, int]:
    """Sort settings by task and n, the larger m first, then by the run's number."""
    return match["task"], int(match["n"]), -int(match["m"]), int(match["seed"])


def _read_all(
    folder: Path, names: Sequence[str], dataset: str
) -> tuple[dict[str, list[Row]], list[str]]:
    """Read the regular logs by file name, and write one line about each of the others."""
    logs: dict[str, list[Row]] = {}
    faults = {}
    for name in names:
        try:
            logs[name] = read_log(folder / name, dataset)
        except ValueError as error:
            faults[name] = str(error)
    for name, rows in logs.items():
        duplicates = [other for other in logs if other != name and logs[other] == rows]
        if duplicates:  # nothing in the files says which of them is the copy
            faults[name] = f"the same content as {', '.join(duplicates)}"
    regular = {name: rows for name, rows in logs.items() if name not in faults}
    return regular, [f"{name}: {faults[name]}" for name in names if name in faults]


def _timed(rows: Sequence[Row], minutes: int) -> Iterator[Row]:
    """Add the time at which the authors draw each checkpoint."""
    for k, row in enumerate(rows, 1):
        yield {"step": row["step"], "train_seconds": 60.0 * minutes * k, **row, "shared": False}


def _describe(name: re.Match[str], prefix: str) -> Row:
    rule = "all" if name["n"] == name["m"] else RULES.get(name["task"], "max_variance")
    arm = ARMS.get(rule, rule)
    suffix = f", kl_beta={name['beta']}" if name["beta"] else ""
    return describe(name, f"{prefix} {arm} {name['n']}→{name['m']}{suffix}", arm, rule, MACHINE)


def _unexpected(folder: Path) -> Iterator[str]:
    """Name JSON files that the release does not have: each may be a run under another name."""
    bases = {family.base for family in FAMILIES.values()}
    for path in sorted(folder.glob("*.json")):
        if family_of(path.name) is None and path.name not in bases:
            yield f"{path.name}: not a file name of the release"


def _missing(matches: Sequence[re.Match[str]]) -> Iterator[str]:
    """Name the runs that a setting lacks."""
    settings: dict[str, set[int]] = defaultdict(set)
    for match in matches:
        settings[match["setting"]].add(int(match["seed"]))
    for setting, runs in settings.items():
        for run in sorted(set(range(1, max(RUNS, *runs) + 1)) - runs):
            yield f"Instruct-{setting}-Run{run}.json: missing"
