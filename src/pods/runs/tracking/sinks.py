"""Hand a run's rows to the library of a tracker: everything that calls one of them is here.

A copy on this machine is written anew, in place of what earlier attempts wrote, so that each row is
there once. W&B's server keeps what it has, and is sent the rows after that.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pods.config.schema import Config
from pods.runs.files import remove
from pods.runs.store import RunStore
from pods.runs.tracking.rows import AXIS, PREFIXES, Row, description, read_rows
from pods.system.errors import as_short_text

ENDED = ("done", "failed")  # states after which no step of the log is made again
VARIABLES = {"WANDB_SILENT": "true", "WANDB_INIT_TIMEOUT": "20", "WANDB_FINISH_TIMEOUT": "30"}
"""What wandb reads from the environment, unless the user has set it; timeouts are in seconds."""
LONGEST_TAG = 64  # characters: W&B's limit


@dataclass
class Copy:
    """An open copy of one run, to which the rows are sent that its files have and it lacks."""

    config: Config
    store: RunStore
    write: Callable[[Row], None]  # writes the next row
    close: Callable[[Mapping[str, Any], int], None]
    """Writes the summary, if the tracker has one, and the exit code."""
    first: int = 0  # the first position that the copy lacks

    def send(self, ended: bool = True) -> int:
        """Send the missing rows; if the run may be resumed, only rows that no resume repeats."""
        rows = read_rows(self.config, self.store, self.first, ended)
        for row in rows:
            self.write(row)
            self.first = row.position + 1
        return len(rows)

    def finish(self, state: str) -> int:
        """Send the last rows and close; return how many were sent."""
        sent = self.send(ended=state in ENDED)
        skipped = self.store.status().get("skipped_steps", 0)
        self.close({"state": state, "skipped_steps": skipped}, int(state == "failed"))
        return sent


def longest_wait() -> float:
    """Return the longest of the seconds after which W&B says that it gives up."""
    longest = 0.0
    for name in ("WANDB_INIT_TIMEOUT", "WANDB_FINISH_TIMEOUT"):
        seconds = os.environ.get(name, VARIABLES[name])
        if seconds.isdigit():  # else W&B refuses it
            longest = max(longest, float(seconds))
    return longest


def open_copy(config: Config, store: RunStore, mode: str) -> Copy:
    """Open the copy of a run that `tracking.mode` names. The library may raise anything."""
    if mode == "tensorboard":
        return _tensorboard(config, store)
    if mode == "trackio":
        return _trackio(config, store)
    return _wandb(config, store, mode)


def _wandb(config: Config, store: RunStore, mode: str) -> Copy:
    """Open W&B with charts over the training clock; online it resumes a run that the server has."""
    if mode == "online":
        check_key()
    else:
        remove(store.folder / "wandb")
    _prepare()
    import wandb

    about = description(config, store)
    tags = (config.arm_name(), config.task.label(), config.model.name)
    run = wandb.init(
        project=about.project,
        name=about.name,
        group=about.group,
        config=about.config,
        id=f"{config.study}-{store.folder.name}",
        job_type="train",
        tags=[tag[:LONGEST_TAG] for tag in tags],
        dir=store.folder.absolute(),
        mode=mode,  # type: ignore[arg-type]
        resume="allow" if mode == "online" else None,
        reinit="finish_previous",
        settings=_settings(store),
    )
    run.define_metric("train_seconds")
    run.define_metric("*", step_metric="train_seconds")
    for prefix in PREFIXES:
        run.define_metric(f"{prefix}/*", step_metric="train_seconds")

    def close(summary: Mapping[str, Any], exit_code: int) -> None:
        run.summary.update(dict(summary))
        run.finish(exit_code=exit_code)
        wandb.teardown()  # `finish` does not wait for the file's last block

    def write(row: Row) -> None:
        run.log(dict(row.values), step=row.position, commit=True)

    return Copy(config, store, write, close, run.starting_step)


def _settings(store: RunStore) -> Any:
    import wandb

    status = store.status()
    live = status["state"] == "running"  # otherwise this machine may be another one
    return wandb.Settings(
        console="off",
        disable_git=True,
        symlink=False,
        finish_timeout_raises=True,
        host=status.get("host", ""),
        x_disable_stats=not live,
        x_disable_machine_info=not live,
        x_save_requirements=live,
    )


def _tensorboard(config: Config, store: RunStore) -> Copy:
    """Open an event file in the run's folder `tensorboard`; "relative" time is the training clock.

    Events are written at once: the thread of tensorboardX's own writer hangs on a full disk.
    """
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.summary import scalar

    folder = store.folder / "tensorboard"
    remove(folder)
    folder.mkdir()
    writer: Any = EventsWriter(str(folder / "events"))

    def write(row: Row) -> None:
        step = int(row.values["step"])
        seconds = row.values["train_seconds"]
        for name, value in row.values.items():
            if name not in AXIS:
                writer.write_event(Event(step=step, wall_time=seconds, summary=scalar(name, value)))
        writer.flush()

    return Copy(config, store, write, lambda *_: writer.close())


def _trackio(config: Config, store: RunStore) -> Copy:
    """Open Trackio, which has W&B's functions and keeps its data on this machine."""
    import trackio as wandb

    about = description(config, store)
    run: Any = wandb.init(
        project=about.project,
        name=about.name,
        group=about.group,
        config=about.config,
        embed=False,
    )

    def write(row: Row) -> None:
        run.log(dict(row.values), step=row.position)

    return Copy(config, store, write, lambda *_: run.finish())


def check_key() -> None:
    """Check that there are credentials for W&B, without a prompt and without the network."""
    _prepare()
    mode = os.environ.get("WANDB_MODE")
    if mode in ("offline", "dryrun", "disabled"):
        raise ValueError(f"WANDB_MODE={mode}: must be unset to reach W&B's server")
    import wandb

    try:
        has_key = wandb.login(prompt=False, verify=False)
    except Exception as error:  # W&B raises many kinds
        raise ValueError(f"W&B does not accept the key ({as_short_text(error)})") from error
    if not has_key:
        raise ValueError(
            "no W&B key: set WANDB_API_KEY or run `wandb login`; offline mode needs none"
        )


def _prepare() -> None:
    """Set what wandb reads from the environment when it loads: no output, and short timeouts."""
    logging.raiseExceptions = False  # otherwise wandb prints a traceback for every lost log line
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
