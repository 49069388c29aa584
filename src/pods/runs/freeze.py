"""Freeze a run's config when it is submitted, and resume the run only if nothing has changed."""

import dataclasses
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from pods.config.parse import ConfigError
from pods.config.schema import BudgetConfig, Config
from pods.runs.attempts import environments, version_changes
from pods.runs.files import replace, write_json
from pods.runs.history import clocks
from pods.runs.identity import difference, edits, identity, run_folder
from pods.runs.store import OPTIMIZER, POLICY, RunStore
from pods.runs.writable import named_if_unwritable
from pods.system.errors import is_machine_error


class Changed(ValueError):
    """A run differs from what it was when it began."""

    def __init__(self, what: object, changes: list[str]) -> None:
        """List what changed, and name the key that allows it."""
        super().__init__(
            f"{what} differs from what the run began with: {'; '.join(changes)}; "
            "retry=changed resumes the run nevertheless, and marks it as changed"
        )


def freeze(config: Config) -> RunStore:
    """Write a config into the folder of its run, unless that run is running; return the folder.

    Operational keys follow the newest command, but a finished run keeps its budget if that of the
    command is no larger. With a larger one it goes on, as if it had been preempted. Science keys
    never change.

    Raises:
        Changed: the frozen config was edited, and `retry` is not changed, which undoes the edit.
    """
    content = identity(config)
    store = RunStore(run_folder(config, content))
    try:
        with named_if_unwritable(config.runs_dir, config.study):
            store.folder.mkdir(parents=True, exist_ok=True)
            with suppress(BlockingIOError), store.lock():  # a running one has been frozen already
                _freeze(config, content, store)
    except OSError as error:  # a finished run may be another user's, or on a read-only disk
        if not is_machine_error(error, store.folder) or not has_ended(store, config.budget):
            raise
    return store


def _freeze(config: Config, content: Mapping[str, Any], store: RunStore) -> None:
    try:
        edited = edits(config, store.config_values())
    except (FileNotFoundError, ValueError):  # new, or damaged: the hash says what it was
        edited = []
    if edited and config.retry != "changed":
        raise Changed(store.config_path, edited)

    if has_ended(store, config.budget):
        with suppress(FileNotFoundError, ValueError):  # a damaged one has no budget to keep
            config = dataclasses.replace(config, budget=store.config().budget)
    elif trains_on(store, config):
        store.set_status(state="preempted", error=None, exit_code=None)

    text = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)
    replace(store.config_path, text, durable=True)
    try:
        store.identity()
    except (FileNotFoundError, ValueError):  # new, or damaged
        write_json(store.identity_path, content)


def check_unchanged(store: RunStore, config: Config) -> list[str]:
    """Compare a run with how it began: science keys, data, weights, own code, and minor versions.

    What changed is raised as `Changed`, or returned to be recorded if `retry` is changed.
    """
    now = json.loads(json.dumps(identity(config)))  # tuples as the file has them
    changes = difference(store.identity(), now)
    attempts = environments(store)
    if attempts:
        changes += version_changes(attempts[-1])
    if changes and config.retry != "changed":
        raise Changed(store.folder, changes)
    return changes


def has_ended(store: RunStore, budget: BudgetConfig) -> bool:
    """Return whether a run is done, and a budget is no larger than what it has trained."""
    status = store.status()
    is_spent = budget.is_spent(status.get("step", 0), status.get("train_seconds", 0.0))
    return status["state"] == "done" and is_spent


def trains_on(store: RunStore, config: Config) -> bool:
    """Return whether a run is done, and this command lets it go on, since its budget is larger."""
    is_done = store.status()["state"] == "done"
    return is_done and config.retry != "all" and not has_ended(store, config.budget)


def check_budgets(configs: Iterable[Config]) -> None:
    """Check that each run is asked for with one budget, and can be trained on if that is larger.

    `ValueError`: it is not, or no checkpoint of a finished run has what training needs.
    """
    budgets: dict[Path, BudgetConfig] = {}
    for config in configs:
        store = RunStore(run_folder(config, identity(config)))
        budget = budgets.setdefault(store.folder, config.budget)
        if budget != config.budget:
            both = f"{budget.text()} | {config.budget.text()}"
            raise ConfigError("budget", both, "must be one for each run, which ends there")
        if not os.path.exists(store.config_path):
            continue
        if trains_on(store, config) and not _is_resumable(store):
            raise ValueError(
                f"{store.folder} cannot be trained on: `pods clean` removed its optimizer or "
                f"weights; `pods clean {shlex.quote(str(store.folder))} --yes` removes the run, "
                "and the same command trains it anew"
            )


def _is_resumable(store: RunStore) -> bool:
    """Return whether a checkpoint of a run has its weights and the state of its optimizer."""
    for folder in clocks(store):
        if (folder / OPTIMIZER).is_file() and (folder / POLICY).is_dir():
            return True
    return False
