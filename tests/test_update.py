"""The direction and the statistics of an update, compared with the same in plain torch."""

import copy
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace

import numpy as np
import policies
import pytest
import torch
from policies import ADVANTAGES, flat, make, plain_logprobs, rollouts, run_update, sgd_step, trained
from transformers import get_scheduler

from pods.method.grpo import advantages
from pods.policy import update
from pods.policy.optimizer import learning_rate, make_optimizer

LENGTHS = [len(completion) for _, completion in policies.TEXTS]  # each character is a token
disturbed = partial(policies.disturbed, double=True)  # as in the middle of a run


def plain_update(policy, optimizer, kept, minibatches, *, beta, low, high, clip, temperature):
    """One sequence at a time, with PPO's clip written as a bound on the ratio from one side.

    Returns:
        Loss, norm of the gradient, share of the clipped tokens and KL of each optimizer update;
        and all tokens' old log-probs.
    """
    reference_policy = SimpleNamespace(causal_lm=policy.reference_model)
    old = [plain_logprobs(policy, r, temperature).detach() for r in kept]
    results = []
    for indices in minibatches:
        optimizer.zero_grad()
        loss, clipped, divergence = torch.zeros((), dtype=torch.float64), 0, 0.0
        for i in indices:
            logprobs = plain_logprobs(policy, kept[i], temperature)
            reference = plain_logprobs(reference_policy, kept[i], temperature).detach()
            ratio = (logprobs - old[i]).exp()
            bad = ADVANTAGES[i] < 0
            bounded = ratio.clamp(min=1 - low) if bad else ratio.clamp(max=1 + high)
            clipped += int((ratio < 1 - low if bad else ratio > 1 + high).sum())
            kl = (reference - logprobs).expm1() - (reference - logprobs)
            divergence += kl.detach().mean().item() / len(indices)
            loss = loss + (beta * kl - ADVANTAGES[i] * bounded).mean() / len(indices)
        loss.backward()
        norm = flat(p.grad for p in trained(policy)).norm().item()
        for parameter in trained(policy):
            parameter.grad *= min(1.0, clip / norm)
        optimizer.step()
        tokens = sum(LENGTHS[i] for i in indices)
        results.append((loss.item(), norm, clipped / tokens, divergence))
    return results, torch.cat(old)


def test_two_steps_of_training_equal_plain_torch():
    config, policy = disturbed(
        "update.epochs=2", "update.minibatches=2", "update.clip_low=0.1", "update.clip_high=0.3",
        "update.kl_beta=0.5", "update.lr=0.008", "update.warmup_steps=4", "update.grad_clip=0.1",
        "update.betas=[0.5,0.6]", "update.weight_decay=0.3", "sampling.temperature=0.7",
        "update.micro_batch_tokens=20")  # fmt: skip
    kept, other = rollouts(policy), copy.deepcopy(policy)
    before = flat(policy.model.parameters())
    mine = make_optimizer(policy, config.update)
    theirs = torch.optim.AdamW(other.model.parameters(), lr=1.0, betas=(0.5, 0.6), weight_decay=0.3)
    for step, lr in ((1, 0.002), (2, 0.004)):  # a quarter and a half of the warm-up
        stats = run_update(config, policy, mine, kept, step=step, sizes=[2, 1, 3])
        theirs.param_groups[0]["lr"] = lr
        updates, old = plain_update(
            other, theirs, kept, 2 * [(0, 1, 2), (3, 4, 5)],
            beta=0.5, low=0.1, high=0.3, clip=0.1, temperature=0.7)  # fmt: skip
        loss, norm, clipped, kl = np.mean(updates, axis=0)
        assert norm > 0.2 and clipped > 0.1 and kl > 1e-3  # clip and penalty have work to do
        assert asdict(stats) == pytest.approx({
            "loss": loss, "grad_norm": norm, "clip_fraction": clipped, "kl": kl,
            # the engine's log-probs are 0 in these rollouts
            "logprob_gap": old.abs().max().item(), "logprob_gap_mean": old.abs().mean().item(),
            "importance_mean": 1.0, "importance_ess": 1.0, "importance_cut": 0.0,
            "entropy": stats.entropy, "lr": lr,
        }, rel=1e-5)  # fmt: skip
        moved, expected = (flat(one.model.parameters()) - before for one in (policy, other))
        assert (moved - expected).norm() < 1e-4 * expected.norm()


GENERATED = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.25]  # the first six are kept


@pytest.mark.parametrize(("arm", "overrides", "baselines", "divisor"), [
    # the mean of all that were generated, averaged over the tokens of the step
    ("reinforce_ada", ("nm.n=8", "nm.m=6", "update.aggregation=token_mean"),
     [sum(GENERATED) / 8] * 6, sum(LENGTHS)),
    # the mean; a completion's tokens are summed and divided by the most tokens
    ("dr_grpo", ("nm.m=6",), [sum(GENERATED[:6]) / 6] * 6, 6 * 32),
    # the others' mean; over 32, too
    ("rloo", ("nm.m=6",), [(sum(GENERATED[:6]) - own) / 5 for own in GENERATED[:6]],
     6 * 32)])  # fmt: skip
def test_the_gradient_of_an_update_is_that_of_the_arms_published_objective(
    arm, overrides, baselines, divisor
):
    """The reward less a baseline, times the log-prob of the completion; from rewards to weights."""
    config, policy = disturbed(
        f"arm={arm}", *overrides, "update.micro_batch_tokens=20", "update.lr=1",
        "sampling.max_completion_tokens=32")  # fmt: skip
    kept = rollouts(policy)
    objective = sum(
        (reward - baseline) * plain_logprobs(policy, rollout).sum() / divisor
        for reward, baseline, rollout in zip(GENERATED, baselines, kept, strict=False)
    )
    ascent = torch.autograd.grad(objective, trained(policy))
    rewards = np.array(GENERATED[: config.nm.n])
    settings = {key: getattr(config.advantage, key) for key in ("baseline", "scale", "eps")}
    scaled = advantages(rewards, np.arange(6), **settings)
    moved, _ = sgd_step(config, policy, kept, advantages=scaled)
    assert (moved - flat(ascent)).norm() < 1e-6 * flat(ascent).norm()


def test_minibatches_are_whole_groups_in_the_order_of_the_batch():
    parts = list(update.minibatches([3, 1, 2, 4, 1], 2, epochs=2))
    assert parts == 2 * [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    assert list(update.minibatches([2, 2], 3, epochs=1)) == [[0, 1], [2, 3]]  # none is empty


def test_a_group_of_which_nothing_was_kept_is_no_part_of_any_minibatch():
    losses = []
    for sizes in ([6, 0], [0, 6]):
        config, policy = make("update.minibatches=2")
        stats = run_update(config, policy, make_optimizer(policy, config.update), sizes=sizes)
        losses.append(stats.loss)
    assert losses[0] == losses[1] == pytest.approx(0.25 / 6, rel=1e-5)  # one update on all six


def test_the_entropy_of_an_update_and_the_gradient_of_its_bonus():
    """Beside torch.distributions and autograd in float64, averaged like the surrogate."""
    config, policy = disturbed(
        "update.entropy_beta=0.3", "update.lr=1", "sampling.temperature=0.7",
        "update.micro_batch_tokens=20")  # fmt: skip
    logits = [policies.plain_logits(policy.causal_lm, r, 0.7) for r in rollouts(policy)]
    entropies = [torch.distributions.Categorical(logits=each).entropy() for each in logits]
    bonus = 0.3 * sum(entropy.mean() for entropy in entropies) / len(entropies)
    ascent = flat(torch.autograd.grad(bonus, trained(policy)))
    moved, stats = sgd_step(config, policy, advantages=np.zeros(6))
    assert (moved - ascent).norm() < 1e-6 * ascent.norm()
    assert stats.entropy == pytest.approx(torch.cat(entropies).mean().item())
    assert stats.loss == pytest.approx(-bonus.item())


def test_untempered_logprobs_are_those_at_temperature_1():
    config, policy = disturbed(
        "update.logprob_temperature=one", "sampling.temperature=0.7", "update.lr=1"
    )
    objective = sum(
        advantage * plain_logprobs(policy, rollout).mean() / 6
        for advantage, rollout in zip(ADVANTAGES, rollouts(policy), strict=True)
    )
    ascent = flat(torch.autograd.grad(objective, trained(policy)))
    moved, stats = sgd_step(config, policy)
    assert (moved - ascent).norm() < 1e-6 * ascent.norm()
    assert np.isnan(stats.logprob_gap_mean)  # the engine's are of another distribution


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_a_warm_up_from_zero_is_that_of_transformers(schedule):
    config, _ = make(
        "update.lr=0.5", "update.warmup_steps=3", "update.warmup_from_zero=true",
        f"update.schedule={schedule}", "update.schedule_steps=9")  # fmt: skip
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    name = "constant_with_warmup" if schedule == "constant" else schedule
    theirs = get_scheduler(name, optimizer, num_warmup_steps=3, num_training_steps=9)
    for step in range(1, 10):
        assert learning_rate(config.update, step) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
