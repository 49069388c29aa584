"""`pods evaluate`: make what a study's evaluations lack, and only that, a process a run."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pods.config import Config
from pods.console import forgiving_console
from pods.launch.local import need, slots
from pods.process import Process, death, spawn
from pods.reevaluate import REPORT
from pods.runs.attempts import new_attempt
from pods.runs.checkpoint import DAMAGED
from pods.runs.files import content_of, read_lines
from pods.runs.history import clocks, evaluation_points
from pods.runs.points import answered, due_points, expected_points
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.slots import first
from pods.stop import Stop, stop_on_signals
from pods.trouble import AGAIN, DONE, FAILED, is_machine_trouble

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Looked:
    """A run that does not run now, and what its evaluations answer, by step; None: not whole."""

    store: RunStore
    config: Config
    found: Mapping[int, tuple[str, ...] | None]
    complaint: str | None
    """What its log lacks, so that not all points may be known."""


@forgiving_console()
def repair(folders: Sequence[Path], jobs: int | None = None) -> int:
    """Evaluate every evaluation point that lacks records; say what was done and what cannot be.

    Args:
        folders: of runs; one that runs now is named and left alone.
        jobs: processes at once; None: as many as a sweep would have.

    Returns:
        An exit code: 0 all is there, 1 something cannot be made again, 75 stopped, or a run is held
        by another process: type it again.

    Raises:
        ValueError: `jobs` is less than 1.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs={jobs}: must be at least 1")
    looked, codes = _look_all(folders)
    work = [(run, steps) for run in looked if (steps := _missing(run, looked))]
    if not work:
        readable = " that could be read" if FAILED in codes else ""
        evaluations = sum(len(run.found) for run in looked)
        print(f"{len(looked)} runs{readable}, {evaluations} evaluations: nothing is missing")
    with stop_on_signals() as stop:
        for device in sorted({run.config.hardware.device for run, _ in work}):  # slots of its own
            mine = [w for w in work if w[0].config.hardware.device == device]
            codes += [AGAIN] if stop.requested else _evaluate(mine, jobs, stop)
        if stop.requested:
            print("stopped on request; the same command goes on from here")
    return FAILED if FAILED in codes else max(codes)


def _look_all(folders: Sequence[Path]) -> tuple[list[Looked], list[int]]:
    """Look at the runs that have begun; say which cannot be, or not wholly, and as what code."""
    looked, codes = [], [DONE]
    for store in map(RunStore, folders):
        try:
            state = state_of(store)
            if state == "running" or store.is_held():
                print(f"{_name(store)}  held by another process; left alone")
                codes.append(AGAIN)
            elif state != "pending" or clocks(store):
                looked.append(_look(store, state))
                if looked[-1].complaint:
                    print(f"{_name(store)}  {looked[-1].complaint}")
                    codes.append(FAILED)
        except DAMAGED as problem:
            print(f"{_name(store)}  cannot be read: {problem}")
            codes.append(FAILED)
    return looked, codes


def _look(store: RunStore, state: str) -> Looked:
    """Read a run's log and evaluations.

    Raises:
        ValueError: the log is damaged.
    """
    config, log = store.config(), store.metrics_path.name
    newest = max((clock["step"] for clock in clocks(store).values()), default=-1)
    reached = max(newest, store.status().get("step", 0) if state == "done" else 0)
    try:
        lines = read_lines(store.metrics_path)
        logged = lines[-1]["step"] if lines else 0
        whole = state == "done" and logged >= reached
        due = expected_points(config, lines) if whole else due_points(config, lines)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{log} is damaged: {error}") from error
    if state != "done":  # a resume makes anew what comes after
        due = {step: seconds for step, seconds in due.items() if step <= newest}
    complaint = f"{log} ends with step {logged}, and the run with {reached}"
    paths = {s: store.evaluation_path(s) for s in sorted({*due, *evaluation_points(store)})}
    return Looked(store, config, {
        step: answered(config, step, content_of(path))
        for step, path in paths.items()
    }, complaint if logged < reached else None)  # fmt: skip


def _missing(run: Looked, others: Sequence[Looked]) -> list[int]:
    """Steps whose evaluation is not whole, or answers less than that of others like it."""
    like = [other for other in others if _asked(other.config) == _asked(run.config)]
    counts = Counter(names for other in like for names in other.found.values() if names)
    usual = max(counts, key=lambda names: (len(names), counts[names]), default=None)
    return [step for step, names in run.found.items() if names is None or names != usual]


def _asked(config: Config) -> tuple[object, ...]:
    """What decides on the questions that a run's evaluations ask."""
    longest = config.sampling.max_prompt_tokens
    return config.task, config.model.name, longest, config.evaluation.questions


def _evaluate(work: Sequence[tuple[Looked, list[int]]], jobs: int | None, stop: Stop) -> list[int]:
    """Evaluate runs that share this machine's slots; return their exit codes."""
    launch = work[0][0].config.launch
    as_asked = replace(launch, jobs=jobs or launch.jobs)
    configs = [replace(run.config.on(1), launch=as_asked) for run, _ in work]
    machine = slots(configs)
    names = first(machine, [max(need(config, machine) for config in configs)] * len(work))
    free: SimpleQueue[tuple[str, ...]] = SimpleQueue()
    for devices in names:
        free.put(devices)
    print(f"{sum(len(steps) for _, steps in work)} evaluations to make in {len(work)} runs, "
          f"{len(names)} at a time", flush=True)  # fmt: skip
    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(partial(_one, free=free, stop=stop), work))


def _one(work: tuple[Looked, list[int]], free: "SimpleQueue[tuple[str, ...]]", stop: Stop) -> int:
    """Evaluate one run in a process of its own, on free devices; print what it reports."""
    run, steps = work
    devices = free.get()
    try:
        if stop.requested:
            return AGAIN
        place, explained = new_attempt(run.store, "reevaluations"), False
        arguments = [str(run.store.folder), str(place), *map(str, steps)]
        process = spawn("pods.reevaluate", arguments, place, run.config, devices)
        try:
            for row in _reported(process, place / REPORT, stop):
                print(f"{_name(run.store)}  {_line(row)}", flush=True)
                explained |= "error" in row
        finally:
            code = process.wait()
        if code != DONE and not explained:
            print(f"{_name(run.store)}  {death(code)} ({place / 'console.log'})")
        again = code == AGAIN or (code not in (DONE, FAILED) and stop.requested)
        return AGAIN if again else DONE if code == DONE else FAILED
    except OSError as problem:
        print(f"{_name(run.store)}  not evaluated: {problem}")
        return AGAIN if is_machine_trouble(problem) else FAILED
    finally:
        free.put(devices)


def _reported(process: Process, report: Path, stop: Stop) -> Iterator[dict[str, Any]]:
    """Yield the lines of a process's report as they come; hand on a request to stop."""
    seen, ended = 0, False
    while not ended:
        time.sleep(POLL_SECONDS)
        ended = process.poll() is not None  # first, so that its last line is not missed
        rows = read_lines(report)
        yield from rows[seen:]
        seen = len(rows)
        if stop.requested:
            process.terminate()  # all after the first change nothing


def _name(store: RunStore) -> str:
    return f"{store.folder.parent.name}/{store.folder.name}"


def _line(row: Mapping[str, Any]) -> str:
    """A line of a report, for a screen."""
    step = f"step {row['step']:>6}  " if "step" in row else ""
    if "accuracy" not in row:
        return f"{step}{row.get('error') or row['note']}"
    made = f"{row['made']} records made" if row["made"] else "its records were there"
    return f"{step}accuracy {row['accuracy']:.3f}  {row['seconds']:.1f} s  ({made})"
