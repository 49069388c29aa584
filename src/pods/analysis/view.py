"""A choice of what the figures and tables of a study show: arms, metric, x and window."""

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from pods.analysis.comparison.contrasts import resolve
from pods.analysis.retime import at_evaluations, retimed, running_total
from pods.analysis.series_names import SEPARATOR
from pods.analysis.study import Study
from pods.config.clock_model import ClockModel

SHARES = ("accuracy", "lenient", "format", "both")
"""Shares of the answers that can take the place of the accuracy; see `Study.evaluations`."""
METRICS = (*SHARES, "length", "reward")
"""What figures can show: also the mean number of tokens of the answers, and the training reward,
its mean over the steps since the evaluation before, which the evaluation at step 0 does not have.
"""
SUMMED = {
    "rollouts": "generated_rollouts",
    "generated_tokens": "generated_tokens",
    "trained_tokens": "trained_tokens",
}
"""What curves can be drawn over besides train_seconds and steps: sums of columns of `Study.steps`
over all steps until an evaluation, which is always made at the end of a step."""


@dataclass(frozen=True)
class View:
    """What a user chose to see of a study."""

    arms: Sequence[str] = ()
    """Labels of arms, rules, or names of curves, as in `contrasts.resolve`; empty: all."""
    metric: str = "accuracy"
    """One of `METRICS`."""
    until: float | None = None
    """End of the window, in the unit of x; None: the study's own, which is in seconds."""
    baseline: str | None = None
    """The arm that the others are compared with; none: the GRPO arm."""
    x: str = "train_seconds"
    """What curves are drawn over: train_seconds, steps, or one of `SUMMED`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Another name for some arms, in all figures and tables."""
    studies: Sequence[str] = ()
    """Further studies whose runs are shown with the study's own; `load` has read them."""
    clock: ClockModel | None = None
    """Prices of the machine whose clock is shown; None: the clock that the runs had."""

    @property
    def folder(self) -> str:
        """The folder below `figures/` for this choice; the default choice has none, "".

        It is the choice as typed; characters unfit for a file name become `-`, and a hash follows
        then, or where the name is long, so that two choices have two folders.

        >>> View().folder, View(("pods", "grpo"), "both", 60.0).folder
        ('', 'arms=pods,grpo,metric=both,until=60')
        """
        parts = [f"with={','.join(self.studies)}"] if self.studies else []
        parts += [f"arms={','.join(self.arms)}"] if self.arms else []
        parts += [f"metric={self.metric}"] if self.metric != "accuracy" else []
        parts += [] if self.clock is None else [f"clock={self.clock.name}"]
        parts += [f"x={self.x}"] if self.x != "train_seconds" else []
        parts += [] if self.until is None else [f"until={self.until!r}".removesuffix(".0")]
        parts += [] if self.baseline is None else [f"baseline={self.baseline}"]
        parts += [f"{arm}={label}" for arm, label in self.labels.items()]
        typed = ",".join(parts)
        name = re.sub(r"[^\w.,=-]", "-", typed)[:80]
        unequal = f"-{hashlib.sha256(typed.encode()).hexdigest()[:8]}"
        return name if name == typed else name + unequal


def choose(study: Study, view: View) -> Study:
    """Return the study with only the chosen arms, the metric as its accuracy, x and the window.

    Raises:
        ValueError: the study has no such arm, metric or x, or no evaluation after 0 in the window;
            an arm is named twice; the baseline is not among the arms; two arms get one label.
    """
    if view == View(studies=view.studies):
        return study  # in its own order, so that default tables keep their bytes
    words = _rejoined(view.arms, set(study.runs.series))
    names = [resolve(study, word) for word in words] or list(study.runs.series.unique())
    if len({*names}) < len(names):
        raise ValueError(f"arms={','.join(view.arms)}: must be different ones, not one arm twice")
    baseline = None if view.baseline is None else resolve(study, view.baseline)
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline={view.baseline}: must be among the arms {' | '.join(names)}")
    study = _only(study, names)
    if view.clock is not None:
        study = retimed(study, view.clock)
    runs, rows, steps = study.runs, study.evaluations, study.steps
    rows = rows.assign(reward=_reward(rows, steps)) if "reward" in steps else rows
    present = [metric for metric in METRICS if metric in rows and rows[metric].notna().any()]
    if view.metric not in present:
        raise ValueError(f"metric={view.metric}: must be one of {', '.join(present)}")
    rows = rows.assign(accuracy=rows[view.metric])
    if view.metric == "reward":
        rows = rows.dropna(subset="accuracy")
    rows = rows.drop(columns="reward", errors="ignore")
    if view.x != "train_seconds":
        rows, steps = _over(view.x, rows, steps)
    own = study.until if view.x == "train_seconds" else math.inf
    until, at = own if view.until is None else view.until, rows[view.x][rows[view.x] > 0]
    if len(at) and not (at <= until).any():
        unit = "s" if view.x == "train_seconds" else view.x
        raise ValueError(
            f"until={until:g}: must be at or after the first evaluation, at {at.min():g} {unit}"
        )
    order = {name: index for index, name in enumerate(names)}
    runs, rows, steps = (
        table.iloc[table.series.map(order).argsort(kind="stable")]  # labels of rows may repeat
        for table in (runs, rows, steps)
    )
    chosen = replace(
        study,
        runs=runs,
        evaluations=rows,
        steps=steps,
        metric=view.metric,
        x=view.x,
        until=until,
        baseline=baseline,
    )
    return _labelled(chosen, {resolve(study, arm): label for arm, label in view.labels.items()})


def _only(study: Study, names: Collection[str]) -> Study:
    """Leave out all other curves."""
    tables = {
        name: table[table.series.isin(names)]
        for name in ("runs", "evaluations", "steps", "questions", "further")
        if "series" in (table := getattr(study, name))
    }
    return replace(study, **tables)


def _labelled(study: Study, labels: Mapping[str, str]) -> Study:
    """Give arms another name."""
    present = list(study.runs.series.unique())
    for name, label in labels.items():
        others = [labels.get(other, other) for other in present if other != name]
        if label in others or not label.strip():
            raise ValueError(f"label={name}={label}: must be a text that no other arm has")
    tables = {
        name: table.assign(series=table.series.replace(dict(labels)))
        for name in ("runs", "evaluations", "steps", "questions", "further")
        if "series" in (table := getattr(study, name))
    }
    if labels:  # what else distinguishes a curve is read from its own name
        tables["runs"]["curve"] = study.runs.series
    baseline = study.baseline and labels.get(study.baseline, study.baseline)
    return replace(study, **tables, baseline=baseline)


def _rejoined(words: Sequence[str], names: Collection[str]) -> Iterator[str]:
    """Put names of curves together again that were split where they have a comma.

    >>> list(_rejoined(["grpo", "pods 4->2", "seed=1"], {"pods 4→2, seed=1", "grpo 2→2"}))
    ['grpo', 'pods 4→2, seed=1']
    >>> list(_rejoined(["pods 4→2, seed=1", "grpo"], {"pods 4→2, seed=1", "grpo 2→2"}))
    ['pods 4→2, seed=1', 'grpo']
    """
    rest = list(words)
    while rest:
        joined = {k: SEPARATOR.join(rest[:k]).replace("->", "→") for k in range(len(rest), 1, -1)}
        count = next((k for k, name in joined.items() if name in names), 1)
        yield joined.get(count, rest[0])
        del rest[:count]


def _over(x: str, rows: pd.DataFrame, steps: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add the column x to evaluations and steps.

    Raises:
        ValueError: it is not recorded at each evaluation; the message names what is.
    """
    totals = {"steps": steps.step}
    totals |= {name: running_total(steps, of) for name, of in SUMMED.items() if of in steps}
    at = {"steps": rows.step}
    at |= {
        name: at_evaluations(total, rows, steps) for name, total in totals.items() if name in SUMMED
    }
    present = ["train_seconds", *(name for name, values in at.items() if values.notna().all())]
    if x not in present:
        raise ValueError(f"x={x}: must be one of {', '.join(present)}")
    return rows.assign(**{x: at[x]}), steps.assign(**{x: totals[x]})


def _reward(rows: pd.DataFrame, steps: pd.DataFrame) -> "pd.Series[float]":
    """Average the training reward over a run's steps since the evaluation before; NaN at step 0."""
    ordered = rows.sort_values("step", kind="stable")
    total = at_evaluations(running_total(steps, "reward"), ordered, steps)
    gained, made = total.groupby(ordered.run).diff(), ordered.groupby("run").step.diff()
    return (gained / made).reindex(rows.index)
