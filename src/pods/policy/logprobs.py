"""Log-probs of completion tokens, without a [tokens, vocabulary] array for a whole micro-batch.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, H = width of the states,
V = vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear
from transformers import PreTrainedModel

from pods.policy.attention import layout_of
from pods.policy.packing import MicroBatch

CHUNK_ELEMENTS = 2**24  # logits that exist at one time: 64 MB in float32
UNUSED_MASK = torch.full((1, 1, 1, 1), torch.nan)
"""Keeps transformers from building a mask of (N, N). Nothing reads it: NaN would show if it did."""


def token_logprobs(
    model: PreTrainedModel, batch: MicroBatch, *, temperature: float, vocabulary: int
) -> Tensor:
    """Score completion tokens under softmax(logits / temperature), the distribution sampled from.

    Args:
        model: a causal language model whose attention is `attention.NAME`.
        batch: on any device; it is scored on the model's.
        temperature: of the sampling, > 0.
        vocabulary: ids from here on are padding of the output layer and have probability 0.

    Returns:
        (C,) sequence by sequence, in float32 at least; the gradient flows to the model.
    """
    head = model.get_output_embeddings().weight
    ids, positions, previous, targets = (
        each.to(head.device) for each in (batch.ids, batch.positions, batch.previous, batch.targets)
    )
    hidden = model.get_decoder()(
        input_ids=ids[None],
        position_ids=positions[None],
        attention_mask=UNUSED_MASK,
        use_cache=False,
        layout=layout_of(batch, head.device),
    ).last_hidden_state[0]
    states = embedding(previous, hidden)  # not indexing, whose gradient is slow on a CPU
    return _Logprobs.apply(states, head, targets, temperature, vocabulary)  # type: ignore[no-any-return, no-untyped-call]


class _Logprobs(torch.autograd.Function):
    """Compute log softmax(states W^T / temperature) at the targets, a chunk of tokens at a time.

    The gradient in a token's state is g (W_y - sum_v p_v W_v) / temperature, linear in the incoming
    gradient g: all else is known when the token is scored. So where W is frozen, that factor is
    computed in the forward pass, (C, H), and no logits are made twice; where W is trained they are,
    for its gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, head: Tensor, targets: Tensor, temperature: float, vocabulary: int
    ) -> Tensor:
        """Return the log-probs (C,) of states (C, H)."""
        weight = head[:vocabulary]
        frozen = ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        scores, slopes = [], []
        for chunk, target in _chunks(vocabulary, states, targets):
            logits = _logits(chunk, weight, temperature)
            total = logits.logsumexp(1, keepdim=True)
            scores.append((logits.gather(1, target[:, None]) - total)[:, 0])
            if frozen:
                slopes.append(_slope(logits, total, target, temperature).to(weight.dtype) @ weight)
        saved = torch.cat(slopes) if frozen else states
        ctx.save_for_backward(saved, head, targets)
        ctx.frozen, ctx.temperature, ctx.vocabulary = frozen, temperature, vocabulary
        return torch.cat(scores)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in the states, and in the head where it is trained."""
        (gradient,) = gradients
        saved, head, targets = ctx.saved_tensors
        if ctx.frozen:
            return (gradient[:, None] * saved).to(saved.dtype), None, None, None, None
        weight = head[: ctx.vocabulary]
        in_head, in_states = torch.zeros_like(head), []
        for chunk, target, g in _chunks(ctx.vocabulary, saved, targets, gradient):
            logits = _logits(chunk, weight, ctx.temperature)
            slope = _slope(logits, logits.logsumexp(1, keepdim=True), target, ctx.temperature)
            slope = slope.mul_(g[:, None]).to(weight.dtype)
            in_states.append(slope @ weight)
            in_head[: ctx.vocabulary].addmm_(slope.T, chunk)
        return torch.cat(in_states), in_head, None, None, None


def _chunks(vocabulary: int, *tensors: Tensor) -> Any:
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)


def _logits(states: Tensor, weight: Tensor, temperature: float) -> Tensor:
    logits = linear(states, weight)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).div_(temperature)


def _slope(logits: Tensor, total: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Turn logits into the log-probs' gradient in them: (1 at the target - p) / temperature."""
    slope = logits.sub_(total).exp_().neg_()
    slope.scatter_add_(1, targets[:, None], torch.ones_like(total))
    return slope.div_(temperature)
