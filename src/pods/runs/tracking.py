"""The W&B mirror. The run's own files are the truth: nothing here can stop a run."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from pods.config import Config


class Tracker(Protocol):
    """Where a run's numbers are mirrored to."""

    def log(self, values: Mapping[str, Any]) -> None:
        """Send numbers; those of evaluations begin with `eval/`."""
        ...

    def finish(self, exit_code: int) -> None:
        """Close the mirror."""
        ...


class NoTracker:
    """tracking=none."""

    def log(self, values: Mapping[str, Any]) -> None:
        """Do nothing."""

    def finish(self, exit_code: int) -> None:
        """Do nothing."""


class WandbTracker:
    """One W&B run per run folder; the first failure is reported and ends the mirroring."""

    def __init__(self, config: Config, folder: Path) -> None:
        """Open the mirror in the run folder; offline mode needs neither account nor network."""
        self.run: Any = None
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_INIT_TIMEOUT", "20")  # seconds
        try:
            import wandb

            self.run = wandb.init(
                dir=folder,
                mode=config.tracking.wandb,  # type: ignore[arg-type]
                project=config.tracking.project,
                entity=config.tracking.entity,
                id=f"{config.study}-{folder.name}",
                resume="allow" if config.tracking.wandb == "online" else None,
                name="/".join(folder.parts[-2:]),
                group=config.study,
                job_type="train",
                tags=[config.arm or config.sampler.rule, config.task.name, config.model.name],
                config=asdict(config),
                reinit="finish_previous",
                settings=wandb.Settings(console="off", disable_git=True),
            )
            self.run.define_metric("train_seconds")
            self.run.define_metric("*", step_metric="train_seconds")
        except Exception as error:
            self._give_up(error)

    def log(self, values: Mapping[str, Any]) -> None:
        """Send numbers, placed by `train_seconds`."""
        if self.run is not None:
            try:
                self.run.log(dict(values))
            except Exception as error:
                self._give_up(error)

    def finish(self, exit_code: int) -> None:
        """Flush and close."""
        if self.run is not None:
            try:
                self.run.finish(exit_code=exit_code)
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.run = None
        print(f"W&B is off for this run ({type(error).__name__}: {error}); files are complete")


def open_tracker(config: Config, folder: Path) -> Tracker:
    """The tracker that the config asks for."""
    return NoTracker() if config.tracking.wandb == "none" else WandbTracker(config, folder)
