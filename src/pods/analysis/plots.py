"""Tables to figures. A plot function takes axes and returns nothing; saving is apart."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from pods.analysis.curves import phase_columns
from pods.analysis.load import Study, by_run
from pods.runs.files import replace

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442",
           "#882255", "#999933", "#332288", "#999999")  # fmt: skip
MARKERS = "osD^vP*<>Xp"  # one fewer than colours, so that pairs repeat only after 132 series
MARKER_EVERY = 10
PHASE_COLOURS = {  # light ones, so that a phase is not taken for a curve
    "generate": "#56B4E9",
    "reward": "#F0E442",
    "select": "#CC79A7",
    "update": "#E69F00",
    "sync": "#999999",
}
LABELS = {
    "accuracy": "accuracy",
    "lenient": "accuracy by the PODS authors' grader",
    "format": "share in the asked form",
    "both": "right and in form",
    "length": "completion tokens",
    "reward": "training reward",
    "zero_variance_fraction": "groups without variance",
    "kept_reward_variance": "reward variance, trained on",
    "generated_rollouts": "rollouts generated a step",
    "rollouts_saved": "rollouts spared a step",
}
METADATA = {".png": {"Software": None}, ".pdf": {"CreationDate": None, "Producer": None},
            ".svg": {"Date": None, "Creator": None}}  # fmt: skip
UNITS = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def style(place: int) -> dict[str, Any]:
    """Colour and marker of the curve in this place of the legend."""
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}


def time_unit(seconds: float) -> tuple[float, str]:
    """Seconds of the unit that suits an axis of this length, and its sign."""
    return next((size, sign) for above, size, sign in UNITS if seconds >= above)


def against_time(
    axes: Axes, curve: pd.DataFrame, study: Study, unit: float, first: int = 0
) -> None:
    """One metric of each series against training time: mean, one standard error, a line a run.

    Args:
        axes: to draw on.
        curve: rows of one metric.
        study: that it is of; imported logs are dashed.
        unit: seconds of the time axis' unit.
        first: place in the legend of the first series.
    """
    metric = str(curve.metric.iloc[0])
    dash = "-" if study.seeded else "--"
    for place, (series, points) in enumerate(curve.groupby("series", sort=False), first):
        look, times = style(place), points.train_seconds / unit
        axes.add_collection(LineCollection(_of_runs(study, metric, str(series), unit), alpha=0.18,
                            color=look["color"], linewidth=0.7, linestyle=dash))  # fmt: skip
        axes.fill_between(times, points["mean"] - points.stderr, points["mean"] + points.stderr,
                          color=look["color"], alpha=0.25, linewidth=0)  # fmt: skip
        least, most = points.n.min(), points.n.max()
        count = f"{most}" if least == most else f"{least} to {most}"
        axes.plot(times, points["mean"], **look, markersize=4, linestyle=dash,
                  markevery=(place % MARKER_EVERY, MARKER_EVERY),
                  label=f"{series}  (n={count})")  # fmt: skip
    axes.grid(visible=True, alpha=0.25)


def _of_runs(study: Study, metric: str, series: str, unit: float) -> list[Any]:
    """(P, 2) time and value of each run; none of reward, which has a value a step."""
    if metric not in study.evaluations:
        return []
    rows = study.evaluations[study.evaluations.series == series]
    rows = rows.assign(time=rows.train_seconds / unit).sort_values("time", kind="stable")
    points = rows[["time", metric]].to_numpy()
    return [points[run] for run in by_run(rows).values()]


def time_axis(axes: Axes, seconds: float, machines: Sequence[str]) -> None:
    """Label the axis of training time."""
    size, sign = time_unit(seconds)
    axes.set_xlabel(f"training time on {', '.join(machines)} ({sign})")
    axes.set_xlim(0, seconds / size or 1.0)


def seconds_per_step(axes: Axes, summary: pd.DataFrame) -> None:
    """Mean seconds a step of each series, stacked by phase."""
    left = pd.Series(0.0, index=summary.index)
    slow = summary.seconds_per_step.max() >= 2
    factor, sign = (1.0, "s") if slow else (1000.0, "ms")
    for column in phase_columns(summary):
        phase = column.removeprefix("seconds/")
        if summary[column].sum() > 0.01 * summary.seconds_per_step.sum():
            axes.barh(summary.series, factor * summary[column], left=factor * left,
                      color=PHASE_COLOURS[phase], label=phase)  # fmt: skip
            left = left + summary[column].fillna(0)
    if not left.any():  # imported logs have no phases
        axes.barh(summary.series, factor * summary.seconds_per_step, color="#999999", label="all")
    axes.invert_yaxis()
    axes.set_xlabel(f"time of a step, mean over all steps ({sign})")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False)
    axes.grid(axis="x", alpha=0.25)


def outcome_by(axes: Axes, table: pd.DataFrame, by: str, name: str, label: str) -> None:
    """One outcome of finished runs against n, m or the rule: a dot a run, mean ± stderr.

    Args:
        axes: to draw on.
        table: a row a run, with the columns `by` and `name`.
        by: what is varied.
        name: the outcome.
        label: of it, with its unit.
    """
    values = sorted(table[by].unique())
    for place, value in enumerate(values):
        runs = table.loc[table[by] == value, name]
        axes.scatter([place] * len(runs), runs, s=12, alpha=0.35, color=COLOURS[0], linewidths=0)
    groups = table.groupby(by)[name]
    mean, stderr = groups.mean().loc[values], groups.sem().loc[values]
    axes.errorbar(range(len(values)), mean, yerr=stderr.fillna(0), color=COLOURS[0], marker="o",
                  linestyle="-" if by in ("n", "m") else "none", capsize=3,
                  label=f"mean ± 1 stderr over runs, n={_range(groups.count())}")  # fmt: skip
    words = [str(value) for value in values]
    tilt = 0 if sum(map(len, words)) < 40 else 30  # characters that fit beside each other
    axes.set_xticks(range(len(values)), words, rotation=tilt, ha="right" if tilt else "center")
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel({"n": "rollouts generated per prompt, n", "m": "rollouts trained on, m"}
                    .get(by, "down-sampling rule"))  # fmt: skip
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.25)


def _range(counts: "pd.Series[int]") -> str:
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}-{counts.max()}"


def panels(
    count: int, width: float, height: float, widths: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes in a row; sizes in inches, `widths` relative to each other."""
    matplotlib.rc("pdf", fonttype=42)  # text stays text
    matplotlib.rc("svg", hashsalt="pods")  # equal figures, equal bytes
    matplotlib.rc("font", size=9)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, width_ratios=widths)[0])


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write PNG, PDF and SVG, each in one step; the same figure gives the same bytes."""
    figure.draw_without_rendering()  # lays it out once, not for each format
    figure.set_layout_engine("none")
    for suffix, without in METADATA.items():
        drawn = BytesIO()
        figure.savefig(drawn, format=suffix[1:], dpi=150, metadata=without)
        replace(stem.with_suffix(suffix), drawn.getvalue())
    return [stem.with_suffix(suffix) for suffix in METADATA]
