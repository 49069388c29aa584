"""Read the PODS authors' runs on one GPU: one JSON file per run, one block per checkpoint.

Source: github.com/YixuanEvenXu/pods, `results/`; its `scripts/plot.py` draws them.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pods.analysis.loading.imports import Imported
from pods_lab.audit.json_logs import checkpoints
from pods_lab.published.tables import Row, collect, describe

NAME = re.compile(
    r"Instruct-(?P<task>GSM8K|GSM8K-MaxR|GSM8K-Rand|MATH-NF|Llama)-512"
    r"-(?P<n>[1-9]\d*)-(?P<m>[1-9]\d*)(?:-(?P<beta>\d+(?:\.\d+)?))?-Run(?P<seed>[1-9]\d*)\.json"
)
RULES = {"GSM8K-MaxR": "max_reward", "GSM8K-Rand": "random"}
ARMS = {"all": "grpo", "max_variance": "pods"}
MACHINE = "NVIDIA L40S"
CHECKPOINTS, REPEATS = 12, 5
MEASURES = {"accuracy": "ans_acc", "lenient": "ans_acc",  # by their grader
            "format": "for_acc", "both": "both_acc", "length": "lengths"}  # fmt: skip


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
    "gsm8k": LogFamily("GSM8K", "gsm8k", 1319, "base-qwen.json", 30, 21600.0),
    # MATH-500 without the prompts of more than 512 tokens
    "math": LogFamily("MATH", "math500", 496, "base-qwen.json", 30, 21600.0),
    "llama": LogFamily(
        "Llama", "gsm8k", 1319, "base-llama.json", 10, 5400.0, " (their Llama figure: both_acc)"
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
    of = FAMILIES[family]
    names = [path.name for path in folder.glob("*.json") if family_of(path.name) == family]
    matches = sorted(  # the larger m first
        filter(None, map(NAME.fullmatch, names)),
        key=lambda name: (name["task"], int(name["n"]), -int(name["m"]), int(name["seed"])),
    )
    first = _evaluations(folder / of.base, of)
    runs, missing = [], []
    for match in matches:
        rows = _evaluations(folder / match[0], of)
        if len(rows) != CHECKPOINTS:
            missing.append(f"{match[0]}: {len(rows)} checkpoints, not {CHECKPOINTS}")
            rows = []
        rule = "all" if match["n"] == match["m"] else RULES.get(match["task"], "max_variance")
        beta = f", kl_beta={match['beta']}" if match["beta"] else ""
        run = describe(match, of.prefix, ARMS.get(rule, rule), beta, rule, MACHINE)
        runs.append((run, [*first, *rows] if rows else []))
    return collect(
        runs,
        [folder / name for name in (*(match[0] for match in matches), of.base)],
        missing=missing,
        budget=f"{CHECKPOINTS * of.minutes / 60:g} h (nominal)",
        until=of.until,
        note=f"logs of the PODS authors: checkpoint times are nominal (k x {of.minutes} min), not "
        f"measured; accuracy is their ans_acc on {of.dataset}, which also takes the last number"
        f"{of.remark}; the point at 0 s is the base model, evaluated once and shared by all runs",
    )


def _evaluations(path: Path, of: LogFamily) -> list[Row]:
    """Read the evaluations of a log in order of steps, or of the base model, which all runs share.

    Each is averaged over its repeats: shares of questions, and length in tokens.
    """
    base = path.name == of.base
    try:
        content = json.loads(path.read_bytes())
        blocks = checkpoints({"base-0": content} if base else content)
        return [
            {"step": block["step"], "train_seconds": 60.0 * of.minutes * k}
            | {name: block[f"{of.dataset}/{key}"] for name, key in MEASURES.items()}
            | {"repeats": REPEATS, "questions": of.questions, "shared": base}
            for k, block in enumerate(blocks, 0 if base else 1)
        ]
    except (OSError, ValueError, AttributeError, KeyError) as error:
        raise ValueError(f"{path.name} has no evaluations on {of.dataset}: {error}") from error
