"""Read and write the files of one run folder; JSON lines are the truth, the rest mirrors them.

With `history` and `attempts` this is all that knows the names of its files. Loads no heavy library.
"""

import dataclasses
import gzip
import hashlib
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

import yaml

from pods.config.parse import parse
from pods.config.schema import Config
from pods.runs.files import TRASH, append, json_line, open_no_follow, replace
from pods.runs.lock import RunLock, hold_lock, is_held
from pods.runs.reading import (
    LARGE,
    SMALL,
    Damaged,
    Types,
    parse_yaml,
    read_bytes,
    read_object,
    read_yaml,
)

RESUMABLE = 2  # newest checkpoints that keep their optimizer, without which no run resumes
OPTIMIZER = "optimizer.safetensors"  # in a checkpoint; twice the size of the trained weights
DAMAGED_SUFFIX = ".damaged"
STATES = ("pending", "running", "done", "failed", "preempted", "lost")
NUMBER: Types = (int, float)
STATUS: Mapping[str, Types] = {
    "state": (str,),
    "pid": (int,),
    "host": (str,),
    "heartbeat": NUMBER,
    "step": (int,),
    "train_seconds": NUMBER,
    "accuracy": (*NUMBER, type(None)),
    "error": (str, type(None)),
    "exit_code": (int, type(None)),
    "void_steps": (int,),
}
CLOCK: Mapping[str, Types] = {
    "run": (str,),
    "step": (int,),
    "train_seconds": NUMBER,
    "metrics_bytes": (int,),
    "metrics_sha256": (str,),
    "evaluation": (bool,),
}
NEVER_LINKS = (
    "attempts",
    "checkpoints",
    "evaluations",
    "nonfinite",
    "reevaluations",
    "rollouts",
    "tensorboard",
    "wandb",
    "metrics.jsonl",
    ".lock",
)
SEED = re.compile(rb"^seed: (0|[1-9]\d{0,8})$", re.MULTILINE)  # a line of a frozen config
_status_lock = threading.Lock()  # the watchdog writes heartbeats beside the main thread


@dataclasses.dataclass(frozen=True)
class RunStore:
    """The files of one run folder."""

    folder: Path

    @property
    def config_path(self) -> Path:
        """The frozen config."""
        return self.folder / "config.yaml"

    @property
    def identity_path(self) -> Path:
        """The values that the run's hash is computed from."""
        return self.folder / "identity.json"

    @property
    def data_path(self) -> Path:
        """The number of problems that the run uses, their hash, and those that it leaves out."""
        return self.folder / "data.json"

    @property
    def metrics_path(self) -> Path:
        """The log, one JSON line per step."""
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of all checkpoints."""
        return self.folder / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """Return the folder of one checkpoint."""
        return self.checkpoints / f"step-{step:06d}"

    def evaluation_path(self, step: int, test_set: str = "") -> Path:
        """Return the file of one evaluation, one JSON line per repeat and question.

        Those of a further test set are in a folder of its name.
        """
        return self.folder / "evaluations" / test_set / f"step-{step:06d}.jsonl"

    def set_data_path(self, test_set: str) -> Path:
        """Return the file that says which questions a further test set has."""
        return self.folder / "evaluations" / test_set / "data.json"

    def nonfinite(self, step: int) -> Path:
        """Return the folder that keeps a step which was not applied, for replay."""
        return self.folder / "nonfinite" / f"step-{step:06d}"

    def refuse_links(self) -> None:
        """Check that the files lie in the run folder itself, since the run may remove them.

        The run's folder as a whole may be a link, such as to a larger disk.

        Raises:
            ValueError: something in it is a link.
        """
        further = [path for path in self.folder.glob("evaluations/*") if path.suffix != ".jsonl"]
        for path in [*(self.folder / name for name in NEVER_LINKS), *further]:
            if path.is_symlink():
                raise ValueError(
                    f"{path} is a link to {path.readlink()}: only the whole run folder, or one "
                    "above it, may be a link"
                )

    def lock(self) -> AbstractContextManager[RunLock]:
        """Hold the run folder's lock; the operating system releases it if this process dies.

        Raises:
            BlockingIOError: on entering: another process holds it.
        """
        return hold_lock(self.folder / ".lock")

    def is_held(self) -> bool:
        """Say whether a process of this machine holds the lock."""
        return is_held(self.folder / ".lock")

    def config(self) -> Config:
        """Return the frozen config; its types are checked, not whether its data still exist.

        It takes milliseconds to parse one, and a study may have thousands that differ in the seed
        alone: so each of the others is parsed once per process.
        """
        parts = SEED.split(read_bytes(self.config_path, SMALL))
        if len(parts) == 3:  # text before the only such line, seed, text after it
            with suppress(ValueError):  # whose message would not name the file
                config = _parse_config(b"seed: 0".join(parts[::2]))
                return dataclasses.replace(config, seed=int(parts[1]))
        return parse(self.config_values())

    def config_values(self) -> dict[str, Any]:
        """Return the frozen config as plain values, unchecked."""
        return read_yaml(self.config_path)

    def write_config(self, values: Mapping[str, Any]) -> None:
        """Freeze a config."""
        text = yaml.safe_dump(dict(values), sort_keys=False)
        replace(self.config_path, text, durable=True)

    def identity(self) -> dict[str, Any]:
        """Return the values that the run's hash is computed from."""
        return read_object(self.identity_path, {"seed": (int,)})

    def write_identity(self, content: Mapping[str, Any]) -> None:
        """Write the values that the run's hash is computed from."""
        replace(self.identity_path, json.dumps(content, indent=1), durable=True)

    def data(self) -> dict[str, Any] | None:
        """Return what data the run uses; None before they were loaded for the first time.

        Raises:
            ValueError: the file is damaged.
        """
        splits: Mapping[str, Types] = {"train": (dict,), "test": (dict,)}
        try:
            facts = read_object(self.data_path, splits, limit=LARGE)
        except FileNotFoundError:
            return None
        if not all(isinstance(facts[split].get("sha256"), str) for split in splits):
            raise Damaged(self.data_path, "it has no sha256")
        return facts

    def write_data(self, content: Mapping[str, Any]) -> None:
        """Write what data the run uses."""
        replace(self.data_path, json.dumps(content, indent=1), durable=True)

    def set_data(self, test_set: str) -> dict[str, Any] | None:
        """Return which questions a further test set has; None before they were first loaded.

        Raises:
            ValueError: the file is damaged.
        """
        required: Mapping[str, Types] = {"problems": (int,), "sha256": (str,)}
        try:
            return read_object(self.set_data_path(test_set), required, limit=LARGE)
        except FileNotFoundError:
            return None

    def write_set_data(self, test_set: str, content: Mapping[str, Any]) -> None:
        """Write which questions a further test set has."""
        path = self.set_data_path(test_set)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, json.dumps(content, indent=1), durable=True)

    def status(self) -> dict[str, Any]:
        """Return `state` and, once the run has started, pid, heartbeat, step, error and others.

        A run with a damaged status, as a power cut can leave it, is lost, with a line about it.
        """
        path = self.folder / "status.json"
        try:
            status = {"state": "pending", **read_object(path, {}, STATUS)}
            if status["state"] not in STATES:
                raise Damaged(path, f"state must be one of {', '.join(STATES)}")
        except FileNotFoundError:
            return {"state": "pending"}
        except ValueError as error:
            return {"state": "lost", "error": str(error)}
        return status

    def set_status(self, **changes: Any) -> None:
        """Change some fields of status.json, which is replaced as a whole."""
        with _status_lock:
            status = {**self.status(), **changes, "heartbeat": time.time()}
            replace(self.folder / "status.json", json.dumps(status), durable="state" in changes)

    def append_metrics(self, record: Mapping[str, Any], expected: int | None = None) -> int:
        """Append a step's line to the log; see `append`."""
        return append(self.metrics_path, [record], expected)

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep one step's rollouts for inspection, compressed; equal rows give equal bytes."""
        path = self.folder / "rollouts" / f"step-{step:06d}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        replace(path, gzip_lines(rows))

    def write_clock(self, folder: Path, step: int, train_seconds: float, evaluation: bool) -> None:
        """Write the clock.json of a new checkpoint: last step, training clock, length of the log.

        A checkpoint without `evaluation` is only to resume from.
        """
        with open(self.metrics_path, "ab", opener=open_no_follow) as file:
            os.fsync(file.fileno())
        log = self.metrics_path.read_bytes()
        clock = {
            "run": self.folder.name,
            "step": step,
            "train_seconds": train_seconds,
            "metrics_bytes": len(log),
            "metrics_sha256": hashlib.sha256(log).hexdigest(),
            "evaluation": evaluation,
        }
        (folder / "clock.json").write_text(json.dumps(clock))

    def clock(self, checkpoint: Path) -> dict[str, Any]:
        """Return a checkpoint's clock.json."""
        return read_object(checkpoint / "clock.json", CLOCK)

    def write_selection(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Write a checkpoint's selection.json: the state of the prompt selection."""
        (folder / "selection.json").write_text(json.dumps(content))

    def selection(self, checkpoint: Path) -> dict[str, Any]:
        """Return a checkpoint's selection.json."""
        return read_object(checkpoint / "selection.json", {}, limit=LARGE)


@lru_cache(maxsize=1000)
def _parse_config(content: bytes) -> Config:
    return parse(parse_yaml(content))


def gzip_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return compressed JSON lines; equal rows give equal bytes."""
    text = "".join(json_line(row) for row in rows)
    return gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)


def run_folders(study: Path) -> list[Path]:
    """Return all run folders below a study's folder."""
    folders = (path.parent for path in study.glob("*/*/seed*/identity.json"))
    return sorted(folder for folder in folders if folder.suffix != TRASH)
