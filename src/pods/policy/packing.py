"""Pack the rollouts of an update into micro-batches, each prompt only once.

A micro-batch is one row of tokens: a prompt, the completions that were drawn from it end to end,
the next prompt, its completions. The model's layers work on tokens and see no padding; attention
(`attention.py`) lets each completion see its prompt and itself, and finds them by a `Layout`: as
rows that are padded, or as sequences of unequal lengths.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, S = sequences (prompts and
completions); of one prompt P = its tokens, R = its completions, T = tokens of the longest.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate

import torch
from torch import Tensor

from pods.types import Prompt, Rollout

PADDING, PADDING_SHARE = 256, 0.25  # most padding of a call: tokens, or a share of the real ones


@dataclass(frozen=True, slots=True)
class PromptSpan:
    """The positions of a prompt and its completions in the row."""

    start: int  # index of the prompt's first token
    prompt_length: int  # tokens of the prompt; the completions follow them
    lengths: list[int]  # (R,) tokens of each completion


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Sequences that go through the model together."""

    indices: list[int]  # of each sequence in the row's order, among the rollouts of the update
    lengths: list[int]  # completion tokens of each sequence
    spans: list[PromptSpan]  # the prompts of the row
    ids: Tensor  # (N,) token ids of the row
    positions: Tensor  # (N,) position of each token in its own sequence
    previous: Tensor
    """(C,) index in the row of the token before each completion token; its state predicts it."""
    targets: Tensor  # (C,) ids of the completion tokens


def plan_micro_batches(
    rollouts: Sequence[Rollout], indices: Sequence[int], tokens: int
) -> list[list[list[int]]]:
    """Group sequences into few batches of at most `tokens` tokens; a longer one is alone in one.

    A prompt counts once, each of its completions as long as their longest, since attention pads
    them; they are sorted by length, so that there is little to pad. A prompt whose completions do
    not fit into one batch comes once in each of its batches. A batch has a list of indices for each
    of its prompts, as `pack` takes them. All have the least limit that needs no more batches, so
    that none is left nearly empty.
    """
    lengths = [len(rollout.completion_ids) for rollout in rollouts]
    groups = [sorted(g, key=lengths.__getitem__) for g in _by_prompt(rollouts, indices).values()]
    filled = partial(_fill, rollouts, groups)
    if len(batches := [*filled(tokens)]) < 2:
        return batches
    least = bisect_left(range(tokens), -len(batches), key=lambda limit: -len([*filled(limit)]))
    return [*filled(least)]


def _fill(
    rollouts: Sequence[Rollout], groups: Sequence[Sequence[int]], tokens: int
) -> Iterator[list[list[int]]]:
    batch: list[list[int]] = []
    before = 0  # tokens of the batch's earlier prompts and their completions
    for group in groups:
        prompt, needed = len(rollouts[group[0]].prompt_ids), 0
        batch.append([])
        for i in group:
            longest = len(rollouts[i].completion_ids)  # so far: ascending
            needed = prompt + (len(batch[-1]) + 1) * longest
            if before + needed > tokens and any(batch):
                yield batch
                batch, before, needed = [[]], 0, prompt + longest
            batch[-1].append(i)
        before += needed
    if any(batch):
        yield batch


def split_among_processes(
    rollouts: Sequence[Rollout], indices: Sequence[int], processes: int
) -> list[list[int]]:
    """Split sequences, in the order of their prompts, into one share of the tokens per process."""
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


def _by_prompt(rollouts: Sequence[Rollout], indices: Sequence[int]) -> dict[Prompt, list[int]]:
    groups: dict[Prompt, list[int]] = {}
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
    lengths = [length for span in spans for length in span.lengths]
    tensors = map(torch.tensor, (ids, positions, previous, targets))
    return MicroBatch(indices, lengths, spans, *tensors)


@dataclass(frozen=True, slots=True)
class CompletionRows:
    """Completions of one prompt of similar length, padded to the longest of them."""

    padded: Tensor
    """(R, T) offset of each token from the prompt's end; padding repeats a row's first token."""
    real: Tensor  # (real tokens,) indices of those that are not padding among the R x T, row by row
    mask: Tensor  # (T, P + T) true where a completion's token sees one of the prompt or its past


@dataclass(frozen=True, slots=True)
class Sequences:
    """Prompts and completions, in the order of the row, as sequences of unequal lengths.

    The last query of a sequence sees all of its keys, the one before it one key fewer.
    """

    query_ends: Tensor  # (S + 1,) int32: 0, and after each sequence the number of queries so far
    key_ends: Tensor  # (S + 1,) int32: the same of keys; a completion's: its prompt's and its own
    most_queries: int  # of one sequence
    most_keys: int  # of one sequence
    keys: Tensor  # (keys of all sequences,) the index in the row of each key


@dataclass(frozen=True)
class Layout:
    """The prompts of a packed row; what attention needs of them is made once for all layers."""

    spans: list[PromptSpan]
    device: torch.device

    @cached_property
    def padded(self) -> list[tuple[PromptSpan, list[CompletionRows]]]:
        """The positions of each prompt and of its completions, with masks."""
        return [(span, list(_completion_rows(span, self.device))) for span in self.spans]

    @cached_property
    def sequences(self) -> Sequences:
        """The same for a kernel of unequal lengths; a completion also has its prompt's keys."""
        queries, keys, index = list[int](), list[int](), list[int]()
        for span in self.spans:
            end = span.start + span.prompt_length
            prompt = range(span.start, end)
            index += prompt
            for length in span.lengths:
                index += [*prompt, *range(end, end + length)]
                end += length
            queries += [len(prompt), *span.lengths]
            keys += [len(prompt), *(len(prompt) + length for length in span.lengths)]
        query_ends, key_ends = (
            torch.IntTensor([0, *accumulate(counts)]).to(self.device, non_blocking=True)
            for counts in (queries, keys)
        )
        positions = torch.tensor(index).to(self.device, non_blocking=True)
        return Sequences(query_ends, key_ends, max(queries), max(keys), positions)


def _completion_rows(span: PromptSpan, device: torch.device) -> Iterator[CompletionRows]:
    """Cut completions, in order, where their padding would cost more than a further call."""
    lengths: list[int] = []
    begin = 0
    for length in [*span.lengths, 0]:
        longest, tokens = max([*lengths, length]), sum(lengths) + length
        padding = (len(lengths) + 1) * longest - tokens
        if lengths and (length == 0 or padding > max(PADDING, tokens * PADDING_SHARE)):
            yield _pad(lengths, begin, span.prompt_length, device)
            begin, lengths = begin + sum(lengths), []
        lengths.append(length)


def _pad(lengths: list[int], begin: int, prompt: int, device: torch.device) -> CompletionRows:
    """Index and mask completions that begin `begin` tokens after a prompt of `prompt` tokens."""
    rows, column = torch.tensor(lengths), torch.arange(max(lengths))
    inside = column < rows[:, None]
    first = begin + rows.cumsum(0) - rows
    padded = first[:, None] + torch.where(inside, column, 0)
    seen = torch.arange(prompt + max(lengths)) <= prompt + column[:, None]
    real = inside.flatten().nonzero()[:, 0]
    return CompletionRows(*(each.to(device, non_blocking=True) for each in (padded, real, seen)))
