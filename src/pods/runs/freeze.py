"""Freeze a run's config when it is submitted, and resume the run only if nothing has changed."""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pods.config.parse import parse
from pods.config.schema import Config
from pods.runs.attempts import environments, version_changes
from pods.runs.identity import difference, edits, identity, run_folder, science_keys
from pods.runs.store import RunStore
from pods.system.errors import is_machine_error


class Changed(ValueError):
    """A run differs from what it was when it began."""

    def __init__(self, what: object, changes: list[str]) -> None:
        """List what changed, one line each, and name the key that allows it."""
        self.changes = changes
        lines = "\n".join(f"  {change}" for change in changes)
        super().__init__(
            f"{what} differs from what the run began with:\n{lines}\n"
            "allow_changed=true resumes the run nevertheless, and marks it as changed"
        )


def freeze(config: Config) -> RunStore:
    """Write a config into the folder of its run, unless that run is running; return the folder.

    Operational keys follow the newest command; science keys never change here.

    Raises:
        Changed: the frozen config was edited, and `allow_changed` is not set.
        ValueError: something in the folder is a link.
        OSError: the folder cannot be created or written.
    """
    content = identity(config)
    store = RunStore(run_folder(config, content))
    store.refuse_links()
    try:
        _freeze(config, content, store)
    except OSError as error:  # a finished run may be on a disk that has become read-only
        if not (is_machine_error(error) and store.status()["state"] == "done"):
            raise
    return store


def _freeze(config: Config, content: Mapping[str, Any], store: RunStore) -> None:
    store.folder.mkdir(parents=True, exist_ok=True)
    with suppress(BlockingIOError), store.lock():  # a running one has been frozen already
        values = dataclasses.asdict(config)
        try:
            frozen = store.config_values()
        except (FileNotFoundError, ValueError):  # new, or damaged: the hash says what it was
            pass
        else:
            edited = edits(config, frozen)
            if edited and not config.allow_changed:
                raise Changed(store.config_path, edited)
            if edited:
                _update(values, science_keys(frozen))
                parse(values)
        store.write_config(values)
        try:
            store.identity()
        except (FileNotFoundError, ValueError):  # new, or damaged
            store.write_identity(content)


def check_unchanged(store: RunStore, config: Config) -> list[str]:
    """Compare a run with how it began: its identity, and the versions of decisive packages.

    Returns:
        What changed, if `allow_changed` is set; the caller records it with the run.

    Raises:
        Changed: a science key, data, weights, a rule's source or a minor version changed.
        ValueError: something in the folder is a link, or damaged.
    """
    store.refuse_links()
    now = json.loads(json.dumps(identity(config)))
    changes = difference(store.identity(), now)
    before = environments(store)
    if before:
        changes += version_changes(before[-1])
    if changes and not config.allow_changed:
        raise Changed(store.folder, changes)
    return changes


def _update(values: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Set some dotted keys of nested values."""
    for name, value in changes.items():
        *groups, last = name.split(".")
        section = values
        for group in groups:
            section = section[group]
        section[last] = value
