"""The rollouts that a probe resamples: generated at a checkpoint, graded, with their gradients."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.engines.transformers_engine import TransformersEngine
from pods.policy.policy import load_policy
from pods.policy.scoring import UpdateContext
from pods.seeding import derive
from pods.system.machine import free_memory
from pods.tasks.load import load
from pods.tasks.rewards import grade_rollout
from pods.training.data import fitting
from pods.types import GenerationRequest, Group, Sampling, group_of
from pods_lab.probe.moments import normaliser
from pods_lab.probe.sketches import sketches, trained_parameters

SHARE = 0.8  # of the free memory


def draw_pool(config: Config, checkpoint: Path, options: Namespace) -> tuple[Tensor, list[Group]]:
    """Generate and grade the rollouts of each prompt, and sketch their normalised gradients.

    Return the (P N, D) gradients and the P groups of N rollouts.
    `ConfigError`: there are too few problems, or the sketches do not fit into memory.
    """
    task, policy = load(config.task), load_policy(config, checkpoint)
    problems, prompts, _ = fitting("train", task.train, policy.tokenizer, config)
    if options.prompts > len(problems):
        raise ConfigError("--prompts", options.prompts, f"must be at most {len(problems)}")
    context = UpdateContext(policy, config)
    weights = sum(one.numel() for one in trained_parameters(context))
    dimensions = min(options.sketch or weights, weights)
    _check_memory(options, dimensions)
    rng = np.random.default_rng(derive(options.seed, "probe prompts"))
    chosen = rng.choice(len(problems), options.prompts, replace=False)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    tokens = config.sampling.max_completion_tokens
    sampling = Sampling(config.sampling.temperature, tokens)
    seeds = [derive(options.seed, "probe", done) for done in range(1, len(chosen) + 1)]
    request = GenerationRequest([prompts[i] for i in chosen], options.rollouts, sampling, seeds)
    with progress("generating", len(chosen) * options.rollouts) as report:
        done = count(1)
        drawn = engine.generate(request, lambda index, text: report(next(done)))
    groups, scales = list[Group](), list[NDArray[np.float64]]()
    for index, rollouts in zip(chosen, drawn, strict=True):
        grades = [grade_rollout(config, task, problems[index], one) for one in rollouts]
        groups.append(group_of(rollouts, grades))
        scales.append(normaliser(groups[-1].lengths, config.update.aggregation, tokens))
    flat = [*chain.from_iterable(drawn)]
    with progress("gradients", len(flat)) as report:
        rows = sketches(context, flat, dimensions, derive(options.seed, "sketch"), report)
    return rows.mul_(torch.from_numpy(np.concatenate(scales)).float()[:, None]), groups


def _check_memory(options: Namespace, dimensions: int) -> None:
    """Raise a ConfigError unless the sketches and, twice, their products fit into free memory."""
    rollouts, memory = options.prompts * options.rollouts, free_memory("cpu")
    needed = 4 * rollouts * (dimensions + 2 * rollouts)  # float32
    if memory and needed > SHARE * memory[0]:
        where = f"{rollouts} rollouts of {dimensions:,} numbers need {needed / 1e9:.1f} GB"
        allowed = f"must be less, or fewer --rollouts or --prompts: {where}"
        raise ConfigError("--sketch", options.sketch, f"{allowed} of {memory[0] / 1e9:.1f} GB")


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; yield the function that reports how much is done."""
    from rich.progress import Progress

    with Progress(transient=True, disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
