"""Make the lost evaluations of a run that is not running, in a process of their own.

    python -m pods.launch.evaluation RUN_FOLDER STEP...

The records are those that the run itself would have written: the same bytes on the same machine,
apart from rounding if the run used several processes, because an evaluation uses one. Machine and
versions go to a folder in `evaluation_attempts/`, not `attempts/`: attempts say on what machine the
training clock was measured.
"""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pods.launch.failures import classify
from pods.runs.attempts import environment, new_attempt, record_changes
from pods.runs.files import write_json
from pods.runs.freeze import check_unchanged
from pods.runs.history import checkpoint_fault
from pods.runs.lock import RunLock
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system.console import lossy_console
from pods.system.errors import AGAIN, DONE, FAILED
from pods.system.machine import end_with_parent, set_threads
from pods.system.signals import Preempted, Stop, stop_on_signals
from pods.system.watchdog import watchdog
from pods.training.clock import TrainClock

if TYPE_CHECKING:
    from pods.training.trainer import Trainer


def execute(store: RunStore, steps: Sequence[int]) -> int:
    """Make the evaluations of these steps, print how that ended, and return the exit code.

    The run's status.json stays as it is.
    """
    loaded, code = False, DONE
    try:
        with store.lock() as lock, stop_on_signals() as stop:
            if state_of(store, ours=True) == "running":
                raise BlockingIOError  # a process on another machine runs it
            limit = store.config().watchdog_seconds
            with watchdog(stop, limit, lambda: None, lambda why: None):
                with stop.while_loading():
                    trainer = _load(store, lock, stop)
                loaded = True
                with closing(trainer.progress):
                    for step in steps:
                        code = max(code, _evaluate(trainer, step))
        return code
    except BlockingIOError:
        print("held by another process; left alone")
    except Preempted:
        print("stopped on request; finished records are kept")
    except (Exception, SystemExit) as error:  # a user's reward may call sys.exit
        return classify(error, loaded, store)[1]
    return AGAIN


def _load(store: RunStore, lock: RunLock, stop: Stop) -> "Trainer":
    config = store.config().on(1)
    changes = check_unchanged(store, config)
    write_json(new_attempt(store, "evaluation_attempts") / "environment.json", environment())
    record_changes(store, changes)
    set_threads(config.hardware.threads)
    from pods.training.build import build_trainer

    return build_trainer(config, store, lock, Tracker(), stop, TrainClock(), lambda: None)


def _evaluate(trainer: "Trainer", step: int) -> int:
    """Make one evaluation; a missing or damaged checkpoint is named and left as it is."""
    trainer.workers.stop.check()
    folder = trainer.store.checkpoint(step)
    lost = not folder.is_dir()
    if fault := "its checkpoint is missing" if lost else checkpoint_fault(trainer.store, folder):
        trainer.progress.print(f"step {step:>6}  cannot be evaluated: {fault}")
        return FAILED
    trainer.evaluate_again(step)
    return DONE


if __name__ == "__main__":
    end_with_parent()
    with lossy_console():
        sys.exit(execute(RunStore(Path(sys.argv[1])), [int(step) for step in sys.argv[2:]]))
