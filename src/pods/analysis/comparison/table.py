"""A comparison for a screen, as tables for files, and as JSON."""

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.comparison.compare import Comparison
from pods.analysis.comparison.words import needed, paragraphs
from pods.analysis.outcomes import OUTCOMES
from pods.analysis.power import MOST_RUNS
from pods.analysis.statistics import ALPHA
from pods.analysis.tables import at

SHOWN_TARGETS = 3
WIDTH = 118
Record = Any  # a row of a table, by attribute


def tables(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """What to write beside the study's figures, by file name."""
    return {
        "compare.csv": comparison.contrasts,
        "compare.arms.csv": comparison.arms,
        "compare.speedup.csv": comparison.speedups,
        "compare.questions.csv": comparison.questions,
    }


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, with its settings. No NaN: null; no infinity: a word."""
    study = comparison.study
    return {
        "study": study.name,
        "budget": study.budget,
        "machines": study.machines,
        "settings": {
            "alpha": ALPHA,
            "window_seconds": [comparison.window.start, comparison.window.end],
            "primary_outcome": next(iter(OUTCOMES)),
            "bootstrap_draws": comparison.draws,
            "bootstrap_seed": comparison.seed,
            "seeds_pair_runs": study.seeded,
            "targets_given": comparison.given_targets,
        },
        **{name: [_plain(row) for row in table.to_dict("records")]
           for name, table in (("arms", comparison.arms), ("contrasts", comparison.contrasts),
                               ("speedups", comparison.speedups),
                               ("questions", comparison.questions))},
        "left_out": comparison.left_out,
        "missing": study.holes,
        "not_alike": study.mixed,
        "note": study.note,
        "words": paragraphs(comparison),
    }  # fmt: skip


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    return {str(key): _value(str(key), value) for key, value in row.items()}


def _value(key: str, value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, float) or np.isfinite(plain):
        return plain
    if np.isnan(plain):
        return None
    if key == "runs_needed":
        return f"more than {MOST_RUNS}"
    return "not reached" if key.endswith("seconds") else "infinite"


def format_comparison(comparison: Comparison) -> str:
    """Arms, differences in points, and speed-ups, for a screen of 120 columns."""
    differences = [_difference(row) for row in comparison.contrasts.itertuples()]
    speed = list(_shown(comparison))
    parts = [
        f"{comparison.study.name}: {comparison.study.budget} a run on "
        f"{', '.join(comparison.study.machines)}\naccuracy (%) from "
        f"{at(comparison.window.start)} to {at(comparison.window.end)}: ± stderr over runs, 95 % t "
        "interval, interquartile mean",
        _aligned([_arm(row) for row in comparison.arms.itertuples()]),
        "differences in points, 95 % intervals; least: the true one found with 80 % power; needed: "
        "runs an arm (or\npairs) for 80 % power if the truth is what was seen",
        _grouped(comparison.contrasts, differences),
        *([_grouped(pd.DataFrame([row for row, _ in speed]), [cells for _, cells in speed])]
          if speed else []),
    ]  # fmt: skip
    return "\n\n".join(parts)


def format_words(comparison: Comparison) -> str:
    """The same in sentences, wrapped."""
    return "\n\n".join(textwrap.fill(part, WIDTH) for part in paragraphs(comparison).split("\n\n"))


def _arm(row: Record) -> dict[str, str]:
    cells = {"arm": row.series, "runs": f"{row.n}", "left out": f"{row.left_out}"}
    for name, title in OUTCOMES.items():
        mean, stderr, low, high, iqm = (
            100 * getattr(row, name + part) for part in ("", "_stderr", "_low", "_high", "_iqm")
        )
        cells[title] = f"{mean:.2f}" + ("" if np.isnan(stderr) else f" ± {stderr:.2f}")
        cells[f"t{' ' * len(cells)}"] = _interval(low, high)
        cells[f"IQM{' ' * len(cells)}"] = f"{iqm:.2f}"
    return cells


def _difference(row: Record) -> dict[str, str]:
    return {
        "": OUTCOMES[row.outcome],
        "n": f"{row.n}" if row.design == "paired" else f"{row.n}+{row.baseline_n}",
        "estimate": f"{100 * row.estimate:+.2f}",
        "t": _interval(100 * row.low, 100 * row.high),
        "bootstrap": _interval(100 * row.bootstrap_low, 100 * row.bootstrap_high),
        "higher": f"{row.higher:.0f}/{row.n}" if row.design == "paired" else "",
        "p": _p(row.p),
        "Holm": _p(row.p_holm),
        "exact p": _p(row.exact_p),
        "Holm ": _p(row.exact_p_holm),
        "least": "" if np.isnan(row.detectable) else f"{100 * row.detectable:.2f}",
        "needed": _count(row.runs_needed),
    }  # fmt: skip


def _shown(comparison: Comparison) -> Iterator[tuple[Record, dict[str, str]]]:
    """Peak and the highest targets that half of either arm reaches; all that the user asked for."""
    if not len(comparison.speedups):
        return
    for _, rows in comparison.speedups.groupby(["series", "baseline"], sort=False):
        fixed = rows[rows.kind == "fixed"]
        if not comparison.given_targets:
            fixed = fixed[fixed.ratio.notna()].tail(SHOWN_TARGETS)
        for row in pd.concat([fixed, rows[rows.kind != "fixed"]]).itertuples():
            yield row, _speed(row)


def _speed(row: Record) -> dict[str, str]:
    kind = {"fixed": "", "peak": " (99 % of its peak)"}.get(row.kind, " (the authors' rule)")
    bound = "" if np.isnan(row.bound) else (">" if row.ratio else "<")
    ratio = row.bound if bound else row.ratio
    told = 0 < row.ratio < np.inf  # else an interval would be of misses, not of times
    return {
        "": f"to {100 * row.target:.4g} %{kind}",
        "arm": _time(row.seconds),
        "reached": f"{row.reached}/{row.n}",
        "baseline": _time(row.baseline_seconds),
        "reached ": f"{row.baseline_reached}/{row.baseline_n}",
        "times as fast": f"{bound}{ratio:.2f}" if told or bound else "",
        "95 %": _interval(row.low, row.high) if told and row.low < row.high else "",
        "in steps": f"{row.steps_ratio:.2f}" if 0 < row.steps_ratio < np.inf else "",
    }


def _grouped(rows: pd.DataFrame, cells: list[dict[str, str]]) -> str:
    """A table with a heading wherever a contrast begins."""
    header, *lines = _aligned(cells).split("\n")
    found, before = [header], None
    for row, line in zip(rows.itertuples(), lines, strict=True):
        if (row.series, row.baseline) != before:
            before = (row.series, row.baseline)
            found.append(f"{row.series} − {row.baseline}")
        found.append(line)
    return "\n".join(found)


def _aligned(cells: list[dict[str, str]]) -> str:
    """Columns side by side, the first one to the left."""
    columns = [[name.strip(), *(row[name] for row in cells)] for name in cells[0]]
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for row in zip(*columns, strict=True):
        first, *rest = (
            text.rjust(width) if place else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([f" {first}", *rest]).rstrip())
    return "\n".join(lines)


def _interval(low: float, high: float) -> str:
    return "" if np.isnan(low) else f"[{low:.2f}, {high:.2f}]".replace("inf", "∞")


def _count(runs: float) -> str:
    return "" if np.isnan(runs) else needed(runs).replace("more than ", ">")


def _p(p: float) -> str:
    return "" if np.isnan(p) else "<0.0001" if p < 0.0001 else f"{p:.2g}"


def _time(value: float) -> str:
    return at(value) if np.isfinite(value) else "not reached"
