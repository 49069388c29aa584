"""The loop with a fake engine and clock: budget, selection, filters, and where seeds go."""

from dataclasses import fields, replace

import numpy as np
import pytest
from compose import composed
from fake_loop import TASK, FakeEngine, grade, loop, steps_of, take_step

from pods.method.prompt_order import Outcome, PromptOrder
from pods.method.prompt_selection import Uniform, start
from pods.method.rules import across_groups, random
from pods.policy.update_stats import UpdateStats
from pods.seeding import derive, evaluation_seeds
from pods.training import schedule
from pods.training.evaluate import evaluate
from pods.training.metrics import metrics, rollout_rows
from pods.training.resume import read_state, write_state
from pods.training.step import SelectedGroup, choose_trained, outcome
from pods.types import Grader, Group, Sampling

TICKS = 16 / 32  # each reading of the clock is 1/32 s on, which binary fractions hold exactly


def one(made, number):
    return take_step(made, number, Uniform(made.config.prompts_per_step * (number - 1)))


def test_a_step_is_one_generation_call_and_one_update_on_the_kept():
    made, updates = loop("sampling.temperature=0.75", "sampling.max_completion_tokens=16")
    step = one(made, 1)
    [(prompts, n, sampling, seeds)] = made.engine.calls
    assert n == 4 and len(prompts) == 2 and len(set(seeds)) == 2
    assert sampling == Sampling(0.75, 16)
    [(rollouts, advantages, at)] = updates
    assert len(rollouts) == len(advantages) == 4 and at == 1
    kept = [group.group.rollouts[i] for group in step.groups for i in group.kept]
    assert all(mine is theirs for mine, theirs in zip(rollouts, kept, strict=True))
    for rollout, advantage in zip(rollouts, advantages, strict=True):
        even = rollout.prompt_ids[0] % 2 == 0
        assert np.sign(advantage) == (0 if not even else 1 if rollout.text == "1" else -1)
    for group in step.groups:
        if group.problem.id in ("p0", "p2", "p4"):
            assert sorted(group.group.rewards[group.kept]) == [0.0, 1.0]
            high = np.sqrt(0.5)
            assert sorted(group.advantages) == pytest.approx([-high, high], abs=1e-3)
        else:
            assert group.advantages.tolist() == [0.0, 0.0]


def test_the_budget_is_checked_every_step_and_overrun_by_at_most_one():
    for budget in (1.8, 2.0):  # eight steps of 8/32 s are 2 s exactly, and then it is used up
        made, _ = loop(f"budget.train_seconds={budget}", seconds=TICKS)
        steps = list(steps_of(made, 0, Uniform()))
        assert [step.number for step in steps] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert steps[-1].train_seconds == 2
    made, _ = loop("budget.train_seconds=2", "budget.max_steps=7", seconds=TICKS)
    assert len(list(steps_of(made, 0, Uniform()))) == 7
    made, _ = loop("budget.max_steps=3")
    assert [step.number for step in steps_of(made, 0, Uniform())] == [1, 2, 3]
    assert [step.number for step in steps_of(made, 2, Uniform())] == [3]
    assert list(steps_of(made, 3, Uniform())) == []


def test_a_completion_that_is_almost_too_long_loses_reward():
    """Completions of 1 to 4 tokens; the last two of four are punished, by up to 0.5."""
    made, _ = loop("sampling.max_completion_tokens=4", "task.overlong_tokens=2",
                   "prompts_per_step=1")  # fmt: skip
    [group] = take_step(replace(made, prompts=[(0,)] * 5), 1, Uniform()).groups
    assert group.group.rewards.tolist() == [0, 1, -0.25, 0.5]
    assert group.group.rewarded.tolist() == [False, True, False, True]
    assert [grade.parts.overlong for grade in group.grades] == [0, 0, -0.25, -0.5]


def test_the_line_of_a_whole_step_by_hand(in_order):
    """Five problems, three a step: the second step takes 3, 4 and, of the second epoch, 0."""
    made, _ = loop("prompts_per_step=3", seconds=TICKS)
    first, second = take_step(made, 1, Uniform()), take_step(made, 2, Uniform(3))
    assert (first.epoch, first.state.selector, second.state.selector) == (0, Uniform(3), Uniform(6))
    assert take_step(loop("prompts_per_step=3")[0], 1, Uniform(2)).epoch == 0  # its last prompt's
    line, update = metrics(second), [field.name for field in fields(UpdateStats)]
    assert line.items() >= {name: getattr(second.update, name) for name in update}.items()
    assert line.items() >= {
        "step": 2, "nonfinite": None, "train_seconds": 16 / 32,
        "seconds/generate": 1 / 32, "seconds/reward": 1 / 32, "seconds/select": 4 / 32,
        "seconds/update": 1 / 32, "seconds/sync": 1 / 32, "prompts": ["p3", "p4", "p0"],
        "epoch": 1, "sampling_batches": 1, "sampled_prompts": 3, "passed_over_prompts": 0,
        "rollouts_saved": 0, "generated_rollouts": 12, "trained_rollouts": 6,
        "zero_variance_fraction": 1 / 3, "generated_tokens": 30, "rollouts_per_group": [4, 4, 4],
        # rewards 0, 1, 0, 1 and 0, 0, 0, 0 of 3: the first low, the last high; of equals the first
        "kept": [[0, 1], [0, 3], [0, 3]], "skipped_groups": 0, "trained_tokens": 13,
    }.items()  # fmt: skip
    high = 0.5 / (np.sqrt(0.5) + 1e-4)
    advantages = [row["advantage"] for row in rollout_rows(second) if row["kept"]]
    assert advantages == pytest.approx([0.0, 0.0, *[-high, high] * 2])


def test_advantages_are_normalised_as_the_config_says():
    made, _ = loop("advantage.baseline=full", "advantage.eps=0.5", "nm.m=3", "prompts_per_step=5")
    for group in one(made, 1).groups:
        # of 0, 1, 0, 1 the sample standard deviation is the root of 1/3
        high = 0.5 / (np.sqrt(1 / 3) + 0.5) if group.group.rewards.any() else 0.0
        wanted = [high if reward else -high for reward in group.group.rewards[group.kept]]
        assert group.advantages.tolist() == pytest.approx(wanted) and len(wanted) == 3
    made, _ = loop("advantage.baseline=none", "advantage.scale=none")
    for group in one(made, 1).groups:
        assert group.advantages.tolist() == group.group.rewards[group.kept].tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_logprob_of_the_engine_that_is_not_finite_makes_the_step_void(value):
    """Of one token of one rollout, kept or not; of the last prompt too."""

    class Spoilt(FakeEngine):
        def generate(self, *arguments):
            groups = super().generate(*arguments)
            groups[-1][2].logprobs[1] = value
            return groups

    made, updates = loop()
    step = one(replace(made, engine=Spoilt()), 1)
    assert step.nonfinite == "a log-prob of the engine is NaN or infinite"
    assert updates == [] and step.update is None
    assert all(len(group.kept) == 0 and not group.trained for group in step.groups)
    assert one(made, 1).nonfinite is None and len(updates) == 1


def test_prompts_come_once_an_epoch_and_the_seed_decides_their_order():
    chosen, selector = [], Uniform()
    for _ in range(5):
        batch, selector = selector.choose(PromptOrder(3, 5), 2)
        chosen += batch.problems
    assert sorted(chosen[:5]) == sorted(chosen[5:]) == [0, 1, 2, 3, 4] and chosen[:5] != chosen[5:]
    first = (Uniform().choose(PromptOrder(seed, 5), 5)[0] for seed in range(20))
    assert len({tuple(batch.problems) for batch in first}) > 10


@pytest.mark.parametrize("lag", [0, 2])
def test_the_engine_gets_the_weights_of_each_update_before_it_generates_again(lag):
    made, updates = loop("budget.max_steps=4", f"engine.lag={lag}")
    events, engine, update = [], made.engine, made.update
    generate = engine.generate
    engine.sync = lambda: events.append("sync")
    engine.generate = lambda *words: events.append("generate") or generate(*words)
    noted = replace(made, update=lambda *a: events.append("update") or update(*a),
                    gap=lambda rollouts: float(len(rollouts)))  # fmt: skip
    steps = list(steps_of(noted, 0, Uniform()))
    assert events == ["generate"] * lag + ["generate", "update", "sync"] * 4
    plain = steps_of(loop("budget.max_steps=4")[0], 0, Uniform())  # the same batches, older weights
    for step, same in zip(steps, plain, strict=True):
        of, of_same = ([(g.problem_index, *g.kept) for g in s.groups] for s in (step, same))
        assert of == of_same and step.epoch == same.epoch
        assert step.sample.gap == (4 if lag else None)
    assert [at for *_, at in updates] == [1, 2, 3, 4] and len(steps[-1].state.pending) == lag
    assert [step.state.selector.position for step in steps] == [2 * (k + lag) for k in (1, 2, 3, 4)]


def test_a_run_goes_on_from_what_was_pending_as_if_nothing_had_been_read(tmp_path):
    made, _ = loop("engine.lag=2", "budget.max_steps=4", "prompts=greso")
    begun = start(made.config.prompts)
    first, *others = steps_of(made, 0, begun)
    write_state(tmp_path, first.state)
    state = read_state(tmp_path, type(begun))
    assert state.selector == first.state.selector and len(state.pending) == 2
    for step, same in zip(others, schedule.steps(made, 1, state), strict=True):
        assert [*rollout_rows(step, replayable=True)] == [*rollout_rows(same, replayable=True)]
        assert (step.state.selector, step.epoch) == (same.state.selector, same.epoch)
    assert made.config.update.importance == "token_truncate"
    assert loop()[0].config.update.importance == "off"


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_the_rollouts_of_every_step_have_seeds_of_their_own_whatever_the_lag(lag):
    made, _ = loop(f"engine.lag={lag}", "budget.max_steps=4")
    list(steps_of(made, 0, Uniform()))
    seeds = [seeds for *_, seeds in made.engine.calls]
    assert seeds == [
        [derive(0, "rollouts", number, group) for group in (0, 1)] for number in range(1, 5 + lag)
    ]


def test_the_gap_is_measured_on_four_rollouts_or_on_one_for_each_process():
    made, _ = loop("engine.lag=1", "budget.max_steps=1", "hardware.processes=6")
    [step] = steps_of(replace(made, gap=len), 0, Uniform())
    assert step.sample.gap == 6


@pytest.mark.parametrize(("rewards", "right", "equal"), [
    ([0.0, 0.0], [False, False], True),
    ([0.0, 0.25], [False, False], False),  # none is right, but their form differs
    ([1.0, 1.0], [True, True], True),
    ([1.0, 1.25], [True, True], False),
    ([0.5, 0.5], [True, False], True),
])  # fmt: skip
def test_the_outcome_of_a_prompt_has_right_answers_and_equal_rewards_apart(rewards, right, equal):
    group = Group(np.array(rewards), np.array(right), np.ones(2, np.int64))
    graded = SelectedGroup(problem_index=3, problem=TASK.train[3], grades=[], group=group)
    expected = Outcome(problem=3, right=2 * sum(right), rollouts=4, zero_variance=equal)
    assert outcome([graded, graded]) == expected


def test_a_group_of_which_a_rule_across_groups_keeps_nothing_has_no_advantages():
    @across_groups
    def only_the_first(groups, m, rng):
        return [[0, 1]] + [[]] * (len(groups) - 1)

    made, _ = loop("prompts_per_step=3")
    sample = replace(made, rule=only_the_first).collect(1, Uniform())
    first, *others = choose_trained(made.config, only_the_first, 1, sample)
    assert len(first.kept) == len(first.advantages) == 2
    assert [(len(group.kept), len(group.advantages)) for group in others] == [(0, 0), (0, 0)]


def test_a_seed_is_what_a_hash_of_its_purpose_and_counters_says():
    """So that no version draws anew: `printf 1/rollouts/2/3 | sha256sum`, its first 63 bits."""
    assert derive(1, "rollouts", 2, 3) == 0x85DA847BC2FC5396 >> 1
    assert evaluation_seeds(0, 100, 1, 8)[7] == 0x0D34BBF34E7239DA >> 1  # 0/evaluation/100/1/7


def test_seeds_and_the_rules_draws_differ_by_run_step_and_slot():
    def drawn(seed, step):
        made, _ = loop(f"seed={seed}", "nm.n=16", "nm.m=8")
        groups = one(replace(made, rule=random), step).groups
        [(*_, seeds)] = made.engine.calls
        return [*seeds, *(tuple(group.kept) for group in groups)]

    assert drawn(0, 1) == drawn(0, 1)
    assert len({*drawn(0, 1), *drawn(0, 2), *drawn(1, 1)}) == 12


def test_slow_grading_begins_with_each_completion_and_nothing_is_lost():
    made, _ = loop()
    begun, asked = [], []

    def noted(text, gold):
        asked.append((text, gold))
        return grade(text, gold)

    grader = Grader(noted, lambda *pair: begun.append(pair))
    task = replace(TASK, train_grader=grader, test_grader=grader)
    one(replace(made, task=task), 1)
    assert begun == asked and len(begun) == 8
    [(prompts, *_)] = made.engine.calls
    assert [gold for _, gold in asked] == [str(i) for (i,) in prompts for _ in range(4)]
    begun.clear(), asked.clear()
    config = composed("evaluation.repeats=2", "engine.max_rows=3", "sampling.top_k=7")
    prompts = [(i,) for i in range(5)]
    engine = FakeEngine()
    records = [r for rows in evaluate(config, task, prompts, engine, 1, 0) for r, _ in rows]
    limit = config.sampling.max_completion_tokens
    sampling = Sampling(config.evaluation.temperature, limit, top_k=7)
    assert all(call[2] == sampling for call in engine.calls)
    assert begun == asked and len(records) == 10
    assert [gold for _, gold in asked] == [str(i) for (i,) in prompts] * 2
    assert records[0].lenient is None and records[0].verdict in ("right", "wrong")
