"""How much sooner a sweep ends with two jobs at a time than with one, in turns.

    python experiments/benchmarks/sweep.py [KEY=VALUE ...]      words as of src/run.py

Four seeds of the default job (one thread each), a fixed number of steps, in a fresh folder. Wall
time of the whole command: composing, freezing, the jobs' start-up, the figure at the end. Prints
JSON: medians of the rounds, and the ratio of each pair (two cores cannot give more than 2).
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

from pods.runs.environment import environment

ROUNDS, SEEDS, STEPS = 3, 4, 200
ROOT = Path(__file__).parents[2]
WORDS = (f"seed=range({SEEDS})", "tracking=none", "budget.train_seconds=null",
         f"budget.max_steps={STEPS}", "evaluation.repeats=1")  # fmt: skip


def sweep(workers: int, words: Sequence[str]) -> dict[str, float]:
    """Seconds of a sweep of so many jobs at a time, and of its jobs' phases, summed."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, str(ROOT / "src" / "run.py"), "-m", *WORDS, *words,
             f"launch.jobs={workers}", f"runs_dir={folder}"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True, stdout=sys.stderr,
        )  # fmt: skip
        wall = time.perf_counter() - start
        found = [json.loads(path.read_text()) for path in Path(folder).rglob("phases.json")]
    assert len(found) == SEEDS, f"{len(found)} of {SEEDS} jobs ran"
    start_up = sum(phases["start"]["seconds"] for phases in found)
    return {"wall": wall, "jobs": sum(row["seconds"] for one in found for row in one.values()),
            "of it start": start_up}  # fmt: skip


def main(words: list[str]) -> None:
    """Take turns, and print what each took."""
    rounds: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for turn in range(ROUNDS):
        for workers in (1, 2) if turn % 2 == 0 else (2, 1):
            rounds[workers].append(sweep(workers, words))
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
