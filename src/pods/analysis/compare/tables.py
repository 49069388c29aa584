"""Write a comparison as CSV and JSON, and show it on a screen: sentences, tables, caveats."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.compare.compare import SEED, Comparison, compare
from pods.analysis.compare.ranking import BEST, Ranking
from pods.analysis.compare.text import caveats, ranking_verdict, verdicts
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.loading.study import MEASURED
from pods.analysis.numbers.outcomes import MEASURES, OUTCOMES, amount
from pods.analysis.numbers.statistics import ALPHA
from pods.analysis.writing import figures_folder, provenance, write_csv, write_json

MEANS = {"mean": "", "stderr": "_stderr", "low": "_low", "high": "_high"}
SHOWN_TARGETS = 3


def compare_study(
    folder: Path,
    runs: Sequence[Path],
    chosen: StudyFilter,
    allow: bool = False,
    *,
    arms: Sequence[str] = (),
    targets: Sequence[float] | None = None,
    by: str | None = None,
) -> Iterator[str]:
    """Compare the arms of a study, write the tables below FOLDER/figures, and yield the text.

    What is chosen and allowed is explained at `load` and `apply_filter`, the rest at `compare`.
    """
    study = apply_filter(load(folder, runs, allow), chosen)
    found = compare(study, arms, targets, by=by)
    figures = figures_folder(folder, chosen.folder)
    for name, table in tables_of(found).items():
        write_csv(figures / f"compare.{name}csv", table, study)
    write_json(figures / "compare.json", findings(found))
    yield format_comparison(found)
    yield f"\ntables: {figures}/compare.*"


def tables_of(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """Return the tables that are written, by what their file names have after `compare.`."""
    tables = {"": comparison.contrasts, "arms.": comparison.arms, "speedup.": comparison.speedups}
    return tables | ({"ranking.": comparison.ranking.table} if comparison.ranking else {})


def findings(comparison: Comparison) -> dict[str, Any]:
    """Return where the tables come from, the settings, and what the comparison says."""
    study = comparison.study
    return {
        **provenance(study),
        "settings": {
            "metric": study.metric,
            "alpha": ALPHA,
            f"window_{comparison.unit}": [comparison.window.start, comparison.window.end],
            "primary_outcome": next(iter(OUTCOMES)),
            "bootstrap_draws": comparison.draws,
            "bootstrap_seed": SEED,
            "seeds_pair_runs": study.seeded,
            "targets_given": comparison.given_targets,
        },
        "left_out": comparison.left_out,
        "verdicts": [*filter(None, [ranking_verdict(comparison)]), *verdicts(comparison)],
        "caveats": list(caveats(comparison)),
    }


def format_comparison(comparison: Comparison) -> str:
    """Return what a comparison found: the ranking if there is one, sentences, tables, caveats."""
    listed = [f"- {line}" for line in caveats(comparison)]
    parts = [
        ranking_verdict(comparison),
        "\n".join(verdicts(comparison)),
        format_tables(comparison),
        "\n".join(["caveats:", *listed] if listed else []),
    ]
    return "\n\n".join(filter(None, parts))


def format_tables(comparison: Comparison) -> str:
    """Return the tables for a screen, with columns named as in the CSV files, which have more."""
    study, span = comparison.study, comparison.window
    clock = " of training clock" if study.x == "train_seconds" else ""
    clock += "" if study.clock == MEASURED or not clock else f" {study.clock}"
    tests = _named(comparison.contrasts, ["estimate", "low", "high"])
    tables = {} if comparison.ranking is None else _ranking(comparison.ranking)
    tables |= {
        f"{study.name}: {study.budget} per run on {', '.join(study.machines)}\n"
        f"{MEASURES[study.metric]} in percent "
        f"from {amount(span.start, study.x)} to {amount(span.end, study.x)}{clock}: mean "
        "over runs, stderr, 95 % t interval": _arms(comparison.arms),
        "differences in points: estimate, 95 % t interval, p of the t test (paired over seeds, or "
        "Welch's)": tests[["design", "n", "baseline_n", "estimate", "low", "high", "p", "p_holm"]],
    }
    if len(comparison.speedups):
        tables[
            f"median {comparison.unit} to a target (inf: missed by half of the "
            "runs), runs that reach it, how many times as fast;\nbound: what is certain of the "
            "ratio; peak: 99 % of the baseline's peak"
        ] = _speedups(comparison)
    shown = {
        title: table.to_string(na_rep="", float_format=_number) for title, table in tables.items()
    }
    return "\n\n".join(f"{title}\n{table}" for title, table in shown.items())


def _ranking(ranking: Ranking) -> dict[str, pd.DataFrame]:
    """Return the arms from the best, in percent and points."""
    table = ranking.table[["rank", "series", "runs", "value", "stderr", "estimate", "low", "high"]]
    table = table.assign(against_best=ranking.table.against_best.replace(BEST, ""))
    table[["value", "stderr", "estimate", "low", "high"]] *= 100
    title = (
        f"arms by {OUTCOMES[ranking.outcome]}, %, and their difference to the best with its 95 % t "
        "interval;\nwithin noise: p after Holm's correction is above 0.05"
    )
    return {title: table.set_index("rank")}


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


def _speedups(comparison: Comparison) -> pd.DataFrame:
    """Choose the peak and the targets that the user gave, else the highest ones with a ratio."""
    table = comparison.speedups
    fixed, peak = table.kind == "fixed", table.kind == "peak"
    if not comparison.given_targets:
        contrasts = table[fixed & table.ratio.notna()].groupby(["series", "baseline"])
        fixed &= table.index.isin(contrasts.tail(SHOWN_TARGETS).index)
    kinds = table.kind.map({"fixed": "", "peak": " (peak)"})
    table = table.assign(target=(100 * table.target).map("{:.4g} %".format) + kinds)
    named = _named(table[fixed | peak], [])
    short = {"baseline_reached": "reached", "steps_ratio": "in steps"}
    short[f"baseline_{comparison.unit}"] = "baseline"
    return named.drop(columns=["kind", "n", "baseline_n"]).rename(columns=short)
