"""Whether a plan fits this machine, and if not, which keys of the config would make it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from pods.config import Config
from pods.memory.machine import free_memory
from pods.memory.plan import Lengths, make_plan
from pods.memory.shape import NotPlanned, Shape, read_shape
from pods.memory.weights import GIB

FEWEST_TOKENS = 256  # of a micro-batch, when looking for what fits
Change = tuple[str, object]
"""A key and the value that it would have; the same value where it stays."""


def judge(config: Config, lengths: Lengths | None = None, jobs: int = 1) -> tuple[str, bool]:
    """Plan a run, and see whether this machine has the memory, free now or at all.

    Args:
        config: of the run.
        lengths: of its prompts; None: as long as the config lets them be.
        jobs: that share the machine's memory; on a CPU the processes of each share it too, while
            on GPUs each has a card.

    Returns:
        The plan in words, with what to change where it is more than is free now; and whether it
        would fit if all were free, which it does where nothing can be said.
    """
    try:
        shape = read_shape(config.model)
    except NotPlanned as lacking:
        return f"not planned: {lacking}", True
    found = free_memory(config.hardware.device)
    if found is None:
        return f"{make_plan(config, shape, lengths).words()}; what is free is not known here", True
    processes = config.hardware.processes
    here = processes if config.hardware.device == "cpu" else 1
    free, total = (size // (jobs * here) for size in found)
    plan = make_plan(config, shape, lengths, total)
    who = [f"{jobs} jobs"] * (jobs > 1) + [f"{processes} processes"] * (processes > 1)
    share = f" for each of {' x '.join(who)}" if who else ""
    words = f"{plan.words()}; {free / GIB:.2f} of {total / GIB:.2f} are free{share}"
    if plan.peak <= free:
        return words, True
    changes = advice(config, shape, lengths, free, total)
    return f"{words}; to fit, as another run: {changes}", plan.peak <= total


def refuse_unless_it_fits(config: Config, lengths: Lengths) -> str:
    """Return the plan in words.

    Raises:
        ValueError: the machine is too small; the line has the sizes and what to change. What only
            finds too little free at the moment is left to try.
    """
    words, fits = judge(config, lengths)
    if not fits:
        raise ValueError(f"not enough memory: {words}")
    return words


def outlook(configs: Sequence[Config], at_once: int) -> str:
    """What the largest of some jobs needs and has, in words; they share a CPU's memory."""
    largest = max(configs, key=_peak)
    return judge(largest, jobs=at_once if largest.hardware.device == "cpu" else 1)[0]


def wants(configs: Sequence[Config]) -> str:
    """What the largest of some jobs needs, in words, where they do not run on this machine."""
    largest = max(configs, key=_peak)
    try:
        return make_plan(largest, read_shape(largest.model)).words()
    except NotPlanned as lacking:
        return f"not planned: {lacking}"


def _peak(config: Config) -> int:
    try:
        return make_plan(config, read_shape(config.model)).peak
    except NotPlanned:
        return 0


def advice(config: Config, shape: Shape, lengths: Lengths | None, free: int, total: int) -> str:
    """The fewest and mildest changes that make the plan fit.

    Args:
        config: of the run.
        shape: of its model.
        lengths: of its prompts; None: as long as the config lets them be.
        free: bytes that each process may use.
        total: bytes that there are for it in all.
    """
    ladders = list(_ladders(config))
    ways = sorted(
        product(*(range(len(ladder)) for ladder in ladders)),
        key=lambda way: (sum(step > 0 for step in way), sum(way)),
    )
    for way in ways:
        changes = [ladder[step] for ladder, step in zip(ladders, way, strict=True)]
        if make_plan(_changed(config, changes), shape, lengths, total).peak <= free:
            made = [change for change, step in zip(changes, way, strict=True) if step]
            return " ".join(f"{key}={_word(value)}" for key, value in made)
    return "a smaller model, or a machine with more memory: no setting of this one is enough"


def _ladders(config: Config) -> Iterator[list[Change]]:
    """For each key that decides memory its value, and lower ones, step by step."""
    update, engine, model = config.update, config.engine, config.model
    yield _halved("update.micro_batch_tokens", update.micro_batch_tokens, FEWEST_TOKENS)
    if not update.activation_checkpointing:
        yield [("update.activation_checkpointing", value) for value in (False, True)]
    if engine.name == "transformers":
        yield _halved("engine.max_rows", engine.max_rows, 1)
    elif engine.kv_gb is not None:
        yield [("engine.kv_gb", engine.kv_gb / 2**i) for i in range(4)]
    else:
        tenths = range(int(engine.gpu_memory_utilization * 10), 1, -1)
        lower = [t / 10 for t in tenths if t / 10 < engine.gpu_memory_utilization]
        yield [
            ("engine.gpu_memory_utilization", v) for v in (engine.gpu_memory_utilization, *lower)
        ]
    if model.tuning == "lora" and model.dtype == "float32":
        yield [("model.dtype", value) for value in ("float32", "bfloat16")]
    if config.hardware.processes > 1 and model.tuning == "full" and not config.hardware.shard:
        # the last ladder is tried first among equals, and this one changes no result
        yield [("hardware.shard", value) for value in (False, True)]


def _halved(key: str, value: int, least: int) -> list[Change]:
    steps = [value]
    while steps[-1] // 2 >= least:
        steps.append(steps[-1] // 2)
    return [(key, step) for step in steps]


def _changed(config: Config, changes: list[Change]) -> Config:
    for key, value in changes:
        group, name = key.split(".")
        config = replace(config, **{group: replace(getattr(config, group), **{name: value})})
    return config


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"
