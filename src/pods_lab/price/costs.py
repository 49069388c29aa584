"""What a step of a study costs, by n and m: the fits, their residuals, and predictions."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from pods.analysis.loading.study import Study
from pods.config.parse import ConfigError
from pods_lab.price import text
from pods_lab.price.model import STEP, CostModel, Pair, cost_model, predict, residuals
from pods_lab.price.settings import AUTHORS, authors_runs, settings


@dataclass(frozen=True)
class CostReport:
    """The answer; tables are fit, residuals and predictions, with the setting first."""

    lines: list[str]
    tables: dict[str, pd.DataFrame]


def costs(study: Study, nm: Sequence[Pair] = (), seconds: float | None = None) -> CostReport:
    """Fit the costs of a study's runs, and predict those of sizes (n, m) and of runs.

    Without `nm` the sizes are those of the runs, without `seconds` the training clock is that of
    most runs. `ConfigError`: the seconds are out of range.
    """
    lines: list[str] = []
    tables: dict[str, list[pd.DataFrame]] = {}
    for name, runs in settings(study):
        report = _setting(name, runs, nm, seconds)
        if lines:
            lines.append("")
        lines += report.lines
        for table_name, table in report.tables.items():
            tables.setdefault(table_name, []).append(table)
    whole = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
    return CostReport(lines, whole)


def authors_costs(nm: Sequence[Pair] = (), seconds: float | None = None) -> CostReport:
    """Do the same with the PODS authors' step times on one L40S: GSM8K, max-variance and GRPO."""
    sizes = nm or ((16, 16), (64, 16), (64, 64))
    report = _setting("one L40S, the PODS authors' runs", authors_runs(), sizes, seconds)
    lines = list(report.lines)
    lines.append("")
    lines += [line for line in AUTHORS.read_text().splitlines() if line.startswith("#")]
    return CostReport(lines, report.tables)


def _setting(
    name: str, table: pd.DataFrame, nm: Sequence[Pair], seconds: float | None
) -> CostReport:
    """Fit the runs of one setting. `ConfigError`: the seconds are out of range."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError("--seconds", seconds, "must be a number > 0")
    model = cost_model(table)
    if model.runs.empty:
        return CostReport([f"{name}: no run has a time per step"], {})

    sizes = list(dict.fromkeys(nm)) or _measured_sizes(model.runs)
    tables = {
        "fit": fit_table(model),
        "residuals": residuals(model),
        "predictions": predictions(model, sizes, seconds or _budget(model.runs)),
    }
    lines = list(text.fit_lines(name, model, tables["fit"], tables["residuals"]))
    lines += ["", text.prediction_table(tables["predictions"])]
    for frame in tables.values():
        frame.insert(0, "setting", name)
    return CostReport(lines, tables)


def _measured_sizes(runs: pd.DataFrame) -> list[Pair]:
    table = runs[["n", "m"]].drop_duplicates().sort_values(["n", "m"])
    return [(int(n), int(m)) for n, m in table.to_numpy()]


def _budget(runs: pd.DataFrame) -> float:
    """Return the training clock of most runs; NaN: they end by steps."""
    if "budget_seconds" not in runs or runs.budget_seconds.isna().all():
        return math.nan
    return float(runs.budget_seconds.mode().iloc[0])


def fit_table(model: CostModel) -> pd.DataFrame:
    """List the fits, one row each.

    Returns:
        what; fixed, generated, kept: seconds fixed, per rollout generated and per rollout kept,
        each with its `_stderr`; r2, residual_sd, rows, cells (distinct combinations of the terms).
        NaN: not identifiable, or not a term.
    """
    rows = []
    for what, line in {"step": model.total, **model.phases}.items():
        row: dict[str, object] = {"what": what}
        for term in STEP:
            row[term] = math.nan
            row[f"{term}_stderr"] = math.nan
            if term in line.terms:
                row[term], row[f"{term}_stderr"] = line.at({term: 1.0})
        row["r2"] = line.r2
        row["residual_sd"] = line.residual_sd
        row["rows"] = line.rows
        row["cells"] = line.combinations
        rows.append(row)
    return pd.DataFrame(rows)


def predictions(model: CostModel, sizes: Sequence[Pair], budget_seconds: float) -> pd.DataFrame:
    """Predict the cost of a step and of a run, one row per (n, m).

    Returns:
        n, m, seconds, stderr, source, outside, seconds/PHASE, and of a run under the budget,
        which is checked after each step, steps and train_seconds. NaN: not known.
    """
    rows = []
    for n, m in sizes:
        step = predict(model, n, m)
        row = {
            "n": n,
            "m": m,
            "seconds": step.seconds,
            "stderr": step.stderr,
            "source": step.source,
            "outside": step.outside,
        }
        for phase, seconds in step.phases.items():
            row[f"seconds/{phase}"] = seconds
        steps = math.nan
        if step.seconds > 0 and not math.isnan(budget_seconds):
            steps = math.ceil(budget_seconds / step.seconds)
        row["steps"] = steps
        row["train_seconds"] = steps * step.seconds
        rows.append(row)
    return pd.DataFrame(rows)


def parse_nm(word: str) -> Pair:
    """Read `N,M`; a ConfigError says that the word is not two numbers, the second the smaller.

    >>> parse_nm("64,16")
    (64, 16)
    """
    match = re.fullmatch(r"(\d+),(\d+)", word)
    if not match or not 1 <= int(match[2]) <= int(match[1]):
        raise ConfigError("--nm", word, "must be N,M with 1 <= M <= N, such as 64,16")
    return int(match[1]), int(match[2])
