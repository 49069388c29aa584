"""Read a run folder for analysis: config, log and averaged evaluations."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.runs.attempts import environments, recorded_changes
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.evaluations import due_points, means, read_evaluation
from pods.runs.files import read_lines
from pods.runs.history import evaluated_steps, evaluation_points
from pods.runs.identity import fingerprint, identity_keys
from pods.runs.records import Damaged, Data
from pods.runs.status import state_of
from pods.runs.store import RunStore

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run folder, opened and read."""

    store: RunStore
    config: Config
    identity: dict[str, Any]
    """The keys that the run's hash is made of, without the seed. In a study whose seeds have start
    policies of their own also without the start policy."""
    state: str
    step: int
    """The last step, according to status.json."""
    lines: list[Row]
    """The lines of metrics.jsonl."""
    points: dict[int, float]
    """Training seconds of each step that has to be evaluated, from the log."""
    data: Data | None
    """The problems that the run used."""
    attempts: list[Row]
    """Machine and versions of each process that worked on the run."""
    contradictions: list[str]
    """Where config, identity and folder contradict each other."""
    changes: list[str]
    """What changed during the run, such as a version."""
    means: dict[int, Row] = field(default_factory=dict)
    """What each evaluation has on average, by step; see `Study.evaluations`."""
    incomplete: dict[int, str] = field(default_factory=dict)
    """Why an evaluation cannot be read, by step."""


def open_run(folder: Path) -> Run:
    """Read a run folder; an evaluation that cannot be read is kept as the reason why.

    `ValueError`: config, identity, status, data or log cannot be read.
    """
    store = RunStore(folder)
    try:
        identity = store.identity()
        config = store.config()
        status = store.status()
        changes = recorded_changes(store)
        contradictions = [] if changes else _contradictions(store, config, identity)
        if identity.pop("seed") != config.seed and changes:
            contradictions.append("config.yaml and identity.json differ in seed")
        state = state_of(store, status=status)
        lines = read_lines(store.metrics_path, orjson.loads)
        run = Run(
            store=store,
            config=config,
            identity=identity,
            state=state,
            step=int(status.get("step", 0)),
            lines=lines,
            points=_points(store, config, lines, ended=state == "done"),
            data=store.data(),
            attempts=environments(store),
            contradictions=contradictions,
            changes=changes,
        )
    except READ_ERRORS as error:
        raise ValueError(
            f"{folder.parent.name}/{folder.name} cannot be read: {type(error).__name__}: {error}"
        ) from error
    for step in evaluated_steps(store):
        try:
            run.means[step] = _evaluation_means(store, config, step)
        except Damaged as error:
            run.incomplete[step] = str(error)
    return run


def _points(store: RunStore, config: Config, lines: list[Row], ended: bool) -> dict[int, float]:
    """Return what has to be evaluated: the points of the log, and the ends of earlier budgets."""
    points = due_points(config, lines, ended)
    earlier = evaluation_points(store)
    for line in lines:
        if line["step"] in earlier:
            points[line["step"]] = line["train_seconds"]
    return points


def _evaluation_means(store: RunStore, config: Config, step: int) -> Row:
    """Average the answers of one evaluation; `Damaged`: some are missing or no records."""
    records = read_evaluation(store, config, step)
    correct = np.array([record.correct for record in records])
    correct = correct.reshape(config.evaluation.repeats, -1)
    repeats, questions = correct.shape
    sizes = {"repeats": repeats, "questions": questions}
    return means(records) | pass_at_k(correct) | sizes


def _contradictions(store: RunStore, config: Config, identity: dict[str, Any]) -> list[str]:
    """Compare the frozen config and the folder's name with the identity of an unchanged run."""
    lines = []
    if not store.folder.name.endswith(f"-{fingerprint(identity)}"):
        lines.append("the folder's name is not the hash of identity.json")
    for key, value in identity_keys(config).items():
        if identity.get(key, value) != value:
            lines.append(f"config.yaml and identity.json differ in {key}")
    return lines


def pass_at_k(correct: NDArray[np.bool_]) -> dict[str, float]:
    """Estimate how likely one of k answers to a question is right, from (R, Q) answers.

    The mean over the Q questions of 1 - C(R - c, k) / C(R, k), where c of R answers are right: the
    share of the subsets of k that have a right one, without bias (Chen et al. 2021,
    arXiv:2107.03374, eq. 1). k is 1, 2, 5 and R, as far as there are R answers.

    >>> pass_at_k(np.array([[True], [False], [False]]))  # 1 of 3, and 2 of the 3 pairs
    {'pass@1': 0.3333333333333333, 'pass@2': 0.6666666666666666, 'pass@3': 1.0}
    """
    repeats, questions = correct.shape
    with_right = np.bincount(correct.sum(0)).tolist()  # questions by their number of right answers
    shares = {}
    for k in sorted({k for k in (1, 2, 5, repeats) if k <= repeats}):
        subsets = questions * math.comb(repeats, k)
        wrong = sum(count * math.comb(repeats - c, k) for c, count in enumerate(with_right))
        shares[f"pass@{k}"] = (subsets - wrong) / subsets
    return shares
