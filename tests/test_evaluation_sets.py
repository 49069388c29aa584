"""Training on one data set and evaluating on another: prompts, grades, and what a run holds to."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compose import composed
from test_data import config, problem, row, write

from pods.evaluate import EvalRecord, already_done, evaluate, questions
from pods.randomness import evaluation_seed
from pods.records import Rollout, Sampling
from pods.runs.frozen import Changed, check_unchanged, freeze
from pods.tasks import amc23
from pods.tasks.load import load

HALF = {"problem": "What is 2 / 4?", "solution": "", "answer": r"\frac{1}{2}"}
SIX = {"question": "What is 2 * 3?", "answer": 6.0, "url": "x"}


def lines(folder: Path, *rows: dict, name: str = "other.jsonl") -> str:
    """A file of these rows."""
    place = folder / name
    place.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(place)


@pytest.fixture
def folder(tmp_path):
    """GSM8K, of three train rows and a test row."""
    return write(tmp_path, [row(1), row(2), row(3)], [row(9, "test")])


def answered(text: str) -> Rollout:
    return Rollout((1,), (2,), np.zeros(1, np.float32), text, True)


class Script:
    """An engine that says what it was told to."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def generate(self, prompts, n, sampling, seeds, ready=None):
        if ready is not None:
            for place, text in enumerate(self.texts):
                ready(place, text)
        return [[answered(text)] for _, text in zip(prompts, self.texts, strict=True)]


def records(task, *texts):
    """What an evaluation of one pass writes where these are the answers."""
    asked = composed("evaluation.repeats=1")
    prompts = [(1,)] * len(task.test)
    [chunk] = evaluate(asked, task, prompts, Script(*texts), step=0, done=0)
    rows = [{name: getattr(one, name) for name in one.__slots__} for one in chunk]
    assert already_done(asked, task, 0, rows) == len(rows)
    return chunk


def test_a_record_is_what_was_answered_as_the_evaluation_asks(folder):
    """Two repeats of one question: seeds of their own, and nothing of how the run samples."""
    task, calls = load(config(folder)), []

    class Cut(Script):
        def generate(self, prompts, n, sampling, seeds, ready=None):
            calls.append((list(prompts), n, sampling, seeds))
            text = "<answer>9,000</answer>"  # right, without the thought that the form wants
            return [[Rollout((1, 2, 3), (4, 5), np.zeros(2, np.float32), text, False)]] * 2

    asked = composed("seed=3", "evaluation.repeats=2", "evaluation.temperature=0.25",
                     "sampling.max_completion_tokens=17")  # fmt: skip
    [chunk] = evaluate(asked, task, [(1, 2, 3)], Cut(), step=7, done=0)
    seeds = [evaluation_seed(3, 7, repeat, 0) for repeat in (0, 1)]
    assert calls == [([(1, 2, 3)] * 2, 1, Sampling(0.25, 17), seeds)] and seeds[0] != seeds[1]
    assert chunk == [
        EvalRecord(repeat, "test-00000", correct=True, format=False, lenient=True, verdict="right",
                   length=2, finished=False, seed=seed)
        for repeat, seed in enumerate(seeds)
    ]  # fmt: skip


def test_as_many_questions_as_there_are_may_be_asked_and_the_first_ones_are(tmp_path):
    task = load(config(write(tmp_path, [row(1)], [row(k, "test") for k in (7, 8, 9)])))
    for number in (2, 3, None):
        asked = composed(f"evaluation.questions={'null' if number is None else number}")
        assert questions(asked, task) == task.test[:number]
    with pytest.raises(ValueError, match=r"^evaluation\.questions=4: the test set has 3$"):
        questions(composed("evaluation.questions=4"), task)


def test_trained_on_gsm8k_and_evaluated_on_math_each_by_its_own_grader(folder):
    other = lines(folder, HALF, HALF | {"problem": "What is 6 / 8?", "answer": r"\frac{3}{4}"})
    task = load(config(folder, test_set="math500", test_path=other, few_shot=1))
    assert [one.gold for one in task.train + task.test] == ["2000", "3000", r"\frac{1}{2}",
                                                            r"\frac{3}{4}"]  # fmt: skip
    heads = {json.dumps(one.messages[:-1]) for one in task.train + task.test}
    assert len(heads) == 1 and "as a single number" in heads.pop()
    assert task.test[0].messages[-1]["content"] == "What is 2 / 4?"
    right, wrong = records(task, r"<answer>\dfrac{1}{2}</answer>", r"<answer>\frac{4}{3}</answer>")
    assert (right.verdict, wrong.verdict) == ("right", "wrong")
    assert right.lenient is wrong.lenient is None
    assert right.question == "test-00000"
    # what is trained on is graded as numbers are: no LaTeX, and dollars are none of the answer
    assert task.grade("<answer>$2,000</answer>", "2000").correct
    assert task.grade(r"<answer>\dfrac{1}{2}</answer>", r"\frac{1}{2}").verdict == "wrong"
    assert task.ready(task.train) is None and task.examiner.ready(task.test) is not None


def test_trained_on_math_and_evaluated_on_gsm8k_with_the_authors_verdict_beside(tmp_path):
    write(tmp_path, [problem(1), problem(2)], [problem(3)])
    (tmp_path / "gsm8k.jsonl").write_bytes(row(9, "test"))
    other = str(tmp_path / "gsm8k.jsonl")
    task = load(config(tmp_path, name="math", test_set="gsm8k", test_path=other))
    assert [one.gold for one in task.test] == ["9000"]
    assert "in LaTeX, simplified" in task.test[0].messages[0]["content"]
    [exact] = records(task, "<answer>$9,000.00</answer>")
    [loose] = records(task, "so it is 9000")
    assert (exact.verdict, loose.verdict, loose.lenient) == ("right", "none", True)
    assert task.grade(r"<answer>\dfrac{1}{7}</answer>", r"\frac{1}{7}").correct
    assert task.examiner.ahead is None and task.ahead is not None


def test_the_reward_by_the_authors_grader_is_of_what_is_trained_on_only(folder):
    other = lines(folder, SIX)
    task = load(config(folder, grader="lenient", test_set="amc23", test_path=other))
    assert task.grade("so it is 2000", "2000").reward == 1.0
    assert task.examiner.grade("so it is 6", "6").reward == 0.0


def test_a_file_of_the_tasks_own_test_set_is_read_as_that(folder):
    (folder / "other.jsonl").write_bytes(row(7, "test") + b"\n")
    task = load(config(folder, test_path=str(folder / "other.jsonl")))
    assert [one.gold for one in task.test] == ["7000"]
    [record] = records(task, "7000")
    assert record.lenient is True


@pytest.mark.parametrize("answer", [27, 27.0, "27", "27.0", " 27.00 "])
def test_answers_of_amc_are_integers_as_numbers_or_texts(answer):
    assert amc23.fields({"question": "q", "answer": answer}) == ("q", "", "27")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"answer": 27.5}, "the answer is no integer: '27.5'"),
        ({"answer": "(A)"}, "the answer is no integer: '(A)'"),
        ({"answer": float("inf")}, "the answer is no integer: 'inf'"),
        ({"answer": "nan"}, "the answer is no integer: 'nan'"),
        ({"answer": True}, "`answer` is true or false, not a text"),
        ({"answer": None}, "`answer` is null, not a text"),
        ({}, "no `answer`"),
        ({"answer": 6, "question": " "}, "`question` is blank"),
    ],
)
def test_a_malformed_row_of_amc_is_named_or_dropped(folder, fields, why):
    with pytest.raises(ValueError) as refused:
        amc23.fields({"question": "q"} | fields)
    assert str(refused.value) == why
    if fields.get("answer") == 27.5:
        other = lines(folder, SIX, {"question": "q"} | fields)
        keys = {"test_set": "amc23", "test_path": other}
        said = rf"^task.test_path={other}: other.jsonl row 2: {why} \(task.malformed=drop leaves it"
        with pytest.raises(ValueError, match=said):
            load(config(folder, **keys))
        task = load(config(folder, **keys, malformed="drop"))
        assert [one.gold for one in task.test] == ["6"]
        assert task.dropped == (f"other.jsonl row 2: {why}",)


def test_amc_is_asked_of_the_hub_and_graded_as_math(folder, monkeypatch):
    def load_dataset(name, subset=None, split=None):
        assert (name, subset, split) == ("zwhe99/amc23", None, "test")
        return [SIX]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    task = load(config(folder, test_set="amc23"))  # trained on the folder's
    assert [len(task.train), len(task.test)] == [3, 1]
    [record] = records(task, r"<answer>\frac{12}{2}</answer>")
    assert record.correct and record.lenient is None


def test_a_train_problem_that_is_also_in_another_test_set_is_a_fault(folder):
    other = lines(folder, HALF, HALF | {"problem": "What is 2 thousand, train?"})
    keys = {"test_set": "math500", "test_path": other}
    with pytest.raises(ValueError, match=r"^task.path=.*: train.jsonl row 2: .* test row 2 again"):
        load(config(folder, **keys))
    task = load(config(folder, **keys, malformed="drop"))
    assert [one.id for one in task.train] == ["train-00000", "train-00002"]


def test_a_test_file_that_is_gone_or_too_short_is_named(folder):
    with pytest.raises(ValueError, match=r"^task.test_path=gone.jsonl: cannot read gone.jsonl \(No "
                                         r"such .*\): give a file of JSON lines$"):  # fmt: skip
        load(config(folder, test_set="amc23", test_path="gone.jsonl"))
    with pytest.raises(ValueError) as refused:  # HF_HUB_OFFLINE, in conftest.py
        load(config(folder, test_set="amc23"))
    said = str(refused.value)
    assert said.startswith("task.test_path=null: cannot read zwhe99/amc23 test on the hub (")
    assert said.endswith("): give a file of JSON lines") and "\n" not in said
    other = lines(folder, SIX)
    with pytest.raises(ValueError, match=r"^task.test_size=2: must be at most 1: other.jsonl has"):
        load(config(folder, test_set="amc23", test_path=other, test_size=2))


def test_a_run_does_not_go_on_with_another_test_file(folder, tmp_path):
    other = lines(folder, SIX)
    asked = composed("task=gsm8k", f"task.path={folder}", "task.test_set=amc23",
                     f"task.test_path={other}", f"runs_dir={tmp_path / 'runs'}",
                     "model=smollm2_135m")  # fmt: skip
    store = freeze(asked)
    assert check_unchanged(store, asked) == []
    lines(folder, SIX | {"answer": 7.0})
    with pytest.raises(Changed, match=r"\n  data: \[.*\] -> \[.*\]\n"):
        check_unchanged(store, asked)
    [change] = check_unchanged(store, replace(asked, allow_changed=True))
    assert change.startswith("data: ")
    assert freeze(asked).folder != store.folder
