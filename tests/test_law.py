"""The law of n and m: known gradients and noise, brute force, Adam, and the authors' logs."""

import importlib
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compose import ROOT
from scipy import stats

from pods.method.grpo import advantages
from pods.method.rules import max_variance
from pods_lab.advise.law import at_random, half, moments_of
from pods_lab.advise.progress import GradientScales, balanced, beta_binomial, expected_progress

STD = {"baseline": "selected", "scale": "std", "eps": 1e-9}
GRPO = moments_of(at_random, "selected", "std")
RHO, NOISE, RATIO = 0.05, 2.0, 0.5


class Policy:
    """Prompts whose log-odds share a part RHO, and a noise that no reward depends on.

    The gradient of the log-odds is d: of one prompt |d|^2 = 1, of two d d' = RHO. A rollout's score
    is (1 - p) d if it is right and -p d if it is wrong, plus a vector of squared length NOISE (of
    right ones NOISE x RATIO) on average, as the mean of a normal part of the action has it.
    """

    def __init__(self, rates):
        count = len(rates)
        self.rates, self.rng = np.asarray(rates), np.random.default_rng(0)
        own = np.sqrt(1 - RHO) * np.eye(count)
        self.d = np.concatenate([np.full((count, 1), np.sqrt(RHO)), own], 1)
        self.gradient = (self.rates * (1 - self.rates)) @ self.d / count  # of the mean success

    def step(self, n, m, prompts):
        """Return the mean of the gradients of groups, and its square with the noise's part."""
        total, noise = np.zeros(self.d.shape[1]), 0.0
        for x in self.rng.permutation(len(self.rates))[:prompts]:
            rewards = (self.rng.random(n) < self.rates[x]).astype(float)
            kept = max_variance(rewards, m)
            each = advantages(rewards, kept, **STD) / m / prompts
            right = rewards[kept] == 1
            total += (each * (right - self.rates[x])).sum() * self.d[x]
            noise += NOISE * (each**2 * np.where(right, RATIO, 1)).sum()
        return total, total @ total + noise


@pytest.mark.parametrize("prompts", [1, 4])
def test_progress_is_that_of_a_policy_with_known_gradients(prompts):
    """kappa of P prompts that are trained and scored is (1 - rho) p(1-p)/P + rho mean p(1-p)."""
    policy, menu = Policy(np.linspace(0.02, 0.98, 20)), [(8, 8), (32, 8), (32, 4)]
    measured = []
    for n, m in menu:
        steps = [policy.step(n, m, prompts) for _ in range(12000 // prompts)]
        mean, square = (np.mean(each, axis=0) for each in zip(*steps, strict=True))
        measured.append(mean @ policy.gradient / np.sqrt(square))
    certain = 1e9 * np.stack([policy.rates, 1 - policy.rates], axis=1)
    own = (1 - RHO) / (1 - RHO + RHO * len(policy.rates))
    scales = GradientScales(NOISE, RHO, RATIO, own)
    found = expected_progress(menu, certain, scales, prompts)
    assert found / found[0] == pytest.approx(np.array(measured) / measured[0], rel=0.04)
    for other in (0.0, 1.0) if prompts == 1 else ():  # the tilt is seen
        wrong = expected_progress(menu, certain, GradientScales(NOISE, RHO, RATIO, other), prompts)
        assert wrong[1] / wrong[0] != pytest.approx(measured[1] / measured[0], rel=0.04)


def test_progress_is_that_of_groups_drawn_and_selected_by_brute_force():
    posteriors, rng = np.array([[1.5, 8.5], [20.5, 1.5]]), np.random.default_rng(0)
    menu, expected = [(16, 16), (64, 8), (24, 6), (15, 5)], []
    for n, m in menu:
        signal, square, tilt = [], [], []
        for alpha, beta in posteriors:
            rates = rng.beta(alpha, beta, 2000)
            for rewards in (rng.random((2000, n)) < rates[:, None]).astype(float):
                kept = rewards[max_variance(rewards, m)]
                weights = advantages(kept, np.arange(m), **STD) / np.sqrt(m * (m - 1))
                signal.append(weights[kept == 1].sum())  # wrong ones have the same, negative
                noise = (weights**2 * np.where(kept == 1, 0.25, 1)).sum()
                square.append(signal[-1] ** 2 + 4 * noise)
            tilt += [*(rates * (1 - rates))]
        kappa = 0.7 * np.mean(tilt) + 0.3 * np.array(tilt)
        mean_square = 0.5 * 0.1 * np.mean(signal) ** 2 + np.mean(square) / 2
        expected.append(np.mean(kappa * signal) / np.sqrt(mean_square))
    found = expected_progress(menu, posteriors, GradientScales(4, 0.1, 0.25, 0.3), 2)
    assert found == pytest.approx(expected, rel=0.03)


def weight(p, n, m, moments):
    """w(p) = E[s | p] / (p (1 - p)): the gradient is w(p) times that of p on average."""
    certain = 1e9 * np.stack([p, 1 - p], axis=1)
    return beta_binomial(n, certain) @ moments(n, m)[0] / (p * (1 - p))


def test_each_estimator_climbs_its_objective():
    """RLOO climbs p, GRPO with many rollouts arcsin sqrt p, max-variance of many log-odds."""
    p = np.array([0.1, 0.3, 0.5, 0.8])
    rloo = moments_of(at_random, "leave_one_out", "none")
    assert weight(p, 16, 16, rloo) == pytest.approx(np.ones(4), rel=1e-6)
    std = (7 / 8) ** 0.5  # the std of the kept rewards has m - 1
    assert weight(p, 8, 8, GRPO) == pytest.approx(weight(p, 8, 8, balanced) * std)
    assert weight(p, 2000, 2000, balanced) == pytest.approx((p * (1 - p)) ** -0.5, rel=0.01)
    assert weight(p, 2000, 8, balanced) == pytest.approx(1 / (2 * p * (1 - p)), rel=1e-6)
    chosen = moments_of(half, "selected", "std")(9, 5) / (4 / 5) ** np.array([[0.5], [1], [1], [1]])
    assert chosen == pytest.approx(balanced(9, 5))


def test_counts_of_right_rollouts_are_those_of_scipy():
    posteriors = np.array([[0.5, 0.5], [3.0, 9.5], [60.5, 0.5], [2000.0, 500.0]])
    for n in (1, 2, 16, 64):
        for row, (alpha, beta) in zip(beta_binomial(n, posteriors), posteriors, strict=True):
            theirs = stats.betabinom(n, alpha, beta).pmf(np.arange(n + 1))
            assert row == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    certain = np.array([[1e-9, 1e9], [1e9, 1e-9]])  # never or always solved: no progress
    scales = GradientScales(4.0, 0.1, 1.0)
    found = expected_progress([(16, 16), (64, 16)], certain, scales, 2)
    assert found == pytest.approx([0, 0], abs=1e-3)


def test_m_at_fixed_n_is_expected_as_it_was_registered():
    """The ranges that were committed before the runs are the law's, over what was left open."""
    pairs = [(64, 16), (64, 2), (64, 4), (64, 8), (64, 64)]
    ratios = []
    for noise in (1.8, 3.2):
        for rate in (0.27, 0.35, 0.45, 0.55):
            for concentration in (3.0, 8.0, 30.0):
                for own in (0.0, 1.0):
                    posteriors = concentration * np.array([[rate, 1 - rate]])
                    scales = GradientScales(noise, 0.06, 0.25, own)
                    progress = expected_progress(pairs, posteriors, scales, 2)
                    ratios.append(progress[1:] / progress[0])

    registered = pd.read_csv(ROOT / "experiments/msweep/predictions.csv", comment="#")
    assert np.min(ratios, 0) == pytest.approx(registered.low, abs=0.006)
    assert np.max(ratios, 0) == pytest.approx(registered.high, abs=0.006)


@pytest.mark.realdata
@pytest.mark.parametrize(("n", "target"), [(64, 80), (256, 81), (32, 79)])
def test_steps_of_the_logs_by_another_way(n, target):
    folder, medians = Path(os.environ["PODS_REALDATA"]) / "pods_release", []
    base = np.mean(json.loads((folder / "base-qwen.json").read_text())["gsm8k"]["ans_acc"])
    for arm in (16, n):
        taken = []
        for path in folder.glob(f"Instruct-GSM8K-512-{arm}-16-Run*.json"):
            blocks = json.loads(path.read_text()).items()
            log = {int(name.split("-")[1]): block["gsm8k"]["ans_acc"] for name, block in blocks}
            points = [(0, base), *((step, np.mean(log[step])) for step in sorted(log))]
            at = next(i for i, (_, right) in enumerate(points) if right >= target / 100)
            steps, right = zip(*points[at - 1 : at + 1], strict=True)
            taken.append(np.interp(target / 100, right, steps))
        medians.append(np.median(taken))
    table = pd.read_csv(ROOT / "experiments/law/logs.csv").set_index(["arm", "quantity"])
    row = table.loc[f"GSM8K pods {n}→16", f"times fewer steps to {target} %"]
    assert row.reached == row.baseline_reached == 10
    assert row.ratio == pytest.approx(medians[0] / medians[1], rel=0.01)


def test_a_mean_curve_with_a_gap_has_unknown_steps_and_not_never(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    measure = importlib.import_module("experiments.law.measure")
    steps = np.array([0.0, 10.0, 20.0])
    whole, gap = np.array([[0.0, 0.5, 1.0]] * 2), np.array([[0.0, 0.5, 1.0], [0.0, np.nan, 1.0]])
    assert measure.steps_to(0.75, whole, steps) == pytest.approx(15)
    assert measure.steps_to(1.5, whole, steps) == np.inf
    assert np.isnan(measure.steps_to(0.75, gap, steps))
    assert np.isnan(measure.ratio(gap, whole, steps))
    assert np.isnan(measure.ratio(whole, gap, steps))
    assert measure.ratio(whole, whole, steps) == 1
