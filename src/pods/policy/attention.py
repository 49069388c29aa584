"""Attention over packed rows in the update, and over a cache in decoding.

Both avoid copies. In a packed row a prompt's keys and values serve all of its completions. In
grouped-query models the keys and values of a key head serve all query heads that share it, which
are passed as query positions: the same numbers, but transformers' sdpa repeats keys and values
before each call. torch chooses the kernel by hardware, dtype and shape. Where a card has a kernel
for sequences of unequal lengths, one call of it serves a whole packed row, without padding.

Shapes: N = tokens of a packed row, H = heads, K = key heads, W = width of a head; of one prompt
R = its completions, T = tokens of the longest.
"""

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from pods.policy.packing import CompletionRows, Layout

NAME = "sdpa_grouped"


def takes_unequal_lengths(device_type: str, dtype: torch.dtype, width: int) -> bool:
    """Tell whether torch has a kernel for unequal lengths: flash attention, of some head widths."""
    width_fits = width % 8 == 0 and width <= 192  # above, some cards have no gradient
    return device_type == "cuda" and dtype in (torch.bfloat16, torch.float16) and width_fits


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    layout: Layout | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' `sdpa` does, except in packed rows and for single-token queries.

    The signature is that of transformers' attention functions: query (R, H, Q, W), key and value
    (R, K, L, W), where H is a multiple of K, and a mask (R, 1, Q, L). A packed row (1, H, N, W) has
    a layout in its place. The result is (R, Q, H, W), and no attention weights.
    """
    if layout is not None:
        fits = takes_unequal_lengths(query.device.type, query.dtype, query.shape[-1])
        packed = _by_sequence if fits else _packed
        return packed(query, key, value, scaling, layout), None

    rows, heads, tokens, width = query.shape
    if tokens > 1 or heads == key.shape[1] or settings.get("position_bias") is not None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **settings
        )
        return output, None

    return _grouped(query, key, value, attention_mask, scaling).reshape(rows, 1, heads, width), None


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None
) -> Tensor:
    """Attend with the query heads of a key head as query positions; return (R, H, Q, W)."""
    rows, heads, tokens, width = query.shape
    key_heads = key.shape[1]
    if tokens > 1 and mask is not None:
        mask = mask.repeat(heads // key_heads, 1)  # (Q, L), the same for all rows
    queries = query.reshape(rows, key_heads, heads // key_heads * tokens, width)
    output = scaled_dot_product_attention(queries, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(rows, heads, tokens, width)


def _by_sequence(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, layout: Layout
) -> Tensor:
    """Attend as `_packed` does, in one call of torch's kernel for unequal lengths."""
    from torch.nn.attention.varlen import varlen_attn  # imports all of torch's compiler

    row = layout.sequences

    def gathered(states: Tensor) -> Tensor:
        """Return the states of the keys of each sequence, (keys, K, W)."""
        flat = states[0].transpose(0, 1).flatten(1)
        keys = take_rows(flat, row.keys)
        return keys.unflatten(1, states.shape[1::2])  # type: ignore[no-any-return, no-untyped-call]

    output = varlen_attn(
        query[0].transpose(0, 1),
        gathered(key),
        gathered(value),
        row.query_ends,
        row.key_ends,
        row.most_queries,
        row.most_keys,
        scale=scaling,
        window_size=(-1, 0),  # causal
        **_grouping(varlen_attn),
    )
    assert isinstance(output, Tensor)

    return output[None]


@cache
def _grouping(kernel: Callable[..., Any]) -> dict[str, Any]:
    """Return the setting by which a kernel groups query heads; torch 2.11's does without one."""
    return {"enable_gqa": True} if "enable_gqa" in signature(kernel).parameters else {}


def _packed(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, layout: Layout
) -> Tensor:
    """Attend within each prompt, and from completions to it and to themselves: (1, N, H, W)."""
    _, heads, tokens, width = query.shape
    outputs = []
    for span, completion_rows in layout.padded:
        start = span.start
        end = start + span.prompt_length
        prompt = States(query[:, :, start:end], key[:, :, start:end], value[:, :, start:end])
        outputs.append(_prompt_attention(prompt, scaling))

        stop = end + sum(span.lengths)
        completions = States(
            query=query[0, :, end:stop].transpose(0, 1).flatten(1),
            key=key[0, :, end:stop].transpose(0, 1).flatten(1),
            value=value[0, :, end:stop].transpose(0, 1).flatten(1),
        )
        for rows in completion_rows:
            output = _completion_attention(completions, prompt, rows, scaling)
            states = output.transpose(1, 2).reshape(-1, heads * width)
            outputs.append(take_rows(states, rows.real))

    return torch.cat(outputs).view(1, tokens, heads, width)


class States(NamedTuple):
    """Queries, keys and values of some tokens."""

    query: Tensor
    key: Tensor
    value: Tensor


def _prompt_attention(prompt: States, scaling: float | None) -> Tensor:
    """Attend within a prompt, whose states are (1, heads, P, W); return (P, H W)."""
    repeats = prompt.query.shape[1] // prompt.key.shape[1]
    # copies of a prompt are small, and any kernel takes them
    keys = prompt.key.repeat_interleave(repeats, 1)
    values = prompt.value.repeat_interleave(repeats, 1)
    output = scaled_dot_product_attention(prompt.query, keys, values, is_causal=True, scale=scaling)
    return output[0].transpose(0, 1).flatten(1)


def _completion_attention(
    completions: States, prompt: States, rows: CompletionRows, scaling: float | None
) -> Tensor:
    """Attend from completions to their prompt and to themselves: (R, H, T, W).

    The states of the completions are (tokens, heads W), those of the prompt (1, heads, P, W).
    """
    width = prompt.query.shape[-1]

    def padded(states: Tensor) -> Tensor:
        """Return states as rows of equal length, (R, heads, T, W)."""
        rows_of_heads: Tensor = take_rows(states, rows.padded).unflatten(2, (-1, width))  # type: ignore[no-untyped-call]
        return rows_of_heads.transpose(1, 2)

    def with_prompt(shared: Tensor, states: Tensor) -> Tensor:
        """Return the states of the prompt and of each completion, (R, K, P + T, W)."""
        separate = padded(states)
        return torch.cat([shared.expand(len(separate), -1, -1, -1), separate], dim=2)

    return _grouped(
        padded(completions.query),
        with_prompt(prompt.key, completions.key),
        with_prompt(prompt.value, completions.value),
        rows.mask,
        scaling,
    )


def take_rows(states: Tensor, indices: Tensor) -> Tensor:
    """Take rows of states (tokens, width) by indices of any shape; return (*that shape, width)."""
    if not states.is_cuda:
        return embedding(indices, states)  # not indexing, whose gradient is slow on a CPU
    taken = _Rows.apply(states, indices.flatten())  # type: ignore[no-untyped-call]
    return taken.view(*indices.shape, -1)  # type: ignore[no-any-return]


class _Rows(torch.autograd.Function):
    """Take rows (rows,) of states (tokens, width); `embedding`'s gradient would sort on a card.

    A row that is taken often, as a prompt's is, has its gradients summed in float32.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.tokens = len(states)
        return states.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        [gradient] = gradients
        [indices] = ctx.saved_tensors
        wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        total = wide.new_zeros(ctx.tokens, gradient.shape[1]).index_add_(0, indices, wide)
        return total.to(gradient.dtype), None


AttentionInterface.register(NAME, attend)  # for transformers' `attn_implementation`
AttentionMaskInterface.register(NAME, sdpa_mask)
