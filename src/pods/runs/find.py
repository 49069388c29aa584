"""Find a study, a run or a checkpoint by what a user types; a `ConfigError` says what there is."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from pods.config.parse import ConfigError, read_value
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.history import STEP, step_of, weights_fault
from pods.runs.store import RunStore, run_folders
from pods.system.text import short

SHOWN = 8  # runs or studies that a message about a name lists


def is_imported(folder: Path) -> bool:
    """Return whether a study's folder holds imported logs."""
    return (folder / "imported" / "import.json").is_file()


def study_folder(name: str, runs_dir: Path) -> Path:
    """Return the folder of a study that is named, or whose folder is, as a shell completes it."""
    if len(Path(name).parts) > 1 and Path(name).is_dir():
        return Path(name)
    read_value("study", name)
    return runs_dir / name


def find_study(name: str, runs_dir: Path) -> tuple[Path, list[Path]]:
    """Return the folder of a study and those of its runs, none if its logs were imported."""
    folder = study_folder(name, runs_dir)
    runs = run_folders(folder)
    if runs or is_imported(folder):
        return folder, runs

    there = []
    for study in sorted(runs_dir.glob("*")):
        if run_folders(study) or is_imported(study):
            there.append(study.name)

    names = ", ".join(short(there, SHOWN)) or "none"
    raise ConfigError("study", name, f"no runs in {folder.absolute()}; studies there: {names}")


def find_runs(name: str, runs_dir: Path) -> list[Path]:
    """Return the run folders of a study, which must not consist of imported logs."""
    folder, runs = find_study(name, runs_dir)
    if not runs:
        raise ConfigError("study", name, f"{folder} has imported logs, no runs")
    return runs


def find_run(name: str, runs_dir: Path) -> RunStore:
    """Return the only run that a folder or words name: study, arm, n→m, seed, parts of its path."""
    if (Path(name) / "identity.json").is_file():
        return RunStore(Path(os.path.abspath(name)))  # which may be a link

    joined = re.sub(r"\bseed (?=\d)", "seed", name.replace("->", "→"))
    wanted = set(re.split(r"[/\s]+", joined.strip("/ ")))
    studies = []
    matches = []
    for study in sorted(runs_dir.glob("*")):
        runs = run_folders(study)
        if runs:
            studies.append(study.name)
        matches += [run for run in runs if wanted <= _names(run)]

    if len(matches) == 1:
        return RunStore(matches[0])
    if not matches:
        there = ", ".join(short(studies, SHOWN)) or "none"
        allowed = f"must be a run's folder or name; studies in {runs_dir}: {there}"
        raise ConfigError("run", name, allowed)
    shown = ", ".join(short(list(map(str, matches)), SHOWN))
    raise ConfigError("run", name, f"must name one run, not {shown}")


def _names(folder: Path) -> set[str]:
    """Return all words that name a run, also 0.001 of a key; if it is unreadable, of its path."""
    seed, _, code = folder.name.partition("-")
    names = {*folder.parts, seed, seed.removeprefix("seed"), code}

    with suppress(*READ_ERRORS):
        store = RunStore(folder)
        config = store.config()
        names |= {config.arm_name(), config.nm.label()}
        names |= {str(value) for value in store.identity().values() if type(value) is float}
    return names


def find_checkpoint(store: RunStore, step: str) -> Path:
    """Return a checkpoint with weights, its files as committed; "last": the newest such one."""
    folders = {str(step_of(path)): path for path in sorted(store.checkpoints.glob(STEP))}
    if step == "last":
        return _newest_sound(store, list(folders.values()))
    if step not in folders:
        steps = ", ".join(folders) or "none"
        raise ConfigError("--step", step, f"must be last or a step with a checkpoint: {steps}")
    fault = weights_fault(store, folders[step])
    if fault is not None:
        raise ConfigError("--step", step, f"that checkpoint cannot be used: {fault}")
    return folders[step]


def _newest_sound(store: RunStore, folders: list[Path]) -> Path:
    for folder in reversed(folders):
        fault = weights_fault(store, folder)
        if fault is None:
            return folder
        print(f"{folder} cannot be used: {fault}", file=sys.stderr)
    raise ConfigError("--step", "last", f"{store.folder} has no checkpoint that can be used")
