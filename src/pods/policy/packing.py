"""Micro-batches of an update without padding, a prompt once for all of its completions.

A micro-batch is one row of tokens: a prompt, the completions that were drawn from it end to end,
the next prompt, its completions. The model's layers work on tokens and see no padding; attention
(`attention.py`) lets each completion see its prompt and itself.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, R = completions of one
prompt, T = tokens of the longest of these, P = tokens of the prompt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pods.records import Rollout


@dataclass(frozen=True, slots=True)
class Family:
    """Where a prompt and its completions lie in the row."""

    start: int
    """The prompt's first token."""
    prompt: int
    """Its tokens, P; the completions follow."""
    lengths: list[int]
    """(R,) tokens of each completion."""

    @property
    def end(self) -> int:
        """One past the last completion's last token."""
        return self.start + self.prompt + sum(self.lengths)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Sequences that go through the model together."""

    members: list[int]
    """Which sequences of the update, in the order of the row."""
    lengths: list[int]
    """Completion tokens of each member."""
    families: list[Family]
    ids: Tensor
    """(N,) the row."""
    positions: Tensor
    """(N,) of each token in its own sequence."""
    before: Tensor
    """(C,) where the token before each completion token lies in the row; its state predicts it."""
    targets: Tensor
    """(C,) the completion tokens."""


def micro_batches(
    rollouts: Sequence[Rollout], members: Sequence[int], tokens: int
) -> Iterator[MicroBatch]:
    """Lay out sequences in batches of at most `tokens` tokens each, as `cuts` cuts them."""
    return (pack(rollouts, batch) for batch in cuts(rollouts, members, tokens))


def cuts(
    rollouts: Sequence[Rollout], members: Sequence[int], tokens: int
) -> Iterator[list[list[int]]]:
    """Cut sequences into batches of at most `tokens` tokens each, where one sequence allows that.

    A prompt counts once, each of its completions as long as their longest, since attention pads
    them; they go by length, so that there is little to pad. A prompt whose completions do not fit
    into one batch comes once in each of its batches.
    """
    families: dict[tuple[int, ...], list[int]] = {}
    for i in members:
        families.setdefault(rollouts[i].prompt_ids, []).append(i)
    batch: list[list[int]] = []
    before = 0  # tokens of the families that are whole
    for prompt, family in families.items():
        batch.append([])
        needed = 0
        for i in sorted(family, key=lambda i: len(rollouts[i].completion_ids)):
            longest = len(rollouts[i].completion_ids)  # so far: ascending
            needed = len(prompt) + (len(batch[-1]) + 1) * longest
            if before + needed > tokens and any(batch):
                yield batch
                batch, before, needed = [[]], 0, len(prompt) + longest
            batch[-1].append(i)
        before += needed
    if any(batch):
        yield batch


def divide(rollouts: Sequence[Rollout], members: Sequence[int], parts: int) -> list[list[int]]:
    """Deal sequences out to processes, about as many tokens to each, few prompts to more than one.

    Returns:
        One list a process, in the order of the prompts; together `members`, each once.
    """
    families: dict[tuple[int, ...], list[int]] = {}
    for i in members:
        families.setdefault(rollouts[i].prompt_ids, []).append(i)
    costs = [
        (i, len(rollouts[i].completion_ids) + (place == 0) * len(prompt))
        for prompt, family in families.items()
        for place, i in enumerate(family)
    ]
    total, before = sum(cost for _, cost in costs), 0
    dealt: list[list[int]] = [[] for _ in range(parts)]
    for i, cost in costs:  # by the middle of its tokens in the row of all
        dealt[(2 * before + cost) * parts // (2 * total)].append(i)
        before += cost
    return dealt


def pack(rollouts: Sequence[Rollout], families: Sequence[Sequence[int]]) -> MicroBatch:
    """Lay out sequences in one row; each family's share their prompt, and none is empty."""
    placed, ids, positions, before = list[Family](), list[int](), list[int](), list[int]()
    families = [family for family in families if family]
    for family in families:
        prompt = rollouts[family[0]].prompt_ids
        lengths = [len(rollouts[i].completion_ids) for i in family]
        placed.append(Family(len(ids), len(prompt), lengths))
        last = len(ids) + len(prompt) - 1
        ids += prompt
        positions += range(len(prompt))
        for i, length in zip(family, lengths, strict=True):
            before += [last, *range(len(ids), len(ids) + length - 1)]
            ids += rollouts[i].completion_ids
            positions += range(len(prompt), len(prompt) + length)
    members = [i for family in families for i in family]
    targets = [token for i in members for token in rollouts[i].completion_ids]
    return MicroBatch(
        members, [length for one in placed for length in one.lengths], placed,
        *map(torch.tensor, (ids, positions, before, targets)),
    )  # fmt: skip
