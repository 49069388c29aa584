"""Reward functions of TRL's form: called as TRL calls them, and None is never a reward of 0."""

import importlib
import json
import os
import sys
import textwrap
from dataclasses import replace

import needs
import numpy as np
import pytest
from compose import composed
from fake_loop import TASK, loop, take_step
from rewarding import rollout
from running import ONE_STEP, run_here, steps

from pods.launch.sweep import check_data
from pods.method.grpo import advantages
from pods.method.prompt_selection import Uniform, start
from pods.method.rules import RULES
from pods.policy.update_stats import UpdateStats
from pods.runs.files import read_lines
from pods.runs.identity import identity
from pods.runs.paths import SHIPPED_MODELS
from pods.tasks.own_rewards import own_reward, trl_arguments
from pods.training.metrics import metrics, rollout_rows
from pods.training.resume import read_state, write_state
from pods.training.step import RunState
from pods.types import Grade, Graded, Parts, Problem

MODULE = """
    calls = []
    missing = {}  # numbers of tokens of the completions without a reward, by prompt

    def text(prompts, completions, level=None, **columns):
        calls.append({"prompts": prompts, "completions": completions, "level": level, **columns})
        return [None if "#" not in text else len(text) / 4 for text in completions]

    def chat(prompts, completions, **columns):
        calls.append({"prompts": prompts, "completions": completions, **columns})
        asked = [messages[-1]["content"] for messages in prompts]
        told = [messages[0]["content"] for messages in completions]
        return [None if "#" not in text else len(p + text) / 4 for p, text in zip(asked, told)]

    def partly(prompts, completions, completion_ids, **columns):
        calls.append(prompts)
        gone = [len(ids) in missing.get(p, ()) for p, ids in zip(prompts, completion_ids)]
        return [None if no else float(text) for no, text in zip(gone, completions)]

    def picky(problem, completion):
        return 1 / (completion != "x")

    def short(prompts, completions, **columns):
        return [-1.0 for _ in completions]

    def fails(prompts, completions, **columns):
        calls.append(prompts)
        return [1 / (text != "x") for text in completions]

    def unlike(completions, **columns):
        return [1.0] if len(completions) > 1 else [0.5 for _ in completions]

    def broken(completions, **columns):
        return [float("nan") for _ in completions]

    def long(completions, **columns):
        return [None if len(text) % 3 == 0 else float(len(text)) for text in completions]
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    (tmp_path / "their_trl.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_trl", raising=False)
    return importlib.import_module("their_trl")


def config(*words):
    return composed(*words).task


def batch(texts, prompts=("7+8?",)):
    problems = [Problem(f"p{p}", ({"role": "user", "content": p},), "5") for p in prompts]
    each = [problem for problem in problems for _ in texts]
    grade = Grade("right", True, Parts(1.0, overlong=-0.125))
    return [Graded(p, rollout(t), grade) for p, t in zip(each, texts * len(prompts), strict=True)]


TEXTS = ["7+8=5;#5", "7+8", "#5", "7"]


@pytest.mark.filterwarnings("ignore")  # TRL's and its libraries'
@pytest.mark.parametrize("kind", ["text", "chat"])
def test_the_same_function_gets_the_same_in_trl_and_gives_the_same_rewards(kind, theirs, tmp_path):
    needs.module("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    class Trainer(GRPOTrainer):
        def _calculate_rewards(self, *arguments):
            self.seen = super()._calculate_rewards(*arguments)
            return self.seen

    def given(prompts, trainer):
        encode = trainer.processing_class.encode
        asked = [p if isinstance(p, str) else p[-1]["content"] for p in prompts]
        ids = [encode(text, add_special_tokens=False) for text in TEXTS * 2]
        return {"prompt_ids": [encode(p, add_special_tokens=False) for p in asked],
                "completion_ids": ids, "logprobs": [[0.0] * len(row) for row in ids]}  # fmt: skip

    tiny = str(SHIPPED_MODELS / "tiny")
    questions, prompts = ["7+8?", "1-3+1?"], ["7+8?", "1-3+1?"]
    if kind == "chat":
        prompts = [[{"role": "user", "content": question}] for question in questions]
    settings = GRPOConfig(
        str(tmp_path / "trl"), use_cpu=True, bf16=False, max_steps=1, num_generations=4,
        per_device_train_batch_size=8, max_completion_length=16, shuffle_dataset=False,
        gradient_checkpointing=False, report_to="none", save_strategy="no", reward_weights=[2, 1],
        disable_tqdm=True)  # fmt: skip
    trainer = Trainer(
        AutoModelForCausalLM.from_pretrained(tiny), [getattr(theirs, kind), theirs.short], settings,
        Dataset.from_dict({"prompt": prompts, "level": [3, 7]}), rollout_func=given,
        processing_class=AutoTokenizer.from_pretrained(tiny))  # fmt: skip
    trainer.train()
    [in_trl] = theirs.calls
    theirs.calls.clear()

    chosen = config(f"task.reward=[trl:their_trl:{kind}*2,trl:their_trl:short]",
                    f"task.trl_messages={str(kind == 'chat').lower()}")  # fmt: skip
    ours = batch(TEXTS, questions)
    fields = {"p7+8?": {"prompt": "!", "level": 3}, "p1-3+1?": {"level": 7}}
    grades = own_reward(chosen, fields)(ours)
    [here] = theirs.calls
    for name in ("prompts", "completions", "completion_ids", "level"):
        if name != "completion_ids":  # whose numbers are the tokenizer's
            assert here[name] == in_trl[name], name
    assert set(here) - set(in_trl) == {"question", "gold"}
    in_trl_rewards = (trainer.seen * np.array([2, 1])).nansum(1) - 0.125  # what is overlong
    assert [grade.reward for grade in grades] == pytest.approx(in_trl_rewards.tolist())
    assert all(grade.scored for grade in grades)  # the other function has a number for each

    alone = own_reward(config(f"task.reward=trl:their_trl:{kind}", *(
        ["task.trl_messages=true"] * (kind == "chat"))))(ours)  # fmt: skip
    assert [grade.scored for grade in alone] == (~trainer.seen[:, 0].isnan()).tolist()
    assert [np.isnan(grade.reward) for grade in alone] == [not grade.scored for grade in alone]


def test_columns_are_those_of_the_data_and_none_where_a_row_lacks_one():
    rows = {"pa?": {"level": 1, "completion": "!", "answer": 4}, "pb?": {"source": "x"}}
    given = trl_arguments(config(), batch(["12"], ["a?", "b?"]), rows)
    assert given == {
        "prompts": ["a?", "b?"], "completions": ["12", "12"], "completion_ids": [[1, 2], [1, 2]],
        "question": ["a?", "b?"], "gold": ["5", "5"], "level": [1, None], "answer": [4, None],
        "source": [None, "x"]}  # fmt: skip


def made_loop(theirs, missing, *words):
    """A loop of 2 prompts, `0` with rewards 0 1 0 1 and `1` with none but 0."""
    made, _ = loop(*words, "task.reward=trl:their_trl:partly")
    updates = []

    def update(rollouts, values, sizes, step):
        assert sum(sizes) == len(rollouts) == len(values)
        updates.append((rollouts, values.tolist(), sizes))
        return UpdateStats(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.5, 1e-4)

    theirs.missing.update(missing)
    task = replace(TASK, train=TASK.train[:2], own_reward=own_reward(made.config.task))
    return replace(made, task=task, prompts=made.prompts[:2], update=update), updates


def of(groups, prompt):
    [group] = [group for group in groups if group.problem.question == prompt]
    return group


def line_of(step, prompt):
    """The kept positions of a prompt, and the rewards that its rows have."""
    place = [group.problem.question for group in step.groups].index(prompt)
    rows = [row for row in rollout_rows(step) if row["question"] == prompt]
    assert [row["length"] for row in rows] == [1, 2, 3, 4]  # in the order of generation
    return metrics(step)["kept"][place], rows


def test_what_has_no_reward_takes_no_part_in_selection_and_advantages(theirs):
    """Of 0 1 0 1 the first 1 has none, so the mean of the rest is 1/3 and its variance 1/3."""
    for baseline in ("selected", "full"):
        made, updates = made_loop(theirs, {"0": {2}}, f"advantage.baseline={baseline}")
        step = take_step(made, 1, Uniform())
        group = of(step.groups, "0")
        assert group.group.rewards.tolist() == [0, 0, 1] and len(group.group.rollouts) == 3
        kept, rows = line_of(step, "0")
        assert len(kept) == 2 and 3 in kept and 1 not in kept
        assert [row["reward"] for row in rows] == [0, None, 0, 1]
        assert [row["kept"] for row in rows] == [i in kept for i in range(4)]
        expected = advantages(np.array([0.0, 0, 1]), group.kept, baseline=baseline, scale="std",
                              eps=1e-4)  # fmt: skip
        assert [row["advantage"] for row in rows if row["kept"]] == expected.tolist()
        assert max(expected) == pytest.approx(
            {"selected": np.sqrt(0.5), "full": 2 / np.sqrt(3)}[baseline], rel=1e-3
        )
        [(rollouts, _, sizes)] = updates
        assert sizes == [2, 2] and all(
            len(r.completion_ids) != 2 or r.text == "0" for r in rollouts
        )
        line = metrics(step)
        assert (line["no_reward"], line["generated_rollouts"], line["trained_rollouts"]) == (
            1,
            8,
            4,
        )
        assert line["rollouts_per_group"] == [4, 4] and line["generated_tokens"] == 20
        assert line["reward"] == pytest.approx(1 / 7)  # of the seven that have one
        assert line["correct"] == 2 / 8 and line["length"] == 2.5  # of all
        assert line["reward/partly"] == pytest.approx(1 / 7)


def test_the_function_is_called_once_for_all_groups_of_a_step(theirs):
    made, _ = made_loop(theirs, {}, "nm.groups=2")
    take_step(made, 1, Uniform())
    [prompts] = theirs.calls
    assert sorted(prompts) == ["0"] * 8 + ["1"] * 8


@pytest.mark.parametrize("rule", ["max_variance", "all"])
def test_of_fewer_than_m_all_are_kept_and_of_none_nothing_is_trained_on(rule, theirs):
    words = ("nm.m=4", "sampler.rule=all") if rule == "all" else ()
    made, updates = made_loop(theirs, {"0": {1, 2, 3}, "1": {1, 2, 3, 4}}, *words)
    step = take_step(replace(made, rule=RULES[rule]), 1, Uniform())
    assert line_of(step, "0")[0] == [3] and line_of(step, "1")[0] == []
    assert [of(step.groups, prompt).trained for prompt in "01"] == [True, False]
    [(rollouts, values, sizes)] = updates
    assert (len(rollouts), values, sizes) == (1, [0.0], [1])  # one reward has no advantage
    line = metrics(step)
    assert (line["no_reward"], line["trained_rollouts"], line["reward"]) == (7, 1, 1.0)
    assert line["all_right_fraction"] == line["zero_variance_fraction"] == 1  # of one group


@pytest.mark.parametrize("filtered", ["none", "skip", "resample"])
def test_a_step_without_any_reward_makes_no_update_and_says_so(filtered, theirs):
    everything = {"0": {1, 2, 3, 4}, "1": {1, 2, 3, 4}}
    made, updates = made_loop(theirs, everything, f"group_filter={filtered}",
                              "group_filter.max_batches=2")  # fmt: skip
    step = take_step(made, 1, Uniform())
    line = metrics(step)
    generated = 16 if filtered == "resample" else 8
    assert updates == [] and line["no_reward"] == line["generated_rollouts"] == generated
    for name in ("reward", "reward_std", "zero_variance_fraction", "all_right_fraction"):
        assert line[name] is None
    assert "kept_reward" not in line and line["nonfinite"] is None
    assert {row["reward"] for row in rollout_rows(step)} == {None}


@pytest.mark.parametrize("selector", ["greso", "mopps"])
def test_prompt_selection_learns_nothing_of_a_prompt_without_rewards(selector, theirs):
    """Not that all of its rollouts are right, as all of none are."""
    made, _ = made_loop(theirs, {"0": {1, 2, 3, 4}, "1": {1, 3}}, f"prompts={selector}",
                        "task.train_size=32")  # fmt: skip
    after = take_step(made, 1, start(made.config.prompts)).state.selector
    if selector == "greso":
        assert (dict(after.streaks), after.groups if made.order.epoch(0) else 1) == ({"1": -1}, 1)
    else:
        assert {name: list(value) for name, value in after.posteriors.items()} == {"1": [1, 3]}


def test_a_sample_that_waits_in_a_checkpoint_keeps_what_has_no_reward(theirs, tmp_path):
    made, _ = made_loop(theirs, {"0": {2}, "1": {1, 2, 3, 4}})
    sample = made.collect(1, Uniform())
    write_state(tmp_path, RunState(sample.selector, [sample]))
    [read] = read_state(tmp_path, Uniform).pending
    theirs.calls.clear()
    was, now = (made.learn(1, each, RunState(Uniform())) for each in (sample, read))
    assert list(map(str, rollout_rows(was))) == list(map(str, rollout_rows(now)))
    assert metrics(was)["no_reward"] == metrics(now)["no_reward"] == 5 and theirs.calls == []


def test_a_failure_is_told_with_its_rollout_and_ends_the_run(theirs):
    asked = batch(["1", "x", "22"])
    add = own_reward(config("task.reward=trl:their_trl:fails"))
    why = r"^task.reward=trl:their_trl:fails: problem p7\+8\?, completion 'x': ZeroDivisionError: "
    with pytest.raises(ValueError, match=why + r".*their_trl.py:\d+\)$"):
        add(asked)
    for name, why in (("unlike", "must return 3 rewards, not 1"), ("broken", "not nan")):
        for errors in ("fail", "exclude")[: 2 if name == "unlike" else 1]:
            words = (f"task.reward=trl:their_trl:{name}", f"task.reward_errors={errors}")
            with pytest.raises(ValueError, match=rf"^task.reward=trl:their_trl:{name}: .*{why}"):
                own_reward(config(*words))(asked)


def test_or_it_leaves_the_rollout_out_whatever_the_other_terms_say(theirs, capsys):
    words = ("task.reward=[correct,trl:their_trl:fails]", "task.reward_errors=exclude")
    add = own_reward(config(*words))
    for _ in range(2):
        grades = add(batch(["1", "x", "22", "x"]))
        assert [grade.scored for grade in grades] == [True, False, True, False]
        assert [grade.reward for grade in grades][::2] == [2 - 0.125, 2 - 0.125]
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("left out, and so is each such rollout from now on: task.reward=trl:")
    assert "completion 'x': ZeroDivisionError" in line


def test_a_function_of_the_harness_s_own_form_fails_in_the_same_two_ways(theirs, capsys):
    word = "task.reward=their_trl:picky"
    with pytest.raises(ValueError, match="completion 'x': ZeroDivisionError"):
        own_reward(config(word))(batch(["1", "x"]))
    grades = own_reward(config(word, "task.reward_errors=exclude"))(batch(["1", "x"]))
    assert [grade.scored for grade in grades] == [True, False]


def test_it_is_tried_before_a_run_begins(theirs):
    with pytest.raises(ValueError, match=r"^task.reward=trl:their_trl:broken: problem toy, "):
        check_data([config("task.reward=trl:their_trl:broken")])
    check_data([config("task.reward=trl:their_trl:text")])
    assert theirs.calls[0]["completions"] == [""]


LONG = ("task.reward=[trl:their_trl:long*0.1]", *ONE_STEP)


def test_a_run_trains_on_it_and_counts_what_has_none(theirs, tmp_path):
    store = run_here(*LONG, "nm.n=16", "nm.m=8", "rollouts_every_steps=1", f"runs_dir={tmp_path}")
    [line] = map(json.loads, store.metrics_path.read_text().splitlines())
    rows = read_lines(store.folder / "rollouts" / "step-000001.jsonl.gz")
    without = [row["completion"] for row in rows if row["reward"] is None]
    assert line["no_reward"] == len(without) > 0
    assert all((len(row["completion"]) % 3 == 0) == (row["reward"] is None) for row in rows)
    assert not any(row["trained"] for row in rows if row["reward"] is None)
    mine = identity(composed(*LONG))
    assert (
        mine["reward source"]
        == identity(composed(*ONE_STEP, "task.reward=their_trl:long"))["reward source"]
    )


@pytest.mark.slow
def test_several_processes_leave_out_what_one_does(theirs, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    alone, expected = steps(tmp_path / "alone", 1, LONG[0])
    together, gradients = steps(tmp_path / "together", 2, LONG[0])
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.pop("stats"), other.pop("stats"), atol=1e-5)
        assert one == other  # prompts, tokens, what was kept, advantages
    assert {len(group) for step in alone for group in step["tokens"]} - {16}  # some are left out
    for name, gradient in expected.items():
        np.testing.assert_allclose(gradients[name], gradient, atol=1e-5)
