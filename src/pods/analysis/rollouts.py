"""The completions that a run kept to be looked at."""

import gzip
import json
import zlib
from pathlib import Path

import pandas as pd


def rollout_steps(run: Path) -> list[int]:
    """Steps of a run folder whose rollouts were written."""
    return sorted(int(path.name[5:11]) for path in run.glob("rollouts/step-??????.jsonl.gz"))


def read_rollouts(run: Path, step: int) -> pd.DataFrame:
    """One step's rollouts, a row each.

    Args:
        run: folder.
        step: one of `rollout_steps`.

    Returns:
        problem, question, completion, reward, correct, format, length, finished, kept, and the
        advantage of those that were kept.

    Raises:
        ValueError: this step's rollouts were not written, or are damaged.
    """
    path = run / "rollouts" / f"step-{step:06d}.jsonl.gz"
    if not path.is_file():
        steps = ", ".join(map(str, rollout_steps(run))) or "none"
        raise ValueError(f"step={step}: no rollouts of it in {run}; there are those of: {steps}")
    try:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines()
        return pd.DataFrame([json.loads(line) for line in lines])
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def groups(rollouts: pd.DataFrame) -> pd.DataFrame:
    """A row a problem of one step: how many rollouts, how good, and what selection did to them.

    Returns:
        problem, question, n, m, correct (share), reward, reward_std, kept_correct, kept_reward,
        kept_reward_std; standard deviations are over rollouts (ddof 0).
    """
    rows = []
    for problem, group in rollouts.groupby("problem", sort=False):
        kept = group[group.kept]
        rows.append({
            "problem": problem,
            "question": group.question.iloc[0],
            "n": len(group),
            "m": len(kept),
            "correct": group.correct.mean(),
            "reward": group.reward.mean(),
            "reward_std": group.reward.std(ddof=0),
            "kept_correct": kept.correct.mean(),
            "kept_reward": kept.reward.mean(),
            "kept_reward_std": kept.reward.std(ddof=0),
        })  # fmt: skip
    return pd.DataFrame(rows)


def examples(rollouts: pd.DataFrame, each: int = 2) -> pd.DataFrame:
    """A few telling rollouts of the problem whose rewards differ most.

    Kept ones with the largest and the smallest advantage, and some that were not kept.
    """
    spread = rollouts.groupby("problem", sort=False).reward.std(ddof=0)
    group: pd.DataFrame = rollouts[rollouts.problem == spread.idxmax()]
    kept = group[group.kept].sort_values("advantage", kind="stable")
    best, worst = kept.tail(each).iloc[::-1], kept.iloc[:-each].head(each)
    some: pd.DataFrame = pd.concat([best, worst, group[~group.kept].head(each)], ignore_index=True)
    return some
