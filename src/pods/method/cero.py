"""CERO: problems whose worth exceeds the price of rollouts, over a number of rounds.

"CERO: Where and When to Allocate Rollouts for RL Post-Training", arXiv:2610.09679v1, sections 2 to
4, Algorithm 1 and appendix G. The unit here is a whole group, which in the paper's runs is two of
its units (its N_max): that gives the same choices.

Shapes: P = problems in the train pool (the paper's M).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder
from pods.types import Floats

PRIOR = (1.0, 1.0, 2 / 3)  # a_0, b_0, and the slope 4 q of their variation q = 1/6
FIRST_PRICE = 0.5  # nu of the first round
CAPACITY = 132 / 128  # most prompts of a round over their mean, C over B / K
"""The values of the paper's runs, appendix G; there lambda and rho are 1, as they are here."""
MIN_SLOPE = 1e-300  # so that the logarithm of a slope of 0 is finite, too


@dataclass(frozen=True, slots=True)
class Cero:
    """CERO (Algorithm 1): each problem has a slope, the marginal worth of another group of it.

    A round takes the problems whose slope exceeds a price that all share, the largest differences
    first. A slope falls when its problem is drawn, and the price falls when a round draws fewer
    problems than the budget allows.

    Deviations:
        1. The most prompts of a round, C, are `prompts_per_step`. Their mean by the budget is
           128/132 of that, as in the paper, where C is 132. So at equal rounds it generates 3 %
           less than the other selectors, and a small step differs by a whole prompt or not at all.
        2. A round without prompts passes within the choice: it is no step and takes no time. In
           the paper it is no step either.
        3. The budget in rollouts does not end a run: it ends by `budget`, also before or after its
           `prompts.rounds`, which here only set the step size 1/sqrt(K).
        4. Slopes and price are updated at the next choice. Under `engine.lag` fewer outcomes are
           known by then.
        5. "Reserve-aware catch-up", which the paper names and does not describe, is left out.
    """

    rounds: int  # K
    position: int = 0  # prompts drawn so far
    price: float = FIRST_PRICE  # nu, of the round that was last drawn
    drawn: Sequence[int] = ()  # the problems of that round
    known: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(a, b) of the success rate's Beta distribution, and the slope (theta) of that round, by
    problem. `PRIOR` is absent: the slope of a problem that was never drawn does not change."""

    def choose(self, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, "Cero"]:
        """Let slopes and price follow the latest round, and draw the next that is not empty.

        At least one and at most `prompts` problems. Ties go by the order of the first epoch.
        """
        state = self.after_round(order.pool, prompts) if self.position > 0 else self
        drawn = state.worth_drawing(order)[:prompts]
        while not drawn:
            state = replace(state, drawn=()).after_round(order.pool, prompts)
            drawn = state.worth_drawing(order)[:prompts]

        return ChosenPrompts(drawn), replace(
            state, position=self.position + len(drawn), drawn=tuple(drawn)
        )

    def table(self, pool: int) -> Floats:
        """Return a, b and slope of each problem, (P, 3)."""
        return np.array([self.known.get(str(problem), PRIOR) for problem in range(pool)])

    def worth_drawing(self, order: PromptOrder) -> list[int]:
        """Return the problems whose slope exceeds the price, by decreasing difference: Eq. (8)."""
        first_epoch = np.array(order.candidates(0, order.pool))
        margin = self.table(order.pool)[first_epoch, 2] - self.price
        ranked = np.argsort(-margin, kind="stable")
        count = np.count_nonzero(margin > 0)
        problems: list[int] = first_epoch[ranked[:count]].tolist()
        return problems

    def after_round(self, pool: int, prompts: int) -> "Cero":
        """Let slopes and price follow the round that was drawn: Eq. (10)."""
        table = self.table(pool)
        drawn = np.zeros(pool)
        drawn[list(self.drawn)] = 1
        step = 1 / math.sqrt(self.rounds)
        mean_prompts = prompts / CAPACITY

        variation = reward_variation(table[:, 0], table[:, 1])
        wanted = wanted_share(table[:, 2], variation, pool / mean_prompts)
        table[:, 2] = np.clip(table[:, 2] - step * (drawn - wanted), 0, 1)
        known = {
            str(problem): values
            for problem, values in enumerate(table.tolist())
            if tuple(values) != PRIOR
        }
        price = next_price(self.price, len(self.drawn), prompts, mean_prompts, step)
        return replace(self, price=price, known=known)

    def observe(self, order: PromptOrder, outcomes: Sequence[Outcome]) -> "Cero":
        """Add the new outcomes to the Beta distributions: Eq. (5), at rho = 1."""
        known = dict(self.known)
        for outcome in outcomes:
            a, b, slope = known.get(str(outcome.problem), PRIOR)
            wrong = outcome.rollouts - outcome.right
            known[str(outcome.problem)] = (a + outcome.right, b + wrong, slope)
        return replace(self, known=known)


def reward_variation(a: Floats, b: Floats) -> Floats:
    """Return the expected p (1 - p) under Beta(a, b), (P,): q of Eq. (6)."""
    return a * b / ((a + b) * (a + b + 1))


def wanted_share(slopes: Floats, variation: Floats, pool_over_mean: float) -> Floats:
    """Return the share of rounds in which a problem should be drawn, (P,): z*/Z, z* of Eq. (9).

    With whole groups and lambda = 1, z*/Z is ln(4q / slope) / (4q K/R), from 0 to 1, and
    K/R is the pool over the mean number of prompts of a round.
    """
    rate = 4 * variation
    share = np.log(rate / np.maximum(slopes, MIN_SLOPE)) / (rate * pool_over_mean)
    return np.clip(np.where(slopes > 0, share, 1), 0, 1)


def next_price(price: float, drawn: int, most: int, mean: float, step: float) -> float:
    """Return the price after a round of `drawn` of at most `most` prompts: Eq. (10).

    >>> next_price(0.5, drawn=132, most=132, mean=128.0, step=1.0)
    0.53125
    """
    scale = max(mean, most - mean)
    return min(max(price - step * (mean - drawn) / scale, 0.0), 1.0)
