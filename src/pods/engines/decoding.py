"""Keys and values of sequences in decoding, in a buffer with room for the tokens to come.

Shapes: R = sequences decoded together.
"""

from functools import partial
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class RoomyLayer(DynamicLayer):
    """One layer's keys and values, (R, heads, tokens, width), as views of a buffer with more room.

    So they are not copied with each token, and leave no gaps in a card's memory.
    """

    def __init__(self, room: int) -> None:
        """Make room for `room` tokens in all."""
        super().__init__()
        self.room = room
        self.buffers: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append (R, heads, new, width) states; return all of them, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states[:, :, :0]
            self.values = value_states[:, :, :0]
            self.buffers = None

        if self.buffers is None:
            self.buffers = _with_room(self.keys, self.room), _with_room(self.values, self.room)

        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        keys, values = self.buffers
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        self.keys = keys[:, :, :end]
        self.values = values[:, :, :end]

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
    buffer = states.new_zeros((rows, heads, room, width))
    buffer[:, :, :used] = states
    return buffer
