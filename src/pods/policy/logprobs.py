"""Log-probs of completion tokens and the entropy of the policy at each of them.

No [tokens, vocabulary] array exists for a whole micro-batch.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, H = width of the states,
V = vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pods.policy.attention import take_rows
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
    scores = _Scores.apply(states, head, targets, temperature, vocabulary, entropy_gradient)  # type: ignore[no-untyped-call]
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
        temperature: float,
        vocabulary: int,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probs (C,) and entropies (C,) of states (C, H)."""
        weight = head[: scored_rows(head, vocabulary)]
        frozen = ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        scores, entropies, factors = [], [], []
        for chunk, target in _chunks(weight, states, targets):
            logs, p = _log_softmax(chunk, weight, temperature, vocabulary)
            scores.append(logs.gather(1, target[:, None])[:, 0])
            entropies.append(-torch.linalg.vecdot(p, logs))
            if frozen:
                entropy = entropies[-1] if entropy_gradient else None
                slopes = _slopes(logs, p, target, temperature, entropy)
                factors.append([slope.to(weight.dtype) @ weight for slope in slopes])
        saved = map(torch.cat, zip(*factors, strict=True)) if frozen else [states]
        ctx.save_for_backward(head, targets, *saved)
        ctx.frozen, ctx.temperature, ctx.vocabulary = frozen, temperature, vocabulary
        ctx.entropy_gradient = entropy_gradient
        entropy = torch.cat(entropies)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return torch.cat(scores), entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        head, targets, saved, *others = ctx.saved_tensors
        gradients = gradients if ctx.entropy_gradient else gradients[:1]
        if ctx.frozen:
            factors = zip(gradients, (saved, *others), strict=True)
            in_states = sum(g[:, None] * factor for g, factor in factors)
            return in_states.to(saved.dtype), None, None, None, None, None  # type: ignore[union-attr]
        weight = head[: scored_rows(head, ctx.vocabulary)]
        in_head, parts = torch.zeros_like(head, dtype=torch.promote_types(head.dtype, FLOAT32)), []
        for chunk, target, *g in _chunks(weight, saved, targets, *gradients):
            logs, p = _log_softmax(chunk, weight, ctx.temperature, ctx.vocabulary)
            entropy = -torch.linalg.vecdot(p, logs) if ctx.entropy_gradient else None
            slope, *others = _slopes(logs, p, target, ctx.temperature, entropy)
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
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)


def _log_softmax(
    states: Tensor, weight: Tensor, temperature: float, vocabulary: int
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and probabilities (C, V); both are 0 for ids that only pad."""
    logs = _product(states, weight.T)
    logs = logs.to(torch.promote_types(logs.dtype, FLOAT32)).div_(temperature)
    logs[:, vocabulary:] = -torch.inf
    logs -= logs.logsumexp(1, keepdim=True)
    p = logs.exp()
    logs[:, vocabulary:] = 0  # 0 times infinity is not a number
    return logs, p


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply; on a card the sums of 16-bit numbers stay in float32, as vLLM's logits there."""
    if a.is_cuda and a.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(a, b, out_dtype=FLOAT32)
    return a @ b


def _slopes(
    logs: Tensor, p: Tensor, targets: Tensor, temperature: float, entropy: Tensor | None
) -> list[Tensor]:
    """Return gradients in the logits: of the log-prob (1 at the target - p) / T, in p's memory.

    If the entropy H (C,) is given, also its own: -p (log p + H) / T.
    """
    others = []
    if entropy is not None:
        others = [(logs + entropy[:, None]).mul_(p).div_(-temperature)]
    slope = p.neg_()
    slope.scatter_add_(1, targets[:, None], torch.ones_like(slope[:, :1]))
    return [slope.div_(temperature), *others]
