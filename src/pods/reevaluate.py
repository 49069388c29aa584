"""Evaluate checkpoints of a run that does not run now, as a process.

    python -m pods.reevaluate RUN_FOLDER PLACE STEP...

The records are those that the run itself would have written, byte for byte on the same machine, but
for rounding where the run is of several processes: here is one. Of the run nothing else changes:
PLACE, a folder below its `reevaluations`, has the console, the environment, and in points.jsonl a
line a checkpoint. They are no `attempts`, since what those ran on is what the training clock was
measured on; but a run that was evaluated again on a machine which it never ran on is marked in its
changes.json, since answers may differ by rounding. Exit codes as of `pods.job`.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.config import Config
from pods.console import forgiving_console
from pods.job import judge
from pods.machine import end_with_parent, set_threads
from pods.runs.attempts import environments, mark
from pods.runs.environment import environment, working_tree_changes
from pods.runs.files import (
    append,
    content_of,
    fsync,
    json_line,
    read_lines,
    read_until_damage,
    replace,
)
from pods.runs.frozen import Changed, check_unchanged
from pods.runs.history import unfit
from pods.runs.lock import Held
from pods.runs.meter import Meter
from pods.runs.points import answered, is_record
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking import NoTracker
from pods.stop import Preempted, Stop, stop_on_signals
from pods.trouble import AGAIN, DONE, FAILED
from pods.watchdog import watchdog

if TYPE_CHECKING:
    from pods.experiment import Experiment

REPORT = "points.jsonl"
WAY_OUT = "allow_changed=true on the run's own command allows it, and marks the run"


def execute(folder: Path, place: Path, steps: Sequence[int]) -> int:
    """Evaluate these checkpoints; never raises for what goes wrong on the way.

    Args:
        folder: of the run; left alone if some process holds it.
        place: where the console is, and the report goes.
        steps: of the checkpoints; those that are gone or damaged are reported and left as they are.
    """
    store, note, started = RunStore(folder), partial(_note, place), False
    with ExitStack() as held:
        held.enter_context(forgiving_console())
        stop = held.enter_context(stop_on_signals())
        try:
            lock = held.enter_context(store.lock())
            if state_of(store, ours=True) == "running":
                raise BlockingIOError
            config = store.config().on(1)
            foreign = _begin(store, config, place)
            with watchdog(stop, config.watchdog_seconds, lambda: None, lambda why: note(error=why),
                          AGAIN):  # fmt: skip
                sound = _sound(store, steps, place)
                experiment = _build(config, store, lock, stop) if sound else None
                started = True
                if experiment is not None:
                    _run(experiment, sound, place, foreign)
            return DONE if len(sound) == len(steps) else FAILED
        except BlockingIOError:
            note(error="held by another process; left alone")
            return AGAIN
        except Preempted:
            note(error="stopped on request; what was answered is kept")
            return AGAIN
        except Exception as problem:
            _, code, error = judge(problem, started, store)
            way_out = f"; {WAY_OUT}" if isinstance(problem, Changed) else ""
            note(error=error + way_out)
            return code


def _begin(store: RunStore, config: Config, place: Path) -> str | None:
    """See that the run is what it was, and write down what this process runs on.

    Returns:
        This machine, if no attempt at the run was made on one like it.
    """
    changes, before, now = check_unchanged(store, config), environments(store), environment()
    mark(store, changes)
    set_threads(config.hardware.threads)
    replace(place / "environment.json", json.dumps(now, indent=1), durable=True)
    replace(place / "git.diff", working_tree_changes())
    kind = "gpus" if config.hardware.device == "cuda" else "cpu"
    machines = [earlier[kind] for earlier in before if kind in earlier]
    if not machines or now[kind] in machines:
        return None
    if kind == "gpus" and any(set(now[kind]) == set(cards) for cards in machines):
        return None  # fewer of the same
    here = now[kind] if isinstance(now[kind], str) else ", ".join(now[kind])
    _note(place, note=f"trained on {machines[-1]}, evaluated on {here}: answers may differ by "
          "rounding, so the run is marked")  # fmt: skip
    return here


def _sound(store: RunStore, steps: Sequence[int], place: Path) -> list[int]:
    """Those of the steps that can be evaluated; the others are reported."""
    faults = {step: wrong for step in steps if (wrong := unfit_for(store, step))}
    for step, wrong in faults.items():
        _note(place, step=step, error=f"cannot be evaluated: {wrong}")
    return [step for step in steps if step not in faults]


def _build(config: Config, store: RunStore, lock: Held, stop: Stop) -> "Experiment":
    with stop.at_once():  # nothing is half-written while things load
        from pods.assemble import build

        return build(
            config, store, lock, NoTracker(), stop, time.perf_counter, Meter(), lambda: None
        )


def _run(experiment: "Experiment", steps: Sequence[int], place: Path, foreign: str | None) -> None:
    with closing(experiment.progress):
        for step in steps:
            experiment.stop.check()
            _evaluate(experiment, step, place, foreign)


def unfit_for(store: RunStore, step: int) -> str | None:
    """What keeps a run's checkpoint from being evaluated, in words; None if nothing does."""
    folder = store.checkpoint(step)
    return unfit(store, folder) if folder.is_dir() else "its checkpoint is gone"


def _evaluate(experiment: "Experiment", step: int, place: Path, foreign: str | None) -> None:
    """Make a file beside the evaluation's, and put it there once it is whole: nothing is lost."""
    started, store = time.perf_counter(), experiment.store
    experiment.crew.load_policy(store.checkpoint(step))
    experiment.loop.engine.sync()
    path = store.evaluation_path(step)
    temporary = path.with_name(f"{path.name}.tmp")  # of one process: that which holds the lock
    path.parent.mkdir(exist_ok=True)
    there, total = _records(path), len(experiment.questions) * experiment.config.evaluation.repeats
    content = content_of(path)
    if foreign and (len(there) != total or answered(experiment.config, step, content) is None):
        mark(store, [f"evaluation of step {step} made again on {foreign}"])
    good = max((there, _records(temporary)), key=len)
    replace(temporary, "".join(map(json_line, good)))
    made = experiment.answer(step, temporary)
    temporary.replace(path)
    fsync(path.parent)
    rows = read_lines(path)
    accuracy = sum(row["correct"] for row in rows) / len(rows)
    seconds = round(time.perf_counter() - started, 3)
    _note(place, step=step, accuracy=accuracy, made=made, seconds=seconds)


def _records(path: Path) -> list[dict[str, Any]]:
    """The records of a file up to the first line that is none."""
    return list(takewhile(is_record, read_until_damage(path)))


def _note(place: Path, **words: object) -> None:
    """Report, also on the console; if the disk is full, only there."""
    print(*(f"{name}={value}" for name, value in words.items()), flush=True)
    with suppress(OSError):
        append(place / REPORT, [words])


if __name__ == "__main__":
    end_with_parent()
    sys.exit(execute(Path(sys.argv[1]), Path(sys.argv[2]), [int(step) for step in sys.argv[3:]]))
