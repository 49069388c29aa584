"""The run folder: the only module that knows its file names. Standard library and YAML only.

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
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import yaml

from pods.config import Config
from pods.runs import checkpoint
from pods.runs.files import TRASH, append, json_line, read_lines, remove, replace
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

    def config(self) -> Config:
        """The frozen config; its types are checked, not whether its data is still there."""
        return parse(self.config_values())

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

    def newest_checkpoint(self, needs: str) -> tuple[Path | None, dict[Path, str]]:
        """The newest checkpoint to go on from, and what is wrong with those passed over, in words.

        One that a commit had moved aside when it was cut off is put back first.

        Args:
            needs: a file that it must hold; checkpoints without it were thinned.

        Raises:
            OSError: the log cannot be read: that says nothing of any checkpoint.
        """
        checkpoint.recover(self.checkpoints)
        complaints = {}
        for folder in sorted(self.checkpoints.glob("step-??????"), reverse=True):
            wrong = checkpoint.damage(folder) or self._mismatch(folder)
            if wrong:
                complaints[folder] = wrong
            elif needs in checkpoint.files_of(folder):
                return folder, complaints
        return None, complaints

    def _mismatch(self, folder: Path) -> str | None:
        """What in a checkpoint that is whole does not belong to this run, or to its log."""
        clock = self.clock(folder)
        if (clock["run"], clock["step"]) != (self.folder.name, int(folder.name[5:])):
            return f"it is step {clock['step']} of run {clock['run']}"
        logged = self.metrics_path.read_bytes() if self.metrics_path.is_file() else b""
        digest = hashlib.sha256(logged[: clock["metrics_bytes"]]).hexdigest()
        if digest != clock["metrics_sha256"]:
            return f"{self.metrics_path.name} is damaged before its end"
        return None

    def set_aside(self, folder: Path) -> None:
        """Keep a checkpoint that was passed over where nobody goes on from it."""
        aside = folder.with_name(f"{folder.name}{DAMAGED}")
        if aside.exists():
            remove(aside)
        folder.rename(aside)

    def clocks(self) -> dict[Path, dict[str, Any]]:
        """The clock of every checkpoint by folder, in order of steps; damaged ones left out."""
        folders = sorted(self.checkpoints.glob("step-??????"))
        whole = [f for f in folders if checkpoint.damage(f, only="clock.json") is None]
        return {folder: self.clock(folder) for folder in whole}

    def evaluation_points(self) -> dict[int, float]:
        """Training seconds of every checkpoint that is to be evaluated, by step."""
        clocks = self.clocks().values()
        return {clock["step"]: clock["train_seconds"] for clock in clocks if clock["evaluation"]}

    def leftovers(self) -> list[Path]:
        """What processes that were killed have left half-written or half-removed."""
        patterns = ("*.tmp[0-9]*", "rollouts/*.tmp[0-9]*", "checkpoints/*/*.tmp[0-9]*",
                    "checkpoints/*.trash", "checkpoints/*.tmp", "nonfinite/*.tmp")  # fmt: skip
        return [path for pattern in patterns for path in sorted(self.folder.glob(pattern))]

    def drop_stopgaps(self, before: int) -> None:
        """Remove checkpoints that a stopped run went on from, once there is a later one."""
        for folder, clock in self.clocks().items():
            if clock["step"] < before and not clock["evaluation"]:
                remove(folder)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a step's line."""
        append(self.metrics_path, [record])

    def void_steps(self) -> set[int]:
        """Steps in the log that were not applied, for NaN or infinity."""
        return {line["step"] for line in read_lines(self.metrics_path) if line["nonfinite"]}

    def evaluation_path(self, step: int) -> Path:
        """A JSON line a (repeat, question)."""
        return self.folder / "evaluations" / f"step-{step:06d}.jsonl"

    def evaluated_steps(self) -> set[int]:
        """Steps that there are evaluation records of."""
        return {int(path.stem[5:]) for path in self.folder.glob("evaluations/step-??????.jsonl")}

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep one step's rollouts to look at, compressed; equal rows give equal bytes."""
        path = self.folder / "rollouts" / f"step-{step:06d}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        replace(path, packed(rows))

    def nonfinite(self, step: int) -> Path:
        """Where a step that was not applied is kept for replay."""
        return self.folder / "nonfinite" / f"step-{step:06d}"

    def roll_back(self, step: int, metrics_bytes: int) -> None:
        """Forget everything that happened after the checkpoint of `step`."""
        if self.metrics_path.exists():
            os.truncate(self.metrics_path, metrics_bytes)
        for folder in ("checkpoints", "evaluations", "rollouts", "nonfinite"):
            for path in (self.folder / folder).glob("step-??????*"):
                if path.suffix != DAMAGED and int(path.name[5:11]) > step:
                    remove(path)

    def mark(self, changes: Iterable[str]) -> None:
        """Note for good what changed while the run was going on."""
        marks = self.marks()
        new = [change for change in changes if change not in marks]
        if new:
            replace(
                self.folder / "changes.json", json.dumps([*marks, *new], indent=1), durable=True
            )

    def marks(self) -> list[str]:
        """What changed while the run was going on; runs without any are of one piece."""
        path = self.folder / "changes.json"
        return list(json.loads(path.read_text())) if path.is_file() else []

    def environments(self) -> list[dict[str, Any]]:
        """Machine and versions of every attempt that began, in order."""
        found = []
        for path in sorted((self.folder / "attempts").glob("*/environment.json")):
            with suppress(ValueError):  # a power cut can leave it empty
                found.append(json.loads(path.read_text()))
        return found

    def wall_seconds(self) -> float:
        """Seconds that all attempts took, start, checkpoints and evaluation included."""
        paths = (self.folder / "attempts").glob("*/phases.json")
        phases = [phase for path in paths for phase in json.loads(path.read_text()).values()]
        return float(sum(phase["seconds"] for phase in phases))

    def new_attempt(self) -> Path:
        """Make and return the folder of this attempt's console and environment."""
        for number in range(1, 10_000):
            folder = self.folder / "attempts" / f"{number:03d}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
        raise FileExistsError(f"{self.folder} has 9,999 attempts")


def packed(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """JSON lines, compressed; equal rows give equal bytes."""
    text = "".join(json_line(row) for row in rows)
    return gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)


def run_folders(study: Path) -> list[Path]:
    """All run folders below a study's folder."""
    folders = (path.parent for path in study.glob("*/*/seed*/identity.json"))
    return sorted(folder for folder in folders if folder.suffix != TRASH)
