"""Preflight: try the largest shapes of a run before it starts, so that it fails now if at all.

Nothing of the run changes: no weight moves, no gradient is left, and no random number is drawn.
vLLM is not tried, since it measures its own worst batch when it starts. Nor is the encoding of many
prompts at a time, since the evaluation at step 0 follows at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from pods.config.schema import Config
from pods.system.errors import NO_MEMORY
from pods.training.shapes import rows_at_once, updated_rows
from pods.training.workers import Worker
from pods.types import GenerationRequest, Prompt, Rollout, Sampling

HOT = 100.0  # a temperature at which no policy ends all rollouts at their first token


def preflight(worker: Worker, prompts: Sequence[Prompt], questions: Sequence[Prompt]) -> None:
    """Generate with the most rows and tokens, and run the largest micro-batch forward and back.

    All processes of a run must call this at once, with all prompts that the run trains on and all
    questions of its evaluations.

    Raises:
        ValueError: generation or update runs out of memory.
    """
    config = worker.config
    longest = max([*prompts, *questions], key=len)
    if config.engine.name == "transformers":
        _decode_last(worker, longest, rows_at_once(config, len(questions)))
    worker.check()

    settings = config.update
    cure = f"lower update.micro_batch_tokens={settings.micro_batch_tokens}"
    if not settings.activation_checkpointing:
        cure += ", or set update.activation_checkpointing=true"
    for size in worst_micro_batches(config, len(longest)):
        tokens = size.prompt + size.completions * size.length
        with _in_one_line(f"an update's micro-batch of {tokens:,} tokens", cure):
            _update_largest(worker, longest[: size.prompt], size.completions, size.length)


class BatchSize(NamedTuple):
    """The size of a micro-batch of one prompt."""

    prompt: int  # tokens
    completions: int
    length: int  # tokens of each completion


def worst_micro_batches(config: Config, prompt: int) -> list[BatchSize]:
    """List the micro-batches that need the most memory.

    One fills the limit with as many completions as there are, each of which needs the keys and
    values of its prompt. Another, if it is over the limit, is one sequence of full length.
    `prompt` is the length of the longest prompt.
    """
    limit = config.update.micro_batch_tokens
    longest = config.sampling.max_completion_tokens
    completions = min(updated_rows(config), max(1, limit - 1))
    shared = min(prompt, max(1, limit - completions))
    length = max(1, min(longest, (limit - shared) // completions))

    worst = [BatchSize(shared, completions, length)]
    if prompt + longest > limit:
        worst.append(BatchSize(prompt, 1, longest))
    return worst


def _decode_last(worker: Worker, prompt: Prompt, rows: int) -> None:
    """Decode the last token that a rollout may have after the prompt, in this many rows at once."""
    config = worker.config
    before = max(1, len(prompt) + config.sampling.max_completion_tokens - 2)
    long_prompt = (prompt * (before // len(prompt) + 1))[:before]
    request = GenerationRequest(
        prompts=[long_prompt],
        n=rows,
        sampling=Sampling(temperature=HOT, max_completion_tokens=2),
        seeds=[config.seed],
    )
    with _in_one_line(f"decoding {rows} rows", f"lower engine.max_rows={config.engine.max_rows}"):
        worker.engine.generate(request)


def _update_largest(worker: Worker, prompt: Prompt, rows: int, length: int) -> None:
    """Run an update with advantages of 0, one micro-batch per process; no weight moves.

    Memory is held for Adam's moments and for the copies that several updates per step need.
    """
    config = worker.config
    rows *= worker.process_group.size
    rollout = Rollout(
        prompt_ids=prompt,
        completion_ids=prompt[-1:] * length,
        logprobs=np.zeros(length, np.float32),
        text="",
        finished=False,
    )
    trained = [weight for weight in worker.policy.model.parameters() if weight.requires_grad]
    held = [torch.empty_like(weight, dtype=torch.float32) for weight in trained for _ in range(2)]
    if config.update.epochs * config.update.minibatches > 1:  # a step can restore all of it
        held += [tensor.detach().clone() for tensor in trained + held]

    once = replace(config, update=replace(config.update, epochs=1, minibatches=1))
    still = torch.optim.AdamW(trained)
    still.step = lambda closure=None: None  # type: ignore[method-assign]
    trial = replace(worker, config=once, optimizer=still)
    trial.update([rollout] * rows, np.zeros(rows), [rows], 1)
    del held


@contextmanager
def _in_one_line(what: str, cure: str) -> Iterator[None]:
    """Turn running out of memory into one line that says what to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not full and NO_MEMORY not in str(error):
            raise
        raise ValueError(f"not enough memory for {what}: {cure}") from error
