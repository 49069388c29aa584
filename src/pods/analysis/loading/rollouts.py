"""Read the completions that a run stored for inspection."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from pods.runs.files import read_lines

COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("problem", "question", "completion"), str),
    **dict.fromkeys(("correct", "format", "finished", "kept"), bool),
    **{"length": int, "reward": float | str, "advantage": float | str | None},  # "nan" is text
}
ROW = msgspec.defstruct("Row", COLUMNS.items())


def rollout_steps(run: Path) -> list[int]:
    """List the steps of a run folder whose rollouts were written."""
    return sorted(int(path.name[5:11]) for path in run.glob("rollouts/step-??????.jsonl.gz"))


def read_rollouts(run: Path, step: int) -> pd.DataFrame:
    """Read the rollouts of one of a run folder's `rollout_steps`, one row each.

    They have `COLUMNS` and more, and an advantage if they were kept. A `ValueError` names a line.
    """
    return pd.DataFrame(read_lines(run / "rollouts" / f"step-{step:06d}.jsonl.gz", _row))


def _row(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line)
    msgspec.convert(row, ROW)
    return row


def examples(rollouts: pd.DataFrame, each: int = 2) -> pd.DataFrame:
    """Pick a few informative rollouts of the problem whose rewards differ most.

    These are the kept ones with the largest and the smallest advantage, and some not kept.
    """
    spread = rollouts.groupby("problem", sort=False).reward.std(ddof=0)
    group = rollouts[rollouts.problem == spread.idxmax()]
    kept = group[group.kept].sort_values("advantage", kind="stable")
    best, worst = kept.tail(each).iloc[::-1], kept.iloc[:-each].head(each)
    return pd.concat([best, worst, group[~group.kept].head(each)], ignore_index=True)
