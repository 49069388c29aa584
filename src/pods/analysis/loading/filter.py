"""A choice of what the figures and tables of a study show: arms, metric, x and window."""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from pods.analysis.loading.study import Study, passes

METRICS = ("accuracy", "lenient", "format", "both")
"""What can take the place of the accuracy, as each pass@k can; see `Study.evaluations`."""


@dataclass(frozen=True)
class StudyFilter:
    """What a user chose to see of a study."""

    arms: Sequence[str] = ()
    """Labels of arms, rules, or names of curves, as in `resolve`; empty: all."""
    metric: str = "accuracy"  # one of `METRICS`, or pass@k
    until: float | None = None
    """End of the window, in the unit of x; None: the study's own, which is in seconds."""
    baseline: str | None = None
    """The arm that the others are compared with; none: the GRPO arm."""
    x: str = "train_seconds"  # what curves are drawn over; or steps

    @property
    def folder(self) -> str:
        """The folder below `figures/` for this choice; the default choice has none, "".

        >>> StudyFilter().folder, StudyFilter(("pods", "grpo"), "both", 60.0).folder
        ('', 'arms=pods,grpo,metric=both,until=60')
        """
        parts = {
            "arms": ",".join(self.arms),
            "metric": "" if self.metric == "accuracy" else self.metric,
            "x": "" if self.x == "train_seconds" else self.x,
            "until": "" if self.until is None else repr(self.until).removesuffix(".0"),
            "baseline": self.baseline or "",
        }
        return folder_name(",".join(f"{key}={value}" for key, value in parts.items() if value))


def folder_name(typed: str) -> str:
    """Return the name of the folder for a choice, which is the choice as typed.

    Characters unfit for a file name become `-`. Then, or if the name is long, a hash follows, so
    that two choices have two folders.

    >>> folder_name("arms=a b")
    'arms=a-b-c0220983'
    """
    name = re.sub(r"[^\w.,=@-]", "-", typed)[:80]
    digest = hashlib.sha256(typed.encode()).hexdigest()[:8]
    return name if name == typed else f"{name}-{digest}"


def apply_filter(study: Study, chosen: StudyFilter) -> Study:
    """Return the study with only the chosen arms, the metric as its accuracy, x and the window.

    `ValueError`: the study has no such arm, metric or x, or no evaluation after 0 in the window;
    an arm is named twice; the baseline is not among the arms.
    """
    if chosen == StudyFilter():
        return study  # in its own order, so that default tables keep their bytes
    names, baseline = _arms(study, chosen)
    by_name = partial(pd.Series.map, arg={name: place for place, name in enumerate(names)})
    for table in ("runs", "evaluations", "steps"):
        rows = getattr(study, table)
        rows = rows[rows.series.isin(names)].sort_values("series", key=by_name, kind="stable")
        study = replace(study, **{table: rows})
    rows, steps = _measured(study, chosen.metric), study.steps
    xs = ["train_seconds"]
    if rows.step.notna().all():
        xs.append("steps")
    if chosen.x not in xs:
        raise ValueError(f"x={chosen.x}: must be {' or '.join(xs)}")
    if chosen.x == "steps":
        rows, steps = rows.assign(steps=rows.step), steps.assign(steps=steps.step)
    own = study.until if chosen.x == "train_seconds" else math.inf
    until, at = own if chosen.until is None else chosen.until, rows[chosen.x][rows[chosen.x] > 0]
    if len(at) and not (at <= until).any():
        unit = "s" if chosen.x == "train_seconds" else chosen.x
        first = f"the first evaluation, at {at.min():g} {unit}"
        raise ValueError(f"until={until:g}: must be at or after {first}")
    shown = replace(study, evaluations=rows, steps=steps, metric=chosen.metric, x=chosen.x)
    return replace(shown, until=until, baseline=baseline)


def resolve(study: Study, word: str) -> str:
    """Find the curve meant by an arm's label, a rule, or a curve's name (-> may stand for →).

    `ValueError`: no curve fits, or several do; the message lists the candidates.
    """
    name = word.replace("->", "→").strip()
    runs, series = study.runs, list(dict.fromkeys(study.runs.series))
    if name in series:
        return name
    before_keys = runs.series.str.partition(",")[0]
    fits = (runs.arm == name) | (runs.rule == name) | (before_keys == name)
    fits |= before_keys.str.endswith(f" {name}")  # imported logs: GSM8K pods 64→16
    matches = list(dict.fromkeys(runs.series[fits]))
    if len(matches) != 1:
        fault = f"is {'ambiguous' if matches else 'unknown'} in study {study.name}"
        allowed = f": must be one of {' | '.join(matches or series)}"
        folders = [] if matches or "folder" not in runs else map(Path, runs.folder)
        if any((folder.parents[3] / name).is_dir() for folder in folders):
            allowed = f"; did you mean pods compare --study {name}?"
        raise ValueError(f"arm {word!r} {fault}{allowed}")
    return str(matches[0])


def default_baseline(study: Study) -> str | None:
    """Return the chosen baseline; else the only curve labelled `grpo`, or with n = m."""
    if study.baseline is not None:
        return study.baseline
    runs = study.runs[study.runs.complete]
    for fits in (runs.arm == "grpo", (runs.rule == "all") & (runs.n == runs.m)):
        names = runs.series[fits].unique()
        if len(names) == 1:
            return str(names[0])
    return None


def _arms(study: Study, chosen: StudyFilter) -> tuple[list[str], str | None]:
    names = [resolve(study, word) for word in chosen.arms] or list(study.runs.series.unique())
    if len({*names}) < len(names):
        raise ValueError(f"arms={','.join(chosen.arms)}: must be different ones, not one arm twice")
    baseline = None if chosen.baseline is None else resolve(study, chosen.baseline)
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline={chosen.baseline}: must be among the arms {' | '.join(names)}")
    return names, baseline


def _measured(study: Study, metric: str) -> pd.DataFrame:
    rows = study.evaluations
    names = [*(name for name in METRICS if name in rows), *passes(rows)]
    present = [name for name in names if rows[name].notna().all()]
    if metric not in present:
        answers = f"; a question has {rows.repeats.min():.0f} answers" * metric.startswith("pass@")
        raise ValueError(f"metric={metric}: must be one of {', '.join(present)}{answers}")
    return rows.assign(accuracy=rows[metric])
