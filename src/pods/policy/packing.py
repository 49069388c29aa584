"""Pack the rollouts of an update into micro-batches, each prompt only once.

A micro-batch is one row of tokens: a prompt, the completions that were drawn from it end to end,
the next prompt, its completions. The model's layers work on tokens and see no padding; attention
(`attention.py`) pads the completions of a prompt, and lets each see its prompt and itself.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, R = completions of one
prompt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pods.types import Rollout


@dataclass(frozen=True, slots=True)
class PromptSpan:
    """The positions of a prompt and its completions in the row."""

    start: int
    """Index of the prompt's first token."""
    prompt_length: int
    """Tokens of the prompt; the completions follow them."""
    lengths: list[int]
    """(R,) tokens of each completion."""

    @property
    def end(self) -> int:
        """The index after the last completion's last token."""
        return self.start + self.prompt_length + sum(self.lengths)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Sequences that go through the model together."""

    indices: list[int]
    """The index, among the rollouts of the update, of each sequence in the order of the row."""
    lengths: list[int]
    """Completion tokens of each sequence."""
    spans: list[PromptSpan]
    """The prompts of the row."""
    ids: Tensor
    """(N,) token ids of the row."""
    positions: Tensor
    """(N,) position of each token in its own sequence."""
    previous: Tensor
    """(C,) index in the row of the token before each completion token; its state predicts it."""
    targets: Tensor
    """(C,) ids of the completion tokens."""


def plan_micro_batches(
    rollouts: Sequence[Rollout], indices: Sequence[int], tokens: int
) -> Iterator[list[list[int]]]:
    """Group sequences into batches of at most `tokens` tokens; a longer one is alone in its batch.

    A prompt counts once, each of its completions as long as their longest, since attention pads
    them; they are sorted by length, so that there is little to pad. A prompt whose completions do
    not fit into one batch comes once in each of its batches.

    Yields:
        The indices of a batch, one list for each of its prompts, as `pack` takes them.
    """
    batch: list[list[int]] = []
    before = 0  # tokens of the batch's earlier prompts and their completions
    for prompt, same_prompt in _by_prompt(rollouts, indices).items():
        batch.append([])
        needed = 0
        for i in sorted(same_prompt, key=lambda i: len(rollouts[i].completion_ids)):
            longest = len(rollouts[i].completion_ids)  # so far: ascending
            needed = len(prompt) + (len(batch[-1]) + 1) * longest
            if before + needed > tokens and any(batch):
                yield batch
                batch, before, needed = [[]], 0, len(prompt) + longest
            batch[-1].append(i)
        before += needed
    if any(batch):
        yield batch


def split_among_processes(
    rollouts: Sequence[Rollout], indices: Sequence[int], processes: int
) -> list[list[int]]:
    """Split sequences into shares of about as many tokens, with few prompts in more than one.

    Returns:
        One list per process, in the order of the prompts; together they are `indices`.
    """
    costs = [
        (i, len(rollouts[i].completion_ids) + (i == same_prompt[0]) * len(prompt))
        for prompt, same_prompt in _by_prompt(rollouts, indices).items()
        for i in same_prompt
    ]
    total, before = sum(cost for _, cost in costs), 0
    shares: list[list[int]] = [[] for _ in range(processes)]
    for i, cost in costs:  # by the middle of its tokens in the row of all
        shares[(2 * before + cost) * processes // (2 * total)].append(i)
        before += cost
    return shares


def _by_prompt(
    rollouts: Sequence[Rollout], indices: Sequence[int]
) -> dict[tuple[int, ...], list[int]]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for i in indices:
        groups.setdefault(rollouts[i].prompt_ids, []).append(i)
    return groups


def pack(rollouts: Sequence[Rollout], batch: Sequence[Sequence[int]]) -> MicroBatch:
    """Lay out sequences in one row; each list of indices shares one prompt."""
    spans, ids, positions, previous = list[PromptSpan](), list[int](), list[int](), list[int]()
    groups = [group for group in batch if group]
    for group in groups:
        prompt = rollouts[group[0]].prompt_ids
        lengths = [len(rollouts[i].completion_ids) for i in group]
        spans.append(PromptSpan(len(ids), len(prompt), lengths))
        last = len(ids) + len(prompt) - 1
        ids += prompt
        positions += range(len(prompt))
        for i, length in zip(group, lengths, strict=True):
            previous += [last, *range(len(ids), len(ids) + length - 1)]
            ids += rollouts[i].completion_ids
            positions += range(len(prompt), len(prompt) + length)
    indices = [i for group in groups for i in group]
    targets = [token for i in indices for token in rollouts[i].completion_ids]
    return MicroBatch(
        indices,
        [length for span in spans for length in span.lengths],
        spans,
        *map(torch.tensor, (ids, positions, previous, targets)),
    )
