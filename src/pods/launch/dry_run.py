"""List what a command would do: its jobs, their states and costs, and what is missing.

Nothing is frozen, started or written. Times and sizes are lower bounds: training alone, without
start, evaluation or logs.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pods.analysis.loading.series_names import varied
from pods.config.inputs import missing_inputs
from pods.config.parse import ConfigError
from pods.config.plan import PlanConfig
from pods.config.schema import Config
from pods.launch.backend import has_work_left
from pods.launch.decisions import unknown_arms
from pods.launch.devices import check_gpus, device_pool, max_concurrent
from pods.launch.evaluation_forecast import (
    count_evaluations,
    count_questions,
    describe_evaluations,
)
from pods.launch.memory_forecast import describe
from pods.launch.model_sizes import describe_model, read_sizes, trained_numbers
from pods.runs import files
from pods.runs.freeze import check_budgets, trains_on
from pods.runs.identity import fingerprint, identity, identity_keys, run_folder
from pods.runs.status import state_of
from pods.runs.store import RESUMABLE, RunStore
from pods.runs.writable import check_writable, existing_parent
from pods.system.errors import as_text
from pods.system.machine import gpus
from pods.system.text import duration, gigabytes, table

ON_TOP = "not in the time above: the one at step 0 shows how long each takes"


@dataclass(frozen=True)
class PlannedJob:
    """What a job would do now."""

    config: Config
    name: str  # hash of the run's identity; "-" if data or weights are missing
    state: str
    starts: bool
    seconds: float  # of training that are left at least; 0 if that is not known
    bytes: float | None  # of checkpoints that are left at least; None if sizes are not known


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
    yield from _forecasts(distinct, at_once if local else None)
    yield from missing(distinct, gpus() if local else None)
    yield from _unwritable(jobs)
    yield from _refused(distinct)
    if configs[0].plan.contrasts:
        yield _plan_line(configs[0].plan)
        yield from unknown_arms(configs)
    yield "dry run: no job was started"


def _plan_line(plan: PlanConfig) -> str:
    """Say what the study asks, and whether that may end it early."""
    text = f"plan: {len(plan.contrasts)} contrasts of {plan.outcome}"
    return f"{text}; fewer jobs if they are decided early" if plan.stop == "decided" else text


def _forecasts(configs: Sequence[Config], at_once: int | None) -> Iterator[str]:
    """Yield what is known of the models, the evaluations and the memory before anything runs."""
    models = [f"model: {describe_model(config.model)}" for config in configs]
    yield from dict.fromkeys(models)
    questions = count_questions(configs)
    for text in describe_evaluations(configs, questions):
        yield f"evaluations: {text}; {ON_TOP}"
    yield f"memory: {describe(configs, questions, at_once)}"


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
        lambda: check_budgets(ready),
    ]
    for check in checks:
        try:
            check()
        except ValueError as error:
            yield f"refused: {error}"


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
    seconds = 0.0  # of a budget of steps nothing is known
    if budget.max_steps is None:
        seconds = budget.train_seconds or 0.0
    size = _checkpoint_bytes(config)
    try:
        content = identity(config)
    except OSError:  # data or weights are missing
        return PlannedJob(config, name="-", state="-", starts=True, seconds=seconds, bytes=size)

    name = fingerprint(content)
    store = RunStore(run_folder(config, content))
    if not os.path.exists(store.config_path):
        return PlannedJob(config, name, state="pending", starts=True, seconds=seconds, bytes=size)

    state = state_of(store)
    if state == "done" and trains_on(store, config):
        state = f"trains on from {store.config().budget.text()} to {budget.text()}"
    again = config.retry == "all" and state == "done"
    has_work = has_work_left(store, config) and state != "running"
    if state != "pending" and not again:
        seconds = max(0.0, seconds - store.status().get("train_seconds", 0.0))
    if size is not None:
        size = max(0.0, size - files.size(store.checkpoints))
    return PlannedJob(
        config,
        name=name,
        state=state,
        starts=again or has_work,
        seconds=seconds,
        bytes=size,
    )


def _checkpoint_bytes(config: Config) -> float | None:
    """Return the bytes that the checkpoints of a run need at least; None: its model is unknown."""
    sizes = read_sizes(config.model)
    if sizes is None:
        return None

    checkpoints = count_evaluations(config) or 2  # at step 0 and at the end at least
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
        disk = "unknown" if job.bytes is None else f"≥ {gigabytes(job.bytes)}"
        row += [f"≥ {duration(job.seconds)}", disk]
    else:
        row += ["-", "-"]
    return row


def _totals(jobs: Sequence[PlannedJob], repeated: int, at_once: int) -> str:
    """Sum up what is left to do."""
    left = [job for job in jobs if job.starts]
    seconds = [job.seconds for job in left]
    in_turn = sum(seconds) / at_once
    totals = [f"at least {duration(max(in_turn, max(seconds, default=0.0)))} of training"]

    on_gpus = [job for job in left if job.config.hardware.device == "cuda"]
    gpu_seconds = sum(job.seconds * job.config.hardware.processes for job in on_gpus)
    if gpu_seconds:
        totals.append(f"{gpu_seconds / 3600:.1f} GPU-hours")
    needed = _needed(left)
    disk = "disk unknown" if needed is None else f"{gigabytes(needed)} of disk"
    totals.append(f"{disk} ({gigabytes(_free(jobs[0].config))} free)")

    counted = f"{len(left)} of {len(jobs)} jobs to run"
    if repeated:
        counted += f", {repeated} repeated"
    return f"{counted}, {at_once} at a time: {', '.join(totals)}"


def _needed(jobs: Sequence[PlannedJob]) -> float | None:
    """Return the bytes that these jobs write at least; None if that of a job is not known."""
    needed = 0.0
    for job in jobs:
        if job.bytes is None:
            return None
        needed += job.bytes
    return needed


def _free(config: Config) -> int:
    return shutil.disk_usage(existing_parent(Path(config.runs_dir))).free


def _unwritable(jobs: Sequence[PlannedJob]) -> Iterator[str]:
    """Yield why the jobs that start cannot be written, or have no room on their disk."""
    left = [job for job in jobs if job.starts]
    if not left:
        return
    config = left[0].config
    lines = list(unwritable(config))
    yield from lines

    needed = _needed(left)
    free = _free(config)
    if not lines and needed is not None and needed > free:
        room = f"must be on a disk with {gigabytes(needed)}, and {gigabytes(free)} are free"
        yield f"missing: runs_dir={config.runs_dir}: {room}"


def unwritable(config: Config) -> Iterator[str]:
    """Yield a line if the folder of a run's study cannot be written."""
    try:
        check_writable(config.runs_dir, config.study)
    except OSError as error:
        yield f"missing: {as_text(error)}"
