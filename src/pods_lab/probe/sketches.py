"""Sketches of each rollout's own policy gradient, whose inner products are those of the gradients.

Shapes: W = trained weights (of LoRA, or all), D = dimensions of a sketch.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from pods.policy.packing import pack
from pods.policy.scoring import UpdateContext, score
from pods.types import Rollout


def trained_parameters(context: UpdateContext) -> list[Tensor]:
    """Return the tensors that training moves: LoRA's weights where there are any, else all."""
    parameters = context.policy.model.parameters()
    return [tensor for tensor in parameters if tensor.requires_grad]


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
    context: UpdateContext, rollouts: Iterable[Rollout], dimensions: int, seed: int
) -> Iterator[Tensor]:
    """Yield the sketch of the gradient of each rollout's summed log-prob, (D,) float32.

    Each rollout takes one pass, and nothing in the context moves. As many dimensions as weights, or
    more, keep the gradients as they are.
    """
    parameters = trained_parameters(context)
    weights = sum(tensor.numel() for tensor in parameters)
    project = projection(weights, dimensions, seed)
    for rollout in rollouts:
        total = score(context, pack([rollout], [[0]])).logprobs.sum()
        gradients = torch.autograd.grad(total, parameters, materialize_grads=True)
        flat = [gradient.reshape(-1).float().cpu() for gradient in gradients]
        yield project(torch.cat(flat))
