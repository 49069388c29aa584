"""Restore a run from its newest checkpoint, and remove what no resume needs."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

from pods.method.adaptive import Adaptive
from pods.method.prompt_selection import Selector
from pods.runs import checkpoint
from pods.runs.history import clocks, mark_damaged, newest_checkpoint
from pods.runs.records import Clock, read_json
from pods.runs.store import OPTIMIZER, PENDING, RESUMABLE, SELECTION, RunStore
from pods.training.step import Sample
from pods.training.workers import Worker, WorkerGroup

States = tuple[Selector, Adaptive | None, Sequence[Sample]]
"""What prompt selection and an adaptive run know after a step, and what is pending."""


def restore_newest(
    store: RunStore, workers: WorkerGroup, states: States, report: Callable[[str], None]
) -> tuple[Clock, States] | None:
    """Restore weights and optimizer from the newest complete checkpoint; set damaged ones aside.

    `states` are those at the start of the run, and have the types of the saved ones. Return the
    checkpoint's clock and states; None if the run has no checkpoint.
    """
    selector, adaptive, _ = states
    folder, faults = newest_checkpoint(store, needs=OPTIMIZER)
    for damaged, fault in faults.items():
        report(f"damaged checkpoint set aside: {damaged.name}: {fault}")
        mark_damaged(store, damaged)
    if folder is None:
        return None

    workers.call_all(Worker.restore, folder)
    saved = read_json(folder / SELECTION, dict[str, Any])
    if adaptive is not None:
        adaptive = msgspec.convert(saved.pop("adaptive"), Adaptive)
    known = msgspec.convert(saved, type(selector))
    return store.clock(folder), (known, adaptive, read_pending(folder, type(selector)))


def write_pending(folder: Path, pending: Sequence[Sample]) -> None:
    """Write into a checkpoint what was sampled for later steps: tokens, log-probs and grades."""
    if pending:
        content = msgspec.msgpack.encode(pending, enc_hook=np.ndarray.tobytes)
        (folder / PENDING).write_bytes(content)


def read_pending(folder: Path, selector: type[Selector]) -> list[Sample]:
    """Read what `write_pending` wrote; `selector` is the kind of prompt selection."""
    path = folder / PENDING
    saved = msgspec.msgpack.decode(path.read_bytes()) if path.exists() else []

    def array(kind: Any, content: bytes) -> np.ndarray:
        [dtype] = get_args(get_args(kind)[1])  # of NDArray[dtype]
        return np.frombuffer(content, dtype)

    fields = Sample.__annotations__ | {"selector": selector}
    return [
        Sample(**{k: msgspec.convert(v, fields[k], dec_hook=array) for k, v in sample.items()})
        for sample in saved
    ]


def prune_checkpoints(store: RunStore, step: int) -> None:
    """Remove what no resume needs now that there is a checkpoint of `step`."""
    for folder, clock in clocks(store).items():
        if clock["step"] < step and not clock["evaluation"]:
            store.remove(folder)
    for folder in list(clocks(store))[:-RESUMABLE]:
        with suppress(*checkpoint.READ_ERRORS):  # a damaged checkpoint is left as it is
            checkpoint.remove_file(folder, OPTIMIZER)
