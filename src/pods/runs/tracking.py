"""The W&B mirror of a run in progress. Its files are the truth: nothing here can stop a run."""

import logging
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pods.config import Config
from pods.runs import mirror
from pods.runs.mirror import Row
from pods.runs.store import RunStore
from pods.trouble import in_short

# seconds; what the environment says goes first
PATIENCE = {"WANDB_INIT_TIMEOUT": "20", "WANDB_FINISH_TIMEOUT": "30"}
LAG_SECONDS = 60.0  # that W&B may be behind


class Tracker(Protocol):
    """Where a run's numbers are mirrored to."""

    def log(self, row: Row) -> None:
        """Take a row; one that was sent before is not sent again."""
        ...

    def flush(self) -> None:
        """Send the rows that were taken."""
        ...

    def finish(self, exit_code: int) -> None:
        """Close the mirror."""
        ...


class NoTracker:
    """tracking=none."""

    def log(self, row: Row) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def finish(self, exit_code: int) -> None:
        """Do nothing."""


class WandbTracker:
    """One W&B run per run folder; the first failure is reported and ends the mirroring.

    W&B takes some 2 ms for a row, so steps do not wait for it: rows are sent before a checkpoint
    settles them, and where that is rare, once a minute. A thread would take its time from the
    training clock.
    """

    def __init__(self, config: Config, folder: Path, mode: str) -> None:
        """Open the mirror in the run folder; offline mode needs neither account nor network."""
        self.config, self.store = config, RunStore(folder)
        self.run: Any = None
        self.next: float = 0
        """The first place that W&B has no row of."""
        self.waiting: list[Row] = []
        self.flushed = time.monotonic()
        try:
            if mode == "online":
                check_key()
            self.run = open_run(config, self.store, folder, mode)
            self.next = self.run.starting_step
            if mode == "online":
                self._catch_up()
        except Exception as error:
            self._give_up(error)

    def _catch_up(self) -> None:
        """Send what earlier attempts could not: after a later row W&B would never take it.

        Nor is anything sent past an evaluation or a line that is missing: it may be made again.
        """
        rows, gap = mirror.history(self.config, self.store, settled=True).after(self.next)
        for row in rows:
            self._send(row)
        if gap:
            self.next = math.inf
            print(f"W&B gets no more rows of this run, which goes on: {gap}; `pods evaluate`, then "
                  "`pods sync`")  # fmt: skip

    def log(self, row: Row) -> None:
        """Keep a row for the next flush, which comes by itself after a minute."""
        self.waiting.append(row)
        if time.monotonic() - self.flushed >= LAG_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send what waits, in order."""
        for row in self.waiting:
            self._send(row)
        self.waiting.clear()
        self.flushed = time.monotonic()

    def _send(self, row: Row) -> None:
        """Send a row, unless W&B has it or a later one from before a resume."""
        if self.run is not None and row.place >= self.next:
            try:
                self.run.log(dict(row.values), step=row.place, commit=True)
                self.next = row.place + 1
            except Exception as error:
                self._give_up(error)

    def finish(self, exit_code: int) -> None:
        """Flush and close, within half a minute even if the network has died."""
        self.flush()
        if self.run is not None:
            try:
                rows = mirror.rows(self.config, self.store)
                close_run(self.run, mirror.summary(self.store, rows), exit_code)
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.run = None
        print(f"W&B is off for this run ({in_short(error)}), which goes on; "
              "`pods sync` sends what its files hold")  # fmt: skip


def open_tracker(config: Config, folder: Path) -> Tracker:
    """The tracker that the config asks for."""
    mode = config.tracking.wandb
    return NoTracker() if mode == "none" else WandbTracker(config, folder, mode)


def open_run(config: Config, store: RunStore, place: Path, mode: str, **more: Any) -> Any:
    """Open the run's W&B run, or go on with it; its charts are drawn against `train_seconds`.

    Args:
        config: of the run.
        store: of the run.
        place: folder that W&B makes its own `wandb` folder in.
        mode: offline or online; online, the run's `starting_step` is the first that W&B lacks.
        more: further W&B settings.

    Raises:
        wandb.Error: the server does not answer in time, or refuses.
    """
    _prepare()
    import wandb

    run = wandb.init(
        **mirror.settings(config, store),
        dir=place.absolute(),
        mode=mode,  # type: ignore[arg-type]
        resume="allow" if mode == "online" else None,
        reinit="finish_previous",
        settings=wandb.Settings(
            console="off", disable_git=True, symlink=False, finish_timeout_raises=True, **more
        ),
    )
    for log in Path(run.settings.log_internal).parent.glob("*.log"):
        with suppress(OSError):  # W&B lets everybody write into some
            log.chmod(log.stat().st_mode & ~0o022)
    run.define_metric("train_seconds")
    for names in ("*", "eval/*"):
        run.define_metric(names, step_metric="train_seconds")
    return run


def rows_there(run: Any) -> int:
    """How many rows of history the server has of an online run, as W&B's public API counts them.

    Raises:
        wandb.Error: the server does not answer.
    """
    import wandb

    patience = int(float(os.environ["WANDB_INIT_TIMEOUT"]))
    path = "/".join((run.entity, run.project, run.id))
    return int(wandb.Api(timeout=patience).run(path).historyLineCount)


def close_run(run: Any, summary: Mapping[str, Any], exit_code: int) -> None:
    """Write the summary and the end; the run's W&B folder is whole on return.

    Raises:
        TimeoutError: the network is too slow, or has died.
    """
    import wandb

    run.summary.update(summary)
    run.finish(exit_code=exit_code)
    wandb.teardown()  # `finish` does not wait for the file's last block


def check_key() -> None:
    """See that there are credentials for W&B, without a prompt and without the network.

    Raises:
        ValueError: there are none, they cannot be a key, or WANDB_MODE turns W&B off.
    """
    _prepare()
    mode = os.environ.get("WANDB_MODE", "online")
    if mode in ("offline", "dryrun", "disabled"):
        raise ValueError(f"WANDB_MODE={mode} keeps W&B from its server: unset it")
    import wandb

    try:
        found = wandb.login(prompt=False, verify=False)
    except Exception as error:  # W&B raises many kinds
        raise ValueError(f"the W&B key is not accepted ({in_short(error)})") from error
    if not found:
        raise ValueError("no W&B key: set WANDB_API_KEY or type `wandb login`; offline needs none")


def _prepare() -> None:
    """Before wandb reads its environment: no noise, and an end to waiting."""
    logging.raiseExceptions = False  # else it prints a trace for each line that its log lost
    for name, value in {"WANDB_SILENT": "true", **PATIENCE}.items():
        os.environ.setdefault(name, value)
