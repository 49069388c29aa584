"""What a dry run says of evaluations and disk: by hand, and as a run makes them."""

import json

import pytest
from compose import composed
from running import run_here

from pods.launch import dry_run
from pods.launch.evaluation_forecast import (
    count_evaluations,
    count_questions,
    describe_evaluations,
)
from pods.runs.freeze import freeze

STEPS = ("budget.train_seconds=null", "checkpoint.every_train_seconds=null")
MADE = """
def make():
    with open("calls", "a") as file:
        file.write("x")
    return [(f"{n}?", str(n)) for n in range(5)], [(f"{n}!", str(n)) for n in range(7)]
"""


def described(*words):
    config = composed(*words, "dry_run=true")
    return list(describe_evaluations([config], count_questions([config])))


@pytest.mark.parametrize(("preset", "said"), [
    # six hours, at 0 and every half hour; GSM8K has 1,319 test questions
    ("gsm8k_l40s", "13 a run, each of 6,595 answers (1,319 questions × 5)"),
    ("gsm8k_h100x8", "21 a run, each of 1,319 answers (1,319 questions × 1)"),
    ("math_l40s", "13 a run, each of 2,500 answers (500 questions × 5)"),
    ("llm", "7 a run, each of 512 answers (256 questions × 2)"),
    ("quickstart", "11 a run, each of 1,280 answers (256 questions × 5)"),
])  # fmt: skip
def test_the_evaluations_of_a_preset_are_known_without_weights_or_data(preset, said):
    assert described(f"experiment={preset}") == [said]


@pytest.mark.parametrize(("words", "count"), [
    ((*STEPS, "budget.max_steps=7", "checkpoint.every_steps=2"), 5),  # 0, 2, 4, 6 and 7
    ((*STEPS, "budget.max_steps=6", "checkpoint.every_steps=2"), 4),
    ((*STEPS, "budget.max_steps=7", "checkpoint.every_steps=null"), 2),
    ((*STEPS, "budget.max_steps=0", "checkpoint.every_steps=2"), 1),
    # 0.7 / 0.07 is above 10 in floating point
    (("budget.train_seconds=0.7", "checkpoint.every_train_seconds=0.07"), 11),
    (("budget.train_seconds=25", "checkpoint.every_train_seconds=10"), 4),  # 0, 10, 20 and 25
    (("budget.max_steps=7",), None),  # or half a minute
    (("checkpoint.every_steps=100",), None),  # in half a minute
])  # fmt: skip
def test_evaluations_are_counted_by_the_budget(words, count):
    assert count_evaluations(composed(*words)) == count


def test_a_run_makes_as_many_evaluations_and_checkpoints_as_was_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = (*STEPS, "budget.max_steps=3", "checkpoint.every_steps=2", "evaluation.questions=4",
             "evaluation.repeats=2", "nm=n16_m16", "tracking=none")  # fmt: skip
    assert described(*words) == ["3 a run, each of 8 answers (4 questions × 2)"]
    store = run_here(*words)
    made = sorted(store.folder.glob("evaluations/*.jsonl"))
    assert [len(path.read_text().splitlines()) for path in made] == [8] * 3
    assert len(list(store.checkpoints.glob("step-*"))) == 3


def test_if_steps_and_seconds_end_a_run_only_the_places_are_said():
    words = ("budget.max_steps=7", "checkpoint.every_steps=2", "checkpoint.every_train_seconds=90")
    places = "at step 0, every 2 steps, every 1 min 30 s of training and at the end of a run"
    assert described(*words) == [f"{places}, each of 1,280 answers (256 questions × 5)"]


def test_questions_of_ones_own_data_are_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"question": f"1+{n}?", "answer": n}) for n in range(14)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    (tmp_path / "made.py").write_text(MADE)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("model=smollm2_135m", "evaluation.repeats=2", "budget.train_seconds=10",
             "checkpoint.every_train_seconds=1")  # fmt: skip
    own = (*words, "task=jsonl", "task.path=rows.jsonl")
    assert described(*own) == ["11 a run, each of 6 answers (3 questions × 2)"]  # a fifth of 14
    apart = ("task=gsm8k", "task.test_path=rows.jsonl")  # the train split is on the hub
    unknown = ["11 a run, each of 2 answers to every test question"]
    assert described(*words, *apart) == unknown
    assert described(*words, "task=jsonl", "task.path=nowhere.jsonl") == unknown

    made = [composed(*words, "task=own", "task.make=made:make", f"seed={n}") for n in range(3)]
    assert count_questions(made) == [7] * 3 and (tmp_path / "calls").read_text() == "x"


def test_runs_that_differ_have_a_line_each():
    configs = [composed(f"evaluation.repeats={n}", f"seed={n}") for n in (1, 5, 5)]
    first, second = describe_evaluations(configs, count_questions(configs))
    assert first.startswith("in 1 of the runs 11 a run, each of 256 answers (")
    assert second.startswith("in 2 of the runs 11 a run, each of 1,280 answers (")


def test_a_disk_with_too_little_room_is_missing(tmp_path):
    """Of 12.3 GB of weights there are 2,401 copies."""
    words = ("experiment=gsm8k_h100x8", f"runs_dir={tmp_path}", "dry_run=true")
    often = "checkpoint.every_train_seconds=1"
    lines = list(dry_run.show([composed(*words, often)]))
    needed = f"{4 * 3_085_938_688 * (2401 + 2 * 2) / 1e9:,.1f} GB"
    assert f" {needed} of disk (" in lines[1]
    said = f"missing: runs_dir={tmp_path}: must be on a disk with {needed}, and "
    assert [line for line in lines if line.startswith(said)]


def test_what_is_on_the_disk_already_is_not_counted_again(tmp_path):
    config = composed(f"runs_dir={tmp_path}")
    fresh = dry_run._plan(config).bytes
    store = freeze(config)
    store.checkpoints.mkdir()
    (store.checkpoints / "weights").write_bytes(bytes(1000))
    assert dry_run._plan(config).bytes == fresh - 1000
    (store.checkpoints / "weights").write_bytes(bytes(int(fresh) + 1))
    assert dry_run._plan(config).bytes == 0
