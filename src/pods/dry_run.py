"""What a command would do: its jobs, where they stand, what they will cost and what is missing.

No job is frozen or started; Hydra itself notes a sweep's overrides in multirun.yaml. Times and
sizes are those of finished runs that differ only in the seed, or else lower bounds, and say so.
"""

import json
import math
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pods import job
from pods.checks import missing_inputs
from pods.config import Config
from pods.launch.local import at_a_time, lacks, slots
from pods.memory.fit import outlook, wants
from pods.memory.shape import trained_parameters
from pods.runs.attempts import wall_seconds
from pods.runs.environment import gpus
from pods.runs.files import size
from pods.runs.home import weights
from pods.runs.identity import fingerprint, identity, run_folder
from pods.runs.status import duration, state_of, table
from pods.runs.store import RESUMABLE, RunStore, run_folders

MB = 1e6
Costs = dict[str, list[tuple[float, float]]]
"""Wall seconds and bytes of finished runs."""


@dataclass(frozen=True)
class Planned:
    """One job of the command."""

    config: Config
    id: str
    state: str
    starts: bool
    seconds: float
    bytes: float
    measured: bool
    """From finished runs; otherwise a lower bound."""


def show(configs: Sequence[Config]) -> Iterator[str]:
    """Yield the lines to print.

    Raises:
        ConfigError: the jobs cannot share this machine's slots.
    """
    here = configs[0].launch.on == "local"
    at_once = at_a_time(slots(configs), configs) if here else configs[0].launch.jobs or len(configs)
    finished = _finished(configs)
    jobs = [_plan(config, finished) for config in sorted(configs, key=lambda c: c.seed)]
    yield table(
        ("arm", "n→m", "seed", "id", "state", "time", "disk"),
        [
            (
                planned.config.arm or planned.config.sampler.rule,
                f"{planned.config.nm.n}→{planned.config.nm.m}",
                str(planned.config.seed),
                planned.id,
                planned.state,
                _bound(planned) + duration(planned.seconds) if planned.starts else "-",
                _bound(planned) + f"{planned.bytes / MB:.1f} MB" if planned.starts else "-",
            )
            for planned in jobs
        ],
    )
    starting = [planned for planned in jobs if planned.starts]
    each = [planned.seconds for planned in starting]
    seconds = max([sum(each) / at_once, *each])
    needed = sum(planned.bytes for planned in starting)
    bound = "" if all(planned.measured for planned in starting) else "at least "
    place = Path(configs[0].runs_dir).absolute()
    free = shutil.disk_usage(next(p for p in (place, *place.parents) if p.exists())).free
    yield (
        f"{len(starting)} of {len(jobs)} jobs to run, {at_once} at a time: {bound}"
        f"{duration(seconds)}, {bound}{needed / MB:.1f} MB of {free / MB:,.0f} MB free"
    )
    yield f"memory: {outlook(configs, min(at_once, len(jobs))) if here else wants(configs)}"
    machine = gpus() if here else None
    for line in dict.fromkeys(line for config in configs for line in _missing(config, machine)):
        yield f"missing: {line}"
    yield "dry run: no job was started"


def _plan(config: Config, finished: Costs) -> Planned:
    try:
        content = identity(config)
    except OSError:  # data or weights are not there
        seconds, needed = _least(config)
        return Planned(config, "-", "-", True, seconds, needed, measured=False)
    folder = run_folder(config, content)
    store = RunStore(folder)
    state = state_of(store) if store.config_path.exists() else "pending"
    starts = job.to_do(store, config.retry) and state != "running"
    done = finished.get(_series(content), [])
    seconds, needed = _least(config)
    if done:
        seconds, needed = median(s for s, _ in done), median(b for _, b in done)
    behind = store.status().get("train_seconds", 0.0) if store.config_path.exists() else 0.0
    left = max(0.0, seconds - behind)
    return Planned(config, fingerprint(content), state, starts, left, needed, bool(done))


def _finished(configs: Sequence[Config]) -> Costs:
    """What the finished runs of the studies took, by all of their identity but the seed."""
    found: Costs = defaultdict(list)
    for study in {Path(config.runs_dir) / config.study for config in configs}:
        for folder in run_folders(study):
            store = RunStore(folder)
            if state_of(store) == "done":
                cost = (wall_seconds(store), float(size(folder)))
                found[_series(store.identity())].append(cost)
    return found


def _series(content: dict[str, object]) -> str:
    return json.dumps({**content, "seed": None}, sort_keys=True)


def _least(config: Config) -> tuple[float, float]:
    """Seconds and bytes that a run cannot do without."""
    budget, every = config.budget, config.checkpoint
    points = 2
    if budget.max_steps is not None and every.every_steps is not None and not budget.train_seconds:
        points = 1 + math.ceil(budget.max_steps / every.every_steps)
    elif budget.train_seconds and every.every_train_seconds and budget.max_steps is None:
        points = 1 + math.ceil(budget.train_seconds / every.every_train_seconds)
    trained = 4 * trained_parameters(config.model)
    seconds = 0.0 if budget.max_steps is not None else budget.train_seconds or 0.0
    return seconds, float(trained * (points + 2 * RESUMABLE))


def _missing(config: Config, here: Sequence[str] | None) -> Iterator[str]:
    """What the config needs and is not here; of this machine's GPUs, None: they do not matter."""
    for error in missing_inputs(config):
        yield str(error)
    if config.hardware.device == "cuda" and here is not None:
        if not here:
            yield f"hardware={config.hardware.name}: no GPU on this machine"
        elif (lacking := lacks(config, here)) is not None:
            yield str(lacking)
    place = weights(config.model)
    if config.model.path is None and not Path(place).is_dir():
        yield f"model={config.model.name}: weights are asked of the hub ({place})"
    if config.task.name != "chainsum" and not all(config.task.files().values()):
        yield f"task={config.task.name}: data is asked of the hub"


def _bound(planned: Planned) -> str:
    return "" if planned.measured else "≥ "
