"""Sketches of each rollout's own policy gradient, whose inner products are those of the gradients.

Shapes: R = rollouts, W = trained weights (of LoRA, or all), D = dimensions of a sketch.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pods.policy.packing import pack
from pods.policy.scoring import UpdateContext, score
from pods.types import Rollout

BLOCK = 512  # rows of a part of the inner products


def trained_parameters(context: UpdateContext) -> list[Tensor]:
    """Return the tensors that training moves: LoRA's weights where there are any, else all."""
    return [one for one in context.policy.model.parameters() if one.requires_grad]


def projection(weights: int, dimensions: int, seed: int) -> Callable[[Tensor], Tensor]:
    """Return a seeded linear map of (W,) to (D,) that preserves inner products on average.

    Each weight is added to one of D sums with a random sign: the count sketch (Charikar, Chen &
    Farach-Colton 2002) as feature hashing (Weinberger et al., arXiv:0902.2206, section 2). The
    inner product of two sketches has the mean x·y and at most the variance
    (|x|² |y|² + (x·y)²) / D (ibid., lemma 2). With D >= W nothing is mapped.
    """
    if dimensions >= weights:
        return lambda gradient: gradient
    rng = np.random.default_rng(seed)
    sums = torch.from_numpy(rng.integers(dimensions, size=weights))
    signs = torch.from_numpy(rng.integers(2, size=weights).astype(np.float32) * 2 - 1)
    return lambda gradient: torch.zeros(dimensions).index_add_(0, sums, signs * gradient)


def sketches(
    context: UpdateContext,
    rollouts: Sequence[Rollout],
    dimensions: int,
    seed: int,
    report: Callable[[int], object],
) -> Tensor:
    """Sketch the gradients of (R,) rollouts' summed log-probs, (R, D) float32, one pass for each.

    Args:
        context: of the run; nothing in it moves.
        rollouts: (R,) drawn from the policy.
        dimensions: D; as many as weights, or more, keep the gradients as they are.
        seed: of the projection.
        report: called with the number of rollouts that are done.
    """
    weights = sum(one.numel() for one in trained_parameters(context))
    project, dimensions = projection(weights, dimensions, seed), min(dimensions, weights)
    parameters, rows = trained_parameters(context), torch.empty(len(rollouts), dimensions)
    for index, rollout in enumerate(rollouts):
        total = score(context, pack([rollout], [[0]])).logprobs.sum()
        gradients = torch.autograd.grad(total, parameters, materialize_grads=True)
        flat = torch.cat([one.reshape(-1).float().cpu() for one in gradients])
        rows[index] = project(flat)
        report(index + 1)
    return rows


def inner_products(rows: Tensor, report: Callable[[int], object]) -> Tensor:
    """Return the inner product of each two of the (R, D) rows, (R, R), and compute each once.

    `report` is called with the number of rows that are done.
    """
    products = torch.empty(len(rows), len(rows))
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        part = rows[start:] @ rows[block].T
        products[start:, block], products[block, start:] = part, part.T
        report(min(start + BLOCK, len(rows)))
    return products
