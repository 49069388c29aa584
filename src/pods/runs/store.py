"""The run folder: the only module that knows its file names. Standard library and YAML only.

JSON lines are the truth; everything else mirrors them.
"""

import dataclasses
import fcntl
import gzip
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from pods.config import Config
from pods.runs.files import append, json_line, remove, replace
from pods.runs.identity import identity, run_folder
from pods.validate import parse


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

    @classmethod
    def of(cls, config: Config) -> "RunStore":
        """The store of the run that a config is, frozen there unless its process is running.

        Labels and places of a run that is done follow the newest command; nothing else can differ.
        """
        content = identity(config)
        store = cls(run_folder(config, content))
        store.folder.mkdir(parents=True, exist_ok=True)
        with suppress(BlockingIOError), store.lock():  # what runs now has been frozen already
            text = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)
            replace(store.config_path, text)
            replace(store.folder / "identity.json", json.dumps(content, indent=1))
        return store

    def config(self) -> Config:
        """The frozen config; its types are checked, not whether its data is still there."""
        return parse(yaml.safe_load(self.config_path.read_text()))

    def identity(self) -> dict[str, Any]:
        """What the run's hash is made of."""
        return dict(json.loads((self.folder / "identity.json").read_text()))

    def status(self) -> dict[str, Any]:
        """`state` and, once it has run, pid, heartbeat, step, train_seconds, accuracy, error."""
        path = self.folder / "status.json"
        return {"state": "pending", **(json.loads(path.read_text()) if path.is_file() else {})}

    def set_status(self, **changes: Any) -> None:
        """Change some fields of status.json; the file is replaced whole."""
        status = {**self.status(), **changes, "heartbeat": time.time()}
        replace(self.folder / "status.json", json.dumps(status))

    def beat(self, step: int, train_seconds: float) -> None:
        """Say that the run is alive, at most once a second."""
        path = self.folder / "status.json"
        if time.time() - path.stat().st_mtime >= 1:
            self.set_status(step=step, train_seconds=train_seconds)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run folder; the operating system lets go of it if this process dies.

        Raises:
            BlockingIOError: another process holds it.
        """
        with (self.folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    def is_held(self) -> bool:
        """Say whether some process on this machine is running the run."""
        try:
            with self.lock():
                return False
        except BlockingIOError:
            return True

    def checkpoint(self, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.checkpoints / f"step-{step:06d}"

    def write_clock(
        self,
        checkpoint: Path,
        step: int,
        train_seconds: float,
        metrics_bytes: int,
        evaluation: bool,
    ) -> None:
        """Write a checkpoint's clock.json: where the run stood; whether it is evaluated there."""
        clock = {
            "step": step,
            "train_seconds": train_seconds,
            "metrics_bytes": metrics_bytes,
            "evaluation": evaluation,
        }
        (checkpoint / "clock.json").write_text(json.dumps(clock))

    def clock(self, checkpoint: Path) -> dict[str, Any]:
        """A checkpoint's clock.json."""
        return dict(json.loads((checkpoint / "clock.json").read_text()))

    def clocks(self) -> dict[Path, dict[str, Any]]:
        """The clock of every checkpoint by folder, in order of steps; unreadable ones left out."""
        found = {}
        for folder in sorted(self.checkpoints.glob("step-??????")):
            with suppress(OSError, ValueError):
                found[folder] = self.clock(folder)
        return found

    def evaluation_points(self) -> dict[int, float]:
        """Training seconds of every checkpoint that is to be evaluated, by step."""
        clocks = self.clocks().values()
        return {clock["step"]: clock["train_seconds"] for clock in clocks if clock["evaluation"]}

    def drop_stopgaps(self, before: int) -> None:
        """Remove checkpoints that a stopped run went on from, once there is a later one."""
        for folder, clock in self.clocks().items():
            if clock["step"] < before and not clock["evaluation"]:
                remove(folder)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a step's line."""
        append(self.metrics_path, [record])

    def sync_metrics(self) -> int:
        """Bring metrics.jsonl to the disk and return its length, which each checkpoint keeps."""
        with self.metrics_path.open("ab") as file:
            os.fsync(file.fileno())
            return file.tell()

    def evaluation_path(self, step: int) -> Path:
        """A JSON line a (repeat, question)."""
        return self.folder / "evaluations" / f"step-{step:06d}.jsonl"

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep one step's rollouts to look at, compressed; equal rows give equal bytes."""
        path = self.folder / "rollouts" / f"step-{step:06d}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        text = "".join(json_line(row) for row in rows)
        path.write_bytes(gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0))

    def roll_back(self, step: int, metrics_bytes: int) -> None:
        """Forget everything that happened after the checkpoint of `step`."""
        if self.metrics_path.exists():
            os.truncate(self.metrics_path, metrics_bytes)
        for folder in ("checkpoints", "evaluations", "rollouts"):
            for path in (self.folder / folder).glob("step-??????*"):
                if int(path.name[5:11]) > step:
                    remove(path)

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


def run_folders(study: Path) -> list[Path]:
    """All run folders below a study's folder."""
    return sorted(path.parent for path in study.glob("*/*/seed*/identity.json"))
