"""GRPO and PODS by the real loop for a minute of training clock each: two parts of gpu.py."""

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

from pods.assemble import make_engine
from pods.config import Config
from pods.evaluate import evaluate, questions
from pods.method import prompts as selection
from pods.method.downsample import find_rule
from pods.policy.load import load
from pods.policy.optimizer import make_optimizer
from pods.policy.update import update
from pods.rollouts.engine import Prompt
from pods.runs.clock import TrainClock
from pods.step import Step
from pods.tasks.load import load as load_task
from pods.tasks.prompts import fitting
from pods.train import Loop

POOL = 400  # train problems: more than a run of a minute takes, and soon encoded
ARMS = {"grpo": GRPO, "pods": {}}  # the configs are of pods


def arm(name: str, asked: Namespace, deadline: float) -> Iterator[dict[str, Any]]:
    """Train one arm by the real loop for its budget; accuracy before and after."""
    config = config_of(asked, ARMS[name])
    loop, asked_of_test = assembled(config)
    budget = config.budget.train_seconds or 0.0
    found: dict[str, Any] = {"n": config.nm.n, "m": config.nm.m, "engine": config.engine.name,
                             "budget_seconds": budget, "steps": []}  # fmt: skip
    start = time.monotonic()
    found["before"] = accuracy(loop, asked_of_test, 0)
    yield found
    deadline -= 1.5 * (time.monotonic() - start)  # for the evaluation at the end
    for made in loop.steps(0, selection.start(config.prompts)):
        found["steps"].append(row(made))
        yield found
        if time.monotonic() > deadline:
            break
    found["budget_reached"] = loop.clock.train_seconds >= budget
    found["after"] = accuracy(loop, asked_of_test, len(found["steps"]))
    if asked.device == "cuda":
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
    yield found


def assembled(config: Config) -> tuple[Loop, tuple[Prompt, ...]]:
    """The loop, as a run has it, and the token ids of the test questions."""
    torch.set_num_threads(config.hardware.threads)
    policy, task = load(config), load_task(config.task)
    limit = config.sampling.max_prompt_tokens
    train, prompts, _ = fitting(task.train[:POOL], policy.tokenizer, limit)
    test, asked_of_test, _ = fitting(questions(config, task), policy.tokenizer, limit)
    optimizer = make_optimizer(policy, config.update)
    on_gpu = policy.device.type == "cuda"
    loop = Loop(
        config=config,
        task=replace(task, train=train, test=test),
        prompts=prompts,
        engine=make_engine(policy, config, lambda: None),
        rule=find_rule(config.sampler.rule),
        update=partial(update, policy, optimizer, config, check=lambda: None),
        clock=TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None),
    )
    return loop, asked_of_test


def accuracy(loop: Loop, prompts: tuple[Prompt, ...], step: int) -> dict[str, float]:
    """Share of the test questions answered rightly, and its standard error over questions."""
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


def row(made: Step) -> dict[str, Any]:
    """One step: its clock, its phases, and how all n rollouts fared."""
    return {
        "step": made.step,
        "train_seconds": made.train_seconds,
        **made.seconds,
        "reward": fmean(float(group.group.rewards.mean()) for group in made.groups),
        "correct": fmean(float(group.group.correct.mean()) for group in made.groups),
        "tokens": sum(int(group.group.lengths.sum()) for group in made.groups),
        "logprob_gap": None if made.update is None else made.update.logprob_gap,
    }
