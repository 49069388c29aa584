"""Attention for decoding with grouped heads: keys and values are not copied once a query head.

transformers' sdpa repeats the keys and values of a grouped-query model before each call, which is
most of the time of a decoding step on a CPU. For one new token a sequence the query heads that
share a key head can stand in for query positions instead: the same numbers, no copy.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_grouped"


def grouped_sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Attend; as transformers' `sdpa` but for single-token queries of grouped heads.

    Args:
        module: the attention layer.
        query: (R, heads, Q, width)
        key: (R, key heads, L, width); heads is a multiple of key heads.
        value: as key.
        attention_mask: (R, 1, Q, L) or None.
        scaling: of the scores.
        settings: passed on to transformers.

    Returns:
        (R, Q, heads, width) and no attention weights.
    """
    rows, heads, tokens, width = query.shape
    key_heads = key.shape[1]
    if tokens > 1 or heads == key_heads or settings.get("position_bias") is not None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **settings
        )
        return output, None
    grouped = query.view(rows, key_heads, heads // key_heads, width)
    output = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=scaling
    )
    return output.reshape(rows, 1, heads, width), None


def register() -> None:
    """Make it known to transformers as `attn_implementation=NAME`."""
    AttentionInterface.register(NAME, grouped_sdpa)
    AttentionMaskInterface.register(NAME, sdpa_mask)
