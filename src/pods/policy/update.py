"""One step's update: the kept rollouts and their advantages move the weights.

Shapes: M = sequences of one optimizer update, R = sequences of a micro-batch, L = padded length,
N = completion tokens of a micro-batch, end to end.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pods.config import Config
from pods.method.objective import Loss, policy_loss, token_weights
from pods.policy.batches import MicroBatch, micro_batches
from pods.policy.load import Policy
from pods.policy.logprobs import token_logprobs
from pods.policy.optimizer import all_or_nothing, learning_rate, trained
from pods.randomness import derive
from pods.records import Rollout


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What the update did; means over its optimizer updates."""

    loss: float
    grad_norm: float
    """Before clipping."""
    clip_fraction: float
    """Share of the tokens whose gradient the PPO clip took away."""
    kl: float
    logprob_gap: float
    """Largest |log-prob of the engine - of the trainer| of a token, before the first update."""
    lr: float


def update(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    config: Config,
    rollouts: Sequence[Rollout],
    advantages: NDArray[np.float64],
    step: int,
    check: Callable[[], None] = lambda: None,
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

    Raises:
        FloatingPointError: a loss or a gradient is NaN or infinite; nothing has moved.
    """
    settings = config.update
    lr = learning_rate(settings, step)
    for parameters in optimizer.param_groups:
        parameters["lr"] = lr
    on_policy = settings.epochs * settings.minibatches == 1
    results = []
    with all_or_nothing(optimizer, several=not on_policy):
        old = None if on_policy else _all_logprobs(policy, config, check, rollouts)
        kept = Kept(rollouts, torch.from_numpy(advantages), old)
        for members in _minibatches(config, len(rollouts), step):
            results.append(_optimizer_update(policy, optimizer, config, check, kept, members))
    loss, grad_norm, clip_fraction, kl, _ = np.mean(results, axis=0).tolist()
    gap = max(result[-1] for result in results)
    return UpdateStats(loss, grad_norm, clip_fraction, kl, gap, lr)


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
    kept: Kept,
    members: list[int],
) -> tuple[float, float, float, float, float]:
    """One AdamW step on some of the rollouts: loss, gradient norm, clip fraction, KL, gap."""
    settings = config.update
    lengths = torch.tensor([len(kept.rollouts[i].completion_ids) for i in members])
    weights = torch.zeros(len(kept.rollouts))
    weights[members] = token_weights(
        lengths, settings.aggregation, config.sampling.max_completion_tokens
    )
    total = clipped = kl = gap = 0.0
    for batch in _batches(policy, config, kept.rollouts, members):
        check()
        loss, batch_gap = _batch_loss(policy, config, kept, batch, weights)
        loss.total.backward()  # type: ignore[no-untyped-call]
        total += loss.total.item()
        clipped += loss.clipped.item()
        kl += loss.kl.item()
        gap = max(gap, batch_gap)
    norm = float(torch.nn.utils.clip_grad_norm_(trained(optimizer), settings.grad_clip))
    for name, value in (("loss", total), ("gradient's norm", norm)):
        if not math.isfinite(value):
            raise FloatingPointError(f"the {name} is {value}")
    optimizer.step()
    optimizer.zero_grad()
    return total, norm, clipped / int(lengths.sum()), kl, gap


def _batch_loss(
    policy: Policy, config: Config, kept: Kept, batch: MicroBatch, weights: Tensor
) -> tuple[Loss, float]:
    """The loss of a micro-batch, and how far its tokens' log-probs are from the engine's."""
    settings, device, repeats = config.update, policy.device, batch.completion.sum(1)
    logprobs = _logprobs(policy, config, batch)
    old = logprobs.detach()
    if kept.old is not None:
        old = torch.cat([kept.old[i] for i in batch.members])
    engine = np.concatenate([kept.rollouts[i].logprobs for i in batch.members])
    loss = policy_loss(
        logprobs,
        old,
        kept.advantages[batch.members].float().repeat_interleave(repeats).to(device),
        weights[batch.members].repeat_interleave(repeats).to(device),
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        kl_beta=settings.kl_beta,
        reference_logprobs=_reference(policy, config, batch),
    )
    return loss, float((old.cpu() - torch.from_numpy(engine)).abs().max())


def _batches(
    policy: Policy, config: Config, rollouts: Sequence[Rollout], members: Sequence[int]
) -> Iterator[MicroBatch]:
    pad = int(policy.tokenizer.pad_token_id or 0)
    yield from micro_batches(rollouts, members, config.update.micro_batch_tokens, pad)


def _logprobs(policy: Policy, config: Config, batch: MicroBatch, model: object = None) -> Tensor:
    device = policy.device
    return token_logprobs(
        policy.causal_lm if model is None else model,  # type: ignore[arg-type]
        batch.ids.to(device),
        batch.attention.to(device),
        batch.completion.to(device),
        temperature=config.sampling.temperature,
        vocabulary=policy.vocabulary,
    )


def _reference(policy: Policy, config: Config, batch: MicroBatch) -> Tensor | None:
    if config.update.kl_beta == 0:
        return None
    with torch.no_grad(), policy.reference() as model:
        return _logprobs(policy, config, batch, model)


def _all_logprobs(
    policy: Policy, config: Config, check: Callable[[], None], rollouts: Sequence[Rollout]
) -> list[Tensor]:
    """The log-probs of every sequence before the first update, (T,) each."""
    found: list[Tensor] = [torch.empty(0)] * len(rollouts)
    with torch.no_grad():
        for batch in _batches(policy, config, rollouts, range(len(rollouts))):
            check()
            flat = _logprobs(policy, config, batch)
            pieces = flat.split(batch.completion.sum(1).tolist())
            for i, piece in zip(batch.members, pieces, strict=True):
                found[i] = piece
    return found
