"""Load a study, from its run folders or from imported logs, as the tables that all verbs share."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.analysis.completeness import problems, questions_of
from pods.analysis.consistency import DATA_KEYS, budget_text, inconsistencies, one_clock
from pods.analysis.published.imports import Published, read_import, unexpected
from pods.analysis.rows import RunRows, run_rows
from pods.analysis.run_reader import Row, Run, open_run
from pods.analysis.series_names import SEPARATOR, series_names
from pods.config.clock_model import ClockModel

KEY = ["series", "seed", "run"]
MEASURED = "measured"


class IncompleteStudy(ValueError):
    """Raised if runs or evaluations are missing, duplicated or damaged; the message names each."""


class MixedStudy(ValueError):
    """Raised if runs are not comparable; the message names each inconsistency."""


@dataclass(frozen=True)
class Study:
    """The runs of one figure. Accuracies are fractions, averaged over repeats within a run."""

    name: str
    runs: pd.DataFrame
    """One row per run: series, seed, run, arm, rule, n, m, prompts, complete, machine, versions;
    not in imported logs device, and load, cores, steal and others of `pods.system.load`; and curve,
    the series' own name, where a user gave labels."""
    evaluations: pd.DataFrame
    """One row per (run, checkpoint): series, seed, run, step, train_seconds, repeats, questions,
    and shares or means of the answers: accuracy; lenient (correct by the PODS authors' grader; only
    if a run has it); format; both (correct and in the requested format); length; and, not in
    imported logs, no_answer and timeouts (grading took too long)."""
    steps: pd.DataFrame
    """One row per (run, step): series, seed, run and the numbers of metrics.jsonl."""
    questions: pd.DataFrame
    """One row per (run, question): series, seed, run, question, and correct, the mean over the
    repeats of the run's last evaluation."""
    machines: list[str]
    """Processors or GPUs that the runs ran on."""
    budget: str
    """The training budget per run, for a reader."""
    missing: list[str]
    """What is missing, duplicated or damaged, where that was allowed."""
    inconsistencies: list[str]
    """In what the runs differ although they should not, where that was allowed."""
    seeded: bool = True
    """Equal seeds mean equal prompts and draws, so that runs may be paired."""
    note: str = ""
    """What a reader of imported logs has to know."""
    metric: str = "accuracy"
    """The measure that the column accuracy holds; see `pods.analysis.view`."""
    x: str = "train_seconds"
    """The column of `evaluations` and `steps` that curves are drawn over; see the same module."""
    until: float = math.inf
    """End of the window that is shown and compared, in the unit of x."""
    baseline: str | None = None
    """Name of the curve that the others are compared with; none: the GRPO arm."""
    clock: str = MEASURED
    """Where the training seconds come from: `measured`, or modelled by which prices."""
    further: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row per (run, further test set, checkpoint): test_set, the columns of `evaluations` and,
    if there are several repeats R, pass@k and maj@R. Empty without further test sets."""

    @property
    def further_sets(self) -> list[str]:
        """The names of the further test sets that any run was evaluated on."""
        return [] if self.further.empty else sorted(set(self.further.test_set))

    def on(self, test_set: str) -> pd.DataFrame:
        """Return the evaluations on one further test set, with the columns of `evaluations`.

        Raises:
            ValueError: no run was evaluated on it; the message names those that are there.
        """
        if test_set not in self.further_sets:
            there = ", ".join(self.further_sets) or "none"
            raise ValueError(f"test set {test_set}: study {self.name} has no evaluation: {there}")
        rows = self.further[self.further.test_set == test_set]
        return rows.drop(columns="test_set").dropna(axis=1, how="all").reset_index(drop=True)

    def labelled(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table that names the clock in a column where it is a model."""
        return table if self.clock == MEASURED or table.empty else table.assign(clock=self.clock)

    @property
    def complete(self) -> set[str]:
        """The names of the runs with nothing missing."""
        return set(self.runs.run[self.runs.complete])


def load(
    folder: Path, folders: Sequence[Path], allow_missing: bool = False, allow_mixed: bool = False
) -> Study:
    """Read a study and check that it is complete and consistent.

    Args:
        folder: the study's folder.
        folders: the folders of its runs, and of runs of further studies; none: the study consists
            of imported logs.
        allow_missing: leave out what is missing or damaged, and report it.
        allow_mixed: accept runs of several machines, versions or configs, and report it.

    Raises:
        IncompleteStudy: something is missing and that is not allowed, or nothing is left.
        MixedStudy: budgets, machines, versions or the configs of an arm differ unallowed.
        ValueError: imported logs are damaged.
    """
    if not folders:
        return _imported(folder, allow_missing)
    runs, missing = _opened(folders)
    series = series_names([(run.config, run.identity) for run in runs])
    series = _apart(runs, series)
    labels = [f"{name} seed {run.config.seed}" for name, run in zip(series, runs, strict=True)]
    questions = _questions(runs)
    found = [
        list(problems(run, name, questions[_test_set(run)]))
        for run, name in zip(runs, labels, strict=True)
    ]
    duplicates = _duplicates(runs, labels)
    missing += [*_missing_seeds(runs, series), *duplicates.values()]
    missing += [
        str(problem)
        for run, of_run in zip(runs, found, strict=True)
        for problem in of_run
        if problem.test_set in ("", *run.config.evaluation.sets)
    ]
    clock = one_clock(runs)
    mixed = inconsistencies(runs, series, labels)
    _refuse(missing, mixed, allow_missing, allow_mixed)
    several = len({*map(_study, runs)}) > 1
    rows = [
        run_rows(run, _key(run, name, several), of_run)
        for run, name, of_run in zip(runs, series, found, strict=True)
        if run.store.folder not in duplicates
    ]
    evaluations = [row for run in rows for row in run.evaluations]
    if not evaluations:
        raise IncompleteStudy(f"{folder.name}: no evaluation to read")
    about = pd.DataFrame([run.about for run in rows])
    study = Study(
        name=" + ".join(dict.fromkeys([folder.name, *map(_study, runs)])),
        runs=about,
        evaluations=pd.DataFrame(evaluations).dropna(axis=1, how="all"),
        steps=_frame([row for run in rows for row in run.steps], [*KEY, "step"]),
        questions=_by_question(rows),
        machines=sorted(set(about.machine)),
        budget=", ".join(dict.fromkeys(budget_text(run.config) for run in runs)),
        missing=missing,
        inconsistencies=mixed,
        further=pd.DataFrame([row for run in rows for row in run.further]),
    )
    return study if clock is None else timed_by(study, clock)


def timed_by(study: Study, model: ClockModel) -> Study:
    """Label a study as timed by a model, wherever its clock or note is shown."""
    clock = f"modelled by {model.name}"
    formula = f"a step takes {model.formula()} ({model.source})"
    return replace(study, clock=clock, note=f"training time is {clock}, not measured: {formula}")


def check_same_clock(study: Study, other: Study) -> None:
    """Check that two studies can share a time axis.

    Raises:
        ValueError: one is measured and the other modelled, or both by different models.
    """
    if study.clock != other.clock:
        raise ValueError(
            f"clock: must be one for a figure, and {study.name} is {study.clock}, {other.name} "
            f"{other.clock}"
        )


def indices_by_run(rows: pd.DataFrame) -> dict[str, NDArray[np.intp]]:
    """Return the row indices of each run, by its name; making a table of each would be slow."""
    groups = sorted(rows.groupby("run").indices.items())
    return {str(run): np.asarray(indices, np.intp) for run, indices in groups}


def _opened(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Return the runs that can be read, and why the others cannot."""
    runs, unreadable = [], []
    for folder in folders:
        try:
            runs.append(open_run(folder))
        except ValueError as error:
            unreadable.append(str(error))
    return runs, unreadable


def _refuse(
    missing: Sequence[str], mixed: Sequence[str], allow_missing: bool, allow_mixed: bool
) -> None:
    """Raise an error that names everything that is not allowed."""
    lines = []
    if missing and not allow_missing:
        lines += ["missing (`pods evaluate` repeats evaluations, --allow-missing leaves it out):"]
        lines += missing
    if mixed and not allow_mixed:
        lines += ["inconsistent (--allow-mixed accepts it, study=NAME keeps runs apart):", *mixed]
    if lines:
        error = IncompleteStudy if missing and not allow_missing else MixedStudy
        raise error("\n".join(lines))


def _imported(folder: Path, allow_missing: bool) -> Study:
    """Load a study that consists of other people's logs."""
    try:
        study = imported(folder.name, read_import(folder))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}/imported is damaged: {error}; import it again") from error
    refused = unexpected(study.missing)
    if refused and not allow_missing:
        raise IncompleteStudy("\n".join(["irregular (--allow-missing leaves it out):", *refused]))
    return study


def imported(name: str, published: Published) -> Study:
    """Make a study of other people's logs; its window ends where their figures do."""
    runs, evaluations, about = published
    return Study(
        name=name,
        runs=runs,
        evaluations=evaluations,
        steps=_frame([], [*KEY, "step"]),
        questions=_frame([], [*KEY, "question", "correct"]),
        machines=list(about["machines"]),
        budget=str(about["budget"]),
        missing=list(about["holes"]),
        inconsistencies=[],
        seeded=False,
        note=str(about["note"]),
        until=float(about["plotted_seconds"]),
    )


def _frame(rows: Sequence[Row], columns: Sequence[str]) -> pd.DataFrame:
    """Make a table that has its columns even without a row."""
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(columns))


def _by_question(rows: Sequence[RunRows]) -> pd.DataFrame:
    """Make one row per (run, question) of the last evaluations."""
    runs = [run for run in rows for _ in run.questions]
    return pd.DataFrame(
        {name: [run.about[name] for run in runs] for name in KEY}
        | {
            "question": [question for run in rows for question in run.questions],
            "correct": np.concatenate([run.correct for run in rows]),
        }
    )


def _questions(runs: Sequence[Run]) -> dict[str, dict[str, list[str]]]:
    """Return the questions of runs with equal data, by test set; the main one has no name."""
    same: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        same[_test_set(run)].append(run)
    questions = {}
    for data, some in same.items():
        names = dict.fromkeys(name for run in some for name in run.further)
        on = {name: questions_of([r for r in some if name in r.further], name) for name in names}
        questions[data] = {"": questions_of(some), **on}
    return questions


def _test_set(run: Run) -> str:
    """Identify a run's questions: by data, and by tokenizer, which may find some too long."""
    return str([run.identity.get(key) for key in (*DATA_KEYS, "data", "model.few_shot")])


def _duplicates(runs: Sequence[Run], labels: Sequence[str]) -> dict[Path, str]:
    """Describe runs of equal series and seed, by folder; one run without contradictions stays."""
    first: dict[str, Path] = {}
    duplicates = {}
    pairs = sorted(zip(runs, labels, strict=True), key=lambda pair: bool(pair[0].contradictions))
    for run, name in pairs:
        folder = run.store.folder
        if first.setdefault(name, folder) != folder:
            duplicates[folder] = f"{name}: duplicate runs ({first[name]} and {folder})"
    return duplicates


def _missing_seeds(runs: Sequence[Run], series: Sequence[str]) -> list[str]:
    """Name the seeds that one series has and another one of the same study lacks."""
    present = {(name, run.config.seed) for name, run in zip(series, runs, strict=True)}
    seeds: dict[str, set[int]] = defaultdict(set)
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for name, run in zip(series, runs, strict=True):
        seeds[_study(run)].add(run.config.seed)
        names[_study(run)][name] = None
    lines = (
        f"{name} seed {seed}: never run"
        for study in names
        for name in names[study]
        for seed in sorted(seeds[study])
        if (name, seed) not in present
    )
    return list(dict.fromkeys(lines))


def _apart(runs: Sequence[Run], series: Sequence[str]) -> list[str]:
    """Name the study too in curves of which several studies have a run of the same seed.

    Runs of other seeds add to a curve.
    """
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for run, name in zip(runs, series, strict=True):
        found[name, run.config.seed].add(_study(run))
    repeated = {name for (name, _), studies in found.items() if len(studies) > 1}
    return [
        f"{name}{SEPARATOR}{_study(run)}" if name in repeated else name
        for run, name in zip(runs, series, strict=True)
    ]


def _key(run: Run, series: str, several: bool) -> Row:
    """Return the columns `KEY`; in several studies equal runs have equal folder names."""
    folder = run.store.folder.name
    name = f"{_study(run)}/{folder}" if several else folder
    return {"series": series, "seed": run.config.seed, "run": name}


def _study(run: Run) -> str:
    """Return the name of the folder of a run's study, which may have been renamed."""
    return run.store.folder.parents[2].name
