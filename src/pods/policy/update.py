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
from pods.policy.process_group import ProcessGroup
from pods.policy.scoring import UpdateContext, micro_batches_of_rank, score, score_all
from pods.types import Rollout

IMPORTANCE_CAP = 3.0  # of the ratio of a token's, or a sequence's, probabilities


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Statistics of one step's update: means over its optimizer updates, and over all tokens."""

    loss: float
    grad_norm: float  # norm of the gradient before clipping
    clip_fraction: float  # share of the tokens whose gradient the PPO clip removed
    kl: float  # KL divergence from the reference
    logprob_gap: float
    """Largest |log-prob of the engine - of the trainer| of a token, before the first update."""
    logprob_gap_mean: float  # mean of |log-prob of the engine - of the trainer|
    importance_mean: float  # mean of the importance weight; 1 where the correction is off
    importance_ess: float  # effective sample size of these weights, as a share of the tokens
    importance_cut: float  # share of the tokens whose importance weight was capped or set to 0
    entropy: float  # of the policy in nats, at the temperature of `update.logprob_temperature`
    lr: float


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """The data of one step's update, of each rollout."""

    rollouts: Sequence[Rollout]
    advantages: Tensor
    old_logprobs: list[Tensor] | None
    """(T,) log-probs before the first update; None where that is the only one."""
    groups: Tensor  # index of its group


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
        sizes: (G,) rollouts of each group, which lie side by side.
        step: from 1; it decides the learning rate.

    Nothing has moved after a `FloatingPointError`: a loss or a gradient is NaN or infinite, or
    `Cancelled`: `context.check` has raised on the main process.
    """
    settings = context.config.update
    [parameters] = optimizer.param_groups
    parameters["lr"] = lr = learning_rate(settings, step)
    on_policy = settings.epochs * settings.minibatches == 1
    sizes = [size for size in sizes if size]  # a rule across groups may keep none of some
    groups = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    results, tokens = [], [torch.empty((5, 0), dtype=torch.float64)]
    with rolled_back_on_error(optimizer, keep_copy=not on_policy):
        old_logprobs = None if on_policy else score_all(context, rollouts)
        data = TrainingBatch(rollouts, torch.from_numpy(advantages), old_logprobs, groups)
        for indices in minibatches(sizes, settings.minibatches, settings.epochs):
            result, token_stats = _one_update(context, optimizer, data, indices)
            results.append(result)
            tokens += token_stats
    return _stats(results, tokens, lr, context.process_group)


def _stats(
    results: Sequence[tuple[float, float, float, float]],
    token_stats: Sequence[Tensor],
    lr: float,
    process_group: ProcessGroup,
) -> UpdateStats:
    """Average over the optimizer updates and over their tokens, which recur every epoch."""
    loss, norm, clipped, kl = np.mean(results, axis=0).tolist()
    tokens = torch.cat([part.cpu() for part in token_stats], 1)
    *sums, count = process_group.all_sum([*tokens.sum(1).tolist(), tokens.shape[1]])
    gap, importance, squared, cut, entropy = (total / count for total in sums)
    largest = process_group.all_max(tokens[0].max().item() if tokens.numel() else 0.0)
    weights = importance, importance**2 / squared if squared else 0.0, cut
    return UpdateStats(loss, norm, clipped, kl, largest, gap, *weights, entropy, lr)


def minibatches(sizes: Sequence[int], count: int, epochs: int) -> Iterator[list[int]]:
    """Yield the indices of the rollouts that each optimizer update takes, epoch after epoch.

    Groups stay whole and in the order of the batch, as verl cuts it by prompts without shuffling
    (verl/workers/actor/dp_actor.py, ppo_mini_batch_size). Where a group filter leaves fewer groups,
    verl makes fewer updates; here each is on fewer groups, and there are at most as many as groups.

    >>> list(minibatches([2, 1, 2], 2, epochs=1))
    [[0, 1, 2], [3, 4]]
    """
    ends = np.cumsum([0, *sizes])
    for _ in range(epochs):
        for groups in np.array_split(np.arange(len(sizes)), count):
            if len(groups):
                yield list(range(ends[groups[0]], ends[groups[-1] + 1]))


def _one_update(
    context: UpdateContext,
    optimizer: torch.optim.Optimizer,
    data: TrainingBatch,
    indices: list[int],
) -> tuple[tuple[float, float, float, float], list[Tensor]]:
    """Make one AdamW step on some of the rollouts, of which each process takes a share.

    Token weights have the denominator of all these rollouts, so that the gradient is the sum over
    micro-batches and processes. Return loss, gradient norm, clip fraction and KL, and what
    `_batch_loss` returns about the tokens of this process's share.
    """
    policy, process_group = context.policy, context.process_group
    settings, longest = context.config.update, context.config.sampling.max_completion_tokens
    lengths = torch.tensor([len(data.rollouts[i].completion_ids) for i in indices])
    weights = torch.zeros(len(data.rollouts))
    weights[indices] = token_weights(lengths, data.groups[indices], settings.aggregation, longest)
    sums, tokens = _gradients(context, data, indices, weights)
    trained = trained_weights(optimizer)
    if not is_sharded(policy.model):
        process_group.sum_gradients(trained)
    total, clipped, kl = process_group.all_sum(sums.tolist())
    # by itself torch would take sharded gradients one by one
    found = torch.nn.utils.clip_grad_norm_(trained, settings.grad_clip, foreach=True)
    norm = float(full_tensor(found))
    for name, value in (("loss", total), ("gradient's norm", norm)):
        if not math.isfinite(value):
            raise FloatingPointError(f"the {name} is {value}")
    optimizer.step()
    optimizer.zero_grad()
    return (total, norm, clipped / int(lengths.sum()), kl), tokens


def _gradients(
    context: UpdateContext, data: TrainingBatch, indices: list[int], weights: Tensor
) -> tuple[NDArray[np.float64], list[Tensor]]:
    """Add up the gradients of this process's share of some rollouts, one micro-batch at a time.

    Return sums over the share of loss, clipped tokens and KL, and what `_batch_loss` returns.
    """
    losses, tokens = [], []
    for batch, counts in micro_batches_of_rank(context, data.rollouts, indices):
        context.process_group.check(context.check)
        if batch is None:
            continue
        loss, token_stats = _batch_loss(context, data, batch, weights * counts)
        loss.total.backward()  # type: ignore[no-untyped-call]
        if counts:
            losses.append(torch.stack([loss.total.detach(), loss.clipped, loss.kl]))
            tokens.append(token_stats)
    on_host = torch.stack(losses).cpu().double().numpy() if losses else ()  # wait for a card once
    return sum(on_host, np.zeros(3)), tokens


def _batch_loss(
    context: UpdateContext, data: TrainingBatch, batch: MicroBatch, weights: Tensor
) -> tuple[Loss, Tensor]:
    """Compute a micro-batch's loss, corrected for the gap between engine and trainer log-probs.

    Also return (5, C): |engine's log-prob - trainer's|, weight, its square, if cut, and entropy.
    """
    policy, settings = context.policy, context.config.update
    device, lengths = policy.device, torch.tensor(batch.lengths)
    sampled = np.concatenate([data.rollouts[i].logprobs for i in batch.indices])
    of_rollout = data.advantages.float(), weights
    of_token = [of[batch.indices].repeat_interleave(lengths) for of in of_rollout]
    vectors = torch.from_numpy(sampled), *of_token  # copied without a wait
    engine, *of_token = (each.to(device, non_blocking=True) for each in vectors)
    logprobs, entropy = score(context, batch)
    old = logprobs.detach()
    if data.old_logprobs is not None:
        old = torch.cat([data.old_logprobs[i] for i in batch.indices])
    importance, cut = importance_weights(
        old, engine, lengths, kind=settings.importance, cap=IMPORTANCE_CAP
    )
    reference = None
    if settings.kl_beta > 0:
        with torch.no_grad(), policy.reference() as model:
            reference = score(context, batch, model).logprobs
    loss = policy_loss(
        logprobs, old, *of_token, clip_low=settings.clip_low, clip_high=settings.clip_high,
        kl_beta=settings.kl_beta, reference_logprobs=reference, importance=importance,
        entropy_beta=settings.entropy_beta, entropy=entropy,
    )  # fmt: skip
    gap = (old - engine).abs()
    if not context.config.scores_what_is_sampled():
        gap = torch.full_like(gap, torch.nan)
    # float64, so that means over tokens are the same whatever the micro-batches
    return loss, torch.stack([gap, importance, importance**2, cut, entropy.detach()]).double()
