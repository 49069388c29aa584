"""Pack the rollouts of an update into micro-batches, each prompt only once.

A micro-batch is one row of tokens: a prompt, the completions that were drawn from it end to end,
the next prompt, its completions. The model's layers work on tokens and see no padding; attention
(`attention.py`) lets each completion see its prompt and itself, and finds them by a `Layout`: as
rows that are padded, or as sequences of unequal lengths.

Shapes: N = tokens of a micro-batch, C = completion tokens among them, S = sequences (prompts and
completions); of one prompt P = its tokens, R = its completions, T = tokens of the longest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from pods.types import Prompt, Rollout

PADDING = 256  # most padding of a call in tokens, or
PADDING_SHARE = 0.25  # as a share of the real ones, if that is more


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
    groups = [
        sorted(group, key=lengths.__getitem__) for group in _by_prompt(rollouts, indices).values()
    ]
    batches = list(_fill(rollouts, groups, tokens))
    if len(batches) < 2:
        return batches

    low = 0
    high = tokens
    while low < high:  # by bisection: a lower limit never needs fewer batches
        limit = (low + high) // 2
        if len(list(_fill(rollouts, groups, limit))) > len(batches):
            low = limit + 1
        else:
            high = limit

    return list(_fill(rollouts, groups, low))


def _fill(
    rollouts: Sequence[Rollout], groups: Sequence[Sequence[int]], tokens: int
) -> Iterator[list[list[int]]]:
    batch: list[list[int]] = []
    before = 0  # tokens of the batch's earlier prompts and their completions
    for group in groups:
        prompt = len(rollouts[group[0]].prompt_ids)
        needed = 0
        batch.append([])
        for i in group:
            longest = len(rollouts[i].completion_ids)  # so far: they are in ascending order
            needed = prompt + (len(batch[-1]) + 1) * longest
            if before + needed > tokens and any(batch):
                yield batch
                batch = [[]]
                before = 0
                needed = prompt + longest
            batch[-1].append(i)
        before += needed

    if any(batch):
        yield batch


def split_among_processes(
    rollouts: Sequence[Rollout], indices: Sequence[int], processes: int
) -> list[list[int]]:
    """Split sequences, in the order of their prompts, into one share of the tokens per process."""
    costs: dict[int, int] = {}  # tokens of each sequence; the first of a prompt pays for that, too
    for prompt, same_prompt in _by_prompt(rollouts, indices).items():
        for i in same_prompt:
            costs[i] = len(rollouts[i].completion_ids)
        costs[same_prompt[0]] += len(prompt)

    total = sum(costs.values())
    before = 0
    shares: list[list[int]] = [[] for _ in range(processes)]
    for i, cost in costs.items():  # by the middle of its tokens in the row of all
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
    spans: list[PromptSpan] = []
    indices: list[int] = []
    ids: list[int] = []
    positions: list[int] = []
    previous: list[int] = []
    targets: list[int] = []

    for group in batch:
        if not group:
            continue
        prompt = rollouts[group[0]].prompt_ids
        completions = [rollouts[i].completion_ids for i in group]
        span = PromptSpan(
            start=len(ids),
            prompt_length=len(prompt),
            lengths=[len(completion) for completion in completions],
        )
        spans.append(span)
        indices += group
        ids += prompt
        positions += range(len(prompt))
        last = len(ids) - 1  # of the prompt
        for completion in completions:
            previous.append(last)
            previous += range(len(ids), len(ids) + len(completion) - 1)
            ids += completion
            targets += completion
            positions += range(len(prompt), len(prompt) + len(completion))

    return MicroBatch(
        indices=indices,
        lengths=[length for span in spans for length in span.lengths],
        spans=spans,
        ids=torch.tensor(ids),
        positions=torch.tensor(positions),
        previous=torch.tensor(previous),
        targets=torch.tensor(targets),
    )


@dataclass(frozen=True, slots=True)
class CompletionRows:
    """Completions of one prompt of similar length, padded to the longest of them."""

    padded: Tensor
    """(R, T) offset of each token from the prompt's end; padding repeats a row's first token."""
    real: Tensor  # (real tokens,) indices of the real ones among the R x T, row by row
    mask: Tensor  # (T, P + T) true if a completion's token sees one of the prompt or its past


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
        queries: list[int] = []
        keys: list[int] = []
        index: list[int] = []
        for span in self.spans:
            end = span.start + span.prompt_length
            prompt = range(span.start, end)
            queries.append(span.prompt_length)
            keys.append(span.prompt_length)
            index += prompt
            for length in span.lengths:
                queries.append(length)
                keys.append(span.prompt_length + length)
                index += prompt
                index += range(end, end + length)
                end += length

        return Sequences(
            query_ends=self._ends(queries),
            key_ends=self._ends(keys),
            most_queries=max(queries),
            most_keys=max(keys),
            keys=torch.tensor(index).to(self.device, non_blocking=True),
        )

    def _ends(self, counts: Sequence[int]) -> Tensor:
        ends = torch.IntTensor(list(accumulate(counts, initial=0)))
        return ends.to(self.device, non_blocking=True)


def _completion_rows(span: PromptSpan, device: torch.device) -> Iterator[CompletionRows]:
    """Cut completions, in order, if their padding would cost more than a further call."""
    lengths: list[int] = []
    begin = 0
    for length in span.lengths:
        longest = max(lengths, default=0)
        tokens = sum(lengths) + length
        padding = (len(lengths) + 1) * max(longest, length) - tokens
        if lengths and padding > max(PADDING, tokens * PADDING_SHARE):
            yield _pad(lengths, begin, span.prompt_length, device)
            begin += sum(lengths)
            lengths = []
        lengths.append(length)

    if lengths:
        yield _pad(lengths, begin, span.prompt_length, device)


def _pad(lengths: list[int], begin: int, prompt: int, device: torch.device) -> CompletionRows:
    """Index and mask completions that begin `begin` tokens after a prompt of `prompt` tokens."""
    rows = torch.tensor(lengths)
    column = torch.arange(max(lengths))
    inside = column < rows[:, None]
    first = begin + rows.cumsum(0) - rows
    padded = first[:, None] + torch.where(inside, column, 0)
    seen = torch.arange(prompt + max(lengths)) <= prompt + column[:, None]
    real = inside.flatten().nonzero()[:, 0]
    return CompletionRows(
        padded=padded.to(device, non_blocking=True),
        real=real.to(device, non_blocking=True),
        mask=seen.to(device, non_blocking=True),
    )
