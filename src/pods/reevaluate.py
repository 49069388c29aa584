"""Evaluate checkpoints of a run that does not run now, as a process.

    python -m pods.reevaluate RUN_FOLDER PLACE STEP...

The records are those that the run itself would have written, byte for byte on the same machine. Of
the run nothing else changes: PLACE, a folder below its `reevaluations`, has the console, the
environment, and in points.jsonl a line a checkpoint. They are no `attempts`, since what those ran
on is what the training clock was measured on. Exit codes as of `pods.job`.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pods.config import Config
from pods.console import forgiving_console
from pods.job import AGAIN, DONE, FAILED, end_with_parent, judge, set_threads
from pods.runs.attempts import environments, mark
from pods.runs.environment import environment, working_tree_changes
from pods.runs.files import append, read_lines, replace
from pods.runs.frozen import check_unchanged
from pods.runs.history import unfit
from pods.runs.meter import Meter
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking import NoTracker
from pods.stop import Preempted, Stop, stop_on_signals
from pods.watchdog import watchdog

if TYPE_CHECKING:
    from pods.experiment import Experiment

REPORT = "points.jsonl"


def execute(folder: Path, place: Path, steps: Sequence[int]) -> int:
    """Evaluate these checkpoints; never raises for what goes wrong on the way.

    Args:
        folder: of the run; left alone if some process holds it.
        place: where the console is, and the report goes.
        steps: of the checkpoints; those that are gone or damaged are reported and left as they are.
    """
    store, note = RunStore(folder), partial(_note, place)
    with ExitStack() as held:
        held.enter_context(forgiving_console())
        stop = held.enter_context(stop_on_signals())
        try:
            held.enter_context(store.lock())
            if state_of(store, ours=True) == "running":
                raise BlockingIOError
        except BlockingIOError:
            note(error="another process runs this; left alone")
            return AGAIN
        try:
            config = store.config()
            _begin(store, config, place)
            with watchdog(stop, config.watchdog_seconds, lambda: None, lambda why: note(error=why),
                          AGAIN):  # fmt: skip
                return _run(config, store, steps, place, stop)
        except Preempted:
            note(error="stopped on request; what was answered is kept")
            return AGAIN
        except Exception as problem:
            _, code, error = judge(problem, False, store)
            note(error=error)
            return code


def _begin(store: RunStore, config: Config, place: Path) -> None:
    """See that the run is what it was, and write down what this process runs on."""
    changes, before, now = check_unchanged(store, config), environments(store), environment()
    mark(store, changes)
    set_threads(config.hardware.threads)
    replace(place / "environment.json", json.dumps(now, indent=1), durable=True)
    replace(place / "git.diff", working_tree_changes())
    machine = "gpus" if config.hardware.device == "cuda" else "cpu"
    if before and before[-1][machine] != now[machine]:
        _note(place, note=f"trained on {before[-1][machine]}, evaluated on {now[machine]}: "
              "answers may differ by rounding")  # fmt: skip


def _run(config: Config, store: RunStore, steps: Sequence[int], place: Path, stop: Stop) -> int:
    faults = {step: wrong for step in steps if (wrong := unfit_for(store, step))}
    for step, wrong in faults.items():
        _note(place, step=step, error=f"cannot be evaluated: {wrong}")
    sound = [step for step in steps if step not in faults]
    if sound:
        with stop.at_once():  # nothing is half-written while things load
            from pods.assemble import build

            experiment = build(
                config, store, NoTracker(), stop, time.perf_counter, Meter(), lambda: None
            )
        with closing(experiment.progress):
            for step in sound:
                stop.check()
                _evaluate(experiment, step, place)
    return FAILED if faults else DONE


def unfit_for(store: RunStore, step: int) -> str | None:
    """What keeps a run's checkpoint from being evaluated, in words; None if nothing does."""
    folder = store.checkpoint(step)
    return unfit(store, folder) if folder.is_dir() else "its checkpoint is gone"


def _evaluate(experiment: "Experiment", step: int, place: Path) -> None:
    started, store = time.perf_counter(), experiment.store
    experiment.policy.restore(store.checkpoint(step) / "policy")
    experiment.loop.engine.sync()
    made = experiment.answer(step)
    rows = read_lines(store.evaluation_path(step))
    accuracy = sum(row["correct"] for row in rows) / len(rows)
    seconds = round(time.perf_counter() - started, 3)
    _note(place, step=step, accuracy=accuracy, made=made, seconds=seconds)


def _note(place: Path, **words: object) -> None:
    """Report, also on the console."""
    print(*(f"{name}={value}" for name, value in words.items()), flush=True)
    append(place / REPORT, [words])


if __name__ == "__main__":
    end_with_parent()
    sys.exit(execute(Path(sys.argv[1]), Path(sys.argv[2]), [int(step) for step in sys.argv[3:]]))
