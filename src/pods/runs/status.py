"""Report the states of a study's runs, from their status files."""

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pods.config.schema import Config
from pods.runs.attempts import queued, recorded_changes
from pods.runs.records import Status
from pods.runs.store import RunStore
from pods.system.console import printable
from pods.system.errors import as_text
from pods.system.text import table

SILENT_SECONDS = 1200.0  # without a heartbeat, after which a run on another machine is lost


def state_of(store: RunStore, ours: bool = False, status: Status | None = None) -> str:
    """Return the run's state; `lost` for one that says `running` although no process runs it.

    With `ours` this process holds the run's lock, so no other one on this machine runs it.
    """
    if status is None:
        status = store.status()
    state = status["state"]
    if state != "running":
        return state

    if not ours and store.is_held():  # by any machine, if a shared disk supports locks
        return "running"
    if status.get("host") == socket.gethostname():
        return "lost"

    silent = abs(time.time() - status.get("heartbeat", 0))  # its machine's clock may be ahead
    return "running" if silent < SILENT_SECONDS else "lost"


def status_row(folder: Path) -> dict[str, Any]:
    """Return how a run stands; one that cannot be read has that as its error."""
    store = RunStore(folder)
    status = store.status()
    unreadable: str | None = None
    changes: list[str] = []
    try:
        store.identity()  # whose loss nothing else would show
        changes = recorded_changes(store)
        labels = _labels(store.config(), status)
    except (OSError, ValueError) as problem:  # one such run must not hide the others
        labels = _unknown_labels(store)
        unreadable = f"cannot be read: {problem} ({store.folder})"
    try:
        state = state_of(store, status=status)
    except OSError as problem:
        state = "lost"
        unreadable = unreadable or f"cannot be read: {as_text(problem)}"

    return {
        **labels,
        "state": state,
        "step": status.get("step", 0),
        "train_seconds": round(status.get("train_seconds", 0.0), 1),
        "accuracy": status.get("accuracy"),
        "reward": status.get("reward") if state == "running" else None,
        "error": unreadable or status.get("error"),
        "queued": queued(store) if state not in ("running", "done") else None,
        "skipped_steps": status.get("skipped_steps", 0),
        "alarms": status.get("alarms", []),
        "changes": changes,
        "folder": str(store.folder),
    }


def _labels(config: Config, status: Status) -> dict[str, Any]:
    return {
        "arm": config.arm_name(),
        "n": config.nm.n,
        "m": config.nm.m,
        "seed": config.seed,
        "budget": config.budget.text(),
        "progress": _progress(config, status),
    }


def _unknown_labels(store: RunStore) -> dict[str, Any]:
    arm = store.folder.parent.name
    return {"arm": arm, "n": "?", "m": "?", "seed": "?", "budget": "?", "progress": 0.0}


def _progress(config: Config, status: Status) -> float:
    """Return the share of a run's budget that is used up: of time, or of steps."""
    shares = []
    if config.budget.train_seconds is not None:
        shares.append(status.get("train_seconds", 0.0) / config.budget.train_seconds)
    if config.budget.max_steps:
        shares.append(status.get("step", 0) / config.budget.max_steps)
    return float(min(1.0, max(shares, default=1.0)))


def format_statuses(rows: Sequence[dict[str, Any]], keys: Sequence[str] = ()) -> str:
    """Return rows with these keys as a table; running ones also have the last step's reward."""
    with_reward = any(row["reward"] is not None for row in rows)
    header = ["arm", "n→m", *keys, "seed", "state", "step", "train / budget", "accuracy"]
    if with_reward:
        header.append("reward")
    header.append("")  # notes

    lines = []
    for row in rows:
        cells = [row["arm"], f"{row['n']}→{row['m']}"]
        cells += [str(row.get(key, "?")) for key in keys]
        cells += [str(row["seed"]), row["state"], str(row["step"])]
        cells.append(f"{row['train_seconds']:.1f} / {row['budget']}")
        cells.append(_decimal(row["accuracy"]))
        if with_reward:
            cells.append(_decimal(row["reward"]))
        cells.append(_notes(row))
        lines.append(tuple(cells))
    return table(tuple(header), lines)


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _notes(row: dict[str, Any]) -> str:
    notes = []
    if row["error"]:
        notes.append(printable(" ".join(row["error"].split())))  # on one line of the table
    if row["queued"]:
        notes.append(f"submitted as {row['queued']}")
    if row["skipped_steps"]:
        notes.append(f"{row['skipped_steps']} steps not applied")
    notes += [f"alarm: {alarm}" for alarm in row["alarms"]]
    if row["changes"]:
        notes.append(f"changed: {', '.join(row['changes'])}")
    return "; ".join(notes)
