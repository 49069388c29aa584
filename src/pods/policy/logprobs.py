"""Log-probs of completion tokens, never with a [tokens, vocabulary] array for a whole batch.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, H = width of the states,
V = vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear
from transformers import PreTrainedModel

from pods.policy.attention import Layout
from pods.policy.packing import MicroBatch

CHUNK_ELEMENTS = 2**24  # logits that exist at one time: 64 MB in float32
UNUSED = torch.full((1, 1, 1, 1), torch.nan)
"""A mask that spares transformers making one of (N, N); if anything read it, that would show."""


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
        (C,) member by member, in float32 at least; the gradient flows to the model.
    """
    head = model.get_output_embeddings().weight
    ids, positions, before, targets = (
        part.to(head.device) for part in (batch.ids, batch.positions, batch.before, batch.targets)
    )
    hidden = model.get_decoder()(
        input_ids=ids[None],
        position_ids=positions[None],
        attention_mask=UNUSED,
        use_cache=False,
        layout=Layout.of(batch, head.device),
    ).last_hidden_state[0]
    states = embedding(before, hidden)  # not indexing, whose gradient takes a core and its time
    return _Logprobs.apply(states, head, targets, temperature, vocabulary)  # type: ignore[no-any-return, no-untyped-call]


class _Logprobs(torch.autograd.Function):
    """log softmax(states W^T / temperature) at the targets, a chunk of tokens at a time.

    The gradient in a token's state is g (W_y - sum_v p_v W_v) / temperature, linear in what comes
    from behind: all but g is known when the token is scored. So where W is frozen it is worked out
    there, (C, H), and no logits are made twice; where W is trained they are, for its gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, head: Tensor, targets: Tensor, temperature: float, vocabulary: int
    ) -> Tensor:
        """Score (C, H) states; returns (C,)."""
        weight = head[:vocabulary]
        frozen = ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        scores, slopes = [], []
        for piece, wanted in _chunks(vocabulary, states, targets):
            logits = _logits(piece, weight, temperature)
            total = logits.logsumexp(1, keepdim=True)
            scores.append((logits.gather(1, wanted[:, None]) - total)[:, 0])
            if frozen:
                slopes.append(_slope(logits, total, wanted, temperature).to(weight.dtype) @ weight)
        kept = torch.cat(slopes) if frozen else states
        ctx.save_for_backward(kept, head, targets)
        ctx.frozen, ctx.temperature, ctx.vocabulary = frozen, temperature, vocabulary
        return torch.cat(scores)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Take (C,) gradients to the states, and to the head where it is trained."""
        (gradient,) = gradients
        kept, head, targets = ctx.saved_tensors
        if ctx.frozen:
            return (gradient[:, None] * kept).to(kept.dtype), None, None, None, None
        weight = head[: ctx.vocabulary]
        of_head, of_states = torch.zeros_like(head), []
        for piece, wanted, g in _chunks(ctx.vocabulary, kept, targets, gradient):
            logits = _logits(piece, weight, ctx.temperature)
            slope = _slope(logits, logits.logsumexp(1, keepdim=True), wanted, ctx.temperature)
            slope = slope.mul_(g[:, None]).to(weight.dtype)
            of_states.append(slope @ weight)
            of_head[: ctx.vocabulary].addmm_(slope.T, piece)
        return torch.cat(of_states), of_head, None, None, None


def _chunks(vocabulary: int, *parts: Tensor) -> Any:
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    return zip(*(part.split(size) for part in parts), strict=True)


def _logits(states: Tensor, weight: Tensor, temperature: float) -> Tensor:
    logits = linear(states, weight)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).div_(temperature)


def _slope(logits: Tensor, total: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Of the log-probs in the raw logits: (1 at the target - p) / temperature; takes `logits`."""
    slope = logits.sub_(total).exp_().neg_()
    slope.scatter_add_(1, targets[:, None], torch.ones_like(total))
    return slope.div_(temperature)
