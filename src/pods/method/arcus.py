"""ARCUS: problems near a paced target, by Gaussian beliefs about their success rates.

"Prompts Live on an Arc: Gaussian Curricula in Fisher-Rao Coordinates for Rollout-Efficient GRPO",
arXiv:2609.38018v1, section 4 and appendix D. A success rate p is seen as a point of an arc,
psi = arcsin(sqrt(p)) from 0 to pi/2, on which n rollouts tell about as much anywhere.

Shapes: P = problems in the train pool, S = those that were observed, M = those of one step, K = 41
targets of the grid. Arcs are in radians.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder
from pods.types import Floats

END = math.pi / 2  # the arc of a problem that is always solved
PRIOR = (math.pi / 4, math.pi**2 / 48)  # mean and variance of the uniform distribution on the arc
ENOUGH_OBSERVED = 100  # problems from which the prior is made, instead
TEMPERATURE = 0.3  # T
SLACK = 0.03  # epsilon: how much of the yield a harder target may cost
TARGETS = 41  # of the grid
TARGET_STEP = 0.005  # Delta: radians by which the target moves per update at most
BISECTIONS = 40
RATE = 0.1  # beta, of the drift and the diffusion
MIN_DIFFUSION = 1e-5
MIN_MOBILITY = 0.05
"""The constants of the paper's section 5.1, Table 5 and appendix D."""
MIN_CHANCE = 1e-9  # deviation 3
MIN_WEIGHT = 1e-300  # so that no weight is 0


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What is believed of all problems before an update: Gaussians on the arc."""

    mean: Floats  # (P,)
    variance: Floats  # (P,)
    gap: Floats  # (P,) updates since the problem was last observed; 0 if it never was


@dataclass(frozen=True, slots=True)
class Arcus:
    """ARCUS (Algorithm 1): candidates by kernel times yield, at a target that hardens slowly.

    With M = 1.25 B candidates a step and without refilling, as in `conf/arm/arcus.yaml`.

    Deviations:
        1. A step trains on its first B informative candidates by the score at which they were
           drawn; in the paper by the score of the beliefs after the rollouts.
        2. The paper names no first drift and diffusion. Here they are 0 and the least, 1e-5.
        3. The logarithm of the score needs a yield above 0: at least 1e-9.
        4. The mobility uses the predicted mean; the paper does not say which.
        5. The belief about a problem that was never observed does not drift or diffuse, and the
           prior of the paper's appendix D is made of beliefs that did.
        6. A problem that comes twice in a step, or in several groups (`nm.groups`), is one
           observation of all of its rollouts, and G is the rollouts of a prompt.
        7. An update counts once its outcomes are observed, so that beliefs are older than in the
           paper under `engine.lag`.
           If a step draws several batches, the target moves with each.
        8. The kernel is the same without the std (the paper's appendix C divides it by sin 2 psi).

    Small steps: with two prompts M = 3, which is 1.5 B. The target moves as slowly as in the
    paper, whose updates have 256 prompts, so a few hundred small steps may end before it reaches
    the frontier. Drift and diffusion follow the few problems of a step that were seen before.
    """

    position: int = 0  # candidates drawn so far
    updates: int = 0  # observed so far (t - 1)
    rollouts: int = 2
    """G, of a prompt in the latest step. At first it is unknown, and makes no difference then:
    the beliefs about all problems are equal."""
    target: float = math.pi / 4  # psi*
    drift: float = 0.0  # v
    diffusion: float = MIN_DIFFUSION  # Q
    observed: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Mean, variance and the update of the last observation (t_q), by problem."""

    def choose(self, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, "Arcus"]:
        """Draw candidates from the whole pool, each at most once, and return the best first.

        Gumbel-top-M of log s / T: without replacement, by s^(1/T) (section 4).
        """
        beliefs = self.predict(order.pool)
        target = self.next_target(beliefs, prompts)
        scores = log_score(beliefs.mean, beliefs.variance, self.rollouts, target)

        noise = order.rng("arcus", self.position).gumbel(size=order.pool)
        drawn = np.argsort(-(scores / TEMPERATURE + noise), kind="stable")[:prompts]
        ranked = drawn[np.argsort(-scores[drawn], kind="stable")]

        chosen = ChosenPrompts(ranked.tolist())
        return chosen, replace(self, position=self.position + prompts, target=target)

    def predict(self, pool: int) -> Beliefs:
        """Return the beliefs before the next update: Eq. (2), as often as updates have passed.

        With the present drift and diffusion for all of these updates, as in appendix D.
        """
        prior_mean, prior_variance = PRIOR
        problems = [int(problem) for problem in self.observed]
        values = np.array(list(self.observed.values())).reshape(-1, 3)
        gap = self.updates + 1 - values[:, 2]
        mean = drifted(values[:, 0], gap, self.drift)
        variance = values[:, 1] + gap * self.diffusion
        if len(problems) >= ENOUGH_OBSERVED:
            prior_mean = mean.mean()
            prior_variance = mean.var() + variance.mean()

        beliefs = Beliefs(np.full(pool, prior_mean), np.full(pool, prior_variance), np.zeros(pool))
        beliefs.mean[problems] = mean
        beliefs.variance[problems] = variance
        beliefs.gap[problems] = gap
        return beliefs

    def next_target(self, beliefs: Beliefs, prompts: int) -> float:
        """Return the frontier, as far as the target may move, or during the warm-up pi/4.

        The warm-up lasts until as many candidates were drawn as there are problems, which takes
        ceil(P / M) updates.
        """
        if self.position < len(beliefs.mean):  # a first pass over the pool
            return math.pi / 4
        hardest = frontier(beliefs.mean, beliefs.variance, self.rollouts, prompts)
        return min(max(hardest, self.target - TARGET_STEP), self.target + TARGET_STEP)

    def observe(self, order: PromptOrder, outcomes: Sequence[Outcome]) -> "Arcus":
        """Update the beliefs about the problems of a step, then drift and diffusion."""
        if not outcomes:
            return self
        totals: dict[int, tuple[int, int]] = {}
        for outcome in outcomes:
            right, rollouts = totals.get(outcome.problem, (0, 0))
            totals[outcome.problem] = (right + outcome.right, rollouts + outcome.rollouts)

        problems = list(totals)
        beliefs = self.predict(order.pool)
        mean = beliefs.mean[problems]
        variance = beliefs.variance[problems]
        gap = beliefs.gap[problems]
        z, noise = observation(*np.array(list(totals.values())).T)
        new_mean, new_variance = kalman(mean, variance, z, noise)

        update = self.updates + 1
        observed = dict(self.observed)
        for problem, values in zip(problems, np.stack([new_mean, new_variance]).T, strict=True):
            observed[str(problem)] = (*values.tolist(), float(update))

        drift = self.drift
        diffusion = self.diffusion
        again = gap > 0
        if again.any():
            innovation = (z - mean)[again]
            expected = (variance + noise)[again]
            drift = next_drift(drift, innovation, gap[again], mean[again])
            diffusion = next_diffusion(diffusion, innovation, expected, gap[again])

        return replace(
            self,
            updates=update,
            rollouts=max(outcome.rollouts for outcome in outcomes),
            drift=drift,
            diffusion=diffusion,
            observed=observed,
        )


def drifted(mean: Floats, gap: Floats, drift: float) -> Floats:
    """Move each mean by drift * sin(2 mean), `gap` times, within the arc: Eq. (2).

    >>> drifted(np.array([np.pi / 4, np.pi / 4]), np.array([1, 0]), 0.1) - np.pi / 4
    array([0.1, 0. ])
    """
    if drift == 0 or len(mean) == 0:
        return mean
    by_gap = np.argsort(gap, kind="stable")
    moved = mean[by_gap]
    starts = np.searchsorted(gap[by_gap], np.arange(gap.max()), side="right")
    for start in starts:  # of those whose gap is longer than the updates so far
        moving = moved[start:]
        moving += drift * np.sin(2 * moving)
        np.maximum(moving, 0, out=moving)
        np.minimum(moving, END, out=moving)

    result = np.empty_like(mean)
    result[by_gap] = moved
    return result


def observation(right: NDArray[np.int64], rollouts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the arc (M,) that each group shows, and its variance (M,): Eq. (3).

    Anscombe's estimate, or an end of the arc if all rollouts agree, with a larger variance.
    """
    mixed = (right > 0) & (right < rollouts)
    anscombe = np.arcsin(np.sqrt((right + 3 / 8) / (rollouts + 3 / 4)))
    z = np.where(mixed, anscombe, np.where(right == 0, 0, END))
    noise = np.where(mixed, 1 / (4 * rollouts + 2), 1 / (2 * rollouts))
    return z, noise


def kalman(mean: Floats, variance: Floats, z: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance after an observation z of this noise: the update under Eq. (3)."""
    gain = variance / (variance + noise)
    return np.clip(mean + gain * (z - mean), 0, END), (1 - gain) * variance


def next_drift(drift: float, innovation: Floats, gap: Floats, mean: Floats) -> float:
    """Return the drift after a step, of whose M problems `mean` was predicted (appendix D)."""
    mobility = np.maximum(np.sin(2 * mean), MIN_MOBILITY)
    return float(drift + RATE * innovation.sum() / (gap * mobility).sum())


def next_diffusion(diffusion: float, innovation: Floats, expected: Floats, gap: Floats) -> float:
    """Return the diffusion after a step: by how much innovations vary more than expected.

    `expected` (M,) is the predicted variance of the innovations (appendix D).
    """
    excess = (innovation**2 - expected).mean() / gap.mean()
    fitted = max(diffusion + excess, 0)
    return float(max(MIN_DIFFUSION, (1 - RATE) * diffusion + RATE * fitted))


def log_kernel(mean: Floats, variance: Floats, target: Floats | float) -> Floats:
    """Return log kappa, of the overlap of a belief with the target's kernel: Eq. (4).

    The kernel is as wide as the objective that the target stands for (Proposition 4).
    """
    width = np.minimum(np.sin(target), np.cos(target)) ** 2 / 2  # sigma^2
    spread = width + variance
    return 0.5 * np.log(width / spread) - (mean - target) ** 2 / (2 * spread)


def informative_chance(mean: Floats, variance: Floats, rollouts: int) -> Floats:
    """Return the chance that a group of so many rollouts has right and wrong ones: y, Eq. (4)."""
    a = 1 + 2 * rollouts * variance
    none_right = np.exp(-rollouts * mean**2 / a)
    all_right = np.exp(-rollouts * (END - mean) ** 2 / a)
    return 1 - (none_right + all_right) / np.sqrt(a)


def log_score(mean: Floats, variance: Floats, rollouts: int, target: Floats | float) -> Floats:
    """Return log s = log(kappa y), (P,), or (K, P) for targets (K, 1): section 4."""
    chance = np.maximum(informative_chance(mean, variance, rollouts), MIN_CHANCE)
    return log_kernel(mean, variance, target) + np.log(chance)


def inclusion(log_scores: Floats, count: int) -> Floats:
    """Return the chances min(1, c s^(1/T)) to be drawn, which sum to `count` in each row.

    c is found by geometric bisection (appendix D).
    """
    logs = log_scores / TEMPERATURE
    weights = np.maximum(np.exp(logs - logs.max(axis=-1, keepdims=True)), MIN_WEIGHT)
    low = count / weights.sum(axis=-1, keepdims=True)
    high = 1 / weights.min(axis=-1, keepdims=True)
    for _ in range(BISECTIONS):
        middle = np.sqrt(low) * np.sqrt(high)
        total = np.minimum(1, middle * weights).sum(axis=-1, keepdims=True)
        low = np.where(total < count, middle, low)
        high = np.where(total < count, high, middle)

    chances: Floats = np.minimum(1, high * weights)
    return chances


def frontier(mean: Floats, variance: Floats, rollouts: int, count: int) -> float:
    """Return the hardest target whose predicted yield is within `SLACK` of the best: Eq. (5).

    The grid goes from pass@G to pass^G (appendix D); `count` candidates are to be drawn.
    """
    lowest = math.asin(1 / math.sqrt(2 * rollouts))
    grid = np.linspace(lowest, END - lowest, TARGETS)
    chance = informative_chance(mean, variance, rollouts)
    scores = log_score(mean, variance, rollouts, grid[:, np.newaxis])
    predicted = inclusion(scores, count) @ chance / count
    admissible = predicted >= predicted.max() - SLACK
    return float(grid[np.argmax(admissible)])  # the first
