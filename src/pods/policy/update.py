"""One step's update: the kept rollouts and their advantages move the weights.

Shapes: M = sequences of one optimizer update, C = completion tokens of a micro-batch, end to end.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pods.config import Config
from pods.method.objective import Loss, importance_weights, policy_loss, token_weights
from pods.policy.load import Policy
from pods.policy.optimizer import all_or_nothing, learning_rate, trained
from pods.policy.packing import MicroBatch
from pods.policy.scoring import rounds, score, score_all, score_by_reference
from pods.policy.sharding import sharded, whole
from pods.policy.team import ALONE, Team
from pods.randomness import derive
from pods.records import Rollout


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What the update did: means over its optimizer updates, or over tokens where that is said."""

    loss: float
    grad_norm: float
    """Before clipping."""
    clip_fraction: float
    """Share of the tokens whose gradient the PPO clip took away."""
    kl: float
    logprob_gap: float
    """Largest |log-prob of the engine - of the trainer| of a token, before the first update."""
    logprob_gap_mean: float
    """Its mean over all tokens."""
    importance_mean: float
    """Mean over all tokens of the weight for that gap; 1 where the correction is off."""
    importance_cut: float
    """Share of the tokens whose weight was capped or set to 0."""
    lr: float


def update(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    config: Config,
    rollouts: Sequence[Rollout],
    advantages: NDArray[np.float64],
    step: int,
    check: Callable[[], None] = lambda: None,
    team: Team = ALONE,
) -> UpdateStats:
    """Take `epochs` x `minibatches` optimizer updates on a step's kept rollouts: all, or none.

    With one of each the update is on-policy: the old log-probs are the new ones, detached, and
    one forward pass does. Otherwise the old log-probs are computed once, before the first update.

    Args:
        policy: is moved.
        optimizer: of the policy; its state moves too.
        config: of the run.
        rollouts: the kept sequences of all prompts of the step.
        advantages: one a rollout.
        step: 1 for the first step; decides the learning rate and the shuffling.
        check: called between micro-batches; if it raises, nothing has moved.
        team: the processes of the run. All are called with the same rollouts; each takes a part
            of every optimizer update, whose gradient is the sum over all of them.

    Raises:
        FloatingPointError: a loss or a gradient is NaN or infinite; nothing has moved.
        Abandoned: `check` has raised on the process that leads; nothing has moved.
    """
    settings = config.update
    lr = learning_rate(settings, step)
    for parameters in optimizer.param_groups:
        parameters["lr"] = lr
    on_policy = settings.epochs * settings.minibatches == 1
    results, tokens = [], [torch.empty((3, 0), dtype=torch.float64)]
    with all_or_nothing(optimizer, several=not on_policy):
        old = None if on_policy else score_all(policy, config, check, rollouts, team)
        kept = Kept(rollouts, torch.from_numpy(advantages), old)
        part = partial(_optimizer_update, policy, optimizer, config, check, team, kept)
        for members in _minibatches(config, len(rollouts), step):
            numbers, of_tokens = part(members)
            results.append(numbers)
            tokens += of_tokens
    return _stats(results, torch.cat(tokens, dim=1), lr, team)


def _stats(
    results: Sequence[tuple[float, float, float, float]], tokens: Tensor, lr: float, team: Team
) -> UpdateStats:
    """Sum up the optimizer updates and their tokens, each of which comes once an epoch."""
    loss, grad_norm, clip_fraction, kl = np.mean(results, axis=0).tolist()
    *sums, count = team.total([*tokens.sum(1).tolist(), tokens.shape[1]])
    gap, importance, cut = (total / count for total in sums)
    largest = team.largest(tokens[0].max().item() if tokens.numel() else 0.0)
    return UpdateStats(loss, grad_norm, clip_fraction, kl, largest, gap, importance, cut, lr)


def _minibatches(config: Config, count: int, step: int) -> Iterator[list[int]]:
    """Which rollouts each optimizer update takes, pass after pass."""
    for epoch in range(config.update.epochs):
        order = np.arange(count)
        if config.update.minibatches > 1:
            np.random.default_rng(derive(config.seed, "minibatches", step, epoch)).shuffle(order)
        yield from (
            part.tolist() for part in np.array_split(order, config.update.minibatches) if len(part)
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """What a step's update is made of."""

    rollouts: Sequence[Rollout]
    advantages: Tensor
    """One a rollout."""
    old: list[Tensor] | None
    """(T,) log-probs of each rollout before the first update; None where that is the only one."""


def _optimizer_update(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    config: Config,
    check: Callable[[], None],
    team: Team,
    kept: Kept,
    members: list[int],
) -> tuple[tuple[float, float, float, float], list[Tensor]]:
    """One AdamW step on some of the rollouts, of which each process takes a part.

    The weights of the tokens are those of the whole: the sum over processes is the gradient.

    Returns:
        Loss, gradient norm, clip fraction and KL; and what `_batch_loss` says of the tokens that
        were this process's.
    """
    settings = config.update
    lengths = torch.tensor([len(kept.rollouts[i].completion_ids) for i in members])
    weights = torch.zeros(len(kept.rollouts))
    weights[members] = token_weights(
        lengths, settings.aggregation, config.sampling.max_completion_tokens
    )
    total = clipped = kl = 0.0
    tokens = []
    for batch, counts in rounds(policy, config, team, kept.rollouts, members):
        team.check(check)
        if batch is None:
            continue
        loss, of_tokens = _batch_loss(policy, config, kept, batch, weights * counts)
        loss.total.backward()  # type: ignore[no-untyped-call]
        if counts:
            total += loss.total.item()
            clipped += loss.clipped.item()
            kl += loss.kl.item()
            tokens.append(of_tokens)
    if not sharded(policy.model):
        team.add_up(trained(optimizer))
    total, clipped, kl = team.total([total, clipped, kl])
    norm = float(whole(torch.nn.utils.clip_grad_norm_(trained(optimizer), settings.grad_clip)))
    for name, value in (("loss", total), ("gradient's norm", norm)):
        if not math.isfinite(value):
            raise FloatingPointError(f"the {name} is {value}")
    optimizer.step()
    optimizer.zero_grad()
    return (total, norm, clipped / int(lengths.sum()), kl), tokens


def _batch_loss(
    policy: Policy, config: Config, kept: Kept, batch: MicroBatch, weights: Tensor
) -> tuple[Loss, Tensor]:
    """The loss of a micro-batch, corrected for an engine whose log-probs are not the trainer's.

    Returns:
        The loss; and on the CPU, (3, C): how far each token's log-prob is from the engine's, its
        importance weight, and 1 where that was cut.
    """
    settings, device, lengths = config.update, policy.device, torch.tensor(batch.lengths)
    logprobs = score(policy, config, batch)
    old = logprobs.detach()
    if kept.old is not None:
        old = torch.cat([kept.old[i] for i in batch.members])
    engine = torch.from_numpy(np.concatenate([kept.rollouts[i].logprobs for i in batch.members]))
    engine = engine.to(device)
    importance = importance_weights(
        old, engine, lengths, kind=settings.importance, cap=settings.importance_cap
    )
    loss = policy_loss(
        logprobs,
        old,
        kept.advantages[batch.members].float().repeat_interleave(lengths).to(device),
        weights[batch.members].repeat_interleave(lengths).to(device),
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        kl_beta=settings.kl_beta,
        reference_logprobs=score_by_reference(policy, config, batch),
        importance=None if settings.importance == "off" else importance.weights,
    )
    gap = (old - engine).abs()
    # float64, so that means over tokens are the same whatever the micro-batches
    return loss, torch.stack([gap, importance.weights, importance.cut]).double().cpu()
