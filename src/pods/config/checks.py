"""Check that a config's keys fit together, before torch is loaded.

`validate` is the entry point of every command that takes a config.
"""

import os
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from pods.config.inputs import missing_inputs
from pods.config.method_keys import RULE_NAMES
from pods.config.parse import ConfigError, parse
from pods.config.plan import refusals as plan_refusals
from pods.config.price_card import read_card
from pods.config.schema import Config
from pods.config.task_checks import Refusal, reward_terms, task_refusals, trl_function
from pods.system.imports import import_function

OWN_FUNCTIONS = (
    "sampler.rule",
    "advantage.function",
    "prompts.selector",
    "task.make",
    "task.reward",
)
"""Keys that may name a user's function as module:function."""
PATHS = (
    "runs_dir",
    "model.path",
    "task.path",
    "task.test_path",
    "task.system",
)
"""Keys that name a file or a folder, in which `~` is the user's home."""
VLLM_MAX_RANK = 512  # of an adapter that vLLM loads


def validate(values: Mapping[str, Any]) -> Config:
    """Make a config that a run can start from: parse it, complete it and check it.

    Raises:
        ConfigError: the first key that is not allowed, or that does not fit another one.
    """
    config = parse(values)
    _complete(config)

    refusal = next(_refusals(config), None)
    if refusal is not None:
        key, allowed = refusal
        raise ConfigError(key, attrgetter(key)(config), allowed)

    missing = [] if config.dry_run else list(missing_inputs(config))  # a dry run lists them
    if missing:
        raise missing[0]
    return config


def _refusals(config: Config) -> Iterator[Refusal]:
    """Yield every key whose value does not fit the others, with what is allowed."""
    yield from _functions(config)
    yield from _rollouts(config)
    yield from _budget(config)
    yield from _selection(config)
    yield from _update(config)
    yield from _vllm(config)
    yield from task_refusals(config)
    yield from plan_refusals(config.plan, read_card)


def _complete(config: Config) -> None:
    """Set the keys that follow from others, and the home in paths."""
    for key in PATHS:
        _expand_home(config, key)

    if config.nm.m == config.nm.n and config.sampler.rule in RULE_NAMES:
        config.sampler.rule = "all"  # every rule keeps all: one run, whatever arm asks for it

    if config.task.name == "chainsum":
        config.task.answer_format = "chain"  # whatever the model was trained on


def _expand_home(config: Config, key: str) -> None:
    path = attrgetter(key)(config)
    if path is None:
        return
    group, _, name = key.rpartition(".")
    section = attrgetter(group)(config) if group else config
    setattr(section, name, os.path.expanduser(path))


def own_functions(config: Config) -> Iterator[tuple[str, str]]:
    """Yield key and name, `module:function`, of each function of the user."""
    for key in OWN_FUNCTIONS:
        if key == "task.reward":
            names = [trl_function(name) or name for name, _ in reward_terms(config.task)]
        else:
            names = [attrgetter(key)(config) or ""]
        for name in names:
            if ":" in name:
                yield key, name


def _functions(config: Config) -> Iterator[Refusal]:
    for key, name in own_functions(config):
        try:
            import_function(name)
        except ValueError as error:
            yield key, str(error)


def _rollouts(config: Config) -> Iterator[Refusal]:
    nm = config.nm
    rule = config.sampler.rule
    if nm.m > nm.n:
        yield "nm.m", f"must be at most nm.n={nm.n}"

    if rule == "all" and nm.m != nm.n:
        yield "nm.m", f"must be nm.n={nm.n} if sampler.rule=all keeps all"

    if rule == "max_variance_aliased" and nm.n / 2 < nm.m < nm.n:
        yield "nm.m", f"must be at most nm.n / 2 = {nm.n / 2:g}, or nm.n, if sampler.rule={rule}"

    yield from _advantages(config)


def _advantages(config: Config) -> Iterator[Refusal]:
    advantage = config.advantage
    if advantage.scale == "stratified" and advantage.baseline != "full":
        yield "advantage.baseline", f"must be full if advantage.scale={advantage.scale}"

    unchanged = advantage.baseline == "none" and advantage.scale == "none"
    if unchanged or advantage.function is not None:
        return

    key = "nm.n" if advantage.baseline == "full" else "nm.m"
    if attrgetter(key)(config) < 2:
        yield key, "must be at least 2: one reward has no advantage"


def _budget(config: Config) -> Iterator[Refusal]:
    if config.budget.train_seconds is None and config.budget.max_steps is None:
        yield "budget.train_seconds", "must be set if budget.max_steps is null"

    groups = config.prompts_per_step * config.nm.groups
    most = "must be at most prompts_per_step * nm.groups"
    rollouts = groups * config.nm.n
    if config.hardware.processes > rollouts:
        yield "hardware.processes", f"{most} * nm.n = {rollouts}, so that each has a rollout"
    if config.update.minibatches > groups:
        yield "update.minibatches", f"{most} = {groups}: groups stay whole"


def _selection(config: Config) -> Iterator[Refusal]:
    settings = config.group_filter
    prompts = config.prompts_per_step
    name = settings.name
    if name != "none" and config.nm.n < 2:
        yield "nm.n", f"must be at least 2 if group_filter={name}: one rollout has no variance"

    key = _batch_key(config)
    batch: int = attrgetter(key)(config)
    if settings.resamples and batch * settings.max_batches < prompts:
        needed = f"prompts_per_step={prompts} prompts, in batches of {batch}"
        yield "group_filter.max_batches", f"must give at least {needed}"

    yield from _rounds(config)

    pool = config.task.train_size
    if pool is None or config.prompts.selector in ("uniform", "greso"):  # which begin anew
        return

    if batch > pool:
        yield key, f"must be at most the problems to choose from, task.train_size={pool}"


def _rounds(config: Config) -> Iterator[Refusal]:
    rounds = config.prompts.rounds
    if config.prompts.selector != "cero":
        if rounds is not None:
            yield "prompts.rounds", "must be null unless prompts.selector=cero"
        return

    if rounds is None:
        yield "prompts.rounds", "must be set if prompts.selector=cero"

    if config.group_filter.resamples:
        yield "group_filter.name", "must be none or skip if prompts.selector=cero: one round a step"


def _batch_key(config: Config) -> str:
    """Return the key that says how many prompts are chosen at once."""
    settings = config.group_filter
    has_batch = settings.resamples and settings.batch is not None
    return "group_filter.batch" if has_batch else "prompts_per_step"


def _update(config: Config) -> Iterator[Refusal]:
    update = config.update
    warmup = update.warmup_steps
    if update.schedule != "constant" and (update.schedule_steps or 0) <= warmup:
        condition = f"if update.schedule={update.schedule}"
        yield "update.schedule_steps", f"must be more than update.warmup_steps={warmup} {condition}"

    yield from _dtypes(config)
    if update.importance != "off" and not config.scores_what_is_sampled():
        why = "engine and trainer use different temperatures"
        yield "update.importance", f"must be off: {why}, so their log-probs cannot be compared"


def _dtypes(config: Config) -> Iterator[Refusal]:
    model = config.model
    if model.tuning == "full" and model.dtype != "float32":
        yield "model.dtype", "must be float32 if model.tuning=full, or updates vanish"

    if model.tuning == "lora" and config.computed_in() != model.dtype:
        condition = "if model.tuning=lora, as model.dtype is"
        yield "model.compute_dtype", f"must be null or {model.dtype} {condition}"


def _vllm(config: Config) -> Iterator[Refusal]:
    engine = config.engine
    model = config.model
    if engine.name != "vllm":
        return

    if model.adapter() is not None:
        how = "merge it first: `pods export RUN OUT --merge`"
        yield "model.path", f"must have whole weights: engine=vllm cannot load an adapter; {how}"

    if config.update.compiled and config.hardware.device == "cpu":
        yield "update.compiled", "must be false if engine=vllm on a CPU, which compiles nothing"

    if engine.sync != "merged":
        yield from _adapters_in_vllm(config)


def _adapters_in_vllm(config: Config) -> Iterator[Refusal]:
    if config.model.tuning != "lora":
        yield "engine.sync", "must be merged if model.tuning=full"

    if config.model.lora.r > VLLM_MAX_RANK:
        condition = f"if engine.sync={config.engine.sync}"
        yield "model.lora.r", f"must be at most {VLLM_MAX_RANK} {condition}"
