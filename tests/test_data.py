"""Data sets: malformed rows, the golds of MATH, prompts, and data that change under a run."""

import copy
import itertools
import json
import os
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from compose import composed
from data_files import config, problem, row, write
from rows import every, table
from studies import A, B, write_run

from pods import types
from pods.analysis.loading.load import load as load_study
from pods.runs.attempts import recorded_changes
from pods.runs.files import write_json
from pods.runs.freeze import Changed, freeze
from pods.runs.store import run_folders
from pods.tasks.datasets import chainsum
from pods.tasks.datasets.math_sets import checked_answer, last_box, unboxed
from pods.tasks.load import data_record, load
from pods.tasks.prompts import prompt_ids
from pods.tasks.rewards import grade_rollouts, math_grader, number_grader

FORMS = ("tag", "hash", "boxed")

TRAIN, TEST = [row(i) for i in range(1, 6)], [row(i, "test") for i in range(1, 4)]


def test_gsm8k_is_read_from_a_folder(tmp_path):
    task = load(config(write(tmp_path, TRAIN, TEST), few_shot=2, train_size=2))
    assert [problem.gold for problem in task.train] == ["3000", "4000"]
    assert [problem.id for problem in task.train] == ["train-00002", "train-00003"]
    assert len(task.test) == 3 and task.dropped == ()
    roles = [message["role"] for message in task.test[0].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert task.test[0].messages[-1]["content"] == "What is 1 thousand, test?"


def test_a_system_message_of_ones_own_replaces_ours_to_the_last_line_break(tmp_path):
    file, own = tmp_path / "mine.txt", "\nBe brief.\r\n{what}\u00e9\n"
    file.write_bytes(own.encode())
    folder = write(tmp_path, TRAIN, TEST)
    task, ours = (load(config(folder, few_shot=1, system=name)) for name in (str(file), None))
    for mine, other in zip(task.train + task.test, ours.train + ours.test, strict=True):
        assert mine.messages == ({"role": "system", "content": own}, *other.messages[1:])
    assert data_record(task.test, ())["sha256"] != data_record(ours.test, ())["sha256"]


def with_answer(answer: str) -> bytes:
    return json.dumps({"question": "q", "answer": answer}).encode()


MALFORMED = {
    "bad UTF-8": (b'{"question": "caf\xe9", "answer": "#### 1"}',
                  "'utf-8' codec can't decode byte 0xe9 in position 17"),
    "half a pair": (b'{"question": "\\ud800", "answer": "#### 1"}',
                    "`question` is not valid Unicode (character 1)"),
    "cut off": (b'{"question": "q", "answer": "#### 1', "not JSON (Unterminated string"),
    "two objects": (row(8) + row(9), "not JSON (Extra data"),
    "byte order mark": (b"\xef\xbb\xbf" + row(9), "not JSON (Unexpected UTF-8 BOM"),
    "null": (b"null", "must be a JSON object, not null"),
    "no-break space": (b"\xc2\xa0", "not JSON (Expecting value"),  # no white space of JSON
    "bomb": (b"[" * 200_000, "not JSON (maximum recursion depth"),
    "list": (b"[1]", "must be a JSON object, not list"),
    "no question": (b'{"answer": "#### 1"}', "`question` is missing"),
    "no answer": (b'{"question": "q", "Answer": "#### 1"}', "`answer` is missing"),
    "null question": (b'{"question": null, "answer": "1"}', "`question` must be text, not null"),
    "number": (b'{"question": "q", "answer": 18}', "`answer` must be text, not int"),
    "long number": (b'{"question": "q", "answer": ' + b"1" * 5000 + b"}",
                    "Exceeds the limit (4300 digits)"),
    "blank question": (b'{"question": " \\n\\u200b ", "answer": "#### 1"}', "`question` is blank"),
    "blank answer": (with_answer(" "), "`answer` is blank"),
    "no mark": (with_answer("It is 18"), "the answer must have one mark `####`, not 0"),
    "two marks": (with_answer("#### 1 #### 2"), "the answer must have one mark `####`, not 2"),
    "no number": (with_answer("#### many"), "the text after `####` must be a number, not 'many'"),
    "nothing": (with_answer("####  "), "the text after `####` must be a number, not ''"),
    "two numbers": (with_answer("#### 12 or 18"), "the text after `####` must be a number, not '"),
    "expression": (with_answer("#### __import__('os')"), "the text after `####` must be a n"),
    "twice": (row(2), "repeats the question of row 2"),
    "twice, spaced": (row(2).replace(b"What is", b" What\\n is"), "repeats the question of row 2"),
}  # fmt: skip


def test_a_malformed_row_is_reported_or_dropped(tmp_path, capsys):
    def check(line, why):
        write(tmp_path, [*TRAIN[:3], line, *TRAIN[3:]], TEST)
        with pytest.raises(ValueError) as error:
            load(config(tmp_path))
        message = str(error.value)
        assert message.startswith(f"task.path={tmp_path}: train.jsonl row 4: {why}")
        assert "task.malformed=drop" in message and "\n" not in message
        task = load(config(tmp_path, malformed="drop"))
        assert [one.id[-2:] for one in task.train] == ["00", "01", "02", "04", "05"]
        assert [one.gold for one in task.train] == ["1000", "2000", "3000", "4000", "5000"]
        [reason] = task.dropped
        assert reason.startswith(f"train.jsonl row 4: {why}")
        assert capsys.readouterr().out == f"dropped 1 of 6 train rows: {reason}\n"

    every(MALFORMED.values(), check)


def test_all_malformed_rows_of_both_splits_are_counted(tmp_path, capsys):
    bad = [MALFORMED["list"][0], MALFORMED["no mark"][0]]
    train = [row(1), bad[0], row(1, "test"), row(1), bad[1], row(2)]
    write(tmp_path, train, [row(1, "test"), bad[1], row(2, "test"), row(2, "test")])
    with pytest.raises(ValueError, match=r"train.jsonl row 2: .* \(6 rows are malformed, and "):
        load(config(tmp_path))
    task = load(config(tmp_path, malformed="drop", few_shot=1))
    assert [one.id for one in task.train + task.test] == ["train-00005", "test-00000", "test-00002"]
    assert [one.partition(": ")[::2] for one in task.dropped] == [
        ("train.jsonl row 2", "must be a JSON object, not list"),
        ("train.jsonl row 3", "repeats the question of test row 1"),
        ("train.jsonl row 4", "repeats the question of row 1"),
        ("train.jsonl row 5", "the answer must have one mark `####`, not 0"),
        ("test.jsonl row 2", "the answer must have one mark `####`, not 0"),
        ("test.jsonl row 4", "repeats the question of row 3"),
    ]
    train_line, test_line = capsys.readouterr().out.splitlines()
    assert train_line.startswith("dropped 4 of 6 train rows: ") and "and 1 more" in train_line
    assert test_line.startswith("dropped 2 of 4 test rows: test.jsonl row 2: ")


@pytest.mark.parametrize(("train", "test", "keys", "message"), [
    ([], TEST, {}, "train.jsonl has no usable row"),
    (TRAIN, [b"{}"], {"malformed": "drop"},
     r"test.jsonl has no usable row \(test.jsonl row 1: `question` is missing\)"),
    (TRAIN, TEST, {"few_shot": 5, "train_size": 1}, "task.few_shot=5: must be less than 5"),
    (TRAIN, TEST, {"train_size": 6}, "^task.train_size=6: must be at most 5, the number of"),
    (TRAIN, TEST, {"train_size": 4, "few_shot": 2}, "task.train_size=4: must be at most 3, .* "
                                                    "besides 2 few-shot examples$"),
    (None, TEST, {}, r"task.path=.*: cannot read train.jsonl \(.*No such file"),
])  # fmt: skip
def test_too_few_rows_are_an_error_of_one_line(tmp_path, train, test, keys, message):
    write(tmp_path, train or [], test)
    if train is None:
        (tmp_path / "train.jsonl").unlink()
    with pytest.raises(ValueError, match=message):
        load(config(tmp_path, **keys))
    task = load(config(write(tmp_path, TRAIN, TEST), train_size=3, few_shot=2))
    assert (len(task.train), len(task.test)) == (3, 3)  # all that there are


BLANK = [  # before the first row, a blank line, the end of a line, after the last row
    (b"", b"", b"\n", b""),
    (b"", b" \t ", b"\n", b"\n\n \n\t"),
    (b"\n \n", b"", b"\n", b"\n"),
    (b"\xef\xbb\xbf", b"", b"\n", b""),
    (b"\xef\xbb\xbf\n", b" ", b"\n", b""),
    (b"", b"", b"\r\n", b"\r\n\r\n"),
    (b"", b"  ", b"\r", b"\r"),  # an old Mac
]


def test_blank_lines_are_no_rows_and_row_numbers_are_those_of_the_file(tmp_path):
    """Of five rows and a malformed one there are a blank line after the first, and two more."""

    def check(start, blank, end, rest):
        lines = [TRAIN[0], blank, TRAIN[1], TRAIN[2], blank, blank, b"bad", TRAIN[3], TRAIN[4]]
        file = write(tmp_path, TRAIN, TEST) / "train.jsonl"
        file.write_bytes(start + end.join(lines) + rest)
        before = start.count(b"\n")
        said = rf"train.jsonl row {7 + before}: not JSON .*\(task.malformed=drop"
        with pytest.raises(ValueError, match=said):
            load(config(tmp_path))
        task = load(config(tmp_path, malformed="drop"))
        numbers = [before + index for index in (0, 2, 3, 7, 8)]
        assert [problem.id for problem in task.train] == [f"train-{n:05d}" for n in numbers]
        assert len(task.dropped) == 1

    every(BLANK, check)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf \r\n"])
def test_a_file_of_blank_lines_has_no_row(content, tmp_path):
    (write(tmp_path, TRAIN, TEST) / "test.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=r"test.jsonl has no usable row$"):
        load(config(tmp_path, malformed="drop"))


def test_a_byte_order_mark_and_empty_lines_at_the_end_are_accepted(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # a folder needs no such library
    write(tmp_path, TRAIN, TEST)
    (tmp_path / "train.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(TRAIN) + b"\n\r\n \n\n")
    (tmp_path / "test.jsonl").write_bytes(b"\r\n".join(TEST))  # and no line break at the end
    task = load(config(tmp_path))
    assert (len(task.train), len(task.test)) == (5, 3) and task.dropped == ()
    assert task.train[0].messages[-1]["content"] == "What is 1 thousand, train?"


def test_a_file_that_does_not_fit_into_memory_is_named(tmp_path):
    write(tmp_path, TRAIN, TEST)
    os.truncate(tmp_path / "train.jsonl", 2**42)  # 4 TB, of which the disk holds a few bytes
    why = f"^task.path={tmp_path}: train.jsonl does not fit into memory$"
    with pytest.raises(ValueError, match=why):
        load(config(tmp_path))


BOXES = [*table("boxes"), (rf"\boxed{{{'9' * 500}}}", "9" * 500)]


def test_the_gold_of_a_solution_is_its_last_box():
    def check(solution, answer):
        assert checked_answer(last_box(solution)) == answer

    every(BOXES, check)


def test_a_solution_without_a_readable_answer_is_malformed(tmp_path):
    keys = {"name": "math", "answer_format": "boxed"}

    def check(solution, why):
        write(tmp_path, [problem(1), problem(2, solution)], [problem(3)])
        with pytest.raises(ValueError) as error:
            load(config(tmp_path, **keys))
        assert f"train.jsonl row 2: {why}" in str(error.value)
        [kept] = load(config(tmp_path, **keys, malformed="drop")).train
        assert kept.id == "train-00000"

    every(table("no_boxes"), check)


def test_golds_are_read_in_linear_time():
    for piece in (r"\boxed{", r"\boxed ", "{", "}", "\\", r"\boxed{}", r"\fbox\boxed{$",
                  "\\boxed{" + " " * 99):  # fmt: skip
        solution = r"\boxed{1}" + piece * (200_000 // len(piece))
        start = time.thread_time()
        unboxed(solution)
        try:
            checked_answer(last_box(solution))
        except ValueError as error:
            assert len(str(error)) < 200
        assert time.thread_time() - start < 3  # 0.2 s of CPU; quadratic takes minutes


def test_math_is_read_from_a_folder(tmp_path):
    with_answer = {"problem": "p?", "solution": r"\boxed{9}", "answer": r"\frac{1}{3}"}
    without = {"problem": "r?", "solution": r"so \boxed{\sqrt{2}}"}
    test = [json.dumps(one).encode() for one in (with_answer, without)]
    write(tmp_path, [problem(1), problem(2)], test)
    task = load(config(tmp_path, name="math", answer_format="boxed", few_shot=1))
    assert task.test_grader.lenient is None and task.train_grader.prefetch is not None
    golds = [one.gold for one in task.train + task.test]
    assert golds == [r"\frac{2}{7}", r"\frac{1}{3}", r"\sqrt{2}"]
    assert [message["content"] for message in task.train[0].messages] == [
        r"Please reason step by step, and put your final answer within \boxed{}.",
        "What is 1 / 7?", "It is $\\frac{1}{7}$.\n\\boxed{\\frac{1}{7}}", "What is 2 / 7?",
    ]  # fmt: skip
    null = json.dumps(with_answer | {"answer": None}).encode()
    write(tmp_path, [problem(1)], [problem(2), null])
    with pytest.raises(ValueError, match=r"test.jsonl row 2: `answer` must be text, not null"):
        load(config(tmp_path, name="math", answer_format="boxed"))


def test_math_from_the_hub_is_seven_subjects_in_order(monkeypatch):
    requests = []

    def load_dataset(name, subset=None, split=None):
        requests.append((name, subset, split))
        if name == "HuggingFaceH4/MATH-500":
            return [{"problem": "t?", "solution": "", "answer": "5", "subject": "Algebra"}]
        return [{"problem": f"{subset} {i}?", "solution": rf"\boxed{{{i}}}"} for i in range(2)]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    task = load(config(None, name="math", answer_format="boxed"))
    subjects = ["algebra", "counting_and_probability", "geometry", "intermediate_algebra",
                "number_theory", "prealgebra", "precalculus"]  # fmt: skip
    test, *train = requests
    assert test == ("HuggingFaceH4/MATH-500", None, "test")
    assert train == [("EleutherAI/hendrycks_math", subject, "train") for subject in subjects]
    numbered = [(f"{subject} {i}?", str(i)) for subject in subjects for i in range(2)]
    assert [(one.messages[-1]["content"], one.gold) for one in task.train] == numbered
    assert task.train[1].id == "train-00001" and task.test[0].gold == "5"


def test_gsm8k_from_the_hub_is_checked_like_a_folder(monkeypatch):
    with pytest.raises(ValueError) as error:  # HF_HUB_OFFLINE, in conftest.py
        load(config(None, name="math", answer_format="boxed"))
    message = str(error.value)
    assert message.startswith("task.path=null: cannot read HuggingFaceH4/MATH-500 test (on the hub")
    assert "task.path=FOLDER" in message and "\n" not in message

    def load_dataset(name, subset, split):
        assert (name, subset) == ("openai/gsm8k", "main")
        rows = [json.loads(one) for one in (TRAIN if split == "train" else TEST)]
        return [*rows, {"question": "q", "answer": None}] if split == "test" else rows

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(ValueError, match=r"^task.path=null: openai/gsm8k test row 4: `answer` "):
        load(config(None))
    [dropped] = load(config(None, malformed="drop")).dropped
    assert dropped == "openai/gsm8k test row 4: `answer` must be text, not null"


def test_the_system_message_of_gsm8k_in_tags_has_not_changed(tmp_path):
    problem = load(config(write(tmp_path, TRAIN, TEST))).train[0]
    assert problem.messages[0]["content"] == (
        "You are given a math question. Reason step by step and check your reasoning; then give "
        "the answer as a single number. Your reply is limited in length. Reply in this form:\n"
        "<think>\nyour reasoning\n</think>\n<answer>\nthe number\n</answer>"
    )


@pytest.mark.parametrize("form", FORMS)
def test_few_shot_examples_are_right_in_the_form_that_the_prompt_asks_for(tmp_path, form):
    keys = {"answer_format": form, "few_shot": 1}
    number = config(write(tmp_path, TRAIN, TEST), **keys)
    system, _, example, _ = (message["content"] for message in load(number).train[0].messages)
    grade = number_grader(number).grade(example, "1000")
    assert grade.correct and grade.format and "<<" not in example
    assert not number_grader(number).grade(example, "2000").correct
    maths = config(write(tmp_path, [problem(1), problem(2)], [problem(3)]), name="math", **keys)
    math_system, _, example, _ = (message["content"] for message in load(maths).train[0].messages)
    grade = math_grader(maths).grade(example, r"\frac{1}{7}")
    assert grade.correct and grade.format
    mark = {"tag": "<answer>", "hash": "\n#### ", "boxed": "\\boxed{"}[form]
    assert mark in system and mark in math_system
    assert ("number" in system) == (form != "boxed") and "number" not in math_system


def test_long_prompts_are_dropped_and_characters_without_ids_are_an_error():
    from pods.training.data import fitting, load_tokenizer

    tokenizer = load_tokenizer(composed())
    task = chainsum.load(50, 50)
    lengths = {one.id: len(prompt_ids(one, tokenizer)) for one in task.train}
    assert set(lengths.values()) == {6, 8, 10}  # 3 to 5 digits, their signs, and a question mark
    for limit in (7, 8, 9):  # one below, at, and one above a prompt's length
        config = composed(f"sampling.max_prompt_tokens={limit}")
        kept, ids, too_long = fitting("train", task.train, tokenizer, config)
        assert [one.id for one in kept] == [name for name, n in lengths.items() if n <= limit]
        assert list(map(len, ids)) == [lengths[one.id] for one in kept]
        assert too_long == tuple(name for name, n in lengths.items() if n > limit)
    assert tokenizer.decode(ids[0]) == kept[0].messages[-1]["content"]
    letters = chainsum.Problem("x", ({"role": "user", "content": "two?"},), "2")
    with pytest.raises(ValueError, match="lacks characters of problem x"):
        prompt_ids(letters, tokenizer)
    refusing = copy.deepcopy(tokenizer)
    refusing.chat_template = "{{ raise_exception('no system message') }}"
    with pytest.raises(ValueError, match=r"tiny: chat template fails: \w+Error no system message$"):
        prompt_ids(letters, refusing)


TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"


def with_template(template, **tokens):
    """Return the embedded model's tokenizer with another template, and tokens by their names."""
    from pods.training.data import load_tokenizer

    tokenizer = copy.deepcopy(load_tokenizer(composed()))
    tokenizer.add_special_tokens({"bos_token": "<s>"} | tokens)
    tokenizer.chat_template = template
    return tokenizer


def asked(question, **more):
    return chainsum.Problem("x", ({"role": "user", "content": question},), "2", **more)


def test_a_text_that_is_far_too_long_is_not_encoded(monkeypatch):
    """10 MB take the tokenizer of a real model 4 GB and half a minute, in which no signal helps."""
    from pods.training.data import LONGEST_TOKEN, fitting

    tokenizer = with_template(TEMPLATE)
    encoded = []
    encode = tokenizer.encode
    monkeypatch.setattr(
        tokenizer, "encode", lambda text, **more: encoded.append(text) or encode(text, **more)
    )
    limit = 20 * LONGEST_TOKEN - len("<s>")
    problems = [asked("7" * length) for length in (limit + 1, limit, 3)]
    kept, _, too_long = fitting(
        "train", problems, tokenizer, composed("sampling.max_prompt_tokens=20")
    )
    assert [len(text) for text in encoded] == [20 * LONGEST_TOKEN, len("<s>777")]
    assert len(kept) == 1 and len(too_long) == 2


@pytest.mark.parametrize("end", ["</s>", "<|endoftext|>", "<pad>"])
def test_a_special_token_that_is_also_unknown_is_no_missing_character(end):
    """As Granite's (unknown is the end) and GPT-2's (unknown, begin and end are one)."""
    tokenizer = with_template(TEMPLATE, bos_token=end, eos_token=end, unk_token=end)
    unknown = tokenizer.unk_token_id
    assert unknown == tokenizer.bos_token_id
    assert prompt_ids(asked("7+8?"), tokenizer)[0] == unknown
    assert prompt_ids(asked(f"7{end}+8?"), tokenizer).count(unknown) == 2


def test_a_missing_character_is_named_although_the_template_writes_the_unknown_token():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate(["</s>", *"0123456789+-?"])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="</s>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="</s>", eos_token="</s>", unk_token="</s>"
    )
    tokenizer.chat_template = TEMPLATE
    assert prompt_ids(asked("7+8?"), tokenizer) == (0, 8, 11, 9, 13)
    with pytest.raises(ValueError, match="lacks characters of problem x: '</s>7×8"):
        prompt_ids(asked("7×8?"), tokenizer)


@pytest.mark.parametrize(("end", "opened"), [
    ("<think>\n", "<think>\n"),  # DeepSeek-R1's distills, QwQ
    ("<think>", "<think>"),
    ("<think>\nFirst, ", "<think>\nFirst, "),
    ("<think>\n\n</think>\n\n", ""),  # Qwen3 with enable_thinking=False
    ("", ""),
])  # fmt: skip
def test_the_thought_that_a_prompt_opens(end, opened):
    from pods.training.data import fitting

    generation = "{% if add_generation_prompt %}" + end.replace("\n", "{{ '\\n' }}") + "{% endif %}"
    tokenizer = with_template(TEMPLATE + generation)
    tokenizer.add_tokens([*"<>/thinkFrs, \n"])
    run = composed("sampling.max_prompt_tokens=64")
    run = replace(run, task=replace(run.task, answer_format="tag"))
    for question in ("7+8?", "<think>?"):  # a question about the mark opens no thought
        [problem], _, _ = fitting("train", [asked(question)], tokenizer, run)
        assert problem == asked(question, opened=opened)


@pytest.mark.parametrize("keys", [
    ("model=r1_distill_qwen_1_5b", "task=gsm8k"),
    ("model=qwen2_5_0_5b", "task=gsm8k", "task.answer_format=hash"),
    ("model=qwen2_5_0_5b", "task=gsm8k", "task.answer_format=tag"),
])  # fmt: skip
def test_training_and_evaluation_grade_with_the_thought_that_the_prompt_opened(keys):
    from pods.training.evaluate import evaluate

    run = composed(*keys, "task.format_reward=additive", "task.few_shot=0", "evaluation.repeats=1")
    grader = number_grader(run.task)
    problem = asked("9+9?", opened="<think>\n")
    task = types.Task((problem,), (problem,), grader, grader)
    forms = {"boxed": "\\boxed{2}", "hash": "#### 2", "tag": "\n<answer>2</answer>"}
    written = forms[run.task.answer_format]

    def graded(text):
        rollout = types.Rollout((0,), (0,), np.zeros(1, np.float32), text, True)
        engine = SimpleNamespace(generate=lambda request, on_completion: [[rollout]])
        [[answer]] = evaluate(run, task, [(0,)], engine, step=0)
        [grade] = grade_rollouts(run, task, [problem], [rollout])
        record = answer.record
        assert (record.verdict, record.format) == (grade.verdict, grade.format)
        return grade

    assert graded(f"It is {written}. Wait").verdict == "none"  # cut off in its thought
    assert graded(f"x</think>y</think>{written}").verdict == "none"
    whole = graded(f"x</think>{written}")
    assert (whole.verdict, whole.format, whole.reward) == ("right", True, pytest.approx(1.2))


def test_a_completion_that_is_the_answer_as_a_whole_has_no_thoughts():
    from pods.training.data import fitting

    tokenizer = with_template(TEMPLATE + "<think>")
    tokenizer.add_tokens([*"<>/thinkFrs, \n"])
    run = composed("sampling.max_prompt_tokens=64")
    for answer_format, opened in (("chain", ""), ("whole", ""), ("boxed", "<think>")):
        run = replace(run, task=replace(run.task, answer_format=answer_format))
        [problem], _, _ = fitting("train", [asked("7+8?")], tokenizer, run)
        assert problem.opened == opened


def test_maths_is_prefetched_without_a_thought_that_the_prompt_opened(monkeypatch):
    asked_for = []
    monkeypatch.setattr("mathgrade.MathGrader.prefetch", lambda _, *pair: asked_for.append(pair))
    grader = math_grader(
        composed("task=math", "model=qwen2_5_0_5b", "task.answer_format=boxed").task
    )
    begin = grader.on_completion([asked("?", opened="<think>"), asked("?")])
    for index in (0, 1):
        begin(index, "\\boxed{3}")
    begin(0, "x</think>\\boxed{4}")
    assert asked_for == [("3", "2"), ("4", "2")]


def built(*words):
    """Build a run that is ready to start or to resume."""
    from pods.runs.tracking.tracker import Tracker
    from pods.system.signals import Stop
    from pods.training.build import build_trainer
    from pods.training.clock import TrainClock

    config = composed("tracking=none", "budget.train_seconds=null", "budget.max_steps=1",
                      "task.train_size=20", "sampling.max_prompt_tokens=8",
                      "evaluation.questions=10", *words)  # fmt: skip
    store, now = freeze(config), itertools.count().__next__
    with store.lock() as lock:
        return build_trainer(config, store, lock, Tracker(), Stop(), TrainClock(now), lambda: None)


def test_a_run_records_its_data_and_every_arm_has_the_same(tmp_path, capsys):
    runs = [built(f"runs_dir={tmp_path}", f"arm={arm}") for arm in ("grpo", "grpo_ga", "pods")]
    facts, printed = [run.store.data() for run in runs], capsys.readouterr().out
    assert len({run.store.folder for run in runs}) == 3 and facts[0] == facts[1] == facts[2]
    pool = chainsum.load(20, 256)
    questions = {"train": pool.train, "test": pool.test[:10]}
    for split, problems in questions.items():
        long = [one.id for one in problems if len(one.messages[-1]["content"]) > 8]
        short = [one for one in problems if one.id not in long]
        assert facts[0][split] == data_record(short, long) and long and short
        assert facts[0][split]["problems"] == len(short)
        named = f"{split} problems: prompts over 8 tokens: {', '.join(long[:5])}"
        assert printed.count(f"dropped {len(long)} of {len(problems)} {named}") == 3
    assert facts[0]["left_out"] == []


def test_a_run_whose_data_changed_is_refused_or_marked(tmp_path, monkeypatch):
    words = (f"runs_dir={tmp_path}",)
    run = built(*words)
    before = run.store.data_path.read_bytes()
    built(*words)  # the same data: it resumes
    assert run.store.data_path.read_bytes() == before and not recorded_changes(run.store)
    task = chainsum.load(20, 256)
    shortest = min(task.train, key=lambda one: len(one.messages[-1]["content"]))
    other = [replace(one, gold="x") if one is shortest else one for one in task.train]
    changed = replace(task, train=tuple(other))
    monkeypatch.setattr("pods.training.data.load_task", lambda *_: changed)
    with pytest.raises(Changed, match=r": data: train SHA-256: \w{64} -> \w{64}; retry=changed"):
        built(*words)
    assert run.store.data_path.read_bytes() == before and not recorded_changes(run.store)
    built(*words, "retry=changed")
    [mark] = recorded_changes(run.store)
    assert mark.startswith("data: train SHA-256: ")
    assert run.store.data_path.read_bytes() == before  # the data that it started with
    run.store.data_path.write_text("{}")
    with pytest.raises(ValueError, match=r"data.json is damaged"):
        built(*words)


def test_the_hash_covers_ids_messages_golds_and_their_order():
    first, second = two = chainsum.load(2, 2).train
    system, [asked] = {"role": "system", "content": "x"}, first.messages
    changes = ({"gold": "x"}, {"id": "x"}, {"messages": (system, asked)},
               {"messages": ({**asked, "role": "system"},)})  # fmt: skip
    variants = [two, two[::-1], two[:1], *((replace(first, **each), second) for each in changes)]
    assert len({data_record(some, [])["sha256"] for some in variants}) == len(variants)
    assert len(data_record([replace(first, gold="\ud800")], ["a"])["sha256"]) == 64
    assert data_record(two, ["a"]) == data_record(two, []) | {"too_long": ["a"]}


def test_runs_of_one_study_on_different_data_are_reported(tmp_path):
    stores = [write_run(tmp_path, points, f"seed={seed}") for seed, points in enumerate((A, B, A))]
    used = {"problems": 4, "sha256": 64 * "a", "too_long": []}
    facts = {"train": used, "test": used}
    for store in stores:
        write_json(store.data_path, facts)
    folders = run_folders(tmp_path / "default")
    assert not load_study(tmp_path / "default", folders).inconsistencies
    write_json(stores[1].data_path, facts | {"test": facts["test"] | {"sha256": 64 * "b"}})
    with pytest.raises(ValueError) as error:
        load_study(tmp_path / "default", folders)
    [line] = str(error.value).splitlines()[1:]
    assert line.startswith(f"test data: 4 problems of SHA-256 {16 * 'a'} (most) | 4 problems of ")
    assert "seed 1" in line and "seed 2" not in line
    stores[1].data_path.write_text('{"train": 1}')
    found = load_study(tmp_path / "default", folders, allow=True).missing
    assert len(found) == 1 and "seed1-" in found[0] and "data.json is damaged" in found[0]
