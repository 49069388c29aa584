"""Send a run's rows to W&B. Everything that calls W&B is here, but for the dashboard."""

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pods.config.schema import Config
from pods.runs.store import RunStore
from pods.runs.tracking.examples import COLUMNS
from pods.runs.tracking.names import EXAMPLES, PREFIXES, SUMMARIES
from pods.runs.tracking.rows import Row, settings
from pods.system.errors import as_short_text

TIMEOUTS = {"WANDB_INIT_TIMEOUT": "20", "WANDB_FINISH_TIMEOUT": "30"}  # seconds, unless set
ENDED = ("done", "failed")  # states whose runs are not resumed, so that no step is repeated


class WandbRun:
    """An open W&B run, which belongs to one run folder."""

    def __init__(
        self, config: Config, store: RunStore, folder: Path, mode: str, **more: Any
    ) -> None:
        """Open the W&B run, or resume it if it exists; its charts are over `train_seconds`.

        Args:
            config: of the run.
            store: of the run.
            folder: in which W&B creates its own folder `wandb`.
            mode: offline or online.
            more: further W&B settings.

        Raises:
            wandb.Error: the server does not answer in time, or refuses.
        """
        _prepare()
        import wandb

        self.run: Any = wandb.init(
            **settings(config, store),
            dir=folder.absolute(),
            mode=mode,  # type: ignore[arg-type]
            resume="allow" if mode == "online" else None,
            reinit="finish_previous",
            settings=wandb.Settings(
                console="off", disable_git=True, symlink=False, finish_timeout_raises=True, **more
            ),
        )
        self.first: int = self.run.starting_step
        """The first position of which W&B has no row."""
        for log in Path(self.run.settings.log_internal).parent.glob("*.log"):
            with suppress(OSError):  # W&B lets everybody write into some
                log.chmod(log.stat().st_mode & ~0o022)
        self.run.define_metric("train_seconds")
        for names in ("*", *(f"{prefix}/*" for prefix in PREFIXES)):
            self.run.define_metric(names, step_metric="train_seconds")
        for name, kinds in SUMMARIES.items():
            self.run.define_metric(name, step_metric="train_seconds", summary=",".join(kinds))

    def send(self, rows: Iterable[Row]) -> None:
        """Send rows, in order of their positions."""
        for row in rows:
            values = dict(row.values)
            if row.examples:
                values[EXAMPLES] = self._table(row)
            self.run.log(values, step=row.position, commit=True)
            self.first = row.position + 1

    def _table(self, row: Row) -> Any:
        """Return a row's rollouts as a table whose file lies in the run's W&B folder.

        If W&B bound the table itself, it would also make an artifact of it, with files in the home.
        """
        import wandb

        table: Any = wandb.Table(columns=list(COLUMNS), data=[list(each) for each in row.examples])
        table.bind_to_run(self.run, EXAMPLES, row.position)
        return table

    def count_rows(self) -> int | None:
        """Ask the server how many rows it has of an online run; None if it does not answer."""
        import wandb

        path = "/".join((self.run.entity, self.run.project, self.run.id))
        try:
            timeout = int(float(os.environ["WANDB_INIT_TIMEOUT"]))
            return int(wandb.Api(timeout=timeout).run(path).historyLineCount)
        except Exception:  # W&B raises many kinds
            return None

    def close(self, summary: Mapping[str, Any], exit_code: int) -> None:
        """Write the summary and the end; the run's W&B folder is complete on return.

        Raises:
            TimeoutError: the network is too slow, or has died.
        """
        import wandb

        self.run.summary.update(summary)
        self.run.finish(exit_code=exit_code)
        wandb.teardown()  # `finish` does not wait for the file's last block


def check_key() -> None:
    """Check that there are credentials for W&B, without a prompt and without the network.

    Raises:
        ValueError: there are none, they cannot be a key, or WANDB_MODE turns W&B off.
    """
    _prepare()
    mode = os.environ.get("WANDB_MODE", "online")
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
    logging.raiseExceptions = False  # else it prints a trace for each line that its log lost
    for name, value in {"WANDB_SILENT": "true", **TIMEOUTS}.items():
        os.environ.setdefault(name, value)
