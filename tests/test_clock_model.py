"""The clock of another machine: prices by hand, training under it, and what shows its runs."""

import json

import numpy as np
import pandas as pd
import pytest
from compose import composed
from matplotlib.figure import Figure
from pods_lab.plan.model import coefficient, cost_model
from pods_lab.plan.settings import authors_runs, fitted_clock
from running import run_here, science_of
from step_costs import GRID, runs_of, steps_of
from step_costs import study_of as study_of_steps
from studies import refused, write_run

from pods.analysis.figures.specs import accuracy
from pods.analysis.figures.style import x_axis
from pods.analysis.loading.load import load
from pods.analysis.numbers.tables import tables
from pods.cli.main import main
from pods.config.clock_model import L40S, read_clock_model
from pods.runs.files import read_lines
from pods.runs.identity import identity
from pods.runs.store import run_folders
from pods.training.clock import TrainClock

BY_STEPS = ("checkpoint.every_train_seconds=null", "checkpoint.every_steps=1", "prompts_per_step=1")
GRPO = (*BY_STEPS, "arm=grpo", "study=s")
PODS = (*BY_STEPS, "arm=pods", "study=s")
MODELLED = ("budget.clock_model=l40s", "prompts_per_step=1")
POINTS = [(0, 0.0, 2), (1, 4.0, 4), (2, 12.0, 8)]


def rollouts(generated, kept):
    return {"generated_rollouts": generated, "trained_rollouts": kept}


def test_prices_of_ones_own_are_read_with_their_source_and_refused_without_one(tmp_path):
    file = tmp_path / "mine.json"
    mine = {"base": 1, "per_rollout": 0.5, "per_kept": 2, "source": "a card of mine"}
    file.write_text(json.dumps(mine))
    clock = read_clock_model(str(file))
    assert clock.seconds(rollouts(4, 2)) == 7.0 and clock.name == "mine.json"  # 1 + 4/2 + 2 x 2
    for changes, said in (
        ({"per_kept": -1}, "must have a number >= 0 as per_kept, not -1"),
        ({"base": 0, "per_rollout": 0}, "must have a base or per_rollout above 0"),
        ({"per_card": 1}, "must be l40s, or .*per_card"),
        ({"source": ""}, "must have a source"),
    ):
        file.write_text(json.dumps(mine | changes))
        with pytest.raises(ValueError, match=said):
            read_clock_model(str(file))
    for wrong, said in {"l41s": "must be l40s, or a JSON file", "no.json": "No such file"}.items():
        with pytest.raises(ValueError, match=said):
            read_clock_model(wrong)


def test_a_step_costs_what_the_published_prices_say():
    # 4.4 + 0.058 x 64 + 0.123 x 16 = 4.4 + 3.712 + 1.968
    assert L40S.seconds(rollouts(64, 16)) == pytest.approx(10.08)
    assert L40S.seconds(rollouts(16, 16)) == pytest.approx(7.296)
    fit = cost_model(authors_runs())
    prices = [coefficient(fit, term)[0] for term in ("fixed", "generated", "kept")]
    assert [L40S.base, L40S.per_rollout, L40S.per_kept] == pytest.approx(prices, abs=0.02)
    clock = TrainClock(train_seconds=10.0, model=L40S)
    with clock.phase("generate"):
        pass
    assert clock.commit(rollouts(16, 16)) == ({"modelled": pytest.approx(7.296)}, {})
    assert clock.train_seconds == pytest.approx(17.296)
    assert clock.meter.seconds["generate"] > 0  # which phases.json still records


def test_a_measured_run_keeps_its_identity_and_a_modelled_one_has_its_prices():
    default = identity(composed("prompts_per_step=1"))
    modelled = identity(composed(*MODELLED))
    assert not [key for key in default if "clock" in key]
    assert modelled["clock model"]["per_kept"] == 0.123
    assert {k: v for k, v in modelled.items() if k != "clock model"} == default


def test_the_same_seed_gives_the_same_bytes_and_the_budget_ends_by_the_model(tmp_path):
    # one prompt of 16 -> 8: 4.4 + 0.058 x 16 + 0.123 x 8 = 6.312 s per step
    overrides = (*MODELLED, "budget.train_seconds=12", "checkpoint.every_train_seconds=6",
                 "nm.n=16", "nm.m=8", "evaluation.questions=4",
                 "evaluation.repeats=1", "tracking=none")  # fmt: skip
    one, other = (run_here(*overrides, f"runs_dir={tmp_path / name}") for name in "ab")
    lines = read_lines(one.metrics_path)
    assert [line["train_seconds"] for line in lines] == pytest.approx([6.312, 12.624])
    assert {key for key in lines[0] if "seconds" in key} == {"train_seconds", "seconds/modelled"}
    names = [f"step-00000{step}" for step in range(3)]
    assert sorted(path.name for path in one.checkpoints.iterdir()) == names
    assert one.metrics_path.read_bytes() == other.metrics_path.read_bytes()
    assert science_of(one.folder) == science_of(other.folder)
    environment = json.loads((one.folder / "attempts/001/environment.json").read_text())
    assert environment["clock"] == "modelled by l40s"


def test_whatever_shows_modelled_time_says_so(tmp_path, capsys):
    for arm in (GRPO, PODS):
        for seed in (0, 1):
            write_run(tmp_path, POINTS, *arm, *MODELLED, f"seed={seed}")
    study = load(tmp_path / "s", run_folders(tmp_path / "s"))
    assert study.clock == "modelled by l40s" and "0.123 s per rollout trained on" in study.note
    assert "time modelled by l40s" in accuracy(study, tables(study)).caption
    axes = Figure().subplots()
    x_axis(axes, study, 100.0)
    assert axes.get_xlabel() == "training time modelled by l40s (s)"
    for command in ("plot --tables s", "compare --study s", "compare --by mean --study s"):
        assert main([*command.split(), "--runs-dir", str(tmp_path)]) == 0
        assert "modelled by l40s" in capsys.readouterr().out
    folder = tmp_path / "s/figures"
    for file in folder.glob("*.csv"):
        table = pd.read_csv(file)
        assert table.empty or set(table.clock) == {"modelled by l40s"}, file
    assert json.loads((folder / "compare.json").read_text())["clock"] == "modelled by l40s"


def test_measured_and_modelled_runs_are_not_compared(tmp_path, capsys):
    write_run(tmp_path, POINTS, *PODS)
    write_run(tmp_path, POINTS, *GRPO, *MODELLED)
    line = refused(capsys, "compare", "--study", "s", "--runs-dir", tmp_path, "--allow")
    assert "budget.clock_model: must be one for all runs" in line and "measured (1 runs)" in line
    assert "0.058 s per rollout generated + 0.123 s per rollout trained on (1 runs)" in line


def test_a_studys_own_fit_is_a_clock_that_names_it():
    runs = runs_of(GRID)
    fit = fitted_clock(study_of_steps(runs, steps_of(runs)))
    # the constants of those steps: 20 ms, 0.3 ms and 0.5 ms
    assert list(fit.prices().values())[:3] == pytest.approx([0.020, 0.0003, 0.0005])
    apart = pd.concat([runs_of(GRID[:3]), runs_of(GRID[3:], prompts=5)], ignore_index=True)
    assert fit.prompts == 2 and fitted_clock(study_of_steps(apart, steps_of(apart))).prompts is None
    assert "a study" in fit.name and "fitted to 6 runs of a study on A CPU" in fit.source
    few = runs_of([(16, 16), (64, 16)])
    with pytest.raises(ValueError, match="all runs have m = 16"):
        fitted_clock(study_of_steps(few, steps_of(few)))
    two = runs.assign(machine=np.where(runs.n == 16, "A CPU", "another"))
    with pytest.raises(ValueError, match=r"one setting, not of A CPU \| another"):
        fitted_clock(study_of_steps(two, steps_of(two)))
