"""CERO, against the paper's numbers and its Algorithm 1, written down again in its own units."""

import json
import math

import msgspec
import numpy as np
import pytest
from fake_loop import loop, take_step

from pods.method import cero
from pods.method.cero import Cero
from pods.method.prompt_order import Outcome, PromptOrder
from pods.method.prompt_selection import start
from pods.training.metrics import metrics


def outcome(problem, right, rollouts=8):
    return Outcome(problem, right, rollouts, zero_variance=right in (0, rollouts))


@pytest.mark.parametrize(("a", "b"), [(1, 1), (5, 5), (9, 1), (3, 12)])
def test_the_variation_is_the_mean_of_p_times_1_minus_p(a, b):
    p = np.linspace(0, 1, 100_001)
    density = p ** (a - 1) * (1 - p) ** (b - 1)
    expected = np.trapezoid(density * p * (1 - p), p) / np.trapezoid(density, p)
    assert cero.reward_variation(np.array([a]), np.array([b])) == pytest.approx([expected])


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.2, 0.6, 0.9, 1.0])
def test_the_share_is_the_cheapest_exposure_of_a_concave_utility(slope):
    """The exposure z that minimises slope z lambda/R - U(q, z), from 0 to Z = K, over Z."""
    variation, rounds, mean, pool = 0.2, 50, 4, 10
    equal_share = rounds * mean / pool  # R
    z = np.linspace(0, rounds, 50_001)
    cost = slope / equal_share * z + np.exp(-4 * variation * z / equal_share)
    expected = z[np.argmin(cost)] / rounds
    found = cero.wanted_share(np.array([slope]), np.array([variation]), pool / mean)
    assert found == pytest.approx([expected], abs=1e-4)


def test_a_slope_of_0_wants_every_round_however_many_problems_there_are():
    """Eq. (9): Z if the slope is at most c exp(-c Z), here exp(-2000), which float64 has not."""
    found = cero.wanted_share(np.array([0.0, 1e-300]), np.array([0.25, 0.25]), 2000.0)
    assert found == pytest.approx([1, 690.776 / 2000], abs=1e-6)


def test_the_papers_numbers():
    """K = 500 and an equal share of R = 8 units, four groups: pool over mean is 125.

    Seen 4 of 8: q = 0.227273, wanted 0.002729; seen 8 of 8: q = 0.081818, wanted 0.
    """
    order = PromptOrder(0, 16_000)  # 128 prompts a round on average, 132 at most
    chosen, first = Cero(500).choose(order, 132)
    assert len(chosen.problems) == 132 and chosen.problems == order.candidates(0, 132)
    half, easy, *_ = chosen.problems
    seen = first.observe(order, [outcome(half, 4), outcome(easy, 8)]).after_round(16_000, 132)
    assert seen.known[str(half)] == pytest.approx((5, 5, 0.622068), abs=1e-6)
    assert seen.known[str(easy)] == pytest.approx((9, 1, 0.621946), abs=1e-6)
    assert len(seen.known) == 132  # the others have the slope 2/3, as at first
    assert seen.price == pytest.approx(0.501398, abs=1e-6)


class Published:
    """Algorithm 1 in units of half a group, problem by problem, without its limit of B."""

    def __init__(self, ties, rounds, capacity, budget):
        self.pool, self.ties, self.rounds, self.capacity = len(ties), ties, rounds, capacity
        self.r, self.z, self.mean = budget / self.pool, rounds * 2, budget / rounds
        self.scale = max(self.mean, capacity - self.mean)
        self.a, self.b = [1.0] * self.pool, [1.0] * self.pool
        self.slope, self.price, self.virtual = [4 / 6] * self.pool, 0.5, []

    def allocate(self):
        by_margin = sorted(self.ties, key=lambda i: -(self.slope[i] - self.price))
        left, self.virtual = self.capacity, [0] * self.pool
        for i in by_margin:
            if self.slope[i] > self.price:
                self.virtual[i] = min(2, left)
                left -= self.virtual[i]
        return [i for i in by_margin if self.virtual[i] > 0]

    def update(self, results):
        gamma = 1 / math.sqrt(self.rounds)
        for i in range(self.pool):
            right, wrong = results.get(i, (0, 0))
            self.a[i] += right
            self.b[i] += wrong
            total = self.a[i] + self.b[i]
            c = 4 * self.a[i] * self.b[i] / (total * (total + 1)) / self.r
            theta = self.slope[i] / self.r
            if theta >= c:
                wanted = 0.0
            elif theta <= c * math.exp(-c * self.z):
                wanted = self.z
            else:
                wanted = math.log(c / theta) / c
            moved = self.slope[i] - gamma * (self.virtual[i] - wanted / self.rounds) / 2
            self.slope[i] = min(max(moved, 0.0), 1.0)
        moved = self.price - gamma * (self.mean - sum(self.virtual)) / self.scale
        self.price = min(max(moved, 0.0), 1.0)


@pytest.mark.parametrize(
    ("rounds", "prompts", "has_empty"), [(40, 3, False), (100, 2, True), (11, 5, False)]
)
def test_choices_are_those_of_algorithm_1(rounds, prompts, has_empty):
    order, rng = PromptOrder(1, 12), np.random.default_rng(0)
    rate = rng.uniform(0, 1, 12)
    budget = rounds * 2 * prompts * 128 / 132
    published = Published(order.candidates(0, 12), rounds, 2 * prompts, budget)
    selector, empty = Cero(rounds), 0
    for _ in range(60):
        expected = published.allocate()
        while not expected:
            empty += 1
            published.update({})
            expected = published.allocate()
        chosen, selector = selector.choose(order, prompts)
        assert chosen.problems == expected and 1 <= len(expected) <= prompts
        right = {i: int(rng.binomial(8, rate[i])) for i in expected}
        published.update({i: (r, 8 - r) for i, r in right.items()})
        selector = selector.observe(order, [outcome(i, r) for i, r in right.items()])
        assert selector.after_round(12, prompts).price == pytest.approx(published.price)
        slopes = selector.after_round(12, prompts).table(12)[:, 2]
        assert slopes == pytest.approx(np.array(published.slope))
    assert (empty > 0) == has_empty


def test_every_problem_comes_once_before_any_comes_again():
    order, selector, seen = PromptOrder(2, 9), Cero(100), []
    while len(seen) < 9:
        chosen, selector = selector.choose(order, 3)
        selector = selector.observe(order, [outcome(problem, 4) for problem in chosen.problems])
        seen += chosen.problems
    assert seen == order.candidates(0, 9)


def test_rounds_without_prompts_pass_until_the_price_has_fallen():
    """Slopes are 2/3; at gamma = 0.1 the price falls from 0.85 by 0.1 with each empty round."""
    order = PromptOrder(0, 6)
    chosen, after = Cero(100, position=2, price=0.85).choose(order, 2)
    assert after.price == pytest.approx(0.65) and len(chosen.problems) == 2
    assert after.position == 4 and list(after.drawn) == list(chosen.problems)
    # one problem whose slope is above the price, so the step has one prompt
    rare = {str(problem): (1.0, 1.0, 0.1) for problem in range(5)}
    chosen, after = Cero(100, position=2, price=0.5, known=rare).choose(order, 2)
    assert list(chosen.problems) == [5] and after.position == 3


def test_slopes_and_price_stay_between_0_and_1():
    """At gamma = 1; of a slope of 0.6 a tenth is wanted, so it would fall to -0.3."""
    nearly = Cero(1, position=2, price=0.0, drawn=(0,), known={"0": (1.0, 1.0, 0.6)})
    after = nearly.after_round(3, 2)
    assert after.known["0"][2] == 0.0 and after.price == 0.0
    full = Cero(1, price=0.99, drawn=(0, 1, 2, 3)).after_round(9, 4)
    assert full.price == 1.0


def saved_as(selector):
    return json.dumps(msgspec.to_builtins(selector))


def test_what_is_known_goes_through_a_checkpoint_unchanged():
    order, selector = PromptOrder(3, 12), Cero(25)
    for step in range(20):
        chosen, selector = selector.choose(order, 3)
        outcomes = [outcome(p, (p + step) % 9) for p in chosen.problems]
        selector = selector.observe(order, outcomes)
        selector = msgspec.convert(json.loads(saved_as(selector)), Cero)
    undisturbed = Cero(25)
    for step in range(20):
        chosen, undisturbed = undisturbed.choose(order, 3)
        outcomes = [outcome(p, (p + step) % 9) for p in chosen.problems]
        undisturbed = undisturbed.observe(order, outcomes)
    assert saved_as(undisturbed) == saved_as(selector)


def test_a_step_of_fewer_prompts_is_a_step():
    made, updates = loop("prompts=cero", "prompts.rounds=16")
    state, sizes = start(made.config.prompts), []
    for number in range(1, 25):
        step = take_step(made, number, state)
        state = step.state.selector
        sizes.append(len(step.groups))
        line = metrics(step)
        assert line["sampled_prompts"] == len(step.groups) and line["generated_rollouts"] > 0
        assert 0 <= line["selector/price"] <= 1
    assert set(sizes) == {1, 2} and state.position == sum(sizes)
    assert len(updates) == 24 and state.rounds == 16
