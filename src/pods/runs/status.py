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
from pods.system.errors import as_text
from pods.system.text import table

SILENT_SECONDS = 1200.0  # without a heartbeat, after which a run on another machine is lost


def state_of(store: RunStore, ours: bool = False, status: Status | None = None) -> str:
    """Return the run's state; `lost` for one that says `running` although no process runs it.

    With `ours` this process holds the run's lock, so no other one on this machine runs it.
    """
    status = store.status() if status is None else status
    if status["state"] != "running":
        return str(status["state"])
    if not ours and store.is_held():  # by any machine, if a shared disk supports locks
        return "running"
    if status.get("host") == socket.gethostname():
        return "lost"
    return "running" if time.time() - status.get("heartbeat", 0) < SILENT_SECONDS else "lost"


def status_row(folder: Path) -> dict[str, Any]:
    """Return how a run stands; one that cannot be read has that as its error."""
    store = RunStore(folder)
    status, error, changes = store.status(), None, list[str]()
    try:
        store.identity()  # whose loss nothing else would show
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
        unknown = dict.fromkeys(("n", "m", "seed", "budget"), "?")
        labels = {"arm": store.folder.parent.name, **unknown, "progress": 0.0}
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
        "reward": status.get("reward") if state == "running" else None,
        "error": error or status.get("error"),
        "queued": queued(store) if state not in ("running", "done") else None,
        "skipped_steps": status.get("skipped_steps", 0),
        "changes": changes,
        "folder": str(store.folder),
    }


def _progress(config: Config, status: Status) -> float:
    """Return the share of a run's budget that is used up: of time, or of steps."""
    seconds, steps = config.budget.train_seconds, config.budget.max_steps
    shares = [status.get("train_seconds", 0.0) / seconds] if seconds else []
    shares += [status.get("step", 0) / steps] if steps else []
    return float(min(1.0, max(shares, default=1.0)))


def format_statuses(rows: Sequence[dict[str, Any]], keys: Sequence[str] = ()) -> str:
    """Return rows with these keys as a table; running ones also have the last step's reward."""
    live = any(row["reward"] is not None for row in rows)
    header = ("arm", "n→m", *keys, "seed", "state", "step", "train / budget", "accuracy")
    return table(
        (*header, *(["reward"] * live), ""),
        [
            (
                row["arm"],
                f"{row['n']}→{row['m']}",
                *(str(row.get(key, "?")) for key in keys),
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
    notes = [row["error"] or ""]
    notes += [f"submitted as {row['queued']}"] if row["queued"] else []
    notes += [f"{row['skipped_steps']} steps not applied"] if row["skipped_steps"] else []
    notes += [f"changed: {', '.join(row['changes'])}"] if row["changes"] else []
    return "; ".join(filter(None, notes))
