"""Adaptive n and m: what decides, against brute force, by hand, and in a run that is killed."""

import json
from dataclasses import asdict, replace

import msgspec
import numpy as np
import pytest
from compose import composed
from fake_loop import TASK, loop

from pods.method.adaptive import LATELY, MARGIN, Adaptive, expected_seconds
from pods.method.prompt_order import Outcome
from pods.method.prompt_selection import Uniform
from pods.types import Grade, Grader, Parts

MENU = [(16, 16), (32, 16), (64, 16)]
NM = composed("arm=adaptive").nm


def test_seconds_are_a_plane_through_the_medians_of_each_pair():
    menu = [(16, 16), (64, 16), (64, 64), (32, 16)]
    costs = [[1 + 0.1 * n + 0.2 * m] * 3 for n, m in menu]  # base, n and m by hand
    costs[0] = [99.0, costs[0][0], costs[0][0]]  # one step was slow
    assert expected_seconds(menu, costs) == pytest.approx([5.8, 10.6, 20.2, 7.4])
    assert expected_seconds([(16, 16), (64, 16)], [[2.0], [3.0]]) == pytest.approx([2, 3])
    # a line of 0.1, 0.1 and 6 s at n = 2, 4 and 8 has a slope of 59 / 56, and is below 0 at n = 2
    found = expected_seconds([(2, 2), (4, 2), (8, 2)], [[0.1], [0.1], [6.0]])
    assert found == pytest.approx([0.1, 6.2 / 3 - 2 / 3 * 59 / 56, 6.2 / 3 + 10 / 3 * 59 / 56])


def after(rates, seconds=(0.054, 0.062, 0.080), steps=10, state=None):
    """Return a state after steps on prompts of these success rates, at these costs of the pairs."""
    state = state or Adaptive()
    for step in range(steps):
        state = state.choose(NM, 2)
        outcomes = [
            Outcome(2 * step + i, round(rate * MENU[state.pair][0]), MENU[state.pair][0], False)
            for i, rate in enumerate(rates)
        ]
        state = state.observe(outcomes, [], seconds[state.pair])
    return state


def test_each_pair_is_tried_once_and_then_the_best_per_second_is_taken():
    tried = [after([0.5, 0.5], steps=steps).pair for steps in (1, 2, 3)]
    assert tried == [0, 1, 2]
    assert after([0.5, 0.5]).pair == 0  # of groups half right, selection has little to choose
    assert after([0.97, 0.97], (0.05, 0.051, 0.052)).pair == 2  # where n costs next to nothing
    assert after([0.97, 0.97], (0.05, 0.20, 0.80)).pair == 0  # where it costs a lot
    for price, left in ((0.003, True), (0.006, False)):  # of 16 rollouts
        decided = after([0.9, 0.9], (0.054, 0.054 + price, 0.054 + 3 * price))
        gains = np.array(decided.progress) / decided.seconds
        assert gains.max() / gains[0] > 1  # more a second alone is not enough
        assert (gains.max() > MARGIN * gains[0], decided.pair != 0) == (left, left)


def test_decisions_stand_for_every_steps_steps():
    state, pairs = Adaptive(), []
    for step in range(30):
        state = state.choose(NM, 2)
        pairs.append(state.seconds)
        state = state.observe([Outcome(step, step % 17, 16, False)], [], 0.05 + 0.001 * step)
    changes = [i for i in range(1, 30) if pairs[i] != pairs[i - 1]]
    assert changes == [3, 5, 10, 15, 20, 25]


def test_only_what_was_seen_lately_counts_and_older_visits_decay():
    state = after([0.5, 0.5], steps=LATELY)  # two prompts per step
    assert list(state.posteriors) == [str(i) for i in range(LATELY, 2 * LATELY)]
    again = state.observe([Outcome(LATELY, 16, 16, True)], [], 0.05)
    alpha, beta = state.posteriors[str(LATELY)]
    decayed = (alpha / 2 + 0.25 + 16, beta / 2 + 0.25)
    assert again.posteriors[str(LATELY)] == decayed
    assert list(again.posteriors)[-1] == str(LATELY)
    for seconds in range(20):
        again = again.observe([], [], seconds)
    assert again.costs[str(again.pair)] == [*range(5, 20)]


def test_the_state_survives_json_and_others_are_refused():
    state = after([0.3, 0.9])
    again = msgspec.convert(json.loads(json.dumps(asdict(state))), Adaptive)
    later = [json.dumps(asdict(after([0.3, 0.9], state=one))) for one in (state, again)]
    assert later[0] == later[1]
    for wrong in ({"pair": "x"}, {"posteriors": {"1": ["a", 2]}}, {"steps": 1.5}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({**asdict(state), **wrong}, Adaptive)


def test_the_loop_samples_the_pair_and_hands_on_what_it_saw_of_rewarded_rollouts(in_order):
    """Problem 0 has two rewarded of four rollouts, 1 none; no answer is right by the verdict."""
    loose = Grader(lambda text, gold: Grade("none", True, Parts(float(text))))
    made, _ = loop("arm=adaptive", "nm.menu=[n4_m2,n8_m2]", "nm.n=8", "nm.m=2",
                   "budget.max_steps=2")  # fmt: skip
    made = replace(made, task=replace(TASK, train_grader=loose))
    first, second = made.steps(0, Uniform(), Adaptive())
    assert [n for _, n, *_ in made.engine.calls] == [4, 8]
    assert (first.adaptive.pair, second.adaptive.pair, second.adaptive.steps) == (0, 1, 2)
    assert first.adaptive.posteriors == {"0": (2.5, 2.5), "1": (0.5, 4.5)}
    seconds = [[sum(step.seconds.wall.values())] for step in (first, second)]  # of all phases
    assert [*second.adaptive.costs.values()] == seconds
