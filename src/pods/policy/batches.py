"""Cut an update's sequences into micro-batches: alike in length, next to no padding.

Shapes: R = sequences of a micro-batch, L = padded prompt + completion.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pods.records import Rollout


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Sequences that go through the model together."""

    members: list[int]
    """(R,) which sequences of the update."""
    ids: Tensor
    """(R, L) prompt, completion, padding on the right."""
    attention: Tensor
    """(R, L) true on real tokens."""
    completion: Tensor
    """(R, L) true on completion tokens."""


def micro_batches(
    rollouts: Sequence[Rollout], members: Sequence[int], tokens: int, pad: int
) -> Iterator[MicroBatch]:
    """Cut sequences into batches of at most `tokens` padded tokens, alike in length."""

    def length(i: int) -> int:
        return len(rollouts[i].prompt_ids) + len(rollouts[i].completion_ids)

    batch: list[int] = []
    for i in sorted(members, key=length):  # ascending: the newest member is the longest
        if batch and (len(batch) + 1) * length(i) > tokens:
            yield _pad([rollouts[j] for j in batch], batch, pad)
            batch = []
        batch.append(i)
    if batch:
        yield _pad([rollouts[j] for j in batch], batch, pad)


def _pad(rollouts: Sequence[Rollout], members: list[int], pad: int) -> MicroBatch:
    width = max(len(r.prompt_ids) + len(r.completion_ids) for r in rollouts)
    ids = torch.full((len(rollouts), width), pad)
    attention = torch.zeros(ids.shape, dtype=torch.bool)
    completion = torch.zeros(ids.shape, dtype=torch.bool)
    for row, rollout in enumerate(rollouts):
        start, end = len(rollout.prompt_ids), len(rollout.prompt_ids) + len(rollout.completion_ids)
        ids[row, :end] = torch.tensor(rollout.prompt_ids + rollout.completion_ids)
        attention[row, :end] = True
        completion[row, start:end] = True
    return MicroBatch(list(members), ids, attention, completion)
