"""Prompt selection and resampling, against traces worked by hand."""

from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from compose import composed
from fake_loop import TASK, grade, loop, steps_of, take_step

from pods.method import prompt_selection
from pods.method.keep import informative, next_batch
from pods.method.prompt_order import Outcome, PromptOrder
from pods.method.prompt_selection import Greso, Mopps, Uniform, adjust_p, start
from pods.method.rules import random
from pods.seeding import derive
from pods.training.metrics import metrics, rollout_rows
from pods.types import Grade, Grader, Parts

N = 4


class Scripted:
    """A walk through 0, 1, 2, ... again and again, with draws that are written down."""

    def __init__(self, pool, uniforms=None):
        self.pool, self.uniforms, self.position = pool, uniforms or {}, 0

    def problem(self, position):
        return position % self.pool

    def epoch(self, position):
        return position // self.pool

    candidates = PromptOrder.candidates

    def rng(self, purpose, position):
        self.position = position
        return self

    def random(self):
        return self.uniforms.get(self.position, 0.6)

    def beta(self, alpha, beta):
        return alpha / (alpha + beta)  # the posterior's mean: no luck


def easy(problem):
    return Outcome(problem, N, N, zero_variance=True)


def hard(problem):
    return Outcome(problem, 0, N, zero_variance=True)


def mixed(problem, right=2):
    return Outcome(problem, right, N, zero_variance=False)


# What GRESO takes of four problems at two a step, by hand; the draws are 0.6 but at two places.
# A problem with z = 2 is passed over (1 - 0.5^2 = 0.75 > 0.6), with z = 1 it is not (0.5 < 0.6).
GRESO = [  # taken, passed over, outcomes, rows afterwards, p_easy, p_hard
    ([0, 1], 0, [easy(0), hard(1)], {"0": 1, "1": -1}, 0.50, 0.50),  # the first epoch: p stays
    ([2, 3], 0, [mixed(2), easy(3)], {"0": 1, "1": -1, "3": 1}, 0.50, 0.50),
    ([0, 1], 0, [easy(0), hard(1)], {"0": 2, "1": -2, "3": 1}, 0.49, 0.49),
    ([2, 3], 0, [mixed(2), easy(3)], {"0": 2, "1": -2, "3": 2}, 0.48, 0.50),
    ([2, 2], 5, [mixed(2), mixed(2)], {"0": 2, "1": -2, "3": 2}, 0.49, 0.51),
    ([2, 2], 6, [mixed(2), mixed(2)], {"0": 2, "1": -2, "3": 2}, 0.50, 0.52),
    ([0, 2], 2, [mixed(0), hard(2)], {"1": -2, "3": 2, "2": -1}, 0.51, 0.51),  # place 24: 0.9
    ([0, 2], 2, [easy(0), easy(2)], {"1": -2, "3": 2, "0": 1, "2": 1}, 0.50, 0.52),
    ([3, 0], 0, [mixed(3), hard(0)], {"1": -2, "2": 1, "0": -1}, 0.51, 0.51),  # place 31: 0.9
    ([2, 3], 1, [mixed(2, right=N), easy(3)], {"1": -2, "0": -1, "3": 1}, 0.50, 0.52),
    ([0, 2], 1, [mixed(0), mixed(2)], {"1": -2, "3": 1}, 0.51, 0.53),
]


def test_a_trace_of_greso_by_hand(monkeypatch):
    for name, value in (("TARGET_EASY", 0.5), ("TARGET_HARD", 0.5), ("ADJUST_AFTER", 2)):
        monkeypatch.setattr(prompt_selection, name, value)
    order, selector = Scripted(4, {24: 0.9, 31: 0.9}), Greso(p_easy=0.5, p_hard=0.5)
    for taken, passed_over, outcomes, streaks, p_easy, p_hard in GRESO:
        chosen, selector = selector.choose(order, 2)
        assert (list(chosen.problems), chosen.passed_over) == (taken, passed_over)
        selector = selector.observe(order, outcomes)
        assert selector.streaks == streaks
        assert (selector.p_easy, selector.p_hard) == pytest.approx((p_easy, p_hard))
    assert selector.position == 22 + sum(row[1] for row in GRESO)


def test_greso_counts_groups_over_the_steps_until_it_adjusts(monkeypatch):
    """Of four groups two are hard, which are too many, and one is easy."""
    for name, value in (("TARGET_EASY", 0.5), ("TARGET_HARD", 0.5), ("ADJUST_AFTER", 4)):
        monkeypatch.setattr(prompt_selection, name, value)
    order = Scripted(4)
    first = Greso(p_easy=0.5, p_hard=0.5, position=6).observe(order, [easy(0), hard(1)])
    assert (first.groups, first.easy, first.hard) == (2, 1, 1)
    assert (first.p_easy, first.p_hard) == (0.5, 0.5)
    second = first.observe(order, [mixed(2), hard(3)])
    assert (second.groups, second.easy, second.hard) == (0, 0, 0)
    assert (second.p_easy, second.p_hard) == pytest.approx((0.51, 0.49))


def test_gresos_chance_to_pass_over():
    known = Greso(p_easy=0.4, p_hard=0.8, streaks={"1": 1, "2": 3, "3": -3, "4": 30})
    chances = [known.p_filter(problem) for problem in range(5)]
    assert chances == pytest.approx([0.0, 0.6, 1 - 0.4**3, 1 - 0.8**3, 0.99])
    assert adjust_p(0.055, True) == 0.05 and adjust_p(0.945, False) == 0.95
    # never a problem that it knows nothing of
    chosen, _ = Greso(p_easy=0.5, p_hard=0.5).choose(Scripted(4, {0: 0.0}), 1)
    assert (chosen.problems, chosen.passed_over) == ([0], 0)


@pytest.mark.parametrize("prompts", [1, 2, 8, 384])
@pytest.mark.parametrize(("share", "end"), [(0.2, 0.05), (0.02, 0.95)])
def test_gresos_p_follows_the_share_whatever_the_size_of_a_step(prompts, share, end):
    rng = np.random.default_rng(0)
    selector = Greso(p_easy=0.5, p_hard=0.5, position=8)  # in the second epoch
    for _ in range(100 * 64 // min(prompts, 64)):
        outcomes = [easy(0) if rng.random() < share else mixed(0) for _ in range(prompts)]
        selector = selector.observe(Scripted(4), outcomes)
    assert abs(selector.p_easy - end) < 0.1


# What MoPPS takes of six problems, two candidates a step, drawing each posterior's mean.
MOPPS = [  # taken, right of four, (alpha, beta) afterwards
    (0, 4, (5.0, 1.0)),  # both at the prior: the first
    (2, 2, (3.0, 3.0)),
    (4, 3, (4.0, 2.0)),
    (1, 1, (2.0, 4.0)),  # 1/2 against 5/6
    (2, 1, (4.0, 6.0)),  # both 1/2: the first
    (5, 2, (3.0, 3.0)),  # 1/2 against 2/3
    (1, 0, (2.0, 8.0)),  # 1/3 against 5/6
    (3, 4, (5.0, 1.0)),  # 1/2 against 2/5
    (5, 4, (7.0, 3.0)),  # 1/2 against 2/3
    (1, 2, (4.0, 10.0)),  # 1/5 against 5/6
    (2, 2, (6.0, 8.0)),  # 2/5 against 5/6
]


@pytest.fixture
def two_candidates(monkeypatch):
    monkeypatch.setattr(prompt_selection, "MOPPS_CANDIDATES", 2)


def test_a_trace_of_mopps_by_hand(two_candidates):
    order, selector = Scripted(6), Mopps()
    for step, (taken, right, posterior) in enumerate(MOPPS, 1):
        chosen, selector = selector.choose(order, 1)
        assert (list(chosen.problems), chosen.passed_over) == ([taken], 1)
        selector = selector.observe(order, [mixed(taken, right)])
        assert selector.posteriors[str(taken)] == pytest.approx(posterior)
        assert selector.position == 2 * step


def test_mopps_draws_from_the_posterior(two_candidates):
    known = Mopps(posteriors={"0": (90.0, 10.0)})  # mean 0.9; against a rate drawn evenly
    seeds = [known.choose(PromptOrder(seed, 2), 1) for seed in range(3000)]
    places = [replace(known, position=2 * i).choose(PromptOrder(0, 2), 1) for i in range(3000)]
    for drawn in (seeds, places):
        # problem 1 is nearer a half where |u - 1/2| < |x - 1/2|: with chance 2 E|x - 1/2| = 0.8
        taken = [chosen.problems == [1] for chosen, _ in drawn]
        assert np.mean(taken) == pytest.approx(0.8, abs=0.03)


def test_candidates_are_those_of_the_authors_scripts_each_looked_at_once():
    """thu-rllab/MoPPS at a883f51: math_verl_1.5b_topk_noinit.sh:131, our_trainer.yaml:38."""
    assert (prompt_selection.MOPPS_CANDIDATES, prompt_selection.MOPPS_TARGET) == (16, 0.5)
    chosen, selector = Mopps().choose(PromptOrder(0, 5), 2)  # of a pool of 5
    assert len(set(chosen.problems)) == 2 and (chosen.passed_over, selector.position) == (30, 32)


def test_what_is_informative_and_how_many_prompts_are_sampled_next():
    correct = np.array([True, False])
    assert informative(np.array([1.1, 0.1]), correct, "reward")
    assert informative(np.array([1.0, 1.0]), correct, "correct")
    assert not informative(np.array([1.0, 1.0]), correct, "reward")
    assert not informative(np.array([1.1, 1.0]), np.array([True, True]), "correct")
    config = replace(composed("arm=greso").group_filter, batch=384)
    # 56 * 384/200 * 1.25; 1.9: at least 64; 11,808: at most 384
    for have, count in ((200, 134), (255, 64), (10, 384), (0, 384)):
        assert next_batch(config, 256, have, sampled=384, num_informative=have) == count
    assert next_batch(replace(config, name="resample"), 256, 255, 384, 255) == 384


# DAPO with three prompts a sampling and two a step: of five problems the even ones have variance.
DAPO = [  # sampled in batches, trained on
    ([[0, 1, 2]], [0, 2]),
    ([[3, 4, 0]], [4, 0]),
    ([[1, 2, 3], [4, 0, 1]], [2, 4]),  # 0 is left over
    ([[2, 3, 4]], [2, 4]),
]


def test_a_trace_of_daposs_dynamic_sampling_by_hand(in_order):
    made, updates = loop("group_filter=resample", "group_filter.batch=3", "budget.max_steps=12")
    steps = list(steps_of(made, 0, Uniform()))
    assert len(steps) == 12
    calls = iter(made.engine.calls)
    for step, (batches, trained) in zip(steps, DAPO * 3, strict=True):
        assert [[p for (p,) in next(calls)[0]] for _ in batches] == batches
        assert len(step.sample.prompts) == 3 * len(step.sample.chosen) == 3 * len(batches)
        assert [group.problem_index for group in step.groups if group.trained] == trained
    for rollouts, signs, _ in updates:
        assert len(rollouts) == 4 and np.abs(signs).min() > 0.5  # no group without a gradient
    assert next(calls, None) is None
    seeds = [seed for call in made.engine.calls for seed in call[3]]
    assert len(set(seeds)) == len(seeds)  # also of the samplings of one step


def test_resampling_is_bounded_and_trains_on_what_there_is(in_order):
    words = ("group_filter=resample", "group_filter.batch=1", "prompts_per_step=3")
    made, updates = loop(*words, "group_filter.max_batches=4")
    step = take_step(made, 1, Uniform())  # 0, 1, 2, 3: two of three
    assert len(step.sample.chosen) == 4
    assert [g.trained for g in step.groups] == [True, False, True, False]
    assert len(updates[0][0]) == 2 * 2
    barren = replace(made, prompts=[(1,)] * 5)
    step = take_step(barren, 2, step.state.selector)
    assert (
        step.update is None and len(step.sample.chosen) == 4 and step.state.selector == Uniform(8)
    )
    assert sum(step.seconds.wall.values()) > 0


def test_an_adaptive_resampling_goes_by_its_last_batch_and_by_what_it_has(in_order, monkeypatch):
    """Five are wanted, three at once; of five problems the even ones have variance.

    0, 1, 2 give two; 3 * 3 / 2 = 4 are too many at once: 3, 4, 0 give two more; the one that is
    missing takes 1 * 3 / 2 = 1.5, rounded down: 1, which gives none; after that, three again.
    """
    monkeypatch.setattr("pods.method.keep.MARGIN", 1.0)
    made, _ = loop("group_filter=greso", "group_filter.batch=3", "prompts_per_step=5")
    step = take_step(made, 1, Uniform())
    batches = [[0, 1, 2], [3, 4, 0], [1], [2, 3, 4]]
    assert [[p for (p,) in call[0]] for call in made.engine.calls] == batches
    assert [group.problem_index for group in step.groups if group.trained] == [0, 2, 4, 0, 2]


RESAMPLED = ("group_filter=resample", "group_filter.batch=1", "prompts_per_step=2")


def test_what_was_passed_over_in_all_samplings_of_a_step_is_counted(in_order, monkeypatch):
    monkeypatch.setattr(prompt_selection, "MOPPS_CANDIDATES", 2)
    made, _ = loop(*RESAMPLED, "prompts=mopps")
    keys = ("sampling_batches", "passed_over_prompts", "rollouts_saved")
    batches, passed, saved = map(metrics(take_step(made, 1, start(made.config.prompts))).get, keys)
    assert passed == batches > 1 and saved == 0
    made, _ = loop(*RESAMPLED, "prompts=greso")
    streaks = dict.fromkeys("0123", 9)  # 4 alone has a good chance, and it is informative
    step = take_step(made, 1, Greso(p_easy=0.5, p_hard=0.5, streaks=streaks))
    assert [group.problem_index for group in step.groups] == [4, 4]
    assert [*map(metrics(step).get, keys)] == [2, 8, 8 * 4]


def test_the_seeds_of_a_step_go_on_from_sampling_to_sampling():
    made, _ = loop(*RESAMPLED, "nm.groups=2", "group_filter.max_batches=4")
    barren = replace(made, prompts=[(1,)] * 5)  # so that it samples four times
    take_step(barren, 1, Uniform())
    seeds = [seed for call in made.engine.calls for seed in call[3]]
    assert seeds == [derive(0, "rollouts", 1, group) for group in range(4 * 2)]


def test_the_rules_draws_differ_between_the_samplings_of_a_step():
    made, _ = loop(*RESAMPLED, "nm.n=16", "nm.m=8", "group_filter.max_batches=4", "nm.groups=2")
    barren = replace(made, rule=random, prompts=[(1,)] * 5)  # so that it samples four times
    kept = [tuple(group.kept) for group in take_step(barren, 1, Uniform()).groups]
    assert len(set(kept)) == 4 * 2


@pytest.mark.parametrize(("metric", "trained"), [("reward", 2), ("correct", 0)])
def test_the_group_filter_goes_by_the_metric_of_the_config(metric, trained):
    grader = Grader(lambda text, gold: Grade("wrong", True, Parts(0.0, float(text))))
    formed = replace(TASK, train_grader=grader)
    made, updates = loop("group_filter=skip", f"group_filter.metric={metric}", "prompts_per_step=2")
    step = take_step(replace(made, task=formed, prompts=[(0,)] * 5), 1, Uniform())
    assert sum(group.trained for group in step.groups) == trained == 2 * len(updates)


def test_what_is_right_in_training_is_what_the_reward_says(in_order, monkeypatch):
    """Where the authors' verdict gives the reward, our stricter one does not decide the rest."""
    monkeypatch.setattr(prompt_selection, "MOPPS_CANDIDATES", 1)
    grader = Grader(lambda text, gold: Grade("none", True, Parts(float(text))))
    loose = replace(TASK, train_grader=grader)
    made, _ = loop("group_filter=skip", "group_filter.metric=correct", "prompts=mopps",
                   "prompts_per_step=2")  # fmt: skip
    step = take_step(replace(made, task=loose), 1, start(made.config.prompts))
    assert {group.problem_index: group.trained for group in step.groups} == {0: True, 1: False}
    assert step.state.selector.posteriors == {
        "0": (3.0, 3.0),
        "1": (1.0, 5.0),
    }  # 2 and 0 of 4
    line = metrics(step)
    assert (line["correct"], line["reward"], line["none_right_fraction"]) == (0.0, 0.25, 0.5)


def test_a_void_step_moves_on_and_teaches_prompt_selection_nothing(monkeypatch):
    monkeypatch.setattr(prompt_selection, "MOPPS_CANDIDATES", 1)
    nan = Grader(lambda text, gold: replace(grade(text, gold), parts=Parts(np.nan)))
    for name, key in (("greso", "streaks"), ("mopps", "posteriors")):
        made, updates = loop(f"prompts={name}", "prompts_per_step=4")
        first = start(made.config.prompts)
        step = take_step(replace(made, task=replace(TASK, train_grader=nan)), 1, first)
        assert step.nonfinite is not None and updates == []
        assert step.state.selector == replace(first, position=4)
        assert metrics(step)["reward"] is None
        assert asdict(take_step(made, 1, first).state.selector)[key]  # a sound one does


def test_what_is_written_of_a_step_that_resampled(in_order):
    made, _ = loop("group_filter=resample", "group_filter.batch=3")
    step = take_step(made, 3, Uniform(6))  # 1, 2, 3 and then 4, 0, 1; trained on 2 and 4
    line, rows = metrics(step), list(rollout_rows(step))
    assert (line["sampling_batches"], line["sampled_prompts"], line["epoch"]) == (2, 6, 2)
    assert (line["generated_rollouts"], line["trained_rollouts"]) == (24, 4)
    assert (line["zero_variance_fraction"], line["skipped_groups"]) == (0.5, 4)
    assert line["kept_reward_variance"] == 0.25  # one right, one wrong, in both
    assert (line["passed_over_prompts"], line["rollouts_saved"]) == (0, 0)
    assert {row["group"] for row in rows if row["trained"]} == {1, 3}
    assert sum(row["trained"] for row in rows) == 4 and sum(row["kept"] for row in rows) == 12


def test_groups_of_a_prompt_are_selected_apart_and_told_together(monkeypatch):
    monkeypatch.setattr(prompt_selection, "MOPPS_CANDIDATES", 1)
    made, updates = loop("nm.groups=3", "prompts=mopps")
    step = take_step(made, 1, start(made.config.prompts))
    [(prompts, n, _, seeds)] = made.engine.calls
    assert n == 4 and len(prompts) == 6 and len(set(seeds)) == 6
    assert [p == q for p, q in pairwise(prompts)] == [True, True, False, True, True]
    assert len(updates[0][0]) == 2 * 3 * 2 and len(step.sample.prompts) == 2
    for group in step.groups[::3]:
        seen = np.array(step.state.selector.posteriors[str(group.problem_index)]) - 1
        assert seen.tolist() == ([6, 6] if group.problem_index % 2 == 0 else [0, 12])
