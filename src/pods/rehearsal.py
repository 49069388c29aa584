"""The worst shapes of a run, tried before it starts: what does not fit fails now, in one line.

Nothing of the run changes: no weight moves, no gradient is left, and no generator of random numbers
is drawn from. vLLM is not tried: it measures its own worst batch when it starts. Nor are prompts
encoded many at a time, as an evaluation does: the one at step 0 follows at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pods.config import Config
from pods.memory.plan import decoded_rows, worst_micro_batches
from pods.policy.update import update
from pods.records import Rollout, Sampling
from pods.rollouts.engine import Engine, Prompt
from pods.worker import Worker

HOT = 100.0  # a temperature at which no policy ends all of its rollouts at their first token


class DoesNotFit(ValueError):
    """The machine has no memory for the run's largest shape."""


class _Still(torch.optim.AdamW):
    """An optimizer that moves nothing."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Leave the weights as they are."""


def rehearse(worker: Worker, prompts: Sequence[Prompt]) -> None:
    """Generate at full rows and length, and pass the largest micro-batch forward and back.

    Args:
        worker: its policy is not moved; all processes of a run rehearse at once.
        prompts: all that the run may ask.

    Raises:
        DoesNotFit: one of the two ran out of memory.
    """
    config, longest = worker.config, max(prompts, key=len)
    if config.engine.name == "transformers":
        rows, _ = decoded_rows(config)
        with _in_one_line(
            f"decoding {rows} rows", f"lower engine.max_rows={config.engine.max_rows}"
        ):
            _decode_last(config, worker.engine, longest, rows)
    worker.check()
    settings = config.update
    cure = f"lower update.micro_batch_tokens={settings.micro_batch_tokens}"
    if not settings.activation_checkpointing:
        cure += ", or set update.activation_checkpointing=true"
    for shared, rows, length in worst_micro_batches(config, len(longest)):
        tokens = f"{shared + rows * length:,} tokens"
        with _in_one_line(f"an update's micro-batch of {tokens}", cure):
            _update_largest(worker, longest[:shared], rows, length)


def _decode_last(config: Config, engine: Engine, prompt: Prompt, rows: int) -> None:
    """Decode the last token that a rollout may have, in all rows, behind a prompt made as long."""
    before = max(1, len(prompt) + config.sampling.max_completion_tokens - 2)
    whole = (prompt * (before // len(prompt) + 1))[:before]
    engine.generate([whole], rows, Sampling(HOT, 2), [config.seed])


def _update_largest(worker: Worker, prompt: Prompt, rows: int, length: int) -> None:
    """Make an update without advantage, a micro-batch a process; the optimizer moves nothing.

    Adam's moments, and the copies that several updates a step keep, are there in size.
    """
    completion, logprobs = prompt[-1:] * length, np.zeros(length, np.float32)
    config, policy, rows = worker.config, worker.policy, rows * worker.team.size
    rollouts = [Rollout(prompt, completion, logprobs, "", False) for _ in range(rows)]
    once = replace(config, update=replace(config.update, epochs=1, minibatches=1))
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    several = config.update.epochs * config.update.minibatches > 1
    state = [torch.empty_like(p) for p in trained for _ in range(5 if several else 2)]
    still = _Still(trained)
    update(policy, still, once, rollouts, np.zeros(rows), 1, worker.check, worker.team)
    del state


@contextmanager
def _in_one_line(what: str, cure: str) -> Iterator[None]:
    """Say what ran out of memory, and what to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch's own: on a GPU a class, on a CPU a text
        full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not full and "can't allocate memory" not in str(error):
            raise
        raise DoesNotFit(f"not enough memory for {what}: {cure}") from error
