"""What a step takes beside its phases, without W&B and with its offline mirror, in turns.

    python experiments/benchmarks/overhead.py [KEY=VALUE ...]      words as of src/run.py

A run's training clock is given a `now` that notes when it is asked, which is at both ends of each
phase: what passes between a phase and the next one is the harness's own (the step's line, the
mirror, progress, status.json, the meter). The only checkpoints and evaluations are before the first
step and after the last. Prints JSON: medians and means over the steps of all rounds, in
milliseconds, and the share of the wall time.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pods import job
from pods.checks import build
from pods.compose import compose
from pods.runs.environment import environment
from pods.runs.frozen import freeze

ROUNDS, STEPS = 3, 150
SHORT = ("budget.train_seconds=null", f"budget.max_steps={STEPS}", "evaluation.repeats=1",
         f"checkpoint.every_steps={STEPS}", "study=overhead")  # fmt: skip


def run(words: Sequence[str]) -> list[tuple[float, float]]:
    """Run a job in this process; of each step but the first and last, what its phases took and
    what the rest took, until the next one's first phase, in milliseconds."""
    asked: list[float] = []

    def now() -> float:
        asked.append(time.perf_counter())
        return asked[-1]

    code = job.execute(freeze(build(compose(words))).folder, now=now)
    if code != job.DONE:
        sys.exit(code)
    edges, rest = divmod(len(asked), STEPS)
    assert rest == 0, "steps differ in how many phases they have: group_filter=resample"
    starts = range(edges, len(asked) - edges, edges)  # the first step warms up
    phases = [sum(asked[i + 1] - asked[i] for i in range(s, s + edges, 2)) for s in starts]
    whole = [asked[s + edges] - asked[s] for s in starts]
    return [(1000 * p, 1000 * (w - p)) for p, w in zip(phases, whole, strict=True)]


def summary(steps: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of (phases, rest) of each step."""
    phases, rest = zip(*steps, strict=True)
    return {
        "phases_ms": statistics.median(phases),
        "rest_ms": statistics.median(rest),
        "rest_mean_ms": statistics.mean(rest),
        "rest_of_wall": sum(rest) / (sum(rest) + sum(phases)),
        "rest_of_median_step": statistics.median(r / (p + r) for p, r in steps),
    }


def main(words: list[str]) -> None:
    """Take turns, and print what each took."""
    steps: dict[str, list[tuple[float, float]]] = {"none": [], "offline": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            for mode in steps if turn % 2 else reversed(steps):
                place = Path(folder) / f"{mode}{turn}"
                steps[mode] += run([*SHORT, f"tracking={mode}", f"runs_dir={place}", *words])
    found = {f"tracking={mode}": summary(made) for mode, made in steps.items()}
    print(json.dumps({**found, "steps": len(steps["none"]), "environment": environment()},
                     indent=1))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
