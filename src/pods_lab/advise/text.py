"""Write what `pods advise` found: a table with what follows from it, CSV, JSON."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.writing import write_json
from pods.runs.files import replace
from pods.system.text import table as aligned
from pods_lab.advise.advice import Advice

LIMITS = (
    "The law's constants are those of the embedded task; of language models it expected too little "
    "of a larger n."
)


def write(advice: Advice, about: Mapping[str, Any], stem: Path) -> Path:
    """Write the table as CSV, and with its origin as JSON; return the path of the CSV."""
    table = pd.DataFrame(advice.rows)
    content = dict(about) | dataclasses.asdict(advice)
    content["rows"] = json.loads(table.to_json(orient="records"))  # null if a number is unknown
    csv = stem.with_name(f"{stem.name}.csv")
    replace(csv, table.to_csv(index=False, float_format="%.6g"))
    write_json(csv.with_suffix(".json"), content)
    return csv


def advice_lines(advice: Advice) -> list[str]:
    """Write the table, what it rests on, and at last the one pair to train with."""
    header = (
        "n→m",
        "seconds a step",
        "progress of a step by the law",
        "progress per second",
        "pays if r is",
        "seconds are",
    )
    cells = [
        [
            _name(row),
            _interval(row, "seconds", ".3g"),
            _interval(row, "progress", ".2f"),
            _interval(row, "gain", ".2f"),
            _range(row, advice),
            str(row["time"]),
        ]
        for row in advice.rows
    ]
    lines = aligned(header, cells).splitlines()
    lines.append("")
    lines.append(
        f"Progress is in units of GRPO {_name(advice.rows[0])}, with 95 % intervals over prompts "
        f"and steps; {advice.success:.0%} of the pilot's rollouts are right."
    )
    lines.append(_price(advice))
    lines.append(LIMITS)
    lines.append(_conclusion(advice))
    return lines


def _price(advice: Advice) -> str:
    """Say what r is, and how much it is here."""
    text = "r is the price of a rollout trained on over that of one generated. "
    price = advice.price
    if np.isnan(price.ratio):
        return text + "The pilot's times are too noisy to tell it: try more --steps."
    return (
        f"{text}Here it is {price.ratio:.2f}, and {price.fixed_share:.0%} of a step of GRPO "
        f"{_name(advice.rows[0])} is fixed, as it is in the column's ranges of r."
    )


def _conclusion(advice: Advice) -> str:
    """Say which pair to train with, and why."""
    baseline = _name(advice.rows[0])
    best = advice.rows[advice.best]
    gain = _interval(best, "gain", ".2f")
    if advice.best == 0:
        return f"Train with GRPO {baseline}: the law expects the most progress per second of it."
    if advice.advised == 0:
        return (
            f"Train with GRPO {baseline}: no pair is surely better ({_name(best)}, the next, has "
            f"{gain} times its progress per second)."
        )
    return (
        f"Train with {_name(best)}: the law expects {gain} times the progress per second of GRPO "
        f"{baseline}."
    )


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['n']}→{row['m']}"


def _range(row: Mapping[str, Any], advice: Advice) -> str:
    """Say at which prices of a trained rollout a pair gains more than the first one."""
    if row is advice.rows[0]:
        return ""
    if np.isnan(advice.price.ratio):
        return "unknown"

    first = row["pays_from"]
    last = row["pays_to"]
    if np.isnan(first):
        return "never"
    if np.isinf(last):
        return f"above {first:.2f}" if first > 0 else "anything"
    return f"below {last:.2f}"


def _interval(row: Mapping[str, Any], name: str, form: str) -> str:
    value = row[name]
    low = row[f"{name}_low"]
    high = row[f"{name}_high"]
    if np.isnan(value):
        return "unknown"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"
