"""Report the states of a study's runs, from their status files."""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pods.config.schema import Config
from pods.runs.attempts import peak_bytes, queued, recorded_changes
from pods.runs.store import RunStore
from pods.system.errors import as_text

RECENT = 10  # steps that the shown reward is the mean of
TAIL_BYTES = 64 * 1024
SILENT_SECONDS = 1200.0  # without a heartbeat, after which a run on another machine is lost


def state_of(store: RunStore, ours: bool = False, status: Mapping[str, Any] | None = None) -> str:
    """Return the run's state; `lost` for one that says `running` although no process runs it.

    Args:
        ours: this process holds the run's lock, so no other one on this machine runs it.
        status: content of its status file, if that has been read already.
    """
    status = store.status() if status is None else status
    if status["state"] != "running":
        return str(status["state"])
    if not ours and store.is_held():  # by any machine, if a shared disk supports locks
        return "running"
    if status.get("host") == socket.gethostname():
        return "lost"
    return "running" if time.time() - status.get("heartbeat", 0) < SILENT_SECONDS else "lost"


def statuses(folders: Sequence[Path], memory: bool = False) -> list[dict[str, Any]]:
    """Return one row per run, with `peak_bytes` only if `memory` is set: no table shows it."""
    return [_row(RunStore(folder), memory) for folder in folders]


def _row(store: RunStore, memory: bool) -> dict[str, Any]:
    status, error, changes = store.status(), None, list[str]()
    try:
        changes = recorded_changes(store)
        config = store.config()
        limit = config.budget.train_seconds
        unit = "s" if config.budget.clock_model is None else "s modelled"
        labels = {
            "arm": config.arm_name(),
            "n": config.nm.n,
            "m": config.nm.m,
            "seed": config.seed,
            "budget": f"{limit:g} {unit}" if limit else f"{config.budget.max_steps} steps",
            "progress": _progress(config, status),
        }
    except (OSError, ValueError) as problem:  # one such run must not hide the others
        labels = {"arm": store.folder.parent.name, "n": "?", "m": "?", "seed": "?", "budget": "?"}
        labels["progress"] = 0.0
        error = f"cannot be read: {problem} ({store.folder})"
    try:
        state = state_of(store, status=status)
    except OSError as problem:
        state, error = "lost", error or f"cannot be read: {as_text(problem)}"
    return {
        **labels,
        "state": state,
        "step": status.get("step", 0),
        "train_seconds": round(status.get("train_seconds", 0.0), 1),
        "accuracy": status.get("accuracy"),
        "reward": recent_reward(store) if state == "running" else None,
        "error": error or status.get("error"),
        "queued": queued(store) if state not in ("running", "done") else None,
        "void_steps": status.get("void_steps", 0),
        "changes": changes,
        **({"peak_bytes": peak_bytes(store)} if memory else {}),
        "folder": str(store.folder),
    }


def _progress(config: Config, status: Mapping[str, Any]) -> float:
    """Return the share of a run's budget that is used up: of time, or of steps."""
    seconds, steps = config.budget.train_seconds, config.budget.max_steps
    shares = [status.get("train_seconds", 0.0) / seconds] if seconds else []
    shares += [status.get("step", 0) / steps] if steps else []
    return float(min(1.0, max(shares)))


def recent_reward(store: RunStore) -> float | None:
    """Return the mean training reward of the last steps; None before the first one."""
    try:
        with store.metrics_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = log.read().split(b"\n")[-RECENT - 1 : -1]
        rewards = [json.loads(line)["reward"] for line in lines[len(lines) > 1 :]]
    except (OSError, ValueError, KeyError, TypeError):  # another process is writing it
        return None
    known = [reward for reward in rewards if reward is not None]
    return sum(known) / len(known) if known else None


def format_statuses(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a table for a terminal; running ones also have the last steps' reward."""
    live = any(row["reward"] is not None for row in rows)
    header = ("arm", "n→m", "seed", "state", "step", "train / budget", "accuracy")
    return table(
        (*header, *(["reward"] * live), ""),
        [
            (
                row["arm"],
                f"{row['n']}→{row['m']}",
                str(row["seed"]),
                row["state"],
                str(row["step"]),
                f"{row['train_seconds']:.1f} / {row['budget']}",
                _decimal(row["accuracy"]),
                *([_decimal(row["reward"])] * live),
                _notes(row),
            )
            for row in rows
        ],
    )


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _notes(row: dict[str, Any]) -> str:
    """Return what is unusual about a run."""
    notes = [row["error"] or ""]
    notes += [f"submitted as {row['queued']}"] if row["queued"] else []
    notes += [f"{row['void_steps']} steps not applied"] if row["void_steps"] else []
    notes += [f"changed: {', '.join(row['changes'])}"] if row["changes"] else []
    return "; ".join(filter(None, notes))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first, the last and names to the left, numbers to the right.

    >>> print(table(("arm", "seed", ""), [("pods", "3", "fine")]))
    arm   seed
    pods     3  fine
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    left = {0, len(header) - 1} | {i for i, name in enumerate(header) if name in ("id", "state")}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def duration(seconds: float) -> str:
    """Format seconds for a reader.

    >>> duration(75), duration(7500), duration(8)
    ('1 min 15 s', '2 h 05 min', '8 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
