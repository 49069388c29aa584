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
    rows = json.loads(table.to_json(orient="records"))  # null if a number is unknown
    content = {**about, **dataclasses.asdict(advice), "rows": rows}
    csv = stem.with_name(f"{stem.name}.csv")
    replace(csv, table.to_csv(index=False, float_format="%.6g"))
    write_json(csv.with_suffix(".json"), content)
    return csv


def advice_lines(advice: Advice) -> list[str]:
    """Write the table, and what follows from it, for a reader."""
    base = _name(advice.rows[0])
    header = (
        "n→m",
        "seconds a step",
        "progress of a step by the law",
        "progress per second",
        "seconds are",
    )
    cells = [
        [
            _name(row),
            _interval(row, "seconds", ".3g"),
            _interval(row, "progress", ".2f"),
            _interval(row, "gain", ".2f"),
            str(row["time"]),
        ]
        for row in advice.rows
    ]
    return [
        *aligned(header, cells).splitlines(),
        "",
        f"Progress is in units of GRPO {base}, with 95 % intervals over prompts and steps.",
        f"{advice.success:.0%} of the pilot's rollouts are right.",
        _verdict(advice),
        LIMITS,
    ]


def _verdict(advice: Advice) -> str:
    base = _name(advice.rows[0])
    if advice.best == 0:
        return f"GRPO {base} has the most expected progress per second of these."
    best = advice.rows[advice.best]
    gain = _interval(best, "gain", ".2f")
    found = f"{_name(best)} has the most: {gain} times the progress per second of GRPO {base}."
    if advice.advised == 0:
        return f"{found} That is not settled, so begin with GRPO {base}."
    return found


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['n']}→{row['m']}"


def _interval(row: Mapping[str, Any], name: str, form: str) -> str:
    value = row[name]
    low = row[f"{name}_low"]
    high = row[f"{name}_high"]
    if np.isnan(value):
        return "unknown"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"
