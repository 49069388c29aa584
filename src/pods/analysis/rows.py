"""What one run adds to each of a study's tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pods.analysis.grid import Hole
from pods.analysis.mixed import machine_of
from pods.analysis.names import OF_AN_ARM, SEPARATOR, rule_of
from pods.analysis.read import PLACES, Records, Row, Run
from pods.runs.attempts import wall_seconds

NUMBERS = (int, float)


@dataclass(frozen=True)
class RunRows:
    """One run's rows."""

    about: Row
    evaluations: list[Row]
    steps: list[Row]
    questions: list[str]
    """Of its last evaluation."""
    correct: NDArray[np.float64]
    """Share of right answers to each, over the repeats."""


def run_rows(run: Run, series: str, gaps: Sequence[Hole]) -> RunRows:
    """The rows of a run: evaluations with a hole are left out, and the run is then not complete."""
    config, name = run.config, run.store.folder.name
    where: Row = {"series": series, "seed": config.seed, "run": name}
    lost = {gap.step for gap in gaps}
    usable = [s for s in sorted(run.points) if s not in lost] if not _useless(gaps) else []
    evaluations = [{**where, "step": step, "train_seconds": run.points[step],
                    **_means(run.records[step])} for step in usable]  # fmt: skip
    about = {
        **where,
        "arm": config.arm or config.sampler.rule,
        "rule": rule_of(config),
        "n": config.nm.n,
        "m": config.nm.m,
        "selection": SEPARATOR.join(f"{key}={run.identity.get(key)}" for key in OF_AN_ARM),
        "prompts": config.prompts_per_step * config.nm.groups,  # groups of n that a step asks for
        "complete": not gaps,
        "state": run.state,
        "train_seconds": run.points[max(run.points)],
        "budget_seconds": config.budget.train_seconds,
        "max_steps": config.budget.max_steps,
        "wall_seconds": wall_seconds(run.store) or None,
        **_ran_on(run),
        "changes": "; ".join(run.changes),
        "folder": str(run.store.folder),
    }
    last = usable[-1:] if usable and usable[-1] == max(run.points) else []
    questions, correct = _by_question(run.records[last[0]]) if last else ([], np.zeros(0))
    steps = [{**where, **_numbers(line)} for line in run.lines] if not _useless(gaps) else []
    return RunRows(about, evaluations, steps, questions, correct)


def _useless(gaps: Sequence[Hole]) -> bool:
    return any(gap.untimed for gap in gaps)


def _ran_on(run: Run) -> Row:
    """Machine, versions and commit of the run's last attempt."""
    last: Row = run.attempts[-1] if run.attempts else {}
    versions = {k: v for k, v in last.get("packages", {}).items() if v}
    return {
        "machine": machine_of(last, run.config),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "commit": last.get("commit"),
    }


def _means(records: Records | str) -> Row:
    """Of one evaluation, over all its answers: each repeat has the same number of them."""
    assert not isinstance(records, str)
    repeats = len(np.unique(records.repeat))
    return {
        "accuracy": _share(records.correct),
        "lenient": np.nan if records.lenient is None else _share(records.lenient),
        "format": _share(records.format),
        "both": _share(records.correct & records.format),
        "length": records.length.mean(),
        "no_answer": _share(records.verdict == PLACES["none"]),
        "timeouts": _share(records.verdict == PLACES["timeout"]),
        "repeats": repeats,
        "questions": len(records.question) // repeats,
    }


def _share(truths: NDArray[np.bool_]) -> float:
    """Their mean, in a third of the time that NumPy's takes on so few."""
    return np.count_nonzero(truths) / len(truths)


def _by_question(records: Records | str) -> tuple[list[str], NDArray[np.float64]]:
    """Questions, and the share of right answers to each over the repeats."""
    assert not isinstance(records, str)
    repeats = len(np.unique(records.repeat))  # one after another, each with all questions in order
    questions = records.question[: len(records.question) // repeats]
    return questions, records.correct.reshape(repeats, -1).mean(0)


def _numbers(line: Row) -> Row:
    return {key: value for key, value in line.items() if isinstance(value, NUMBERS)}
