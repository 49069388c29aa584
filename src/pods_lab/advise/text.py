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
from pods_lab.advise.advice import LATER, Advice


def write(advice: Advice, about: Mapping[str, Any], stem: Path) -> Path:
    """Write the table as CSV, and with its origin as JSON; return the path of the CSV."""
    table = pd.DataFrame(advice.rows)
    rows = json.loads(table.to_json(orient="records"))  # null where a number is unknown
    content = {**about, **dataclasses.asdict(advice), "rows": rows}
    csv = stem.with_name(f"{stem.name}.csv")
    replace(csv, table.to_csv(index=False, float_format="%.6g"))
    write_json(csv.with_suffix(".json"), content)
    return csv


def advice_lines(advice: Advice) -> list[str]:
    """Write the table, and what follows from it, for a reader."""
    first, *others = advice.rows
    base = _name(first)
    header = ("n→m", "seconds a step", f"gain over GRPO {base}", "pays where success is", "time")
    cells = []
    for row in advice.rows:
        seconds, gain = _interval(row, "seconds", ".3g"), _interval(row, "gain", ".2f")
        cells.append([_name(row), seconds, gain, _where(row), row["time"]])
    cells[0][2:4] = "1", ""
    lines = [aligned(header, cells), "", f"{advice.success:.0%} of the pilot's rollouts are right."]
    lines += [_scales(advice), _verdict(advice)]
    larger = [row for row in others if row["m"] == first["m"]]
    if larger:
        widest = max(larger, key=lambda row: float(row["pays_below"] - row["pays_above"]))
        pays = f"{_name(widest)} is faster than GRPO {base} {_where(widest)}"
        lines += [f"{pays} (if prompts were equally hard)."]
    if advice.changes():
        later = _name(advice.rows[advice.later])
        lines += [f"At a success of {LATER:.0%} {later} is best, so let the run choose."]
    return lines


def _scales(advice: Advice) -> str:
    if not advice.scales:
        return (
            "How noisy its gradients are is not known, so the intervals allow for much: a lower "
            "update.micro_batch_tokens, which cuts a step in two or more, would show it."
        )
    noise, shared, _ = ("{:.2g} [{:.2g}, {:.2g}]".format(*ends) for ends in advice.scales.values())
    return f"Of its gradients the noise is {noise}, and prompts share {shared} of the signal."


def _verdict(advice: Advice) -> str:
    best, base = advice.rows[advice.best], _name(advice.rows[0])
    if not advice.best:
        return f"GRPO {base} is best there: no other pair of the menu is expected to gain over it."
    gain = _interval(best, "gain", ".2f")
    found = f"{_name(best)} makes {gain} times the progress per second of GRPO {base} there (95 %)."
    return found if advice.advised else f"{found} That is not settled, so begin with GRPO {base}."


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['n']}→{row['m']}"


def _interval(row: Mapping[str, Any], name: str, form: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return "unknown" if np.isnan(value) else f"{value:{form}} [{low:{form}}, {high:{form}}]"


def _where(row: Mapping[str, Any]) -> str:
    """Say at which success rates a pair pays."""
    below, above = row["pays_below"], row["pays_above"]
    if below > above:
        return "at any success rate"
    ends = [f"below {below:.0%}"] if below > 0 else []
    ends += [f"above {above:.0%}"] if above < 1 else []
    return " or ".join(ends) or "at no success rate"
