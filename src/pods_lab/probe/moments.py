"""How well (rule, n, m, advantage) estimates the policy gradient, by resampling a pool of rollouts.

Every estimator is a sum of advantages times the gradients of single rollouts, so all that it needs
of the gradients are their inner products K, computed once.

**Finite pool.** Groups are drawn from the N rollouts of a prompt without replacement, which makes
each of them an independent sample of the policy. Products of two means are taken between different
prompts only, so that no noise meets itself; that estimates the population of problems that
the prompts were drawn from, also in the bootstrap, which leaves out pairs of one prompt, too.

**A step** averages B prompts: with M the mean of an estimator over problems and S its mean square,
a step's mean square is |M|² + (S - |M|²) / B.

Shapes: P = prompts, N = rollouts of each, E = estimators, R = groups drawn of each prompt.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.method.rules import Rule
from pods.types import Floats, Group

INTERVAL = [0.025, 0.975]
OUTCOMES = ("cosine", "progress", "scale", "bias", "variance", "per_second", "relative")


@dataclass(frozen=True)
class Estimator:
    """One way to turn a group of n rollouts into a gradient."""

    name: str  # of the rule with its advantage: the panel of the figure
    rule: Rule
    advantages: Callable[[Floats, NDArray[np.intp]], Floats]  # of (rewards, kept), (m,)
    n: int
    m: int


def draw(estimator: Estimator, pool: Group, count: int, rng: np.random.Generator) -> Floats:
    """Draw groups of n from a prompt's pool; return the weight of each rollout in each, (R, N)."""
    weights = np.zeros((count, len(pool.rewards)))
    for row in weights:
        drawn = rng.permutation(len(row))[: estimator.n]
        group = Group(pool.rewards[drawn], pool.rewarded[drawn], pool.lengths[drawn])
        kept = estimator.rule(group, estimator.m, rng)
        row[drawn[kept]] = estimator.advantages(group.rewards, kept) / estimator.m
    return weights


@dataclass(frozen=True)
class Moments:
    """Inner products over pairs of prompts; only those of different prompts mean anything."""

    reference: Floats  # (P, P) of the gradients of the expected reward
    along: Floats  # (E, P, P) of each estimator's mean with those
    means: Floats  # (E, P, P) of each estimator's mean with itself
    squares: Floats  # (E, P) mean square of each estimator


def moments(
    products: NDArray[np.float32],
    pools: Sequence[Group],
    estimators: Iterable[Estimator],
    count: int,
    seed: int,
) -> Moments:
    """Resample every estimator (n <= N), with `count` groups drawn of each of the (P,) pools.

    The gradient of the expected reward of a prompt is the covariance of reward and gradient, here
    sum (r_i - mean r) v_i / (N - 1): REINFORCE (Williams 1992) with the mean of the other rollouts
    as the baseline of each (RLOO, arXiv:2402.14740), which is unbiased. The (P N, P N) `products`
    are inner products of the rollouts' normalised gradients v.
    """
    prompts = len(pools)
    size = len(pools[0].rewards)
    kernel = np.asarray(products).reshape(prompts, size, prompts, size)
    rewards = np.array([pool.rewards for pool in pools])
    target = (rewards - rewards.mean(axis=1, keepdims=True)) / (size - 1)
    with_target = with_sums(kernel, target)

    along = []
    means = []
    squares = []
    for number, estimator in enumerate(estimators):
        rng = np.random.default_rng([seed, number])
        weights = [draw(estimator, pool, count, rng) for pool in pools]
        mean = np.array([drawn.mean(axis=0) for drawn in weights])
        along.append(np.einsum("pn,pnq->pq", mean, with_target))
        means.append(np.einsum("pn,pnq->pq", mean, with_sums(kernel, mean)))
        squares.append(_mean_squares(kernel, weights))
    return Moments(
        reference=np.einsum("pn,pnq->pq", target, with_target),
        along=np.array(along),
        means=np.array(means),
        squares=np.array(squares),
    )


def _mean_squares(kernel: NDArray[np.float32], weights: Sequence[Floats]) -> list[float]:
    """Return the mean square of an estimator for each prompt, from its (R, N) weights."""
    squares = []
    for prompt, drawn in enumerate(weights):
        within = kernel[prompt, :, prompt]
        squares.append(((drawn @ within) * drawn).sum(axis=1).mean())
    return squares


def with_sums(kernel: NDArray[np.float32], weights: Floats) -> Floats:
    """Return each gradient's inner product with each prompt's weighted sum of them, (P, N, P)."""
    return np.stack([kernel[:, :, q] @ weights[q] for q in range(len(weights))], axis=2)


def summarise(
    measured: Moments,
    estimators: Sequence[Estimator],
    seconds: Sequence[float],
    baseline: int,
    prompts_per_step: int,
    resamples: int,
    seed: int,
) -> pd.DataFrame:
    """Return a row per estimator; each outcome has its 95 % bootstrap interval over prompts.

    The outcomes of a step: `cosine`, expected, to the gradient of the expected reward g;
    `progress` = cosine |g|, the reward gained along g by a step of root mean square length 1, as
    a norm-adapting optimizer makes it; `scale` mean·g / |g|² and `bias`, the sine of the angle of
    mean and g: 1 and 0 where the estimator is unbiased; `variance` / |mean|²; `per_second`,
    progress over seconds, of which (E,) are given, NaN where unknown; `relative`, per_second over
    that of the estimator with the index `baseline`.
    """
    table = pd.DataFrame({
        "rule": [estimator.name for estimator in estimators],
        "n": [estimator.n for estimator in estimators],
        "m": [estimator.m for estimator in estimators],
        "seconds": np.asarray(seconds),
    })  # fmt: skip
    shares = resampled(len(measured.reference), resamples, seed)
    values = outcomes(measured, shares, table.seconds.to_numpy(), baseline, prompts_per_step)
    for name, resampled_values in values.items():
        table[name] = resampled_values[0]
        ends = pd.DataFrame(resampled_values[1:]).quantile(INTERVAL)  # NaN where all are
        low, high = ends.to_numpy()
        table[f"{name}_low"] = low
        table[f"{name}_high"] = high
    return table


def resampled(prompts: int, resamples: int, seed: int) -> Floats:
    """Return shares of the prompts, (1 + S, P): equal ones, and those of bootstrap resamples."""
    rng = np.random.default_rng(seed)
    equal = np.full((1, prompts), 1 / prompts)
    counts = rng.multinomial(prompts, equal[0], resamples)
    counts = counts[counts.max(axis=1) < prompts]  # one prompt alone has no pair
    return np.concatenate([equal, counts / prompts])


def outcomes(
    measured: Moments, shares: Floats, seconds: Floats, baseline: int, prompts_per_step: int
) -> dict[str, Floats]:
    """Return each outcome of `summarise` for some shares of the prompts, (shares, E).

    NaN stands where noise leaves a squared length that is not positive.
    """
    pairs = shares[:, :, None] * shares[:, None]  # (shares, P, P)
    pairs *= 1 - np.eye(len(measured.reference))
    pairs /= pairs.sum((1, 2), keepdims=True)
    reference = np.einsum("bpq,pq->b", pairs, measured.reference)[:, None]
    along = np.einsum("bpq,epq->be", pairs, measured.along, optimize=True)
    mean = np.einsum("bpq,epq->be", pairs, measured.means, optimize=True)
    rest = shares @ measured.squares.T - mean

    with np.errstate(invalid="ignore", divide="ignore"):
        length = np.sqrt(np.where(reference > 0, reference, np.nan))
        square = mean + rest / prompts_per_step
        mean = np.where(mean > 0, mean, np.nan)
        progress = along / np.sqrt(np.where(square > 0, square, np.nan))
        angle = along / (length * np.sqrt(mean))
        per_second = progress / seconds
        return {
            "cosine": progress / length,
            "progress": progress,
            "scale": along / length**2,
            "bias": np.sqrt(np.clip(1 - angle**2, 0, None)),
            "variance": rest / prompts_per_step / mean,
            "per_second": per_second,
            "relative": per_second / per_second[:, [baseline]],
        }
