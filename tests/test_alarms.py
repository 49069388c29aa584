"""Alarms of runs that learn nothing: each on a run that deserves it, none on the default one."""

import json
import shutil
from functools import partial
from unittest.mock import Mock

import pytest
from conftest import finished
from running import run_folder, science_of, start_forked

from pods.cli.main import main
from pods.runs.files import read_lines
from pods.runs.store import RunStore
from pods.training.alarms import ALARM_STEPS, SYMPTOMS, Alarms

STEPS = ("budget.train_seconds=null", "checkpoint.every_steps=null", "evaluation.questions=4",
         "evaluation.repeats=1", "tracking=none", "nm.n=4", "nm.m=2",
         f"budget.max_steps={ALARM_STEPS + 2}")  # fmt: skip
CUT_OFF, NO_VARIANCE, NO_ANSWER, NOT_MOVED = (symptom.meaning for symptom in SYMPTOMS)


def alarms_of(tmp_path):
    return RunStore(run_folder(tmp_path)).status()["alarms"]


@pytest.mark.parametrize(("column", "bad", "good"), [
    ("truncated", 0.8, 0.79),
    ("zero_variance_fraction", 1.0, 0.99),
    ("no_answer", 1.0, 0.99),
    ("engine_change", 0.0, 1e-9),
])  # fmt: skip
def test_twenty_steps_in_a_row_are_one_alarm_and_a_step_between_them_ends_the_row(
    column, bad, good
):
    alarms = Alarms(Mock(), Mock())
    for value in [bad] * 19 + [good] + [bad] * 10 + [None] * 5 + [bad] * 9:
        assert alarms.observe({column: value}) == []
    assert len(alarms.observe({column: bad})) == 1
    for value in [bad] * 30 + [good] + [bad] * 30:  # once in a run
        assert alarms.observe({column: value}) == []
    assert len(alarms.raised) == 1


def test_completions_that_are_all_cut_off_are_three_alarms_that_status_shows(
    run_py, tmp_path, monkeypatch, capsys
):
    result = run_py(*STEPS, "sampling.max_completion_tokens=2")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "alarm" in line]
    expected = [f"{meaning}, 20 steps in a row" for meaning in (CUT_OFF, NO_VARIANCE, NO_ANSWER)]
    assert lines == [f"alarm: step 20: {alarm}" for alarm in expected]
    assert alarms_of(tmp_path) == expected

    monkeypatch.chdir(tmp_path)
    assert main(["status", "default"]) == 0
    assert "; ".join(f"alarm: {alarm}" for alarm in expected) in capsys.readouterr().out
    assert main(["status", "default", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["alarms"] == expected


@pytest.mark.parametrize(("rate", "alarms", "measured"), [
    ("1e-30", [f"{NOT_MOVED}, 20 steps in a row"], ALARM_STEPS + 2),
    ("1e-3", [], 2),
])  # fmt: skip
def test_an_adapter_that_never_moves_the_engine_is_an_alarm(
    rate, alarms, measured, run_py, tmp_path
):
    result = run_py(*STEPS, "model.tuning=lora", f"update.lr={rate}", "prompts_per_step=4")
    assert result.returncode == 0, result.stderr
    assert alarms_of(tmp_path) == alarms
    assert result.stdout.count("alarm: step 20: ") == len(alarms)
    lines = read_lines(run_folder(tmp_path) / "metrics.jsonl")
    changes = [line.get("engine_change") for line in lines]
    assert changes[0] == 0 and None not in changes[:measured]
    assert changes[measured:] == [None] * (len(changes) - measured)
    assert all((change > 0) == (alarms == []) for change in changes[1:measured])


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_dies_counts_on_from_its_checkpoint(processes, tmp_path):
    words = (*STEPS, f"hardware.processes={processes}", "sampling.max_completion_tokens=2",
             "model.tuning=lora", "update.lr=1e-30", "checkpoint.every_steps=10")  # fmt: skip

    def run(name, *more):
        (tmp_path / name).mkdir(exist_ok=True)
        result = finished(partial(start_forked, tmp_path / name, apart=True), *words, *more)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout.count("alarm: step 2")

    assert run("whole") == 4
    assert run("stopped", "budget.max_steps=15") == 0
    folder = run_folder(tmp_path / "stopped")
    shutil.rmtree(folder / "checkpoints/step-000015")  # as if it had been killed in step 16
    assert run("stopped") == 4
    assert len(alarms_of(tmp_path / "stopped")) == 4
    assert science_of(folder)[0] == science_of(run_folder(tmp_path / "whole"))[0]


def test_the_default_run_raises_none(run_py, tmp_path):
    result = run_py("budget.train_seconds=null", "budget.max_steps=60", "tracking=none",
                    "checkpoint.every_steps=null", "evaluation.questions=4")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "alarm" not in result.stdout and alarms_of(tmp_path) == []
