"""Training on one data set and evaluating on another: prompts, grades and changed data."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from compose import composed
from data_files import config, problem, row, write, write_rows
from rows import every, table

from pods.cli.evaluate import _task
from pods.runs.evaluations import EvaluationRecord, asked, count_answered
from pods.seeding import derive, evaluation_seeds
from pods.tasks.datasets.math_sets import TEST_SETS
from pods.tasks.load import load
from pods.training.evaluate import evaluate, evaluation_questions
from pods.types import Rollout, Sampling

HALF = {"problem": "What is 2 / 4?", "solution": "", "answer": r"\frac{1}{2}"}
SIX = {"question": "What is 2 * 3?", "answer": 6.0, "url": "x"}


def lines(folder: Path, *rows: dict, name: str = "other.jsonl") -> str:
    return str(write_rows(folder / name, rows))


@pytest.fixture
def folder(tmp_path):
    """Write GSM8K with three train rows and a test row."""
    return write(tmp_path, [row(1), row(2), row(3)], [row(9, "test")])


def answered(text: str) -> Rollout:
    return Rollout((1,), (2,), np.zeros(1, np.float32), text, True)


class Script:
    """An engine that returns the given texts."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def generate(self, request, on_completion=None):
        if on_completion is not None:
            for index, text in enumerate(self.texts):
                on_completion(index, text)
        return [[answered(text)] for _, text in zip(request.prompts, self.texts, strict=True)]


def records(task, *texts):
    """Return the records of an evaluation of one pass in which these are the completions."""
    settings = composed("evaluation.repeats=1")
    prompts = [(1,)] * len(task.test)
    [chunk] = evaluate(settings, task, prompts, Script(*texts), step=0, done=0)
    assert [text for _, text in chunk] == [*texts]
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record, _ in chunk)
    requests = asked(settings, 0, [problem.id for problem in task.test])
    assert count_answered(requests, lines) == len(chunk)
    return [record for record, _ in chunk]


def test_repeats_have_seeds_of_their_own_and_the_sampling_of_the_evaluation(folder):
    task, calls = load(config(folder)), []

    class Cut(Script):
        def generate(self, request, on_completion=None):
            calls.append((list(request.prompts), request.n, request.sampling, request.seeds))
            text = "<answer>9,000</answer>"  # right, but without the thought of the form
            return [[Rollout((1, 2, 3), (4, 5), np.zeros(2, np.float32), text, False)]] * 2

    settings = composed("seed=3", "evaluation.repeats=2", "evaluation.temperature=0.25",
                        "sampling.max_completion_tokens=17")  # fmt: skip
    [chunk] = evaluate(settings, task, [(1, 2, 3)], Cut(), step=7, done=0)
    seeds = [derive(3, "evaluation", 7, repeat, 0) for repeat in (0, 1)]
    assert calls == [([(1, 2, 3)] * 2, 1, Sampling(0.25, 17), seeds)] and seeds[0] != seeds[1]
    assert [record for record, _ in chunk] == [
        EvaluationRecord(repeat, "test-00000", correct=True, format=False, lenient=True,
                         verdict="right", length=2, finished=False, seed=seed)
        for repeat, seed in enumerate(seeds)]  # fmt: skip


def test_the_first_questions_are_asked_and_at_most_all_of_them(tmp_path):
    task = load(config(write(tmp_path, [row(1)], [row(k, "test") for k in (7, 8, 9)])))
    for number in (2, 3, None):
        settings = composed(f"evaluation.questions={'null' if number is None else number}")
        assert evaluation_questions(settings, task) == task.test[:number]
    with pytest.raises(ValueError, match=r"^evaluation\.questions=4: the test set has 3$"):
        evaluation_questions(composed("evaluation.questions=4"), task)


def test_gsm8k_is_trained_on_and_math_evaluated_on_each_with_its_own_grader(folder):
    other = lines(folder, HALF, HALF | {"problem": "What is 6 / 8?", "answer": r"\frac{3}{4}"})
    task = load(config(folder, test_set="math500", test_path=other, few_shot=1))
    golds = [one.gold for one in task.train + task.test]
    assert golds == ["2000", "3000", r"\frac{1}{2}", r"\frac{3}{4}"]
    heads = {json.dumps(one.messages[:-1]) for one in task.train + task.test}
    assert len(heads) == 1 and "as a single number" in heads.pop()
    assert task.test[0].messages[-1]["content"] == "What is 2 / 4?"
    right, wrong = records(task, r"<answer>\dfrac{1}{2}</answer>", r"<answer>\frac{4}{3}</answer>")
    assert (right.verdict, wrong.verdict) == ("right", "wrong")
    assert right.lenient is wrong.lenient is None
    assert right.question == "test-00000"
    # the train pool is graded as numbers: LaTeX is wrong, and a currency does not matter
    assert task.train_grader.grade("<answer>$2,000</answer>", "2000").correct
    assert not task.train_grader.grade(r"<answer>\dfrac{1}{2}</answer>", r"\frac{1}{2}").correct
    assert task.train_grader.on_completion(task.train) is None
    assert task.test_grader.on_completion(task.test) is not None


def test_math_is_trained_on_and_gsm8k_evaluated_on_with_the_lenient_verdict_too(tmp_path):
    write(tmp_path, [problem(1), problem(2)], [problem(3)])
    (tmp_path / "gsm8k.jsonl").write_bytes(row(9, "test"))
    other = str(tmp_path / "gsm8k.jsonl")
    task = load(config(tmp_path, name="math", test_set="gsm8k", test_path=other))
    assert [one.gold for one in task.test] == ["9000"]
    assert "in LaTeX, simplified" in task.test[0].messages[0]["content"]
    [exact] = records(task, "<answer>$9,000.00</answer>")
    [loose] = records(task, "so it is 9000")
    assert (exact.verdict, loose.verdict, loose.lenient) == ("right", "none", True)
    assert task.train_grader.grade(r"<answer>\dfrac{1}{7}</answer>", r"\frac{1}{7}").correct
    assert task.test_grader.prefetch is None and task.train_grader.prefetch is not None


def test_the_lenient_grader_decides_rewards_in_training_only(folder):
    task = load(config(folder, grader="lenient", test_set="amc23", test_path=lines(folder, SIX)))
    assert task.train_grader.grade("so it is 2000", "2000").reward == 1.0
    assert task.test_grader.grade("so it is 6", "6").reward == 0.0


def test_a_file_may_replace_the_tasks_own_test_set(folder):
    (folder / "other.jsonl").write_bytes(row(7, "test") + b"\n")
    task = load(config(folder, test_path=str(folder / "other.jsonl")))
    assert [one.gold for one in task.test] == ["7000"]
    [record] = records(task, "7000")
    assert record.lenient is True


def test_rows_of_the_small_test_sets():
    """The fields are those of QwenLM/Qwen2.5-Math, evaluation/data at a45202b, and of the hub."""

    def check(name, fields, gold, why):
        if why is None:
            assert TEST_SETS[name].reader(fields) == ("p", "", gold)
            return
        with pytest.raises(ValueError) as error:
            TEST_SETS[name].reader(fields)
        assert str(error.value) == why

    every(table("test_sets"), check)


def test_a_missing_test_file_a_malformed_row_or_a_train_row_in_it_is_reported_or_dropped(folder):
    gone = r"^task.test_path=gone.jsonl: cannot read gone.jsonl \(.*No such file.*\)$"
    with pytest.raises(ValueError, match=gone):
        load(config(folder, test_set="amc23", test_path="gone.jsonl"))
    other = lines(folder, SIX, {"question": "q", "answer": 27.5})
    why = "other.jsonl row 2: the answer must be an integer, not '27.5'"
    keys = {"test_set": "amc23", "test_path": other}
    with pytest.raises(ValueError, match=rf"^task.test_path={other}: {why} \(task.malformed=drop "):
        load(config(folder, **keys))
    task = load(config(folder, **keys, malformed="drop"))
    assert [one.gold for one in task.test] == ["6"] and task.dropped == (why,)
    lines(folder, HALF, HALF | {"problem": "What is 2 thousand, train?"})
    keys = {"test_set": "math500", "test_path": other}
    why = r"^task.path=.*: train.jsonl row 2: .* question of test row 2 \(task"
    with pytest.raises(ValueError, match=why):
        load(config(folder, **keys))
    task = load(config(folder, **keys, malformed="drop"))
    assert [one.id for one in task.train] == ["train-00000", "train-00002"]


def test_amc_is_read_from_the_hub_and_graded_as_math(folder, monkeypatch):
    def load_dataset(name, subset=None, split=None):
        assert (name, subset, split) == ("zwhe99/amc23", None, "test")
        return [SIX]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    task = load(config(folder, test_set="amc23"))  # trained on the folder
    assert [len(task.train), len(task.test)] == [3, 1]
    [record] = records(task, r"<answer>\frac{12}{2}</answer>")
    assert record.correct and record.lenient is None


def test_seeds_of_test_sets_differ_from_each_other():
    seeds = [evaluation_seeds(3, 100, 1, 5, name) for name in ("", "amc23", "gsm8k")]
    assert len({seed for of_set in seeds for seed in of_set}) == 15
    assert seeds[1] == [derive(3, "evaluation/amc23", 100, 1, q) for q in range(5)]


def test_a_checkpoint_of_a_run_on_gsm8k_is_evaluated_on_another_set(folder):
    """The set is named by its file here; malformed rows are left out."""
    sets = folder / "sets"
    sets.mkdir()
    file = lines(sets, SIX, SIX, {"question": "no answer"}, name="amc23.jsonl")
    run = composed("task=gsm8k", "model=smollm2_135m", f"task.path={folder}", "task.few_shot=1")
    name, task = _task(run, file)
    assert name == "amc23" and [problem.gold for problem in task.test] == ["6"]
    own = load(run.task)
    assert task.test[0].messages[:-1] == own.test[0].messages[:-1]
    assert task.test_grader.lenient is None  # graded as MATH
    form = {"tag": "<answer>%s</answer>", "hash": "#### %s", "boxed": r"\boxed{%s}"}
    answer = form[run.task.answer_format] % r"\frac{12}{2}"
    assert task.test_grader.grade(answer, "6").correct
