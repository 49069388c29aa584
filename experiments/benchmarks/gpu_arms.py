"""Train four arms with the real loop, for the same seconds of training clock each."""

import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from math import sqrt
from statistics import fmean
from typing import Any

import torch
from gpu_config import trained_config

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.method import prompt_selection as selection
from pods.method.rules import find_rule
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy, load
from pods.policy.scoring import Context
from pods.policy.update import update
from pods.tasks.load import load as load_task
from pods.tasks.prompts import drop_long_prompts
from pods.training.build import make_engine
from pods.training.clock import TrainClock
from pods.training.evaluate import evaluate, evaluation_questions
from pods.training.loop import TrainingLoop
from pods.training.step import Step
from pods.types import Prompt, Task

POOL = 400  # train problems: more than a run of a minute uses, and quickly encoded


def changes(config: Config) -> dict[str, dict[str, Any]]:
    """Return by arm what differs from the config, which is that of pods."""
    n, m = config.nm.n, config.nm.m
    return {
        "pods": {},
        "grpo": {"sampler.rule": "all", "nm.n": m},
        "grpo_ga": {"sampler.rule": "all", "nm.m": n},
        "random": {"sampler.rule": "random"},
    }


def arms(options: Namespace, deadline: float) -> Iterator[dict[str, Any]]:
    """Train each arm from the same weights with one engine; evaluate before and after."""
    engine_name = "transformers"
    if options.device == "cuda" and find_spec("vllm") is not None:
        engine_name = "vllm"
    base = {"engine.name": engine_name}
    config = trained_config(options, base)
    torch.set_num_threads(config.hardware.threads)
    policy, (task, prompts, questions) = load(config), _data(config)
    engine = make_engine(policy, config, lambda: None)
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in trained]
    results: dict[str, Any] = {"engine": engine_name, "arms": {}}
    todo = changes(config)
    for index, (name, words) in enumerate(todo.items()):
        with torch.no_grad():
            for p, before in zip(trained, start, strict=True):
                p.copy_(before)
        engine.sync()
        until = time.monotonic() + (deadline - time.monotonic()) / (len(todo) - index)
        loop = _loop(policy, trained_config(options, {**base, "arm": name, **words}), engine, task,
                     prompts)  # fmt: skip
        for results["arms"][name] in train(loop, questions, until):
            yield results


def train(
    loop: TrainingLoop, questions: tuple[Prompt, ...], deadline: float
) -> Iterator[dict[str, Any]]:
    """Train until the budget or the deadline; evaluate before and after."""
    config, began = loop.config, time.monotonic()
    results: dict[str, Any] = {"n": config.nm.n, "m": config.nm.m, "steps": [],
                               "budget_seconds": config.budget.train_seconds}  # fmt: skip
    results["before"] = accuracy(loop, questions, 0)
    yield results
    deadline -= 1.5 * (time.monotonic() - began)  # for the evaluation at the end
    for step in loop.steps(0, selection.start(config.prompts)):
        results["steps"].append(row(step))
        yield results
        if time.monotonic() > deadline:
            break
    results["budget_reached"] = loop.clock.train_seconds >= (config.budget.train_seconds or 0.0)
    results["after"] = accuracy(loop, questions, len(results["steps"]))
    yield results


def _data(config: Config) -> tuple[Task, tuple[Prompt, ...], tuple[Prompt, ...]]:
    """Return the task with the problems whose prompts fit, and the ids of prompts and questions."""
    from pods.policy.policy import load_tokenizer

    task, tokenizer = load_task(config.task), load_tokenizer(config)
    limit = config.sampling.max_prompt_tokens
    train, prompts, _ = drop_long_prompts(task.train[:POOL], tokenizer, limit)
    test, questions, _ = drop_long_prompts(evaluation_questions(config, task), tokenizer, limit)
    return replace(task, train=train, test=test), prompts, questions


def _loop(
    policy: Policy, config: Config, engine: Engine, task: Task, prompts: tuple[Prompt, ...]
) -> TrainingLoop:
    """Build the loop as a run does."""
    on_gpu = policy.device.type == "cuda"
    optimizer = make_optimizer(policy, config.update)
    return TrainingLoop(
        config=config,
        task=task,
        prompts=prompts,
        engine=engine,
        rule=find_rule(config.sampler.rule),
        update=partial(update, Context(policy, config), optimizer),
        clock=TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None),
    )


def accuracy(loop: TrainingLoop, prompts: tuple[Prompt, ...], step: int) -> dict[str, float]:
    """Return the share of right answers to the test questions, and its standard error."""
    chunks = evaluate(loop.config, loop.task, prompts, loop.engine, step, 0)
    records = [record for chunk in chunks for record in chunk]
    share = fmean(record.correct for record in records)
    return {
        "train_seconds": loop.clock.train_seconds,
        "questions": len(records),
        "accuracy": share,
        "stderr": sqrt(share * (1 - share) / len(records)),
        "in_form": fmean(record.format for record in records),
        "mean_tokens": fmean(record.length for record in records),
    }


def row(step: Step) -> dict[str, Any]:
    """Return the clock and the phases of a step, and means over all n rollouts."""
    return {
        "step": step.number,
        "train_seconds": step.train_seconds,
        **step.seconds,
        "reward": fmean(float(group.group.rewards.mean()) for group in step.groups),
        "correct": fmean(float(group.group.correct.mean()) for group in step.groups),
        "tokens": sum(int(group.group.lengths.sum()) for group in step.groups),
        "logprob_gap": None if step.update is None else step.update.logprob_gap,
    }
