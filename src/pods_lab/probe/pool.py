"""The rollouts that a probe resamples: generated at a checkpoint, graded, with their gradients."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.progress import Progress, track
from torch import Tensor

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.engines.transformers_engine import TransformersEngine
from pods.method.grpo import token_weights
from pods.policy.policy import Policy, load_policy
from pods.policy.scoring import UpdateContext
from pods.seeding import derive
from pods.system.machine import free_memory
from pods.tasks.load import load
from pods.tasks.rewards import grade_rollouts
from pods.training.data import fitting
from pods.types import GenerationRequest, Group, Rollout, Sampling, group_of
from pods_lab.probe.sketches import sketches, trained_parameters

SHARE = 0.8  # of the free memory


class Pool(NamedTuple):
    """Rollouts of P prompts, N of each, and their gradients."""

    gradients: Tensor
    """(P N, D): sketches of the rollouts' normalised gradients."""
    groups: list[Group]
    """The P groups of N rollouts."""

    @property
    def success(self) -> float:
        """The share of right rollouts."""
        shares = [float(group.rewarded.mean()) for group in self.groups]
        return sum(shares) / len(shares)


def draw_pool(config: Config, checkpoint: Path, options: Namespace) -> Pool:
    """Generate and grade the rollouts of each prompt, and sketch their normalised gradients.

    `ConfigError`: there are too few problems, or the sketches do not fit into memory.
    """
    task = load(config.task)
    policy = load_policy(config, checkpoint)
    problems, prompts, _ = fitting("train", task.train, policy.tokenizer, config)
    if options.prompts > len(problems):
        raise ConfigError("--prompts", options.prompts, f"must be at most {len(problems)}")
    context = UpdateContext(policy, config)
    weights = sum(tensor.numel() for tensor in trained_parameters(context))
    dimensions = min(options.sketch or weights, weights)
    _check_memory(options, dimensions)

    rng = np.random.default_rng(derive(options.seed, "probe prompts"))
    chosen = rng.choice(len(problems), options.prompts, replace=False)
    drawn = _generate(config, policy, [prompts[number] for number in chosen], options)
    groups = []
    scales = []
    for number, rollouts in zip(chosen, drawn, strict=True):
        asked = [problems[number]] * len(rollouts)
        grades = grade_rollouts(config, task, asked, rollouts)
        if not all(grade.scored for grade in grades):
            raise ConfigError("task.reward", config.task.reward, "must give each rollout a reward")
        group = group_of(rollouts, grades)
        groups.append(group)
        scales.append(_scales(group, config))

    flat = list(chain.from_iterable(drawn))
    gradients = torch.empty(len(flat), dimensions)
    seed = derive(options.seed, "sketch")
    sketched = sketches(context, shown(flat, "gradients"), dimensions, seed)
    for row, sketch, scale in zip(gradients, sketched, torch.cat(scales), strict=True):
        torch.mul(sketch, scale, out=row)
    return Pool(gradients, groups)


def _generate(
    config: Config, policy: Policy, prompts: list[tuple[int, ...]], options: Namespace
) -> list[list[Rollout]]:
    """Draw the rollouts of each prompt, beside a bar if this is a terminal."""
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    tokens = config.sampling.max_completion_tokens
    sampling = Sampling(config.sampling.temperature, tokens)
    seeds = [derive(options.seed, "probe", number) for number in range(1, len(prompts) + 1)]
    request = GenerationRequest(prompts, options.rollouts, sampling, seeds)
    with Progress(transient=True, disable=not sys.stdout.isatty()) as bar:
        ended = bar.add_task("generating", total=len(prompts) * options.rollouts)
        return engine.generate(request, lambda index, text: bar.advance(ended))


def _scales(group: Group, config: Config) -> Tensor:
    """Return what normalises the gradient of each rollout's summed log-prob, (N,).

    A prompt's tokens stand for all tokens of the update, since the estimator must be linear.
    """
    lengths = torch.tensor(group.lengths)
    weights = token_weights(
        lengths,
        torch.zeros_like(lengths),
        config.update.aggregation,
        config.sampling.max_completion_tokens,
    )
    return len(lengths) * weights


def _check_memory(options: Namespace, dimensions: int) -> None:
    """Raise a ConfigError unless the sketches and, twice, their products fit into free memory."""
    rollouts = options.prompts * options.rollouts
    memory = free_memory("cpu")
    needed = 4 * rollouts * (dimensions + 2 * rollouts)  # float32
    if memory and needed > SHARE * memory[0]:
        where = f"{rollouts} rollouts of {dimensions:,} numbers need {needed / 1e9:.1f} GB"
        allowed = f"must be less, or fewer --rollouts or --prompts: {where}"
        raise ConfigError("--sketch", options.sketch, f"{allowed} of {memory[0] / 1e9:.1f} GB")


def shown(items: Sequence[Any], what: str) -> Iterable[Any]:
    """Yield the items, beside a bar if this is a terminal."""
    return track(items, what, transient=True, disable=not sys.stdout.isatty())
