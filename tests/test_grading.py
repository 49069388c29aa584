"""Answers in completions, and the form around them: every verdict was worked out by hand."""

import dataclasses
import itertools
import json
import os
import random
import re
import resource
import time
from fractions import Fraction
from functools import partial
from pathlib import Path

import needs
import pytest
from compose import composed
from data_files import config
from rows import every, table

from mathgrade import number
from pods.tasks import answers
from pods.tasks.answers import MARKS, STRICT_MARKS, form_score, mark_score, strict_form, well_formed
from pods.tasks.lenient import lenient
from pods.tasks.rewards import math_grader, number_grader, punish_overlong
from pods.types import Parts

NUMBERS: dict[Fraction | None, list[str]] = {  # what a file cannot show well; it has the others
    Fraction(18): [" 18 ", "#### 18", "### 18"], Fraction(1234): ["1\u202f234", "1\u00a0234"],
    None: ["", " ", "1\n8", "1\u200b8", "18\x00", "\u202e81", "18\u200b", "18\x1f", "\x0b18",
           "18\x85", "18" * 100, "9" * 65, "0." + "9" * 65, "18 " + "a" * 190 + "!",
           "x " * 90 + "(18"]}  # fmt: skip
for line in (Path(__file__).parent / "tables/number_answers.tsv").read_text().splitlines()[1:]:
    value, text = line.split("\t")
    NUMBERS.setdefault(None if value == "none" else Fraction(value), []).append(text)


def test_a_number_is_read_in_its_surface_forms_and_nothing_else_is_a_number():
    def check(text, value):
        assert number(text) == value
        assert number(f"\n{text}\n") == value

    every(((text, value) for value, texts in NUMBERS.items() for text in texts), check)


GOOD = "<think>\n6 * 3\n</think>\n<answer>\n18\n</answer>"
FORMATS = {
    "tag": "<think>\nx\n</think>\n<answer>\n{}\n</answer>",
    "hash": "x\n#### {}",
    "boxed": "So it is $\\boxed{{{}}}$.",
}


task = partial(config, None, format_reward="additive")


def grade(completion: str, gold: str, **changes):
    return number_grader(task(**changes)).grade(completion, gold)


def test_the_only_answer_of_a_completion():
    def check(form, completion, answer):
        assert answers.closed_answer(completion, form) == answer

    every(table("answers"), check)


@pytest.mark.parametrize(
    ("format_reward", "right", "wrong", "bare"),
    [("additive", (1, 0.1, 0.1), (0, 0.1, 0.1), (1, 0, 0.05)),
     ("when_wrong", (1, 0, 0), (0, 0.1, 0.1), (1, 0, 0)),
     ("open_r1", (1, 1, 1), (0, 1, 1), (1, 0, 0)), ("none", (1, 0, 0), (0, 0, 0), (1, 0, 0))],
)  # fmt: skip
def test_the_parts_of_each_reward(format_reward, right, wrong, bare):
    # bare has no think block: not the form, and two of four tags, none on a line of its own
    def parts(completion, gold):
        graded = grade(completion, gold, format_reward=format_reward)
        assert graded.reward == pytest.approx(sum(graded.parts)) and graded.parts.overlong == 0
        return graded.parts[:3]

    assert parts(GOOD, "18") == pytest.approx(right)
    assert parts(GOOD, "19") == pytest.approx(wrong)
    assert parts("<answer>18</answer>", "18") == pytest.approx(bare)
    if format_reward == "open_r1":  # no line break ends the thought: one of four tags is missing
        assert parts("<think>\nx</think>\n<answer>\n18\n</answer>", "18") == (1.0, 0.0, 0.75)


@pytest.mark.parametrize(
    ("length", "loses"), [(1, 0), (16_384, 0), (17_408, 0.125), (18_432, 0.25), (20_480, 0.5)]
)
def test_a_completion_that_is_almost_too_long_loses_what_dapo_says(length, loses):
    """arXiv:2503.14476, section 3.4: 16,384 tokens are free, the next 4,096 cost up to half."""
    graded = grade(GOOD, "18", format_reward="none")
    buffer = task(overlong_tokens=4096)
    punished = punish_overlong(buffer, graded, length, limit=20_480)
    assert punished == dataclasses.replace(graded, parts=Parts(1.0, overlong=-loses))
    assert punished.reward == 1 - loses and punished.rewarded
    assert punish_overlong(task(), graded, length, 20_480) is graded


def test_only_latex_is_rewarded_by_the_verdict_of_the_runs_on_eight_gpus():
    needs.module("math_verify")
    grader = number_grader(task(grader="latex", format_reward="none"))

    def check(completion, right):
        graded = grader.grade(completion, "18")
        assert (graded.reward, graded.rewarded) == (float(right), right)
        assert graded.verdict == grade(completion, "18").verdict  # ours stays in the record
        assert grader.lenient(completion, "18") is right

    every(table("latex_rewards"), check)
    for text in ("answer $" + "{" * 3000, "\\boxed{" * 500, "answer $9^{9^{9^{9}}}$", "$" * 200_000,
                 "answer $\\int_0^1 x$", "\\boxed{\ud800}", ""):  # fmt: skip
        assert grader.grade(text, "18").reward == 0  # it never raises, and ends


def test_form_and_tag_scores():
    def check(completion, answer_format, formatted, score, tags):
        assert well_formed(completion, answer_format) == formatted
        assert form_score(completion, answer_format) == pytest.approx(score)
        assert mark_score(completion, MARKS[answer_format]) == tags

    every(table("forms"), check)


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
    scores = [mark_score(text, STRICT_MARKS) for text in (GOOD, GOOD[:-9])]
    assert scores == [1, 0.75]


LENIENT = table("lenient")


def test_the_lenient_grader_accepts_what_the_authors_code_accepts():
    def check(completion, gold, release, later):
        assert lenient(completion, gold, "release") == release
        assert lenient(completion, gold, "later") == later

    every(LENIENT, check)
    # it may decide the reward, and the record keeps ours
    for grader, reward in (("exact", 0.0), ("lenient", 1.0)):
        graded = grade("<answer>12 or 18</answer>", "18", grader=grader, format_reward="none")
        assert (graded.verdict, graded.correct, graded.reward) == ("wrong", False, reward)
    for era, accepted in (("release", True), ("later", False)):
        grader = number_grader(task(lenient=era))
        assert grader.lenient("The answer is 18 dollars.", "18") == accepted
    assert grade("<answer>zoo</answer>", "many").verdict == "wrong"  # two texts, no numbers


PIECES = ("<think>", "</think><answer>", "9", "<answer>", " \n", "\\boxed{", "#### 1\n", "{", "1,",
          "1 ", "\\\\", "- ", "a", "\n</answer>x")  # fmt: skip


def test_grading_is_linear_in_length():
    def check(piece, answer_format):
        text = piece * (300_000 // len(piece))
        for completion in (text, FORMATS[answer_format].format(text)):
            start = time.thread_time()
            grade(completion, "18", answer_format=answer_format)
            lenient(completion, "18", "later")
            assert time.thread_time() - start < 0.2  # the authors' expressions take minutes

    every(itertools.product(PIECES, FORMATS), check)


SEEDS = [text for texts in NUMBERS.values() for text in texts] + [row[0] for row in LENIENT]
ALPHABET = (
    "0189.,-+eE$%{}\\ \n\t#<>/=:?!()[]^_*'\"abx\x00\u00b2\u00bd\u2212\u202e\uff11\ud800\U0001d7cf"
)


def test_random_texts_raise_nothing_and_take_no_time():
    rng = random.Random(0)
    graders = [number_grader(task(answer_format=name)).grade for name in FORMATS]
    for i in range(5_000):
        parts = rng.choices([*SEEDS, *ALPHABET, *PIECES], k=rng.randint(1, 9))
        text = rng.choice([*FORMATS.values(), "{}"]).format("".join(parts))
        start = time.thread_time()
        graded = graders[i % 3](text, "18")
        lenient(text, "18", ("release", "later")[i % 2])
        assert time.thread_time() - start < 0.1, text
        assert graded.verdict in ("right", "wrong", "none") and -0.1 < graded.reward < 1.21, text


def surfaces(gold: int) -> list[str]:
    """Return a gold in the forms in which models write it."""
    forms = "{0}|{0:,}|{0}.|{0}.00|${0:,}|{0}%|{0} dollars|x = {0}|\\boxed{{{0}}}|**{0}**"
    texts = [form.format(gold) for form in forms.split("|")]
    return [*texts, f"The answer is {gold}.", str(gold).replace("-", "\u2212")]


def neighbours(gold: int) -> set[int]:
    """Return wrong answers that are near."""
    digits = str(abs(gold))
    swapped = {
        int(digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :])
        for i in range(len(digits) - 1)
    }
    return {gold + 1, gold - 1, -gold, 10 * gold, *swapped} - {gold}


def test_golds_are_accepted_in_every_surface_form_and_neighbours_are_not():
    every(itertools.product([0, 7, 18, -10, 1234, 109_200_000], FORMATS), check_surfaces)


def check_surfaces(gold: int, answer_format: str) -> None:
    grader, form = number_grader(task(answer_format=answer_format)), FORMATS[answer_format]
    for near in {gold, *neighbours(gold)}:
        for text in surfaces(near):
            grade = grader.grade(form.format(text), str(gold))
            assert grade.correct == (near == gold), (text, gold)


@pytest.mark.realdata
def test_every_gold_of_gsm8k_is_accepted_in_every_surface_form_and_its_neighbours_are_not():
    folder, count = Path(os.environ["PODS_REALDATA"]) / "gsm8k", 0
    checked = set()
    for split in ("train", "test"):
        for line in (folder / f"{split}.jsonl").read_text().splitlines():
            gold = json.loads(line)["answer"].rpartition("####")[2].strip().replace(",", "")
            checked.add((int(gold), list(FORMATS)[count % 3]))
            count += 1
    for gold, answer_format in sorted(checked):
        check_surfaces(gold, answer_format)
    assert count == 7473 + 1319


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.realdata
def test_no_settled_answer_is_graded_wrong_slow_large_or_executed(tmp_path, monkeypatch):
    path = Path(os.environ["PODS_REALDATA"]) / "adversarial_answers.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    monkeypatch.chdir(tmp_path)
    math = composed("task=math", "model=qwen2_5_0_5b").task
    graders = {
        form: (math_grader(dataclasses.replace(math, answer_format=form)).grade,
               number_grader(task(answer_format=form)).grade)
        for form in FORMATS}  # fmt: skip
    for grade, _ in graders.values():  # start the workers
        grade("\\boxed{\\sqrt{8}}<answer>\\sqrt{8}</answer>", "2\\sqrt{2}")
    before, errors = peak(), []
    for row in rows:
        numeric = number(row["gold"]) is not None
        own = "tag" if "<answer>" in row["text"] else "boxed"
        for form in FORMATS:
            wall, cpu = time.perf_counter(), time.thread_time()
            verdict = graders[form][numeric](row["text"], row["gold"]).verdict
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            assert (cpu < 0.1) if numeric else (wall < 30), (row["id"], form, wall, cpu)
            right = verdict == "right"
            missed = row["expected"] and form == own and not right
            if not row["debatable"] and (missed or (right and not row["expected"])):
                errors.append((row["id"], form, verdict, row["why"]))
        lenient(row["text"], row["gold"], "release")
    assert rows and not errors
    assert peak() - before < 512
    assert not list(tmp_path.iterdir())
