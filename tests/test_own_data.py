"""Data, rewards and tasks of one's own: rows and sums worked out by hand."""

import json
import textwrap

import pytest
from compose import composed
from running import run_here

from pods.analysis.series_names import series_names
from pods.cli.main import main
from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.parse import ConfigError
from pods.launch.sweep import check_data
from pods.runs.identity import identity
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
KEYS = ("task=jsonl", "task.question_key=problem", "task.answer_key=solution",
        "model=smollm2_135m", "model.few_shot=0")  # fmt: skip
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

    def broken():
        return [("A?",)], []
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "their_task.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def task(*overrides):
    return validate(compose([*KEYS, *overrides])).task


def test_answers_are_numbers_texts_or_worked_solutions(tmp_path):
    file = written(tmp_path / "mine.jsonl", ROWS)
    loaded = load(task(f"task.path={file}", "task.test_fraction=0.2"))
    assert (len(loaded.train), len(loaded.test), loaded.name) == (4, 1, "mine")
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


def test_the_division_depends_on_the_questions_alone(tmp_path):
    rows = [{"problem": f"{k}?", "solution": k} for k in range(20)]

    def questions(rows, fraction):
        file = written(tmp_path / "mine.jsonl", rows)
        loaded = load(task(f"task.path={file}", f"task.test_fraction={fraction}"))
        return [{p.question for p in split} for split in (loaded.train, loaded.test)]

    train, test = questions(rows, 0.25)
    assert len(test) == 5 and train | test == {f"{k}?" for k in range(20)}
    assert questions(rows[::-1], 0.25) == [train, test]
    assert questions(rows, 0.1)[1] < test and len(questions(rows[:3], 0.01)[1]) == 1


def test_two_files_and_a_folder(tmp_path):
    written(tmp_path / "train.jsonl", ROWS[:3])
    test = written(tmp_path / "test.jsonl", ROWS[3:])
    for places in ([f"task.path={tmp_path}"],
                   [f"task.path={tmp_path}/train.jsonl", f"task.test_path={test}"]):  # fmt: skip
        loaded = load(task(*places))
        assert (len(loaded.train), len(loaded.test)) == (3, 2)
    written(tmp_path / "train.jsonl", ROWS[2:])
    with pytest.raises(ValueError, match=r"train.jsonl row 2: repeats the question of test row 1"):
        load(task(f"task.path={tmp_path}"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["task.path=FILE"], "task.test_fraction=null: must be set (0.2, say), or task.test_path"),
        (["task.path=FILE", "task.test_fraction=1.0"], "task.test_fraction=1.0: must be a number"),
        (["task.path=FILE", "task.test_fraction=0.5", "task.test_path=FILE"],
         "task.test_fraction=0.5: must be null where the test set has a file of its own"),
        (["task.path=nowhere.jsonl", "task.test_fraction=0.5"],
         "task.path=nowhere.jsonl: must be a file of JSON lines, or a folder with train.jsonl"),
        ([], "task.path=null: must be set where task=jsonl"),
        (["task.path=FILE", "task.test_fraction=0.5", "model=tiny"], "model=tiny knows only"),
        (["task.path=FILE", "task.test_fraction=0.5", "task.grader=lenient"], "must be exact"),
        (["task=own"], "task.make=null: must be set where task=own"),
        (["task=own", "task.make=nowhere:f"], "task.make=nowhere:f: cannot import it as module:"),
        (["task=chainsum", "model=tiny", "task.reward=nowhere:f"], "cannot import it as module:"),
        (["task=chainsum", "model=tiny", "task.reward=typo"], "must be correct, format, graded or"),
        (["task=chainsum", "model=tiny", "task.reward=[correct,correct*2]"], "each once"),
        (["task.path=FILE", "task.test_fraction=0.5", "task.reward=graded"],
         "task.reward=['graded']: graded must have task=chainsum or countdown"),
        (["task=chainsum", "model=tiny", "task.test_fraction=0.1"], "for task=jsonl only"),
    ],
)  # fmt: skip
def test_bad_keys_end_in_one_line(tmp_path, overrides, message):
    file = written(tmp_path / "mine.jsonl", ROWS)
    with pytest.raises(ConfigError) as error:
        task(*(override.replace("FILE", str(file)) for override in overrides))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_bad_data_leave_no_run_behind(tmp_path):
    file = written(tmp_path / "mine.jsonl", [*ROWS, ROWS[0], {"problem": "no answer"}])
    with pytest.raises(ValueError, match=r"row 6: repeats the question of row 1 \(2 rows are"):
        check_data([task(f"task.path={file}", "task.test_fraction=0.2")])
    check_data([task(f"task.path={file}", "task.test_fraction=0.2", "task.malformed=drop")])


def test_check_data_lists_every_problem(tmp_path, capsys):
    file = written(tmp_path / "mine.jsonl", [*ROWS, ROWS[0], {"problem": "no answer"}])
    words = ["check-data", str(file), *KEYS[1:], "task.test_fraction=0.2"]
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "mine.jsonl row 6: repeats the question of row 1\n" in said
    assert "mine.jsonl row 7: `solution` is missing\n4 train rows, 1 test rows, 2 malformed" in said
    assert "right: 1,200]\nApples at 2 each for 1,200?" in said
    assert main([*words, "task.malformed=drop"]) == 0
    assert main(["check-data", "task=chainsum"]) == 2


def test_a_task_is_a_function(module):
    mine = validate(compose(["task=own", "task.make=their_task:riddles", "model=smollm2_135m",
                             "model.few_shot=0"]))  # fmt: skip
    loaded = load(mine.task)
    assert [(p.question, p.gold) for p in loaded.train] == [("A?", "a"), ("B?", "b")]
    assert [(p.question, p.gold) for p in loaded.test] == [("C?", "3")]
    graded = loaded.test_grader.grade("<think>x</think><answer>3 of them</answer>", "3")
    assert (graded.verdict, loaded.name) == ("right", "riddles")
    assert len(identity(mine)["task source"]) == 64
    broken = ["task=own", "task.make=their_task:broken", "model=smollm2_135m"]
    with pytest.raises(ValueError, match=r"task.make=their_task:broken: must return a train and"):
        check_data([validate(compose(broken)).task])


@pytest.mark.parametrize(
    ("reward", "terms", "total"),
    [
        ("their_task:short", {"short": -4}, -4),
        ("correct", {"correct": 1}, 1),
        ("[correct*2,format,their_task:short*0.5]",
         {"correct": 2, "format": 0.2, "short": -2}, 0.2),
        ("[their_task:names_it,their_task:short*-1e-1]", {"names_it": 1, "short": 0.4}, 1.4),
    ],
)  # fmt: skip
def test_the_reward_is_the_weighted_sum_of_its_terms(module, reward, terms, total):
    config = validate(compose([f"task.reward={reward}"])).task
    add = own_reward(config)
    grade = Grade("right", True, Parts(1.0, 0.1, 0.1, overlong=-0.25))
    graded = add(grade, Problem("p", ({"role": "user", "content": "1+2?"},), "3"), "1+2=")
    if "names_it" in terms:
        graded = add(grade, Problem("p", ({"role": "user", "content": "1+2?"},), "3"), "+2=3")
    assert dict(graded.terms) == pytest.approx(terms)
    assert graded.reward == pytest.approx(total - 0.25)  # the punishment of length stays


@pytest.mark.parametrize(
    ("name", "message"),
    [("fails", "failed on problem p: KeyError: 'x'"),
     ("huge", r"must return a finite number, not inf \(problem p\)")],
)  # fmt: skip
def test_a_reward_that_fails_is_named(module, name, message):
    add = own_reward(validate(compose([f"task.reward=their_task:{name}"])).task)
    with pytest.raises(ValueError, match=rf"task.reward=their_task:{name}: {message}"):
        add(Grade("right", True, Parts(1.0)), Problem("p", (), "3"), "")


def test_a_run_trains_on_its_own_reward_and_records_its_terms(module, tmp_path):
    overrides = ("budget.train_seconds=null", "budget.max_steps=1", "nm.n=4", "nm.m=2",
                 "evaluation.questions=4", "evaluation.repeats=1", "tracking=none",
                 "rollouts_every_steps=1", f"runs_dir={tmp_path}")  # fmt: skip
    reward = "task.reward=[correct,their_task:short*0.01]"
    store = run_here(*overrides, reward)
    [line] = map(json.loads, store.metrics_path.read_text().splitlines())
    assert line["reward"] == pytest.approx(line["correct"] + line["reward/short"])
    assert line["reward/short"] < 0 and "reward/correct" not in line
    same = identity(composed(*overrides, reward))
    other = identity(composed(*overrides, "task.reward=[correct,their_task:names_it*0.01]"))
    assert same["reward source"] != other["reward source"]
    assert "reward source" not in identity(composed(*overrides))


def test_curves_name_their_rewards(module):
    configs = [composed(), composed("task.reward=[correct,their_task:short*0.1]")]
    assert series_names([(config, identity(config)) for config in configs]) == [
        "max_variance 64→16, task.reward=built-in",
        "max_variance 64→16, task.reward=correct+their_task:short*0.1",
    ]
