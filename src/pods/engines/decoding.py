"""Keys and values of sequences in decoding, and the pass that a card replays for each token.

Shapes: R = sequences decoded together, L = tokens for which there is room, V = vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class RoomyLayer(DynamicLayer):
    """One layer's keys and values, (R, heads, tokens, width), as views of a buffer with more room.

    So they are not copied with each token, and leave no gaps in a card's memory.
    """

    place: Tensor | None = None
    """(1,) index on the device of the next token; a mask hides what of the room is not used."""

    def __init__(self, room: int) -> None:
        """Make room for so many tokens in all."""
        super().__init__()
        self.room = room

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append (R, heads, new, width) states; return all of them, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
            self.buffers: tuple[Tensor, Tensor] | None = None
        start, end = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        if self.buffers is None:
            self.buffers = _with_room(self.keys, self.room), _with_room(self.values, self.room)
        at = slice(start, end) if self.place is None else self.place
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, at] = states
        seen = end if self.place is None else self.room
        self.keys, self.values = (buffer[:, :, :seen] for buffer in self.buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep, repeat or reorder sequences."""
        super().batch_select_indices(indices)
        self.buffers = None


def roomy_cache(room: int) -> Cache:
    """Create an empty cache for any model whose layers attend to all earlier tokens."""
    return Cache(layer_class_to_replicate=partial(RoomyLayer, room))  # type: ignore[arg-type]


def _with_room(states: Tensor, room: int) -> Tensor:
    rows, heads, used, width = states.shape
    buffer = states.new_zeros((rows, heads, room, width))  # not NaN, which no mask would hide
    buffer[:, :, :used] = states
    return buffer


class StaticPass:
    """The forward pass for one more token of each sequence, whose tensors never move.

    So a card can capture it once and replay it, instead of waiting for its host, which takes longer
    to launch a token's kernels than the card to run them. It is for these sequences and weights.
    """

    graph: torch.cuda.CUDAGraph | None = None

    def __init__(
        self, forward: Callable[..., Tensor], attention: Tensor, cache: Cache, capture: Any
    ) -> None:
        """Prepare the token after those in a roomy cache.

        `attention` (R, tokens so far and the next) is 0 where a sequence is padded; `forward` maps
        ids (R, 1), mask (R, 1, 1, L), positions (R, 1) and the cache to logits (R, V). `capture` is
        a card's memory pool and stream, which a graph leaves to the next.
        """
        (rows, used), room = attention.shape, cache.layers[0].room  # type: ignore[attr-defined]
        self.capture, self.place = capture, torch.tensor([used - 1], device=attention.device)
        for layer in cache.layers:
            layer.place = self.place  # type: ignore[attr-defined]
        self.mask = attention.new_zeros((rows, 1, 1, room), dtype=torch.bool)
        self.mask[:, 0, 0, :used] = attention.bool()
        self.positions = attention.sum(1, keepdim=True) - 1
        self.ids = torch.zeros_like(self.positions)
        self.run = partial(forward, self.ids, self.mask, self.positions, cache)

    def __call__(self, token: Tensor, _: Tensor) -> Tensor:
        """Return the logits (R, V) after a token (R,); the next call overwrites them."""
        self.ids.copy_(token[:, None])
        if self.ids.is_cuda and self.graph is None:
            self._capture()
        if self.graph is None:
            self.logits = self.run()
        else:
            self.graph.replay()
        self.place += 1
        self.positions += 1
        self.mask.index_fill_(3, self.place, True)
        return self.logits

    def _capture(self) -> None:
        """Capture the pass; to run it again writes the same keys in the same place."""
        self.graph, (pool, stream) = torch.cuda.CUDAGraph(), self.capture
        self.run()  # what libraries prepare at first use must not be captured
        with torch.cuda.graph(self.graph, pool.id, stream, "thread_local"):
            self.logits = self.run()
