"""Statistics of one step's update, averaged over its optimizer updates, processes and tokens.

Shapes: C = completion tokens of a micro-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pods.policy.process_group import ProcessGroup

TOKEN_STATS = ("gap", "importance", "importance_squared", "cut", "entropy")
"""Rows of the statistics of tokens: |log-prob of the engine - of the trainer|, importance weight,
its square, 1 if it was capped or set to 0, and the entropy of the policy in nats."""


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Statistics of one step's update: means over its optimizer updates, and over all tokens."""

    loss: float
    grad_norm: float  # norm of the gradient before clipping
    clip_fraction: float  # share of the tokens whose gradient the PPO clip removed
    kl: float  # KL divergence from the reference
    logprob_gap: float
    """Largest |log-prob of the engine - of the trainer| of a token, before the first update."""
    logprob_gap_mean: float  # mean of |log-prob of the engine - of the trainer|
    importance_mean: float  # mean of the importance weight; 1 if the correction is off
    importance_ess: float  # effective sample size of these weights, as a share of the tokens
    importance_cut: float  # share of the tokens whose importance weight was capped or set to 0
    entropy: float  # of the policy in nats, at the temperature of `update.logprob_temperature`
    lr: float


@dataclass(frozen=True, slots=True)
class OptimizerUpdate:
    """One optimizer update: of all processes, apart from the statistics of tokens."""

    loss: float
    grad_norm: float
    clip_fraction: float
    kl: float
    token_stats: list[Tensor]  # those of this process, as in `GradientSums`


def summarise(
    updates: Sequence[OptimizerUpdate], lr: float, process_group: ProcessGroup
) -> UpdateStats:
    """Average over the optimizer updates and over their tokens, which recur every epoch."""
    results = [[each.loss, each.grad_norm, each.clip_fraction, each.kl] for each in updates]
    loss, grad_norm, clip_fraction, kl = np.mean(results, axis=0).tolist()

    parts = [torch.empty((len(TOKEN_STATS), 0), dtype=torch.float64)]
    for each in updates:
        parts += [part.cpu() for part in each.token_stats]
    tokens = torch.cat(parts, dim=1)
    sums = tokens.sum(1).tolist()
    sums.append(float(tokens.shape[1]))
    totals = process_group.all_sum(sums)
    count = totals.pop()
    mean = {name: total / count for name, total in zip(TOKEN_STATS, totals, strict=True)}
    squared = mean["importance_squared"]

    largest_gap = tokens[0].max().item() if tokens.numel() else 0.0
    return UpdateStats(
        loss=loss,
        grad_norm=grad_norm,
        clip_fraction=clip_fraction,
        kl=kl,
        logprob_gap=process_group.all_max(largest_gap),
        logprob_gap_mean=mean["gap"],
        importance_mean=mean["importance"],
        importance_ess=mean["importance"] ** 2 / squared if squared else 0.0,
        importance_cut=mean["cut"],
        entropy=mean["entropy"],
        lr=lr,
    )
