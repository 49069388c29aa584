"""Train GRPO and PODS with the real loop for a minute of training clock each: parts of gpu.py."""

import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import sqrt
from statistics import fmean
from typing import Any

import torch
from gpu_config import GRPO, config_of

from pods.config.schema import Config
from pods.method import prompt_selection as selection
from pods.method.rules import find_rule
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import load
from pods.policy.scoring import Context
from pods.policy.update import update
from pods.tasks.load import load as load_task
from pods.tasks.prompts import drop_long_prompts
from pods.training.build import make_engine
from pods.training.clock import TrainClock
from pods.training.evaluate import evaluate, evaluation_questions
from pods.training.loop import TrainingLoop
from pods.training.step import Step
from pods.types import Prompt

POOL = 400  # train problems: more than a run of a minute uses, and quickly encoded
ARMS = {"grpo": GRPO, "pods": {}}  # changes of the configs, which are those of pods


def arm(name: str, options: Namespace, deadline: float) -> Iterator[dict[str, Any]]:
    """Train one arm with the real loop for its budget, and evaluate before and after."""
    config = config_of(options, ARMS[name])
    loop, test_prompts = build(config)
    budget = config.budget.train_seconds or 0.0
    results: dict[str, Any] = {"n": config.nm.n, "m": config.nm.m, "engine": config.engine.name,
                             "budget_seconds": budget, "steps": []}  # fmt: skip
    start = time.monotonic()
    results["before"] = accuracy(loop, test_prompts, 0)
    yield results
    deadline -= 1.5 * (time.monotonic() - start)  # for the evaluation at the end
    for step in loop.steps(0, selection.start(config.prompts)):
        results["steps"].append(row(step))
        yield results
        if time.monotonic() > deadline:
            break
    results["budget_reached"] = loop.clock.train_seconds >= budget
    results["after"] = accuracy(loop, test_prompts, len(results["steps"]))
    if options.device == "cuda":
        results["peak_bytes"] = torch.cuda.max_memory_allocated()
    yield results


def build(config: Config) -> tuple[TrainingLoop, tuple[Prompt, ...]]:
    """Build the loop as a run does, and return it with the token ids of the test questions."""
    torch.set_num_threads(config.hardware.threads)
    policy, task = load(config), load_task(config.task)
    limit = config.sampling.max_prompt_tokens
    train, prompts, _ = drop_long_prompts(task.train[:POOL], policy.tokenizer, limit)
    test, test_prompts, _ = drop_long_prompts(
        evaluation_questions(config, task), policy.tokenizer, limit
    )
    optimizer = make_optimizer(policy, config.update)
    on_gpu = policy.device.type == "cuda"
    loop = TrainingLoop(
        config=config,
        task=replace(task, train=train, test=test),
        prompts=prompts,
        engine=make_engine(policy, config, lambda: None),
        rule=find_rule(config.sampler.rule),
        update=partial(update, Context(policy, config), optimizer),
        clock=TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None),
    )
    return loop, test_prompts


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
