"""Read a run's history: its checkpoints, the one to resume from, and those to discard."""

import hashlib
import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pods.config.schema import Config
from pods.runs import checkpoint
from pods.runs.files import read_lines, read_or_empty, replace
from pods.runs.records import Clock, Damaged, read
from pods.runs.store import DAMAGED_SUFFIX, POLICY, RunStore

STEP = f"step-{'[0-9]' * 6}"
ABANDONED = (  # what lies in a folder before that folder
    "*.tmp[0-9]*",
    "tensorboard.trash",
    "wandb.trash",
    "rollouts/*.tmp[0-9]*",
    "checkpoints/*/*.tmp[0-9]*",
    "checkpoints/*/*.trash",
    "checkpoints/*.trash",
    "checkpoints/*.tmp",
    "evaluations/*.tmp[0-9]*",
    "attempts/*/*.tmp[0-9]*",
)


def step_of(path: Path) -> int:
    """Return the step in the name of a checkpoint, an evaluation or a file of rollouts.

    >>> step_of(Path("checkpoints/step-000100")), step_of(Path("rollouts/step-000020.jsonl.gz"))
    (100, 20)
    """
    return int(path.name.removeprefix("step-")[:6])


def newest_checkpoint(store: RunStore, needs: str) -> tuple[Path | None, dict[Path, str]]:
    """Return the newest checkpoint to resume from, and the later ones with their faults.

    One that an interrupted commit had renamed is put back first. The checkpoint must have the file
    that is named by `needs`, which older ones have lost.

    Raises:
        Damaged: no checkpoint can be resumed from, but one is intact apart from that file, or the
            log alone keeps the run from going on. To start again would remove what was measured.
    """
    checkpoint.recover(store.checkpoints)
    faults: dict[Path, str] = {}
    log_is_altered = False
    without_the_file: Path | None = None
    first = store.checkpoint(0)

    for folder in sorted(store.checkpoints.glob(STEP), reverse=True):
        fault = checkpoint_fault(store, folder)
        if fault is not None:
            faults[folder] = fault
        elif is_log_altered(store, folder):
            faults[folder] = f"{store.metrics_path.name} is not what was written"
            log_is_altered = True
        elif log_is_altered and folder == first:
            break  # it would be a new start
        elif needs in checkpoint.manifest_files(folder):
            return folder, faults
        elif without_the_file is None:
            without_the_file = folder

    cure = f"remove {store.checkpoints} and the run starts again"
    if log_is_altered:
        raise Damaged(store.metrics_path, f"it is not what was written: restore it, or {cure}")
    if without_the_file is not None:
        raise Damaged(without_the_file, f"it has no {needs}, and no other one can go on: {cure}")
    return None, faults


def ended_at(store: RunStore, config: Config) -> int | None:
    """Return the last step of a run that has nothing left to train; None: it has something left.

    The last checkpoint is then an evaluation point at the end of the budget, and intact. Only
    evaluations can be missing, for which no checkpoint needs the state of its optimizer.
    """
    checkpoint.recover(store.checkpoints)
    by_folder = clocks(store)
    if not by_folder:
        return None

    folder = max(by_folder)
    clock = by_folder[folder]
    if not clock["evaluation"]:
        return None
    if not config.budget.is_spent(clock["step"], clock["train_seconds"]):
        return None
    if checkpoint_fault(store, folder) is not None or is_log_altered(store, folder):
        return None
    # a process that was killed with a larger budget has gone on
    if len(read_or_empty(store.metrics_path)) > clock["metrics_bytes"]:
        return None
    return clock["step"]


def checkpoint_fault(store: RunStore, folder: Path, only: str | None = None) -> str | None:
    """Describe why a checkpoint is not one that this run made; None if it is. See `damage`."""
    fault = checkpoint.damage(folder, only)
    if fault is not None:
        return fault

    try:
        clock = store.clock(folder)
    except ValueError as error:
        return str(error)

    if (clock["run"], clock["step"]) != (store.folder.name, step_of(folder)):
        return f"it is step {clock['step']} of run {clock['run']}"
    return None


def weights_fault(store: RunStore, folder: Path) -> str | None:
    """Describe why a checkpoint has no weights that this run made; None if it has them."""
    fault = checkpoint_fault(store, folder)
    if fault is None and not (folder / POLICY).is_dir():
        return "`pods clean --weights` removed its weights"
    return fault


def is_log_altered(store: RunStore, folder: Path) -> bool:
    """Return whether the log up to an intact checkpoint has changed since."""
    clock = store.clock(folder)
    log = read_or_empty(store.metrics_path)[: clock["metrics_bytes"]]
    return hashlib.sha256(log).hexdigest() != clock["metrics_sha256"]


def mark_damaged(store: RunStore, path: Path) -> None:
    """Rename a checkpoint or a file of rollouts, so that nothing reads it."""
    renamed = path.with_name(f"{path.name}{DAMAGED_SUFFIX}")
    if renamed.exists():
        store.remove(renamed)

    shutil.move(path, renamed)  # which copies if an overlay cannot rename


def check_rollouts(store: RunStore, report: Callable[[str], None]) -> None:
    """Set files of rollouts aside that are damaged, and report each in one line."""
    for path in sorted(store.folder.glob(f"rollouts/{STEP}.jsonl.gz")):
        try:
            read(path)
        except Damaged as fault:
            report(f"set aside: {fault}")
            mark_damaged(store, path)


def clocks(store: RunStore) -> dict[Path, Clock]:
    """Return the clock.json of every checkpoint, by folder in order of steps; skip damaged ones."""
    by_folder = {}
    for folder in sorted(store.checkpoints.glob(STEP)):
        with suppress(ValueError):
            if checkpoint.damage(folder, only="clock.json") is None:
                by_folder[folder] = store.clock(folder)
    return by_folder


def evaluation_points(store: RunStore) -> dict[int, float]:
    """Return the step of every checkpoint that is to be evaluated, with its training seconds."""
    points = {}
    for clock in clocks(store).values():
        if clock["evaluation"]:
            points[clock["step"]] = clock["train_seconds"]
    return points


def evaluated_steps(store: RunStore) -> list[int]:
    """Return the steps that have an evaluation, in order."""
    paths = store.folder.glob(f"evaluations/{STEP}.jsonl")
    return sorted(step_of(path) for path in paths)


def missing_evaluations(store: RunStore) -> list[int]:
    """Return the steps whose checkpoints are to be evaluated and are not, in order.

    If the clock of one cannot be read, the log says whether it is to be; see `check_evaluable`.
    """
    from pods.runs.evaluations import due_points  # it loads numpy, which `pods status` need not

    missing = []
    for folder in sorted(store.checkpoints.glob(STEP)):
        step = step_of(folder)
        if store.evaluation_path(step).is_file():
            continue
        if checkpoint_fault(store, folder, only="clock.json") is None:
            is_point = store.clock(folder)["evaluation"]
        else:
            lines = read_lines(store.metrics_path)
            is_point = step in due_points(store.config(), lines, ended=True)
        if is_point:
            missing.append(step)
    return missing


def check_evaluable(store: RunStore, step: int) -> None:
    """Raise `Damaged` if the checkpoint of a step, which is to be evaluated, is not intact."""
    folder = store.checkpoint(step)
    fault = weights_fault(store, folder)
    if fault is not None:
        cure = f"`pods clean {shlex.quote(str(store.folder))} --yes` removes the run"
        text = f"step {step} cannot be evaluated: {fault}; {cure}, and the same command trains anew"
        raise Damaged(folder, text)


def abandoned_paths(store: RunStore) -> list[Path]:
    """Return what killed processes have left half written or half removed.

    Another process may be writing queued.json, see `set_queued`.
    """
    paths = []
    for pattern in ABANDONED:
        for path in sorted(store.folder.glob(pattern)):
            if not path.name.startswith("queued.json"):
                paths.append(path)
    return paths


def roll_back(store: RunStore, step: int, metrics_bytes: int) -> None:
    """Discard everything that happened after the checkpoint of a step."""
    log = store.metrics_path
    if log.is_file():  # replaced, since a hard link to it may be a backup
        replace(log, read_or_empty(log)[:metrics_bytes], durable=True)

    for path in store.folder.glob(f"*/{STEP}*"):
        is_set_aside = path.suffix == DAMAGED_SUFFIX
        if step_of(path) > step and not is_set_aside:
            store.remove(path)
