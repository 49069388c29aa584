"""Measure how much sooner a sweep ends with two jobs at a time than with one, in turns.

    python experiments/benchmarks/sweep.py [KEY=VALUE ...]      overrides as for src/run.py

It runs four seeds of the default job (one thread each) for a fixed number of steps, in a fresh
folder, and takes the wall time of the whole command: composing, freezing, the jobs' start-up, the
figure at the end. It prints JSON: medians of the rounds, and the ratio of each pair (two cores
cannot give more than 2).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pods.runs.attempts import environment

ROUNDS, SEEDS, STEPS = 3, 4, 200
ROOT = Path(__file__).parents[2]
OVERRIDES = (f"seed=range({SEEDS})", "tracking=none", "budget.train_seconds=null",
         f"budget.max_steps={STEPS}", "evaluation.repeats=1")  # fmt: skip


def sweep(workers: int, overrides: Sequence[str]) -> dict[str, float]:
    """Return the seconds of a sweep with so many jobs at a time, and the sum of their phases."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, str(ROOT / "src" / "run.py"), "-m", *OVERRIDES, *overrides,
             f"launch.jobs={workers}", f"runs_dir={folder}"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True, stdout=sys.stderr,
        )  # fmt: skip
        wall = time.perf_counter() - start
        jobs = [json.loads(path.read_text()) for path in Path(folder).rglob("phases.json")]
    assert len(jobs) == SEEDS, f"{len(jobs)} of {SEEDS} jobs ran"
    start_up = sum(phases["start"]["seconds"] for phases in jobs)
    return {"wall": wall, "jobs": sum(row["seconds"] for phases in jobs for row in phases.values()),
            "start-up": start_up}  # fmt: skip


def main(overrides: list[str]) -> None:
    """Take turns, and print the medians and ratios."""
    rounds: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for turn in range(ROUNDS):
        for workers in (1, 2) if turn % 2 == 0 else (2, 1):
            rounds[workers].append(sweep(workers, overrides))
    ratios = [a["wall"] / b["wall"] for a, b in zip(rounds[1], rounds[2], strict=True)]
    medians = {
        f"{workers} at a time": {
            key: statistics.median(row[key] for row in rows) for key in rows[0]
        }
        for workers, rows in rounds.items()
    }
    print(json.dumps({"seconds": medians, "ratio": statistics.median(ratios), "ratios": ratios,
                      "environment": environment()}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
