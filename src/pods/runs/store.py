"""The run folder: with `history` and `attempts` all that knows its file names; no heavy library.

JSON lines are the truth; everything else mirrors them.
"""

import dataclasses
import gzip
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from pods.config import Config
from pods.runs.config_parts import read_config
from pods.runs.files import TRASH, append, json_line, own, replace
from pods.runs.lock import Held, hold, is_held
from pods.runs.reading import LARGE, SMALL, Damaged, Kinds, read_bytes, read_object, read_yaml
from pods.validate import parse

RESUMABLE = 2  # newest checkpoints that keep what a run goes on from
OPTIMIZER = "optimizer.safetensors"  # in a checkpoint: twice the size of what is trained
DAMAGED = ".damaged"
STATES = ("pending", "running", "done", "failed", "preempted", "lost")
NUMBER: Kinds = (int, float)
STATUS: Mapping[str, Kinds] = {
    "state": (str,), "pid": (int,), "host": (str,), "heartbeat": NUMBER, "step": (int,),
    "train_seconds": NUMBER, "accuracy": (*NUMBER, type(None)), "error": (str, type(None)),
    "exit_code": (int, type(None)), "void_steps": (int,),
}  # fmt: skip
CLOCK: Mapping[str, Kinds] = {
    "run": (str,), "step": (int,), "train_seconds": NUMBER, "metrics_bytes": (int,),
    "metrics_sha256": (str,), "evaluation": (bool,),
}  # fmt: skip
CHILDREN = ("attempts", "checkpoints", "evaluations", "nonfinite", "reevaluations", "rollouts",
            "wandb", "metrics.jsonl", ".lock")  # fmt: skip
_status_lock = threading.Lock()  # the watchdog writes heartbeats beside the main thread


@dataclasses.dataclass(frozen=True)
class RunStore:
    """Reads and writes one run folder."""

    folder: Path

    @property
    def config_path(self) -> Path:
        """The frozen config."""
        return self.folder / "config.yaml"

    @property
    def metrics_path(self) -> Path:
        """A JSON line a step."""
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoint folders are."""
        return self.folder / "checkpoints"

    @property
    def identity_path(self) -> Path:
        """What the run's hash is made of."""
        return self.folder / "identity.json"

    @property
    def data_path(self) -> Path:
        """How many problems the run uses, their hash, and which it leaves out."""
        return self.folder / "data.json"

    def config(self) -> Config:
        """The frozen config; its types are checked, not whether its data is still there."""
        return read_config(read_bytes(self.config_path, SMALL), lambda: parse(self.config_values()))

    def config_values(self) -> dict[str, Any]:
        """The frozen config as plain values, unchecked."""
        return read_yaml(self.config_path)

    def write_config(self, values: Mapping[str, Any]) -> None:
        """Freeze a config."""
        text = yaml.safe_dump(dict(values), sort_keys=False)
        replace(self.config_path, text, durable=True)

    def write_identity(self, content: Mapping[str, Any]) -> None:
        """Write what the run's hash is made of."""
        replace(self.identity_path, json.dumps(content, indent=1), durable=True)

    def refuse_links(self) -> None:
        """See that all of the run lies in one place, where it may remove what it has written.

        The run's folder itself may be a link, as to a larger disk.

        Raises:
            ValueError: something in it is a link.
        """
        for name in CHILDREN:
            path = self.folder / name
            if path.is_symlink():
                raise ValueError(f"{path}: is a link to {path.readlink()}; only the run's whole "
                                 "folder, or one above it, may be one")  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """What the run's hash is made of."""
        return read_object(self.identity_path, {"seed": (int,)})

    def write_data(self, content: Mapping[str, Any]) -> None:
        """Write what data the run is on."""
        replace(self.data_path, json.dumps(content, indent=1), durable=True)

    def data(self) -> dict[str, Any] | None:
        """What data the run is on; None before they were loaded for the first time.

        Raises:
            ValueError: the file is damaged.
        """
        splits: Mapping[str, Kinds] = {"train": (dict,), "test": (dict,)}
        try:
            found = read_object(self.data_path, splits, limit=LARGE)
        except FileNotFoundError:
            return None
        if not all(isinstance(found[split].get("sha256"), str) for split in splits):
            raise Damaged(self.data_path, "it has no sha256")
        return found

    def status(self) -> dict[str, Any]:
        """`state` and, once it has run, pid, heartbeat, step, train_seconds, accuracy, error.

        A run whose status is damaged, as a power cut may leave it, is lost: it says so.
        """
        path = self.folder / "status.json"
        try:
            found = {"state": "pending", **read_object(path, {}, STATUS)}
            if found["state"] not in STATES:
                raise Damaged(path, "its state is none")
        except FileNotFoundError:
            return {"state": "pending"}
        except ValueError as error:
            return {"state": "lost", "error": str(error)}
        return found

    def set_status(self, **changes: Any) -> None:
        """Change some fields of status.json; the file is replaced whole."""
        with _status_lock:
            status = {**self.status(), **changes, "heartbeat": time.time()}
            replace(self.folder / "status.json", json.dumps(status), durable="state" in changes)

    def lock(self) -> AbstractContextManager[Held]:
        """Hold the run folder; the operating system lets go of it if this process dies.

        Raises:
            BlockingIOError: on entering: another process holds it.
        """
        return hold(self.folder / ".lock")

    def is_held(self) -> bool:
        """Say whether some process on this machine is running the run."""
        return is_held(self.folder / ".lock")

    def checkpoint(self, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.checkpoints / f"step-{step:06d}"

    def write_clock(self, folder: Path, step: int, train_seconds: float, evaluation: bool) -> None:
        """Write a checkpoint's clock.json: where the run and its log stood.

        Args:
            folder: of the checkpoint, still unsealed.
            step: the last one committed.
            train_seconds: the training clock then.
            evaluation: whether it is to be evaluated, or only to go on from.
        """
        with open(self.metrics_path, "ab", opener=own) as file:
            os.fsync(file.fileno())
        logged = self.metrics_path.read_bytes()
        clock = {
            "run": self.folder.name,
            "step": step,
            "train_seconds": train_seconds,
            "metrics_bytes": len(logged),
            "metrics_sha256": hashlib.sha256(logged).hexdigest(),
            "evaluation": evaluation,
        }
        (folder / "clock.json").write_text(json.dumps(clock))

    def clock(self, checkpoint: Path) -> dict[str, Any]:
        """A checkpoint's clock.json."""
        return read_object(checkpoint / "clock.json", CLOCK)

    def write_selection(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Write what prompt selection knew at a checkpoint."""
        (folder / "selection.json").write_text(json.dumps(content))

    def selection(self, checkpoint: Path) -> dict[str, Any]:
        """A checkpoint's selection.json."""
        return read_object(checkpoint / "selection.json", {}, limit=LARGE)

    def append_metrics(self, record: Mapping[str, Any], expected: int | None = None) -> int:
        """Add a step's line; see `append`."""
        return append(self.metrics_path, [record], expected)

    def evaluation_path(self, step: int) -> Path:
        """A JSON line a (repeat, question)."""
        return self.folder / "evaluations" / f"step-{step:06d}.jsonl"

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep one step's rollouts to look at, compressed; equal rows give equal bytes."""
        path = self.folder / "rollouts" / f"step-{step:06d}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        replace(path, packed(rows))

    def nonfinite(self, step: int) -> Path:
        """Where a step that was not applied is kept for replay."""
        return self.folder / "nonfinite" / f"step-{step:06d}"


def packed(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """JSON lines, compressed; equal rows give equal bytes."""
    text = "".join(json_line(row) for row in rows)
    return gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)


def run_folders(study: Path) -> list[Path]:
    """All run folders below a study's folder."""
    folders = (path.parent for path in study.glob("*/*/seed*/identity.json"))
    return sorted(folder for folder in folders if folder.suffix != TRASH)
