"""A choice of what the figures and tables of a study show: arms, metric, x and window."""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from pods.analysis.loading.arm_names import curves_named, resolve
from pods.analysis.loading.budgets import in_budgets, unit_of
from pods.analysis.loading.prices import at_prices
from pods.analysis.loading.study import Study, passes
from pods.config.price_card import PriceCard

METRICS = ("accuracy", "lenient", "format", "both")
"""What can take the place of the accuracy, as each pass@k can; see `Study.evaluations`."""


@dataclass(frozen=True)
class StudyFilter:
    """What a user chose to see of a study."""

    arms: Sequence[str] = ()
    """What names the curves to show, as in `curves_named`; empty: all."""
    metric: str = "accuracy"  # one of `METRICS`, or pass@k
    until: float | None = None
    """End of the window, in the unit of x; None: the study's own, which is in seconds."""
    baseline: str | None = None
    """The arm that the others are compared with; none: the GRPO arm."""
    x: str = "train_seconds"  # what curves are drawn over; or steps
    prices: PriceCard | None = None
    """By which the clock is made; None: it is the measured one. `ValueError`: x is not the time."""

    def __post_init__(self) -> None:
        if self.prices is not None and self.x != "train_seconds":
            name = self.prices.name
            raise ValueError(f"x={self.x}: must be train_seconds with prices={name}, which make it")

    @property
    def folder(self) -> str:
        """The folder below `figures/` for this choice; the default choice has none, "".

        >>> StudyFilter().folder, StudyFilter(("pods", "grpo"), "both", 60.0).folder
        ('', 'arms=pods,grpo,metric=both,until=60')
        """
        parts = []
        if self.arms:
            parts.append(f"arms={','.join(self.arms)}")
        if self.metric != "accuracy":
            parts.append(f"metric={self.metric}")
        if self.x != "train_seconds":
            parts.append(f"x={self.x}")
        if self.prices is not None:
            parts.append(f"prices={self.prices.name}")
        if self.until is not None:
            parts.append(f"until={repr(self.until).removesuffix('.0')}")
        if self.baseline is not None:
            parts.append(f"baseline={self.baseline}")
        return folder_name(",".join(parts))


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

    The clock is made by the chosen prices, see `at_prices`.

    `ValueError`: the study has no such arm, metric or x, or no evaluation after 0 in the window;
    an arm is named twice; the baseline is not among the arms.
    """
    if chosen == StudyFilter():
        return in_budgets(study, None)  # in its own order, so that default tables keep their bytes
    names = _chosen_arms(study, chosen)
    study = replace(
        study,
        runs=_of_arms(study.runs, names),
        evaluations=_of_arms(study.evaluations, names),
        steps=_of_arms(study.steps, names),
        baseline=_chosen_baseline(study, chosen, names),
    )
    study = _over(_measured(study, chosen.metric), chosen.x)
    if chosen.prices is not None:
        study = at_prices(study, chosen.prices)
    else:
        study = in_budgets(study, chosen.until)
    return _in_window(study, chosen.until)


def _chosen_arms(study: Study, chosen: StudyFilter) -> list[str]:
    """Return the names of the curves to show, in the order of the words that name them."""
    if not chosen.arms:
        return list(study.runs.series.unique())
    names = []
    for word in chosen.arms:
        names += curves_named(study, word)
    if len(set(names)) < len(names):
        raise ValueError(f"arms={','.join(chosen.arms)}: must be different ones, not one arm twice")
    return names


def _chosen_baseline(study: Study, chosen: StudyFilter, names: Sequence[str]) -> str | None:
    if chosen.baseline is None:
        return None
    baseline = resolve(study, chosen.baseline)
    if baseline not in names:
        raise ValueError(f"baseline={chosen.baseline}: must be among the arms {' | '.join(names)}")
    return baseline


def _of_arms(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of these curves, curve by curve."""
    places = {name: place for place, name in enumerate(names)}
    rows = table[table.series.isin(names)]
    return rows.sort_values("series", key=lambda series: series.map(places), kind="stable")


def _measured(study: Study, metric: str) -> Study:
    """Put a metric in the place of the accuracy."""
    rows = study.evaluations
    present = []
    for name in (*METRICS, *passes(rows)):
        if name in rows and rows[name].notna().all():
            present.append(name)
    if metric not in present:
        allowed = f"must be one of {', '.join(present)}"
        if metric.startswith("pass@"):
            allowed += f"; a question has {rows.repeats.min():.0f} answers"
        raise ValueError(f"metric={metric}: {allowed}")
    return replace(study, evaluations=rows.assign(accuracy=rows[metric]), metric=metric)


def _over(study: Study, x: str) -> Study:
    """Choose what curves are drawn over; a window in seconds does not hold for steps."""
    if x == "train_seconds":
        return study
    rows = study.evaluations
    if x != "steps" or rows.step.isna().any():
        allowed = "train_seconds" if rows.step.isna().any() else "train_seconds or steps"
        raise ValueError(f"x={x}: must be {allowed}")
    return replace(
        study,
        evaluations=rows.assign(steps=rows.step),
        steps=study.steps.assign(steps=study.steps.step),
        x=x,
        until=math.inf,
    )


def _in_window(study: Study, until: float | None) -> Study:
    """End the window at the chosen place, if there is one."""
    end = study.until if until is None else until
    values = study.evaluations[study.x]
    later = values[values > 0]
    if len(later) and not (later <= end).any():
        first = f"the first evaluation, at {later.min():g} {unit_of(study)}"
        raise ValueError(f"until={end:g}: must be at or after {first}")
    if until is not None and study.prices is None and until > values.max():
        last = f"the last evaluation, at {values.max():g} {unit_of(study)}"
        raise ValueError(f"until={until:g}: must be at or before {last}")
    return replace(study, until=end)
