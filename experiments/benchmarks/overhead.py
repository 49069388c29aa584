"""Measure the time of a step outside its phases, without W&B and with W&B offline, in turns.

    python experiments/benchmarks/overhead.py [KEY=VALUE ...]      overrides as for src/run.py

A run's training clock gets a `now` that records its calls, which are at both ends of each phase.
The time between one phase and the next is the harness's own: the step's line, the W&B rows,
progress, status.json, the meter. The only checkpoints and evaluations are before the first step and
after the last. The script prints JSON: medians and means over the steps of all rounds, in
milliseconds, and the share of the wall time.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pods.config.checks import validate
from pods.config.compose import compose
from pods.launch import job
from pods.runs.attempts import environment
from pods.runs.freeze import freeze
from pods.system.errors import DONE

ROUNDS, STEPS = 3, 150
SHORT = ("budget.train_seconds=null", f"budget.max_steps={STEPS}", "evaluation.repeats=1",
         f"checkpoint.every_steps={STEPS}", "study=overhead")  # fmt: skip


def run(overrides: Sequence[str]) -> list[tuple[float, float]]:
    """Run a job in this process, and time each step except the first and the last.

    Returns:
        Per step, the milliseconds of its phases, and of the rest until the next step's first phase.
    """
    times: list[float] = []

    def now() -> float:
        times.append(time.perf_counter())
        return times[-1]

    code = job.execute(freeze(validate(compose(overrides))).folder, now=now)
    if code != DONE:
        sys.exit(code)
    edges, rest = divmod(len(times), STEPS)
    assert rest == 0, (
        "group_filter=resample: must be off, since steps then differ in their number of phases"
    )
    starts = range(edges, len(times) - edges, edges)  # the first step warms up
    phases = [sum(times[i + 1] - times[i] for i in range(s, s + edges, 2)) for s in starts]
    totals = [times[s + edges] - times[s] for s in starts]
    return [(1000 * p, 1000 * (t - p)) for p, t in zip(phases, totals, strict=True)]


def summary(steps: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Summarise the (phases, rest) of all steps."""
    phases, rest = zip(*steps, strict=True)
    return {
        "phases_ms": statistics.median(phases),
        "rest_ms": statistics.median(rest),
        "rest_mean_ms": statistics.mean(rest),
        "rest_of_wall": sum(rest) / (sum(rest) + sum(phases)),
        "rest_of_median_step": statistics.median(r / (p + r) for p, r in steps),
    }


def main(overrides: list[str]) -> None:
    """Take turns, and print a summary of each."""
    steps: dict[str, list[tuple[float, float]]] = {"none": [], "offline": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            for mode in steps if turn % 2 else reversed(steps):
                runs_dir = Path(folder) / f"{mode}{turn}"
                steps[mode] += run([*SHORT, f"tracking={mode}", f"runs_dir={runs_dir}", *overrides])
    summaries = {f"tracking={mode}": summary(rows) for mode, rows in steps.items()}
    print(json.dumps({**summaries, "steps": len(steps["none"]), "environment": environment()},
                     indent=1))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
