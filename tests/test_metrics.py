"""A step's line in metrics.jsonl and the rows of its rollouts, whole, worked by hand."""

import csv
import json
import math
from dataclasses import fields, replace
from unittest.mock import Mock

import numpy as np
import pytest
from compose import ROOT, composed

from pods.method.prompt_selection import ChosenPrompts, Greso, Uniform
from pods.policy.update_stats import UpdateStats
from pods.runs.evaluations import EvaluationRecord
from pods.training.clock import StepSeconds
from pods.training.metrics import metrics, rollout_rows
from pods.training.step import RunState, Sample, SelectedGroup, Step
from pods.training.trainer import Trainer
from pods.types import Grade, Group, Parts, Problem, Rollout

SECONDS = {"generate": 2.0, "reward": 0.25, "select": 0.125, "update": 1.0, "sync": 0.5}
CPU_SECONDS = {"generate": 1.5, "reward": 0.0625, "select": 0.125, "update": 1.75, "sync": 0.25}
LINE = {
    "step": 7, "nonfinite": None, "train_seconds": 12.5,
    **{f"seconds/{phase}": seconds for phase, seconds in SECONDS.items()},
    **{f"cpu_seconds/{phase}": seconds for phase, seconds in CPU_SECONDS.items()},
    "prompts": ["a", "b", "c", "d", "e"], "epoch": 3, "sampling_batches": 2, "sampled_prompts": 5,
    "passed_over_prompts": 9, "rollouts_saved": 16,  # 4 problems of 4 rollouts
    "generated_rollouts": 20, "trained_rollouts": 6, "no_reward": 0,  # two of a, c and e
    "zero_variance_fraction": 0.4,  # b, d
    "all_right_fraction": 0.2,  # b
    "none_right_fraction": 0.6,  # c, d, e
    "selector/p_easy": 0.375, "selector/p_hard": 0.625,
    "reward": 0.4625,  # 3.5 + 4 + 1 + 0 + 0.75 of 20
    "reward_std": (math.sqrt(0.453125) + 0.25 + 0.75 * math.sqrt(3) / 4) / 5,
    "correct": 0.3,  # 2 + 4 of 20
    "format": 0.4,  # 2 + 3 + 2 + 0 + 1
    "format_reward": 0.125,  # 1 + 0 + 1 + 0 + 0.5 of 20
    "tags_reward": 0.0375,  # 0.5 + 0.25 of 20
    "no_answer": 0.2,  # 1 + 0 + 1 + 2
    "timeouts": 2,
    "length": 6.8,  # 20 + 8 + 16 + 64 + 28 of 20
    "truncated": 0.35,  # 1 + 0 + 1 + 4 + 1
    "generated_tokens": 136,
    "kept_reward": 0.45,  # 1.75 + 2 + 0 + 0 + 0.75 of 10
    "kept_reward_std": 0.25,  # 0.875 + 0 + 0 + 0 + 0.375 of 5
    "kept_reward_variance": (0.875**2 + 0 + 0.375**2) / 3,  # of a, c, e
    "zero_variance_kept": 3,  # b, c, d
    "skipped_groups": 2,
    "kept_length": 6.9,  # 11 + 4 + 6 + 32 + 16 of 10
    "trained_tokens": 33,  # 11 + 6 + 16
    "loss": 0.5, "grad_norm": 1.5, "clip_fraction": 0.25, "kl": 0.125, "logprob_gap": 0.0625,
    "logprob_gap_mean": 0.03125, "importance_mean": 0.875, "importance_ess": 0.625,
    "importance_cut": 0.75, "entropy": 0.375, "lr": 0.001, "kept_projection": 0.96875,
    "rollouts_per_group": [4, 4, 4, 4, 4],
    "kept": [[0, 2], [0, 1], [0, 2], [2, 3], [0, 3]]}  # fmt: skip


def assert_equal(line, expected):
    """Key by key, numbers as floats may round; and as it is read back from its file."""
    assert line.keys() == expected.keys()
    for key, value in expected.items():
        exact = isinstance(value, list | str) or value is None
        assert line[key] == (value if exact else pytest.approx(value, rel=1e-12)), key
    assert json.loads(json.dumps(line, allow_nan=False)) == line


STATS = UpdateStats(
    loss=0.5, grad_norm=1.5, clip_fraction=0.25, kl=0.125, logprob_gap=0.0625,
    logprob_gap_mean=0.03125, importance_mean=0.875, importance_ess=0.625, importance_cut=0.75,
    entropy=0.375, lr=0.001)  # fmt: skip
UNIFORM = Uniform(8)


def selected(name, grades, lengths, unfinished, kept, trained=True):
    """A group of four: grades are (verdict, has the form, reward of the form, of the tags)."""
    made = [
        Grade(verdict, formed, Parts(float(verdict == "right"), form, tags))
        for verdict, formed, form, tags in grades
    ]
    rollouts = [
        Rollout((1, 2), (3,) * length, np.full(length, -0.5, np.float32), f"{name}{i}",
                i not in unfinished)
        for i, length in enumerate(lengths)]  # fmt: skip
    columns = ([grade.reward for grade in made], [grade.correct for grade in made], lengths)
    group = Group(*map(np.array, columns), rollouts)
    return SelectedGroup(
        ord(name) - ord("a"), Problem(name, ({"role": "user", "content": f"{name}?"},), "1"),
        made, group, np.array(kept, np.intp), np.array([0.5, -0.5])[: len(kept)], trained,
    )  # fmt: skip


RIGHT, WRONG = ("right", True, 0.0, 0.0), ("wrong", False, 0.0, 0.0)
NONE, TIMEOUT, REFUSED = ((verdict, *WRONG[1:]) for verdict in ("none", "timeout", "refused"))
GROUPS = [
    # rewards 1.75, 0.5, 0, 1.25: mean 0.875, variance (2 * 0.875^2 + 2 * 0.375^2) / 4 = 0.453125
    selected("a", [("right", True, 0.5, 0.25), ("wrong", True, 0.5, 0.0), NONE,
                   ("right", False, 0.0, 0.25)], [3, 5, 8, 4], {2}, [0, 2]),
    # all right, all alike: filtered
    selected("b", [RIGHT, RIGHT, RIGHT, ("right", False, 0.0, 0.0)], [2, 2, 2, 2], {}, [0, 1],
             trained=False),
    # rewards 0, 0.5, 0, 0.5, of which two equal ones are kept
    selected("c", [WRONG, ("wrong", True, 0.5, 0.0), TIMEOUT, ("none", True, 0.5, 0.0)],
             [1, 3, 5, 7], {3}, [0, 2]),
    # nothing at all, cut off, filtered
    selected("d", [NONE, NONE, REFUSED, TIMEOUT], [16, 16, 16, 16], {0, 1, 2, 3}, [2, 3],
             trained=False),
    # rewards 0, 0, 0, 0.75: variance 0.75^2 * 3 / 16
    selected("e", [WRONG, WRONG, WRONG, ("wrong", True, 0.5, 0.25)], [6, 6, 6, 10], {3}, [0, 3]),
]  # fmt: skip


def step(groups, stats, selector=UNIFORM, prompts=5, saved_prompts=4, kept=None, nonfinite=None):
    chosen = ChosenPrompts([], 4), ChosenPrompts([], 5, saved_prompts)
    return Step(
        number=7, train_seconds=12.5, seconds=StepSeconds(SECONDS, CPU_SECONDS), groups=groups,
        state=RunState(selector), epoch=3, sample=Sample([groups] * prompts, UNIFORM, chosen),
        update=stats, kept_projection=kept, nonfinite=nonfinite)  # fmt: skip


def test_a_line_of_the_metrics_by_hand():
    selector = Greso(p_easy=0.375, p_hard=0.625, streaks={"1": 3}, groups=8, easy=2, hard=1)
    assert_equal(metrics(step(GROUPS, STATS, selector, kept=0.96875)), LINE)


def test_every_logged_column_is_in_the_table_of_columns():
    own = Grade("right", True, Parts(1.0), {"brevity": 0.5})
    [row, *_] = rollout_rows(step([replace(GROUPS[0], grades=[own] * 4)], None), replayable=True)
    made = step(GROUPS, STATS)
    line = metrics(replace(made, sample=replace(made.sample, gap=0.125)))
    logged = {
        "metrics": [*LINE, *line, "reward/brevity"],
        "evaluations": EvaluationRecord.__struct_fields__, "rollouts": row}  # fmt: skip
    general = {f"cpu_seconds/{phase}": "cpu_seconds/PHASE" for phase in CPU_SECONDS}
    general |= dict.fromkeys(("selector/p_easy", "selector/p_hard"), "selector/PARAMETER")
    general["reward/brevity"] = "reward/TERM"
    with (ROOT / "src/pods/runs/columns.csv").open() as table:
        listed = [(row["name"], row["where"]) for row in csv.DictReader(table)]
    found = {(general.get(name, name), where) for where, names in logged.items() for name in names}
    assert found == {*listed} and len(listed) == len({*listed})


def test_rollouts_saved_are_those_of_all_groups_of_a_prompt():
    line = metrics(step([GROUPS[0], GROUPS[2]], STATS, prompts=1, saved_prompts=3))
    assert line["rollouts_saved"] == 3 * 2 * 4


def test_a_step_without_a_group_to_train_on_has_no_update_and_no_variance_of_what_it_trained_on():
    line = metrics(step([GROUPS[1], GROUPS[3]], None, prompts=2, saved_prompts=0))
    gone = {"selector/p_easy", "selector/p_hard", *(field.name for field in fields(UpdateStats))}
    assert list(line) == [key for key in LINE if key not in gone]
    trained = {"trained_rollouts": 0, "kept_reward_variance": None, "trained_tokens": 0,
               "skipped_groups": 2, "kept_reward": 0.5, "kept_length": 9.0}  # fmt: skip
    assert {key: line[key] for key in trained} == trained


def test_the_line_of_a_step_that_was_not_applied_has_no_numbers_that_json_lacks():
    spoilt = ("wrong", True, math.nan, 0.25)
    group = selected("a", [RIGHT, spoilt, WRONG, WRONG], [3, 5, 8, 4], {2}, [], trained=False)
    line = metrics(step([group], None, prompts=1, saved_prompts=0, nonfinite="a reward is NaN"))
    assert_equal(line, {
        "step": 7, "nonfinite": "a reward is NaN", "train_seconds": 12.5,
        **{f"seconds/{phase}": seconds for phase, seconds in SECONDS.items()},
        **{f"cpu_seconds/{phase}": seconds for phase, seconds in CPU_SECONDS.items()},
        "prompts": ["a"], "epoch": 3, "sampling_batches": 2, "sampled_prompts": 1,
        "passed_over_prompts": 9, "rollouts_saved": 0, "generated_rollouts": 4,
        "trained_rollouts": 0, "no_reward": 0, "zero_variance_fraction": 0.0,
        "all_right_fraction": 0.0,
        "none_right_fraction": 0.0, "reward": None, "reward_std": None, "correct": 0.25,
        "format": 0.5, "format_reward": None, "tags_reward": 0.0625, "no_answer": 0.0,
        "timeouts": 0, "length": 5.0, "truncated": 0.25,
        "generated_tokens": 20, "kept_projection": None,
        "rollouts_per_group": [4], "kept": [[]]})  # fmt: skip


ROW = {
    "problem": "a", "group": 0, "question": "a?", "completion": "a2", "reward": 0.0,
    "verdict": "none", "correct": False, "format": False, "reward/correct": 0.0,
    "reward/format": 0.0, "reward/tags": 0.0, "reward/overlong": 0.0, "length": 8,
    "finished": False, "kept": True, "trained": True, "advantage": -0.5}  # fmt: skip


def test_the_rows_of_rollouts_by_hand():
    rows = list(rollout_rows(step(GROUPS, STATS)))
    assert len(rows) == 20
    assert rows[2] == ROW and list(rows[2]) == list(ROW)
    assert rows[3] == ROW | {
        "completion": "a3", "reward": 1.25, "verdict": "right", "correct": True,
        "reward/correct": 1.0, "reward/tags": 0.25, "length": 4, "finished": True, "kept": False,
        "trained": False, "advantage": None}  # fmt: skip
    filtered = {"problem": "b", "group": 1, "kept": True, "trained": False, "advantage": 0.5}
    assert {key: rows[4][key] for key in filtered} == filtered
    assert [row["advantage"] for row in rows if row["kept"]] == [0.5, -0.5] * 5


def test_the_rows_for_a_replay_have_all_that_an_update_needs_even_if_it_is_not_finite():
    group = GROUPS[0]
    group.group.rollouts[2].logprobs[1] = math.nan
    spoilt = replace(group, advantages=np.array([math.inf, -math.inf]))
    rows = list(rollout_rows(step([spoilt], None), replayable=True))
    group.group.rollouts[2].logprobs[1] = -0.5
    assert rows[2] == ROW | {
        "advantage": "-inf", "prompt_ids": (1, 2), "completion_ids": (3,) * 8,
        "logprobs": [-0.5, "nan", *[-0.5] * 6]}  # fmt: skip
    assert rows[0]["advantage"] == "inf" and rows[0]["logprobs"] == [-0.5] * 3


@pytest.mark.parametrize(("every", "saved"), [
    ("null", []),
    ("9", [1]),
    ("3", [1, 3, 6]),
    ("1", [1, 2, 3, 4, 5, 6]),
])  # fmt: skip
def test_rollouts_are_saved_of_the_first_step_and_of_every_so_many(every, saved):
    trainer = Mock(config=composed(f"rollouts_every_steps={every}"))
    assert [step for step in range(1, 7) if Trainer.saves_rollouts(trainer, step)] == saved
