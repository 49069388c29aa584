"""List what a command would do: its jobs, their states and costs, and what is missing.

Nothing is frozen, started or written. Times and sizes are lower bounds: training alone, without
start, evaluation or logs.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pods.analysis.loading.series_names import varied
from pods.config.inputs import missing_inputs
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.launch.backend import has_work_left
from pods.launch.devices import check_gpus, device_pool, max_concurrent
from pods.launch.memory_forecast import describe, read_sizes, trained_numbers
from pods.runs.identity import fingerprint, identity, identity_keys, run_folder
from pods.runs.status import state_of
from pods.runs.store import RESUMABLE, RunStore
from pods.system.machine import gpus
from pods.system.text import duration, table

MB = 1e6


@dataclass(frozen=True)
class PlannedJob:
    """What a job would do now."""

    config: Config
    name: str  # hash of the run's identity; "-" if data or weights are missing
    state: str
    starts: bool
    seconds: float  # of training that are left at least; 0 if that is not known
    bytes: float  # of checkpoints at least; 0 if the model's sizes are not known


def show(configs: Sequence[Config]) -> Iterator[str]:
    """Yield the lines to print."""
    distinct = _distinct(configs)
    jobs = [_plan(config) for config in distinct]
    local = configs[0].launch.on == "local"
    if local:
        at_once = max_concurrent(device_pool(distinct), distinct)
    else:
        at_once = configs[0].launch.jobs or len(jobs)

    yield _job_table(jobs)
    yield _totals(jobs, len(configs) - len(jobs), at_once)
    yield f"memory: {describe(distinct, at_once if local else None)}"
    yield from missing(distinct, gpus() if local else None)
    yield from _refused(distinct)
    yield "dry run: no job was started"


def missing(configs: Sequence[Config], names: Sequence[str] | None) -> Iterator[str]:
    """Yield a line for each thing that runs need and this machine lacks; GPUs if it has `names`."""
    lines = [str(error) for config in configs for error in missing_inputs(config)]
    if names is not None:
        try:
            check_gpus(configs, names)
        except ConfigError as error:
            lines.append(str(error))
    for line in dict.fromkeys(lines):
        yield f"missing: {line}"


def _refused(configs: Sequence[Config]) -> Iterator[str]:
    """Yield what the start of runs would refuse in their data and the user's functions."""
    from pods.method.keep import try_functions  # not above: `pods doctor` must start fast
    from pods.tasks.load import check_data

    ready = [config for config in configs if not any(missing_inputs(config))]
    checks: list[Callable[[], None]] = [
        lambda: check_data(config.task for config in ready),
        lambda: try_functions(ready),
    ]
    for check in checks:
        try:
            check()
        except ValueError as error:
            yield f"refused: {error}"


def existing_parent(folder: str) -> Path:
    """Return a folder, or the nearest one above it that exists already."""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return path


def _distinct(configs: Sequence[Config]) -> list[Config]:
    """Return one config for each run, seed by seed; two arms may ask for the same run."""
    by_run: dict[str, Config] = {}
    for config in sorted(configs, key=lambda config: config.seed):
        try:
            run = str(run_folder(config, identity(config)))
        except OSError:  # data or weights are missing
            run = repr(asdict(replace(config, arm=None, label_settings=[])))
        by_run.setdefault(run, config)
    return list(by_run.values())


def _plan(config: Config) -> PlannedJob:
    """Look up what the job of a config would do."""
    budget = config.budget
    seconds = 0.0  # of a budget of steps or of a modelled clock nothing is known
    if budget.max_steps is None and budget.clock_model is None:
        seconds = budget.train_seconds or 0.0
    size = _checkpoint_bytes(config)
    try:
        content = identity(config)
    except OSError:  # data or weights are missing
        return PlannedJob(config, name="-", state="-", starts=True, seconds=seconds, bytes=size)

    store = RunStore(run_folder(config, content))
    state = state_of(store) if store.config_path.exists() else "pending"
    again = config.retry == "all" and state == "done"
    has_work = has_work_left(store, config.retry) and state != "running"
    if state != "pending" and not again:
        seconds = max(0.0, seconds - store.status().get("train_seconds", 0.0))
    return PlannedJob(
        config,
        name=fingerprint(content),
        state=state,
        starts=again or has_work,
        seconds=seconds,
        bytes=size,
    )


def _checkpoint_bytes(config: Config) -> float:
    """Return the bytes that the checkpoints of a run need at least; 0 if its model is unknown."""
    sizes = read_sizes(config.model)
    if sizes is None:
        return 0.0

    budget = config.budget
    every = config.checkpoint
    saved = 1.0  # after step 0: one at the end
    if budget.max_steps is not None and budget.train_seconds is None and every.every_steps:
        saved = budget.max_steps / every.every_steps
    elif budget.max_steps is None and budget.train_seconds and every.every_train_seconds:
        saved = budget.train_seconds / every.every_train_seconds
    checkpoints = 1 + math.ceil(saved)
    moments = 2 * RESUMABLE  # the newest ones have two numbers of Adam per weight
    return 4.0 * trained_numbers(config.model, sizes) * (checkpoints + moments)


def _job_table(jobs: Sequence[PlannedJob]) -> str:
    values = varied([(job.config, identity_keys(job.config)) for job in jobs])
    header = ["arm", "n→m"]
    header += values[0]
    header += ["seed", "id", "state", "time", "disk"]
    rows = [_row(job, keys) for job, keys in zip(jobs, values, strict=True)]
    return table(header, rows)


def _row(job: PlannedJob, keys: Mapping[str, Any]) -> list[str]:
    row = [job.config.arm_name(), job.config.nm.label()]
    row += [str(value) for value in keys.values()]
    row += [str(job.config.seed), job.name, job.state]
    if job.starts:
        disk = f"≥ {job.bytes / MB:.1f} MB" if job.bytes else "unknown"
        row += [f"≥ {duration(job.seconds)}", disk]
    else:
        row += ["-", "-"]
    return row


def _totals(jobs: Sequence[PlannedJob], repeated: int, at_once: int) -> str:
    """Sum up what is left to do, and compare it with the free disk."""
    left = [job for job in jobs if job.starts]
    seconds = [job.seconds for job in left]
    in_turn = sum(seconds) / at_once
    totals = [f"at least {duration(max(in_turn, max(seconds, default=0.0)))}"]

    on_gpus = [job for job in left if job.config.hardware.device == "cuda"]
    gpu_seconds = sum(job.seconds * job.config.hardware.processes for job in on_gpus)
    if gpu_seconds:
        totals.append(f"{gpu_seconds / 3600:.1f} GPU-hours")
    totals.append(_disk(left, jobs[0].config.runs_dir))

    counted = f"{len(left)} of {len(jobs)} jobs to run"
    if repeated:
        counted += f", {repeated} repeated"
    return f"{counted}, {at_once} at a time: {', '.join(totals)}"


def _disk(jobs: Sequence[PlannedJob], runs_dir: str) -> str:
    """Compare what these jobs write at least with what is free."""
    size = sum(job.bytes for job in jobs)
    free = shutil.disk_usage(existing_parent(runs_dir)).free
    needed = "disk unknown," if jobs and not size else f"{size / MB:.1f} MB of"
    return f"{needed} {free / MB:,.0f} MB free"
