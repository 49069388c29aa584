"""Check whether a planned run fits this machine, and find changes of its config that make it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from pods.config.schema import Config
from pods.memory.plan import Lengths, make_plan
from pods.memory.shape import GIB, NotPlanned, Shape, read_shape
from pods.system.machine import visible_gpus

FEWEST_TOKENS = 256  # the smallest micro-batch that is suggested


class Fit(NamedTuple):
    """What a run needs of a machine's memory."""

    text: str
    """The plan, with what to change if it needs more than is free now."""
    fits: bool
    """It would fit if all memory were free, or nothing is known about the memory."""
    roomy: bool
    """It needs at most half of what is free now, so that nobody has to read the plan."""


def assess_fit(config: Config, lengths: Lengths | None = None, jobs: int = 1) -> Fit:
    """Plan a run and compare it with this machine's memory, free now and in all.

    Args:
        config: the run's config.
        lengths: the lengths of its prompts; None: the longest that the config allows.
        jobs: the number of jobs that share the machine's memory. On a CPU each job's processes
            share it, too; each GPU has its own memory.
    """
    try:
        shape = read_shape(config.model)
    except NotPlanned as error:
        return Fit(f"not planned: {error}", True, False)
    memory = free_memory(config.hardware.device)
    if memory is None:
        text = f"{make_plan(config, shape, lengths)}; the free memory is unknown"
        return Fit(text, True, False)
    processes = config.hardware.processes
    sharing = jobs * (processes if config.hardware.device == "cpu" else 1)
    free, total = (size // sharing for size in memory)
    plan = make_plan(config, shape, lengths, total)
    shares = [f"{jobs} jobs"] * (jobs > 1) + [f"{processes} processes"] * (processes > 1)
    each = f" for each of {' x '.join(shares)}" if shares else ""
    text = f"{plan}; {free / GIB:.2f} of {total / GIB:.2f} GiB are free{each}"
    if plan.peak <= free:
        return Fit(text, True, roomy=plan.peak <= free / 2)
    changes = advice(config, shape, lengths, free, total)
    text = f"{text}; to fit, start a new run with {changes}"
    return Fit(text, plan.peak <= total, False)


def refuse_unless_it_fits(config: Config, lengths: Lengths) -> Fit:
    """Return how a run fits. A run that only lacks free memory at the moment is not refused.

    Raises:
        ValueError: the machine is too small; the message has the sizes and what to change.
    """
    fit = assess_fit(config, lengths)
    if not fit.fits:
        raise ValueError(f"not enough memory: {fit.text}")
    return fit


def describe_largest(configs: Sequence[Config], at_once: int | None) -> Fit:
    """Describe the memory that the largest of some jobs needs, and the memory that it has.

    Args:
        configs: the jobs' configs.
        at_once: the number of jobs at a time, which share a CPU's memory; None: they do not run on
            this machine, so only what they need is described.
    """
    largest = max(configs, key=_peak)
    if at_once is not None:
        return assess_fit(largest, jobs=at_once if largest.hardware.device == "cpu" else 1)
    try:
        text = str(make_plan(largest, read_shape(largest.model)))
    except NotPlanned as error:
        text = f"not planned: {error}"
    return Fit(text, True, False)


def _peak(config: Config) -> int:
    try:
        return make_plan(config, read_shape(config.model)).peak
    except NotPlanned:
        return 0


def advice(config: Config, shape: Shape, lengths: Lengths | None, free: int, total: int) -> str:
    """Find the fewest and mildest changes of keys that make the plan of `make_plan` fit.

    Each process may use `free` bytes, and `total` bytes if all memory were free.
    """
    ladders = _ladders(config)
    ways = product(*(enumerate(values) for values in ladders.values()))
    for way in sorted(ways, key=lambda way: (sum(k > 0 for k, _ in way), sum(k for k, _ in way))):
        changes = {key: value for key, (k, value) in zip(ladders, way, strict=True) if k}
        if make_plan(_changed(config, changes), shape, lengths, total).peak <= free:
            return " ".join(f"{key}={value}".lower() for key, value in changes.items())
    return "a smaller model or a machine with more memory: no setting of these keys is enough"


def _ladders(config: Config) -> dict[str, list[object]]:
    """List for each key that decides memory its value, followed by ever more economical ones."""
    update, engine, model = config.update, config.engine, config.model
    ladders: dict[str, list[object]] = {
        "update.micro_batch_tokens": _halved(update.micro_batch_tokens, FEWEST_TOKENS),
        "update.activation_checkpointing": [update.activation_checkpointing, True],
    }
    if engine.name == "transformers":
        ladders["engine.max_rows"] = _halved(engine.max_rows, 1)
    elif engine.kv_gb is not None:
        ladders["engine.kv_gb"] = [engine.kv_gb / 2**i for i in range(4)]
    else:
        share = engine.gpu_memory_utilization
        lower = [tenth / 10 for tenth in range(9, 1, -1) if tenth / 10 < share]
        ladders["engine.gpu_memory_utilization"] = [share, *lower]
    if model.tuning == "lora":
        ladders["model.dtype"] = [model.dtype, "bfloat16"]
    elif config.hardware.processes > 1:
        # the last key is tried first among equals, and this one changes no result
        ladders["hardware.shard"] = [config.hardware.shard, True]
    if config.hardware.keep_gathered:
        ladders["hardware.keep_gathered"] = [True, False]
    return ladders


def _halved(value: int, least: int) -> list[object]:
    return [value, *(value >> k for k in range(1, value.bit_length()) if value >> k >= least)]


def _changed(config: Config, changes: dict[str, object]) -> Config:
    for key, value in changes.items():
        group, name = key.split(".")
        config = replace(config, **{group: replace(getattr(config, group), **{name: value})})
    return config


CGROUPS = Path("/sys/fs/cgroup")
NO_LIMIT = 2**60  # control groups of version 1 write a number for "none"


def free_memory(device: str) -> tuple[int, int] | None:
    """Return the bytes that this process may use now, and the bytes in all; None if unknown.

    The first number includes what the process holds already, and excludes what others hold.

    Args:
        device: cpu, or cuda for the first visible card.
    """
    return _host() if device == "cpu" else _card()


def _card() -> tuple[int, int] | None:
    cards = [facts for _, facts in visible_gpus("memory.free,memory.total")]
    if not cards or not cards[0]:
        return None
    free, total = (int(mebibytes) * 2**20 for mebibytes in cards[0].split(", "))
    return free, total


def _host() -> tuple[int, int] | None:
    """Return the memory of the machine, or of a container around this process."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return None
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    free, total = min([(sizes["MemAvailable"], sizes["MemTotal"]), *_cgroups()])
    return free + own, total


def _cgroups() -> Iterator[tuple[int, int]]:
    """Yield what is left and the limit of each control group, of either version, around us."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            root, names = CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        elif controllers == "":
            root, names = CGROUPS, ("memory.max", "memory.current")
        else:
            continue
        own = root / path.strip("/")  # a container may see only the root
        for folder in (own, *own.parents):
            if folder.is_relative_to(root):
                with suppress(OSError, ValueError):  # no such file, or "max"
                    limit, used = (int((folder / name).read_text()) for name in names)
                    if limit < NO_LIMIT:
                        yield limit - used + _reclaimable(folder), limit


def _reclaimable(folder: Path) -> int:
    """Return the bytes of cached files, which the kernel drops when the memory is needed."""
    lines = (folder / "memory.stat").read_text().splitlines()
    counters = dict(line.split() for line in lines)
    return int(counters.get("total_inactive_file", counters.get("inactive_file", 0)))
