"""Find a run and one of its checkpoints, for the verbs that use a checkpoint outside of its run.

They only read the run's folder, also while it is running.
"""

import re
import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pods.config.checks import missing_packages
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.history import STEP, checkpoint_fault
from pods.runs.store import RunStore, run_folders

if TYPE_CHECKING:
    from pods.policy.policy import Policy

SHOWN = 8  # runs that a message about an ambiguous name lists


def add_options(parser: ArgumentParser) -> None:
    """Declare the choice of a checkpoint."""
    parser.add_argument(
        "run",
        metavar="RUN",
        help="folder of the run, or words that name only this one under --runs-dir, such as a "
        "study, or 'quickstart pods seed 0'",
    )
    parser.add_argument(
        "--step", default="last", metavar="N", help="step of the checkpoint (default: last)"
    )


def find_run(name: str, runs_dir: Path) -> RunStore:
    """Return the run that a folder or some words name: study, arm, n→m, seed, parts of its path.

    Raises:
        ConfigError: there is no such run, or several.
    """
    if (Path(name) / "identity.json").is_file():
        return RunStore(Path(name))
    wanted = set(_words(name))
    studies = sorted(path for path in runs_dir.glob("*") if path.is_dir())
    folders = [folder for study in studies for folder in run_folders(study)]
    found = [folder for folder in folders if wanted <= _names(folder)]
    if len(found) == 1 and wanted:
        return RunStore(found[0])
    if not wanted or not found:
        there = ", ".join(study.name for study in studies if run_folders(study)) or "none"
        allowed = f"must be a run's folder or name; studies in {runs_dir}: {there}"
    else:
        more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        allowed = f"must name one run, not {', '.join(map(str, found[:SHOWN]))}{more}"
    raise ConfigError("run", name, allowed)


def _words(name: str) -> list[str]:
    """Split what was typed, or the folder of a run, into the words that name it.

    >>> _words("pods 64->16 seed 0"), _words("runs/first/")
    (['pods', '64→16', 'seed0'], ['runs', 'first'])
    """
    joined = re.sub(r"\bseed (?=\d)", "seed", name.replace("->", "→"))
    return re.split(r"[/\s]+", joined.strip("/ "))


def _names(folder: Path) -> set[str]:
    """Return all words that name a run; one whose config cannot be read has those of its path."""
    seed, _, code = folder.name.partition("-")
    names = {*folder.parts, seed, seed.removeprefix("seed"), code}
    try:
        config = RunStore(folder).config()
    except READ_ERRORS:
        return names
    return names | {config.arm_name(), config.nm.label()}


def find_checkpoint(store: RunStore, step: str) -> Path:
    """Return the folder of a checkpoint whose files are as they were committed.

    Args:
        store: of the run, which may be running.
        step: of the checkpoint; "last": the newest one that is not damaged.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    folders = {int(path.name[5:]): path for path in sorted(store.checkpoints.glob(STEP))}
    if step == "last":
        for folder in reversed(folders.values()):
            fault = checkpoint_fault(store, folder)
            if fault is None:
                return folder
            print(f"{folder} is damaged: {fault}", file=sys.stderr)
        raise ConfigError("--step", step, f"{store.folder} has no checkpoint that can be read")
    if not step.isdecimal() or int(step) not in folders:
        steps = ", ".join(map(str, folders)) or "none"
        raise ConfigError("--step", step, f"must be last or a step with a checkpoint: {steps}")
    fault = checkpoint_fault(store, folders[int(step)])
    if fault is not None:
        raise ConfigError("--step", step, f"that checkpoint is damaged: {fault}")
    return folders[int(step)]


def usable_device(config: Config) -> Literal["cpu", "cuda"]:
    """Return the run's device, or the CPU where this machine has no GPU; torch is loaded."""
    from torch.cuda import is_available

    if config.hardware.device == "cuda" and not is_available():
        print("no GPU here: generating on the CPU", file=sys.stderr)
        return "cpu"
    return config.hardware.device


def load_policy(config: Config, checkpoint: Path, device: Literal["cpu", "cuda"]) -> "Policy":
    """Load a run's policy as it was at a checkpoint, whole, in this process, to generate from it.

    Raises:
        ValueError: base weights or a package are missing, or do not fit the checkpoint.
    """
    needed = [absent for absent in missing_packages(config) if str(absent).startswith("model.")]
    if needed:
        raise needed[0]
    from transformers.utils import logging

    from pods.policy.policy import load

    logging.disable_progress_bar()
    config = replace(
        config,
        model=replace(config.model, compute_dtype=None),
        engine=replace(config.engine, name="transformers"),
        hardware=replace(config.hardware, device=device, processes=1, shard=False),
        update=replace(config.update, kl_beta=0.0, activation_checkpointing=False),  # no training
    )
    policy = load(config)
    policy.restore(checkpoint / "policy")
    return policy
