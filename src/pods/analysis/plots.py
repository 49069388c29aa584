"""Tables to figures. A plot function takes axes and returns nothing; saving is apart."""

from io import BytesIO
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pods.analysis.curves import phase_columns
from pods.analysis.load import Study
from pods.runs.files import replace

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "osD^vP*"  # one fewer than colours, so that pairs repeat only after 56 series
MARKER_EVERY = 10
PHASE_COLOURS = {  # light ones, so that a phase is not taken for a curve
    "generate": "#56B4E9",
    "reward": "#F0E442",
    "select": "#CC79A7",
    "update": "#E69F00",
    "sync": "#999999",
}


def accuracy_vs_time(axes: Axes, curve: pd.DataFrame, study: Study) -> None:
    """Mean accuracy of each series against training seconds, one standard error, a line a run."""
    evaluations = study.evaluations
    for place, (series, points) in enumerate(curve.groupby("series", sort=False)):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        for _, rows in evaluations[evaluations.series == series].groupby("run"):
            run = rows.sort_values("train_seconds")
            axes.plot(run.train_seconds, run.accuracy, color=colour, alpha=0.15, linewidth=0.7)
        axes.fill_between(
            points.train_seconds,
            points["mean"] - points.stderr,
            points["mean"] + points.stderr,
            color=colour, alpha=0.25, linewidth=0,
        )  # fmt: skip
        axes.plot(
            points.train_seconds, points["mean"], color=colour, marker=marker, markersize=4,
            markevery=(place, MARKER_EVERY), label=f"{series}  (n={points.n.max()})",
        )  # fmt: skip
    repeats, questions = evaluations.repeats.max(), evaluations.questions.max()
    axes.set_xlabel(f"training time on {', '.join(study.machines)} (s)")
    axes.set_ylabel(f"accuracy (mean of {repeats} passes over {questions} questions)")
    axes.set_xlim(0, curve.train_seconds.max() or 1.0)
    axes.legend(title="mean over n seeds ± 1 stderr", loc="lower right")
    axes.grid(alpha=0.25)


def seconds_per_step(axes: Axes, summary: pd.DataFrame) -> None:
    """Mean seconds a step of each series, stacked by phase."""
    left = pd.Series(0.0, index=summary.index)
    for column in phase_columns(summary):
        phase = column.removeprefix("seconds/")
        if summary[column].sum() > 0.01 * summary.seconds_per_step.sum():
            axes.barh(summary.series, 1000 * summary[column], left=1000 * left,
                      color=PHASE_COLOURS[phase], label=phase)  # fmt: skip
            left = left + summary[column]
    axes.invert_yaxis()
    axes.set_xlabel("time of a step, mean over all steps (ms)")
    if left.any():
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False)
    axes.grid(axis="x", alpha=0.25)


def draw_study(curve: pd.DataFrame, summary: pd.DataFrame, study: Study, title: str) -> Figure:
    """Accuracy against time, and beside it where the time of a step goes."""
    plt.rcParams.update({"pdf.fonttype": 42, "font.size": 9})
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.2), width_ratios=(1.7, 1), layout="constrained"
    )
    accuracy_vs_time(left, curve, study)
    seconds_per_step(right, summary)
    figure.suptitle(title)
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write PNG and PDF, each in one step; the same figure gives the same bytes."""
    metadata = {".png": {"Software": None}, ".pdf": {"CreationDate": None, "Producer": None}}
    for suffix, without in metadata.items():
        drawn = BytesIO()
        figure.savefig(drawn, format=suffix[1:], dpi=150, metadata=without)
        replace(stem.with_suffix(suffix), drawn.getvalue())
    plt.close(figure)
    return [stem.with_suffix(suffix) for suffix in metadata]
