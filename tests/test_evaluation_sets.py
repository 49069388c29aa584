"""Training on one data set and evaluating on another: prompts, grades and changed data."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compose import composed
from rows import every
from running import SHORT, run_here, science_of
from test_data import config, problem, row, write

from pods.analysis.study import IncompleteStudy
from pods.analysis.study import load as load_study
from pods.analysis.tables import readable, tables
from pods.cli.main import main
from pods.launch import job
from pods.launch.backend import Outcome
from pods.runs.attempts import new_attempt, recorded_changes
from pods.runs.evaluations import EvaluationRecord, Point, is_evaluated
from pods.runs.files import read_lines
from pods.runs.freeze import Changed, check_unchanged, freeze
from pods.runs.store import RunStore
from pods.seeding import evaluation_seed, evaluation_seeds
from pods.tasks.datasets import aime24, amc23, minerva, olympiad
from pods.tasks.load import load, load_further
from pods.training.evaluate import already_done, evaluate, evaluation_questions
from pods.types import Rollout, Sampling

HALF = {"problem": "What is 2 / 4?", "solution": "", "answer": r"\frac{1}{2}"}
SIX = {"question": "What is 2 * 3?", "answer": 6.0, "url": "x"}


def lines(folder: Path, *rows: dict, name: str = "other.jsonl") -> str:
    """Write a file of these rows, and return its path."""
    path = folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)


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
    rows = [{name: getattr(one, name) for name in one.__slots__} for one in chunk]
    assert already_done(settings, task, 0, rows) == len(rows)
    return chunk


def test_repeats_have_seeds_of_their_own_and_the_sampling_of_the_evaluation(folder):
    task, calls = load(config(folder)), []

    class Cut(Script):
        def generate(self, request, on_completion=None):
            calls.append((list(request.prompts), request.n, request.sampling, request.seeds))
            text = "<answer>9,000</answer>"  # right, but without the thought of the form
            return [[Rollout((1, 2, 3), (4, 5), np.zeros(2, np.float32), text, False)]] * 2

    settings = composed(
        "seed=3",
        "evaluation.repeats=2",
        "evaluation.temperature=0.25",
        "sampling.max_completion_tokens=17",
    )
    [chunk] = evaluate(settings, task, [(1, 2, 3)], Cut(), step=7, done=0)
    seeds = [evaluation_seed(3, 7, repeat, 0) for repeat in (0, 1)]
    assert calls == [([(1, 2, 3)] * 2, 1, Sampling(0.25, 17), seeds)] and seeds[0] != seeds[1]
    assert chunk == [
        EvaluationRecord(
            repeat,
            "test-00000",
            correct=True,
            format=False,
            lenient=True,
            verdict="right",
            length=2,
            finished=False,
            seed=seed,
        )
        for repeat, seed in enumerate(seeds)
    ]


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
    assert [one.gold for one in task.train + task.test] == [
        "2000",
        "3000",
        r"\frac{1}{2}",
        r"\frac{3}{4}",
    ]
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
    other = lines(folder, SIX)
    task = load(config(folder, grader="lenient", test_set="amc23", test_path=other))
    assert task.train_grader.grade("so it is 2000", "2000").reward == 1.0
    assert task.test_grader.grade("so it is 6", "6").reward == 0.0


def test_a_file_may_replace_the_tasks_own_test_set(folder):
    (folder / "other.jsonl").write_bytes(row(7, "test") + b"\n")
    task = load(config(folder, test_path=str(folder / "other.jsonl")))
    assert [one.gold for one in task.test] == ["7000"]
    [record] = records(task, "7000")
    assert record.lenient is True


@pytest.mark.parametrize("answer", [27, 27.0, "27", "27.0", " 27.00 "])
def test_answers_of_amc_are_integers_as_numbers_or_text(answer):
    assert amc23.read_row({"question": "q", "answer": answer}) == ("q", "", "27")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"answer": 27.5}, "the answer must be an integer, not '27.5'"),
        ({"answer": "(A)"}, "the answer must be an integer, not '(A)'"),
        ({"answer": float("inf")}, "the answer must be an integer, not 'inf'"),
        ({"answer": "nan"}, "the answer must be an integer, not 'nan'"),
        ({"answer": True}, "`answer` must be text, not bool"),
        ({"answer": None}, "`answer` must be text, not NoneType"),
        ({}, "`answer` is missing"),
        ({"answer": 6, "question": " "}, "`question` is blank"),
    ],
)
def test_a_malformed_row_of_amc_is_reported_or_dropped(folder, fields, why):
    with pytest.raises(ValueError) as error:
        amc23.read_row({"question": "q"} | fields)
    assert str(error.value) == why
    if fields.get("answer") == 27.5:
        other = lines(folder, SIX, {"question": "q"} | fields)
        keys = {"test_set": "amc23", "test_path": other}
        message = rf"^task.test_path={other}: other.jsonl row 2: {why} \(task.malformed=drop drops"
        with pytest.raises(ValueError, match=message):
            load(config(folder, **keys))
        task = load(config(folder, **keys, malformed="drop"))
        assert [one.gold for one in task.test] == ["6"]
        assert task.dropped == (f"other.jsonl row 2: {why}",)


def test_amc_is_read_from_the_hub_and_graded_as_math(folder, monkeypatch):
    def load_dataset(name, subset=None, split=None):
        assert (name, subset, split) == ("zwhe99/amc23", None, "test")
        return [SIX]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    task = load(config(folder, test_set="amc23"))  # trained on the folder
    assert [len(task.train), len(task.test)] == [3, 1]
    [record] = records(task, r"<answer>\frac{12}{2}</answer>")
    assert record.correct and record.lenient is None


def test_a_train_problem_that_is_also_in_another_test_set_is_malformed(folder):
    other = lines(folder, HALF, HALF | {"problem": "What is 2 thousand, train?"})
    keys = {"test_set": "math500", "test_path": other}
    with pytest.raises(
        ValueError, match=r"^task.path=.*: train.jsonl row 2: .* question of test row 2 \(task"
    ):
        load(config(folder, **keys))
    task = load(config(folder, **keys, malformed="drop"))
    assert [one.id for one in task.train] == ["train-00000", "train-00002"]


def test_a_test_file_that_is_missing_or_too_short_is_an_error(folder):
    message = (
        r"^task.test_path=gone.jsonl: cannot read gone.jsonl \(.*\); give a file of JSON lines$"
    )
    with pytest.raises(ValueError, match=message):
        load(config(folder, test_set="amc23", test_path="gone.jsonl"))
    with pytest.raises(ValueError) as error:  # HF_HUB_OFFLINE, in conftest.py
        load(config(folder, test_set="amc23"))
    assert str(error.value).startswith("task.test_path=null: cannot read zwhe99/amc23 test (on the")
    assert str(error.value).endswith("); give a file of JSON lines")
    assert "\n" not in str(error.value)
    other = lines(folder, SIX)
    with pytest.raises(ValueError, match=r"^task.test_size=2: must be at most 1, .* other.jsonl"):
        load(config(folder, test_set="amc23", test_path=other, test_size=2))


def test_a_run_does_not_resume_with_another_test_file(folder, tmp_path):
    other = lines(folder, SIX)
    settings = composed(
        "task=gsm8k",
        f"task.path={folder}",
        "task.test_set=amc23",
        f"task.test_path={other}",
        f"runs_dir={tmp_path / 'runs'}",
        "model=smollm2_135m",
    )
    store = freeze(settings)
    assert check_unchanged(store, settings) == []
    lines(folder, SIX | {"answer": 7.0})
    with pytest.raises(Changed, match=r"\n  data: \[.*\] -> \[.*\]\n"):
        check_unchanged(store, settings)
    [change] = check_unchanged(store, replace(settings, allow_changed=True))
    assert change.startswith("data: ")
    assert freeze(settings).folder != store.folder


# further test sets

READ = [
    (aime24, {"problem": "p", "answer": 204}, "204"),
    (aime24, {"problem": "p", "answer": "025"}, "25"),
    (aime24, {"problem": "p", "solution": r"so $\boxed{033}$."}, "33"),
    (minerva, {"problem": "p", "solution": r"it is $\boxed{4.5e33} \mathrm{erg}$"}, "4.5e33"),
    (minerva, {"question": "p", "answer": r"\arcsin(10/13)"}, r"\arcsin(10/13)"),
    (olympiad, {"question": "p", "final_answer": ["$2$"], "unit": None}, "2"),
    (olympiad, {"question": "p", "final_answer": ["$69$,$84$"]}, "69,84"),
]
REFUSED = [
    (aime24, {"problem": "p", "answer": 0.5}, "the answer must be an integer, not '0.5'"),
    (aime24, {"problem": "p"}, "`solution` is missing"),
    (aime24, {"problem": "p", "solution": "no box"}, "the solution has no \\boxed{}"),
    (minerva, {"problem": "p", "solution": "no box"}, "the solution has no \\boxed{}"),
    (minerva, {"solution": r"\boxed{1}"}, "`question` is missing"),
    (olympiad, {"question": "p", "final_answer": []}, "`final_answer` must be a list of one text"),
    (olympiad, {"question": "p", "final_answer": [2]}, "`final_answer` must be text, not int"),
    (olympiad, {"question": "p"}, "`final_answer` must be a list of one text"),
]


def test_rows_of_aime_minerva_and_olympiad_bench():
    """The fields are those of QwenLM/Qwen2.5-Math, evaluation/data at a45202b, and of the hub."""

    def read(dataset, fields, gold):
        assert dataset.read_row(fields) == ("p", "", gold)

    def refuse(dataset, fields, why):
        with pytest.raises(ValueError) as error:
            dataset.read_row(fields)
        assert str(error.value) == why

    every(READ, read)
    every(REFUSED, refuse)


@pytest.mark.parametrize(
    ("text", "given", "verdict"),
    [
        ("4.5e33", r"4.5 \times 10^{33}", "right"),
        ("4.5e33", "4.5e33", "right"),
        ("4.5e33", r"4.6 \times 10^{33}", "wrong"),
        ("1e-5", "10^{-5}", "right"),
        ("-1./3", r"-\frac13", "right"),
        ("1.6", "1.61", "wrong"),  # no tolerance
    ],
)
def test_numbers_of_minerva_may_be_given_as_mathematics(folder, text, given, verdict):
    (folder / "sets").mkdir()
    lines(folder / "sets", {"question": "p", "answer": text}, name="minerva.jsonl")
    words = ("task=gsm8k", f"task.path={folder}", "model=smollm2_135m", "task.answer_format=tag")
    keys = ("evaluation.sets=[minerva]", f"evaluation.sets_path={folder / 'sets'}")
    settings = composed(*words, *keys)
    task = load_further(settings, load(settings.task))["minerva"]
    [problem] = task.test
    answer = f"<answer>{given}</answer>"
    assert task.test_grader.grade(answer, problem.gold).verdict == verdict


def test_a_further_test_set_is_worded_like_the_task_and_graded_by_its_own_rules(folder, capsys):
    sets = folder / "sets"
    sets.mkdir()
    trained = {"question": "What is  2 thousand, train?", "answer": 2000}
    lines(sets, SIX, SIX, trained, {"question": "no answer"}, name="amc23.jsonl")
    (sets / "gsm8k.jsonl").write_bytes(row(7, "test"))
    lines(sets, {"question": "Which?", "final_answer": ["$1$, $2$"]}, name="olympiad.jsonl")
    settings = composed(
        "task=gsm8k", "model=smollm2_135m", f"task.path={folder}", "task.few_shot=1",
        "evaluation.sets=[amc23,gsm8k,olympiad]", f"evaluation.sets_path={sets}",
    )  # fmt: skip
    task = load(settings.task)
    further = load_further(settings, task)
    assert list(further) == ["amc23", "gsm8k", "olympiad"]
    [six] = further["amc23"].test
    assert six.id == "amc23-00000" and six.gold == "6"
    assert six.messages[:-1] == task.test[0].messages[:-1] and len(six.messages) == 4
    why = [reason.partition(": ")[2] for reason in further["amc23"].dropped]
    assert why == [
        "repeats the question of row 1", "repeats the question of a training problem",
        "`answer` is missing",
    ]  # fmt: skip
    assert "dropped 3 of 4 test rows: amc23.jsonl row 2: " in capsys.readouterr().out
    numbers, maths = further["gsm8k"].test_grader, further["olympiad"].test_grader
    assert numbers.lenient is not None and maths.lenient is None
    form = {"tag": "<answer>%s</answer>", "hash": "#### %s", "boxed": r"\boxed{%s}"}
    write = form[settings.task.answer_format]
    assert numbers.grade(write % "$7,000.00", "7000").verdict == "right"
    assert maths.grade(write % "2, 1", further["olympiad"].test[0].gold).verdict == "right"
    assert [numbers.given(write % text) for text in ("$1,200.50", " x  y ")] == ["2401/2", "x y"]
    assert maths.given("no answer") is None
    lines(sets, trained, name="amc23.jsonl")
    with pytest.raises(
        ValueError, match=r"^evaluation.sets_path=.*: amc23.jsonl has no usable row"
    ):
        load_further(settings, task)


def test_seeds_of_test_sets_differ_from_each_other():
    seeds = [evaluation_seeds(3, 100, 1, 5, name) for name in ("", "amc23", "gsm8k")]
    assert len({seed for of_set in seeds for seed in of_set}) == 15
    assert seeds[1] == [evaluation_seed(3, 100, 1, q, "amc23") for q in range(5)]


CHAINS = [("1+2+3?", 6), ("9-4+1?", 6), ("8+8-7?", 9), ("2-5+5-1?", 1), ("7+0+4?", 1)]
SMALL = (*SHORT, "nm.n=8", "nm.m=4", "engine.max_rows=8", "evaluation.questions=4")


def chains(folder: Path, name: str = "gsm8k") -> Path:
    """Write chains as a further test set; evaluation.questions takes the first four."""
    folder.mkdir(exist_ok=True)
    answer = {"gsm8k": "so #### {}", "amc23": "{}"}[name]
    rows = [{"question": text, "answer": answer.format(value)} for text, value in CHAINS]
    lines(folder, *rows, name=f"{name}.jsonl")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run with two further test sets, the same run with none, and the folder of the sets."""
    folder = tmp_path_factory.mktemp("further")
    sets = chains(chains(folder / "sets"), "amc23")
    keys = ("evaluation.sets=[gsm8k,amc23]", f"evaluation.sets_path={sets}")
    some = run_here(*SMALL, *keys, f"runs_dir={folder / 'some'}")
    return some, run_here(*SMALL, f"runs_dir={folder / 'none'}"), sets


@pytest.fixture
def copies(runs, tmp_path):
    """Copies of the two runs, to be changed, and the folder of the sets."""
    made = [
        RunStore(Path(shutil.copytree(store.folder, tmp_path / store.folder.relative_to(
            store.folder.parents[4]
        ))))
        for store in runs[:2]
    ]  # fmt: skip
    return *made, runs[2]


def further_files(store: RunStore) -> dict[str, bytes]:
    folder = store.folder / "evaluations"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*")}


def test_further_test_sets_change_nothing_else_of_a_run(runs):
    some, none, _ = runs
    assert some.folder.name == none.folder.name and science_of(some.folder) == science_of(
        none.folder
    )
    assert some.data() == none.data() and further_files(none) == {}
    assert some.status()["accuracy"] == none.status()["accuracy"]
    for step in (0, 2, 4):
        for name in ("gsm8k", "amc23"):
            rows = read_lines(some.evaluation_path(step, name))
            assert [row["question"] for row in rows] == [f"{name}-{q:05d}" for q in range(4)] * 2
            assert is_evaluated(some, some.config(), step, 4, name)
            for answer in rows:
                right = str(CHAINS[int(answer["question"][-5:])][1])
                assert answer["correct"] == (answer["answer"] == right)
    assert some.set_data("gsm8k")["problems"] == 4
    assert some.set_data("gsm8k")["sha256"] != some.set_data("amc23")["sha256"]


def on(store: RunStore, sets: Path, *points: Point) -> int:
    attempt = new_attempt(store, "reevaluations")
    return job.execute(store.folder, attempt, evaluate=points, sets_path=str(sets))


def test_a_finished_run_is_evaluated_on_a_further_test_set_byte_for_byte(runs, copies):
    """In part from what an evaluation that was killed has left; its own evaluations stay."""
    _, bare, sets = copies
    before, whole = science_of(bare.folder), further_files(runs[0])
    path = bare.evaluation_path(2, "amc23")
    path.parent.mkdir()
    text = whole["amc23/step-000002.jsonl"]
    path.with_name(f"{path.name}.tmp").write_bytes(text[: len(text) // 2])
    points = [Point(step, name) for step in (0, 2, 4) for name in ("gsm8k", "amc23")]
    assert on(bare, sets, *points) == job.DONE
    assert further_files(bare) == whole and science_of(bare.folder) == before
    assert recorded_changes(bare) == [] and bare.config().evaluation.sets == []


def test_a_run_makes_lost_evaluations_on_further_sets_again_before_it_is_done(runs, copies):
    some, _, _ = copies
    some.evaluation_path(2, "gsm8k").unlink()
    some.evaluation_path(4, "amc23").write_bytes(b"cut off")
    some.set_status(state="preempted")
    assert job.execute(some.folder) == job.DONE and some.status()["state"] == "done"
    assert further_files(some) == further_files(runs[0])
    assert science_of(some.folder) == science_of(runs[0].folder)


def test_only_what_is_missing_on_a_set_is_evaluated(copies, monkeypatch, capsys):
    some, bare, sets = copies
    todo = []

    def note(jobs, at_once):
        todo.extend(jobs)
        return Outcome(stopped=False, exit_codes=[job.DONE])

    monkeypatch.setattr("pods.cli.evaluate._evaluate", note)
    gone = [some.evaluation_path(2, "gsm8k"), bare.evaluation_path(4)]
    for path in gone:
        path.unlink()
    verb = ["evaluate", "--runs-dir"]
    for words, store, points in (
        ([], some, {Point(2, "gsm8k")}),
        ([], bare, {Point(4)}),
        (["--on", "gsm8k"], some, {Point(2, "gsm8k")}),
        (["--on", "gsm8k", "--sets-path", str(sets)], bare, {Point(s, "gsm8k") for s in (0, 2, 4)}),
    ):
        todo.clear()
        assert main([*verb, str(store.folder.parents[3]), *words]) == 0
        [made] = todo
        assert set(made.evaluate) == points, words
    assert main([*verb, str(some.folder.parents[3]), "--on", "amc23"]) == 0
    assert capsys.readouterr().out == "1 runs, 3 evaluations: nothing is missing\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--on aime", "--on=aime: must be one of gsm8k, math500, amc23, aime24, minerva, olympiad"),
        ("--on math500 --sets-path SETS",
         "--sets-path=SETS: must be a folder with math500.jsonl; it has amc23.jsonl, gsm8k.jsonl"),
        ("--on math500 --sets-path nowhere",
         "--sets-path=nowhere: must be a folder with math500.jsonl; it has no .jsonl file"),
    ],
)  # fmt: skip
def test_an_unknown_set_or_absent_data_are_one_line(copies, words, line, capsys):
    _, bare, sets = copies
    words = words.replace("SETS", str(sets)).split()
    assert main(["evaluate", "--runs-dir", str(bare.folder.parents[3]), *words]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"error: {line.replace('SETS', str(sets))}\n")


def test_an_evaluation_that_cannot_start_is_refused_before_its_job(copies, monkeypatch, capsys):
    _, bare, sets = copies
    verb = ["evaluate", "--runs-dir", str(bare.folder.parents[3]), "--on"]
    assert main([*verb, "gsm8k"]) == 2
    assert "evaluation.sets=['gsm8k']: model=tiny knows only chainsum" in capsys.readouterr().err
    monkeypatch.setattr("pods.config.checks.find_spec", lambda _: None)
    assert main([*verb, "amc23", "--sets-path", str(sets)]) == 2
    assert "evaluation.sets=amc23: math-verify is not installed" in capsys.readouterr().err


def test_other_questions_of_the_same_name_are_refused(copies, tmp_path, capsys):
    _, bare, sets = copies
    assert on(bare, sets, Point(0, "gsm8k")) == job.DONE
    other = tmp_path / "other"
    other.mkdir()
    lines(other, {"question": "3+3+3?", "answer": "#### 9"}, name="gsm8k.jsonl")
    assert on(bare, other, Point(2, "gsm8k")) == job.FAILED
    [report] = (bare.folder / "reevaluations").glob("002/points.jsonl")
    [failed] = read_lines(report)
    assert "gsm8k has 1 questions with SHA-256 " in failed["error"]
    assert "remove that folder to evaluate on these" in failed["error"]


def test_prompts_that_are_too_long_are_one_line_before_the_model_is_loaded(tmp_path, capsys):
    sets = tmp_path / "sets"
    sets.mkdir()
    lines(sets, {"question": "1+1+" * 20 + "1?", "answer": 1}, name="amc23.jsonl")
    keys = ("evaluation.sets=[amc23]", f"evaluation.sets_path={sets}")
    store = freeze(composed(*SMALL, *keys, f"runs_dir={tmp_path / 'runs'}"))
    assert job.execute(store.folder) == job.FAILED
    error = store.status()["error"]
    assert error == "ValueError: sampling.max_prompt_tokens=32: none of the 1 amc23 prompts fits"
    assert not store.checkpoints.exists() and not store.data_path.exists()


def test_tables_have_each_set_and_miss_only_what_the_config_asks_for(copies):
    some, bare, sets = copies
    study = load_study(some.folder.parents[2], [some.folder])
    assert study.further_sets == ["amc23", "gsm8k"]
    found, shown = study.on("gsm8k"), tables(study).summary.iloc[0]
    assert found.step.tolist() == [0, 2, 4]
    rows = read_lines(some.evaluation_path(4, "gsm8k"))
    right = [[row["correct"] for row in rows[q::4]] for q in range(4)]
    assert found.accuracy.iloc[-1] == sum(map(sum, right)) / 8 == shown["gsm8k/accuracy"]
    assert found["pass@2"].iloc[-1] == sum(map(any, right)) / 4 == shown["gsm8k/pass@2"]
    votes = [row["answer"] is not None for row in rows]
    assert all(votes)  # then a vote of two is a tie or unanimous, and its mean is the accuracy
    assert found["maj@2"].iloc[-1] == found.accuracy.iloc[-1]
    assert {"pass@2", "gsm8k", "gsm8k pass@2", "amc23 maj@2"} <= set(
        readable(tables(study).summary)
    )
    with pytest.raises(
        ValueError, match=r"^test set math500: study .* has no evaluation: amc23, g"
    ):
        study.on("math500")
    some.evaluation_path(2, "gsm8k").unlink()
    with pytest.raises(IncompleteStudy, match=r"step 2 on gsm8k: no evaluation$"):
        load_study(some.folder.parents[2], [some.folder])
    study = load_study(some.folder.parents[2], [some.folder], allow_missing=True)
    assert study.runs.complete.tolist() == [True] and study.on("gsm8k").step.tolist() == [0, 4]
    assert on(bare, sets, Point(2, "gsm8k")) == job.DONE
    study = load_study(bare.folder.parents[2], [bare.folder])
    assert study.missing == [] and study.on("gsm8k").step.tolist() == [2]
    assert "gsm8k" not in readable(tables(study).summary)  # nothing at the end of the run
