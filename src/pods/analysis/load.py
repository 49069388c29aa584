"""Read a study: its run folders, or logs that were imported, as the tables that all verbs share."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.analysis.grid import holes, questions_of
from pods.analysis.mixed import budget_of, mixtures
from pods.analysis.names import series_names
from pods.analysis.published.imports import read_import
from pods.analysis.read import Row, Run, open_run
from pods.analysis.rows import RunRows, run_rows

EVALUATIONS = ["series", "seed", "run", "step", "train_seconds", "accuracy", "lenient",
               "format", "both", "length", "no_answer", "timeouts", "repeats",
               "questions"]  # fmt: skip
STEPS = ["series", "seed", "run", "step"]  # at least
QUESTIONS = ["series", "seed", "run", "question", "correct"]


class IncompleteStudy(ValueError):
    """Holes in the grid of runs and evaluations; the message names each."""


class MixedStudy(ValueError):
    """Runs that share no fair time axis, or no config; the message names each."""


@dataclass(frozen=True)
class Study:
    """The runs of one figure. Accuracies are fractions; repeats are averaged within a run."""

    name: str
    runs: pd.DataFrame
    """A row a run: run, series, arm, rule, n, m, prompts, seed, complete, and what it ran on."""
    evaluations: pd.DataFrame
    """A row a (run, checkpoint): `EVALUATIONS`, shares or means of its answers. lenient: right
    by the PODS authors' grader, a column only if some run has that; both: answer and form are
    right; no_answer, timeouts: none there, grading it took too long; not of imported logs."""
    steps: pd.DataFrame
    """A row a (run, step): series, seed, run and the numbers of metrics.jsonl."""
    questions: pd.DataFrame
    """series, seed, run, question, correct: mean over repeats at the run's last evaluation."""
    machines: list[str]
    """Processors or GPUs that the runs ran on."""
    budget: str
    """In words."""
    holes: list[str]
    """What is missing, where that was allowed."""
    mixed: list[str]
    """What is not alike, where that was allowed."""
    seeded: bool = True
    """Equal seeds mean equal prompts and draws, so that runs may be paired."""
    note: str = ""
    """What a reader of imported logs has to know."""

    @property
    def complete(self) -> set[str]:
        """Runs with nothing missing."""
        return set(self.runs.run[self.runs.complete])


def load(
    folder: Path, folders: Sequence[Path], allow_missing: bool = False, allow_mixed: bool = False
) -> Study:
    """Read a study and check it.

    Args:
        folder: of the study.
        folders: of its runs.
        allow_missing: leave out what has a hole, and say so.
        allow_mixed: take runs of several machines, versions or configs together, and say so.

    Raises:
        IncompleteStudy: there are holes and they are not allowed, or nothing is left.
        MixedStudy: budgets, machines, versions or an arm's configs differ, and are not allowed to.
        ValueError: imported logs are damaged.
    """
    if not folders:
        return _imported(folder, allow_missing)
    runs, unread = _opened(folders)
    series = series_names([(run.config, run.identity) for run in runs])
    where = [f"{name} seed {run.config.seed}" for name, run in zip(series, runs, strict=True)]
    questions = _questions(runs)
    found = [list(holes(run, at, questions[_asked(run)]))
             for run, at in zip(runs, where, strict=True)]  # fmt: skip
    twins = _twins(runs, where)
    missing = [
        *unread,
        *_absent_seeds(runs, series),
        *twins.values(),
        *(str(hole) for some in found for hole in some),
    ]
    mixed = mixtures(runs, series, where)
    _refuse(missing, mixed, allow_missing, allow_mixed)
    rows = [run_rows(run, name, gaps) for run, name, gaps in zip(runs, series, found, strict=True)
            if run.store.folder not in twins]  # fmt: skip
    evaluations = [row for run in rows for row in run.evaluations]
    if not evaluations:
        raise IncompleteStudy(f"{folder.name}: no evaluation to read")
    about = pd.DataFrame([run.about for run in rows])
    return Study(
        name=folder.name,
        runs=about,
        evaluations=pd.DataFrame(evaluations, columns=EVALUATIONS).dropna(axis=1, how="all"),
        steps=_frame([row for run in rows for row in run.steps], STEPS),
        questions=_by_question(rows),
        machines=sorted(set(about.machine)),
        budget=", ".join(dict.fromkeys(budget_of(run.config) for run in runs)),
        holes=missing,
        mixed=mixed,
    )


def by_run(rows: pd.DataFrame) -> dict[str, NDArray[np.intp]]:
    """The places of each run's rows, runs by name: a study has too many to make a table of each."""
    found = sorted(rows.groupby("run").indices.items())
    return {str(run): np.asarray(places, np.intp) for run, places in found}


def _opened(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and what is wrong with the others."""
    runs, unread = [], []
    for folder in folders:
        try:
            runs.append(open_run(folder))
        except ValueError as error:
            unread.append(str(error))
    return runs, unread


def _refuse(
    missing: Sequence[str], mixed: Sequence[str], allow_missing: bool, allow_mixed: bool
) -> None:
    """Say everything that is wrong at once."""
    lines = []
    if missing and not allow_missing:
        lines += ["missing (`pods evaluate` repeats evaluations, --allow-missing leaves it out):"]
        lines += missing
    if mixed and not allow_mixed:
        lines += ["not alike (--allow-mixed draws all the same, study=NAME keeps apart):", *mixed]
    if lines:
        kind = IncompleteStudy if missing and not allow_missing else MixedStudy
        raise kind("\n".join(lines))


def _imported(folder: Path, allow_missing: bool) -> Study:
    """A study whose runs are somebody else's logs."""
    try:
        runs, evaluations, about = read_import(folder)
        missing = list(about["holes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}/imported is damaged: {error}; import it again") from error
    if missing and not allow_missing:
        raise IncompleteStudy("\n".join(["irregular (--allow-missing leaves it out):", *missing]))
    steps, questions = _frame([], STEPS), _frame([], QUESTIONS)
    return Study(
        folder.name, runs, evaluations, steps, questions, list(about["machines"]),
        str(about["budget"]), missing, [], seeded=False, note=str(about["note"]),
    )  # fmt: skip


def _frame(rows: Sequence[Row], columns: Sequence[str]) -> pd.DataFrame:
    """A table that has its columns even if it has no row."""
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(columns))


def _by_question(rows: Sequence[RunRows]) -> pd.DataFrame:
    """A row a (run, question), of the last evaluation."""
    each = [run for run in rows for _ in run.questions]
    return pd.DataFrame({
        "question": [question for run in rows for question in run.questions],
        "correct": np.concatenate([run.correct for run in rows]),
        **{name: [run.about[name] for run in each] for name in ("series", "seed", "run")},
    })  # fmt: skip


def _questions(runs: Sequence[Run]) -> dict[str, list[str]]:
    """The questions of runs that are asked the same ones."""
    alike: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        alike[_asked(run)].append(run)
    return {asked: questions_of(some) for asked, some in alike.items()}


def _asked(run: Run) -> str:
    """What determines a run's questions: data, and the tokenizer, which may find some too long."""
    keys = ("task.name", "task.test_set", "task.test_size", "task.few_shot", "evaluation.questions",
            "data", "model.name", "model.few_shot", "weights",
            "sampling.max_prompt_tokens")  # fmt: skip
    return str([run.identity.get(key) for key in keys])


def _twins(runs: Sequence[Run], where: Sequence[str]) -> dict[Path, str]:
    """Runs that are there twice, all but the first, and what to say of them."""
    first: dict[str, Path] = {}
    found = {}
    for run, at in sorted(zip(runs, where, strict=True), key=lambda pair: bool(pair[0].foreign)):
        folder = run.store.folder
        if first.setdefault(at, folder) != folder:
            found[folder] = f"{at}: run is there twice ({first[at]} and {folder})"
    return found


def _absent_seeds(runs: Sequence[Run], series: Sequence[str]) -> list[str]:
    """Seeds that some series has and another one has no run of."""
    seeds = {run.config.seed for run in runs}
    have = {(name, run.config.seed) for name, run in zip(series, runs, strict=True)}
    wanted = [(name, seed) for name in dict.fromkeys(series) for seed in sorted(seeds)]
    return [f"{name} seed {seed}: never run" for name, seed in wanted if (name, seed) not in have]
