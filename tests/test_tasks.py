"""Chainsum, and Countdown as a task of one's own: everything was worked out by hand."""

import importlib
import json
import re
from fractions import Fraction

import pytest
from compose import ROOT, composed
from rewarding import rewarded
from rows import every, table

from pods.tasks.datasets import chainsum
from pods.tasks.load import load
from pods.types import Grade, Parts, Problem


def test_written_solutions_are_right():
    def check(question):
        total = eval(question[:-1]) % 10  # a chain of digits that this test made
        solution = chainsum.solve(question)
        assert solution.endswith(f"#{total}")
        assert chainsum.grade(solution, str(total)) == Grade("right", True, Parts(1.0))

    questions = chainsum.questions(200, 100)[0]
    assert len(set(questions)) == 200
    every(((question,) for question in questions), check)


@pytest.mark.parametrize(("completion", "verdict", "form"), [
    ("7+8=5;5-4=1;#1", "right", True), ("7+8=5;5-4=1;#2", "wrong", True),
    ("7+8=6;6-4=1;#1", "right", True),  # only the answer is graded
    ("#1", "right", False), ("7+8=5;5-4=1;#1#", "none", False), ("", "none", False),
    ("7+8=5;5-4=1;1", "none", False), ("#1\n", "none", False),
    ("7+8=5;" * 100_000, "none", False)])  # fmt: skip
def test_only_a_right_digit_at_the_end_is_rewarded(completion, verdict, form):
    grade = chainsum.grade(completion, "1")
    assert grade == Grade(verdict, form, Parts(float(verdict == "right")))
    assert grade.correct == (verdict == "right") == bool(grade.reward)


def test_pools_are_numbered_disjoint_and_the_same_everywhere():
    task = chainsum.load(256, 256)
    train, test = ({problem.question for problem in pool} for pool in (task.train, task.test))
    assert len(train) == len(test) == 256 and not train & test
    assert task.test[0].id == "test-0000"
    assert chainsum.load(8, 256).test == task.test
    assert [problem.question for problem in task.test[:2]] == ["1-3+1+7?", "6+3-9?"]
    many = chainsum.load(2000, 4, few_shot=50)  # of which some would be drawn as examples, too
    examples = {m["content"] for m in many.train[0].messages[:-1]}
    assert not examples & {p.question for p in many.train}
    problem = chainsum.load(4, 4, few_shot=2).train[0]  # examples come before the question
    assert [m["role"] for m in problem.messages] == ["user", "assistant"] * 2 + ["user"]
    assert problem.messages[1]["content"] == chainsum.solve(problem.messages[0]["content"])


def test_a_chain_is_graded_by_the_share_of_its_steps_that_are_right():
    problem = Problem("p", ({"role": "user", "content": "7+8-4+1?"},), "2")

    def check(completion, right, of):
        assert chainsum.graded(problem, completion) == right / of

    every([*table("chains"), ("7+8=5;" * 1000, 1, 1001)], check)


def test_where_rewards_are_graded_accuracy_is_what_it_was():
    task = load(composed("task.reward=[correct*2,graded]", "task.train_size=4").task)
    assert task.own_reward is not None
    problem = Problem("p", ({"role": "user", "content": "7+8?"},), "5")
    for completion, verdict, reward in (("7+8=5;#5", "right", 3.0), ("7+8=4;#4", "wrong", 0.5),
                                        ("#5", "right", 2.0)):  # fmt: skip
        grade = task.train_grader.grade(completion, problem.gold)
        added = rewarded(task.own_reward, grade, problem, completion)
        assert (added.verdict, added.reward) == (verdict, reward)
        assert added.correct == added.rewarded == (verdict == "right")
    assert load(composed("task.train_size=4").task).own_reward is None


@pytest.fixture
def countdown(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("experiments.countdown.task")


def test_an_expression_has_an_exact_value_and_anything_else_has_none(countdown):
    for text, value, numbers in [
        ("3*5+8", 23, [3, 5, 8]), ("8-3-1", 4, [1, 3, 8]), ("8-(3-1)", 6, [1, 3, 8]),
        ("8/3/2", Fraction(4, 3), [2, 3, 8]), ("1/(2-3)", -1, [1, 2, 3]), ("((7))", 7, [7]),
        ("12+3", 15, [3, 12]),
    ]:  # fmt: skip
        assert countdown.evaluate(text) == (value, numbers), text
    for text in [
        "", "3+", "3 + 5", "-3+5", "2**3", "7//2", "1.5", "07", "3(5)", "(3+5", "3=3", "x",
        "1/(2-2)", "__import__('os')", "9" * 65, "(" * 40 + ")", "1" + "+1" * 32, "٣+1",
    ]:  # fmt: skip
        assert countdown.evaluate(text) is None, text


GRADED = [  # of 3,5,8=23
    ("3*5+8", True, 1), ("8+(5*3)\n", True, 1),  # another spelling; white space around it
    ("5*3+7", False, 0),  # another number
    ("3*8-5", False, 1 / 5),  # 19 is 4 away
    ("3+5+8", False, 1 / 8), ("8*5-3", False, 1 / 15),  # 16 is 7 away, 37 is 14 away
    ("8*5/3", False, 3 / 32),  # 40/3 is 29/3 away
    *((text, False, 0) for text in ("3*5", "3*5+8+3-3", "23", "8/(3-3)+5", "3*5+8=23", "")),
]  # fmt: skip


def test_an_expression_is_graded_by_its_distance_to_the_target(countdown):
    problem = Problem("p", ({"role": "user", "content": "3,5,8=23?"},), "3*5+8")

    def check(completion, right, reward):
        assert countdown.right(completion, problem.gold) == right
        assert countdown.nearness(problem, completion) == pytest.approx(reward)

    every(GRADED, check)


def test_the_preset_s_pools_are_disjoint_solved_and_graded(countdown):
    task = load(composed("experiment=countdown", "dry_run=true").task)
    train, test = ({p.question: p.gold for p in pool} for pool in (task.train, task.test))
    assert len(train) == len(test) == 256 and not train.keys() & test.keys()
    for question, solution in [*train.items(), *test.items()]:
        assert re.fullmatch(r"[1-9](,[1-9]){2,3}=[1-9]\d?\?", question)
        numbers, target = question[:-1].split("=")
        assert eval(solution) == pytest.approx(int(target))  # this test made it of digits
        assert sorted(re.findall(r"\d", solution)) == numbers.split(",")
    problem = Problem("p", (), "3*5+8")
    assert [m["role"] for m in task.train[0].messages] == ["user"]  # no system message
    for completion, verdict, reward in (("8+5*3", "right", 1), ("3*8-5", "wrong", 0.2)):
        grade = task.train_grader.grade(completion, problem.gold)
        assert (grade.verdict, grade.reward) == (verdict, verdict == "right")
        added = rewarded(task.own_reward, grade, problem, completion)
        assert added.reward == pytest.approx(reward)


WORDS = {"buys": 1, "finds": 1, "gives": 1, "away": -1, "loses": -1, "sells": -1}
"""Verbs of the word problems, each with the sign of its number; `gives away` takes it off."""


def in_words(question: str) -> int:
    """Solve a word problem by its sentences."""
    value = 0
    for sentence in question.rstrip("?").split(". ")[:-1]:
        words = sentence.split()
        number = next((int(word) for word in words if word.isdecimal()), 0)
        if "has" in words:
            value = number
        elif "number" in words:
            value *= {"doubles": 2, "triples": 3}[words[-1]]
        else:
            value += number * [WORDS[word] for word in words if word in WORDS][-1]
    return value


@pytest.mark.parametrize(("make", "most"), [("one_two", 2), ("short", 1)])
def test_word_problems_have_their_steps_and_answers_in_disjoint_pools(monkeypatch, make, most):
    monkeypatch.syspath_prepend(ROOT)
    task = load(composed("experiment=llm", f"task.make=experiments.llm.task:{make}").task)
    train, test = ({p.question: p.gold for p in pool} for pool in (task.train, task.test))
    assert (len(train), len(test)) == (1024, 256) and not train.keys() & test.keys()
    for question, gold in [*train.items(), *test.items()]:
        assert 0 < in_words(question) == int(gold.rpartition("#### ")[2])
        assert question.count(". ") - 1 in range(1, most + 1)
        if make == "short":
            assert gold.isdecimal() and all(int(k) <= 9 for k in re.findall(r"\d+", question))


def test_a_start_policy_learns_from_problems_of_neither_set(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    made = importlib.import_module("experiments.llm.task")
    made.main(tmp_path / "corpus", 3)
    rows = [json.loads(line) for line in (tmp_path / "corpus" / "train.jsonl").open()]
    known = {question for pool in made.short() for question, _ in pool}
    assert len(rows) == 640 and not known & {row["prompt"][-1]["content"] for row in rows}
    for row in rows:
        assert int(row["completion"][0]["content"]) == in_words(row["prompt"][-1]["content"])
        assert row["prompt"][0]["role"] == "system"
