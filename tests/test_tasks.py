"""Chainsum, GSM8K and the grader: every verdict here was worked out by hand."""

import json
import os
import random
import re
import time
from fractions import Fraction
from pathlib import Path

import pytest
from compose import composed
from hypothesis import given
from hypothesis import strategies as st

from pods.tasks import chainsum, gsm8k
from pods.tasks.grading import form_score, grade, number, tag_score, well_formed
from pods.tasks.prompts import fitting, prompt_ids

GOOD = "<think>\n6 * 3\n</think>\n<answer>\n18\n</answer>"


@pytest.mark.parametrize("question", chainsum.questions(200, 100)[0])
def test_chainsum_solutions_are_right(question):
    total = eval(question[:-1]) % 10  # a chain of digits that this test made
    solution = chainsum.solve(question)
    assert solution.endswith(f"#{total}")
    assert chainsum.grade(solution, str(total)) == chainsum.Grade(1.0, True, True)


@pytest.mark.parametrize(
    ("completion", "correct", "form"),
    [
        ("7+8=5;5-4=1;#1", True, True),
        ("7+8=6;6-4=1;#1", True, True),  # only the answer is graded
        ("#1", True, False),
        ("7+8=5;5-4=1;#2", False, True),
        ("7+8=5;5-4=1;#1#", False, False),
        ("7+8=5;5-4=1;1", False, False),
        ("", False, False),
        ("#1\n", False, False),
        ("7+8=5;" * 100_000, False, False),
    ],
)
def test_chainsum_grades(completion, correct, form):
    assert chainsum.grade(completion, "1") == chainsum.Grade(float(correct), correct, form)


def test_chainsum_pools_are_numbered_disjoint_and_the_same_everywhere():
    task = chainsum.load(256, 256)
    train = {problem.messages[-1]["content"] for problem in task.train}
    test = {problem.messages[-1]["content"] for problem in task.test}
    assert len(train) == len(test) == 256 and not train & test
    assert task.test[0].id == "test-0000"
    assert chainsum.load(8, 256).test == task.test
    assert [p.messages[-1]["content"] for p in task.test[:2]] == ["1-3+1+7?", "6+3-9?"]


def test_chainsum_examples_come_before_the_question():
    problem = chainsum.load(4, 4, few_shot=2).train[0]
    assert [m["role"] for m in problem.messages] == ["user", "assistant"] * 2 + ["user"]
    assert problem.messages[1]["content"] == chainsum.solve(problem.messages[0]["content"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18), (" 18 ", 18), ("18.", 18), ("18.00", 18), ("+18", 18), ("-18", -18),
        ("\u221218", -18), ("$1,234", 1234), ("$1,234.50", Fraction(2469, 2)), ("-$5", -5),
        ("$-5", -5), ("50%", 50), (".5", Fraction(1, 2)), ("\uff11\uff18", 18),
        ("12 or 18", None), ("1 8", None), ("1,23", None), ("12,3456", None), ("", None),
        (".", None), ("--18", None), ("-$-5", None), ("1e3", None), ("0x12", None),
        ("18" * 100, None), ("eighteen", None), ("1_8", None), ("nan", None), ("inf", None),
    ],
)  # fmt: skip
def test_number(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    ("completion", "correct"),
    [
        (GOOD, True),
        ("<answer>18</answer>", True),
        ("18", False),
        ("<answer>7</answer> 18", False),
        ("<answer>18", False),
        ("</answer>18<answer>", False),
        ("<answer>7</answer><answer>18</answer>", False),
        ("<answer>-18</answer>", False),
        ("<answer>17.99999999</answer>", False),
        ("<think><answer>18</think>", False),
        ("\ud800<answer>18</answer>", True),
    ],
)
def test_grade_takes_the_only_answer_and_compares_exactly(completion, correct):
    assert grade(completion, "18", "none").correct is correct


@pytest.mark.parametrize(
    ("format_reward", "right", "wrong", "bare"),
    [("additive", 1.2, 0.2, 1.05), ("when_wrong", 1.0, 0.2, 1.0), ("none", 1.0, 0.0, 1.0)],
)
def test_reward_forms(format_reward, right, wrong, bare):
    # bare has no think block: no form, two of four tags
    assert grade(GOOD, "18", format_reward).reward == pytest.approx(right)
    assert grade(GOOD, "19", format_reward).reward == pytest.approx(wrong)
    assert grade("<answer>18</answer>", "18", format_reward).reward == pytest.approx(bare)


def test_form_scores_equal_the_authors_regular_expressions():
    whole = re.compile(r"^[ \n]?<think>.*</think>[ \n]?<answer>.*</answer>[ \n]?$", re.S)
    inside = re.compile(r"<think>.*</think>[ \n]?<answer>.*</answer>", re.S)
    rng = random.Random(0)
    parts = ["<think>", "</think>", "<answer>", "</answer>", " ", "\n", "x"]
    for _ in range(20_000):
        text = "".join(rng.choices(parts, k=rng.randint(0, 9)))
        match = inside.search(text)
        outside = len(text) - len(match[0]) if match else 100
        assert well_formed(text) == bool(whole.match(text)), text
        assert form_score(text) == pytest.approx(max(0.0, 1 - 0.01 * outside)), text


@pytest.mark.parametrize(
    "piece", ["<think>", "</think><answer>", "9", "<answer>", " \n", "\\boxed{"]
)
def test_grading_is_linear_in_length(piece):
    start = time.perf_counter()
    grade(piece * (400_000 // len(piece)), "18", "additive")
    assert time.perf_counter() - start < 1.0  # the authors' expressions take minutes on some


@given(st.text(alphabet="<think>/answer0123456789.,-$% \n\u2212", max_size=200))
def test_grading_never_raises(text):
    assert grade(text, "18", "additive").reward <= 1.2
    assert 0 <= tag_score(text) <= 1


def jsonl(folder: Path, split: str, rows: list[dict]) -> None:
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


ROWS = [{"question": f"What is {i} thousand?", "answer": f"It is <<{i}*1000=0>>so.\n#### {i},000"}
        for i in range(1, 6)]  # fmt: skip


def gsm8k_config(folder: Path, *overrides: str):
    for split in ("train", "test"):
        jsonl(folder, split, ROWS)
    (folder / "config.json").write_text("{}")
    return composed("task=gsm8k", f"task.path={folder}", f"model.path={folder}", *overrides).task


def test_gsm8k_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    task = gsm8k.load(gsm8k_config(tmp_path, "task.few_shot=2", "task.train_size=2"))
    assert [problem.gold for problem in task.train] == ["3000", "4000"]
    assert [problem.id for problem in task.train] == ["train-00002", "train-00003"]
    assert len(task.test) == 5
    roles = [message["role"] for message in task.test[0].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    example = task.test[0].messages[2]["content"]
    assert example == "<think>\nIt is so.\n</think>\n<answer>\n1,000\n</answer>"
    assert task.grade(example, "1000").correct and task.grade(example, "1000").format


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "answer": "no number"}, "row 6: the answer lacks"),
        ({"question": "q", "answer": "#### many"}, "row 6: the answer lacks"),
        ({"question": None, "answer": "#### 1"}, "row 6: needs texts"),
    ],
)
def test_malformed_rows_are_named(tmp_path, row, message):
    config = gsm8k_config(tmp_path)
    jsonl(tmp_path, "test", [*ROWS, row])
    with pytest.raises(ValueError, match=message):
        gsm8k.load(config)


def test_prompts_that_are_too_long_or_unknown_to_the_tokenizer():
    from pods.policy.load import load

    tokenizer = load(composed()).tokenizer
    task = chainsum.load(50, 50)
    kept, ids = fitting(task.train, tokenizer, 8)
    assert 0 < len(kept) < 50 and all(len(i) <= 8 for i in ids)
    assert tokenizer.decode(ids[0]) == kept[0].messages[-1]["content"]
    letters = chainsum.Problem("x", ({"role": "user", "content": "two?"},), "2")
    with pytest.raises(ValueError, match="lacks characters of problem x"):
        prompt_ids(letters, tokenizer)


@pytest.mark.realdata
def test_real_gsm8k_loads_and_every_gold_is_accepted_in_the_papers_form():
    folder = Path(os.environ["PODS_REALDATA"]) / "gsm8k"
    task = gsm8k.load(composed("task=gsm8k", f"task.path={folder}", "model=smollm2_135m").task)
    assert (len(task.train), len(task.test)) == (7473 - 2, 1319)
    for problem in task.train + task.test:
        assert task.grade(
            f"<think>\nx\n</think>\n<answer>\n{problem.gold}\n</answer>", problem.gold
        ).correct
        assert not task.grade(f"<answer>{problem.gold}1</answer>", problem.gold).correct
