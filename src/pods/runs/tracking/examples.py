"""Pick a few of a run's saved rollouts, to be read beside its curves."""

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pods.runs.store import RunStore

COLUMNS = ("step", "prompt", "completion", "reward", "advantage", "kept")
BEST, WORST, NOT_KEPT = 3, 3, 2  # rollouts shown of one group
LONGEST_LINE = 2**20  # bytes; a completion of thousands of tokens takes some tens of thousands

Example = tuple[int, str, str, float, float | None, bool]
"""One rollout: the values of `COLUMNS`."""


def examples(store: RunStore, step: int) -> Sequence[Example]:
    """Return rollouts of the newest saved step up to this one; none if none can be read.

    They are of the step's first group: the kept ones with the largest and the smallest advantage,
    and some that were not kept.
    """
    paths = (store.folder / "rollouts").glob("step-[0-9][0-9][0-9][0-9][0-9][0-9].jsonl.gz")
    saved = {int(path.name[5:11]): path for path in paths}
    newest = max((number for number in saved if number <= step), default=None)
    if newest is None:
        return ()
    try:
        rows = [_example(newest, row) for row in _first_group(saved[newest])]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return ()  # a damaged file, which is only for inspection
    kept = sorted((row for row in rows if row[4] is not None), key=lambda row: -(row[4] or 0.0))
    dropped = [row for row in rows if row[4] is None]
    return kept[:BEST] + kept[BEST:][-WORST:] + dropped[:NOT_KEPT]


def _first_group(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file's first group, and read no further."""
    rows = []
    with gzip.open(path) as file:
        while line := file.readline(LONGEST_LINE):
            row = json.loads(line)
            if row["group"] != 0:
                break
            rows.append(row)
    return rows


def _example(step: int, row: dict[str, Any]) -> Example:
    advantage = row["advantage"] if row["kept"] else None
    return (
        step,
        str(row["question"]),
        str(row["completion"]),
        float(row["reward"]),  # JSON lacks NaN and infinity, which are written as text
        None if advantage is None else float(advantage),
        bool(row["kept"]),
    )
