"""One run as a process: threads, lock, signals, status and exit code around the experiment.

    python -m pods.job RUN_FOLDER [ATTEMPT_FOLDER]       executes the folder's frozen config

Exit codes: 0 done, 1 failed, 75 stopped on request or locked: run the same command again.
"""

import json
import os
import socket
import sys
import traceback
from contextlib import ExitStack, closing
from pathlib import Path

from pods.config import Config
from pods.runs.environment import environment, working_tree_changes
from pods.runs.files import replace
from pods.runs.store import RunStore
from pods.stop import Preempted, Stop, stop_on_signals

DONE, FAILED, AGAIN = 0, 1, 75


def to_do(store: RunStore, retry: str) -> bool:
    """Say whether the run has work left: not if it is done, or failed and not to be retried."""
    state = store.status()["state"]
    return state not in ("done", "failed") or (state == "failed" and retry == "failed")


def execute(folder: Path, attempt: Path | None = None) -> int:
    """Run the folder's frozen config to its end; never raises for what goes wrong in the run."""
    store = RunStore(folder)
    config = store.config()
    with ExitStack() as held:
        try:
            held.enter_context(store.lock())
        except BlockingIOError:
            print(f"{folder}: another process runs this; nothing was changed", file=sys.stderr)
            return AGAIN
        stop = held.enter_context(stop_on_signals())
        _set_threads(config.hardware.threads)
        _record_attempt(attempt or store.new_attempt())
        store.set_status(state="running", pid=os.getpid(), host=socket.gethostname(), error=None)
        return _run(config, store, stop)


def _run(config: Config, store: RunStore, stop: Stop) -> int:
    from pods.experiment import build
    from pods.runs.tracking import open_tracker

    tracker = open_tracker(config, store.folder)
    state, code, error, built = "failed", FAILED, None, False
    try:
        experiment = build(config, store, tracker, stop)
        built = True
        with closing(experiment.progress):
            experiment.run()
        state, code = "done", DONE
    except Preempted:
        state, code = "preempted", AGAIN
        print("stopped on request; the same command goes on from here", file=sys.stderr)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}".splitlines()[0]
        if not built and isinstance(problem, ValueError):  # the user's to mend; nothing was lost
            state = "pending"
            print(f"error: {problem}", file=sys.stderr)
        else:
            traceback.print_exc()
    store.set_status(state=state, error=error)
    tracker.finish(0 if code == AGAIN else code)
    return code


def _set_threads(threads: int) -> None:
    """Before torch and tokenizers load: they read these once."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _record_attempt(attempt: Path) -> None:
    replace(attempt / "environment.json", json.dumps(environment(), indent=1))
    (attempt / "git.diff").write_text(working_tree_changes())


if __name__ == "__main__":
    sys.exit(execute(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
