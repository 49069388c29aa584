"""Log-probs of rollouts, of one micro-batch or of a full step.

Shapes: C = completion tokens of a micro-batch, end to end; T = completion tokens of one rollout.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from pods.config.schema import Config
from pods.policy.fsdp import forward_logprobs, is_sharded
from pods.policy.logprobs import TokenScores
from pods.policy.packing import MicroBatch, pack, plan_micro_batches, split_among_processes
from pods.policy.policy import Policy
from pods.policy.process_group import SINGLE_PROCESS, ProcessGroup
from pods.types import Prompt, Rollout


@dataclass(frozen=True, slots=True)
class UpdateContext:
    """The inputs of scoring and updating besides the rollouts, the same in every step of a run."""

    policy: Policy
    config: Config
    process_group: ProcessGroup = SINGLE_PROCESS
    """The processes of the run. All are called with the same rollouts; each takes a share."""
    check: Callable[[], None] = lambda: None
    """Called between micro-batches; it may raise `Preempted`, which stops all processes."""


def score(
    context: UpdateContext, batch: MicroBatch, model: PreTrainedModel | None = None
) -> TokenScores:
    """Score the tokens of a micro-batch, (C,), under the policy or another model."""
    policy = context.policy
    update = context.config.update
    temperature = 1.0
    if update.logprob_temperature == "sampling":
        temperature = context.config.sampling.temperature
    with policy.recomputing():
        return forward_logprobs(
            policy.causal_lm if model is None else model,
            batch,
            temperature=temperature,
            vocabulary=policy.vocabulary,
            entropy_gradient=update.entropy_beta > 0 and model is None,
        )


def score_all(context: UpdateContext, rollouts: Sequence[Rollout]) -> list[Tensor]:
    """Compute the log-probs of every rollout, (T,) each, without gradients.

    Each process scores a share, and all get all: which rollouts a process will need differs from
    one optimizer update to the next.
    """
    scores: dict[int, Tensor] = {}
    with torch.no_grad():
        for batch, counts in micro_batches_of_rank(context, rollouts, range(len(rollouts))):
            context.process_group.check(context.check)
            if batch is None:
                continue
            pieces = score(context, batch).logprobs.split(batch.lengths)
            if counts:
                scores.update(zip(batch.indices, pieces, strict=True))

    scores = context.process_group.all_gather(scores)
    return [scores[i].to(context.policy.device) for i in range(len(rollouts))]


def warm_up(context: UpdateContext, prompt: Prompt) -> None:
    """Compile what `update.compiled` compiles, on no sample of the run, and leave no gradient."""
    update = context.config.update
    for ids, count in ((prompt, 2), ((0,), 1)):  # for one token it is other code
        rollout = Rollout(
            prompt_ids=prompt,
            completion_ids=ids,
            logprobs=np.zeros(0, np.float32),
            text="",
            finished=True,
        )
        batch = pack([rollout] * count, [list(range(count))])
        score(context, batch).logprobs.sum().backward()  # type: ignore[no-untyped-call]

        with torch.no_grad():  # other code again
            if update.epochs * update.minibatches > 1:
                score(context, batch)
            if update.kl_beta > 0:
                with context.policy.reference() as model:
                    score(context, batch, model)

    context.policy.model.zero_grad()


def micro_batches_of_rank(
    context: UpdateContext, rollouts: Sequence[Rollout], indices: Sequence[int]
) -> Iterator[tuple[MicroBatch | None, bool]]:
    """Yield this process's micro-batches, and whether each counts, in as many rounds as any needs.

    In the rounds that are left over there is none; with sharded weights all processes must compute
    in each round, so there it is one sequence that does not count.
    """
    process_group = context.process_group
    limit = context.config.update.micro_batch_tokens
    shares = split_among_processes(rollouts, indices, process_group.size)
    plans = [plan_micro_batches(rollouts, share, limit) for share in shares]

    filler = None
    if is_sharded(context.policy.model):
        shortest = min(indices, key=lambda i: len(rollouts[i].completion_ids))
        filler = pack(rollouts, [[shortest]])

    plan = plans[process_group.rank]
    for index in range(max(map(len, plans))):
        if index < len(plan):
            yield pack(rollouts, plan[index]), True
        else:
            yield filler, False
