"""Data, rewards and tasks of one's own: rows and sums worked out by hand."""

import bz2
import gzip
import json
import lzma
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from compose import composed
from data_files import write_rows
from rewarding import rewarded
from running import ONE_STEP, run_here

from pods.analysis.loading.series_names import series_names
from pods.cli.main import main
from pods.launch.sweep import check_data
from pods.runs.identity import identity
from pods.tasks.datasets.math_sets import read_integer
from pods.tasks.load import load
from pods.tasks.own_rewards import own_reward
from pods.types import Grade, Parts, Problem

ROWS = [
    {"problem": "What is 2 plus 3?", "solution": 5},
    {"problem": "Half of 3?", "solution": 1.5},
    {"problem": "Apples at 2 each for 1,200?", "solution": "2 * 600 is it\n#### 1,200"},
    {"problem": "Capital of Peru?", "solution": "Lima"},
    {"problem": "The longest river?", "solution": "The Nile."},
]
KEYS = ("task=jsonl", "model=smollm2_135m", "task.few_shot=0")
MODULE = """
    def short(problem, completion):
        return -len(completion)

    def names_it(problem, completion):
        return problem.gold in completion and problem.question in "1+2?"

    def fails(problem, completion):
        return {}["x"]

    def huge(problem, completion):
        return float("inf")

    def riddles():
        def right(answer, gold):
            return answer.startswith(gold)

        return [("A?", "a"), ("B?", "b")], [("C?", 3)], right

    def counted():
        global calls
        calls += 1
        return riddles()

    calls = 0

    def broken():
        return [("A?",)], []

    def leaks():
        return [("A?", "a"), ("C?", "c")], [("C?", 3)]
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "their_task.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)


def task(*overrides):
    return composed(*KEYS, *overrides).task


def test_answers_are_numbers_texts_or_worked_solutions(tmp_path):
    mine = task(f"task.path={write_rows(tmp_path / 'mine.jsonl', ROWS)}")
    loaded = load(mine)
    assert (len(loaded.train), len(loaded.test), mine.label()) == (4, 1, "mine")
    golds = {problem.question: problem.gold for problem in (*loaded.train, *loaded.test)}
    assert list(golds[row["problem"]] for row in ROWS) == ["5", "1.5", "1,200", "Lima", "The Nile."]
    assert "math" not in loaded.test[0].messages[0]["content"]

    def verdict(answer, gold):
        return loaded.train_grader.grade(f"<think>x</think><answer>{answer}</answer>", gold).verdict

    for answer, gold in (("$1200", "1,200"), ("1.50", "1.5"), ("LIMA.", "Lima"),
                         (" the\n nile", "The Nile.")):  # fmt: skip
        assert verdict(answer, gold) == "right"
    for answer, gold in (("1201", "1,200"), ("five", "5"), ("Lima, Peru", "Lima")):
        assert verdict(answer, gold) == "wrong"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_a_malformed_row(tmp_path, value):
    """pandas' `to_dict` and `json.dumps` write NaN where a cell is missing."""
    file = write_rows(tmp_path / "mine.jsonl", ROWS)
    with file.open("a") as rows:
        rows.write(f'{{"problem": "x?", "solution": {value}}}\n')
    why = r"row 6: `solution` must be a finite number, not -?(nan|inf)"
    with pytest.raises(ValueError, match=why):
        load(task(f"task.path={file}"))
    assert len(load(task(f"task.path={file}", "task.malformed=drop")).dropped) == 1


TEXT = "\n".join(json.dumps(row) for row in ROWS)
OTHER_FILES = {
    "gzip": gzip.compress(TEXT.encode()),
    "bzip2": bz2.compress(TEXT.encode()),
    "xz": lzma.compress(TEXT.encode()),
    "UTF-16": TEXT.encode("utf-16"),
    "a JSON array": json.dumps(ROWS).encode(),
    "a JSON array ": json.dumps(ROWS, indent=1).encode(),
    "Parquet, whose name must end in .parquet": b"PAR1\x15\x04\x15\xa8",
    "no line is a JSON object": b"question,answer\n1+1?,2\n",
    "no line is a JSON object ": json.dumps(ROWS[0], indent=1).encode(),
}


@pytest.mark.parametrize("why", OTHER_FILES)
def test_a_file_that_is_no_json_lines_is_said_to_be_so(tmp_path, why):
    """No hint to drop its rows: none would be left."""
    file = tmp_path / "mine.jsonl"
    file.write_bytes(OTHER_FILES[why])
    for rows in ("fail", "drop"):
        with pytest.raises(ValueError) as error:
            load(task(f"task.path={file}", f"task.malformed={rows}"))
        message = str(error.value)
        assert message.startswith(f"task.path={file}: cannot read mine.jsonl (")
        assert f"{why.strip()}; each line must be like {{" in message
        assert "drop" not in message and "\n" not in message


@pytest.mark.parametrize("answer", ["nan", "-inf"])
def test_a_function_and_a_test_set_of_integers_give_no_such_gold_either(
    answer, module, monkeypatch
):
    mine = composed("task=own", "task.make=their_task:riddles", *KEYS[1:]).task
    made = [("A?", "a"), ("B?", float(answer))], [("C?", 3)]
    monkeypatch.setattr(sys.modules["their_task"], "riddles", lambda: made)
    with pytest.raises(ValueError, match=r"train list row 2: `answer` must be a finite number"):
        load(mine)
    with pytest.raises(ValueError, match="`answer` must be a finite number, not "):
        read_integer({"problem": "p?", "answer": float(answer)})


def test_numbers_of_numpy_are_numbers(module, monkeypatch):
    """As in the rows of a data frame."""
    frame = [("A?", np.float64(1.5)), ("B?", np.int64(5)), ("C?", np.float32(0.1)), ("D?", 5.0)]
    mine = composed("task=own", "task.make=their_task:riddles", *KEYS[1:]).task
    monkeypatch.setattr(sys.modules["their_task"], "riddles", lambda: (frame, [("E?", 3)]))
    assert [problem.gold for problem in load(mine).train] == ["1.5", "5", "0.1", "5"]
    monkeypatch.setattr(sys.modules["their_task"], "riddles", lambda: (frame, [("E?", np.True_)]))
    with pytest.raises(ValueError, match="`answer` must be text, not bool"):
        load(mine)


def test_the_division_depends_on_the_questions_alone(tmp_path):
    rows = [{"problem": f"{k}?", "solution": k} for k in range(20)]

    def questions(rows):
        loaded = load(task(f"task.path={write_rows(tmp_path / 'mine.jsonl', rows)}"))
        return [{p.question for p in split} for split in (loaded.train, loaded.test)]

    train, test = questions(rows)
    assert train | test == {f"{k}?" for k in range(20)}
    assert questions(rows[::-1]) == [train, test]
    assert [len(questions(rows[:n])[1]) for n in (20, 9, 2)] == [4, 2, 1]  # a fifth: 1.8 are 2


def test_two_files_and_a_folder(tmp_path):
    write_rows(tmp_path / "train.jsonl", ROWS[:3])
    test = write_rows(tmp_path / "test.jsonl", ROWS[3:])
    for places in ([f"task.path={tmp_path}"],
                   [f"task.path={tmp_path}/train.jsonl", f"task.test_path={test}"]):  # fmt: skip
        loaded = load(task(*places))
        assert (len(loaded.train), len(loaded.test)) == (3, 2)
    write_rows(tmp_path / "train.jsonl", ROWS[2:])
    with pytest.raises(ValueError, match=r"train.jsonl row 2: repeats the question of test row 1"):
        load(task(f"task.path={tmp_path}"))


NAMED = ("task.question_key=ask", "task.answer_key=label")


def asked(loaded):
    return {problem.question: problem.gold for problem in loaded}


def test_parquet_is_read_as_json_lines_are_and_any_fields_can_be_meant(tmp_path):
    rows = [{"ask": f"{i}+{i}?", "level": i, "label": 2 * i} for i in range(1, 11)]
    file = tmp_path / "mine.parquet"
    pd.DataFrame(rows).to_parquet(file)
    other = write_rows(tmp_path / "mine.jsonl", rows)
    loaded = load(task(f"task.path={file}", *NAMED))
    assert (len(loaded.train), len(loaded.test)) == (8, 2)
    lines = load(task(f"task.path={other}", *NAMED))
    assert (loaded.train, loaded.test) == (lines.train, lines.test)
    assert asked(loaded.train + loaded.test) == {f"{i}+{i}?": str(2 * i) for i in range(1, 11)}
    with pytest.raises(ValueError, match="row 1: `question` or `problem` is missing"):
        load(task(f"task.path={file}"))
    with pytest.raises(ValueError, match="row 1: `text` is missing"):
        load(task(f"task.path={file}", "task.question_key=text"))
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=rf"^task.path={file}: cannot read mine.parquet \("):
        load(task(f"task.path={file}", *NAMED))


@pytest.mark.filterwarnings("ignore")  # of the library
def test_a_data_set_is_read_by_the_hub_s_own_library(tmp_path):
    """It takes a folder as a name, too; nothing is downloaded."""
    folder = tmp_path / "sums"
    folder.mkdir()
    rows = [{"ask": f"{i}+{i}?", "level": i, "label": str(2 * i)} for i in range(1, 5)]
    write_rows(folder / "train.jsonl", rows[:2])
    write_rows(folder / "test.jsonl", rows[2:])
    whole = task(f"task.hub={folder}", *NAMED)
    assert (whole.label(), whole.files()) == ("sums", {"train": None, "test": None})
    check_data([whole])
    loaded = load(whole)
    assert {len(loaded.train), len(loaded.test)} == {1}
    assert asked(loaded.train + loaded.test) == {"1+1?": "2", "2+2?": "4"}

    loaded = load(task(f"task.hub={folder}", "task.hub_test_split=test", *NAMED))
    assert asked(loaded.train) == {"1+1?": "2", "2+2?": "4"}
    assert asked(loaded.test) == {"3+3?": "6", "4+4?": "8"}
    for words, why in (("task.hub_test_split=tests", "tests .on the hub"),
                       ("task.hub_config=other", "train .on the hub")):  # fmt: skip
        with pytest.raises(ValueError, match=rf"^task.hub={folder}: cannot read {folder} {why}"):
            load(task(f"task.hub={folder}", words, *NAMED))


def test_bad_data_leave_no_run_behind_and_doctor_lists_every_problem(tmp_path, capsys):
    file = write_rows(tmp_path / "mine.jsonl", [*ROWS, ROWS[0], {"problem": "no answer"}])
    with pytest.raises(ValueError, match=r"row 6: repeats the question of row 1 \(2 rows are"):
        check_data([task(f"task.path={file}")])
    check_data([task(f"task.path={file}", "task.malformed=drop")])
    words = ["doctor", *KEYS, f"task.path={file}"]
    assert main(words) == 1
    said = capsys.readouterr().out
    for part in ("mine.jsonl row 6: repeats the question of row 1\n", "Apples at 2 each for 1,200?",
                 "mine.jsonl row 7: `answer` or `solution` is missing\n2 malformed rows, 4 train",
                 "(2 rows are malformed, and this is the first; task.malf"):  # fmt: skip
        assert part in said
    main([*words, "task.malformed=drop"])
    assert "rows are malformed" not in capsys.readouterr().out


def test_the_embedded_model_learns_chains_of_ones_own(tmp_path, capsys):
    rows = [{"problem": f"{i} + {i + 1}", "solution": (2 * i + 1) % 10} for i in range(8)]
    words = ["task=jsonl", f"task.path={write_rows(tmp_path / 'sums.jsonl', rows)}"]
    one = load(composed(*words, "task.few_shot=1").task).train[0]
    assert [message["content"] for message in one.messages] == ["0+1?", "#1", "3+4?"]
    assert main(["doctor", *words]) == 0
    bad = [{"problem": "9+1+4", "solution": 14}] + [{"problem": f"{i} and 3"} for i in range(6)]
    write_rows(tmp_path / "sums.jsonl", [*rows, *({"solution": 5, **row} for row in bad)])
    assert main(["doctor", *words]) == 1
    said = capsys.readouterr().out
    assert "row 9: must have another answer: " in said and "modulo ten\n7 malformed rows, " in said
    assert "row 13: must have another question: " in said and "row 14: " not in said


def test_a_task_is_a_function(module):
    mine = composed("task=own", "task.make=their_task:riddles", *KEYS[1:])
    loaded = load(mine.task)
    assert [(p.question, p.gold) for p in loaded.train] == [("A?", "a"), ("B?", "b")]
    assert [(p.question, p.gold) for p in loaded.test] == [("C?", "3")]
    graded = loaded.test_grader.grade("<think>x</think><answer>3 of them</answer>", "3")
    assert (graded.verdict, mine.task.label()) == ("right", "riddles")
    assert len(identity(mine)["make source"]) == 64
    repeats = "train list row 2: repeats the question of test row 1"
    for name, why in (("broken", "must return a train and"), ("leaks", repeats)):
        wrong = composed("task=own", f"task.make=their_task:{name}", KEYS[1]).task
        with pytest.raises(ValueError, match=f"task.make=their_task:{name}: {why}"):
            check_data([wrong])


def test_the_function_of_a_task_is_called_once_per_load(module):
    """Its rows and its `right` are those of one call."""
    mine = composed("task=own", "task.make=their_task:counted", *KEYS[1:]).task
    sys.modules["their_task"].calls = 0
    load(mine)
    assert sys.modules["their_task"].calls == 1


@pytest.mark.parametrize(("reward", "completion", "terms", "total"), [
    ("their_task:short", "1+2=", {"short": -4}, -4), ("correct", "1+2=", {"correct": 1}, 1),
    ("[correct*2,format,their_task:short*0.5]", "1+2=",
     {"correct": 2, "format": 0.2, "short": -2}, 0.2),
    ("[their_task:names_it,their_task:short*-1e-1]", "+2=3",
     {"names_it": 1, "short": 0.4}, 1.4)])  # fmt: skip
def test_the_reward_is_the_weighted_sum_of_its_terms(module, reward, completion, terms, total):
    add = own_reward(composed(f"task.reward={reward}").task)
    grade = Grade("right", True, Parts(1.0, 0.1, 0.1, overlong=-0.25))
    problem = Problem("p", ({"role": "user", "content": "1+2?"},), "3")
    graded = rewarded(add, grade, problem, completion)
    assert dict(graded.terms) == pytest.approx(terms)
    assert graded.reward == pytest.approx(total - 0.25)  # the punishment of length stays


def test_a_reward_that_fails_is_named(module):
    for name, said in (("fails", "KeyError: 'x'"),
                       ("huge", "must return a finite number, not inf")):  # fmt: skip
        why = f"problem p, completion '': {said}"
        add = own_reward(composed(f"task.reward=their_task:{name}").task)
        with pytest.raises(ValueError, match=rf"task.reward=their_task:{name}: {why}"):
            rewarded(add, Grade("right", True, Parts(1.0)), Problem("p", (), "3"), "")


def test_a_run_trains_on_its_own_reward_and_records_its_terms(module, tmp_path):
    overrides = (*ONE_STEP, f"runs_dir={tmp_path}")
    reward = "task.reward=[correct,their_task:short*0.01]"
    [line] = map(json.loads, run_here(*overrides, reward).metrics_path.read_text().splitlines())
    assert line["reward"] == pytest.approx(line["correct"] + line["reward/short"])
    assert line["reward/short"] < 0 and "reward/correct" not in line
    plain, same = composed(*overrides), composed(*overrides, reward)
    other = identity(composed(*overrides, "task.reward=[correct,their_task:names_it*0.01]"))
    assert identity(same)["reward source"] and identity(same) != other  # one file has both
    assert "reward source" not in identity(plain)
    assert series_names([(config, identity(config)) for config in (plain, same)]) == [
        "max_variance 4→2, task.reward=built-in",
        "max_variance 4→2, task.reward=correct+their_task:short*0.01",
    ]
