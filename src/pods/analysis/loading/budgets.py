"""Runs of one study that have different budgets: where their curves end."""

from dataclasses import replace

import pandas as pd

from pods.analysis.loading.study import Study


def in_budgets(study: Study, until: float | None) -> Study:
    """If budgets differ, end the window where the first run ends, or leave out who ends too early.

    Args:
        study: whose x, the time or steps, has been chosen.
        until: the end that was chosen, in the unit of x, or None.

    `ValueError`: no run gets as far as the chosen end.
    """
    ends = _ends(study)
    if ends.empty:
        return study
    if until is None:
        return _cut(study, ends.min())
    if until > ends.max():
        raise ValueError(
            f"until={until:g}: must be at most {ends.max():g}, where the last run ends"
        )
    return _without(study, set(ends[ends < until].index), until)


def _ends(study: Study) -> "pd.Series[float]":
    """Return where the budget or the record of each complete run ends; none if budgets are equal.

    A run that ends by time overruns its budget by a part of its last step, which does not count.
    """
    runs = study.runs[study.runs.complete]
    names = ["budget_seconds", "max_steps"]
    if not set(names) <= set(runs) or len(runs[names].drop_duplicates()) < 2:
        return pd.Series(dtype=float)

    ends = study.evaluations.groupby("run")[study.x].max().reindex(runs.run)
    limit = "budget_seconds" if study.x == "train_seconds" else "max_steps"
    limits = runs.set_index("run")[limit].astype(float)
    return limits.where(limits < ends, ends)


def _cut(study: Study, end: float) -> Study:
    place = f"{end:g} {unit_of(study)}"
    note = f"budgets differ: curves are cut at {place}, where the first run ends"
    note += "; --until END shows more, without the runs that end before END"
    return replace(study, until=min(study.until, end), note=f"{study.note} {note}".strip())


def _without(study: Study, early: set[str], until: float) -> Study:
    """Leave out the runs that end before the chosen end."""
    if not early:
        return study
    count = "1 run ends" if len(early) == 1 else f"{len(early)} runs end"
    place = f"{until:g} {unit_of(study)}"
    note = f"budgets differ: {count} before {place}, and the others alone are shown"
    return replace(
        study,
        runs=study.runs[~study.runs.run.isin(early)],
        evaluations=study.evaluations[~study.evaluations.run.isin(early)],
        steps=study.steps[~study.steps.run.isin(early)],
        note=f"{study.note} {note}".strip(),
    )


def unit_of(study: Study) -> str:
    """Return the unit of a study's x, as texts have it."""
    return "s" if study.x == "train_seconds" else study.x
