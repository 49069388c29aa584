"""A choice of what the figures and tables of a study show: arms, metric and window."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pods.analysis.comparison.contrasts import resolve
from pods.analysis.study import Study

METRICS = ("accuracy", "lenient", "format", "both")
"""Shares of the answers that can take the place of the accuracy; see `Study.evaluations`."""


@dataclass(frozen=True)
class View:
    """What a user chose to see of a study."""

    arms: Sequence[str] = ()
    """Labels of arms, rules, or names of curves, as in `contrasts.resolve`; empty: all."""
    metric: str = "accuracy"
    """One of `METRICS`."""
    until: float | None = None
    """End of the window, in seconds of training clock; None: the study's own."""


def choose(study: Study, view: View) -> Study:
    """Return the study with only the chosen arms, the metric as its accuracy, and the window.

    Raises:
        ValueError: the study has no such arm or metric, or no evaluation after 0 in the window.
    """
    names = [resolve(study, word) for word in view.arms] or list(study.runs.series.unique())
    runs = study.runs[study.runs.series.isin(names)]
    rows = study.evaluations[study.evaluations.run.isin(runs.run)]
    present = [metric for metric in METRICS if metric in rows and rows[metric].notna().any()]
    if view.metric not in present:
        raise ValueError(f"metric={view.metric}: must be one of {', '.join(present)}")
    until, times = view.until or study.until, rows.train_seconds[rows.train_seconds > 0]
    if not (times <= until).any():
        raise ValueError(
            f"until={until:g}: must be at or after the first evaluation, at {times.min():g} s"
        )
    order = {name: index for index, name in enumerate(names)}
    by_arm = runs.series.map(order).sort_values(kind="stable").index
    return replace(
        study,
        runs=runs.loc[by_arm],
        evaluations=rows.assign(accuracy=rows[view.metric]),
        steps=study.steps[study.steps.run.isin(runs.run)],
        questions=study.questions[study.questions.run.isin(runs.run)],
        metric=view.metric,
        until=until,
    )
