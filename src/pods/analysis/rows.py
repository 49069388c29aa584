"""Turn one run into its rows of a study's tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pods.analysis.completeness import Problem
from pods.analysis.consistency import clock_decides, machine_of
from pods.analysis.repeats import majority, pass_at_k, sizes
from pods.analysis.run_reader import VERDICT_CODES, Records, Row, Run
from pods.analysis.series_names import ARM_KEYS, SEPARATOR, rule_of
from pods.runs.attempts import loads, wall_seconds


@dataclass(frozen=True)
class RunRows:
    """The rows of one run."""

    about: Row
    """The row of the run itself."""
    evaluations: list[Row]
    steps: list[Row]
    further: list[Row]
    """The rows of evaluations on further test sets."""
    questions: list[str]
    """The questions of the last evaluation."""
    correct: NDArray[np.float64]
    """The share of correct answers to each of them, over the repeats."""


def run_rows(run: Run, key: Row, problems: Sequence[Problem]) -> RunRows:
    """Make the rows of a run, which start with `key`, without what has a problem."""
    damaged = {(problem.test_set, problem.step) for problem in problems}
    trusted = not any(problem.unusable for problem in problems)
    usable = [step for step in sorted(run.points) if trusted and ("", step) not in damaged]
    last = max(run.points)
    questions, correct = _by_question(run.records[last]) if last in usable else ([], np.zeros(0))
    return RunRows(
        about=key | _about(run, complete=all(problem.test_set for problem in problems)),
        evaluations=[
            {**key, "step": step, "train_seconds": run.points[step], **_means(run.records[step])}
            for step in usable
        ],
        further=[
            {**key, "test_set": name, "step": step, "train_seconds": run.points[step]}
            | _means(further.records[step])
            | _of_repeats(further.records[step])
            for name, further in run.further.items()
            for step in sorted(run.points)
            if trusted and (name, step) not in damaged
        ],
        steps=[key | _numbers(line) for line in run.lines] if trusted else [],
        questions=questions,
        correct=correct,
    )


def _about(run: Run, complete: bool) -> Row:
    """Say what the run is, and what its last attempt ran on."""
    config = run.config
    attempt: Row = run.attempts[-1] if run.attempts else {}
    versions = {name: v for name, v in attempt.get("packages", {}).items() if v}
    return {
        "arm": config.arm_name(),
        "rule": rule_of(config),
        "n": config.nm.n,
        "m": config.nm.m,
        "selection": SEPARATOR.join(f"{key}={run.identity.get(key)}" for key in ARM_KEYS),
        "prompts": config.prompts_per_step * config.nm.groups,  # groups of n rollouts per step
        "complete": complete,
        "state": run.state,
        "train_seconds": run.points[max(run.points)],
        "budget_seconds": config.budget.train_seconds,
        "max_steps": config.budget.max_steps,
        "clock": config.budget.clock_text(),
        "clock_decides": clock_decides(config),
        "wall_seconds": wall_seconds(run.store) or None,
        "machine": machine_of(attempt, config),
        "device": config.hardware.device,
        **_load(run),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "commit": attempt.get("commit"),
        "changes": "; ".join(run.changes),
        "folder": str(run.store.folder),
    }


def _load(run: Run) -> Row:
    """Say how busy the machine was in the last attempt, as far as that was recorded."""
    recorded = loads(run.store)
    load = recorded[-1] if recorded else {}
    average = load.get("load_start") if load.get("load_end") is None else load["load_end"]
    named = {"load": average, **{name: load.get(name) for name in ("cores", "steal", "others")}}
    return {name: np.nan if value is None else value for name, value in named.items()}


def _means(records: Records) -> Row:
    """Average one evaluation over all its answers; each repeat has the same number of them."""
    repeats = _repeats(records)
    return {
        "accuracy": _share(records.correct),
        "lenient": np.nan if records.lenient is None else _share(records.lenient),
        "format": _share(records.format),
        "both": _share(records.correct & records.format),
        "length": records.length.mean(),
        "no_answer": _share(records.verdict == VERDICT_CODES["none"]),
        "timeouts": _share(records.verdict == VERDICT_CODES["timeout"]),
        "repeats": repeats,
        "questions": len(records.question) // repeats,
    }


def _of_repeats(records: Records) -> Row:
    """Return pass@k and, as maj@R, the majority vote of an evaluation on a further test set."""
    repeats = _repeats(records)
    if repeats == 1:
        return {}
    correct = records.correct.reshape(repeats, -1)
    answers = np.reshape(np.array(records.answer, object), correct.shape).tolist()
    passes = {f"pass@{k}": pass_at_k(correct.sum(0), repeats, k) for k in sizes(repeats)}
    return {**passes, f"maj@{repeats}": majority(correct, answers)}


def _repeats(records: Records) -> int:
    return int(records.repeat[-1]) + 1  # the records are complete and in order


def _share(values: NDArray[np.bool_]) -> float:
    """Average booleans, in a third of the time that NumPy's mean takes on so few."""
    return np.count_nonzero(values) / len(values)


def _by_question(records: Records) -> tuple[list[str], NDArray[np.float64]]:
    shares = records.correct.reshape(_repeats(records), -1).mean(0)
    return records.question[: len(shares)], shares


def _numbers(line: Row) -> Row:
    return {key: value for key, value in line.items() if isinstance(value, int | float)}
