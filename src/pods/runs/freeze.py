"""Freeze a run's config when it is submitted, and resume the run only if nothing has changed."""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import yaml

from pods.config.schema import Config
from pods.runs.attempts import environments, version_changes
from pods.runs.files import replace, write_json
from pods.runs.identity import difference, edits, identity, run_folder
from pods.runs.store import RunStore
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

    Operational keys follow the newest command. Science keys never change here.

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
        if not is_machine_error(error, store.folder) or store.status()["state"] != "done":
            raise
    return store


def _freeze(config: Config, content: Mapping[str, Any], store: RunStore) -> None:
    try:
        edited = edits(config, store.config_values())
    except (FileNotFoundError, ValueError):  # new, or damaged: the hash says what it was
        edited = []
    if edited and config.retry != "changed":
        raise Changed(store.config_path, edited)

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
