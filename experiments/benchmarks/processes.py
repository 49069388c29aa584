"""What a step takes with one process, with two, and with two that share the weights, in turns.

    python experiments/benchmarks/processes.py [KEY=VALUE ...]      words as of src/run.py

The default job, one thread a process, a fixed number of steps, in fresh folders. Prints JSON:
medians over the steps of all rounds by phase (the first step of each run left out), and the ratios
of one process's step to the others' in the same round (two cores cannot give more than 2).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pods.runs.clock import PHASES
from pods.runs.environment import environment
from pods.runs.files import read_lines

ROUNDS, STEPS = 3, 40
ROOT = Path(__file__).parents[2]
WAYS = {
    "one": (),
    "two": ("hardware.processes=2",),
    "two, sharded": ("hardware.processes=2", "hardware.shard=true"),
}
WORDS = ("tracking=none", "budget.train_seconds=null", f"budget.max_steps={STEPS}",
         "checkpoint.every_steps=null", "evaluation.repeats=1", "evaluation.questions=1",
         "rollouts_every_steps=null")  # fmt: skip


def steps(words: Sequence[str]) -> list[dict[str, float]]:
    """Seconds by phase of each step but the first."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, str(ROOT / "src" / "run.py"), *WORDS, *words, f"runs_dir={folder}"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True, stdout=sys.stderr,
        )  # fmt: skip
        [metrics] = Path(folder).rglob("metrics.jsonl")
        lines = read_lines(metrics)[1:]
    found = [{phase: line[f"seconds/{phase}"] for phase in PHASES} for line in lines]
    return [{**phases, "step": sum(phases.values())} for phases in found]


def medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of each phase."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def main(words: list[str]) -> None:
    """Take turns, and print what each took."""
    rounds: dict[str, list[list[dict[str, float]]]] = {way: [] for way in WAYS}
    for turn in range(ROUNDS):
        for way in WAYS if turn % 2 == 0 else reversed(WAYS):
            rounds[way].append(steps([*words, *WAYS[way]]))
    each = {way: [medians(rows)["step"] for rows in rounds[way]] for way in WAYS}
    print(json.dumps({
        "seconds": {way: medians([row for rows in rounds[way] for row in rows]) for way in WAYS},
        "ratios": {way: [one / of for one, of in zip(each["one"], each[way], strict=True)]
                   for way in list(WAYS)[1:]},
        "environment": environment(),
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
