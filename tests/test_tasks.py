"""Chainsum: every verdict was worked out by hand."""

import pytest
from compose import composed
from rows import every

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


@pytest.mark.parametrize(
    ("completion", "verdict", "form"),
    [
        ("7+8=5;5-4=1;#1", "right", True),
        ("7+8=6;6-4=1;#1", "right", True),  # only the answer is graded
        ("#1", "right", False),
        ("7+8=5;5-4=1;#2", "wrong", True),
        ("7+8=5;5-4=1;#1#", "none", False),
        ("7+8=5;5-4=1;1", "none", False),
        ("", "none", False),
        ("#1\n", "none", False),
        ("7+8=5;" * 100_000, "none", False),
    ],
)
def test_only_a_right_digit_at_the_end_is_rewarded(completion, verdict, form):
    grade = chainsum.grade(completion, "1")
    assert grade == Grade(verdict, form, Parts(float(verdict == "right")))
    assert grade.correct == (verdict == "right") == bool(grade.reward)


def test_pools_are_numbered_disjoint_and_the_same_everywhere():
    task = chainsum.load(256, 256)
    train = {problem.messages[-1]["content"] for problem in task.train}
    test = {problem.messages[-1]["content"] for problem in task.test}
    assert len(train) == len(test) == 256 and not train & test
    assert task.test[0].id == "test-0000"
    assert chainsum.load(8, 256).test == task.test
    assert [p.messages[-1]["content"] for p in task.test[:2]] == ["1-3+1+7?", "6+3-9?"]


def test_examples_come_before_the_question():
    problem = chainsum.load(4, 4, few_shot=2).train[0]
    assert [m["role"] for m in problem.messages] == ["user", "assistant"] * 2 + ["user"]
    assert problem.messages[1]["content"] == chainsum.solve(problem.messages[0]["content"])


@pytest.mark.parametrize(
    ("completion", "right", "of"),
    [
        ("7+8=5;5-4=1;1+1=2;#2", 4, 4),
        ("7+8=6;6-4=2;2+1=3;#3", 3, 4),  # one slip, from which the others continue rightly
        ("7+8=6;5-4=1;1+1=2;#2", 2, 4),  # the second step does not continue from 6
        ("7+8=6;6-4=1;1+1=2;#2", 2, 4),  # two slips that cancel: the answer is right
        ("7+8=6;6-4=3;3+1=5;#4", 0, 4),
        ("7+8=5;5-4=1;1+1=2;#3", 3, 4),
        ("7+8=5;5-4=1;1+1=2;2", 3, 4),
        ("7+8=5;5-4=1", 2, 4),
        ("5-4=1;7+8=5;1+1=2;#2", 1, 4),  # in another order; the answer repeats the last step
        ("7+8=5;5-4=1;1+1=2;#2;#2", 4, 5),
        ("7+8=5;5-4=1;1+1=2;#2\n", 3, 4),
        ("#2", 0, 4),
        (";;;#", 0, 4),
        (";;;;#", 0, 5),
        ("", 0, 4),
        ("²;²-4=8", 0, 4),
        ("7+8=5;" * 1000, 1, 1001),
    ],
)
def test_a_chain_is_graded_by_the_share_of_its_steps_that_are_right(completion, right, of):
    problem = Problem("p", ({"role": "user", "content": "7+8-4+1?"},), "2")
    assert chainsum.graded(problem, completion) == right / of


def test_where_rewards_are_graded_accuracy_is_what_it_was():
    task = load(composed("task.reward=[correct*2,graded]", "task.train_size=4").task)
    assert task.own_reward is not None
    problem = Problem("p", ({"role": "user", "content": "7+8?"},), "5")
    for completion, verdict, reward in (("7+8=5;#5", "right", 3.0), ("7+8=4;#4", "wrong", 0.5),
                                        ("#5", "right", 2.0)):  # fmt: skip
        grade = task.train_grader.grade(completion, problem.gold)
        added = task.own_reward(grade, problem, completion)
        assert (added.verdict, added.reward) == (verdict, reward)
        assert added.correct == added.rewarded == (verdict == "right")
    assert load(composed("task.train_size=4").task).own_reward is None
