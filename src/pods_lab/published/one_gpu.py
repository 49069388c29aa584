"""Read the PODS authors' runs on one GPU: one JSON file per run, one block per checkpoint.

Source: github.com/YixuanEvenXu/pods, `results/`; its `scripts/plot.py` draws them.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pods.analysis.loading.imports import Imported
from pods_lab.audit.json_logs import checkpoints
from pods_lab.published.tables import Row, RunRows, collect, describe

NAME = re.compile(
    r"Instruct-(?P<task>GSM8K|GSM8K-MaxR|GSM8K-Rand|MATH-NF|Llama)-512"
    r"-(?P<n>[1-9]\d*)-(?P<m>[1-9]\d*)(?:-(?P<beta>\d+(?:\.\d+)?))?-Run(?P<seed>[1-9]\d*)\.json"
)
RULES = {"GSM8K-MaxR": "max_reward", "GSM8K-Rand": "random"}
ARMS = {"all": "grpo", "max_variance": "pods"}
MACHINE = "NVIDIA L40S"
CHECKPOINTS = 12
REPEATS = 5
MEASURES = {
    "accuracy": "ans_acc",
    "lenient": "ans_acc",  # by their grader
    "format": "for_acc",
    "both": "both_acc",
    "length": "lengths",
}
"""Their names of our columns."""


@dataclass(frozen=True)
class LogFamily:
    """Logs that can share a figure."""

    prefix: str  # first word of the names of its series
    dataset: str  # test set that the authors plot
    questions: int
    base: str  # file with the base model's evaluation
    minutes: int  # between checkpoints
    until: float  # end of the time axis of their figures, in seconds
    remark: str = ""  # on the measured accuracy, added to the note


FAMILIES = {
    "gsm8k": LogFamily(
        prefix="GSM8K",
        dataset="gsm8k",
        questions=1319,
        base="base-qwen.json",
        minutes=30,
        until=21600.0,
    ),
    "math": LogFamily(
        prefix="MATH",
        dataset="math500",
        questions=496,  # MATH-500 without the prompts of more than 512 tokens
        base="base-qwen.json",
        minutes=30,
        until=21600.0,
    ),
    "llama": LogFamily(
        prefix="Llama",
        dataset="gsm8k",
        questions=1319,
        base="base-llama.json",
        minutes=10,
        until=5400.0,
        remark=" (their Llama figure: both_acc)",
    ),
}


def family_of(name: str) -> str | None:
    """Return the family of a log by its file name; None if it is not the name of a log."""
    match = NAME.fullmatch(name)
    return match["task"].split("-")[0].lower() if match else None


def read_logs(folder: Path, family: str) -> Imported:
    """Read one family's logs (a key of `FAMILIES`); what is irregular is left out and named.

    The logs hold no times. As in the authors' figures, the k-th checkpoint by step is placed at k
    times the interval.
    `ValueError`: a file is no such log; the message names it.
    """
    logs = FAMILIES[family]
    base_rows = _evaluations(folder / logs.base, logs)
    runs = []
    missing = []
    paths = []
    for name in _run_names(folder, family):
        path = folder / name[0]
        paths.append(path)
        rows = _evaluations(path, logs)
        if len(rows) == CHECKPOINTS:
            rows = base_rows + rows
        else:
            missing.append(f"{path.name}: {len(rows)} checkpoints, not {CHECKPOINTS}")
            rows = []

        all_are_kept = name["n"] == name["m"]
        rule = "all" if all_are_kept else RULES.get(name["task"], "max_variance")
        run = describe(
            name,
            prefix=logs.prefix,
            arm=ARMS.get(rule, rule),
            rule=rule,
            machine=MACHINE,
            suffix=f", kl_beta={name['beta']}" if name["beta"] else "",
        )
        runs.append(RunRows(run, rows))

    about = {
        "missing": missing,
        "budget": f"{CHECKPOINTS * logs.minutes / 60:g} h (nominal)",
        "until": logs.until,
        "note": f"logs of the PODS authors: checkpoint times are nominal (k x {logs.minutes} min), "
        f"not measured; accuracy is their ans_acc on {logs.dataset}, which also takes the last "
        f"number{logs.remark}; the point at 0 s is the base model, evaluated once and shared by "
        "all runs",
    }
    return collect(runs, [*paths, folder / logs.base], about)


def _run_names(folder: Path, family: str) -> list[re.Match[str]]:
    """Return the names of a family's files, the larger m first, as matches of `NAME`."""
    names = []
    for path in folder.glob("*.json"):
        name = NAME.fullmatch(path.name)
        if name and family_of(path.name) == family:
            names.append(name)
    return sorted(
        names, key=lambda name: (name["task"], int(name["n"]), -int(name["m"]), int(name["seed"]))
    )


def _evaluations(path: Path, logs: LogFamily) -> list[Row]:
    """Read the evaluations of a log in order of steps, or of the base model, which all runs share.

    Each is averaged over its repeats: shares of questions, and length in tokens.
    """
    is_base = path.name == logs.base
    rows = []
    try:
        content = json.loads(path.read_bytes())
        blocks = checkpoints({"base-0": content} if is_base else content)
        for number, block in enumerate(blocks, 0 if is_base else 1):
            row = {"step": block["step"], "train_seconds": 60.0 * logs.minutes * number}
            for name, key in MEASURES.items():
                row[name] = block[f"{logs.dataset}/{key}"]
            row |= {"repeats": REPEATS, "questions": logs.questions, "shared": is_base}
            rows.append(row)
    except (OSError, ValueError, AttributeError, KeyError) as error:
        raise ValueError(f"{path.name} has no evaluations on {logs.dataset}: {error}") from error
    return rows
