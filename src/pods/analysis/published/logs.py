"""The PODS authors' logs of one GPU: a JSON file a run, a block a checkpoint.

Source: github.com/YixuanEvenXu/pods, `results/`; how they draw them: its `scripts/plot.py`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pods.analysis.published.imports import Published, seconds_per_step
from pods.analysis.published.run import (
    CHECKPOINTS,
    QUESTIONS,
    Row,
    measures,
    read_log,
    read_object,
)
from pods.runs.files import sha256

NAME = re.compile(
    r"Instruct-(?P<setting>(?P<task>GSM8K|GSM8K-MaxR|GSM8K-Rand|MATH-NF|Llama)-512"
    r"-(?P<n>[1-9]\d*)-(?P<m>[1-9]\d*)(?:-(?P<beta>\d+(?:\.\d+)?))?)-Run(?P<run>[1-9]\d*)\.json"
)
RUNS = 10
RULES = {"GSM8K-MaxR": "max_reward", "GSM8K-Rand": "random"}
MACHINE = "NVIDIA L40S"


@dataclass(frozen=True)
class Family:
    """Logs that one figure can hold."""

    prefix: str
    """Of the names of its series."""
    dataset: str
    """That the authors plot."""
    base: str
    """The base model's evaluation."""
    minutes: int
    """Between checkpoints."""
    remark: str = ""


FAMILIES = {
    "gsm8k": Family("GSM8K", "gsm8k", "base-qwen.json", 30),
    "math": Family("MATH", "math500", "base-qwen.json", 30),
    "llama": Family("Llama", "gsm8k", "base-llama.json", 10, " (their Llama figure: both_acc)"),
}


def family_of(name: str) -> str | None:
    """The family that a file belongs to, by its name; None: it is no log of a run."""
    match = NAME.fullmatch(name)
    return match["task"].split("-")[0].lower() if match else None


def read_logs(folder: Path, family: str, dataset: str | None = None) -> Published:
    """Read one family's logs; whatever is irregular is left out and named.

    The k-th checkpoint by step is placed at k times the interval, as in the authors' figures: the
    logs hold no times.

    Args:
        folder: with the JSON files.
        family: a key of `FAMILIES`.
        dataset: that was evaluated; None: the one that the authors plot.

    Raises:
        ValueError: no such dataset.
    """
    of, dataset = FAMILIES[family], dataset or FAMILIES[family].dataset
    if dataset not in QUESTIONS:
        raise ValueError(f"dataset={dataset}: one of {', '.join(sorted(QUESTIONS))}")
    logs = sorted((p for p in folder.glob("*.json") if family_of(p.name) == family), key=_order)
    rows, faults = _read_all(logs, dataset)
    anchor, anchor_holes = _anchor(folder / of.base, dataset)
    runs = [{**_about(path.name, of), "complete": path.name in rows} for path in logs]
    evaluations = pd.DataFrame([
        {"series": run["series"], "seed": run["seed"], "run": run["run"], **row}
        for run, path in zip(runs, logs, strict=True) if path.name in rows
        for row in [*anchor, *_placed(rows[path.name], of.minutes)]
    ])  # fmt: skip
    return Published(
        family=family,
        dataset=dataset,
        runs=pd.DataFrame(runs),
        evaluations=evaluations,
        holes=[*faults, *anchor_holes, *_strangers(folder), *_absent(logs)],
        machines=[MACHINE],
        budget=f"{CHECKPOINTS * of.minutes / 60:g} h (nominal)",
        note=f"logs of the PODS authors: checkpoint times are nominal (k x {of.minutes} min), not "
        f"measured; accuracy is their ans_acc on {dataset}, which also takes the last number"
        f"{of.remark}; the point at 0 s is the base model, evaluated once and shared by all runs",
        seconds_per_step=seconds_per_step(evaluations),
        files={p.name: sha256(p) for p in [*logs, folder / of.base] if p.is_file()},
    )


def _read_all(logs: Sequence[Path], dataset: str) -> tuple[dict[str, list[Row]], list[str]]:
    """Rows of the regular logs by file name, and a line for each of the others."""
    rows: dict[str, list[Row]] = {}
    faults = {}
    for path in logs:
        try:
            rows[path.name] = read_log(path, dataset)
        except ValueError as error:
            faults[path.name] = str(error)
    for name, content in rows.items():
        twins = [other for other in rows if other != name and rows[other] == content]
        if twins:  # the files do not say which of them is the copy
            faults[name] = f"the same content as {', '.join(twins)}"
    regular = {name: rows[name] for name in rows if name not in faults}
    return regular, [f"{path.name}: {faults[path.name]}" for path in logs if path.name in faults]


def _about(name: str, family: Family) -> Row:
    """What a file's name says of its run."""
    match = NAME.fullmatch(name)
    assert match
    n, m, beta = int(match["n"]), int(match["m"]), match["beta"]
    rule = "all" if n == m else RULES.get(match["task"], "max_variance")
    arm = {"all": "grpo", "max_variance": "pods"}.get(rule, rule)
    return {
        "run": name.removesuffix(".json"),
        "series": f"{family.prefix} {arm} {n}→{m}" + (f", kl_beta={beta}" if beta else ""),
        "arm": arm,
        "rule": rule,
        "n": n,
        "m": m,
        "groups": 1,
        "prompts": 1,
        "seed": int(match["run"]),
        "machine": MACHINE,
    }


def _order(path: Path) -> tuple[str, int, int, int]:
    """Settings by n, then the larger m first, then run by run."""
    match = NAME.fullmatch(path.name)
    assert match
    return match["task"], int(match["n"]), -int(match["m"]), int(match["run"])


def _anchor(path: Path, dataset: str) -> tuple[list[Row], list[str]]:
    """The base model's row, at step 0 of all runs, or why there is none."""
    try:
        row = measures(read_object(path), dataset)
    except ValueError as error:
        return [], [f"{path.name}: {error}"]
    return [{"step": 0, "train_seconds": 0.0, **row, "shared": True}], []


def _placed(rows: Sequence[Row], minutes: int) -> Iterator[Row]:
    """The rows with the time at which the authors draw them."""
    for k, row in enumerate(rows, 1):
        yield {"step": row["step"], "train_seconds": 60.0 * minutes * k, **row, "shared": False}


def _strangers(folder: Path) -> Iterator[str]:
    """JSON files that have no name of the release: a run may hide behind each."""
    bases = {family.base for family in FAMILIES.values()}
    for path in sorted(folder.glob("*.json")):
        if family_of(path.name) is None and path.name not in bases:
            yield f"{path.name}: no name of the release"


def _absent(logs: Sequence[Path]) -> Iterator[str]:
    """Runs that a setting lacks."""
    settings: dict[str, set[int]] = {}
    for match in filter(None, (NAME.fullmatch(path.name) for path in logs)):
        settings.setdefault(match["setting"], set()).add(int(match["run"]))
    for setting, there in settings.items():
        for run in sorted(set(range(1, max(RUNS, *there) + 1)) - there):
            yield f"Instruct-{setting}-Run{run}.json: not there"
