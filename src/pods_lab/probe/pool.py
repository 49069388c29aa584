"""The rollouts that a probe resamples: generated at a checkpoint, graded, with their gradients."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress, track
from torch import Tensor

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.engines.transformers_engine import TransformersEngine
from pods.method.grpo import token_weights
from pods.policy.policy import load_policy
from pods.policy.scoring import UpdateContext
from pods.seeding import derive
from pods.system.machine import free_memory
from pods.tasks.load import load
from pods.tasks.rewards import grade_rollout
from pods.training.data import fitting
from pods.types import GenerationRequest, Group, Sampling, group_of
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
    with Progress(transient=True, disable=not sys.stdout.isatty()) as bar:
        ended = bar.add_task("generating", total=len(chosen) * options.rollouts)
        drawn = engine.generate(request, lambda index, text: bar.advance(ended))
    groups, scales = list[Group](), list[Tensor]()
    for index, rollouts in zip(chosen, drawn, strict=True):
        grades = [grade_rollout(config, task, problems[index], one) for one in rollouts]
        groups.append(group_of(rollouts, grades))
        lengths, how = torch.tensor(groups[-1].lengths), config.update.aggregation
        # a prompt's tokens stand for those of the update, since the estimator must be linear
        per_token = token_weights(lengths, torch.zeros_like(lengths), how, tokens)
        scales.append(len(rollouts) * per_token)
    flat = [*chain.from_iterable(drawn)]
    rows = torch.empty(len(flat), dimensions)
    seed = derive(options.seed, "sketch")
    of_each = sketches(context, shown(flat, "gradients"), dimensions, seed)
    for row, sketch, scale in zip(rows, of_each, torch.cat(scales), strict=True):
        torch.mul(sketch, scale, out=row)
    return rows, groups


def _check_memory(options: Namespace, dimensions: int) -> None:
    """Raise a ConfigError unless the sketches and, twice, their products fit into free memory."""
    rollouts, memory = options.prompts * options.rollouts, free_memory("cpu")
    needed = 4 * rollouts * (dimensions + 2 * rollouts)  # float32
    if memory and needed > SHARE * memory[0]:
        where = f"{rollouts} rollouts of {dimensions:,} numbers need {needed / 1e9:.1f} GB"
        allowed = f"must be less, or fewer --rollouts or --prompts: {where}"
        raise ConfigError("--sketch", options.sketch, f"{allowed} of {memory[0] / 1e9:.1f} GB")


def shown(items: Sequence[Any], what: str) -> Iterable[Any]:
    """Yield the items, beside a bar if this is a terminal."""
    return track(items, what, transient=True, disable=not sys.stdout.isatty())
