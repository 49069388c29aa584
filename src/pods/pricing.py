"""`pods plan STUDY --hardware NAME`: a preset's study priced where it has not run."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pods.analysis.cost.cluster import Failures
from pods.analysis.cost.floor import CARDS, Card
from pods.analysis.cost.price import Priced, price, queue
from pods.analysis.cost.price_words import (
    about_arms,
    about_disk,
    about_hours,
    about_wall,
)
from pods.analysis.cost.step_time import Measured, measured, must_be_alike, step_time
from pods.analysis.load import load
from pods.config import Config
from pods.memory.fit import advice
from pods.memory.plan import make_plan
from pods.memory.shape import Shape, read_shape
from pods.memory.weights import GIB, host_memory
from pods.presets import Sweep, sweep_of
from pods.runs.store import RunStore

GPUS = (1, 8, 64, 512)


@dataclass(frozen=True)
class Ask:
    """What the user wants to know."""

    preset: str
    hardware: str
    seeds: int | None = None
    """None: the preset's."""
    seconds: float | None = None
    """Training clock of a run; None: the preset's budget."""
    tokens: int | None = None
    """Mean length of a completion, for the floors; None: the longest."""
    gpus: tuple[int, ...] = GPUS
    failures: float = 0.0
    """A GPU-hour."""
    restart: float = 10.0
    """Minutes until GPUs are back after a failure."""


def lines(ask: Ask, source: tuple[str, Path, list[Path]] | None = None) -> Iterator[str]:
    """Price a preset's study.

    Args:
        ask: what is asked.
        source: name, folder and runs of a study here whose steps are taken; None: the PODS
            authors' published ones where they are of the same.

    Raises:
        ValueError: something that was asked for cannot be.
    """
    _check(ask)
    sweep = _sweep(ask)
    one = sweep.configs[0]
    found = None if source is None else _measured(one, *source)
    shape, card = read_shape(one.model), CARDS.get(ask.hardware)
    tokens = ask.tokens or one.sampling.max_completion_tokens
    priced = price(sweep.configs, shape, card, tokens, partial(step_time, found=found))
    overhead = math.nan if found is None else found.overhead
    yield _head(ask, sweep, len(priced), card.name if card else None)
    yield from about_arms(priced)
    yield from about_hours(priced, overhead, card, tokens)
    yield from about_disk(priced)
    yield _memory(priced, shape, card)
    yield from _host(priced, shape)
    what = "training alone" if math.isnan(overhead) else "with start, checkpoints and evaluation"
    yield f"wall time, {what}, seed by seed, each job as soon as GPUs are free for it:"
    failures = Failures(ask.failures, ask.restart / 60)
    yield from about_wall(queue(priced, overhead), ask.gpus, failures, sweep.machine)


def counts(text: str) -> tuple[int, ...]:
    """Read numbers of GPUs.

    Raises:
        ValueError: they are not whole numbers over 0.

    >>> counts("8,64")
    (8, 64)
    """
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise ValueError(f"gpus={text}: must be whole numbers such as 8,64,512")
    return tuple(map(int, words))


def _check(ask: Ask) -> None:
    if ask.seconds is not None and not 0 < ask.seconds < math.inf:
        raise ValueError(f"seconds={ask.seconds:g}: must be a number > 0")
    for name, count in (("seeds", ask.seeds), ("tokens", ask.tokens)):
        if count is not None and count < 1:
            raise ValueError(f"{name}={count}: must be at least 1")
    for name, value in (("failures", ask.failures), ("restart", ask.restart)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}={value:g}: must be a number >= 0")


def _sweep(ask: Ask) -> Sweep:
    sweep = sweep_of(ask.preset, ask.hardware, ask.seeds)
    if ask.seconds is None:
        return sweep
    configs = tuple(
        replace(config, budget=replace(config.budget, train_seconds=ask.seconds, max_steps=None))
        for config in sweep.configs
    )
    return replace(sweep, configs=configs)


def _measured(config: Config, name: str, folder: Path, runs: list[Path]) -> Measured:
    """The study's fit.

    Raises:
        ValueError: it has no runs of its own here, or they are of something else.
    """
    if not runs:
        raise ValueError(f"from={name}: {folder} holds imported logs, no runs")
    must_be_alike(config, RunStore(runs[0]).config(), name)
    return measured(load(folder, runs), name)


def _head(ask: Ask, sweep: Sweep, arms: int, card: str | None) -> str:
    count, seeds = len(sweep.configs), len({config.seed for config in sweep.configs})
    where = f"{card}, {sweep.machine} a machine" if card else "GPU: what one job takes there"
    return (f"{ask.preset} on {ask.hardware} ({where}), before it has run: {arms} arms x {seeds} "
            f"seeds = {count} jobs, {sweep.gpus} GPU{'s' if sweep.gpus > 1 else ''} each; at most "
            f"{sweep.machine // sweep.gpus} at a time on one machine")  # fmt: skip


def _memory(priced: list[Priced], shape: Shape, card: Card | None) -> str:
    """The plan of the largest job, and whether its card is large enough."""
    room = card.memory if card else 0
    plans = [(make_plan(arm.config, shape, device_memory=room), arm.config) for arm in priced]
    plan, config = max(plans, key=lambda found: found[0].peak)
    if card is None:
        return f"memory: {plan.words()}"
    fits = f"fits {card.name} ({card.memory / GIB:.0f} GiB)"
    if plan.peak > room:
        fits = f"not in {card.name} ({card.memory / GIB:.0f} GiB); to fit: " + advice(
            config, shape, None, room, room
        )
    return f"memory a GPU: {plan.words()}; {fits}"


def _host(priced: list[Priced], shape: Shape) -> Iterator[str]:
    """What a job whose processes share the weights takes of its machine; nothing where none do."""
    found = {host_memory(arm.config, shape): arm for arm in priced if arm.config.sharded()}
    if found:
        start, saved = max(found)
        count = found[start, saved].gpus
        yield (f"host memory of a machine: at least {start / GIB:.1f} GiB at the start ({count} "
               f"processes x {start / count / GIB:.1f}), {saved / GIB:.1f} GiB when a checkpoint "
               "is saved")  # fmt: skip
