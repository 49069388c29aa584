"""Warnings that are printed before the verdicts: what may make them wrong."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd

from pods_lab.audit.formats import some
from pods_lab.audit.left_out import CUT_OFF
from pods_lab.audit.records import Notes, Records


def cautions(
    runs: pd.DataFrame, all_records: Sequence[Records], reasons: dict[str, str]
) -> Iterator[str]:
    """Yield a sentence for each reason why the verdicts may be wrong.

    Args:
        runs: run and series of each run.
        all_records: of the same runs.
        reasons: why runs are left out, by their names.
    """
    yield from _unlike_steps(all_records)
    yield from _survivors(runs, reasons)


def _unlike_steps(all_records: Sequence[Records]) -> Iterator[str]:
    """Say if runs have their steps from columns that may not count the same."""
    runs_of = Counter(records.step_column for records in all_records if records.step_column)
    if len(runs_of) > 1:
        shown = ", ".join(f"{name} in {count} runs" for name, count in runs_of.items())
        yield f"steps are of columns that may not count the same: {shown} (step: COLUMN takes one)"

    runs_by_columns: Notes = {}
    for records in all_records:
        if records.mixed_step_columns:
            runs_by_columns.setdefault(records.mixed_step_columns, []).append(records.run)
    for columns, names in runs_by_columns.items():
        what = "steps of one run are of columns that may not count the same"
        yield f"{what}: {columns}: {some(names)}"


def _survivors(runs: pd.DataFrame, reasons: dict[str, str]) -> Iterator[str]:
    """Say how many runs of each method were cut off, if that differs: the others may be better."""
    is_cut = runs.run.map(lambda run: reasons.get(run, "").startswith(CUT_OFF))
    cut = is_cut.groupby(runs.series).agg(["sum", "size"])
    if len(cut) < 2 or (cut["sum"] / cut["size"]).nunique() == 1:
        return
    shown = ", ".join(f"{row['sum']} of {row['size']} of {name}" for name, row in cut.iterrows())
    yield f"runs that were cut off, and may be the worse ones, are in no verdict: {shown}"
