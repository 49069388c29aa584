"""Countdown: every value, distance and reward was worked out by hand."""

import re
from fractions import Fraction

import pytest
from compose import composed

from pods.config.parse import ConfigError
from pods.tasks.datasets import countdown
from pods.tasks.load import load, load_questions
from pods.types import Problem


@pytest.mark.parametrize(
    ("text", "value", "numbers"),
    [
        ("3*5+8", 23, [3, 5, 8]),
        ("8-3-1", 4, [1, 3, 8]),
        ("8-(3-1)", 6, [1, 3, 8]),
        ("8/3/2", Fraction(4, 3), [2, 3, 8]),
        ("1/(2-3)", -1, [1, 2, 3]),
        ("((7))", 7, [7]),
        ("12+3", 15, [3, 12]),
    ],
)
def test_an_expression_has_an_exact_value(text, value, numbers):
    assert countdown.evaluate(text) == (value, numbers)


@pytest.mark.parametrize(
    "text",
    ["", "3+", "3 + 5", "-3+5", "2**3", "7//2", "1.5", "07", "3(5)", "(3+5", "3=3", "x", "1/(2-2)",
     "__import__('os')", "9" * 65, "(" * 40 + ")", "1" + "+1" * 32, "٣+1"],
)  # fmt: skip
def test_anything_else_has_none(text):
    assert countdown.evaluate(text) is None


@pytest.mark.parametrize(
    ("completion", "verdict", "reward"),
    [
        ("3*5+8", "right", 1),
        ("8+(5*3)\n", "right", 1),  # another spelling; white space around it
        ("5*3+7", "none", 0),  # another number
        ("3*8-5", "wrong", 1 / 5),  # 19 is 4 away
        ("3+5+8", "wrong", 1 / 8),  # 16 is 7 away
        ("8*5-3", "wrong", 1 / 15),  # 37 is 14 away
        ("8*5/3", "wrong", 3 / 32),  # 40/3 is 29/3 away
        ("3*5", "none", 0),
        ("3*5+8+3-3", "none", 0),
        ("23", "none", 0),
        ("8/(3-3)+5", "none", 0),
        ("3*5+8=23", "none", 0),
        ("", "none", 0),
    ],
)
def test_an_expression_is_graded_by_its_distance_to_the_target(completion, verdict, reward):
    problem = Problem("p", ({"role": "user", "content": "3,5,8=23?"},), "3*5+8")
    grade = countdown.grade(completion, problem.gold)
    assert (grade.verdict, grade.format) == (verdict, verdict != "none")
    assert grade.reward == (verdict == "right")
    assert countdown.graded(problem, completion) == pytest.approx(reward)


def test_pools_are_numbered_disjoint_and_solved():
    task = countdown.load(256, 256, few_shot=2)
    train, test = ({p.question: p.gold for p in pool} for pool in (task.train, task.test))
    assert len(train) == len(test) == 256 and not train.keys() & test.keys()
    assert countdown.load(8, 256, few_shot=2).test[0].id == "test-0000"
    assert countdown.load(8, 256, few_shot=2).test == task.test
    shown, gold = (message["content"] for message in task.test[0].messages[:2])
    for question, solution in [*train.items(), *test.items(), (shown, gold)]:
        assert re.fullmatch(r"[1-9](,[1-9]){2,3}=[1-9]\d?\?", question)
        numbers, target = question[:-1].split("=")
        assert eval(solution) == pytest.approx(int(target))  # this test made it of digits
        assert sorted(re.findall(r"\d", solution)) == numbers.split(",")
    assert shown not in train and shown not in test


def test_a_run_s_reward_may_be_graded(tmp_path):
    words = ("task=countdown", "model=smollm2_135m", "task.train_size=4", "task.test_size=4")
    task = load(composed(*words, "task.reward=[graded*0.5,correct]").task)
    problem = Problem("p", (), "3*5+8")
    assert task.own_reward is not None
    for completion, reward in (("5*3+8", 1.5), ("3*8-5", 0.1), ("8", 0)):
        grade = task.train_grader.grade(completion, problem.gold)
        assert task.own_reward(grade, problem, completion).reward == pytest.approx(reward)
    file = tmp_path / "more.jsonl"
    file.write_text('{"question": "1, 2, 3 = 6", "answer": "1+2+3"}\n')
    further = load_questions(composed(*words).task, file)
    assert further.test[0].question == "1,2,3=6?"
    assert further.test_grader.grade("3*2*1", further.test[0].gold).correct


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=tiny"], "task.name=countdown: model=tiny knows only chainsum; make weights"),
        (["task.train_size=5000"], "task.train_size=5000: must be at most 4096 for countdown"),
        (["task.path=x"], "task.path=x: must be null: countdown is generated"),
        (["task.answer_format=hash"], "task.answer_format=hash: must be chain for countdown"),
    ],
)
def test_bad_keys_end_in_one_line(words, message):
    with pytest.raises(ConfigError) as error:
        composed("model=smollm2_135m", "task=countdown", *words)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)
