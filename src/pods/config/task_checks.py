"""Check the keys of the task: data, answer format, grader and reward."""

import re
from collections.abc import Iterator

from pods.config.schema import Config, ModelConfig
from pods.config.task_keys import REWARD_TERM, TaskConfig

EMBEDDED = "tiny"  # the model that ships with the package
TRAIN_LIMIT = 100_000  # of 1.7 million chains
TEST_SIZE = 256  # of a task whose questions are generated
GENERATED = ("chainsum", "gym")
ON_THE_HUB = dict(gsm8k=1319, math500=500, amc23=40, aime24=30, minerva=272, olympiad=675)
"""Number of questions of each test set."""
FORMATS = ("tag", "hash", "boxed")
FORMATS_OF = {"own": ("whole",), "jsonl": ("chain",), "gym": ("whole",)}
"""Formats of answers that only the problems of this task may have."""
OWN = ("jsonl", "own", "gym")  # tasks whose problems a user brings, or chooses
Refusal = tuple[str, str]  # a key whose value is not allowed, and what is allowed


def task_refusals(config: Config) -> Iterator[Refusal]:
    """Yield every key of the task that is at odds with another one."""
    task = config.task
    longest = config.sampling.max_completion_tokens
    if (task.overlong_tokens or 0) > longest:
        yield "task.overlong_tokens", f"must be at most sampling.max_completion_tokens={longest}"

    if config.reproduction != "ours" and task.system is None:
        names = "gsm8k, gsm8k_release, gsm8k_open_r1 and math_release"
        why = f"faithful exists only for task={names}, without a task.system"
        yield "reproduction", f"must be ours: {why}"

    if task.name == "chainsum":
        yield from _generated(task)
    else:
        yield from _dataset(config)

    yield from _weights(config)
    yield from _own(task)
    yield from _reward(task)
    yield from _without_reward(config)
    yield from _questions(config)


def _weights(config: Config) -> Iterator[Refusal]:
    """Check that the weights have a name, and fit what is asked."""
    model = config.model
    if model.path is None and model.hub is None and model.name != EMBEDDED:
        yield "model.hub", f"must be OWNER/NAME on the hub, unless model={EMBEDDED}"
    if _is_embedded(model) and config.task.answer_format != "chain":
        yield "model.hub", "must be set: the embedded model writes nothing but chains"


def _is_embedded(model: ModelConfig) -> bool:
    return model.name == EMBEDDED and model.path is None and model.hub is None


def _questions(config: Config) -> Iterator[Refusal]:
    if config.task.files()["test"] is not None:  # of a size that is not known yet
        return

    name = config.task.evaluated_on()
    size = TEST_SIZE if name in GENERATED else ON_THE_HUB.get(name)
    asked = config.evaluation.questions
    if size is not None and asked is not None and asked > size:
        yield "evaluation.questions", f"must be at most {size}, which is all of {name}"


def _generated(task: TaskConfig) -> Iterator[Refusal]:
    yield from _size(task)
    fixed = {
        "path": None,
        "test_path": None,
        "system": None,
        "test_set": "own",
        "format_reward": "none",
        "grader": "exact",
    }
    for key, only in fixed.items():
        if getattr(task, key) != only:
            yield f"task.{key}", f"must be {only or 'null'} for {task.name}"


def _size(task: TaskConfig) -> Iterator[Refusal]:
    if task.train_size is None or task.train_size > TRAIN_LIMIT:
        yield "task.train_size", f"must be at most {TRAIN_LIMIT} for {task.name}"


def _dataset(config: Config) -> Iterator[Refusal]:
    task = config.task
    if task.answer_format == "chain" and task.name != "jsonl":
        if _is_embedded(config.model):
            why = "the embedded model writes nothing but chains"
            others = "such as model=smollm2_135m, or model=hub model.hub=NAME"
            yield "model.name", f"must be another model if task={task.name}: {why} ({others})"
        other = "(model=tiny sets it, model=hub model.hub=NAME is another)"
        yield "task.name", f"must be chainsum or jsonl if task.answer_format=chain {other}"

    if task.name in OWN and task.test_set != "own":
        yield "task.test_set", f"must be own if task={task.name}"

    if task.name != "gsm8k" and task.grader != "exact":
        yield "task.grader", f"must be exact if task={task.name}: the others are for GSM8K"

    yield from _formats(task)


def _formats(task: TaskConfig) -> Iterator[Refusal]:
    """Check the format of answers, and the reward for it."""
    formats = [*FORMATS, *FORMATS_OF.get(task.name, ())]
    if task.answer_format not in formats:
        yield "task.answer_format", f"must be one of {', '.join(formats)} if task={task.name}"

    if task.answer_format in ("whole", "chain") and task.format_reward != "none":
        yield "task.format_reward", f"must be none if task.answer_format={task.answer_format}"

    if task.answer_format not in ("tag", "whole") and task.format_reward == "open_r1":
        condition = f"if task.answer_format={task.answer_format}"
        yield "task.format_reward", f"must be additive, when_wrong or none {condition}"


def _own(task: TaskConfig) -> Iterator[Refusal]:
    """Check where the user's problems come from."""
    if task.name == "jsonl" and task.path is None and task.hub is None:
        yield "task.path", "must be set if task=jsonl, or task.hub"

    if task.hub is not None and (task.path or task.test_path):
        yield "task.hub", "must be null if task.path or task.test_path is set"

    for key in ("hub", "question_key", "answer_key"):
        if task.name != "jsonl" and getattr(task, key) is not None:
            yield f"task.{key}", "must be null unless task=jsonl"
    for key in ("hub_config", "hub_test_split"):
        if task.hub is None and getattr(task, key) is not None:
            yield f"task.{key}", "must be null unless task.hub is set"

    if task.name in ("own", "gym") and task.path is not None:
        yield "task.path", f"must be null if task={task.name}"

    if task.name == "own" and task.make is None:
        yield "task.make", "must be set if task=own"

    if task.name != "own" and task.make is not None:
        yield "task.make", f"must be null if task={task.name}"

    yield from _gym(task)


def _gym(task: TaskConfig) -> Iterator[Refusal]:
    """Check the keys of reasoning-gym; the library checks the name and the parameters."""
    if task.name != "gym":
        for key in ("gym", "gym_parameters"):
            if getattr(task, key) is not None:
                yield f"task.{key}", f"must be null if task={task.name}"
        return

    if task.gym is None:
        yield "task.gym", "must be set if task=gym"
    if task.test_path is not None:
        yield "task.test_path", "must be null if task=gym"
    if {"seed", "size"} & set(task.gym_parameters or ()):
        yield "task.gym_parameters", "must not have seed or size: task.train_size is the size"
    yield from _size(task)


def _reward(task: TaskConfig) -> Iterator[Refusal]:
    if task.reward is None:
        return

    names = [name for name, _ in reward_terms(task)]
    if "graded" in names and task.name not in GENERATED:
        yield "task.reward", f"graded must have task={' or '.join(GENERATED)}"

    if not names or len(set(names)) < len(names):
        yield "task.reward", "must name at least one term, without repeats"


def _without_reward(config: Config) -> Iterator[Refusal]:
    """Check what deals with rollouts that have no reward."""
    task = config.task
    has_trl = any(trl_function(name) for name, _ in reward_terms(task))
    if task.reward_errors == "exclude" and task.reward is None:
        yield "task.reward_errors", "must be fail if task.reward is null"

    if task.trl_messages and not has_trl:
        yield "task.trl_messages", "must be false unless task.reward has a trl:module:function"

    rule = config.sampler.rule
    if rule == "max_variance_aliased" and (has_trl or task.reward_errors == "exclude"):
        why = "it needs a reward for every rollout"
        yield "sampler.rule", f"must be another if functions of task.reward may give none: {why}"


def trl_function(name: str) -> str | None:
    """Return module:function of a term trl:module:function; None if the term is another."""
    function = name.partition(":")[2]
    return function if ":" in function else None


def reward_terms(task: TaskConfig) -> list[tuple[str, float]]:
    """Return name and weight of the terms of `task.reward`: correct, or my_rewards:short*0.2.

    A name is correct, format, graded, module:function or trl:module:function.
    """
    terms = []
    for text in task.reward or []:
        match = re.fullmatch(REWARD_TERM, text)
        if match:
            terms.append((match[1], float(match[2] or 1)))
    return terms
