"""Draw a figure of the PODS paper from the authors' logs, and say what they give beside the paper.

Shapes: S = runs of an arm, G = times of the grid.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pods.analysis import plots
from pods.analysis.comparison.compare import compare
from pods.analysis.comparison.speedup import authors_rule, nearest
from pods.analysis.figures import Drawing
from pods.analysis.outcomes import RunCurve, run_curves
from pods.analysis.published.paper_figures import PaperFigure
from pods.analysis.statistics import Floats, mean_and_stderr
from pods.analysis.study import Study
from pods.analysis.tables import clock_text, run_table
from pods.analysis.view import View, choose

SEM_WIDTH = 1.96
"""Half width of the authors' bands, in standard errors."""
COMMIT = "187f43b"


@dataclass(frozen=True)
class Reproduction:
    """One figure, from one set of runs."""

    study: Study
    """The runs of the figure's arms, in its metric and window."""
    series: dict[str, str]
    """The name of each arm's curve in the study, by its name in the paper."""
    curves: dict[str, list[RunCurve]]
    """The complete runs of each arm, by its name in the paper."""
    grid: Floats
    """(G,) times after 0 at which the curves are drawn."""


def published(figure: PaperFigure, study: Study) -> Reproduction:
    """Take a figure's arms from the authors' logs.

    Raises:
        ValueError: the logs lack an arm, or are not those of the release at `COMMIT`.
    """
    made = _reproduction(figure, study, figure.seconds, figure.metric)
    if digest(made.study) != figure.digest:
        runs = ", ".join(f"{label}: {len(runs)} runs" for label, runs in made.curves.items())
        raise ValueError(
            f"{figure.name}: these logs ({runs}) are not those of the authors' repository at "
            f"{COMMIT}; import-published, plot and compare read them as they are"
        )
    return made


def own(figure: PaperFigure, study: Study) -> Reproduction:
    """Take a figure's arms from runs of one's own, over all of their training time.

    The grid has as many points as the paper's. Their verdict is the authors' lenient one if the
    runs have it, as in the paper.

    Raises:
        ValueError: the study lacks an arm.
    """
    rows, arms = study.evaluations, figure.arms
    by_authors = "lenient" in rows and rows.lenient.notna().all()
    metric = "lenient" if figure.metric == "accuracy" and by_authors else figure.metric
    sizes = {(arm.rule, arm.n, arm.m) for arm in arms}
    runs = study.runs[study.runs.complete]
    keys = zip(runs.rule, runs.n, runs.m, strict=True)
    shown = rows[rows.run.isin(runs.run[[key in sizes for key in keys]])]
    end = float(shown.groupby("run").train_seconds.max().min())
    return _reproduction(figure, study, end, metric)


def _reproduction(figure: PaperFigure, study: Study, seconds: float, metric: str) -> Reproduction:
    series = {}
    for arm in figure.arms:
        runs = study.runs
        fits = (runs.rule == arm.rule) & (runs.n == arm.n) & (runs.m == arm.m)
        names = runs.series[fits].unique()
        if len(names) != 1:
            present = " | ".join(runs.series.unique())
            raise ValueError(
                f"{figure.name}: study {study.name} must have one curve of rule={arm.rule} "
                f"n={arm.n} m={arm.m} ({arm.label}); it has {present}"
            )
        series[arm.label] = str(names[0])
    shown = choose(study, View(tuple(series.values()), metric, seconds))
    curves = {label: run_curves(shown, name) for label, name in series.items()}
    if empty := [label for label, runs in curves.items() if not runs]:
        raise ValueError(f"{figure.name}: {empty[0]} has no complete run in study {study.name}")
    return Reproduction(shown, series, curves, figure.grid() / figure.seconds * seconds)


def digest(study: Study) -> str:
    """Return the start of the SHA-256 of a study's evaluations, whichever files they came from."""
    columns = ["run", "step", "train_seconds", "accuracy", "length"]
    rows = study.evaluations[columns].sort_values(["run", "train_seconds", "step"])
    return hashlib.sha256(rows.to_csv(index=False, lineterminator="\n").encode()).hexdigest()[:16]


def irregular(study: Study) -> list[str]:
    """Return the lines about the irregular runs of the study's arms."""
    runs = study.runs.run[~study.runs.complete]
    return [
        line for line in study.missing if line.partition(":")[0].removesuffix(".json") in {*runs}
    ]


def speed_up(made: Reproduction) -> dict[str, float]:
    """Return the row of `authors_rule` of the second arm against the first one."""
    theirs, ours = list(made.curves.values())[:2]
    return authors_rule(ours, theirs, made.grid)


def lines(figure: PaperFigure, made: Reproduction, whose: str) -> list[str]:
    """Say what the runs give: a table of the arms, and beside the paper's number the speed-ups."""
    runs = run_table(made.study).set_index("series")
    end = clock_text(float(made.grid[-1]))
    rows = [
        {
            "arm": label,
            "curve": name,
            "runs": len(made.curves[label]),
            "s/step": f"{runs.seconds_per_step[name].mean():.2f}",
            f"% at {end}": _percent(nearest(made.curves[label], made.grid)[:, -1]),
            "% mean until then": _percent(runs.mean_accuracy[[name]].to_numpy(float)),
        }
        for label, name in made.series.items()
    ]
    table = pd.DataFrame(rows).to_string(index=False)
    return [f"{whose}, mean ± standard error over runs:", table, *_against(figure, made, whose)]


def _against(figure: PaperFigure, made: Reproduction, whose: str) -> list[str]:
    if figure.ratio is None:
        return []
    names = list(made.series.values())
    row, comparison = speed_up(made), compare(made.study, [names[1], names[0]])
    base, arm = made.series
    peak = comparison.speedups[comparison.speedups.kind == "peak"].iloc[0]
    mean = comparison.contrasts[comparison.contrasts.outcome == "mean_accuracy"].iloc[0]
    first, second = (clock_text(row[key]) for key in ("baseline_seconds", "seconds"))
    return [
        f"{arm} is at 99 % of {base}'s best (times as fast):",
        f"  the paper {figure.ratio:.2f}",
        f"  {whose}, by the authors' rule {row['ratio']:.2f} ({base} {first}, {arm} {second}; "
        f"{100 * row['target']:.2f} %)",
        f"  {whose}, medians of interpolated runs {peak.ratio:.2f} [{peak.low:.2f}, "
        f"{peak.high:.2f}], 95 % over resampled runs",
        f"  {whose}, mean over the time: {100 * mean.estimate:+.2f} points "
        f"[{100 * mean.low:.2f}, {100 * mean.high:.2f}]",
    ]


def _percent(values: Floats) -> str:
    """Show the mean and standard error of one arm's runs."""
    mean, stderr = mean_and_stderr(100 * values[:, None])
    return f"{mean[0]:.2f} ± {stderr[0]:.2f}"


def drawing(figure: PaperFigure, made: Sequence[tuple[str, Reproduction]]) -> Drawing:
    """Make the paper's figure from each set of runs: accuracy against time, seconds per step."""
    tables = pd.concat([_points(one).assign(runs=whose) for whose, one in made], ignore_index=True)

    def draw() -> Figure:
        axes_figure, panels = plots.panels(
            2 * len(made), 8.5 * len(made), 3.4, widths=[2.4, 1] * len(made)
        )
        for index, (whose, one) in enumerate(made):
            rows = tables[tables.runs == whose]
            _accuracy(panels[2 * index], figure, one, rows, whose)
            _step_times(panels[2 * index + 1], one)
        axes_figure.suptitle(figure.title)
        return axes_figure

    return Drawing(
        figure.name,
        f"{figure.title}: the paper's figure ({figure.source} at {COMMIT}) from the authors' logs. "
        "Mean over runs ± 1.96 standard errors, at the nearest evaluation.",
        draw,
        tables,
        pd.concat([run_table(one.study).assign(runs=whose) for whose, one in made]),
    )


def _points(made: Reproduction) -> pd.DataFrame:
    """Make one row per arm and time of the grid: arm, series, seconds, mean, stderr, n."""
    rows = []
    for label, runs in made.curves.items():
        mean, stderr = mean_and_stderr(nearest(runs, made.grid))
        rows.append(
            pd.DataFrame(
                {
                    "arm": label,
                    "series": made.series[label],
                    "seconds": made.grid,
                    "mean": mean,
                    "stderr": stderr,
                    "n": len(runs),
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def _accuracy(
    axes: Axes, figure: PaperFigure, made: Reproduction, table: pd.DataFrame, whose: str
) -> None:
    """Draw the curves; as in the paper, the base model at 0 s does not set the axis."""
    unit, _ = plots.time_unit(made.grid[-1])
    runs = np.concatenate([nearest(curves, made.grid) for curves in made.curves.values()])
    margin = 0.01 * (runs.max() - runs.min())
    for index, (label, points) in enumerate(table.groupby("arm", sort=False)):
        starts = [curve.accuracy[0] for curve in made.curves[str(label)] if curve.seconds[0] == 0]
        times = np.concatenate([[0.0] * bool(starts), points.seconds / unit])
        mean = 100 * np.concatenate([[np.mean(starts)] if starts else [], points["mean"]])
        band = 100 * SEM_WIDTH * np.concatenate([[0.0] * bool(starts), points.stderr])
        look = plots.style(index)
        axes.plot(times, mean, **look, markersize=4, label=f"{label} (n={points.n.iloc[0]})")
        axes.fill_between(times, mean - band, mean + band, color=look["color"], alpha=0.25)
    axes.set_ylim(100 * (runs.min() - margin), 100 * (runs.max() + margin))
    plots.time_axis(axes, float(made.grid[-1]), made.study.machines, made.study.clock)
    axes.set_ylabel(f"{plots.LABELS[made.study.metric]} (%)")
    axes.set_title(whose, fontsize=9)
    axes.legend(loc="lower right")
    axes.grid(visible=True, alpha=0.25)


def _step_times(axes: Axes, made: Reproduction) -> None:
    seconds = run_table(made.study).groupby("series").seconds_per_step.mean()
    for index, (label, name) in enumerate(made.series.items()):
        axes.bar(label, seconds[name], color=plots.style(index)["color"])
    axes.tick_params(axis="x", labelsize=7 if len(made.series) < 5 else 5.5)
    axes.set_ylabel("seconds per step")
    axes.grid(axis="y", alpha=0.25)
