"""Columns made of others: the mean of several scores, and the seconds of a step as a sum."""

from collections.abc import Sequence
from statistics import fmean

from pods_lab.audit.formats import Log, Row
from pods_lab.audit.mapping import TIMING, Given
from pods_lab.audit.values import number

DEFAULT = "mean score"
PARTS = "timing/"  # of the columns in which earlier versions of verl have seconds
NO_TRAINING = ("timing/testing", "timing/save_checkpoint")
TOTALS = ("timing/step", "timing_s/step")


def add_mean(logs: Sequence[Log], given: Given) -> Given:
    """Add the mean that a mapping asks for; return the mapping with its score.

    A ValueError says that no log has a column of the mean.
    """
    if not given.get("mean_of"):
        return given
    name = given.get("score") or DEFAULT
    blocks = [[part] if isinstance(part, str) else part for part in given["mean_of"]]
    named = [column for block in blocks for column in block]
    for column in named:
        if not any(column in log.columns for log in logs):
            raise ValueError(f"mean_of={column}: no log has this column")

    for log in logs:
        for row in log.rows:
            if all(column in row for column in named):
                row[name] = _mean(row, blocks)
        log.__dict__.pop("columns", None)  # there is one more
    return given | {"score": name}


def _mean(row: Row, blocks: Sequence[Sequence[str]]) -> float:
    """Return the mean over blocks of the mean of a block's columns."""
    return fmean(fmean(number(row[column]) for column in block) for block in blocks)


def add_timing(log: Log) -> None:
    """Add the seconds of each step as the sum of its parts, if the log has no total."""
    parts = sorted(name for name in log.columns if name.startswith(PARTS))
    if not parts or not log.columns.isdisjoint(TOTALS):
        return
    summed = [name for name in parts if name not in NO_TRAINING]
    for row in log.rows:
        seconds = [number(row[name]) for name in summed if name in row]
        if seconds:
            row[TIMING] = sum(seconds)

    log.__dict__.pop("columns", None)
    note = f"seconds are the sum of {', '.join(summed)}"
    others = [name for name in parts if name in NO_TRAINING]
    log.notes.append(f"{note}; {', '.join(others)} are no training" if others else note)
