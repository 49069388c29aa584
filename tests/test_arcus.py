"""ARCUS, against numbers worked by hand, numerical integrals and a search by another algorithm."""

import json
import math

import msgspec
import numpy as np
import pytest
from compose import composed
from fake_loop import loop, take_step
from scipy.optimize import brentq

from pods.method import arcus
from pods.method.arcus import Arcus, Beliefs
from pods.method.prompt_order import Outcome, PromptOrder
from pods.method.prompt_selection import start
from pods.training.metrics import metrics

QUARTER, END = math.pi / 4, math.pi / 2
PRIOR_VARIANCE = 0.205617  # pi^2 / 48
LINE = np.linspace(-6, 8, 200_001)  # on which beliefs are integrated


def expectation(mean, variance, values):
    """Integrate a function of the arc, given on `LINE`, over a Gaussian belief."""
    density = np.exp(-((LINE - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    return np.trapezoid(density * values, LINE)


def outcome(problem, right, rollouts=8):
    return Outcome(problem, right, rollouts, zero_variance=right in (0, rollouts))


def known(mean, variance, last=0.0):
    return (mean, variance, last)


BELIEFS = [(QUARTER, PRIOR_VARIANCE), (0.2, 0.01), (1.3, 0.05), (0.0, 0.3), (1.0, 1e-4)]


@pytest.mark.parametrize(("mean", "variance"), BELIEFS)
@pytest.mark.parametrize("rollouts", [4, 16])
def test_kernel_and_yield_are_the_integrals_that_they_stand_for(mean, variance, rollouts):
    """Proposition 2: the chance of no variance is exp(-G psi^2) + exp(-G (pi/2 - psi)^2)."""
    dead = np.exp(-rollouts * LINE**2) + np.exp(-rollouts * (END - LINE) ** 2)
    chance = arcus.informative_chance(np.array([mean]), np.array([variance]), rollouts)
    assert chance == pytest.approx([1 - expectation(mean, variance, dead)], abs=1e-7)

    for target in (0.3, QUARTER, 1.2):
        width = min(math.sin(target), math.cos(target)) / math.sqrt(2)
        kernel = np.exp(-((LINE - target) ** 2) / (2 * width**2))
        overlap = np.exp(arcus.log_kernel(np.array([mean]), np.array([variance]), target))
        assert overlap == pytest.approx([expectation(mean, variance, kernel)], rel=1e-6)


def test_the_score_of_the_prior_by_hand():
    """G = 8: a = 4.289868, kappa = 0.740747, y = 0.694352."""
    mean, variance = np.array([QUARTER]), np.array([PRIOR_VARIANCE])
    score = np.exp(arcus.log_score(mean, variance, 8, QUARTER))
    assert score == pytest.approx([0.514339], abs=1e-6)
    certain = arcus.log_score(np.array([0.0, END]), np.array([0.0, 0.0]), 8, QUARTER)
    assert np.isfinite(certain).all()  # that no group of them has variance


@pytest.mark.parametrize(
    ("right", "z", "noise", "mean", "variance"),
    [(4, 0.785398, 1 / 34, 0.785398, 0.025731), (1, 0.407606, 1 / 34, 0.454883, 0.025731),
     (0, 0.0, 1 / 16, 0.183082, 0.047931), (8, 1.570796, 1 / 16, 1.387714, 0.047931)])  # fmt: skip
def test_an_observation_of_eight_rollouts_by_hand(right, z, noise, mean, variance):
    shown, its_noise = arcus.observation(np.array([right]), np.array([8]))
    assert (shown[0], its_noise[0]) == pytest.approx((z, noise), abs=1e-6)
    prior = np.array([QUARTER]), np.array([PRIOR_VARIANCE])
    updated = arcus.kalman(*prior, shown, its_noise)
    assert (updated[0][0], updated[1][0]) == pytest.approx((mean, variance), abs=1e-6)
    # Bayes' rule by brute force
    posterior = np.exp(-((LINE - z) ** 2) / (2 * noise))
    total = expectation(QUARTER, PRIOR_VARIANCE, posterior)
    by_bayes = expectation(QUARTER, PRIOR_VARIANCE, LINE * posterior) / total
    assert by_bayes == pytest.approx(mean, abs=1e-5)


def test_a_belief_drifts_once_per_update_and_stays_on_the_arc():
    mean = np.array([0.3, QUARTER, 1.2, 0.3])
    gap = np.array([3.0, 0.0, 1.0, 1.0])
    expected = []
    for before, updates in zip(mean.tolist(), gap.tolist(), strict=True):
        after = before
        for _ in range(int(updates)):
            after += 0.05 * math.sin(2 * after)
        expected.append(after)
    assert arcus.drifted(mean, gap, 0.05) == pytest.approx(expected)
    assert arcus.drifted(np.array([0.1, 1.5]), np.array([1.0, 1.0]), -2.0)[0] == 0.0
    assert arcus.drifted(np.array([0.8]), np.array([1.0]), 2.0)[0] == END


def test_drift_and_diffusion_by_hand():
    """Innovations sum to 0.1; gap times sin(2 mean) to 10 * 1 + 5 * 0.5 = 12.5."""
    innovation, gap = np.array([0.2, -0.1]), np.array([10.0, 5.0])
    mean = np.array([QUARTER, math.pi / 12])
    assert arcus.next_drift(0.01, innovation, gap, mean) == pytest.approx(0.01 + 0.1 * 0.1 / 12.5)
    assert arcus.next_drift(0.0, -innovation, gap, mean) == pytest.approx(-0.0008)
    # at an end of the arc the mobility is 0.05
    at_end = arcus.next_drift(0.0, np.array([0.1]), np.array([2.0]), np.array([0.0]))
    assert at_end == pytest.approx(0.1 * 0.1 / (2 * 0.05))

    # squares 0.04 and 0.01; they exceed 0.02 and 0.01 by 0.01 on average, over a mean gap of 7.5
    wider = arcus.next_diffusion(0.001, innovation, np.array([0.02, 0.01]), gap)
    assert wider == pytest.approx(0.9 * 0.001 + 0.1 * (0.001 + 0.01 / 7.5))
    assert arcus.next_diffusion(0.001, innovation, np.array([0.5, 0.5]), gap) == 0.9 * 0.001
    assert arcus.next_diffusion(1e-5, innovation, np.array([0.5, 0.5]), gap) == 1e-5


@pytest.mark.parametrize(
    ("count", "chances"),
    [
        (2, [1, 1 / 2, 1 / 4, 1 / 8, 1 / 8]),
        (3, [1, 1, 1 / 2, 1 / 4, 1 / 4]),
        (5, [1] * 5),
    ],
)
def test_chances_to_be_drawn_are_capped_and_sum_to_the_candidates(count, chances):
    scores = 0.3 * np.log([8.0, 4, 2, 1, 1])  # to the power of 1/T they are these weights
    found = arcus.inclusion(np.stack([scores, scores + 7]), count)
    assert found == pytest.approx(np.array([chances] * 2), abs=1e-9)
    hopeless = arcus.inclusion(np.array([0.0, 0.0, -900.0]), 2)
    assert hopeless == pytest.approx([1, 1, 0], abs=1e-6)


def frontier_by_brute_force(mean, variance, rollouts, count):
    """Eq. (5) with scalars, and c by a root finder."""
    first = math.asin(1 / math.sqrt(2 * rollouts))
    grid = [first + i * (END - 2 * first) / 40 for i in range(41)]
    yields = []
    for target in grid:
        width = min(math.sin(target), math.cos(target)) ** 2 / 2
        weights, chances = [], []
        for mu, p in zip(mean.tolist(), variance.tolist(), strict=True):
            a = 1 + 2 * rollouts * p
            dead = math.exp(-rollouts * mu**2 / a) + math.exp(-rollouts * (END - mu) ** 2 / a)
            chances.append(1 - dead / math.sqrt(a))
            overlap = math.exp(-((mu - target) ** 2) / (2 * (width + p)))
            score = math.sqrt(width / (width + p)) * overlap * max(chances[-1], 1e-9)
            weights.append(score ** (1 / 0.3))

        def total(log_c, weights=weights):
            return sum(min(1, math.exp(log_c) * weight) for weight in weights) - count

        c = math.exp(brentq(total, -50, 200, xtol=1e-12))
        drawn = [min(1, c * weight) for weight in weights]
        yields.append(sum(p * y for p, y in zip(drawn, chances, strict=True)) / count)

    admissible = [t for t, y in zip(grid, yields, strict=True) if y >= max(yields) - 0.03]
    return min(admissible)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rollouts", [8, 64])
def test_the_frontier_is_the_hardest_target_with_nearly_the_best_yield(seed, rollouts):
    rng = np.random.default_rng(seed)
    mean, variance = rng.uniform(0, END, 30), rng.uniform(0.003, 0.1, 30)
    found = arcus.frontier(mean, variance, rollouts, 4)
    assert found == pytest.approx(frontier_by_brute_force(mean, variance, rollouts, 4))
    assert found < QUARTER  # harder than half right


def test_the_target_waits_for_the_warm_up_and_then_moves_slowly():
    """Of seven problems, three a step: the warm-up is three updates."""
    sharp = {str(problem): known(0.3 + problem / 5, 0.01) for problem in range(7)}
    order = PromptOrder(0, 7)
    for updates, target in ((0, QUARTER), (2, QUARTER), (3, QUARTER - 0.005)):
        selector = Arcus(position=3 * updates, updates=updates, rollouts=8, observed=sharp)
        chosen, after = selector.choose(order, 3)
        assert after.target == pytest.approx(target, abs=1e-12)
        assert len(set(chosen.problems)) == 3 and after.position == selector.position + 3

    mean, variance = np.array([0.4, 0.9]), np.array([0.01, 0.01])
    beliefs = Beliefs(mean, variance, np.ones(2))
    goal = arcus.frontier(mean, variance, 8, 1)
    for before, after in ((goal - 0.1, goal - 0.095), (goal + 0.002, goal), (1.5, 1.495)):
        moved = Arcus(position=9, rollouts=8, target=before).next_target(beliefs, 1)
        assert moved == pytest.approx(after)


def test_smaller_batches_of_a_step_do_not_begin_the_warm_up_again():
    """Of 64 problems, eight a step and then two, as group_filter=greso fills a step up."""
    order, selector, targets = PromptOrder(0, 64), Arcus(), []
    for _ in range(12):
        problems = []
        for prompts in (8, 2):
            chosen, selector = selector.choose(order, prompts)
            targets.append(selector.target)
            problems += chosen.problems
        selector = selector.observe(order, [outcome(problem, 4) for problem in problems])
    assert targets[:13] == [QUARTER] * 13  # 60 candidates before the last of these, then 68
    assert np.diff(targets[12:]) == pytest.approx(-0.005)


def test_candidates_are_drawn_by_their_scores_from_the_whole_pool_best_first():
    """One of three: with chances as their scores to the power of 1/T."""
    observed = {"0": known(QUARTER, 0.01), "1": known(1.0, 0.02), "2": known(0.3, 0.05)}
    selector = Arcus(rollouts=8, observed=observed, diffusion=0.0)
    mean, variance = np.array([(m, p) for m, p, _ in observed.values()]).T
    weights = np.exp(arcus.log_score(mean, variance, 8, QUARTER)) ** (1 / 0.3)
    places = [Arcus(position=i, rollouts=8, observed=observed, diffusion=0.0) for i in range(4000)]
    drawn = [place.choose(PromptOrder(0, 3), 1)[0].problems[0] for place in places]
    shares = np.bincount(drawn, minlength=3) / 4000
    assert shares == pytest.approx(weights / weights.sum(), abs=0.03)
    best_first = np.argsort(-weights).tolist()
    assert selector.choose(PromptOrder(0, 3), 3)[0].problems == best_first
    first = Arcus().choose(PromptOrder(0, 9), 4)[0].problems
    assert first != Arcus().choose(PromptOrder(1, 9), 4)[0].problems  # by the run's seed


def test_what_a_step_teaches_by_hand():
    """Problem 1 was last seen at update 2, and it is the fifth now: three drifts and diffusions."""
    before = Arcus(
        updates=4, drift=0.01, diffusion=0.002, observed={"1": known(0.7, 0.02, last=2.0)}
    )
    after = before.observe(PromptOrder(0, 4), [outcome(1, 8), outcome(3, 4)])
    predicted = 0.7
    for _ in range(3):
        predicted += 0.01 * math.sin(2 * predicted)
    variance = 0.02 + 3 * 0.002
    gain = variance / (variance + 1 / 16)
    mean = predicted + gain * (END - predicted)
    assert after.observed["1"] == pytest.approx((mean, (1 - gain) * variance, 5.0))
    assert after.observed["3"] == pytest.approx((QUARTER, 0.025731, 5.0), abs=1e-6)
    innovation = END - predicted  # only of the problem that was seen before
    assert after.drift == pytest.approx(0.01 + 0.1 * innovation / (3 * math.sin(2 * predicted)))
    excess = (innovation**2 - variance - 1 / 16) / 3
    assert after.diffusion == pytest.approx(0.9 * 0.002 + 0.1 * (0.002 + excess))
    assert (after.updates, after.rollouts, before.updates) == (5, 8, 4)


def test_a_problem_that_comes_twice_in_a_step_is_one_observation():
    order = PromptOrder(0, 3)
    twice = Arcus().observe(order, [outcome(0, 8), outcome(1, 2), outcome(0, 0)])
    once = Arcus().observe(order, [outcome(0, 8, rollouts=16), outcome(1, 2)])
    assert twice.observed == once.observed and list(twice.observed) == ["0", "1"]
    assert (twice.drift, twice.diffusion, twice.rollouts) == (0.0, 1e-5, 8)  # nothing seen before
    assert Arcus(updates=3).observe(order, []) == Arcus(updates=3)


def test_from_a_hundred_observed_problems_on_the_others_are_believed_to_be_like_them():
    means = np.linspace(0.1, 0.4, 100)
    observed = {str(i): known(mean, 0.01) for i, mean in enumerate(means.tolist())}
    few = dict(list(observed.items())[:99])
    for given, mean, variance in (
        (few, QUARTER, PRIOR_VARIANCE),
        (observed, 0.25, means.var() + 0.01 + 1e-5),
    ):
        beliefs = Arcus(observed=given).predict(102)
        assert beliefs.mean[100:] == pytest.approx([mean] * 2)
        assert beliefs.variance[100:] == pytest.approx([variance] * 2, abs=1e-6)
        assert beliefs.gap.tolist() == [1.0] * len(given) + [0.0] * (102 - len(given))


def steps(selector, order, count):
    """Choose and observe, with success rates that rise, and note what was chosen."""
    chosen = []
    for step in range(count):
        taken, selector = selector.choose(order, 3)
        chosen.append(taken.problems)
        right = [int(16 * ((problem + step) % 13) / 12) for problem in taken.problems]
        outcomes = [outcome(p, r, 16) for p, r in zip(taken.problems, right, strict=True)]
        selector = selector.observe(order, outcomes)
    return chosen, selector


def saved_as(selector):
    return json.dumps(msgspec.to_builtins(selector))


def test_beliefs_go_through_a_checkpoint_unchanged():
    order = PromptOrder(3, 12)
    whole, at_the_end = steps(Arcus(), order, 20)
    assert at_the_end.target < QUARTER and at_the_end.drift != 0
    first, halfway = steps(Arcus(), order, 9)
    restored = msgspec.convert(json.loads(saved_as(halfway)), Arcus)
    assert saved_as(restored) == saved_as(halfway)
    later = []
    for step in range(9, 20):
        taken, restored = restored.choose(order, 3)
        later.append(taken.problems)
        right = [int(16 * ((problem + step) % 13) / 12) for problem in taken.problems]
        restored = restored.observe(
            order, [outcome(p, r, 16) for p, r in zip(taken.problems, right, strict=True)]
        )
    assert first + later == whole
    assert saved_as(restored) == saved_as(at_the_end)


def test_the_arms_draw_a_quarter_more_and_fill_nothing_up():
    for prompts, batch in ((1, 2), (2, 3), (4, 5), (256, 320)):
        config = composed("arm=arcus", f"prompts_per_step={prompts}", "task.train_size=320")
        settings = config.group_filter
        assert (settings.batch, settings.max_batches, settings.metric) == (batch, 1, "correct")

    made, updates = loop(
        "prompts=arcus", "group_filter=resample", "group_filter.batch=3",
        "group_filter.max_batches=1",
    )  # fmt: skip
    state = start(made.config.prompts)
    trained = []
    for number in range(1, 9):
        step = take_step(made, number, state)
        state = step.state.selector
        sampled = [group.problem_index for group in step.groups]
        informative = [problem for problem in sampled if problem % 2 == 0]  # the others never
        trained = [group.problem_index for group in step.groups if group.trained]
        assert len(set(sampled)) == 3 and trained == informative[:2]
        assert state.updates == number and state.position == 3 * number
    line = metrics(step)
    assert {"selector/target", "selector/drift", "selector/diffusion"} <= line.keys()
    assert line["selector/target"] < QUARTER and line["passed_over_prompts"] == 0
    assert len(updates) >= 7
