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
from pods.runs.files import TRASH, append, json_line, replace
from pods.runs.lock import hold, is_held
from pods.validate import parse

RESUMABLE = 2  # newest checkpoints that keep what a run goes on from
OPTIMIZER = "optimizer.safetensors"  # in a checkpoint: twice the size of what is trained
DAMAGED = ".damaged"
_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where it is there: 7 x faster
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
        return read_config(self.config_path.read_bytes(), lambda: parse(self.config_values()))

    def config_values(self) -> dict[str, Any]:
        """The frozen config as plain values, unchecked."""
        try:
            return dict(_SAFE_LOADER(self.config_path.read_bytes()).get_single_data())
        except (yaml.YAMLError, TypeError) as error:
            why = " ".join(str(error).split())
            raise ValueError(f"{self.config_path} is damaged: {why}") from error

    def write_config(self, values: Mapping[str, Any]) -> None:
        """Freeze a config."""
        text = yaml.safe_dump(dict(values), sort_keys=False)
        replace(self.config_path, text, durable=True)

    def write_identity(self, content: Mapping[str, Any]) -> None:
        """Write what the run's hash is made of."""
        replace(self.identity_path, json.dumps(content, indent=1), durable=True)

    def identity(self) -> dict[str, Any]:
        """What the run's hash is made of."""
        return dict(json.loads(self.identity_path.read_text()))

    def write_data(self, content: Mapping[str, Any]) -> None:
        """Write what data the run is on."""
        replace(self.data_path, json.dumps(content, indent=1), durable=True)

    def data(self) -> dict[str, Any] | None:
        """What data the run is on; None before they were loaded for the first time.

        Raises:
            ValueError: the file is damaged.
        """
        if not self.data_path.is_file():
            return None
        try:
            found = dict(json.loads(self.data_path.read_text()))
            sound = all(isinstance(found[split]["sha256"], str) for split in ("train", "test"))
        except (ValueError, TypeError, KeyError):
            sound = False
        if not sound:
            raise ValueError(f"{self.data_path} is damaged")
        return found

    def status(self) -> dict[str, Any]:
        """`state` and, once it has run, pid, heartbeat, step, train_seconds, accuracy, error."""
        path = self.folder / "status.json"
        try:
            return {"state": "pending", **(json.loads(path.read_text()) if path.is_file() else {})}
        except ValueError:  # a power cut can leave it empty
            return {"state": "lost", "error": "status.json was damaged"}

    def set_status(self, **changes: Any) -> None:
        """Change some fields of status.json; the file is replaced whole."""
        with _status_lock:
            status = {**self.status(), **changes, "heartbeat": time.time()}
            replace(self.folder / "status.json", json.dumps(status), durable="state" in changes)

    def lock(self) -> AbstractContextManager[None]:
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
        with self.metrics_path.open("ab") as file:
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
        return dict(json.loads((checkpoint / "clock.json").read_text()))

    def write_selection(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Write what prompt selection knew at a checkpoint."""
        (folder / "selection.json").write_text(json.dumps(content))

    def selection(self, checkpoint: Path) -> dict[str, Any]:
        """A checkpoint's selection.json."""
        return dict(json.loads((checkpoint / "selection.json").read_text()))

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a step's line."""
        append(self.metrics_path, [record])

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
