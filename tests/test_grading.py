"""Answers in completions, and the form around them: every verdict was worked out by hand."""

import dataclasses
import json
import os
import random
import re
import time
from functools import cache
from pathlib import Path

import needs
import pytest
from compose import composed
from hypothesis import given
from hypothesis import strategies as st
from test_math_numbers import NUMBERS

from pods.tasks.grading.answers import (
    closed_answer,
    form_score,
    strict_form,
    strict_tag_score,
    tag_score,
    well_formed,
)
from pods.tasks.grading.lenient import lenient
from pods.tasks.rewards import number_grader, punish_overlong
from pods.types import Parts

GOOD = "<think>\n6 * 3\n</think>\n<answer>\n18\n</answer>"
FORMATS = {
    "tag": "<think>\nx\n</think>\n<answer>\n{}\n</answer>",
    "hash": "x\n#### {}",
    "boxed": "So it is $\\boxed{{{}}}$.",
}


@cache
def gsm8k():
    return composed("task=gsm8k", "model=qwen2_5_0_5b").task


def task(**changes):
    return dataclasses.replace(gsm8k(), **changes)


def grade(completion: str, gold: str, **changes):
    return number_grader(task(**changes)).grade(completion, gold)


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (GOOD, "\n18\n"),
        ("<answer>18</answer>", "18"),
        ("<think>x</think> <answer>18</answer> or 7", "18"),
        ("18", None),
        ("", None),
        ("<answer>18", None),
        ("18</answer>", None),
        ("</answer>18<answer>", None),
        ("<answer>7</answer><answer>18</answer>", None),
        ("<answer>18</answer></answer>", None),
        ("<think><answer>18</answer></think>", None),  # a thought is no answer
        ("<think><answer>7</answer></think><answer>18</answer>", "18"),
        ("<think>in <answer></answer> tags</think><answer>18</answer>", "18"),
        ("<think>x</think><answer>7</answer></think><answer>18</answer>", None),
        ("<think>maybe <answer>18</answer> no, it is 7", None),
        ("</think><think>try <answer>18</answer>", None),
        ("\ud800<answer>18</answer>", "18"),
    ],
)
def test_the_only_answer_in_tags(completion, answer):
    assert closed_answer(completion, "tag") == answer


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("6 * 3\n#### 18", " 18"),
        ("6 * 3\n####18\nDone.", "18"),
        ("<think>#### 7</think>\n#### 18", " 18"),
        ("#### 7\n#### 18", None),
        ("<think>#### 18", None),
        ("<think>#### 18</think>", None),
        ("18", None),
        ("### 18", None),
        ("#### ", " "),
    ],
)
def test_the_only_answer_behind_hashes(completion, answer):
    assert closed_answer(completion, "hash") == answer


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("It is \\boxed{18}.", "18"),
        ("It is \\boxed {18}.", "18"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{\\boxed{18}}", "\\boxed{18}"),
        ("<think>\\boxed{7}</think> \\boxed{18}", "18"),  # R1
        ("\\boxed{7}</think> \\boxed{18}", "18"),  # its prompt has begun to think
        ("<think>\\boxed{18}</think>", None),
        ("<think>\\boxed{18}", None),
        ("\\boxed{7} or \\boxed{18}", None),
        ("\\boxed{18} and \\boxed{", None),
        ("\\boxed{18", None),
        ("\\boxed{\\}", None),
        ("\\boxed 18", None),
        ("\\boxed{\\boxed{18}", None),
        ("-\\boxed{18}", None),  # what it touches makes another number of it
        ("2\\boxed{18}", None),
        ("\\frac{\\boxed{18}}{2}", None),
        ("\\boxed{18}^2", None),
        ("\\boxed{18}/2", None),
        ("\\boxed{18},000", None),
        ("\\boxed{18}.5", None),
        ("\\boxed{18} thousand", None),
        ("x = \\boxed{18}, as asked", "18"),
        ("\\boxed{18}^\\circ", "18"),
        ("\\boxed{18}\n\n2. Check", "18"),
        ("18", None),
    ],
)
def test_the_only_answer_in_a_box(completion, answer):
    assert closed_answer(completion, "boxed") == answer


@pytest.mark.parametrize(
    ("format_reward", "right", "wrong", "bare"),
    [
        ("additive", (1, 0.1, 0.1), (0, 0.1, 0.1), (1, 0, 0.05)),
        ("when_wrong", (1, 0, 0), (0, 0.1, 0.1), (1, 0, 0)),
        ("open_r1", (1, 1, 1), (0, 1, 1), (1, 0, 0)),
        ("none", (1, 0, 0), (0, 0, 0), (1, 0, 0)),
    ],
)
def test_the_parts_of_each_reward(format_reward, right, wrong, bare):
    # bare has no think block: not the form, and two of four tags, none on a line of its own
    def parts(completion, gold):
        graded = grade(completion, gold, format_reward=format_reward)
        assert graded.reward == pytest.approx(sum(graded.parts)) and graded.parts.overlong == 0
        return graded.parts[:3]

    assert parts(GOOD, "18") == pytest.approx(right)
    assert parts(GOOD, "19") == pytest.approx(wrong)
    assert parts("<answer>18</answer>", "18") == pytest.approx(bare)


@pytest.mark.parametrize(
    ("length", "loses"), [(1, 0), (16_384, 0), (17_408, 0.25), (18_432, 0.5), (20_480, 1)]
)
def test_a_completion_that_is_almost_too_long_loses_what_dapo_says(length, loses):
    """arXiv:2503.14476, section 3.4: 16,384 tokens are free, and the next 4,096 are punished."""
    graded = grade(GOOD, "18", format_reward="none")
    buffer = task(overlong_tokens=4096, overlong_penalty=1.0)
    punished = punish_overlong(buffer, graded, length, limit=20_480)
    assert punished == dataclasses.replace(graded, parts=Parts(1.0, overlong=-loses))
    assert punished.reward == 1 - loses and punished.rewarded
    third = dataclasses.replace(buffer, overlong_penalty=0.3)
    assert punish_overlong(third, graded, length, 20_480).reward == pytest.approx(1 - 0.3 * loses)
    assert punish_overlong(task(), graded, length, 20_480) is graded


LATEX = [  # whether open-r1's reward accepts it for 18: it wants LaTeX, in a box or after "answer"
    (GOOD, False),
    ("18", False),
    ("It is 18, [18], or so.", False),
    ("so $18$", False),
    ("<answer>$18</answer>", False),
    ("\\boxed{17}", False),
    ("\\boxed{18}, no, \\boxed{17}", False),
    ("\\boxed{18}", True),
    ("so $\\boxed{18}$ apples", True),
    ("the answer is $18$.", True),
    ("<answer>\n\\(18\\)\n</answer>", True),
    ("<answer>\\frac{36}{2}</answer>", True),
    ("answer: $x=18$", True),
    ("\\boxed{18 \\text{ apples}}", True),
]


@cache
def latex_grader():
    needs.module("math_verify")
    return number_grader(task(grader="latex", format_reward="none", workers=1))


@pytest.mark.parametrize(("completion", "right"), LATEX)
def test_only_latex_is_rewarded_by_the_verdict_of_the_runs_on_eight_gpus(completion, right):
    grader = latex_grader()
    graded = grader.grade(completion, "18")
    assert (graded.reward, graded.rewarded) == (float(right), right)
    assert graded.verdict == grade(completion, "18").verdict  # ours stays in the record
    assert grader.lenient(completion, "18") is right


def test_the_latex_verdict_never_raises_and_ends():
    grade_one = latex_grader().grade
    for text in ("answer $" + "{" * 3000, "\\boxed{" * 500, "answer $9^{9^{9^{9}}}$", "$" * 200_000,
                 "answer $\\int_0^1 x$", "\\boxed{\ud800}", ""):  # fmt: skip
        assert grade_one(text, "18").reward == 0


def test_two_texts_that_are_not_numbers_are_not_equal():
    assert grade("<answer>zoo</answer>", "many").verdict == "wrong"


def test_open_r1_rewards_the_form_and_the_tags_separately():
    # the thought does not end with a line break: not the form, and one of four tags is missing
    graded = grade("<think>\nx</think>\n<answer>\n18\n</answer>", "18", format_reward="open_r1")
    assert graded.parts == Parts(correct=1.0, format=0.0, tags=0.75)


@pytest.mark.parametrize(
    ("completion", "answer_format", "formatted", "score", "tags"),
    [
        ("6 * 3\n#### 18", "hash", True, 1, 1),
        ("6 * 3\n#### 18\n", "hash", True, 1, 1),
        ("#### 18\nI hope so", "hash", False, 0.91, 1),
        ("#### 7\n#### 18", "hash", False, 0, 0),
        ("It is $\\boxed{18}$.", "boxed", True, 1, 1),
        ("\\[ \\boxed{18} \\]\n", "boxed", True, 1, 1),
        ("\\boxed{18}, I hope so", "boxed", False, 0.89, 1),
        ("\\boxed{7} \\boxed{18}", "boxed", False, 0, 0),
        ("18", "boxed", False, 0, 0),
        (f"{GOOD} ok", "tag", False, 0.97, 1),
        (GOOD[7:], "tag", False, 0, 0.75),
    ],
)
def test_form_and_tag_scores(completion, answer_format, formatted, score, tags):
    assert well_formed(completion, answer_format) == formatted
    assert form_score(completion, answer_format) == pytest.approx(score)
    assert tag_score(completion, answer_format) == tags


def test_form_scores_equal_the_authors_regular_expressions():
    whole = re.compile(r"^[ \n]?<think>.*</think>[ \n]?<answer>.*</answer>[ \n]?$", re.S)
    inside = re.compile(r"<think>.*</think>[ \n]?<answer>.*</answer>", re.S)
    strict = re.compile(r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", re.S | re.M)
    rng = random.Random(0)
    parts = ["<think>", "</think>", "<answer>", "</answer>", " ", "\n", "\n", "x"]
    seen = set()
    for _ in range(20_000):
        text = "".join(rng.choices(parts, k=rng.randint(0, 9)))
        if rng.random() < 0.3:
            end = rng.choice(["", text[:1], f"\n{text}"])
            text = f"<think>\n{text}\n</think>\n<answer>\n{text[::-1]}\n</answer>{end}"
        match = inside.search(text)
        outside = len(text) - len(match[0]) if match else 100
        assert well_formed(text, "tag") == bool(whole.match(text)), text
        assert form_score(text, "tag") == pytest.approx(max(0.0, 1 - 0.01 * outside)), text
        assert strict_form(text) == bool(strict.match(text)), text
        seen.add((well_formed(text, "tag"), strict_form(text)))
    assert len(seen) == 4
    assert strict_tag_score(GOOD) == 1 and strict_tag_score(GOOD[:-9]) == 0.75


TAGGED = "<think>x</think><answer>{}</answer>"
LENIENT = [  # completion, gold, right at release, right later
    (TAGGED.format("7") + " 18", "18", True, True),  # the last number
    (TAGGED.format("12 or 18"), "18", True, True),
    (TAGGED.format("15 16 17 18"), "18", True, True),
    ("".join(f"<answer>{i}</answer>" for i in range(19)), "18", True, True),
    (TAGGED.format("-18"), "18", True, True),  # the sign is lost
    (TAGGED.format("-18"), "-18", True, True),
    (TAGGED.format("1 8"), "18", True, True),
    (TAGGED.format("1\n8"), "18", True, True),
    (TAGGED.format("1{}8"), "18", True, True),
    (TAGGED.format("1_8"), "18", True, True),  # what Python's float reads
    (TAGGED.format("17.99999999"), "18", True, True),
    (TAGGED.format("0." + "9" * 20), "1", True, True),
    ("<answer>18", "18", True, True),
    ("The answer is 18 dollars.", "18", True, False),  # later the last number is `.`
    (TAGGED.format("\u221218"), "-18", False, False),
    (TAGGED.format("1,234"), "1234", True, True),
    ("so 1,234 it is", "1234", False, True),  # at release the last number is 234
    ("so 1,234 it is", "234", True, False),
    (TAGGED.format("\\boxed{1,234}"), "1234", True, True),
    (TAGGED.format("x=18 hours"), "18", True, True),
    (TAGGED.format("18 \\text{ dollars}"), "18", True, True),
    (TAGGED.format("$18.00"), "18", True, True),
    (TAGGED.format("18.5"), "18", False, False),
    ("none", "-1", True, True),  # no number counts as -1
    ("none", "18", False, False),
]


@pytest.mark.parametrize(("completion", "gold", "release", "later"), LENIENT)
def test_the_lenient_grader_accepts_what_the_authors_code_accepts(completion, gold, release, later):
    assert lenient(completion, gold, "release") == release
    assert lenient(completion, gold, "later") == later


def test_the_lenient_verdict_may_decide_the_reward_and_the_record_keeps_ours():
    loose = TAGGED.format("12 or 18")
    for grader, reward in (("exact", 0.0), ("lenient", 1.0)):
        graded = grade(loose, "18", grader=grader, format_reward="none")
        assert (graded.verdict, graded.correct, graded.reward) == ("wrong", False, reward)
    for era, accepted in (("release", True), ("later", False)):
        grader = number_grader(task(lenient=era))
        assert grader.lenient("The answer is 18 dollars.", "18") == accepted


@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think><answer>", "9", "<answer>", " \n", "\\boxed{", "#### 1\n", "{", "1,", "1 ",
     "\\\\", "- ", "a", "\n</answer>x"],
)  # fmt: skip
@pytest.mark.parametrize("answer_format", FORMATS)
def test_grading_is_linear_in_length(piece, answer_format):
    text = piece * (300_000 // len(piece))
    for completion in (text, FORMATS[answer_format].format(text)):
        start = time.thread_time()
        grade(completion, "18", answer_format=answer_format)
        lenient(completion, "18", "later")
        assert time.thread_time() - start < 0.2  # the authors' expressions take minutes on some


@given(st.text(alphabet="<think>/answer0123456789.,-$% \n\u2212#\\boxed{}", max_size=200))
def test_grading_never_raises(text):
    for answer_format, form in FORMATS.items():
        for completion in (text, form.format(text)):
            graded = grade(completion, "18", answer_format=answer_format)
            assert 0 <= graded.reward <= 1.2
    lenient(text, "18", "release")


SEEDS = [text for texts in NUMBERS.values() for text in texts] + [row[0] for row in LENIENT]
ALPHABET = (
    "0189.,-+eE$%{}\\ \n\t#<>/=:?!()[]^_*'\"abx\x00\u00b2\u00bd\u2212\u202e\uff11\ud800\U0001d7cf"
)


def mutated(rng: random.Random) -> str:
    """Return one of the texts in one of the forms, with up to 12 edits."""
    text = rng.choice(SEEDS)
    text = rng.choice(list(FORMATS.values())).format(text) if rng.random() < 0.7 else text
    for _ in range(rng.randint(0, 12)):
        i = rng.randint(0, len(text))
        j = min(len(text), i + rng.randint(0, 8))
        kind = rng.randint(0, 4)
        if kind == 0:
            text = text[:i] + rng.choice(ALPHABET) + text[i:]
        elif kind == 1:
            text = text[:i] + text[j:]
        elif kind == 2:
            text = text[:i] + text[i:j] * rng.randint(2, 60) + text[j:]
        elif kind == 3:
            text = text[:i] + rng.choice(SEEDS) + text[j:]
        else:
            text = text[:i] + text[i:j][::-1] + text[j:]
    return text


def slowest_of(count: int, seed: int) -> float:
    """Grade mutated texts in every form; return the largest CPU time of one, in seconds."""
    rng, slowest = random.Random(seed), 0.0
    graders = [number_grader(task(answer_format=name)).grade for name in FORMATS]
    for i in range(count):
        text = mutated(rng)
        start = time.thread_time()
        verdict = graders[i % 3](text, "18").verdict
        lenient(text, "18", ("release", "later")[i % 2])
        slowest = max(slowest, time.thread_time() - start)
        assert verdict in ("right", "wrong", "none"), text
    return slowest


def test_mutated_texts_raise_nothing_and_take_no_time():
    assert slowest_of(5_000, seed=0) < 0.1


@pytest.mark.slow
def test_a_million_mutated_texts_raise_nothing_and_take_no_time():
    assert slowest_of(1_000_000, seed=1) < 0.1


def surfaces(gold: int) -> list[str]:
    """Return a gold in the forms in which models write it."""
    return [
        f"{gold}",
        f"{gold:,}",
        f"{gold}.",
        f"{gold}.00",
        f"${gold:,}",
        f"{gold}%",
        f"{gold} dollars",
        f"x = {gold}",
        f"\\boxed{{{gold}}}",
        f"**{gold}**",
        f"The answer is {gold}.",
        str(gold).replace("-", "\u2212"),
    ]


def neighbours(gold: int) -> set[int]:
    """Return wrong answers that are near."""
    digits = str(abs(gold))
    swapped = {
        int(digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :])
        for i in range(len(digits) - 1)
    }
    return {gold + 1, gold - 1, -gold, 10 * gold, *swapped} - {gold}


@pytest.mark.parametrize("answer_format", FORMATS)
@pytest.mark.parametrize("gold", [0, 7, 18, -10, 1234, 109_200_000])
def test_golds_are_accepted_in_every_surface_form_and_neighbours_are_not(gold, answer_format):
    check_surfaces(gold, answer_format)


def check_surfaces(gold: int, answer_format: str) -> None:
    grader, form = number_grader(task(answer_format=answer_format)), FORMATS[answer_format]
    for number in {gold, *neighbours(gold)}:
        for text in surfaces(number):
            grade = grader.grade(form.format(text), str(gold))
            assert grade.correct == (number == gold), (text, gold)


@pytest.mark.realdata
def test_every_gold_of_gsm8k_is_accepted_in_every_surface_form_and_its_neighbours_are_not():
    folder, count = Path(os.environ["PODS_REALDATA"]) / "gsm8k", 0
    for split in ("train", "test"):
        for line in (folder / f"{split}.jsonl").read_text().splitlines():
            gold = json.loads(line)["answer"].rpartition("####")[2].strip().replace(",", "")
            check_surfaces(int(gold), list(FORMATS)[count % 3])
            count += 1
    assert count == 7473 + 1319
