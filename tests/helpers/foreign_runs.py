"""Runs of another trainer as logs in memory, and their study as `pods audit` makes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_lab.audit.foreign import Audited, study_of
from pods_lab.audit.formats import Log, Row
from pods_lab.audit.mapping import check, typed
from pods_lab.audit.propose import propose

LIFT = {"grpo": 0.0, "pods": 0.1}  # of the accuracy of each method, at all steps


def rows_of(method: str, seed: int, steps: Sequence[int] = range(10, 101, 10)) -> list[Row]:
    """The accuracy of one run: a line over the steps, and noise of its own."""
    noise = np.random.default_rng([seed, *method.encode()]).normal(0, 0.01, len(steps))
    start = 0.3 + LIFT[method]
    return [{"step": step, "accuracy": round(start + 0.003 * step + one, 4)}
            for step, one in zip(steps, noise.tolist(), strict=True)]  # fmt: skip


def run_log(name: str, rows: list[Row], path: str = "", **about: Any) -> Log:
    """A log of one run in a file of its own."""
    return Log(name, Path(path or f"{name}.jsonl"), rows, **about)


def study(seeds: int = 6, **columns: Any) -> list[Log]:
    """Logs of `seeds` runs of both methods; `columns` are functions of (method, seed, step)."""
    logs = []
    for method in LIFT:
        for seed in range(seeds):
            rows = rows_of(method, seed)
            for row in rows:
                step = row["step"]
                row |= {name: column(method, seed, step) for name, column in columns.items()}
            logs.append(run_log(f"{method}-seed{seed}", rows))
    return logs


def audited(logs: Sequence[Log], **keys: Any) -> Audited:
    """What an audit makes of logs and the given keys of a mapping."""
    given = typed(keys)
    return study_of(logs, check(logs, propose(logs, given)), [], given)


def ends(found: Audited, column: str = "seconds") -> dict[str, Any]:
    """A column of the table of all runs, by run."""
    return dict(zip(found.table.run, found.table[column], strict=True))
