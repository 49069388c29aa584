"""Check that a config's keys fit together, before torch is loaded.

`validate` is the entry point of every command that takes a config.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any

from pods.config.clock_model import read_clock_model
from pods.config.inputs import missing_inputs
from pods.config.method_keys import RULE_NAMES
from pods.config.parse import ConfigError, parse
from pods.config.schema import Config
from pods.config.task_checks import Refusal, reward_terms, task_refusals
from pods.system.imports import import_function

OWN_FUNCTIONS = (
    "sampler.rule",
    "advantage.function",
    "prompts.selector",
    "task.make",
    "task.reward",
)
"""Keys that may name functions of one's own as module:function."""
VLLM_MIN_TEMPERATURE = 0.01  # vLLM silently raises lower ones to this
VLLM_MAX_RANK = 512


def validate(values: Mapping[str, Any]) -> Config:
    """Make a config that a run can start from.

    `ConfigError`: the first key that is not allowed, or that is at odds with another one.
    """
    config = parse(values)
    if config.nm.m == config.nm.n and config.sampler.rule in RULE_NAMES:
        config.sampler.rule = "all"  # every rule keeps all: one run, whatever arm asks for it
    if config.task.name == "chainsum":
        config.task.answer_format = "chain"  # whatever the model was trained on
    checks = (_functions, _rollouts, _budget, _selection, _update, _vllm, task_refusals)
    for key, allowed in chain.from_iterable(check(config) for check in checks):
        raise ConfigError(key, attrgetter(key)(config), allowed)
    for missing in () if config.dry_run else missing_inputs(config):
        raise missing
    return config


def own_functions(config: Config) -> Iterator[tuple[str, str]]:
    """Yield key and name, `module:function`, of each function of one's own."""
    for key in OWN_FUNCTIONS:
        terms = [name for name, _ in reward_terms(config.task)]
        for name in terms if key == "task.reward" else [attrgetter(key)(config)]:
            if ":" in (name or ""):
                yield key, name


def _functions(config: Config) -> Iterator[Refusal]:
    for key, name in own_functions(config):
        try:
            import_function(name)
        except ValueError as error:
            yield key, str(error)


def _rollouts(config: Config) -> Iterator[Refusal]:
    nm, rule = config.nm, config.sampler.rule
    if nm.m > nm.n:
        yield "nm.m", f"must be at most nm.n={nm.n}"
    if rule == "all" and nm.m != nm.n:
        yield "nm.m", f"must be nm.n={nm.n} where sampler.rule=all keeps all"
    if rule == "max_variance_aliased" and nm.n / 2 < nm.m < nm.n:
        yield "nm.m", f"must be at most nm.n / 2 = {nm.n / 2:g}, or nm.n, where sampler.rule={rule}"
    advantage = config.advantage
    if advantage.scale == "stratified" and advantage.baseline != "full":
        yield "advantage.baseline", f"must be full where advantage.scale={advantage.scale}"
    if advantage.function is None and (advantage.baseline, advantage.scale) != ("none", "none"):
        key, size = ("nm.n", nm.n) if advantage.baseline == "full" else ("nm.m", nm.m)
        if size < 2:
            yield key, "must be at least 2: one reward has no advantage"


def _budget(config: Config) -> Iterator[Refusal]:
    if config.budget.train_seconds is None and config.budget.max_steps is None:
        yield "budget.train_seconds", "must be set where budget.max_steps is null"
    groups = config.prompts_per_step * config.nm.groups
    most, rollouts = "must be at most prompts_per_step * nm.groups", groups * config.nm.n
    if config.hardware.processes > rollouts:
        yield "hardware.processes", f"{most} * nm.n = {rollouts}, so that each has a rollout"
    if config.update.minibatches > groups:
        yield "update.minibatches", f"{most} = {groups}: groups stay whole"
    if (name := config.budget.clock_model) is None:
        return
    try:
        prompts = read_clock_model(name).prompts
    except ValueError as error:
        yield "budget.clock_model", str(error)
    else:
        if prompts not in (None, config.prompts_per_step):
            why = f"as in the runs that budget.clock_model={name} was fitted to"
            yield "prompts_per_step", f"must be {prompts}, {why}"


def _selection(config: Config) -> Iterator[Refusal]:
    settings = config.group_filter
    pool, prompts = config.task.train_size, config.prompts_per_step
    if (name := settings.name) != "none" and config.nm.n < 2:
        yield "nm.n", f"must be at least 2 where group_filter={name}: one rollout has no variance"
    has_own = settings.resamples and settings.batch
    batch_key = "group_filter.batch" if has_own else "prompts_per_step"
    batch: int = attrgetter(batch_key)(config)
    if pool is not None and batch > pool and config.prompts.selector not in ("uniform", "greso"):
        yield batch_key, f"must be at most the problems to choose from, task.train_size={pool}"
    if settings.resamples and batch * settings.max_batches < prompts:
        needed = f"prompts_per_step={prompts} prompts, in batches of {batch}"
        yield "group_filter.max_batches", f"must give at least {needed}"


def _update(config: Config) -> Iterator[Refusal]:
    update, model = config.update, config.model
    if len(update.betas) != 2 or not all(0 <= beta < 1 for beta in update.betas):
        yield "update.betas", "must be two numbers in [0, 1)"
    warmup = update.warmup_steps
    if update.schedule != "constant" and (update.schedule_steps or 0) <= warmup:
        where = f"where update.schedule={update.schedule}"
        yield "update.schedule_steps", f"must be more than update.warmup_steps={warmup} {where}"
    if model.tuning == "full" and model.dtype != "float32":
        yield "model.dtype", "must be float32 where model.tuning=full, or updates vanish"
    if model.tuning == "lora" and config.computed_in() != model.dtype:
        where = "where model.tuning=lora, as model.dtype is"
        yield "model.compute_dtype", f"must be null or {model.dtype} {where}"
    if update.importance != "off" and not config.scores_what_is_sampled():
        yield "update.importance", "must be off: engine and trainer score two distributions here"


def _vllm(config: Config) -> Iterator[Refusal]:
    engine, model = config.engine, config.model
    if engine.name != "vllm":
        return
    if model.adapter() is not None:
        how = "`pods export RUN OUT --merge` writes them"
        yield "model.path", f"must have whole weights where engine=vllm: {how}"
    if config.update.compiled and config.hardware.device == "cpu":
        yield "update.compiled", "must be false where engine=vllm on a CPU, which compiles nothing"
    if engine.sync != "merged" and model.tuning != "lora":
        yield "engine.sync", "must be merged where model.tuning=full"
    if engine.sync != "merged" and model.lora.r > VLLM_MAX_RANK:
        yield "model.lora.r", f"must be at most {VLLM_MAX_RANK} where engine.sync={engine.sync}"
    for key in ("sampling.temperature", "evaluation.temperature"):
        if 0 < attrgetter(key)(config) < VLLM_MIN_TEMPERATURE:
            yield key, f"must be 0 or at least {VLLM_MIN_TEMPERATURE} (vLLM)"
