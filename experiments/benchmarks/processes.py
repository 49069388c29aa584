"""Time a step with one process, with two, and with two that share the weights, in turns.

    python experiments/benchmarks/processes.py [KEY=VALUE ...]      overrides as for src/run.py

It runs the default job with one thread per process for a fixed number of steps, in fresh folders.
It prints JSON: medians by phase over the steps of all rounds (without the first step of each run),
and the ratios of one process's step to the others' in the same round (two cores cannot give more
than 2).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pods.runs.attempts import environment
from pods.runs.files import read_lines
from pods.training.clock import PHASES

ROUNDS, STEPS = 3, 40
ROOT = Path(__file__).parents[2]
MODES = {
    "one": (),
    "two": ("hardware.processes=2",),
    "two, sharded": ("hardware.processes=2", "hardware.shard=true"),
}
OVERRIDES = ("tracking=none", "budget.train_seconds=null", f"budget.max_steps={STEPS}",
         "checkpoint.every_steps=null", "evaluation.repeats=1", "evaluation.questions=1",
         "rollouts_every_steps=null")  # fmt: skip


def steps(overrides: Sequence[str]) -> list[dict[str, float]]:
    """Return the seconds by phase of each step except the first."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, str(ROOT / "src" / "run.py"), *OVERRIDES, *overrides,
             f"runs_dir={folder}"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True, stdout=sys.stderr,
        )  # fmt: skip
        [metrics] = Path(folder).rglob("metrics.jsonl")
        lines = read_lines(metrics)[1:]
    rows = [{phase: line[f"seconds/{phase}"] for phase in PHASES} for line in lines]
    return [{**phases, "step": sum(phases.values())} for phases in rows]


def medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each phase."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def main(overrides: list[str]) -> None:
    """Take turns, and print the medians and ratios."""
    rounds: dict[str, list[list[dict[str, float]]]] = {mode: [] for mode in MODES}
    for turn in range(ROUNDS):
        for mode in MODES if turn % 2 == 0 else reversed(MODES):
            rounds[mode].append(steps([*overrides, *MODES[mode]]))
    each = {mode: [medians(rows)["step"] for rows in rounds[mode]] for mode in MODES}
    pooled = {mode: [row for rows in rounds[mode] for row in rows] for mode in MODES}
    print(json.dumps({
        "seconds": {mode: medians(rows) for mode, rows in pooled.items()},
        "ratios": {mode: [one / of for one, of in zip(each["one"], each[mode], strict=True)]
                   for mode in list(MODES)[1:]},
        "environment": environment(),
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
