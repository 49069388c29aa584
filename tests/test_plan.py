"""The cost model against known costs, least squares by hand, break-even and every verdict."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from compose import ROOT, composed
from scipy import stats
from step_costs import EACH_GENERATED, EACH_KEPT, EMPTY, FIXED, GRID, runs_of, steps_of, study_of

from pods.analysis.compare.compare import compare
from pods.analysis.loading.study import Study
from pods.config.parse import ConfigError
from pods_lab.plan import model as costing
from pods_lab.plan.breakeven import Arm, weigh
from pods_lab.plan.least_squares import fit
from pods_lab.plan.model import coefficient, cost_model, per_run, predict, residuals
from pods_lab.plan.plan import parse_nm, plan, plan_authors, predictions
from pods_lab.plan.settings import authors_runs, fitted_clock
from pods_lab.plan.text import arm_lines


def model_of(sizes, **options):
    runs = runs_of(sizes, **options)
    steps = steps_of(runs)
    return cost_model(per_run(runs, steps, pd.DataFrame(columns=EMPTY)))


def test_known_costs_are_recovered():
    model = model_of(GRID)
    costs = [coefficient(model, term)[0] for term in ("fixed", "generated", "kept")]
    assert costs == pytest.approx([FIXED, EACH_GENERATED, EACH_KEPT], rel=1e-9)
    assert model.total.r2 == pytest.approx(1) and model.total.combinations == 6
    generate, update = model.phases["generate"], model.phases["update"]
    assert generate.at({"fixed": 1})[0] == pytest.approx(0.015)
    assert generate.at({"generated": 1})[0] == pytest.approx(EACH_GENERATED)
    assert update.at({"kept": 1})[0] == pytest.approx(EACH_KEPT)
    assert costing.why_not_identifiable(model) == ""
    # 2 prompts: 20 ms + 200 x 0.3 ms + 40 x 0.5 ms = 100 ms
    guess = predict(model, 100, 20)
    assert guess.seconds == pytest.approx(0.100)
    assert guess.phases == pytest.approx({"generate": 0.075, "update": 0.025})
    assert not guess.outside and guess.source == "total"
    # runs of other prompts share the fit
    runs = pd.concat([runs_of(GRID[:3]), runs_of(GRID[3:], prompts=5)], ignore_index=True)
    steps = steps_of(runs)
    model = cost_model(per_run(runs, steps, pd.DataFrame(columns=EMPTY)))
    assert coefficient(model, "kept")[0] == pytest.approx(EACH_KEPT)
    assert predict(model, 10, 10, prompts=7).seconds == pytest.approx(0.020 + 70 * 0.0008)
    assert " x prompts n + " in plan(study_of(runs, steps)).lines[1]


def test_a_run_is_the_mean_of_its_steps_and_without_them_of_its_last_evaluation():
    steps = pd.DataFrame({"run": ["8-4-0-2"] * 2, "seconds/generate": [1.0, 2.0],
                          "seconds/update": [0.5, np.nan]})  # fmt: skip
    evaluations = pd.DataFrame({"run": ["8-2-0-2"] * 2, "step": [0, 4], "train_seconds": [0, 12]})
    table = per_run(runs_of([(8, 4), (8, 2)]), steps, evaluations)
    assert table.seconds.tolist() == [1.75, 3.0]  # (1.5 + 2) / 2; 12 / 4
    assert table.generated.tolist() == [16, 16] and table.kept.tolist() == [8, 4]
    assert table["seconds/update"][0] == 0.5 and np.isnan(table["seconds/update"][1])


def test_a_prediction_has_the_error_of_one_more_run():
    """The error of a new observation combines its own scatter and that of the fit."""
    runs = runs_of(GRID, seeds=(0, 1, 2))
    steps = steps_of(runs)
    steps["seconds/update"] += np.repeat(np.random.default_rng(2).normal(0, 1e-3, len(runs)), 3)
    table = per_run(runs, steps, pd.DataFrame(columns=EMPTY))
    x = np.column_stack([np.ones(len(runs)), 2.0 * runs.n, 2.0 * runs.m])
    seconds = steps.groupby("run", sort=False)[["seconds/generate", "seconds/update"]].mean().sum(1)
    beta, (squares,), *_ = np.linalg.lstsq(x, seconds.to_numpy())
    point, variance = np.array([1, 64, 16]), squares / (len(runs) - 3)
    error = math.sqrt(variance * (1 + point @ np.linalg.inv(x.T @ x) @ point))
    model = cost_model(table)
    guess = predict(model, 32, 8)
    assert (guess.seconds, guess.stderr) == pytest.approx((point @ beta, error), rel=1e-9)
    assert model.total.r2 == pytest.approx(1 - squares / ((seconds - seconds.mean()) ** 2).sum())


def test_residuals_by_hand():
    # at n = 1, 2, 3 of m = 1: 1, 4 and 4 s. Mean 3 at n = 2, slope 1.5: fitted 1.5, 3, 4.5
    table = runs_of([(1, 1), (2, 1), (3, 1)], prompts=1)
    table = table.assign(generated=table.n, kept=table.m, seconds=[1.0, 4.0, 4.0])
    table = residuals(cost_model(table))
    assert table.fitted.tolist() == pytest.approx([1.5, 3, 4.5])
    assert table.residual.tolist() == pytest.approx([-0.5, 1, -0.5])
    assert table.percent.tolist() == pytest.approx([-100 / 3, 100 / 3, -100 / 9])


@pytest.mark.parametrize(("reason", "sizes"), [
    ("all runs have n = 64 and m = 16, so the cost of n and the cost of m", [(64, 16)]),
    ("all runs have m = 16, so the cost of m cannot be", [(16, 16), (64, 16)]),
    ("all runs have n = 64, so the cost of n", [(64, 4), (64, 16), (64, 64)]),
    ("all runs have n = m, so the cost of n cannot be", [(8, 8), (64, 64)]),
    ("n and m rise together", [(16, 4), (64, 16), (32, 8)])])  # fmt: skip
def test_a_cost_that_is_not_identifiable_is_named_and_gets_no_number(reason, sizes):
    runs = runs_of(sizes, seeds=(0, 1))
    report = plan(study_of(runs, steps_of(runs)))
    assert reason in report.lines[1] and "experiment=cost_grid" in report.lines[1]
    row = report.tables["fit"].set_index("what").loc["step"]
    assert np.isnan(row.kept if "m = 16" in reason else row.generated)
    assert row.cells == len(sizes)


def test_sums_of_costs_may_be_identifiable_where_single_ones_are_not():
    model = model_of([(16, 16), (64, 16)])
    assert model.total.at({"generated": 1})[0] == pytest.approx(EACH_GENERATED)
    assert np.isnan(model.total.at({"fixed": 1})[0]) and np.isnan(model.total.at({"kept": 1})[0])
    assert predict(model, 32, 16).seconds == pytest.approx(0.020 + 0.0192 + 0.016)  # m as measured
    assert np.isnan(predict(model, 32, 8).seconds)
    # n = m alone: the total cannot tell 64→16, but each phase has its own driver
    model = model_of([(16, 16), (64, 64)])
    assert predict(model, 32, 32).source == "total"
    guess = predict(model, 64, 16)
    assert guess.source == "phases" and guess.seconds == pytest.approx(0.020 + 0.0384 + 0.016)
    assert coefficient(model, "kept")[0] == pytest.approx(EACH_KEPT)


def test_an_arm_that_resamples_prompts_is_among_the_residuals_but_not_fitted():
    """Resampling has a fixed cost of its own, 15 ms here, that no n explains."""
    runs = runs_of(GRID)
    steps = steps_of(runs).assign(generated_rollouts=np.nan, trained_rollouts=np.nan)
    again = runs_of([(16, 16)]).assign(run="again", series="dapo 16→16", arm="dapo")
    more = steps_of(again).assign(generated_rollouts=96, trained_rollouts=32)
    more["seconds/generate"] = 2 * 0.015 + EACH_GENERATED * 96
    study = study_of(pd.concat([runs, again]), pd.concat([steps, more]))
    table = per_run(study.runs, study.steps, study.evaluations).set_index("run")
    assert table.generated["again"] == 96 and table.generated["16-16-0-2"] == 32
    model = cost_model(table.reset_index())
    assert model.total.at({"generated": 1})[0] == pytest.approx(EACH_GENERATED)
    row = residuals(model).set_index("arm").loc["dapo"]
    assert row.residual == pytest.approx(0.015)
    report = plan(study)
    assert any(line.startswith("- dapo: prompts are resampled or skipped") for line in report.lines)
    assert "dapo 16→16" not in {*report.tables["arms"].expensive, *report.tables["arms"].cheaper}


def test_as_many_sizes_as_coefficients_leave_linearity_unchecked():
    for sizes, unchecked in (([(16, 16), (64, 16), (64, 64)], True), (GRID, False)):
        runs = runs_of(sizes, seeds=range(4))
        lines = plan(study_of(runs, steps_of(runs, noise=0.001))).lines
        assert any("linearity is unchecked" in line for line in lines) == unchecked


def test_predictions_by_hand_are_marked_outside_of_the_measured_range():
    model = model_of(GRID)
    inside, outside = [(16, 4), (128, 64), (20, 10)], [(129, 64), (128, 65), (64, 3), (15, 4)]
    assert [predict(model, n, m).outside for n, m in inside + outside] == [False] * 3 + [True] * 4
    rows = predictions(model, [(100, 20), (16, 16)], 1.01)
    assert rows.steps.tolist() == [11, 23]  # 1.01 / 0.1 and 1.01 / 0.0456, rounded up
    assert rows.train_seconds.tolist() == pytest.approx([1.1, 23 * 0.0456])
    one = fit(pd.DataFrame({"y": [2.0], "n": [3]}), "y", ("fixed",))  # has no error
    assert one.at({"fixed": 1})[0] == 2 and np.isnan(one.at({"fixed": 1})[1])
    assert np.isnan(fit(pd.DataFrame({"y": [], "n": []}), "y", ("fixed", "n")).at({"n": 1})[0])


def arm(name, *seconds):
    runs = [f"{name}-{i}" for i in range(len(seconds))]
    mean, stderr = np.mean(seconds), stats.sem(seconds)
    phases = {"generate": mean - 0.01, "update": 0.01}
    return Arm(name, mean, stderr, phases, frozenset(runs))


def evaluations_of(series, seed, run, points, step_seconds):
    """Make the evaluations of a run from its points (step, accuracy)."""
    table = pd.DataFrame(points, columns=["step", "accuracy"])
    table = table.assign(series=series, seed=seed, run=run)
    return table.assign(train_seconds=step_seconds * table.step)


def accuracies_of(expensive_step=0.2, **arms) -> Study:
    """Make a study from the points of each arm's runs; only `expensive` steps exceed 0.1 s."""
    frames = [
        evaluations_of(name, seed, f"{name}-{seed}", points, seconds)
        for name, runs in arms.items()
        for seconds in [expensive_step if name == "expensive" else 0.1]
        for seed, points in enumerate(runs)
    ]
    evaluations = pd.concat(frames)
    runs = evaluations.drop_duplicates("run")[["series", "seed", "run"]]
    runs = runs.assign(arm=runs.series, rule="max_variance", n=64, m=16, complete=True)
    return study_of(runs, pd.DataFrame(columns=EMPTY), evaluations)


def learning(rate, first=10, last=1000, runs=4, spread=0.02):
    """Give runs whose accuracy rises by `rate` per step, times 1.00, 1.02, ..., and then stays."""
    rates = [rate * (1 + spread * i) for i in range(runs)]
    return [[(s, min(s, last) * r) for s in (0, first, last, 10 * last)] for r in rates]


def targets_of(study, seconds=(0.2,) * 4, cheap=4):
    return pd.DataFrame(weigh(study, arm("cheap", *[0.1] * cheap), arm("expensive", *seconds)))


def verdict_of(*rates):
    expensive, cheap = (learning(rate, last=int(0.9 / rate)) for rate in rates)
    return targets_of(accuracies_of(expensive=expensive, cheap=cheap)).verdict[0]


def test_a_speedup_is_the_steps_ratio_over_the_cost_of_a_step():
    # three times fewer steps at twice the time per step
    study = accuracies_of(expensive=learning(0.003, last=310), cheap=learning(0.001, last=930))
    rows = targets_of(study)
    assert rows.cost.unique() == 2.0 and rows["extra/generate"][0] == pytest.approx(0.1)
    assert rows.steps_ratio.tolist() == pytest.approx([3.0] * len(rows), rel=1e-2)
    assert rows.speedup.tolist() == pytest.approx(rows.steps_ratio / 2)
    reached = rows[rows.target < 0.93]  # in all resamples, where no run differs from another
    for end in (reached.low, reached.high):
        assert end.tolist() == pytest.approx(reached.speedup.tolist())
    assert set(reached.winner) == {"expensive"} == set(rows.verdict)
    assert verdict_of(0.0015, 0.001) == "cheaper"  # 1.5 / 2
    assert verdict_of(0.00205, 0.001) == "undecided"  # 1.025, within 5 %


@pytest.mark.parametrize(("runs", "seeded"), [((4, 4), True), ((4, 4), False), ((3, 8), False)])
def test_the_steps_ratio_and_its_interval_are_those_of_the_comparison(runs, seeded):
    """Paired, as seeds are; and with draws of its own for each arm, of one size or of two."""
    fast = learning(0.003, last=250, runs=runs[0], spread=0.05)
    slow = learning(0.001, last=700, runs=runs[1], spread=0.1)
    study = replace(accuracies_of(expensive=fast, cheap=slow), seeded=seeded)
    names = ["steps_ratio", "low", "high"]
    theirs = compare(study, ["expensive", "cheap"]).speedups
    theirs = theirs[theirs.kind.isin(["fixed", "peak"])].set_index("target")[names]
    ours = targets_of(study, (0.2,) * runs[0], runs[1]).set_index("target")[names]
    assert len(ours) >= 3 and ours.equals(theirs.loc[ours.index])


def test_arms_whose_runs_differ_widely_have_no_winner():
    """Rates of 1 to 3.4 times the lowest: the speed-up is beyond 5 %, its interval is not."""
    for lowest, faster in ((0.0015, True), (0.0009, False)):
        rates = [lowest * factor for factor in (1, 1.8, 2.6, 3.4)]
        wide = [[(0, 0.0), (10, 10 * rate), (1 / rate, 1.0), (9999, 1.0)] for rate in rates]
        rows = targets_of(accuracies_of(expensive=wide, cheap=learning(0.001, last=930)))
        row = rows.set_index("target").loc[0.5]
        # medians of 500 / 0.971 and of the middle two of 500 / rate, over twice the cost
        middle = (1 / 1.8 + 1 / 2.6) / 2
        assert row.speedup == pytest.approx(lowest / 0.001 / middle / 2, rel=0.04)
        assert (row.speedup > 1.05) == faster and row.low < 1 < row.high
        assert set(rows.winner) == {""} and set(rows.verdict) == {"undecided"}


def test_the_cost_of_a_step_and_its_error():
    # means 2 and 1 s; relative errors sd / sqrt(2) / mean: 0.2 / 2 and 0.1 / 1
    (row,) = weigh(accuracies_of(x=learning(0.001)), arm("a", 1.8, 2.2), arm("b", 0.9, 1.1))
    assert (row["expensive"], row["cheaper"]) == ("a", "b")
    assert (row["cost"], row["cost_stderr"]) == pytest.approx((2.0, 2 * math.hypot(0.1, 0.1)))
    assert row["verdict"] == "not timed: an arm has fewer than 3 complete runs"


def test_the_verdict_may_depend_on_the_accuracy():
    # cheap: 0.7 after 100 steps, then 0.2 more in 1900; the expensive arm learns 0.001 a step
    bent = [[(0, 0.0), (10, 0.07), (100, 0.7), (2000, 0.9)]] * 4
    straight = [[(0, 0.0), (10, 0.01), (1000, 1.0), (2000, 1.0)]] * 4
    rows = targets_of(accuracies_of(0.11, expensive=straight, cheap=bent), seconds=(0.11,) * 4)
    by_target = rows.set_index("target")
    assert by_target.speedup[0.5] == pytest.approx(500 / 7 / 500 / 1.1)
    assert by_target.speedup[0.85] == pytest.approx((100 + 1900 * 0.75) / 850 / 1.1)
    assert set(rows.verdict) == {"depends on the accuracy"}
    assert {by_target.winner[0.5], by_target.winner[0.85]} == {"cheaper", "expensive"}
    assert "x as fast" in "\n".join(arm_lines(rows))


def test_what_is_not_measured_is_not_timed():
    """Under two points; and what runs miss: one of four ends at 0.5."""
    flat = learning(0.00001, last=1000)
    [verdict] = targets_of(accuracies_of(expensive=flat, cheap=flat)).verdict
    assert verdict == "not timed: half of the runs of both arms reach no common accuracy"
    cheap = [[(0, 0.0), (10, 0.01), (1000, 0.5 if i == 3 else 1.0)] for i in range(4)]
    rows = targets_of(accuracies_of(expensive=learning(0.004, last=250), cheap=cheap))
    assert rows.high.max() == np.inf and "to inf)" in list(arm_lines(rows))[-1]


def arms_study(pods_rate=0.003, seeds=range(4)):
    """Make a study of grpo 16→16, pods 64→16 and grpo_ga 64→64, which learn a rate per step."""
    runs = runs_of([(16, 16), (64, 16), (64, 64)], seeds=seeds, budget_seconds=30.0)
    names = {16: "grpo 16→16", 64: "grpo_ga 64→64"}
    runs["series"] = np.where(runs.n == runs.m, runs.n.map(names), "pods 64→16")
    rates = {"grpo 16→16": 0.001, "pods 64→16": pods_rate, "grpo_ga 64→64": 0.001}
    step_seconds = {"grpo 16→16": 0.0456, "pods 64→16": 0.0744, "grpo_ga 64→64": 0.1224}
    steps = np.arange(0, 1001, 50)
    frames = [
        evaluations_of(run.series, run.seed, run.run, points, step_seconds[run.series])
        for run in runs.itertuples()
        for rate in [rates[run.series] * (1 + 0.01 * run.seed)]
        for points in [np.stack([steps, np.minimum(1.0, steps * rate)], -1)]
    ]
    return study_of(runs, steps_of(runs, noise=1e-4), pd.concat(frames))


def test_the_text_names_the_arm_the_factor_and_the_phase():
    def said(**options):
        return "\n".join(plan(arms_study(**options)).lines)

    pairs = plan(arms_study()).tables["arms"]
    arms = pairs.drop_duplicates(["expensive", "cheaper"])
    assert arms.expensive.tolist() == ["pods 64→16", "grpo_ga 64→64"]
    assert arms.cheaper.tolist() == ["grpo 16→16", "pods 64→16"]
    # 45.6, 74.4 and 122.4 ms
    assert arms.cost.tolist() == pytest.approx([74.4 / 45.6, 122.4 / 74.4], abs=1e-3)
    assert arms["extra/generate"].tolist() == pytest.approx([0.0288, 0], abs=1e-3)
    assert arms["extra/update"].tolist() == pytest.approx([0, 0.048], abs=1e-3)
    assert arms.verdict.tolist() == ["expensive", "cheaper"]
    text = said()
    assert re.search(r"against grpo 16→16: .* 1\.76 to 1\.84 x as fast .* favours pods 64→16", text)
    assert re.search(r"grpo_ga 64→64 against pods .* 0\.20 x as fast .* favours pods 64→16", text)
    slow = r"0\.61 x as fast \(95 % 0\.6. to .* favours grpo 16→16"
    assert re.search(slow, said(pods_rate=0.001))
    assert "): undecided" in said(pods_rate=0.00163)
    few = said(seeds=range(2))
    assert "not timed: an arm has fewer than 3 complete runs" in few and "favours" not in few


def test_arms_without_runs_are_predicted_and_marked():
    runs = runs_of([(16, 16), (64, 16), (64, 4)], seeds=(0, 1))
    study = study_of(runs, steps_of(runs))
    asked, report = (plan(study, nm=nm) for nm in (((64, 16),), ()))
    text = "\n".join(asked.lines)
    [line] = [line for line in text.splitlines() if line.strip().startswith("64→64")]
    assert re.search(r"pods 64→16 .* 1\.65 .* outside the measured range; predicted, each", line)
    # without a request, pairs outside the measured range are only in the table
    assert not [line for line in report.lines if "64→64 " in line]
    assert "64→64" in set(report.tables["arms"].expensive)


def test_a_plan_of_two_machines_or_models_has_two_fits():
    one, other = runs_of(GRID, machine="A"), runs_of(GRID, machine="B")
    other["run"] += "-b"
    runs = pd.concat([one, other], ignore_index=True)
    steps = steps_of(runs)
    steps.loc[steps.run.isin(other.run), "seconds/generate"] += 1
    table = plan(study_of(runs, steps)).tables["fit"]
    table = table[table.what == "step"]
    assert table.fixed.tolist() == pytest.approx([0.020, 1.020])
    assert table.setting.tolist() == ["A", "B"]
    report = plan(study_of(runs, steps[steps.run.isin(other.run)]))  # A's steps were not logged
    assert report.lines[:2] == ["A: no run has a time per step", ""]
    assert {*report.tables["fit"].setting} == {"B"}
    runs = pd.concat([runs_of(GRID)] * 2, ignore_index=True)
    runs["run"] = [f"{i}" for i in range(len(runs))]
    same = ("update.lr", "prompts_per_step", "prompts.selector", "group_filter.name", "nm.groups",
            "sampler.rule", "advantage.scale", "seed")  # fmt: skip
    other = ("model.name", "sampling.max_completion_tokens", "sampling.temperature", "task.name",
             "update.epochs", "update.kl_beta", "engine.dtype", "hardware.threads")  # fmt: skip
    for key in (*same, *other):  # what changes a rollout's cost
        runs["series"] = [f"pods, {key}={i < len(GRID)}" for i in range(len(runs))]
        found = plan(study_of(runs, steps_of(runs))).tables["fit"]
        assert found.setting.nunique() == (1 if key in same else 2), key


def test_rules_are_settings_of_their_own_if_tokens_were_not_counted():
    """Imported logs: a rule that makes completions longer would be a cost of n."""
    runs = runs_of(GRID)
    for rule, settings in (("max_variance_aliased", 1), ("max_reward", 2)):
        runs["rule"] = [rule if n == 64 else "all" for n in runs.n]
        for seeded in (True, False):
            study = replace(study_of(runs, steps_of(runs)), seeded=seeded)
            found = plan(study).tables["fit"].setting.nunique()
            assert found == (1 if seeded else settings), (rule, seeded)


def test_a_request_is_checked():
    study = study_of(runs_of(GRID), steps_of(runs_of(GRID)))
    for seconds in (0.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match=f"--seconds={seconds}: must be a number > 0"):
            plan(study, seconds=seconds)
    for word in ("64x16", "4,5", "4,0"):
        with pytest.raises(ConfigError, match=f"--nm={word}: must be N,M with 1 <= M <= N"):
            parse_nm(word)


def test_published_step_times():
    rows = authors_runs()
    assert (len(rows), int(rows.seconds.notna().sum())) == (11, 8)
    report = plan_authors()
    step = report.tables["fit"].set_index("what").loc["step"]
    assert step.fixed == pytest.approx(4.41, abs=0.01)
    assert step.generated == pytest.approx(0.0584, abs=1e-4)
    assert step.kept == pytest.approx(0.1227, abs=1e-4)
    assert report.tables["residuals"].percent.abs().max() < 4.2
    arms = report.tables["arms"].set_index("expensive")
    assert arms.cost["pods 64→16"] == pytest.approx(10.12 / 7.56)
    assert arms.cost["64→64"] == pytest.approx((4.414 + 64 * 0.1811) / 10.12, rel=1e-3)
    assert arms.outside.to_dict() == {"pods 64→16": False, "64→64": True}
    assert "github.com/YixuanEvenXu/pods" in "\n".join(report.lines)


def test_the_cost_grid_identifies_all_costs():
    preset = yaml.safe_load((ROOT / "conf/experiment/cost_grid.yaml").read_text())
    names = preset["hydra"]["sweeper"]["params"]["nm"].split(",")
    sizes = [composed("experiment=cost_grid", f"nm={name}").nm for name in names]
    nm = [(size.n, size.m) for size in sizes]
    assert len(set(nm)) >= 9 and {(16, 16), (64, 16), (64, 64)} <= set(nm)
    assert costing.why_not_identifiable(model_of(nm)) == ""


def test_a_studys_own_fit_is_a_clock_that_names_it():
    runs = runs_of(GRID)
    fit = fitted_clock(study_of(runs, steps_of(runs)))
    # the constants of those steps: 20 ms, 0.3 ms and 0.5 ms
    prices = [fit.base, fit.per_rollout, fit.per_kept]
    assert prices == pytest.approx([0.020, 0.0003, 0.0005])
    apart = pd.concat([runs_of(GRID[:3]), runs_of(GRID[3:], prompts=5)], ignore_index=True)
    assert fit.prompts == 2 and fitted_clock(study_of(apart, steps_of(apart))).prompts is None
    assert "a study" in fit.name and "fitted to 6 runs of a study on A CPU" in fit.source
    few = runs_of([(16, 16), (64, 16)])
    with pytest.raises(ValueError, match="all runs have m = 16"):
        fitted_clock(study_of(few, steps_of(few)))
    two = runs.assign(machine=np.where(runs.n == 16, "A CPU", "another"))
    with pytest.raises(ValueError, match=r"one setting, not of A CPU \| another"):
        fitted_clock(study_of(two, steps_of(two)))
