"""The clock of another machine: prices by hand, curves timed again, and training under it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from compose import composed
from matplotlib.figure import Figure
from running import run_here, science_of
from studies import A, write_run
from test_cost import GRID, runs_of, steps_of
from test_cost import study_of as study_of_steps

from pods.analysis.cost.forecast import overhead
from pods.analysis.cost.model import coefficient, cost_model
from pods.analysis.cost.plan import PlanRequest, fitted_clock
from pods.analysis.cost.price import plan_preset
from pods.analysis.cost.step_time import EIGHT_GPUS, check_comparable, published
from pods.analysis.figures import accuracy
from pods.analysis.outcomes import final_accuracy, mean_accuracy, run_curves, window
from pods.analysis.plots import x_axis
from pods.analysis.retime import retimed
from pods.analysis.study import load
from pods.analysis.tables import tables
from pods.analysis.view import View, choose
from pods.cli.main import main
from pods.config.clock_model import MODELS, read_clock_model
from pods.config.parse import ConfigError
from pods.config.presets import sweep_of
from pods.launch.slurm_resources import timeout_minutes
from pods.runs.files import read_lines
from pods.runs.identity import identity
from pods.runs.store import run_folders
from pods.training.clock import TrainClock

L40S = MODELS["l40s"]
BY_STEPS = ("checkpoint.every_train_seconds=null", "checkpoint.every_steps=1",
            "prompts_per_step=1")  # fmt: skip
GRPO = (*BY_STEPS, "arm=grpo", "study=s")
PODS = (*BY_STEPS, "arm=pods", "study=s")
MODELLED = ("budget.clock=modelled", "budget.clock_model=l40s")


def rollouts(generated, kept, tokens=0, trained=0):
    return {"generated_rollouts": generated, "trained_rollouts": kept,
            "generated_tokens": tokens, "trained_tokens": trained}  # fmt: skip


def test_a_step_costs_what_the_published_prices_say():
    # 4.4 + 0.058 x 64 + 0.123 x 16 = 4.4 + 3.712 + 1.968
    assert L40S.seconds(rollouts(64, 16)) == pytest.approx(10.08)
    assert L40S.seconds(rollouts(16, 16)) == pytest.approx(7.296)
    fit = cost_model(published(), pd.DataFrame())
    prices = [coefficient(fit, term)[0] for term in ("fixed", "generated", "kept")]
    assert [L40S.base, L40S.per_rollout, L40S.per_kept] == pytest.approx(prices, abs=0.02)
    eight = pd.read_csv(EIGHT_GPUS, comment="#")
    for row in eight[eight.hardware == "h100x8"].itertuples():
        groups = row.groups * row.prompts
        seconds = MODELS["h100x8"].seconds(rollouts(groups * row.n, groups * row.m))
        assert seconds == pytest.approx(row.seconds_per_step, abs=0.05)


def test_prices_of_ones_own_are_read_with_their_source_and_refused_without_one(tmp_path):
    file = tmp_path / "mine.json"
    prices = {"base": 1, "per_rollout": 0.5, "per_kept": 2, "per_token": 0.25,
              "per_trained_token": 0.125}  # fmt: skip
    file.write_text(json.dumps({**prices, "source": "a card of mine"}))
    mine = read_clock_model(str(file))
    # 1 + 4 x 0.5 + 2 x 2 + 8 x 0.25 + 16 x 0.125 = 11
    assert mine.seconds(rollouts(4, 2, 8, 16)) == 11.0 and mine.name == "mine.json"
    for changes, said in {
        (("source", " "),): "must say in source what its prices were fitted to",
        (("per_kept", -1),): "must have a number >= 0 as per_kept, not -1",
        (("base", 0), ("per_rollout", 0)): "must have a base or per_rollout above 0",
        (("per_card", 1), ("source", "x")): "without per_card",
    }.items():
        file.write_text(json.dumps({**prices, **dict(changes)}))
        with pytest.raises(ValueError, match=said):
            read_clock_model(str(file))
    for wrong, said in {"l41s": "must be l40s, h100x8, or", "no.json": "No such file"}.items():
        with pytest.raises(ValueError, match=said):
            read_clock_model(wrong)


def test_a_modelled_clock_adds_the_prices_and_measures_nothing():
    clock = TrainClock(train_seconds=10.0, model=L40S)
    with clock.phase("generate"):
        pass
    assert clock.commit(rollouts(16, 16)) == ({"modelled": pytest.approx(7.296)}, {})
    assert clock.train_seconds == pytest.approx(17.296)
    assert clock.meter.seconds["generate"] > 0  # which phases.json still records


@pytest.mark.parametrize(("override", "said"), [
    (("budget.clock=modelled",), "budget.clock_model=null: must be set"),
    (("budget.clock_model=l40s",), "budget.clock_model=l40s: must be null"),
    (("budget.clock=modelled", "budget.clock_model=a.json"), "budget.clock_model=a.json: must be"),
])  # fmt: skip
def test_a_clock_and_its_model_fit_together(override, said):
    with pytest.raises(ConfigError, match=said):
        composed(*override)


def test_a_measured_run_keeps_its_identity_and_a_modelled_one_has_its_prices():
    default, modelled = identity(composed()), identity(composed(*MODELLED))
    assert not [key for key in default if "clock" in key]
    assert modelled["clock model"]["per_kept"] == 0.123
    assert {k: v for k, v in modelled.items() if k != "clock model"} == default
    # by the measured clock twice 30 s and half an hour; a modelled one has no known end
    assert timeout_minutes(composed()) == 31 and timeout_minutes(composed(*MODELLED)) == 24 * 60


def test_the_same_seed_gives_the_same_bytes_and_the_budget_ends_by_the_model(tmp_path):
    # two prompts of 8 -> 4: 4.4 + 0.058 x 16 + 0.123 x 8 = 6.312 s per step
    overrides = (*MODELLED, "budget.train_seconds=12", "checkpoint.every_train_seconds=6",
                 "nm.n=8", "nm.m=4", "prompts_per_step=2", "evaluation.questions=4",
                 "evaluation.repeats=1", "tracking=none")  # fmt: skip
    one, other = (run_here(*overrides, f"runs_dir={tmp_path / name}") for name in "ab")
    lines = read_lines(one.metrics_path)
    assert [line["train_seconds"] for line in lines] == pytest.approx([6.312, 12.624])
    assert {key for key in lines[0] if "seconds" in key} == {"train_seconds", "seconds/modelled"}
    assert sorted(path.name[-6:] for path in one.checkpoints.iterdir()) == [
        "000000", "000001", "000002",
    ]  # fmt: skip
    assert one.metrics_path.read_bytes() == other.metrics_path.read_bytes()
    assert science_of(one.folder) == science_of(other.folder)
    environment = json.loads((one.folder / "attempts/001/environment.json").read_text())
    assert environment["clock"] == "modelled by l40s"


def timed_again(tmp_path, clock=L40S, **view):
    folder = tmp_path / "s"
    return choose(load(folder, run_folders(folder)), View(clock=clock, **view))


def test_finished_runs_are_timed_again_and_compared_where_all_have_a_record(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path, [(0, 0.0, 2), (1, 4.0, 4), (2, 12.0, 8)], *PODS, f"seed={seed}")
        write_run(tmp_path, [(0, 0.0, 2), (1, 2.0, 4), (2, 11.0, 6)], *GRPO, f"seed={seed}")
    study = timed_again(tmp_path)
    at = {name: rows.train_seconds.tolist() for name, rows in study.evaluations.groupby("series")}
    assert at["pods 64→16"] == pytest.approx([0, 10.08, 20.16] * 2)
    assert at["grpo 16→16"] == pytest.approx([0, 7.296, 14.592] * 2)
    assert study.steps["seconds/modelled"].groupby(study.steps.series).max().tolist() == (
        pytest.approx([7.296, 10.08])
    )
    assert not [name for name in study.steps if str(name) in ("seconds/generate", "cpu_seconds")]
    # the window ends with GRPO's record: there PODS is 4.512 of 10.08 s on its way from 4/8 to 8/8
    curves = [run_curves(study, series)[0] for series in ("pods 64→16", "grpo 16→16")]
    span = window(curves)
    assert span.end == pytest.approx(14.592)
    late = 0.5 + 0.5 * 4.512 / 10.08
    assert final_accuracy(curves[0], span) == pytest.approx(late)
    area = 10.08 * (0.25 + 0.5) / 2 + 4.512 * (0.5 + late) / 2
    assert mean_accuracy(curves[0], span) == pytest.approx(area / 14.592)


def test_a_step_that_generates_more_is_charged_for_what_it_logged(tmp_path):
    write_run(tmp_path, [(0, 0.0, 2), (1, 4.0, 4), (2, 12.0, 8)], *PODS)
    study = load(tmp_path / "s", run_folders(tmp_path / "s"))
    steps = study.steps.assign(generated_rollouts=[64, 128], trained_rollouts=[16, 0])
    # 10.08, then 4.4 + 0.058 x 128 = 11.824
    times = retimed(replace(study, steps=steps), L40S).evaluations.train_seconds
    assert times.tolist() == pytest.approx([0, 10.08, 21.904])


def test_whatever_shows_modelled_time_says_so(tmp_path, capsys, monkeypatch):
    for arm in (GRPO, PODS):
        for seed in (0, 1):
            write_run(tmp_path, [(0, 0.0, 2), (1, 4.0, 4), (2, 12.0, 8)], *arm, f"seed={seed}")
    study = timed_again(tmp_path)
    drawing = accuracy(study, tables(study))
    assert "time modelled by l40s" in drawing.caption
    axes = Figure().subplots()
    x_axis(axes, study, 100.0, small=True)
    assert axes.get_xlabel() == "training time modelled by l40s (s)"
    chosen = ["--runs-dir", str(tmp_path), "--clock", "l40s"]
    for command in (["aggregate", "s"], ["compare", "--study", "s"], ["rank", "s"]):
        assert main([*command, *chosen]) == 0
        assert "modelled by l40s" in capsys.readouterr().out
    folder = tmp_path / "s/figures/clock=l40s"
    for file in folder.glob("*.csv"):
        table = pd.read_csv(file)
        assert table.empty or set(table.clock) == {"modelled by l40s"}, file
    for name in ("compare", "rank"):
        assert json.loads((folder / f"{name}.json").read_text())["clock"] == "modelled by l40s"
    assert main(["aggregate", "s", "--runs-dir", str(tmp_path)]) == 0
    assert "clock" not in pd.read_csv(tmp_path / "s/figures/curves.csv")


def test_what_depends_on_the_clock_is_not_timed_again(tmp_path, capsys):
    write_run(tmp_path, A, "study=s", "prompts_per_step=1")
    assert main(["aggregate", "s", "--runs-dir", str(tmp_path), "--clock", "l40s"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "clock=l40s: max_variance 64→16 has checkpoint.every_train_seconds=4" in line
    write_run(tmp_path / "other", A, *PODS, "group_filter=resample", "study=s")
    with pytest.raises(ValueError, match=r"has group_filter=resample under budget\.train_seconds"):
        timed_again(tmp_path / "other")


def test_measured_and_modelled_runs_are_not_compared(tmp_path, capsys):
    points = [(0, 0.0, 2), (1, 4.0, 4), (2, 12.0, 8)]
    write_run(tmp_path, points, *PODS)
    write_run(tmp_path, points, *GRPO, *MODELLED)
    assert main(["compare", "--study", "s", "--runs-dir", str(tmp_path), "--allow-mixed"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    prices = "l40s, 4.4 s + 0.058 s per rollout generated + 0.123 s per rollout trained on"
    assert "budget.clock: must be one for all runs" in line and f"{prices} (1 runs)" in line
    assert "measured (1 runs)" in line
    write_run(tmp_path / "apart", points, *GRPO, *MODELLED)
    study = load(tmp_path / "apart/s", run_folders(tmp_path / "apart/s"))
    assert study.clock == "modelled by l40s" and "0.123 s per rollout trained on" in study.note


def test_a_studys_own_fit_is_a_clock_that_names_it():
    runs = runs_of(GRID)
    fit = fitted_clock(study_of_steps(runs, steps_of(runs)))
    # the constants of those steps: 20 ms, 0.3 ms and 0.5 ms
    assert list(fit.prices().values())[:3] == pytest.approx([0.020, 0.0003, 0.0005])
    assert "a study" in fit.name and "fitted to 6 runs of a study on A CPU" in fit.source
    few = runs_of([(16, 16), (64, 16)])
    with pytest.raises(ValueError, match="all runs have m = 16"):
        fitted_clock(study_of_steps(few, steps_of(few)))
    two = runs.assign(machine=np.where(runs.n == 16, "A CPU", "another"))
    with pytest.raises(ValueError, match=r"one setting, not of A CPU \| another"):
        fitted_clock(study_of_steps(two, steps_of(two)))


def test_a_modelled_clock_says_nothing_about_what_runs_take(tmp_path):
    sweep = sweep_of("quickstart", "cpu", None)
    jobs = replace(sweep, configs=(composed(*MODELLED),))
    with pytest.raises(ValueError, match=r"budget\.clock=modelled: must be measured"):
        plan_preset("quickstart", jobs, PlanRequest(), None)
    with pytest.raises(ValueError, match=r"from=s: its runs have budget\.clock=modelled"):
        check_comparable(composed(), composed(*MODELLED), "s")
    write_run(tmp_path, [(0, 0.0, 2), (1, 4.0, 4), (2, 12.0, 8)], *PODS, *MODELLED)
    runs = load(tmp_path / "s", run_folders(tmp_path / "s")).runs
    assert np.isnan(overhead(runs)) and runs.wall_seconds.notna().all()


def test_a_clock_that_is_unknown_is_refused_with_what_there_is(tmp_path, capsys):
    write_run(tmp_path, A, *PODS)
    assert main(["aggregate", "s", "--runs-dir", str(tmp_path), "--clock", "l41s"]) == 2
    assert "clock=l41s: must be l40s, h100x8, a JSON file" in capsys.readouterr().err
