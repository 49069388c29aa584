"""Run again what a busy machine slowed down (`retry=noisy`) or all (`retry=all`); lose no run."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pods.config.schema import Config
from pods.launch.backend import Job
from pods.runs.freeze import freeze
from pods.runs.status import state_of
from pods.runs.store import RunStore, run_folders

SUPERSEDED = "superseded"
"""Folder of a study in which slow runs are kept; it is too deep for any verb to count them."""


def noisy_runs(config: Config) -> dict[Path, str]:
    """Return why a config asks to run the finished runs of its study again, by folder."""
    if config.retry not in ("noisy", "all"):
        return {}
    from pods.analysis.noise import slow_runs  # pandas takes a third of a second to load
    from pods.analysis.study import load

    study = Path(config.runs_dir) / config.study
    folders = {folder.name: folder for folder in run_folders(study)}
    if config.retry == "all":
        return {folder: "/".join(folder.parts[-2:]) for folder in folders.values()}
    lines: dict[str, str] = {}
    with suppress(ValueError):  # no run has been evaluated yet
        lines = slow_runs(load(study, [*folders.values()], allow_missing=True, allow_mixed=True))
    return {folders[run]: line for run, line in lines.items()}


def restart_noisy(jobs: Sequence[Job]) -> None:
    """Set aside the finished runs that are asked for, so that they are run from the start.

    Raises:
        OSError: the disk refuses to be written.
    """
    noisy = noisy_runs(jobs[0].config)
    for job in jobs:
        if job.store.folder in noisy and (kept := _set_aside(job.store)) is not None:
            freeze(job.config)
            print(f"again: {noisy[job.store.folder]} (kept: {kept})", flush=True)


def _set_aside(store: RunStore) -> Path | None:
    """Move a finished run to where no verb counts it; None if another process holds it."""
    rule = store.folder.parent
    study = rule.parents[1]
    kept = study / SUPERSEDED / rule.relative_to(study)
    kept.mkdir(parents=True, exist_ok=True)
    with suppress(BlockingIOError), store.lock():
        if state_of(store, ours=True) == "done":
            number = sum(1 for _ in kept.glob(f"{store.folder.name}-*")) + 1
            return store.folder.rename(kept / f"{store.folder.name}-{number}")
    return None
