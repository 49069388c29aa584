"""The page of code in experiments/minimal does what the harness does."""

import itertools
import runpy

import pytest
from compose import ROOT
from running import ONE_STEP, run_here

from pods.method import rules
from pods.runs.files import read_lines

PAGE = runpy.run_path(str(ROOT / "experiments/minimal/train.py"))


def test_its_steps_have_the_rewards_and_losses_of_a_run_of_the_harness(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = run_here(*ONE_STEP, "budget.max_steps=3", "nm.n=8", "nm.m=4")
    trainer = PAGE["Trainer"](n=8, m=4, rule=rules.max_variance)
    seconds, rewards, losses = zip(*itertools.islice(trainer.steps(), 3), strict=True)
    lines = read_lines(store.metrics_path)
    assert list(rewards) == [line["reward"] for line in lines]
    assert losses == pytest.approx([line["loss"] for line in lines], abs=1e-6)
    assert 0 < trainer.accuracy() < 1
    assert 0 < seconds[0] < seconds[1] < seconds[2]
