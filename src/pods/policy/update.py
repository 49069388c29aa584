"""One step's update: the kept rollouts and their advantages move the weights.

Shapes: C = completion tokens of a micro-batch, end to end; T = completion tokens of one rollout;
G = groups of the step, each the kept rollouts of one prompt.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pods.method.grpo import Loss, importance_weights, policy_loss, token_weights
from pods.policy.fsdp import full_tensor, is_sharded
from pods.policy.optimizer import learning_rate, rolled_back_on_error, trained_weights
from pods.policy.packing import MicroBatch
from pods.policy.scoring import UpdateContext, micro_batches_of_rank, score, score_all
from pods.policy.update_stats import OptimizerUpdate, UpdateStats, summarise
from pods.types import Rollout

IMPORTANCE_CAP = 3.0  # of the ratio of the probabilities of a token, or of a sequence


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """The data of one step's update: one entry per rollout."""

    rollouts: Sequence[Rollout]
    advantages: Tensor
    old_logprobs: list[Tensor] | None
    """(T,) log-probs before the first update; None if that is the only one."""
    groups: Tensor  # index of the group of each rollout


@dataclass(frozen=True, slots=True)
class GradientSums:
    """Sums over the micro-batches of one process in one optimizer update."""

    loss: float
    clipped: float  # tokens whose gradient the PPO clip removed
    kl: float
    token_stats: list[Tensor]  # (TOKEN_STATS, C) of each micro-batch, in float64


def update(
    context: UpdateContext,
    optimizer: torch.optim.Optimizer,
    rollouts: Sequence[Rollout],
    advantages: NDArray[np.float64],
    sizes: Sequence[int],
    step: int,
) -> UpdateStats:
    """Make `epochs` x `minibatches` optimizer updates on a step's kept rollouts: all, or none.

    With one of each the update is on-policy: the old log-probs are the new ones, detached, and
    one forward pass suffices. Otherwise the old log-probs are computed once, before the first
    update.

    Args:
        context, optimizer: of the run; the policy's weights and the optimizer's state move.
        rollouts, advantages: all that the step has kept, the same on all processes.
        sizes: (G,) rollouts of each group, which are adjacent.
        step: from 1; it decides the learning rate.

    Raises:
        FloatingPointError: the loss or the gradient is NaN or infinite.
        Preempted: `context.check` has raised it on some process.

    Weights and optimizer are unchanged after an error.
    """
    settings = context.config.update
    lr = learning_rate(settings, step)
    [parameters] = optimizer.param_groups
    parameters["lr"] = lr

    on_policy = settings.epochs * settings.minibatches == 1
    sizes = [size for size in sizes if size > 0]  # a rule across groups may keep none of some
    groups = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    updates = []
    with rolled_back_on_error(optimizer, keep_copy=not on_policy):
        data = TrainingBatch(
            rollouts=rollouts,
            advantages=torch.from_numpy(advantages),
            old_logprobs=None if on_policy else score_all(context, rollouts),
            groups=groups,
        )
        for indices in minibatches(sizes, settings.minibatches, settings.epochs):
            updates.append(_one_update(context, optimizer, data, indices))

    return summarise(updates, lr, context.process_group)


def minibatches(sizes: Sequence[int], count: int, epochs: int) -> Iterator[list[int]]:
    """Yield the indices of the rollouts that each optimizer update takes, epoch after epoch.

    Groups stay whole and in the order of the batch, as verl cuts it by prompts without shuffling
    (verl/workers/actor/dp_actor.py, ppo_mini_batch_size). If a group filter leaves fewer groups,
    verl makes fewer updates; here each is on fewer groups, and there are at most as many as groups.

    >>> list(minibatches([2, 1, 2], 2, epochs=1))
    [[0, 1, 2], [3, 4]]
    """
    ends = np.cumsum([0, *sizes])
    for _ in range(epochs):
        for groups in np.array_split(np.arange(len(sizes)), count):
            if len(groups) > 0:
                yield list(range(ends[groups[0]], ends[groups[-1] + 1]))


def _one_update(
    context: UpdateContext,
    optimizer: torch.optim.Optimizer,
    data: TrainingBatch,
    indices: list[int],
) -> OptimizerUpdate:
    """Make one AdamW step on some of the rollouts, of which each process takes a share.

    The weights of tokens have the denominator of all these rollouts, so that the gradient is the
    sum over micro-batches and processes.
    """
    process_group = context.process_group
    settings = context.config.update
    lengths = torch.tensor([len(data.rollouts[i].completion_ids) for i in indices])
    weights = torch.zeros(len(data.rollouts))
    weights[indices] = token_weights(
        lengths,
        data.groups[indices],
        settings.aggregation,
        context.config.sampling.max_completion_tokens,
    )
    share = _gradients(context, data, indices, weights)

    trained = trained_weights(optimizer)
    if not is_sharded(context.policy.model):
        process_group.sum_gradients(trained)
    loss, clipped, kl = process_group.all_sum([share.loss, share.clipped, share.kl])
    # foreach, since torch by itself would take sharded gradients one by one
    norm = torch.nn.utils.clip_grad_norm_(trained, settings.grad_clip, foreach=True)
    grad_norm = float(full_tensor(norm))
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss}")
    if not math.isfinite(grad_norm):
        raise FloatingPointError(f"the gradient's norm is {grad_norm}")

    optimizer.step()
    optimizer.zero_grad()
    return OptimizerUpdate(
        loss=loss,
        grad_norm=grad_norm,
        clip_fraction=clipped / int(lengths.sum()),
        kl=kl,
        token_stats=share.token_stats,
    )


def _gradients(
    context: UpdateContext, data: TrainingBatch, indices: list[int], weights: Tensor
) -> GradientSums:
    """Add up the gradients of this process's share of some rollouts, one micro-batch at a time."""
    losses = []
    token_stats = []
    for batch, counts in micro_batches_of_rank(context, data.rollouts, indices):
        context.process_group.check(context.check)
        if batch is None:
            continue
        batch_weights = weights if counts else torch.zeros_like(weights)
        loss, stats = _batch_loss(context, data, batch, batch_weights)
        loss.total.backward()  # type: ignore[no-untyped-call]
        if counts:
            losses.append(torch.stack([loss.total.detach(), loss.clipped, loss.kl]))
            token_stats.append(stats)

    sums = np.zeros(3)
    if losses:
        for row in torch.stack(losses).cpu().double().numpy():  # wait for a card once
            sums += row
    loss_sum, clipped, kl = sums.tolist()

    return GradientSums(loss=loss_sum, clipped=clipped, kl=kl, token_stats=token_stats)


def _batch_loss(
    context: UpdateContext, data: TrainingBatch, batch: MicroBatch, weights: Tensor
) -> tuple[Loss, Tensor]:
    """Compute a micro-batch's loss, corrected for the gap between engine and trainer log-probs.

    Also return the statistics of its tokens, (TOKEN_STATS, C).
    """
    settings = context.config.update
    device = context.policy.device
    lengths = torch.tensor(batch.lengths)
    drawn = np.concatenate([data.rollouts[i].logprobs for i in batch.indices])
    advantages = data.advantages.float()[batch.indices].repeat_interleave(lengths)
    weights = weights[batch.indices].repeat_interleave(lengths)
    # copied without a wait
    engine_logprobs = torch.from_numpy(drawn).to(device, non_blocking=True)
    advantages = advantages.to(device, non_blocking=True)
    weights = weights.to(device, non_blocking=True)

    logprobs, entropy = score(context, batch)
    old_logprobs = logprobs.detach()
    if data.old_logprobs is not None:
        old_logprobs = torch.cat([data.old_logprobs[i] for i in batch.indices])
    importance, cut = importance_weights(
        old_logprobs, engine_logprobs, lengths, kind=settings.importance, cap=IMPORTANCE_CAP
    )
    loss = policy_loss(
        logprobs,
        old_logprobs,
        advantages,
        weights,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        kl_beta=settings.kl_beta,
        reference_logprobs=_reference_logprobs(context, batch),
        importance=importance,
        entropy_beta=settings.entropy_beta,
        entropy=entropy,
    )

    gap = (old_logprobs - engine_logprobs).abs()
    if not context.config.scores_what_is_sampled():
        gap = torch.full_like(gap, torch.nan)
    stats = torch.stack([gap, importance, importance**2, cut, entropy.detach()])
    # float64, so that means over tokens are the same whatever the micro-batches
    return loss, stats.double()


def _reference_logprobs(context: UpdateContext, batch: MicroBatch) -> Tensor | None:
    """Score a micro-batch under the untrained policy; None if no KL term needs it."""
    if context.config.update.kl_beta == 0:
        return None
    with torch.no_grad(), context.policy.reference() as model:
        return score(context, batch, model).logprobs
