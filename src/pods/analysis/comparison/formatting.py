"""Present a comparison on a screen, as tables for files, and as JSON."""

import sys
from shutil import get_terminal_size
from typing import Any

import pandas as pd

from pods.analysis.comparison.compare import Comparison
from pods.analysis.comparison.ranking_text import as_json as ranking_as_json
from pods.analysis.comparison.ranking_text import format_ranking
from pods.analysis.comparison.verdicts import caveats, headline, verdicts
from pods.analysis.outcomes import MEASURES, OUTCOMES
from pods.analysis.statistics import ALPHA, MOST_RUNS
from pods.analysis.tables import amount, clock_words, json_value

TABLES = ("arms", "contrasts", "speedups", "questions")
PERCENT = ["estimate", "low", "high", "bootstrap_low", "bootstrap_high", "detectable"]
MEANS = {"mean": "", "stderr": "_stderr", "low": "_low", "high": "_high", "iqm": "_iqm"}
DETAILS = [
    *("bootstrap_low", "bootstrap_high", "higher", "exact_p", "exact_p_holm"),
    *("detectable", "runs_needed"),
]
SHORT = {"baseline_reached": "reached", "steps_ratio": "in steps"}
SHOWN_TARGETS = 3
LEFT_OUT = ("design", "baseline_n", "bound", "n", "in steps", "iqm", "reached", "p")
"""Columns that a narrow terminal does without, in this order."""


def csv_tables(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """Return the tables that are written beside the study's figures, by file name."""
    tables = {
        "compare.csv": comparison.contrasts,
        "compare.arms.csv": comparison.arms,
        "compare.speedup.csv": comparison.speedups,
        "compare.questions.csv": comparison.questions,
    }
    return {name: comparison.study.labelled(table) for name, table in tables.items()}


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return all tables with their settings; NaN becomes null, and infinity a word."""
    study, unit, ranking = comparison.study, comparison.unit, comparison.ranking
    return {
        "study": study.name,
        "budget": study.budget,
        "clock": study.clock,
        "machines": study.machines,
        "settings": {
            "alpha": ALPHA,
            f"window_{unit}": [comparison.window.start, comparison.window.end],
            "primary_outcome": next(iter(OUTCOMES)),
            "bootstrap_draws": comparison.draws,
            "bootstrap_seed": comparison.seed,
            "seeds_pair_runs": study.seeded,
            "targets_given": comparison.given_targets,
        },
        **{
            name: [
                {key: _value(key, value, unit) for key, value in row.items()}
                for row in getattr(comparison, name).to_dict("records")
            ]
            for name in TABLES
        },
        **({} if ranking is None else {"ranking": ranking_as_json(ranking, study)}),
        "left_out": comparison.left_out,
        "missing": study.missing,
        "mixed": study.inconsistencies,
        "note": study.note,
        "headline": headline(comparison),
        "verdicts": verdicts(comparison),
        "caveats": list(caveats(comparison)),
    }


def _value(key: Any, value: Any, unit: str) -> Any:
    """Return a value as JSON can hold it, with what infinity means in its column."""
    if key == "runs_needed":
        return json_value(value, f"more than {MOST_RUNS}")
    return json_value(value, "not reached" if key in (unit, f"baseline_{unit}") else "infinite")


def format_comparison(comparison: Comparison, verbose: bool = False) -> str:
    """Return what a comparison found: first a sentence, or the ranking of many arms."""
    listed = "\n".join(f"- {line}" for line in caveats(comparison))
    ranking, study = comparison.ranking, comparison.study
    parts = [headline(comparison) if ranking is None else format_ranking(ranking, study)]
    parts += ["\n".join(verdicts(comparison)), format_tables(comparison, verbose)]
    return "\n\n".join([*parts, *([f"caveats:\n{listed}"] if listed else [])])


def format_tables(comparison: Comparison, verbose: bool = False) -> str:
    """Return the tables for a screen, with columns named as in the CSV files.

    Args:
        comparison: the result of `compare`.
        verbose: add bootstrap, exact tests, power, questions and the PODS authors' speed-up.
    """
    study, span = comparison.study, comparison.window
    measured_in = clock_words(study)
    tests = _named(comparison.contrasts, PERCENT)
    tables = {
        f"{study.name}: {study.budget} per run on {', '.join(study.machines)}\n"
        f"{MEASURES[study.metric]} in percent "
        f"from {amount(span.start, study.x)} to {amount(span.end, study.x)}{measured_in}: mean "
        "over runs, stderr, 95 % t interval, interquartile mean": _arms(comparison.arms),
        "differences in points: estimate, 95 % t interval, p of the t test (paired over seeds, or "
        "Welch's)": tests[["design", "n", "baseline_n", "estimate", "low", "high", "p", "p_holm"]],
    }
    if verbose:
        tables[
            "95 % bootstrap interval; seeds where the arm is higher; p of the exact sign-flip or "
            "permutation test; the true\ndifference found with 80 % power; pairs, or runs per arm, "
            "for 80 % power if the truth is as observed"
        ] = tests[DETAILS]
    if len(comparison.speedups):
        tables[
            f"median {comparison.unit.replace('_', ' ')} to a target (inf: missed by half of the "
            "runs), runs that reach it, how many times as fast;\nbound: what is certain of the "
            "ratio; peak: 99 % of the baseline's peak"
        ] = _speedups(comparison, verbose)
    if verbose and len(comparison.questions):
        tables[
            "differences in points over the questions of the last evaluation: the interval is over "
            "questions, not over seeds"
        ] = _named(comparison.questions, PERCENT[:3]).drop(columns=["unshared", "stderr"])
    return "\n\n".join(f"{title}\n{_text(table)}" for title, table in tables.items())


def _text(table: pd.DataFrame) -> str:
    """Return a table as text; on a narrow terminal without columns that the CSV files have."""
    text: str = table.to_string(na_rep="", float_format=_number)
    for name in LEFT_OUT if sys.stdout.isatty() else ():
        if get_terminal_size().columns >= text.index("\n"):
            break
        table = table.drop(columns=name, errors="ignore")
        text = table.to_string(na_rep="", float_format=_number)
    return text


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.2g}"


def _named(table: pd.DataFrame, percent: list[str]) -> pd.DataFrame:
    """Name each row by its contrast and its outcome or target; turn fractions into percent."""
    table = table.assign(contrast=table.series + " vs " + table.baseline)
    table[percent] *= 100
    keys = [name for name in ("contrast", "outcome", "target") if name in table]
    return table.set_index(keys).drop(columns=["series", "baseline"])


def _arms(arms: pd.DataFrame) -> pd.DataFrame:
    """Turn the outcomes of each arm into rows."""
    rows = [
        {"series": arm["series"], "outcome": outcome, "runs": arm["n"]}
        | {title: 100 * arm[outcome + suffix] for title, suffix in MEANS.items()}
        for arm in arms.to_dict("records")
        for outcome in OUTCOMES
    ]
    return pd.DataFrame(rows).set_index(["series", "outcome"])


def _speedups(comparison: Comparison, verbose: bool) -> pd.DataFrame:
    """Choose the peak and the targets that the user gave, else the highest ones with a ratio."""
    table = comparison.speedups
    fixed, peak = table.kind == "fixed", table.kind == "peak"
    if not (verbose or comparison.given_targets):
        contrasts = table[fixed & table.ratio.notna()].groupby(["series", "baseline"])
        fixed &= table.index.isin(contrasts.tail(SHOWN_TARGETS).index)
    kinds = table.kind.map({"fixed": "", "peak": " (peak)"}).fillna(" (authors' rule)")
    table = table.assign(target=(100 * table.target).map("{:.4g} %".format) + kinds)
    named = _named(table if verbose else table[fixed | peak], [])
    short = {f"baseline_{comparison.unit}": "baseline", **SHORT}
    return named.drop(columns=["kind", "n", "baseline_n"]).rename(columns=short)
