"""Read the completions that a run stored for inspection."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from pods.runs.files import read_lines
from pods.runs.history import STEP, step_of
from pods.runs.records import Damaged


class Rollout(msgspec.Struct):
    """The fields of a stored rollout that its readers need; it may have more."""

    problem: str
    question: str
    completion: str
    correct: bool
    format: bool
    finished: bool
    kept: bool
    length: int
    reward: float | str  # "nan" is a text in JSON
    advantage: float | str | None  # of kept ones


def rollout_steps(run: Path) -> list[int]:
    """List the steps of a run folder whose rollouts were written."""
    return sorted(step_of(path) for path in run.glob(f"rollouts/{STEP}.jsonl.gz"))


def read_rollouts(run: Path, step: int) -> pd.DataFrame:
    """Read the rollouts of one of a run folder's `rollout_steps`, one row each.

    The columns are those of `Rollout` and more. `Damaged` names a line, or a file without any.
    """
    path = run / "rollouts" / f"step-{step:06d}.jsonl.gz"
    rows = read_lines(path, _row)
    if not rows:
        raise Damaged(path, "it has no rollout")
    return pd.DataFrame(rows)


def _row(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line)
    msgspec.convert(row, Rollout)
    return row


def examples(rollouts: pd.DataFrame, count: int = 2) -> pd.DataFrame:
    """Pick a few informative rollouts of the problem whose rewards differ most.

    They are, `count` of each: kept ones with the largest and with the smallest advantage, and
    some that were not kept.
    """
    spread = rollouts.groupby("problem", sort=False).reward.std(ddof=0)
    group = rollouts[rollouts.problem == spread.idxmax()]
    kept = group[group.kept].sort_values("advantage", kind="stable")
    best = kept.tail(count).iloc[::-1]
    worst = kept.iloc[:-count].head(count)
    not_kept = group[~group.kept].head(count)
    return pd.concat([best, worst, not_kept], ignore_index=True)
