"""Read and write the files of one run folder; JSON lines are the truth, the rest mirrors them.

Most names of its files stand here. Loads no heavy library.
"""

import dataclasses
import gzip
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from pods.config.parse import parse
from pods.config.schema import Config
from pods.runs.files import TRASH, first_link, json_lines, remove, replace, sha256
from pods.runs.lock import RunLock, hold_lock, is_held
from pods.runs.records import Clock, Damaged, Data, Status, parse_yaml, read, read_json

RESUMABLE = 2  # newest checkpoints that keep their optimizer, without which no run resumes
SELECTION = "selection.json"  # in a checkpoint: what the prompt selection knows
PENDING = "pending.msgpack"  # in a checkpoint under engine.lag: rollouts for the next steps
POLICY = "policy"  # in a checkpoint: the folder of its weights and tokenizer
OPTIMIZER = "optimizer.safetensors"  # in a checkpoint; twice the size of the trained weights
LOCK = ".lock"
DAMAGED_SUFFIX = ".damaged"
SEED = re.compile(rb"^seed: (0|[1-9]\d{0,8})$", re.MULTILINE)  # a line of a frozen config
_status_lock = threading.Lock()  # the watchdog writes heartbeats in a thread


@dataclasses.dataclass
class RunStore:
    """The files of one run folder."""

    folder: Path

    def __post_init__(self) -> None:
        """Name the files that several modules read or write."""
        self.config_path = self.folder / "config.yaml"  # the frozen config
        self.identity_path = self.folder / "identity.json"  # what the run's hash is computed from
        self.data_path = self.folder / "data.json"  # the problems used, their hash, those left out
        self.metrics_path = self.folder / "metrics.jsonl"  # the log, one JSON line per step
        self.checkpoints = self.folder / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """Return the folder of one checkpoint."""
        return self.checkpoints / f"step-{step:06d}"

    def evaluation_path(self, step: int) -> Path:
        """Return the file of one evaluation, one JSON line per repeat and question."""
        return self.folder / "evaluations" / f"step-{step:06d}.jsonl"

    def remove(self, path: Path) -> None:
        """Remove a file or folder of the run; raise a `ValueError` if a link leads out of the run.

        The run's folder itself, or one above it, may be a link, such as to a larger disk.
        """
        link = first_link(self.folder, path.parent)
        if link is not None:
            raise ValueError(f"{link} is a link: nothing beyond it is removed")

        remove(path)

    def lock(self) -> AbstractContextManager[RunLock]:
        """Hold the run folder's lock; entering raises `BlockingIOError` if another process does."""
        return hold_lock(self.folder / LOCK)

    def is_held(self) -> bool:
        """Return whether a process of this machine holds the lock."""
        return is_held(self.folder / LOCK)

    def config(self) -> Config:
        """Return the frozen config; its types are checked, not whether its data still exist.

        It takes milliseconds to parse one, and a study may have thousands that differ in the seed
        alone: so each of the others is parsed once per process.
        """
        parts = SEED.split(read(self.config_path))
        if len(parts) == 3:  # there is one such line
            before, seed, after = parts
            with suppress(ValueError):  # whose message would not name the file
                config = _parse_config(before + b"seed: 0" + after)
                return dataclasses.replace(config, seed=int(seed))

        return parse(self.config_values())

    def config_values(self) -> dict[str, Any]:
        """Return the frozen config as plain values, unchecked."""
        content = read(self.config_path)
        try:
            return parse_yaml(content)
        except ValueError as error:
            raise Damaged(self.config_path, error) from error

    def identity(self) -> dict[str, Any]:
        """Return the values that the run's hash is computed from."""
        content = read_json(self.identity_path, dict[str, Any])
        if type(content.get("seed")) is not int:
            raise Damaged(self.identity_path, "it has no seed")

        return content

    def data(self) -> Data | None:
        """Return what data the run uses; None before they were loaded for the first time."""
        if not self.data_path.exists():
            return None
        return read_json(self.data_path, Data)

    def status(self) -> Status:
        """Return `state` and, once the run has started, pid, heartbeat, step, error and others.

        A run with a damaged status, as a power cut can leave it, is lost, with a line about it.
        """
        try:
            return read_json(self.folder / "status.json", Status)
        except FileNotFoundError:
            return {"state": "pending"}
        except (ValueError, PermissionError) as error:
            return {"state": "lost", "error": str(error)}

    def set_status(self, **changes: Any) -> None:
        """Change some fields of status.json, which is replaced as a whole."""
        with _status_lock:
            status: dict[str, Any] = dict(self.status())
            status.update(changes)
            status["heartbeat"] = time.time()
            replace(self.folder / "status.json", json.dumps(status), durable="state" in changes)

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep one step's rollouts for inspection, compressed; equal rows give equal bytes."""
        path = self.folder / "rollouts" / f"step-{step:06d}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)

        replace(path, gzip.compress(json_lines(rows), mtime=0))

    def write_clock(self, folder: Path, step: int, train_seconds: float, evaluation: bool) -> None:
        """Write a new checkpoint's clock.json: last step, training clock, and the log so far."""
        with self.metrics_path.open("ab") as file:
            os.fsync(file.fileno())
            size = file.tell()

        clock: Clock = {
            "run": self.folder.name,
            "step": step,
            "train_seconds": train_seconds,
            "metrics_bytes": size,
            "metrics_sha256": sha256(self.metrics_path),
            "evaluation": evaluation,
        }
        (folder / "clock.json").write_text(json.dumps(clock))

    def clock(self, checkpoint: Path) -> Clock:
        """Return a checkpoint's clock.json."""
        return read_json(checkpoint / "clock.json", Clock)


@lru_cache(maxsize=1000)
def _parse_config(content: bytes) -> Config:
    return parse(parse_yaml(content))


def run_folders(study: Path) -> list[Path]:
    """Return all run folders below a study's folder, even if this user cannot read them.

    One with nothing but a lock is left out: a command has met a run that was being removed.
    """
    folders = []
    for path in sorted(study.glob("*/*/seed*")):
        if path.suffix == TRASH or not path.is_dir():
            continue
        is_readable = os.access(path, os.R_OK | os.X_OK)
        if not is_readable or set(os.listdir(path)) != {LOCK}:
            folders.append(path)

    return folders
