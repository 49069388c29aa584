"""List what a command would do: its jobs, their states and costs, and what is missing.

Nothing is frozen, started or written. Times and sizes are lower bounds: training alone, without
start, evaluation or logs.
"""

import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pods.analysis.loading.series_names import varied
from pods.config.inputs import missing_inputs
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.launch.backend import has_work_left
from pods.launch.devices import check_gpus, device_pool, max_concurrent
from pods.memory.fit import describe_largest, read_sizes
from pods.runs.identity import fingerprint, identity, identity_keys, run_folder
from pods.runs.status import state_of
from pods.runs.store import RESUMABLE, RunStore
from pods.system.machine import gpus
from pods.system.text import duration, table

MB = 1e6


def show(configs: Sequence[Config]) -> Iterator[str]:
    """Yield the lines to print."""
    local = configs[0].launch.on == "local"
    at_once = configs[0].launch.jobs or len(configs)
    if local:
        at_once = max_concurrent(device_pool(configs), configs)
    rows, left, gpu_seconds, size = list[tuple[str, ...]](), list[float](), 0.0, 0.0
    values = varied([(config, identity_keys(config)) for config in configs])
    for config, of in sorted(zip(configs, values, strict=True), key=lambda pair: pair[0].seed):
        name, state, seconds = _look_up(config)
        costs = ("-", "-")
        if seconds is not None:
            left.append(seconds)
            size += (needed := _checkpoint_bytes(config))
            gpu_seconds += seconds * config.hardware.in_all() * (config.hardware.device == "cuda")
            costs = (f"≥ {duration(seconds)}", f"≥ {needed / MB:.1f} MB" if needed else "unknown")
        labels = (config.arm_name(), config.nm.label(), *map(str, of.values()))
        rows.append((*labels, str(config.seed), name, state, *costs))
    yield table(("arm", "n→m", *values[0], "seed", "id", "state", "time", "disk"), rows)
    totals = [f"at least {duration(max([sum(left) / at_once, *left]))}"]
    totals += [f"{gpu_seconds / 3600:.1f} GPU-hours"] if gpu_seconds else []
    free = shutil.disk_usage(existing_parent(configs[0].runs_dir)).free
    disk = f"{size / MB:.1f} MB of" if size or not left else "disk unknown,"
    totals.append(f"{disk} {free / MB:,.0f} MB free")
    yield f"{len(left)} of {len(rows)} jobs to run, {at_once} at a time: {', '.join(totals)}"
    yield f"memory: {describe_largest(configs, min(at_once, len(rows)) if local else None).text}"
    yield from missing(configs, gpus() if local else None)
    yield "dry run: no job was started"


def missing(configs: Sequence[Config], names: Sequence[str] | None) -> Iterator[str]:
    """Yield a line for each thing that runs need and this machine lacks; GPUs if it has `names`."""
    lines = [str(error) for config in configs for error in missing_inputs(config)]
    try:
        if names is not None:
            check_gpus(configs, names)
    except ConfigError as error:
        lines.append(str(error))
    yield from (f"missing: {line}" for line in dict.fromkeys(lines))


def existing_parent(folder: str) -> Path:
    """Return a folder, or the nearest one above it that exists already."""
    path = Path(folder).absolute()
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _look_up(config: Config) -> tuple[str, str, float | None]:
    """Return a run's id, state, and the training seconds that are left; None: it would not start.

    They are 0 if unknown: under a budget of steps, and a modelled clock.
    """
    known = config.budget.max_steps is None and config.budget.clock_model is None
    seconds = (config.budget.train_seconds or 0.0) if known else 0.0
    try:
        content = identity(config)
    except OSError:  # data or weights are missing
        return "-", "-", seconds
    store = RunStore(run_folder(config, content))
    state = state_of(store) if store.config_path.exists() else "pending"
    again = config.retry == "all" and state == "done"
    starts = again or (has_work_left(store, config.retry) and state != "running")
    if state != "pending" and not again:
        seconds = max(0.0, seconds - store.status().get("train_seconds", 0.0))
    return fingerprint(content), state, seconds if starts else None


def _checkpoint_bytes(config: Config) -> float:
    """Return the bytes that the checkpoints of a run need at least; 0 if its model is unknown."""
    budget, every = config.budget, config.checkpoint
    checkpoints = 2
    if budget.max_steps is not None and every.every_steps is not None and not budget.train_seconds:
        checkpoints = 1 + math.ceil(budget.max_steps / every.every_steps)
    elif budget.train_seconds and every.every_train_seconds and budget.max_steps is None:
        checkpoints = 1 + math.ceil(budget.train_seconds / every.every_train_seconds)
    sizes = read_sizes(config.model)
    return 0.0 if sizes is None else 4.0 * sizes.trained * (checkpoints + 2 * RESUMABLE)
