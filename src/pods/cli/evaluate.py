"""`pods evaluate`: make the records that a study's evaluations lack, with one job per run.

Without `--on` those are of the main test set and of the further ones that a run's config asks for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pods.config.checks import ON_THE_HUB, missing_packages, missing_sets, set_checks
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.launch.backend import Job, Outcome
from pods.launch.local_backend import local_backend
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.evaluations import Point, answered_questions, due_points, expected_points
from pods.runs.files import read_lines, read_or_empty
from pods.runs.history import clocks, evaluation_points
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.system.console import lossy_console
from pods.system.errors import AGAIN, DONE, FAILED


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of a run that is not running."""

    store: RunStore
    config: Config
    questions: Mapping[Point, tuple[str, ...] | None]
    """Questions that each evaluation answers; None: it is incomplete or damaged."""
    problem: str | None
    """The gaps in the run's log, because of which some evaluation points may be unknown."""


@lossy_console()
def evaluate_missing(
    folders: Sequence[Path],
    jobs: int | None = None,
    on: str | None = None,
    sets_path: str | None = None,
) -> int:
    """Evaluate every evaluation point that lacks records, and print what was done.

    Args:
        folders: of the runs; a run that another process executes is left alone.
        jobs: largest number of jobs at once; None: as in a sweep.
        on: a further test set to evaluate on, also where no config asks for it.
        sets_path: folder with the data of further test sets; None: that of the run's config.

    Returns:
        The exit code: 0 nothing is missing any more; 1 something could not be evaluated; 75 the
        same command has to run again, because it was stopped or another process executes a run.

    Raises:
        ValueError: `jobs` is less than 1, or a test set is unknown or its data are not there.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs={jobs}: must be at least 1")
    if on is not None and on not in ON_THE_HUB:
        raise ConfigError("--on", on, f"must be one of {', '.join(ON_THE_HUB)}")
    runs, codes = _read_all(folders, on)
    todo = [
        Job(run.store, _config(run.config, points, sets_path), points)
        for run in runs
        if (points := _missing(run, runs))
    ]
    for job in todo:
        _refuse_what_cannot_start(job.config)
    if not todo:
        readable = " that could be read" if FAILED in codes else ""
        count = sum(len(run.questions) for run in runs)
        print(f"{len(runs)} runs{readable}, {count} evaluations: nothing is missing")
    for device in sorted({job.config.hardware.device for job in todo}):
        outcome = _evaluate([job for job in todo if job.config.hardware.device == device], jobs)
        codes += [_code(code, outcome.stopped) for code in outcome.exit_codes]
        if outcome.stopped:
            print("stopped on request; the same command resumes")
            codes.append(AGAIN)
            break
    return FAILED if FAILED in codes else max(codes)


def _refuse_what_cannot_start(config: Config) -> None:
    """Raise a ConfigError if test sets or packages are missing, or the model cannot read them."""
    for key, holds, allowed in set_checks(config):
        if not holds:
            raise ConfigError(key, config.evaluation.sets, allowed)
    for absent in (*missing_sets(config.evaluation, "--sets-path"), *missing_packages(config)):
        raise absent


def _config(config: Config, points: Sequence[Point], sets_path: str | None) -> Config:
    """Return the config of a job that completes evaluations."""
    sets = sorted({point.test_set for point in points} - {""})
    place = sets_path or config.evaluation.sets_path
    evaluation = replace(config.evaluation, sets=sets, sets_path=place)
    return replace(config.on(1), evaluation=evaluation)


def _read_all(folders: Sequence[Path], on: str | None) -> tuple[list[Evaluations], list[int]]:
    """Read the evaluations of runs that have begun; return them and an exit code per problem."""
    runs, codes = [], [DONE]
    for store in map(RunStore, folders):
        name = f"{store.folder.parent.name}/{store.folder.name}"
        try:
            state = state_of(store)
            if state == "running" or store.is_held():
                print(f"{name}  held by another process; left alone")
                codes.append(AGAIN)
            elif state != "pending" or clocks(store):
                runs.append(_read(store, state, on))
                if runs[-1].problem:
                    print(f"{name}  {runs[-1].problem}")
                    codes.append(FAILED)
        except READ_ERRORS as error:
            print(f"{name}  cannot be read: {error}")
            codes.append(FAILED)
    return runs, codes


def _read(store: RunStore, state: str, on: str | None) -> Evaluations:
    """Read a run's log and evaluations, on one further test set if it is named.

    Raises:
        ValueError: the log is damaged.
    """
    config, log = store.config(), store.metrics_path.name
    newest = max((clock["step"] for clock in clocks(store).values()), default=-1)
    reached = max(newest, store.status().get("step", 0) if state == "done" else 0)
    try:
        lines = read_lines(store.metrics_path)
        logged = lines[-1]["step"] if lines else 0
        complete = state == "done" and logged >= reached
        due = expected_points(config, lines) if complete else due_points(config, lines)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{log} is damaged: {error}") from error
    if state != "done":  # later steps are made again when the run is resumed
        due = {step: seconds for step, seconds in due.items() if step <= newest}
    names = ["", *config.evaluation.sets] if on is None else [on]
    steps = sorted({*due, *evaluation_points(store)})
    points = [Point(step, name) for step in steps for name in names]
    return Evaluations(
        store,
        config,
        {
            point: answered_questions(
                config, point.step, read_or_empty(store.evaluation_path(*point)), point.test_set
            )
            for point in points
        },
        f"{log} ends at step {logged}, but the run at step {reached}" if logged < reached else None,
    )


def _missing(run: Evaluations, runs: Sequence[Evaluations]) -> tuple[Point, ...]:
    """Return the evaluations that are incomplete by themselves or beside those of similar runs.

    Only the task and the tokenizer know how many questions there are, so the largest set that any
    evaluation of a run with the same questions answers is taken for all.
    """
    similar = [
        other for other in runs if _determines_questions(other) == _determines_questions(run)
    ]
    counts = Counter(
        (point.test_set, names)
        for other in similar
        for point, names in other.questions.items()
        if names
    )
    expected = {
        test_set: names
        for (test_set, names), _ in sorted(counts.items(), key=lambda one: (len(one[0][1]), one[1]))
    }  # the largest is the last of its test set
    return tuple(
        point
        for point, names in run.questions.items()
        if names is None or names != expected[point.test_set]
    )


def _determines_questions(run: Evaluations) -> tuple[object, ...]:
    config = run.config
    longest = config.sampling.max_prompt_tokens
    return config.task, config.model.name, longest, config.evaluation.questions


def _evaluate(todo: Sequence[Job], jobs: int | None) -> Outcome:
    """Execute evaluation jobs that use the same kind of device."""
    launch = todo[0].config.launch
    launch = replace(launch, jobs=jobs or launch.jobs)
    todo = [replace(job, config=replace(job.config, launch=launch)) for job in todo]
    backend = local_backend([job.config for job in todo])
    print(
        f"{sum(len(job.evaluate) for job in todo)} evaluations to make in {len(todo)} runs, "
        f"{min(backend.at_once, len(todo))} at a time",
        flush=True,
    )
    return backend.run(todo)


def _code(exit_code: int, stopped: bool) -> int:
    """Return what the exit code of a job means for the command."""
    if exit_code == AGAIN or (stopped and exit_code not in (DONE, FAILED)):
        return AGAIN
    return DONE if exit_code == DONE else FAILED
