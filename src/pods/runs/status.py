"""Where the runs of a study stand, from their status files."""

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pods.runs.store import RunStore

SILENT_SECONDS = 3600.0  # after which a run on another machine is taken for lost


def state_of(store: RunStore) -> str:
    """The run's state; one that says `running` and is run by nobody is `lost`."""
    status = store.status()
    if status["state"] != "running":
        return str(status["state"])
    if status["host"] == socket.gethostname():
        return "running" if store.is_held() else "lost"
    return "running" if time.time() - status["heartbeat"] < SILENT_SECONDS else "lost"


def statuses(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """One row a run."""
    rows = []
    for folder in folders:
        store = RunStore(folder)
        config, status = store.config(), store.status()
        limit = config.budget.train_seconds
        rows.append(
            {
                "arm": config.arm or config.sampler.rule,
                "n": config.nm.n,
                "m": config.nm.m,
                "seed": config.seed,
                "state": state_of(store),
                "step": status.get("step", 0),
                "train_seconds": round(status.get("train_seconds", 0.0), 1),
                "budget": f"{limit:g} s" if limit else f"{config.budget.max_steps} steps",
                "accuracy": status.get("accuracy"),
                "error": status.get("error"),
                "folder": str(folder),
            }
        )
    return rows


def format_statuses(rows: Sequence[dict[str, Any]]) -> str:
    """A table for a screen."""
    arms = 2 + max(len(row["arm"]) for row in rows)
    header = f"{'arm':<{arms}}{'n→m':>8}{'seed':>6}  {'state':<10}{'step':>7}"
    lines = [header + f"{'train / budget':>20}{'accuracy':>10}"]
    for row in rows:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.3f}"
        sizes = f"{row['n']}→{row['m']}"
        train = f"{row['train_seconds']:.1f} / {row['budget']}"
        lines.append(
            f"{row['arm']:<{arms}}{sizes:>8}{row['seed']:>6}  {row['state']:<10}{row['step']:>7}"
            f"{train:>20}{accuracy:>10}  {row['error'] or ''}".rstrip()
        )
    return "\n".join(lines)
