"""Save what a run knows between steps, restore its newest checkpoint, and prune the others."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

from pods.method.prompt_selection import Selector
from pods.runs import checkpoint
from pods.runs.history import clocks, mark_damaged, newest_checkpoint
from pods.runs.records import Clock, read_json
from pods.runs.store import OPTIMIZER, PENDING, RESUMABLE, SELECTION, RunStore
from pods.training.step import RunState, Sample
from pods.training.workers import Worker


def restore_newest(
    store: RunStore, worker: Worker, start: RunState, report: Callable[[str], None]
) -> tuple[Clock, RunState] | None:
    """Restore weights and optimizer from the newest complete checkpoint; set damaged ones aside.

    Args:
        store: of the run.
        worker: of this process; all processes must restore at once.
        start: the state at the start of the run, whose types the saved one has.
        report: prints a line for each damaged checkpoint.

    Returns:
        The checkpoint's clock and state; None if the run has no checkpoint.
    """
    folder = worker.process_group.on_main(find_newest, store, report)
    if folder is None:
        return None

    worker.restore(folder)
    return store.clock(folder), read_state(folder, type(start.selector))


def find_newest(store: RunStore, report: Callable[[str], None]) -> Path | None:
    """Return the newest complete checkpoint, if there is one, and set damaged ones aside."""
    folder, faults = newest_checkpoint(store, needs=OPTIMIZER)
    for damaged, fault in faults.items():
        report(f"damaged checkpoint set aside: {damaged.name}: {fault}")
        mark_damaged(store, damaged)
    return folder


def write_state(folder: Path, state: RunState) -> None:
    """Write the state of a run into a checkpoint.

    `selection.json` is for people, too. What was sampled for later steps (tokens, log-probs and
    grades) is in a file of its own, if there is any.
    """
    selection = msgspec.to_builtins(state.selector)
    (folder / SELECTION).write_text(json.dumps(selection))
    if state.pending:
        content = msgspec.msgpack.encode(state.pending, enc_hook=np.ndarray.tobytes)
        (folder / PENDING).write_bytes(content)


def read_state(folder: Path, selector: type[Selector]) -> RunState:
    """Read what `write_state` wrote; `selector` is the kind of prompt selection."""
    selection = read_json(folder / SELECTION, dict[str, Any])
    path = folder / PENDING
    saved = msgspec.msgpack.decode(path.read_bytes()) if path.exists() else []
    return RunState(
        selector=msgspec.convert(selection, selector),
        pending=[_sample(values, selector) for values in saved],
    )


def _sample(values: dict[str, Any], selector: type[Selector]) -> Sample:
    kinds = Sample.__annotations__ | {"selector": selector}
    fields = {
        name: msgspec.convert(value, kinds[name], dec_hook=_array) for name, value in values.items()
    }
    return Sample(**fields)


def _array(kind: Any, content: bytes) -> np.ndarray:
    """Decode an array, whose annotation is NDArray[dtype]."""
    [dtype] = get_args(get_args(kind)[1])
    return np.frombuffer(content, dtype)


def prune_checkpoints(store: RunStore, step: int) -> None:
    """Remove what no resume needs now that there is a checkpoint of `step`."""
    for folder, clock in clocks(store).items():
        if clock["step"] < step and not clock["evaluation"]:
            store.remove(folder)
    for folder in list(clocks(store))[:-RESUMABLE]:
        with suppress(*checkpoint.READ_ERRORS):  # a damaged checkpoint is left as it is
            checkpoint.remove_part(folder, OPTIMIZER)
