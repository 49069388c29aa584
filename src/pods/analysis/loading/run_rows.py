"""Make the rows that a run has in the tables of a study."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pods.analysis.loading.consistency import machine_of
from pods.analysis.loading.faults import Fault
from pods.analysis.loading.run_reader import Row, Run
from pods.analysis.loading.series_names import settings


@dataclass(frozen=True)
class RunRows:
    """One run's rows of the tables of a `Study`."""

    about: Row
    """Its row of `Study.runs`."""
    evaluations: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)


def run_rows(run: Run, series: str, varied: Row, faults: Sequence[Fault]) -> RunRows:
    """Make the rows of a run, without what has a fault.

    Args:
        run: the run.
        series: the name of its curve.
        varied: its values of the keys that vary in the study.
        faults: what keeps the run from being complete.
    """
    key: Row = {"series": series, "seed": run.config.seed, "run": run.store.folder.name}
    about = key | _about(run, varied) | {"complete": not faults}
    if any(fault.unusable for fault in faults):
        return RunRows(about)

    rows = RunRows(about)
    usable = run.points.keys() - {fault.step for fault in faults}
    for step in sorted(usable):
        place = {"step": step, "train_seconds": run.points[step]}
        rows.evaluations.append(key | place | run.means[step])
    for line in run.lines:
        rows.steps.append(key | _numbers(line))
    return rows


def _numbers(line: Row) -> Row:
    return {name: value for name, value in line.items() if isinstance(value, int | float)}


def _about(run: Run, varied: Row) -> Row:
    """Say what the run is, with its values of the keys that vary, and what it ran on at last."""
    config = run.config
    attempt: Row = run.attempts[-1] if run.attempts else {}
    packages = attempt.get("packages", {})
    versions = [f"{name} {version}" for name, version in packages.items() if version]

    return {
        "arm": config.arm_name(),
        "rule": "all" if config.nm.n == config.nm.m else config.sampler.rule,
        "n": config.nm.n,
        "m": config.nm.m,
        **varied,
        "settings": settings(run.identity),
        "prompts": config.prompts_per_step * config.nm.groups,  # groups of n rollouts per step
        "state": run.state,
        "train_seconds": _train_seconds(run),
        "budget_seconds": config.budget.train_seconds,
        "max_steps": config.budget.max_steps,
        "machine": machine_of(attempt, config),
        "device": config.hardware.device,
        "cpu_share": _cpu_share(run),
        "versions": ", ".join(versions),
        "commit": attempt.get("commit"),
        "started": run.attempts[0].get("started") if run.attempts else None,
        "changes": "; ".join(run.changes),
        "folder": str(run.store.folder),
    }


def _train_seconds(run: Run) -> float:
    return run.points[max(run.points)]


def _cpu_share(run: Run) -> float:
    """Return CPU seconds per second of training; NaN if unknown, or on a GPU."""
    cpu_seconds = 0.0
    for line in run.lines:
        for name, value in line.items():
            if name.startswith("cpu_seconds/"):
                cpu_seconds += value

    seconds = _train_seconds(run)
    if run.config.hardware.device != "cpu" or not cpu_seconds or not seconds:
        return np.nan
    return cpu_seconds / seconds
