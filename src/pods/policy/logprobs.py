"""Log-probs of completion tokens and the entropy of the policy at each of them.

No [tokens, vocabulary] array exists for a whole micro-batch.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, H = width of the states,
V = vocabulary.
"""

from collections.abc import Callable
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
    vectors = batch.ids, batch.positions, batch.previous, batch.targets
    ids, positions, previous, targets = (v.to(head.device, non_blocking=True) for v in vectors)
    hidden = model.get_decoder()(
        input_ids=ids[None],
        position_ids=positions[None],
        attention_mask=UNUSED_MASK,
        use_cache=False,
        layout=Layout(batch.spans, head.device),
    ).last_hidden_state[0]
    states = take_rows(hidden, previous)
    function = compiled(_scored) if hasattr(model, FUSED) else _scored
    scored = partial(function, temperature=temperature, vocabulary=vocabulary)
    scores = _Scores.apply(states, head, targets, scored, vocabulary, entropy_gradient)  # type: ignore[no-untyped-call]
    return TokenScores(*scores)


class _Scores(torch.autograd.Function):
    """Compute log softmax(states W^T / temperature) at the targets, a chunk of tokens at a time.

    With p the softmax and H its entropy, the gradients in a token's state are
    g (W_y - sum_v p_v W_v) / temperature of the log-prob and
    -h sum_v p_v (log p_v + H) W_v / temperature of the entropy, linear in the incoming gradients g
    and h: all else is known when the token is scored. So where W is frozen, those factors are
    computed in the forward pass, (C, H), and no logits are made twice; where W is trained they are,
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
        """Return the log-probs (C,) and entropies (C,) of states (C, H) by some `_scored`."""
        weight = head[: scored_rows(head, vocabulary)]
        frozen = ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        ctx.slopes = 1 + entropy_gradient
        scores, entropies, factors = [], [], []
        for chunk, target in _chunks(weight, states, targets):
            logits, count = _product(chunk, weight.T), ctx.slopes if frozen else 0
            score, entropy, *slopes = scored(logits, target, slopes=count)
            scores.append(score)
            entropies.append(entropy)
            factors.append([slope.to(weight.dtype) @ weight for slope in slopes])
        saved = map(torch.cat, zip(*factors, strict=True)) if frozen else [states]
        ctx.save_for_backward(head, targets, *saved)
        ctx.frozen, ctx.scored, ctx.vocabulary = frozen, scored, vocabulary
        entropy = torch.cat(entropies)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return torch.cat(scores), entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        head, targets, saved, *others = ctx.saved_tensors
        gradients = gradients[: ctx.slopes]
        if ctx.frozen:
            factors = zip(gradients, (saved, *others), strict=True)
            in_states = sum(g[:, None] * factor for g, factor in factors)
            return in_states.to(saved.dtype), None, None, None, None, None  # type: ignore[union-attr]
        weight = head[: scored_rows(head, ctx.vocabulary)]
        in_head, parts = torch.zeros_like(head, dtype=torch.promote_types(head.dtype, FLOAT32)), []
        for chunk, target, *g in _chunks(weight, saved, targets, *gradients):
            logits = _product(chunk, weight.T)
            _, _, slope, *others = ctx.scored(logits, target, slopes=ctx.slopes)
            slope.mul_(g[0][:, None])
            for other in others:
                slope += other.mul_(g[1][:, None])
            slope = slope.to(weight.dtype)
            parts.append(slope @ weight)
            if in_head.dtype == chunk.dtype:
                in_head[: len(weight)].addmm_(slope.T, chunk)
            else:  # a sum of many chunks would lose the small ones in bfloat16
                in_head[: len(weight)] += _product(slope.T, chunk)
        return torch.cat(parts), in_head.to(head.dtype), None, None, None, None


def scored_rows(head: Tensor, vocabulary: int) -> int:
    """Return how many rows of the output layer are multiplied: on a card also its padding.

    A model is padded to a number of rows for which tensor cores have fast products.
    """
    return len(head) if head.is_cuda else vocabulary


def _chunks(weight: Tensor, *tensors: Tensor) -> Any:
    size = max(1, CHUNK_ELEMENTS[weight.device.type] // len(weight))
    parts = (tensor.split(size) for tensor in tensors)  # cloned, since code is compiled by offset
    return (map(torch.clone, of) for of in zip(*parts, strict=True))


def _scored(
    logits: Tensor, targets: Tensor, *, temperature: float, vocabulary: int, slopes: int
) -> tuple[Tensor, ...]:
    """Return log-probs (C,), entropies H (C,), and 0 to 2 gradients of them in the logits (C, V).

    That of the log-prob is (1 at the target - p) / T, and of the entropy -p (log p + H) / T. Both
    are 0 for ids that only pad.
    """
    logits = logits.clone() if torch.compiler.is_compiling() else logits  # a pass less to compile
    logs = logits.to(torch.promote_types(logits.dtype, FLOAT32)).div_(temperature)
    logs[:, vocabulary:] = -torch.inf
    logs -= logs.logsumexp(1, keepdim=True)
    p = logs.exp()
    logs[:, vocabulary:] = 0  # 0 times infinity is not a number
    scores, entropies = logs.gather(1, targets[:, None])[:, 0], -torch.linalg.vecdot(p, logs)
    if not slopes:
        return scores, entropies
    others = [(logs + entropies[:, None]).mul_(p).div_(-temperature)] if slopes > 1 else []
    slope = p.neg_()
    slope.scatter_add_(1, targets[:, None], torch.ones_like(slope[:, :1]))
    return scores, entropies, slope.div_(temperature), *others


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply; on a card the sums of 16-bit numbers stay in float32, as vLLM's logits there."""
    if a.is_cuda and a.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(a, b, out_dtype=FLOAT32)
    return a @ b
