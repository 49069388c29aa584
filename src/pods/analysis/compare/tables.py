"""Write a comparison as CSV and JSON, and show it on a screen: sentences, tables, caveats."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.compare.compare import BEST, SEED, Comparison, Ranking, compare
from pods.analysis.compare.planned import EXPLORES, plan_table, planned_lines
from pods.analysis.compare.text import caveats, ranking_verdict, verdicts
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.loading.study import MEASURED, Study, by_key
from pods.analysis.numbers.outcomes import amount, measure, title_of
from pods.analysis.numbers.planned import judgements_of
from pods.analysis.numbers.statistics import ALPHA
from pods.analysis.writing import folder_for, provenance, write_csv, write_json, write_latex
from pods.system.text import short

TESTS = ["series", "baseline", "outcome", "design", "runs", "baseline_runs"]
TESTS += ["estimate", "low", "high", "p", "p_holm"]
LEVELS = ["value", "stderr", "estimate", "low", "high"]
RANKS = ["rank", "series", "runs", "value", "stderr", "estimate", "low", "high", "against_best"]
RATIOS = ["ratio", "low", "high", "steps_ratio"]
SHOWN_TARGETS = 3
IN_JSON = "more in compare.json"
CONTRASTS_TITLE = (
    "differences in {unit}: estimate, 95 % t interval, p of the t test (paired over seeds, or "
    "Welch's)"
)
SPEEDUPS_TITLE = (
    "median {unit} to a target, runs that reach it, and how many times as {fast} (never: half of "
    "the arm's runs miss it;\ninf: half of the baseline's do); bound: what is certain of the "
    "ratio; the last target: 99 % of the baseline's peak"
)


def compare_study(
    folder: Path,
    runs: Sequence[Path],
    chosen: StudyFilter,
    allow: bool = False,
    *,
    arms: Sequence[str] = (),
    targets: Sequence[float] | None = None,
    by: str | None = None,
    latex: bool = False,
) -> Iterator[str]:
    """Compare the arms of a study, yield the text, and write the tables below FOLDER/figures.

    The text comes first, so that it is there also where nothing can be written.

    Named `arms` are a part of the study, whose tables have a folder of their own.

    What is chosen and allowed is explained at `load` and `apply_filter`, the rest at `compare`.
    With `latex` the tables are also written for LaTeX.
    """
    loaded = load(folder, runs, allow, priced=chosen.prices is not None)
    study = apply_filter(loaded, chosen)
    comparison = compare(study, arms, targets, by=by)
    judgements = judgements_of(loaded)
    planned = planned_lines(loaded, judgements)
    yield "\n".join([*planned, ""])
    if loaded.plans:
        yield EXPLORES
    yield format_comparison(comparison)

    figures = folder_for(folder, runs, chosen, compared=arms)
    (figures / "compare.ranking.csv").unlink(missing_ok=True)  # of an earlier comparison
    for name, table in tables_of(comparison).items():
        write_csv(figures / f"compare.{name}csv", table, study)
    if loaded.plans:
        write_csv(figures / "compare.plan.csv", plan_table(loaded, judgements), loaded)
    write_json(figures / "compare.json", {"planned": planned} | findings(comparison))
    if latex:
        for shown in shown_tables(comparison):
            write_latex(figures / f"compare.{shown.name}tex", shown.table)
    yield f"\ntables: {figures}/compare.*"


def tables_of(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """Return the tables that are written, by what their file names have after `compare.`."""
    tables = {"": comparison.contrasts, "arms.": comparison.arms, "speedup.": comparison.speedups}
    if comparison.ranking is not None:
        tables["ranking."] = comparison.ranking.table
    return tables


def findings(comparison: Comparison) -> dict[str, Any]:
    """Return where the tables come from, the settings, and what the comparison says."""
    study = comparison.study
    sentences = verdicts(comparison)
    if comparison.ranking is not None:
        sentences.insert(0, ranking_verdict(comparison))
    return provenance(study) | {
        "settings": {
            "metric": study.metric,
            "alpha": ALPHA,
            f"window_{comparison.unit}": [comparison.window.start, comparison.window.end],
            "primary_outcome": comparison.window.outcomes[0],
            "bootstrap_draws": comparison.draws,
            "bootstrap_seed": SEED,
            "seeds_pair_runs": study.seeded,
            "targets_given": comparison.given_targets,
        },
        "left_out": comparison.left_out,
        "verdicts": sentences,
        "caveats": list(caveats(comparison)),
    }


def format_comparison(comparison: Comparison) -> str:
    """Return what a comparison found: the ranking if there is one, sentences, tables, caveats."""
    parts = []
    if comparison.ranking is not None:
        parts.append(ranking_verdict(comparison))
    parts.append("\n".join(short(verdicts(comparison), rest=IN_JSON)))
    parts.append(format_tables(comparison))
    lines = [f"- {line}" for line in short(list(caveats(comparison)), rest=IN_JSON)]
    if lines:
        parts.append("\n".join(["caveats:", *lines]))
    return "\n\n".join(parts)


@dataclass(frozen=True)
class ShownTable:
    """A table as a reader sees it: some columns of a CSV file, shares in percent, as texts."""

    name: str  # what its file names have after `compare.`
    title: str
    table: pd.DataFrame


def shown_tables(comparison: Comparison) -> Iterator[ShownTable]:
    """Yield the tables for a reader."""
    study = comparison.study
    if comparison.ranking is not None:
        yield _ranking(comparison.ranking, study)

    means = [outcome + end for outcome in comparison.window.outcomes for end in ("", "_stderr")]
    arms = _scaled(comparison.arms[["series", "runs", *means]], means, study)
    yield _shown("arms.", _arms_title(comparison), arms, study)

    title = CONTRASTS_TITLE.format(unit=study.difference_unit)
    contrasts = _scaled(comparison.contrasts[TESTS], ["estimate", "low", "high"], study)
    yield _shown("", title, contrasts, study)

    if len(comparison.speedups):
        fast = "cheap" if study.x == "dollars" else "fast"
        title = SPEEDUPS_TITLE.format(unit=comparison.unit, fast=fast)
        yield _shown("speedup.", title, _speedups(comparison), study)


def format_tables(comparison: Comparison) -> str:
    """Return the tables for a screen, each below its title."""
    parts = []
    for shown in shown_tables(comparison):
        lines = shown.table.to_string(index=False).splitlines()
        rows = short(lines, rest=f"more in compare.{shown.name}csv")
        parts.append("\n".join([shown.title, *rows]))
    return "\n\n".join(parts)


def _shown(name: str, title: str, table: pd.DataFrame, study: Study) -> ShownTable:
    return ShownTable(name, title, by_key(table.map(_text), study))


def _ranking(ranking: Ranking, study: Study) -> ShownTable:
    """Show the arms from the best to the worst."""
    ranks = _scaled(ranking.table[RANKS], LEVELS, study).replace({"against_best": {BEST: ""}})
    unit = "%" if study.share else "in units of the score"
    title = (
        f"arms by {title_of(ranking.outcome, study)}, {unit}, and their difference to the best "
        "with its 95 % t interval;\nnot told apart: p after Holm's correction is not below 0.05"
    )
    return _shown("ranking.", title, ranks, study)


def _arms_title(comparison: Comparison) -> str:
    """Say of which study, measure and window the table of arms is."""
    study = comparison.study
    start = amount(comparison.window.start, study.x)
    end = amount(comparison.window.end, study.x)
    span = f"from {start} to {end}" if start != end else f"at {end}"
    clock = " of training clock" if study.x == "train_seconds" else ""
    if study.clock != MEASURED:
        clock += f" {study.clock}"
    shown = f"{measure(study)} in percent" if study.share else measure(study)
    return (
        f"{study.name}: {study.budget} per run on {', '.join(study.machines)}\n"
        f"{shown} {span}{clock}: mean over runs, stderr"
    )


def _scaled(table: pd.DataFrame, names: Sequence[str], study: Study) -> pd.DataFrame:
    """Return a table with some of its columns as they are shown, shares in percent."""
    scaled = table.copy()
    for name in names:
        scaled[name] = study.scale * table[name]
    return scaled


def _text(value: Any) -> str:
    """Write a cell; a number with two or three digits, and nothing for NaN."""
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.2g}"


def _speedups(comparison: Comparison) -> pd.DataFrame:
    """Choose the peak and the targets that the user gave, else the highest ones with a ratio."""
    table = comparison.speedups
    fixed = table.kind == "fixed"
    peak = table.kind == "peak"
    if not comparison.given_targets:
        contrasts = table[fixed & table.ratio.notna()].groupby(["series", "baseline"])
        fixed &= table.index.isin(contrasts.tail(SHOWN_TARGETS).index)

    shown = table[fixed | peak].copy()
    shown["target"] = (100 * shown.target).map("{:.4g} %".format)
    times = [comparison.unit, f"baseline_{comparison.unit}"]
    shown[times] = shown[times].replace(np.inf, "never")
    shown[RATIOS] = shown[RATIOS].replace(0, "never")
    return shown.drop(columns=["kind", "runs", "baseline_runs"])
