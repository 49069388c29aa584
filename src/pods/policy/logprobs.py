"""Log-probs of completion tokens and the entropy of the policy at each of them.

No [tokens, vocabulary] array exists for a whole micro-batch.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, H = width of the states,
V = vocabulary.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pods.policy.attention import take_rows
from pods.policy.compiled import FUSED, compiled
from pods.policy.packing import Layout, MicroBatch

FLOAT32 = torch.float32
CHUNK_ELEMENTS = {"cpu": 2**24, "cuda": 2**27}
"""Logits that exist at one time: in float32 64 MB in a CPU's caches, and 512 MB on a card, which
reads the whole output layer anew for each chunk."""
UNUSED_MASK = torch.full((1, 1, 1, 1), torch.nan)
"""Keeps transformers from building a mask of (N, N). Nothing reads it: NaN would show if it did."""


class TokenScores(NamedTuple):
    """What the policy says of each completion token, sequence by sequence, in float32 at least."""

    logprobs: Tensor  # (C,) log-probability; its gradient flows to the model
    entropy: Tensor  # (C,) entropy in nats of the distribution that the log-probability is of


def token_logprobs(
    model: PreTrainedModel,
    batch: MicroBatch,
    *,
    temperature: float,
    vocabulary: int,
    entropy_gradient: bool = False,
) -> TokenScores:
    """Score completion tokens under softmax(logits / temperature).

    Args:
        model: a causal language model whose attention is `attention.NAME`.
        batch: on any device.
        temperature: > 0; that of the sampling for the distribution sampled from.
        vocabulary: ids from here on are padding of the output layer and have probability 0.
        entropy_gradient: let the gradient of the entropy flow to the model too.
    """
    head = model.get_output_embeddings().weight
    device = head.device
    ids = batch.ids.to(device, non_blocking=True)
    positions = batch.positions.to(device, non_blocking=True)
    previous = batch.previous.to(device, non_blocking=True)
    targets = batch.targets.to(device, non_blocking=True)

    hidden = model.get_decoder()(
        input_ids=ids[None],
        position_ids=positions[None],
        attention_mask=UNUSED_MASK,
        use_cache=False,
        layout=Layout(batch.spans, device),
    ).last_hidden_state[0]
    states = take_rows(hidden, previous)

    function = compiled(_log_softmax) if hasattr(model, FUSED) else _log_softmax
    scored = partial(function, temperature=temperature, vocabulary=vocabulary)
    logprobs, entropy = _Scores.apply(  # type: ignore[no-untyped-call]
        states, head, targets, scored, vocabulary, entropy_gradient
    )

    return TokenScores(logprobs=logprobs, entropy=entropy)


class _Scores(torch.autograd.Function):
    """Compute log softmax(states W^T / temperature) at the targets, a chunk of tokens at a time.

    With p the softmax and H its entropy, the gradients in a token's state are
    g (W_y - sum_v p_v W_v) / temperature of the log-prob and
    -h sum_v p_v (log p_v + H) W_v / temperature of the entropy, linear in the incoming gradients g
    and h: all else is known when the token is scored. So if W is frozen, those factors are
    computed in the forward pass, (C, H), and no logits are made twice; if W is trained they are,
    for its gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        head: Tensor,
        targets: Tensor,
        scored: Callable[..., tuple[Tensor, ...]],
        vocabulary: int,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probs (C,) and entropies (C,) of states (C, H) by some `_log_softmax`."""
        weight = head[: scored_rows(head, vocabulary)]
        frozen = ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        ctx.slopes = 2 if entropy_gradient else 1
        slopes_now = ctx.slopes if frozen else 0
        logprobs = []
        entropies = []
        factors: list[list[Tensor]] = [[] for _ in range(slopes_now)]

        for chunk, target in _chunks(weight, states, targets):
            logits = _product(chunk, weight.T)
            logprob, entropy, *slopes = scored(logits, target, slopes=slopes_now)
            logprobs.append(logprob)
            entropies.append(entropy)
            for factor, slope in zip(factors, slopes, strict=True):
                factor.append(slope.to(weight.dtype) @ weight)

        saved = [torch.cat(factor) for factor in factors] if frozen else [states]
        ctx.save_for_backward(head, targets, *saved)
        ctx.frozen = frozen
        ctx.scored = scored
        ctx.vocabulary = vocabulary
        all_entropies = torch.cat(entropies)
        if not entropy_gradient:
            ctx.mark_non_differentiable(all_entropies)

        return torch.cat(logprobs), all_entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in states and head of those in log-probs and entropies, (C,)."""
        gradients = gradients[: ctx.slopes]
        if ctx.frozen:
            in_states, in_head = _frozen_gradient(ctx, gradients), None
        else:
            in_states, in_head = _trained_gradients(ctx, gradients)
        return in_states, in_head, None, None, None, None


def _frozen_gradient(ctx: Any, gradients: tuple[Tensor, ...]) -> Tensor:
    """Return the gradient in the states by the factors of the forward pass."""
    _, _, *factors = ctx.saved_tensors
    total: Tensor = gradients[0][:, None] * factors[0]
    for gradient, factor in zip(gradients[1:], factors[1:], strict=True):
        total = total + gradient[:, None] * factor
    return total.to(factors[0].dtype)


def _trained_gradients(ctx: Any, gradients: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return the gradients in the states and in the output layer, making the logits again."""
    head, targets, states = ctx.saved_tensors
    weight = head[: scored_rows(head, ctx.vocabulary)]
    in_head = torch.zeros_like(head, dtype=torch.promote_types(head.dtype, FLOAT32))
    in_states = []

    for chunk, target, *incoming in _chunks(weight, states, targets, *gradients):
        logits = _product(chunk, weight.T)
        _, _, slope, *others = ctx.scored(logits, target, slopes=ctx.slopes)
        slope.mul_(incoming[0][:, None])
        for other in others:
            slope += other.mul_(incoming[1][:, None])
        slope = slope.to(weight.dtype)
        in_states.append(slope @ weight)
        if in_head.dtype == chunk.dtype:
            in_head[: len(weight)].addmm_(slope.T, chunk)
        else:  # a sum of many chunks would lose the small ones in bfloat16
            in_head[: len(weight)] += _product(slope.T, chunk)

    return torch.cat(in_states), in_head.to(head.dtype)


def scored_rows(head: Tensor, vocabulary: int) -> int:
    """Return how many rows of the output layer are multiplied: on a card also its padding.

    A model is padded to a number of rows for which tensor cores have fast products.
    """
    return len(head) if head.is_cuda else vocabulary


def _chunks(weight: Tensor, *tensors: Tensor) -> Iterator[list[Tensor]]:
    """Yield pieces of all tensors, of so many tokens that their logits are `CHUNK_ELEMENTS`."""
    size = max(1, CHUNK_ELEMENTS[weight.device.type] // len(weight))
    for start in range(0, len(tensors[0]), size):
        # cloned, since code is compiled by offset
        yield [tensor[start : start + size].clone() for tensor in tensors]


def _log_softmax(
    logits: Tensor, targets: Tensor, *, temperature: float, vocabulary: int, slopes: int
) -> tuple[Tensor, ...]:
    """Return log-probs (C,), entropies H (C,), and 0 to 2 gradients of them in the logits (C, V).

    That of the log-prob is (1 at the target - p) / T, and of the entropy -p (log p + H) / T. Both
    are 0 for ids that only pad.
    """
    if torch.compiler.is_compiling():  # a pass less to compile
        logits = logits.clone()
    logs = logits.to(torch.promote_types(logits.dtype, FLOAT32)).div_(temperature)
    logs[:, vocabulary:] = -torch.inf
    logs -= logs.logsumexp(1, keepdim=True)
    p = logs.exp()
    logs[:, vocabulary:] = 0  # 0 times infinity is not a number
    logprobs = logs.gather(1, targets[:, None])[:, 0]
    entropies = -torch.linalg.vecdot(p, logs)
    if slopes == 0:
        return logprobs, entropies

    others = []
    if slopes > 1:
        others.append((logs + entropies[:, None]).mul_(p).div_(-temperature))
    slope = p.neg_()
    slope.scatter_add_(1, targets[:, None], torch.ones_like(slope[:, :1]))

    return logprobs, entropies, slope.div_(temperature), *others


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply; on a card the sums of 16-bit numbers stay in float32, as vLLM's logits there."""
    if a.is_cuda and a.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(a, b, out_dtype=FLOAT32)
    return a @ b
