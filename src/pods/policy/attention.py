"""Attention as the harness needs it: over packed rows in the update, over a cache in decoding.

Both spare copies. In a packed row a prompt's keys and values serve all of its completions; in
grouped-query models those of a key head serve the query heads that share it, which stand in for
query positions: the same numbers, where transformers' sdpa repeats keys and values before each
call. Which kernel runs is torch's choice by hardware, dtype and shape.

Shapes: N = tokens of a packed row, H = heads, K = key heads, W = width of a head; of one prompt
P = its tokens, R = its completions, T = tokens of the longest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from pods.policy.packing import Family, MicroBatch

NAME = "sdpa_grouped"
PADDING, PADDING_SHARE = 256, 0.25  # tokens, and of the real ones: more is cut off into other rows


@dataclass(frozen=True, slots=True)
class Rows:
    """Completions of one prompt that are alike in length, padded to the longest of them."""

    padded: Tensor
    """(R, T) where each token lies behind the prompt's end; padding repeats a row's first."""
    real: Tensor
    """(tokens of these completions,) which of the R x T, row by row, are tokens."""
    mask: Tensor
    """(T, P + T) true where a completion's token sees the prompt's, or its own up to itself."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where attention finds each prompt of a packed row and its completions."""

    families: list[tuple[Family, list[Rows]]]

    @classmethod
    def of(cls, batch: MicroBatch, device: torch.device) -> "Layout":
        """Work out, once for all layers, what attention needs."""
        return cls([(family, list(_rows_of(family, device))) for family in batch.families])


def _rows_of(family: Family, device: torch.device) -> Iterator[Rows]:
    """Cut completions, in order, where their padding would outgrow what a further call costs."""
    rows: list[int] = []
    begin = 0
    for length in [*family.lengths, 0]:
        longest, tokens = max([*rows, length]), sum(rows) + length
        padding = (len(rows) + 1) * longest - tokens
        if rows and (length == 0 or padding > max(PADDING, tokens * PADDING_SHARE)):
            yield _padded(rows, begin, family.prompt, device)
            begin, rows = begin + sum(rows), []
        rows.append(length)


def _padded(rows: list[int], begin: int, prompt: int, device: torch.device) -> Rows:
    lengths, column = torch.tensor(rows), torch.arange(max(rows))
    inside = column < lengths[:, None]
    first = begin + lengths.cumsum(0) - lengths
    padded = first[:, None] + torch.where(inside, column, 0)
    seen = torch.arange(prompt + max(rows)) <= prompt + column[:, None]
    return Rows(padded.to(device), inside.flatten().nonzero()[:, 0].to(device), seen.to(device))


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
    """Attend; as transformers' `sdpa` but for packed rows and single-token queries.

    Args:
        module: the attention layer.
        query: (R, H, Q, W)
        key: (R, K, L, W); H is a multiple of K.
        value: as key.
        attention_mask: (R, 1, Q, L) or None.
        scaling: of the scores.
        layout: of a packed row, (1, H, N, W), whose mask it stands in for.
        settings: passed on to transformers.

    Returns:
        (R, Q, H, W) and no attention weights.
    """
    if layout is not None:
        return _packed(query, key, value, scaling, layout), None
    rows, heads, tokens, width = query.shape
    if tokens > 1 or heads == key.shape[1] or settings.get("position_bias") is not None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **settings
        )
        return output, None
    return _grouped(query, key, value, attention_mask, scaling).view(rows, 1, heads, width), None


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None
) -> Tensor:
    """Attend with the query heads of a key head as query positions; (R, H, Q, W)."""
    rows, heads, tokens, width = query.shape
    key_heads = key.shape[1]
    if tokens > 1 and mask is not None:
        mask = mask.repeat(heads // key_heads, 1)  # (Q, L), alike for all rows
    output = scaled_dot_product_attention(
        query.reshape(rows, key_heads, heads // key_heads * tokens, width),
        key, value, attn_mask=mask, scale=scaling,
    )  # fmt: skip
    return output.view(rows, heads, tokens, width)


def _packed(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, layout: Layout
) -> Tensor:
    """Attend within each prompt, and from its completions to it and to themselves: (1, N, H, W)."""
    _, heads, tokens, width = query.shape
    outputs = []
    for family, cuts in layout.families:
        start, end = family.start, family.start + family.prompt
        q, k, v = (states[:, :, start:end] for states in (query, key, value))
        each = heads // k.shape[1]  # here copies are small, and any kernel takes them
        prompt = scaled_dot_product_attention(
            q, k.repeat_interleave(each, 1), v.repeat_interleave(each, 1),
            is_causal=True, scale=scaling,
        )  # fmt: skip
        outputs.append(prompt[0].transpose(0, 1).flatten(1))
        own = [
            states[0, :, end : family.end].transpose(0, 1).flatten(1)
            for states in (query, key, value)
        ]
        for rows in cuts:
            asked, keys, values = (_take(states, rows.padded, width) for states in own)
            keys, values = (
                torch.cat([shared.expand(len(states), -1, -1, -1), states], dim=2)
                for shared, states in ((k, keys), (v, values))
            )
            found = _grouped(asked, keys, values, rows.mask, scaling)
            outputs.append(embedding(rows.real, found.transpose(1, 2).reshape(-1, heads * width)))
    return torch.cat(outputs).view(1, tokens, heads, width)


def _take(states: Tensor, places: Tensor, width: int) -> Tensor:
    """Rows of tokens, (tokens, heads x W) at (R, T) places, as (R, heads, T, W)."""
    rows, longest = places.shape
    return embedding(places, states).view(rows, longest, -1, width).transpose(1, 2)


def register() -> None:
    """Make it known to transformers as `attn_implementation=NAME`."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
