"""A run's config is frozen when it is submitted, and a run goes on only as what it began as."""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pods.config import Config
from pods.runs.attempts import environments
from pods.runs.environment import version_changes
from pods.runs.identity import difference, identity, pick, run_folder, settled
from pods.runs.store import RunStore
from pods.trouble import is_machine_trouble
from pods.validate import parse


class Changed(ValueError):
    """A run is no longer what it was when it began."""

    def __init__(self, what: object, changes: list[str]) -> None:
        """Say what changed, a line each, and the key that allows it."""
        self.changes = changes
        listed = "\n".join(f"  {change}" for change in changes)
        super().__init__(f"{what} is not what the run began with:\n{listed}\nallow_changed=true "
                         "goes on all the same, and marks the run")  # fmt: skip


def freeze(config: Config) -> RunStore:
    """Freeze a config in the folder of the run that it is, unless that is running; return it.

    What is operational follows the newest command; what is science is never changed here.

    Raises:
        Changed: the frozen config was edited, and `allow_changed` is not set.
        ValueError: something in the folder is a link.
        OSError: the folder cannot be made or written.
    """
    content = identity(config)
    store = RunStore(run_folder(config, content))
    store.refuse_links()
    try:
        _freeze(config, content, store)
    except OSError as error:  # a disk that is read-only by now may hold a run that is done
        if not (is_machine_trouble(error) and store.status()["state"] == "done"):
            raise
    return store


def _freeze(config: Config, content: Mapping[str, Any], store: RunStore) -> None:
    store.folder.mkdir(parents=True, exist_ok=True)
    with suppress(BlockingIOError), store.lock():  # what runs now has been frozen already
        values = dataclasses.asdict(config)
        try:
            frozen = store.config_values()
        except (FileNotFoundError, ValueError):  # new, or damaged: the hash says what it was
            pass
        else:
            edited = difference(settled(values), settled(frozen))
            if edited and not config.allow_changed:
                raise Changed(store.config_path, edited)
            if edited:
                values = _with(values, pick(frozen))
                parse(values)
        store.write_config(values)
        try:
            store.identity()
        except (FileNotFoundError, ValueError):  # new, or damaged
            store.write_identity(content)


def check_unchanged(store: RunStore, config: Config) -> list[str]:
    """Compare a run that goes on with how it began: identity, and versions of what computes.

    Returns:
        What changed, where `allow_changed` is set; the caller marks the run with it.

    Raises:
        Changed: a science key, data, weights, a rule's source or a minor version changed.
        ValueError: something in the folder is a link, or damaged.
    """
    store.refuse_links()
    now = json.loads(json.dumps(identity(config)))
    found = difference(store.identity(), now)
    before = environments(store)
    if before:
        found += version_changes(before[-1])
    if found and not config.allow_changed:
        raise Changed(store.folder, found)
    return found


def _with(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with some dotted keys replaced."""
    made = json.loads(json.dumps(values))
    for name, value in changes.items():
        *groups, last = name.split(".")
        place = made
        for group in groups:
            place = place[group]
        place[last] = value
    return dict(made)
