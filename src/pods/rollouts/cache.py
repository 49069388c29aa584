"""A key-value cache that appends in place: transformers' own copies itself for every token."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

BLOCK = 128  # tokens of head room; the cache is copied once in so many tokens


class BlockLayer(DynamicLayer):
    """One layer's keys and values, (R, heads, tokens, width), as views of a buffer with room."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append (R, heads, new, width) states; return all of them, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states[:, :, :0]
            self.values = value_states[:, :, :0]
            self.buffers: tuple[Tensor, Tensor] | None = None
        start, end = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        if self.buffers is None or end > self.buffers[0].shape[2]:
            self.buffers = (_with_room(self.keys, end), _with_room(self.values, end))
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep, repeat or reorder sequences."""
        super().batch_select_indices(indices)
        self.buffers = None


def block_cache() -> Cache:
    """An empty cache for any model whose layers attend to everything."""
    return Cache(layer_class_to_replicate=BlockLayer)


def _with_room(states: Tensor, tokens: int) -> Tensor:
    rows, heads, used, width = states.shape
    buffer = torch.empty(
        (rows, heads, tokens + BLOCK, width), dtype=states.dtype, device=states.device
    )
    buffer[:, :, :used] = states
    return buffer
