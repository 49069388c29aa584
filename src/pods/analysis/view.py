"""A choice of what the figures and tables of a study show: arms, metric and window."""

import hashlib
import re
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
    baseline: str | None = None
    """The arm that the others are compared with; none: the GRPO arm."""

    @property
    def folder(self) -> str:
        """The folder below `figures/` for this choice; the default choice has none, "".

        It is the choice as typed; characters unfit for a file name become `-`, and a hash follows
        then, or where the name is long, so that two choices have two folders.

        >>> View().folder, View(("pods", "grpo"), "both", 60.0).folder
        ('', 'arms=pods,grpo,metric=both,until=60')
        """
        parts = [f"arms={','.join(self.arms)}"] if self.arms else []
        parts += [f"metric={self.metric}"] if self.metric != "accuracy" else []
        parts += [] if self.until is None else [f"until={self.until!r}".removesuffix(".0")]
        parts += [] if self.baseline is None else [f"baseline={self.baseline}"]
        typed = ",".join(parts)
        name = re.sub(r"[^\w.,=-]", "-", typed)[:80]
        unequal = f"-{hashlib.sha256(typed.encode()).hexdigest()[:8]}"
        return name if name == typed else name + unequal


def choose(study: Study, view: View) -> Study:
    """Return the study with only the chosen arms, the metric as its accuracy, and the window.

    Raises:
        ValueError: the study has no such arm or metric, or no evaluation after 0 in the window; an
            arm is named twice; the baseline is not among the arms.
    """
    if view == View():
        return study  # in its own order, so that default tables keep their bytes
    names = [resolve(study, word) for word in view.arms] or list(study.runs.series.unique())
    if len({*names}) < len(names):
        raise ValueError(f"arms={','.join(view.arms)}: must be different ones, not one arm twice")
    baseline = None if view.baseline is None else resolve(study, view.baseline)
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline={view.baseline}: must be among the arms {' | '.join(names)}")
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
    further = study.further
    order = {name: index for index, name in enumerate(names)}
    by_arm = runs.series.map(order).sort_values(kind="stable").index
    return replace(
        study,
        runs=runs.loc[by_arm],
        evaluations=rows.assign(accuracy=rows[view.metric]),
        steps=study.steps[study.steps.run.isin(runs.run)],
        questions=study.questions[study.questions.run.isin(runs.run)],
        further=further if further.empty else further[further.run.isin(runs.run)],
        metric=view.metric,
        until=until,
        baseline=baseline,
    )
