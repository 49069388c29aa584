"""Check each run alone: what is missing, repeated, cut off, unexpected or contradictory."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pods.analysis.loading.run_reader import Run
from pods.runs.history import STEP, checkpoint_fault, is_log_altered, step_of

SHOWN = 9  # missing steps that a line lists


@dataclass(frozen=True)
class Fault:
    """Something about a run that keeps it from being complete."""

    label: str
    """Series, seed and, if it concerns one, step."""
    message: str
    step: int | None = None
    """The evaluation that cannot be used because of it; None: it concerns the whole run."""
    unusable: bool = False
    """Nothing of the run can be used, because its clock or its identity is in doubt."""

    def __str__(self) -> str:
        return f"{self.label}: {self.message}"


def faults(run: Run, label: str) -> Iterator[Fault]:
    """Name everything that keeps a run, of this series and seed, from being complete."""
    if run.state != "done":
        yield Fault(label, f"run is {run.state} ({run.store.folder})")
    for message in itertools.chain(run.contradictions, _log_faults(run)):
        yield Fault(label, message, unusable=True)

    for step in sorted(run.points.keys() | run.means.keys() | run.incomplete.keys()):
        for message in _evaluation_faults(run, step):
            yield Fault(f"{label} step {step}", message, step)
    if run.state == "done":
        for name in _unexpected_checkpoints(run):
            yield Fault(label, f"checkpoint {name} belongs to no evaluation point")


def _unexpected_checkpoints(run: Run) -> list[str]:
    folders = sorted(run.store.checkpoints.glob(STEP))
    return [folder.name for folder in folders if step_of(folder) not in run.points]


def _log_faults(run: Run) -> Iterator[str]:
    """Check metrics.jsonl: each step once, a clock that only advances, and a spent budget."""
    yield from _wrong_steps(run)
    clock = [0.0]
    for line in run.lines:
        clock.append(line["train_seconds"])
    if clock != sorted(clock):
        yield "the clock of metrics.jsonl goes backwards"

    last = _last_step(run)
    if run.state == "done" and not _is_spent(run, last, clock[-1]):
        yield f"run is done, but ends before its budget, at step {last} and {clock[-1]:g} s"


def _wrong_steps(run: Run) -> Iterator[str]:
    """Name the steps that the log has twice, or lacks."""
    counts = Counter(line["step"] for line in run.lines)
    for step in sorted(counts):
        if counts[step] > 1:
            yield f"metrics.jsonl has step {step} {counts[step]} times"

    expected = range(1, 1 + max(run.step, _last_step(run)))
    missing = [str(step) for step in expected if step not in counts]
    if missing:
        more = ", …" if len(missing) > SHOWN else ""
        yield f"metrics.jsonl lacks step {', '.join(missing[:SHOWN])}{more}"


def _last_step(run: Run) -> int:
    return max((line["step"] for line in run.lines), default=0)


def _is_spent(run: Run, step: int, seconds: float) -> bool:
    """Return whether a run that ends at this step and time has used up its budget."""
    budget = run.config.budget
    if budget.train_seconds is not None and seconds >= budget.train_seconds:
        return True
    return budget.max_steps is not None and step >= budget.max_steps


def _evaluation_faults(run: Run, step: int) -> Iterator[str]:
    """Check one evaluation, and the checkpoint that it belongs to against the run's log."""
    if step not in run.points:
        yield "evaluated, but it is no evaluation point"
        return

    fault = _checkpoint_fault(run, step)
    if fault is not None:
        yield fault
    if step not in run.means:
        yield run.incomplete.get(step, "no evaluation")


def _checkpoint_fault(run: Run, step: int) -> str | None:
    """Say why the checkpoint of an evaluation point is not what the log says; None if it is."""
    folder = run.store.checkpoint(step)
    if not folder.is_dir():
        return "no checkpoint"
    fault = checkpoint_fault(run.store, folder, only="clock.json")
    if fault is not None:
        return f"checkpoint: {fault}"

    seconds = run.store.clock(folder)["train_seconds"]
    logged = run.points[step]
    if seconds != logged:
        return f"checkpoint was made at {seconds:g} s, but the log says {logged:g} s"
    covers_whole_log = step == max(run.points)
    if covers_whole_log and is_log_altered(run.store, folder):
        return "metrics.jsonl is not the log that the checkpoint recorded"
    return None
