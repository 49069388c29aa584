"""List what a command would do: its jobs, their states and costs, and what is missing.

Nothing is frozen, started or written. Times and sizes are those of finished runs that differ only
in the seed, or lower bounds marked `≥`.
"""

import json
import math
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pods.config.checks import GENERATED, missing_inputs
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.launch.devices import check_gpus, device_pool, max_concurrent
from pods.launch.job import has_work_left
from pods.launch.noisy import noisy_runs
from pods.memory.fit import describe_largest
from pods.memory.shape import trained_parameters
from pods.runs.attempts import wall_seconds
from pods.runs.files import size
from pods.runs.identity import fingerprint, identity, run_folder
from pods.runs.paths import weights_source
from pods.runs.status import duration, state_of, table
from pods.runs.store import RESUMABLE, RunStore, run_folders
from pods.system.machine import gpus

MB = 1e6
Costs = dict[str, list[tuple[float, float]]]
"""Wall-clock seconds and bytes of finished runs, by identity without the seed."""


@dataclass(frozen=True)
class PlannedJob:
    """One job of the command."""

    config: Config
    id: str
    state: str
    starts: bool
    """The command would start this job."""
    seconds: float
    bytes: float
    measured: bool
    """Seconds and bytes come from finished runs; otherwise they are lower bounds."""

    def row(self) -> tuple[str, ...]:
        """Return the cells of the job's line in the table."""
        config, bound = self.config, "" if self.measured else "≥ "
        return (
            config.arm_name(),
            config.nm.label(),
            str(config.seed),
            self.id,
            self.state,
            bound + duration(self.seconds) if self.starts else "-",
            bound + f"{self.bytes / MB:.1f} MB" if self.starts else "-",
        )


def show(configs: Sequence[Config]) -> Iterator[str]:
    """Yield the lines to print.

    Raises:
        ConfigError: the jobs cannot share this machine's devices.
    """
    local = configs[0].launch.on == "local"
    if local:
        at_once = max_concurrent(device_pool(configs), configs)
    else:
        at_once = configs[0].launch.jobs or len(configs)
    finished = _finished(configs)
    noisy = noisy_runs(configs[0])
    jobs = [_plan(config, finished, noisy) for config in sorted(configs, key=lambda c: c.seed)]
    header = ("arm", "n→m", "seed", "id", "state", "time", "disk")
    yield table(header, [job.row() for job in jobs])
    starting = [job for job in jobs if job.starts]
    each = [job.seconds for job in starting]
    total = duration(max([sum(each) / at_once, *each]))
    needed = sum(job.bytes for job in starting) / MB
    bound = "" if all(job.measured for job in starting) else "at least "
    runs = Path(configs[0].runs_dir).absolute()
    disk = next(path for path in (runs, *runs.parents) if path.exists())
    free = shutil.disk_usage(disk).free / MB
    yield (
        f"{len(starting)} of {len(jobs)} jobs to run, {at_once} at a time: {bound}"
        f"{total}, {bound}{needed:.1f} MB of {free:,.0f} MB free"
    )
    yield f"memory: {describe_largest(configs, min(at_once, len(jobs)) if local else None).text}"
    names = gpus() if local else None
    for line in dict.fromkeys(line for config in configs for line in _missing(config, names)):
        yield f"missing: {line}"
    yield "dry run: no job was started"


def _plan(config: Config, finished: Costs, noisy: Collection[Path]) -> PlannedJob:
    seconds, needed = _lower_bounds(config)
    try:
        content = identity(config)
    except OSError:  # data or weights are missing
        return PlannedJob(config, "-", "-", True, seconds, needed, measured=False)
    store = RunStore(run_folder(config, content))
    frozen = store.config_path.exists()
    state = state_of(store) if frozen else "pending"
    again = store.folder in noisy
    starts = again or (has_work_left(store, config.retry) and state != "running")
    similar = finished.get(_series(content), [])
    if similar:
        seconds, needed = median(s for s, _ in similar), median(b for _, b in similar)
    trained = store.status().get("train_seconds", 0.0) if frozen and not again else 0.0
    left = max(0.0, seconds - trained)
    return PlannedJob(config, fingerprint(content), state, starts, left, needed, bool(similar))


def _finished(configs: Sequence[Config]) -> Costs:
    """Return the costs of the finished runs in the configs' studies."""
    costs: Costs = defaultdict(list)
    for study in {Path(config.runs_dir) / config.study for config in configs}:
        for folder in run_folders(study):
            store = RunStore(folder)
            if state_of(store) == "done":
                cost = (wall_seconds(store), float(size(folder)))
                costs[_series(store.identity())].append(cost)
    return costs


def _series(content: dict[str, object]) -> str:
    return json.dumps({**content, "seed": None}, sort_keys=True)


def _lower_bounds(config: Config) -> tuple[float, float]:
    """Return the seconds and bytes that a run needs at least."""
    budget, every = config.budget, config.checkpoint
    checkpoints = 2
    if budget.max_steps is not None and every.every_steps is not None and not budget.train_seconds:
        checkpoints = 1 + math.ceil(budget.max_steps / every.every_steps)
    elif budget.train_seconds and every.every_train_seconds and budget.max_steps is None:
        checkpoints = 1 + math.ceil(budget.train_seconds / every.every_train_seconds)
    trained = 4 * trained_parameters(config.model)
    unknown = budget.max_steps is not None or budget.clock == "modelled"
    seconds = 0.0 if unknown else budget.train_seconds or 0.0
    return seconds, float(trained * (checkpoints + 2 * RESUMABLE))


def _missing(config: Config, names: Sequence[str] | None) -> Iterator[str]:
    """Yield a line for each thing that a run needs and this machine lacks.

    Args:
        config: of the run.
        names: this machine's GPUs; None: the run executes elsewhere.
    """
    for error in missing_inputs(config):
        yield str(error)
    if names is not None:
        try:
            check_gpus(config, names)
        except ConfigError as error:
            yield str(error)
    path = weights_source(config.model)
    if config.model.path is None and not Path(path).is_dir():
        yield f"model={config.model.name}: its weights have to be downloaded from the hub ({path})"
    if config.task.name not in (*GENERATED, "own") and not all(config.task.files().values()):
        yield f"task={config.task.name}: its data has to be downloaded from the hub"
