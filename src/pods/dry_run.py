"""What a command would do: its jobs, where they stand, what they will cost and what is missing.

No job is frozen or started; Hydra itself notes a sweep's overrides in multirun.yaml. Times and
sizes are those of finished runs that differ only in the seed, or else lower bounds, and say so.
"""

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from safetensors import safe_open

from pods import job
from pods.checks import missing_inputs
from pods.config import Config
from pods.runs.attempts import wall_seconds
from pods.runs.environment import gpus
from pods.runs.files import size
from pods.runs.home import weights
from pods.runs.identity import fingerprint, identity, run_folder
from pods.runs.status import duration, state_of, table
from pods.runs.store import RESUMABLE, RunStore, run_folders
from pods.sweep import slots

MB = 1e6


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
    at_once = len(slots(configs))
    jobs = [_plan(config) for config in sorted(configs, key=lambda config: config.seed)]
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
    for line in dict.fromkeys(line for config in configs for line in _missing(config)):
        yield f"missing: {line}"
    yield "dry run: no job was started"


def _plan(config: Config) -> Planned:
    try:
        content = identity(config)
    except OSError:  # data or weights are not there
        seconds, needed = _least(config)
        return Planned(config, "-", "-", True, seconds, needed, measured=False)
    folder = run_folder(config, content)
    store = RunStore(folder)
    state = state_of(store) if store.config_path.exists() else "pending"
    starts = job.to_do(store, config.retry) and state != "running"
    done = list(_finished_twins(folder, content))
    seconds, needed = _least(config)
    if done:
        seconds, needed = median(s for s, _ in done), median(b for _, b in done)
    behind = store.status().get("train_seconds", 0.0) if store.config_path.exists() else 0.0
    left = max(0.0, seconds - behind)
    return Planned(config, fingerprint(content), state, starts, left, needed, bool(done))


def _finished_twins(folder: Path, content: dict[str, object]) -> Iterator[tuple[float, float]]:
    """Wall seconds and bytes of finished runs that are this one but for the seed."""
    for other in run_folders(folder.parents[2]):
        store = RunStore(other)
        twins = {**store.identity(), "seed": None} == {**content, "seed": None}
        if twins and state_of(store) == "done":
            yield wall_seconds(store), float(size(other))


def _least(config: Config) -> tuple[float, float]:
    """Seconds and bytes that a run cannot do without."""
    budget, every = config.budget, config.checkpoint
    points = 2
    if budget.max_steps is not None and every.every_steps is not None and not budget.train_seconds:
        points = 1 + math.ceil(budget.max_steps / every.every_steps)
    elif budget.train_seconds and every.every_train_seconds and budget.max_steps is None:
        points = 1 + math.ceil(budget.train_seconds / every.every_train_seconds)
    trained = 4 * _trained_parameters(config)
    seconds = 0.0 if budget.max_steps is not None else budget.train_seconds or 0.0
    return seconds, float(trained * (points + 2 * RESUMABLE))


def _trained_parameters(config: Config) -> int:
    """How many numbers are trained, from the headers of the weights; 0 where they are not here."""
    count, lora = 0, config.model.lora
    for path in Path(weights(config.model)).glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118  (not a dict)
                shape = file.get_slice(name).get_shape()
                if config.model.tuning == "full":
                    count += math.prod(shape)
                elif name.split(".")[-2] in lora.targets:
                    count += lora.r * sum(shape)
    return count


def _missing(config: Config) -> Iterator[str]:
    for error in missing_inputs(config):
        yield str(error)
    if config.hardware.device == "cuda" and not gpus():
        yield f"hardware={config.hardware.name}: no GPU on this machine"
    place = weights(config.model)
    if config.model.path is None and not Path(place).is_dir():
        yield f"model={config.model.name}: weights are asked of the hub ({place})"
    if config.task.name == "gsm8k" and config.task.path is None:
        yield "task=gsm8k: data is asked of the hub"


def _bound(planned: Planned) -> str:
    return "" if planned.measured else "≥ "
