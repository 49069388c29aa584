"""The process with the shim (failpoints.c): every file operation of a commit fails in turn.

    python failing_commits.py FOLDER MODE...

It builds a real policy once and forks a child for each crash. It models a process that dies and a
disk that reports an error, not a power cut: what the kernel has accepted stays.
"""

import ctypes
import dataclasses
import gc
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

from compose import composed

CRASHES = {"crash before": 1, "crash after": 2}
ERRORS = {"EIO": 3, "ENOSPC": 4, "short write": 5, "EIO for good": 6}
MODES = CRASHES | ERRORS
CRASHED = 9
HELD = ExitStack()  # to the end of the process


def tree(folder):
    """SHA-256 of all files that must be equal in equal runs, by name."""
    paths = [p for p in folder.rglob("*") if p.is_file() and "attempts" not in p.parts]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.name not in ("status.json", ".lock")
    }


def start(folder):
    """A real run that has committed nothing yet; it never removes older checkpoints."""
    from pods.runs.freeze import freeze
    from pods.runs.tracking.tracker import Tracker
    from pods.system.signals import Stop
    from pods.training.build import build_trainer
    from pods.training.clock import TrainClock

    config = composed(
        f"runs_dir={folder}", "tracking=none", "nm.n=8", "nm.m=4",
        "budget.train_seconds=null", "budget.max_steps=3",
    )  # fmt: skip
    store = freeze(config)
    now = itertools.count().__next__
    lock = HELD.enter_context(store.lock())
    run = build_trainer(config, store, lock, Tracker(), Stop(), TrainClock(now), lambda: None)
    run.prune_checkpoints = lambda step: None
    return run


def elsewhere(run, folder):
    """The same run with its files copied into a folder of their own."""
    from pods.runs.files import replace
    from pods.runs.store import RunStore

    copied = folder / run.store.folder.name
    shutil.copytree(run.store.folder, copied, copy_function=shutil.copyfile)
    (copied / "attempts" / "001").mkdir(parents=True)
    phases = copied / "attempts" / "001" / "phases.json"

    def report():
        replace(phases, run.loop.clock.meter.text())

    return dataclasses.replace(run, store=RunStore(copied), report=report)


def commit(libc, run, step, k=0, how=0):
    """Commit while the k-th operation fails; return all operations and the error."""
    libc.failpoints_arm(os.fsencode(run.store.folder), k, how)
    error = None
    try:
        run.commit(step, evaluation=True)
    except Exception as problem:
        error = problem
    finally:
        count = libc.failpoints_count()
        libc.failpoints_arm(b"", 0, 0)
    said = None if error is None else f"{type(error).__name__}: {error}"
    number, named = getattr(error, "errno", None), run.store.folder.name in str(said)
    names = [libc.failpoints_name(i + 1).decode() for i in range(count)]
    return names, {"error": said, "errno": number, "named": named}


def crashes(libc, run, step, k, how):
    """Commit in a child; say whether it died at its k-th operation."""
    child = os.fork()
    if not child:
        own = dataclasses.replace(run.lock, file=run.lock.path.open())
        commit(libc, dataclasses.replace(run, lock=own), step, k, how)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == CRASHED


def try_all(libc, run, step, modes, folder):
    """Let every operation of a step's commit fail in each of these modes."""
    before = tree(run.store.folder)
    whole = elsewhere(run, folder / "whole")
    names, said = commit(libc, whole, step)
    assert said["error"] is None
    after = tree(whole.store.folder)
    judged, cases = {}, []
    for (mode, how), (k, name) in itertools.product(modes.items(), enumerate(names, 1)):
        if mode == "short write" and "write" not in name:
            continue
        place = folder / f"{mode} {k}"
        copy = elsewhere(run, place)
        if mode in CRASHES:
            reached, said = crashes(libc, copy, step, k, how), {"error": None}
        else:
            reached, said = commit(libc, copy, step, k, how)
            reached = len(reached) >= k
        copy.store.status()  # can be read, whatever happened to it
        folders = (path.relative_to(place) for path in place.rglob("*/"))
        left = frozenset((*tree(copy.store.folder).items(), *folders))
        if left not in judged:  # many failures leave the same files
            judged[left] = judge(copy, step, before, after)
        found, wrong = judged[left]
        denied = "no checkpoint was written" in str(said["error"]) and found == "new"
        silent = mode in ERRORS and said["error"] is None and found != "new"
        told = {"never reached": not reached, "denied": denied, "silent": silent}
        wrong = wrong + [what for what, true in told.items() if true]
        cases.append({"mode": mode, "k": k, "operation": name, "found": found, "wrong": wrong}
                     | said)  # fmt: skip
        shutil.rmtree(place)
    return {"operations": names, "cases": cases}


def judge(run, step, before, after):
    """Return which checkpoint a resume finds, and every fault of it or of the repeated commit."""
    from pods.runs.files import remove
    from pods.runs.history import abandoned_paths, newest_checkpoint
    from pods.runs.store import OPTIMIZER

    for path in abandoned_paths(run.store):
        remove(path)
    newest, complaints = newest_checkpoint(run.store, OPTIMIZER)
    wrong = [f"{path.name}: {why}" for path, why in complaints.items()]
    there = tree(run.store.folder)

    def part(files):
        at = f"checkpoints/{newest and newest.name}/"
        return {name: content for name, content in files.items() if name.startswith(at)}

    found = "new" if part(there) == part(after) else "old" if part(there) == part(before) else None
    if newest is None or found is None:
        wrong.append(f"neither checkpoint is found, but {newest}")
    kept = [name for name in before if re.search(r"step-00000[01]/(policy/|clock)", name)]
    wrong += [f"{name} is lost" for name in kept if there.get(name) != before[name]]
    try:
        run.commit(step, evaluation=True)
    except Exception as problem:
        wrong.append(f"cannot be redone: {problem}")
    again = tree(run.store.folder)
    wrong += [f"{name} differs once redone" for name in again.keys() | after.keys()
              if again.get(name) != after.get(name)]  # fmt: skip
    return found, wrong


def serve(folder, *names):
    """Commit steps 0 and 1, and step 2 as a stop-gap; then let the next commits fail."""
    modes = {mode: how for mode, how in MODES.items() if mode in names}
    libc = ctypes.CDLL(None)
    libc.failpoints_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    libc.failpoints_count.restype = ctypes.c_long
    libc.failpoints_name.argtypes, libc.failpoints_name.restype = [ctypes.c_long], ctypes.c_char_p
    from pods.training import schedule

    run = start(folder / "runs")
    run.commit(0, evaluation=True)
    gc.freeze()  # children then share its pages
    steps, tried = schedule.steps(run.loop, 0, run.state), {}
    run.record(next(steps))
    run.commit(1, evaluation=True)
    run.record(next(steps))
    run.commit(2, evaluation=False)
    tried["replacing a stop-gap"] = try_all(libc, run, 2, modes, folder / "replacing")
    run.record(next(steps))
    tried["of a new step"] = try_all(libc, run, 3, modes, folder / "new")
    (folder / "tried.json").write_text(json.dumps(tried))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), *sys.argv[2:])
