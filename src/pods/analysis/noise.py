"""Name the runs that a busy machine slowed down, since time is measured and is the x axis.

Runs of one series on one machine do the same work per step, apart from the length of completions.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.curves import phase_columns
from pods.analysis.study import MEASURED, Study

SPREAD = 1.15  # largest ratio of step times, per token generated, that needs no explanation
NO_WAITING = 1.05  # largest ratio of step times for the same CPU seconds that is no waiting
CPU = "cpu_seconds/"
Record = Any  # a row of a table, by attribute


def slow_runs(study: Study) -> dict[str, str]:
    """Return a line for each run whose steps took over 15 % longer than its series' fast ones.

    The reference is the run at the fastest quarter of the complete runs of the series on the same
    machine (of up to four runs the fastest). Noise only slows down, and a run that is fast by
    accident, such as one whose completions collapsed, must not accuse all others. Mean step times
    are compared, over the steps that all of these runs have: they decide how many steps fit into a
    budget. A run that generated more tokens may take that much longer.

    Returns:
        The lines by name of the run; they say whether the run waited, where that was recorded.
    """
    runs = study.runs[study.runs.complete]
    if study.clock != MEASURED or not phase_columns(study.steps):  # imported logs have none
        return {}
    steps = _per_step(study.steps[study.steps.run.isin(runs.run)])
    lines: dict[str, str] = {}
    for _, peers in runs.groupby(["series", "machine"], sort=False):
        means = _means(steps[steps.run.isin(peers.run)])
        rows: list[Record] = list(peers.join(means, on="run").sort_values("wall").itertuples())
        reference = rows[(len(rows) - 1) // 4]
        lines |= {row.run: _line(row, reference) for row in rows if _is_slow(row, reference)}
    return {run: lines[run] for run in runs.run if run in lines}


def _per_step(steps: pd.DataFrame) -> pd.DataFrame:
    """Return run, step, and wall seconds, CPU seconds and tokens of each step; NaN: not logged."""
    cpu = [str(column) for column in steps if str(column).startswith(CPU)]
    return pd.DataFrame(
        {
            "run": steps.run,
            "step": steps.step,
            "wall": steps[phase_columns(steps)].sum(axis=1),
            "cpu": steps[cpu].sum(axis=1, skipna=False) if cpu else np.nan,
            "tokens": steps.get("generated_tokens", np.nan),
        }
    )


def _means(steps: pd.DataFrame) -> pd.DataFrame:
    """Average over the steps that all runs have, by run; a column that a run lacks is NaN there."""
    shared = steps.groupby("run").step.max().min()
    runs = steps[steps.step <= shared].groupby("run")
    return pd.DataFrame(runs[["wall", "cpu", "tokens"]].mean())


def _is_slow(row: Record, reference: Record) -> bool:
    longer = row.tokens / reference.tokens if reference.tokens > 0 else 1.0
    return bool(row.wall > SPREAD * reference.wall * np.fmax(longer, 1.0))


def _line(row: Record, reference: Record) -> str:
    ratio = row.wall / reference.wall
    beginning = f"a step took {ratio:.1f} times as long as in seed {reference.seed}"
    parts = "; ".join([beginning, *_use_of_cpu(row, reference)])
    load = ", ".join(_load(row))
    return f"{row.series} seed {row.seed}: {parts}{f' ({load})' if load else ''}"


def _use_of_cpu(row: Record, reference: Record) -> Iterator[str]:
    """Say whether the run waited or computed; on a GPU the CPU's seconds cannot tell."""
    if row.device != "cpu" or not (row.cpu > 0 and reference.cpu > 0):
        return
    more = row.cpu / reference.cpu
    waited = row.wall / reference.wall / more  # the two factors that make a step longer
    if waited > more:
        shares = row.cpu / row.wall, reference.cpu / reference.wall
        yield f"CPU was used for {shares[0]:.0%} of the time, there for {shares[1]:.0%}".replace(
            "%", " %"
        )
    else:
        waiting = ", no waiting" if waited < NO_WAITING else ""
        yield f"it used {more:.1f} times the CPU seconds: more work or slower cores{waiting}"


def _load(row: Record) -> Iterator[str]:
    """Say how busy the machine was, as far as the run's last attempt recorded it."""
    if row.load >= 0:
        yield f"load {row.load:.1f} on {row.cores:.0f} cores"
    for share, what in ((row.others, "used by other processes"), (row.steal, "stolen")):
        if share >= 0.01:
            yield f"{100 * share:.0f} % of their time {what}"
