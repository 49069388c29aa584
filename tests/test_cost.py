"""The cost model against steps whose costs are known, least squares by hand, and every verdict."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import yaml
from compose import ROOT, composed
from scipy import stats

from pods.analysis.cost.arm_words import _gain
from pods.analysis.cost.breakeven import Arm, weigh
from pods.analysis.cost.forecast import Budget, largest_n, overhead, predictions, sweep
from pods.analysis.cost.least_squares import fit
from pods.analysis.cost.model import (
    coefficient,
    cost_model,
    per_run,
    predict,
    repeat_sd,
    residuals,
    why_untold,
)
from pods.analysis.cost.plan import Ask, cell, plan, plan_published, published
from pods.analysis.cost.plan_words import time_text
from pods.analysis.load import Study
from pods.analysis.outcomes import RunCurve

FIXED, EACH_GENERATED, EACH_KEPT = 0.020, 0.0003, 0.0005  # seconds of a step, and a rollout
GRID = [(16, 4), (16, 16), (64, 4), (64, 16), (64, 64), (128, 64)]
EMPTY = ["series", "seed", "run", "step", "train_seconds", "accuracy"]


def runs_of(cells, seeds=(0,), prompts=2, **more) -> pd.DataFrame:
    rows = [
        {"run": f"{n}-{m}-{seed}-{prompts}", "series": f"pods {n}→{m}", "arm": "pods",
         "rule": "all" if n == m else "max_variance", "n": n, "m": m, "prompts": prompts,
         "seed": seed, "complete": True, "machine": "A CPU", **more}
        for n, m in cells for seed in seeds
    ]  # fmt: skip
    return pd.DataFrame(rows)


def steps_of(runs: pd.DataFrame, steps=3, noise=0.0) -> pd.DataFrame:
    """Steps that cost exactly what the constants say, ± noise in turn; a rollout has 20 tokens."""
    rows = []
    for i, run in enumerate(runs.itertuples()):
        off = noise * (-1) ** i
        for step in range(1, steps + 1):
            rows.append({
                "series": run.series, "seed": run.seed, "run": run.run, "step": step,
                "seconds/generate": 0.015 + EACH_GENERATED * run.prompts * run.n + off,
                "seconds/update": 0.005 + EACH_KEPT * run.prompts * run.m,
                "generated_tokens": 20 * run.prompts * run.n,
                "trained_tokens": 20 * run.prompts * run.m,
            })  # fmt: skip
    return pd.DataFrame(rows)


def model_of(cells, **options):
    runs = runs_of(cells, **options)
    steps = steps_of(runs)
    return cost_model(per_run(runs, steps, pd.DataFrame(columns=EMPTY)), steps)


def study_of(runs, steps, evaluations=None) -> Study:
    if evaluations is None:
        evaluations = pd.DataFrame(columns=EMPTY)
    questions = pd.DataFrame(columns=["series", "seed", "run", "question", "correct"])
    return Study(
        name="a study", runs=runs, evaluations=evaluations, steps=steps, questions=questions,
        machines=["A CPU"], budget="30 s", holes=[], mixed=[],
    )  # fmt: skip


def test_known_costs_are_recovered():
    model = model_of(GRID)
    found = [coefficient(model, term)[0] for term in ("fixed", "generated", "kept")]
    assert found == pytest.approx([FIXED, EACH_GENERATED, EACH_KEPT], rel=1e-9)
    assert model.total.r2 == pytest.approx(1) and model.total.cells == 6
    assert model.phases["generate"].at({"fixed": 1})[0] == pytest.approx(0.015)
    assert model.phases["generate"].at({"generated": 1})[0] == pytest.approx(EACH_GENERATED)
    assert model.phases["update"].at({"kept": 1})[0] == pytest.approx(EACH_KEPT)
    assert model.tokens["update"].at({"trained_tokens": 1})[0] == pytest.approx(EACH_KEPT / 20)
    assert why_untold(model) == ""
    # 2 prompts: 20 ms + 200 x 0.3 ms + 40 x 0.5 ms = 100 ms
    guess = predict(model, 100, 20)
    assert guess.seconds == pytest.approx(0.100)
    assert guess.phases == pytest.approx({"generate": 0.075, "update": 0.025})
    assert not guess.outside and guess.source == "total"


def test_runs_of_other_prompts_share_the_fit():
    runs = pd.concat([runs_of(GRID[:3]), runs_of(GRID[3:], prompts=5)], ignore_index=True)
    steps = steps_of(runs)
    model = cost_model(per_run(runs, steps, pd.DataFrame(columns=EMPTY)), steps)
    assert coefficient(model, "kept")[0] == pytest.approx(EACH_KEPT)
    assert predict(model, 10, 10, prompts=7).seconds == pytest.approx(0.020 + 70 * 0.0008)
    words = plan(study_of(runs, steps), Ask()).lines
    assert "prompts a step differ" in words[1] and "prompts x n" in words[2]


def test_a_run_is_the_mean_of_its_steps_and_without_them_of_its_last_evaluation():
    runs = runs_of([(8, 4), (8, 2)])
    steps = pd.DataFrame({
        "run": ["8-4-0-2"] * 2, "seconds/generate": [1.0, 2.0], "seconds/update": [0.5, np.nan],
        "generated_tokens": [10, 30], "trained_tokens": [4, np.nan],
    })  # fmt: skip
    evaluations = pd.DataFrame({"run": ["8-2-0-2"] * 2, "step": [0, 4], "train_seconds": [0, 12]})
    table = per_run(runs, steps, evaluations)
    assert table.seconds.tolist() == [1.75, 3.0]  # (1.5 + 2) / 2; 12 / 4
    assert table.generated.tolist() == [16, 16] and table.kept.tolist() == [8, 4]
    assert table["seconds/update"][0] == 0.5 and np.isnan(table["seconds/update"][1])
    assert table.generated_tokens[0] == 20


def test_errors_are_those_of_textbook_and_scipy():
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"n": rng.integers(1, 99, 12), "m": rng.integers(1, 99, 12)})
    table["y"] = 3 + 2 * table.n - table.m + rng.normal(size=12)
    line = fit(table, "y", ("fixed", "n"))
    other = stats.linregress(table.n, table.y)
    assert line.at({"n": 1}) == pytest.approx((other.slope, other.stderr), rel=1e-9)
    assert line.at({"fixed": 1}) == pytest.approx((other.intercept, other.intercept_stderr))
    assert line.r2 == pytest.approx(other.rvalue**2)
    plane = fit(table, "y", ("fixed", "n", "m"))
    x = np.column_stack([np.ones(12), table.n, table.m])
    beta = np.linalg.inv(x.T @ x) @ x.T @ table.y
    variance = ((table.y - x @ beta) ** 2).sum() / (12 - 3)
    place = np.array([1, 50, 7])
    stderr = math.sqrt(variance * place @ np.linalg.inv(x.T @ x) @ place)
    found = plane.at({"fixed": 1, "n": 50, "m": 7})
    assert found == pytest.approx((place @ beta, stderr), rel=1e-9)
    assert plane.residual_sd == pytest.approx(math.sqrt(variance))


def test_a_prediction_has_the_error_of_one_more_run():
    """The interval of a new observation: its own scatter, and what the fit does not know."""
    runs = runs_of(GRID, seeds=(0, 1, 2))
    steps = steps_of(runs)
    steps["seconds/update"] += np.repeat(np.random.default_rng(2).normal(0, 1e-3, len(runs)), 3)
    table = per_run(runs, steps, pd.DataFrame(columns=EMPTY))
    x = np.column_stack([np.ones(len(runs)), 2.0 * runs.n, 2.0 * runs.m])
    seconds = steps.groupby("run", sort=False)[["seconds/generate", "seconds/update"]].mean().sum(1)
    beta, (squares,), *_ = np.linalg.lstsq(x, seconds.to_numpy())
    place, variance = np.array([1, 64, 16]), squares / (len(runs) - 3)
    error = math.sqrt(variance * (1 + place @ np.linalg.inv(x.T @ x) @ place))
    guess = predict(cost_model(table, steps), 32, 8)
    assert (guess.seconds, guess.stderr) == pytest.approx((place @ beta, error), rel=1e-9)


def test_residuals_by_hand():
    # at n = 1, 2, 3 of m = 1: 1, 4 and 4 s. Mean 3 at n = 2, slope 1.5: fitted 1.5, 3, 4.5
    table = runs_of([(1, 1), (2, 1), (3, 1)], prompts=1)
    table = table.assign(generated=table.n, kept=table.m, seconds=[1.0, 4.0, 4.0])
    found = residuals(cost_model(table, pd.DataFrame()))
    assert found.fitted.tolist() == pytest.approx([1.5, 3, 4.5])
    assert found.residual.tolist() == pytest.approx([-0.5, 1, -0.5])
    assert found.percent.tolist() == pytest.approx([-100 / 3, 100 / 3, -100 / 9])
    assert found.phases.isna().all()


def test_runs_of_one_cell_differ_by_hand():
    # 1 and 3, 5 and 5, 9 alone: squares 1 + 1, three cells of five runs
    table = runs_of([(1, 1), (1, 1), (2, 1), (2, 1), (2, 2)], prompts=1)
    table = table.assign(generated=table.n, kept=table.m, seconds=[1.0, 3.0, 5.0, 5.0, 9.0])
    assert repeat_sd(cost_model(table, pd.DataFrame())) == 1.0
    assert np.isnan(repeat_sd(cost_model(table[2:].drop(2), pd.DataFrame())))


UNTOLD = {
    "neither what n costs nor what m costs": [(64, 16)],
    "all runs have m = 16: what m costs cannot be told from what is fixed": [(16, 16), (64, 16)],
    "all runs have n = 64: what n costs": [(64, 4), (64, 16), (64, 64)],
    "all runs have n = m: what n costs cannot be told from what m costs": [(8, 8), (64, 64)],
    "n and m rise together": [(16, 4), (64, 16), (32, 8)],
}


@pytest.mark.parametrize("why", UNTOLD)
def test_what_cannot_be_told_is_named_and_gets_no_number(why):
    runs = runs_of(UNTOLD[why], seeds=(0, 1))
    steps = steps_of(runs)
    found = plan(study_of(runs, steps), Ask())
    assert why in found.lines[1] and "`experiment=cost_grid` measures it" in found.lines[1]
    row = found.tables["fit"].set_index("what").loc["step"]
    assert np.isnan(row.kept if "m = 16" in why else row.generated)
    assert row.cells == len(UNTOLD[why])


def test_what_can_be_told_all_the_same():
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


def test_an_arm_that_samples_again_is_left_out_of_the_fit_and_set_beside_it():
    """Its second samplings have a fixed part of their own, 15 ms here, that no n explains."""
    runs = runs_of(GRID)
    steps = steps_of(runs).assign(generated_rollouts=np.nan, trained_rollouts=np.nan)
    again = runs_of([(16, 16)]).assign(run="again", series="dapo 16→16", arm="dapo")
    more = steps_of(again).assign(generated_rollouts=96, trained_rollouts=32)
    more["seconds/generate"] = 2 * 0.015 + EACH_GENERATED * 96
    study = study_of(pd.concat([runs, again]), pd.concat([steps, more]))
    table = per_run(study.runs, study.steps, study.evaluations).set_index("run")
    assert table.generated["again"] == 96 and table.generated["16-16-0-2"] == 32
    model = cost_model(table.reset_index(), study.steps)
    assert model.total.at({"generated": 1})[0] == pytest.approx(EACH_GENERATED)
    row = residuals(model).set_index("arm").loc["dapo"]
    assert row.residual == pytest.approx(0.015) and row.generated == 96
    found = plan(study, Ask())
    assert found.lines[1].startswith("dapo: prompts are sampled again or left out, so steps do not")
    assert not any("dapo 16→16 step costs" in line for line in found.lines)


def test_as_many_cells_as_coefficients_leave_the_line_unchecked():
    runs = runs_of([(16, 16), (64, 16), (64, 64)], seeds=range(4))
    lines = plan(study_of(runs, steps_of(runs, noise=0.001)), Ask()).lines
    assert "that it is a line is unchecked" in lines[2]
    runs = runs_of(GRID)
    assert "unchecked" not in plan(study_of(runs, steps_of(runs)), Ask()).lines[2]


def test_one_run_has_no_errors():
    line = fit(pd.DataFrame({"y": [2.0], "n": [3]}), "y", ("fixed",))
    assert line.at({"fixed": 1})[0] == 2 and np.isnan(line.at({"fixed": 1})[1])
    assert np.isnan(fit(pd.DataFrame({"y": [], "n": []}), "y", ("fixed", "n")).at({"n": 1})[0])


def test_outside_of_what_was_measured():
    model = model_of(GRID)
    inside = [(16, 4), (128, 64), (20, 10)]
    assert [predict(model, n, m).outside for n, m in inside] == [False] * 3
    outside = [(129, 64), (128, 65), (64, 3), (15, 4)]
    assert [predict(model, n, m).outside for n, m in outside] == [True] * 4
    with pytest.raises(ValueError, match=r"nm=4,5: must be N,M with 1 <= M <= N"):
        predict(model, 4, 5)


def test_n_that_costs_two_steps():
    # 2 prompts, 16→16: 20 + 32 x 0.8 = 45.6 ms; as much again / 0.6 ms = 76 more: n = 92
    model = model_of(GRID)
    assert largest_n(model, 16) == pytest.approx(92)
    assert predict(model, 92, 16).seconds == pytest.approx(2 * predict(model, 16, 16).seconds)


def test_a_run_and_a_sweep_by_hand():
    model = model_of(GRID)
    rows = predictions(model, [(100, 20), (16, 16)], Budget(1.01, None))
    assert rows.steps.tolist() == [11, 23]  # 1.01 / 0.1 and 1.01 / 0.0456, rounded up
    assert rows.train_seconds.tolist() == pytest.approx([1.1, 23 * 0.0456])
    assert rows.generated_tokens.tolist() == pytest.approx([4000, 640])
    assert rows.trained_tokens.tolist() == pytest.approx([800, 640])
    assert predictions(model, [(100, 20)], Budget(1.01, 5)).steps.tolist() == [5]
    # each 2 s more: 12, 5, 5 and 12, 5, 5 on two slots: 12 + 5 + 5 and 5 + 5 + 12
    found = sweep([10.0, 3.0, 3.0], seeds=2, slots=2, each=2.0)
    assert (found.runs, found.wall_seconds) == (6, 22.0)
    assert found.slot_hours == pytest.approx(44 / 3600)
    # on three slots: 12, 5 + 12 and 5 + 5 + 5
    assert sweep([10.0, 3.0, 3.0], seeds=2, slots=3, each=2.0).wall_seconds == 17.0


def test_overhead_is_the_median_of_complete_runs():
    runs = pd.DataFrame({"wall_seconds": [12.0, 22.0, 99.0, None, 15.0],
                         "train_seconds": [10.0] * 5,
                         "complete": [True, True, False, True, True]})  # fmt: skip
    assert overhead(runs) == 5.0  # of 2, 5 and 12
    assert np.isnan(overhead(runs.drop(columns="wall_seconds")))


def arm(name, seconds, m=16):
    runs = pd.Series(dict(zip("abcd", seconds, strict=False)))
    phases = {"generate": runs.mean() - 0.01 * m / 16, "update": 0.01 * m / 16}
    return Arm(name, 64, m, runs, phases, measured=True, outside=False)


def learning(rate, runs="abcd", first=10.0):
    """Curves that rise from 0 by `rate` a step, times 1.00, 1.02, ..., evaluated at `first` too."""
    steps = np.array([0.0, first, 1000.0])
    return [RunCurve(run, "", i, steps, steps, steps * rate * (1 + 0.02 * i))
            for i, run in enumerate(runs)]  # fmt: skip


def verdict(dear_rate, cheap_rate, dear_seconds=(0.2, 0.2, 0.2, 0.2)):
    curves = {"dear": learning(dear_rate), "cheap": learning(cheap_rate)}
    return weigh(curves.get, arm("cheap", [0.1] * 4), arm("dear", dear_seconds))


def test_break_even_and_gain_by_hand():
    pair = verdict(0.003, 0.001)  # three times as much a step for twice the time
    assert (pair.dear.name, pair.cheap.name) == ("dear", "cheap")
    assert pair.cost == (2.0, 0.0)
    assert next(iter(pair.extra.items())) == ("generate", pytest.approx(0.1))
    assert pair.gain.ratio == pytest.approx(3) and pair.gain.factor == pytest.approx(1.5)
    assert pair.gain.factors == pytest.approx([1.5] * 6)
    assert 1.4 < pair.gain.low < 1.5 < pair.gain.high < 1.6
    assert pair.gain.verdict == "dear"
    assert verdict(0.0015, 0.001).gain.verdict == "cheap"  # 1.5 / 2
    assert verdict(0.0021, 0.001, (0.199, 0.2, 0.201, 0.2)).gain.verdict == "within 5 %"
    assert verdict(0.0024, 0.001, (0.05, 0.4, 0.1, 0.3)).gain.verdict == "within noise"


def test_cost_of_a_step_and_its_error():
    # means 2 and 1 s; shares of error sd / sqrt(2) / mean: 0.2 / 2 and 0.1 / 1
    pair = weigh(lambda name: [], arm("a", [1.8, 2.2]), arm("b", [0.9, 1.1]))
    assert pair.cost == pytest.approx((2.0, 2 * math.hypot(0.1, 0.1)))
    assert pair.gain is None and "under 3 complete runs" in pair.why_not


def test_where_it_depends_on_the_accuracy():
    # cheap: 0.7 after 100 steps, then 0.2 more in 1900; dear 0.001 a step. Both reach 0.9, so the
    # targets go from 0.45 (64.3 and 450 steps) to 0.9 (2000 and 900); a step costs 1.1
    bends, heights = np.array([0.0, 10.0, 100.0, 2000.0]), np.array([0.0, 0.07, 0.7, 0.9])
    bent = [RunCurve(run, "", i, bends, bends, heights) for i, run in enumerate("abcd")]
    ends = np.array([0.0, 10.0, 1000.0])
    straight = [RunCurve(run, "", i, ends, ends, ends / 1000) for i, run in enumerate("abcd")]
    curves = {"dear": straight, "cheap": bent}
    found = weigh(curves.get, arm("cheap", [0.1] * 4), arm("dear", [0.11] * 4)).gain
    assert found.targets[[0, -1]] == pytest.approx([0.45, 0.9])
    assert found.factors[[0, -1]] == pytest.approx([450 / 7 / 450 / 1.1, 2000 / 900 / 1.1])
    assert found.verdict == "depends on the accuracy"


def test_little_learning_is_no_gain():
    flat = learning(0.00001)
    pair = weigh({"a": flat, "b": flat}.get, arm("a", [0.1] * 4), arm("b", [0.2] * 4))
    assert pair.gain is None and pair.why_not == "under 2 points are learned"


@pytest.mark.parametrize("early", ["dear", "cheap"])
def test_no_gain_is_read_off_the_line_before_the_first_checkpoint(early):
    # both rise to 1 at 1000 steps, so the targets are 0.5, 0.6, ..., 1.0. An arm with its first
    # checkpoint at 750 steps, there 0.75, passes 0.5, 0.6 and 0.7 on a line that nobody looked at
    def curves(first):
        steps = np.array([0.0, first, 1000.0])
        return [RunCurve(run, "", i, steps, steps, steps / 1000) for i, run in enumerate("abcd")]

    names = {name: curves(750.0 if name == early else 10.0) for name in ("dear", "cheap")}
    found = weigh(names.get, arm("cheap", [0.1] * 4), arm("dear", [0.2] * 4)).gain
    assert found.targets == pytest.approx([0.8, 0.9, 1.0])
    names[early] = curves(750.0)[:2] + curves(10.0)[:2]  # half of its runs: the median leans on it
    found = weigh(names.get, arm("cheap", [0.1] * 4), arm("dear", [0.2] * 4)).gain
    assert found.targets == pytest.approx([0.8, 0.9, 1.0])
    names[early] = curves(750.0)[:1] + curves(10.0)[1:]
    found = weigh(names.get, arm("cheap", [0.1] * 4), arm("dear", [0.2] * 4)).gain
    assert len(found.targets) == 6
    low = {"dear": learning(0.0006), "cheap": learning(0.0006)}  # the other arm reaches 0.6
    pair = weigh({**low, early: curves(750.0)}.get, arm("cheap", [0.1] * 4), arm("dear", [0.2] * 4))
    assert pair.gain is None and pair.why_not == "what both reach comes before the first checkpoint"


def test_an_interval_without_an_end_says_so():
    # the cheap arm's runs end at 0.9, 1, 1 and 1: 1.0 is missed by half in some resamples
    steps = np.array([0.0, 10.0, 1000.0])
    cheap = [RunCurve(run, "", i, steps, steps, np.array([0.0, 0.01, 0.5 if i == 3 else 1.0]))
             for i, run in enumerate("abcd")]  # fmt: skip
    curves = {"dear": learning(0.004), "cheap": cheap}
    pair = weigh(curves.get, arm("cheap", [0.1] * 4), arm("dear", [0.2] * 4))
    assert np.isinf(pair.gain.high)
    assert f"95 % over {pair.gain.low:.2f}: " in _gain(pair, pair.gain)


def arms_study(dear_rate=0.003, seeds=range(4)):
    """grpo 16→16, pods 64→16 and grpo_ga 64→64, which learn a rate a step."""
    runs = runs_of([(16, 16), (64, 16), (64, 64)], seeds=seeds, budget_seconds=30.0)
    names = {16: "grpo 16→16", 64: "grpo_ga 64→64"}
    same = runs.n == runs.m
    runs["series"] = np.where(same, runs.n.map(names), "pods 64→16")
    rates = {"grpo 16→16": 0.001, "pods 64→16": dear_rate, "grpo_ga 64→64": 0.001}
    rows = [
        {"series": run.series, "seed": run.seed, "run": run.run, "step": step,
         "train_seconds": 0.1 * step,
         "accuracy": min(1.0, step * rates[run.series] * (1 + 0.01 * run.seed))}
        for run in runs.itertuples() for step in range(0, 1001, 50)
    ]  # fmt: skip
    return study_of(runs, steps_of(runs, noise=1e-4), pd.DataFrame(rows))


def test_the_words_name_the_arm_the_factor_and_the_phase():
    found = plan(arms_study(), Ask())
    text = "\n".join(found.lines)
    # 45.6, 74.4 and 122.4 ms: 74.4 / 45.6 = 1.63, 122.4 / 74.4 = 1.65
    assert "a pods 64→16 step costs 1.63 ± 0.00 grpo 16→16 steps (74.4 ms against 45.6 ms" in text
    assert "generate +28.8 ms): it must learn 1.63 x as much a step to break even" in text
    assert "it learns 3.00 x as much a step" in text
    assert "this machine favours pods 64→16 by 1.84, although its generate takes longer" in text
    assert "a grpo_ga 64→64 step costs 1.65 ± 0.00 pods 64→16 steps" in text
    assert "this machine favours pods 64→16 by 4.94, because of update" in text
    assert found.tables["arms"].verdict.tolist() == ["dear", "cheap"]
    text = "\n".join(plan(arms_study(dear_rate=0.001), Ask()).lines)
    assert "this machine favours grpo 16→16 by 1.63, because of generate" in text
    text = "\n".join(plan(arms_study(dear_rate=0.00163), Ask()).lines)
    assert "undecided, within" in text
    text = "\n".join(plan(arms_study(seeds=range(2)), Ask()).lines)
    assert "break even; not measured (under 3 complete runs of one)" in text
    assert "favours" not in text


def test_arms_without_runs_are_taken_from_the_fit_and_marked():
    runs = runs_of([(16, 16), (64, 16), (64, 4)], seeds=(0, 1))
    lines = "\n".join(plan(study_of(runs, steps_of(runs)), Ask(cells=((64, 16),))).lines)
    assert "a 64→64 step costs 1.65 pods 64→16 steps" in lines
    assert "(fitted, its phases apart: 64→64, outside of what was measured)" in lines


def test_a_plan_of_two_machines_has_two_fits():
    here, there = runs_of(GRID, machine="A"), runs_of(GRID, machine="B")
    there["run"] += "-b"
    runs = pd.concat([here, there], ignore_index=True)
    steps = steps_of(runs)
    steps.loc[steps.run.isin(there.run), "seconds/generate"] += 1
    found = plan(study_of(runs, steps), Ask())
    table = found.tables["fit"][found.tables["fit"].what == "step"]
    assert table.fixed.tolist() == pytest.approx([0.020, 1.020])
    assert table.setting.tolist() == ["A", "B"]


def test_settings_go_by_what_changes_the_cost_of_a_rollout():
    runs = pd.concat([runs_of(GRID)] * 2, ignore_index=True)
    runs["run"] = [f"{i}" for i in range(len(runs))]
    for key, settings in (("update.lr", 1), ("model.name", 2)):
        runs["series"] = [f"pods, {key}={i < len(GRID)}" for i in range(len(runs))]
        assert (
            plan(study_of(runs, steps_of(runs)), Ask()).tables["fit"].setting.nunique() == settings
        )


def test_what_is_asked_is_checked():
    assert cell("64,16") == (64, 16)
    study = study_of(runs_of(GRID), steps_of(runs_of(GRID)))
    wrong = {
        "jobs=0: must be at least 1": Ask(slots=0),
        "jobs=-3: must be at least 1": Ask(slots=-3),
        "seconds=0: must be a number > 0": Ask(seconds=0.0),
        "seconds=inf: must be a number > 0": Ask(seconds=math.inf),
        "seconds=nan: must be a number > 0": Ask(seconds=math.nan),
        "steps=0: must be at least 1": Ask(steps=0),
        "seeds=0: must be at least 1": Ask(seeds=0),
        "nm=4,5: must be N,M with 1 <= M <= N": Ask(cells=((4, 5),)),
    }
    for message, ask in wrong.items():
        with pytest.raises(ValueError, match=message):
            plan(study, ask)
    with pytest.raises(ValueError, match="nm=64x16: must be N,M such as 64,16"):
        cell("64x16")


def test_a_sweep_of_unknown_length_says_what_is_missing():
    runs = runs_of([(16, 16), (64, 16)])  # nobody said what ends a run, as in imported logs
    line = next(x for x in plan(study_of(runs, steps_of(runs)), Ask()).lines if "at a time" in x)
    assert line.endswith("unknown, since the runs do not say what ends them: give `--seconds` or "
                         "`--steps` of a run")  # fmt: skip
    asked = plan(study_of(runs, steps_of(runs)), Ask(seconds=60.0)).lines
    # 60 s in steps of 45.6 and 74.4 ms: 1316 and 807 of them, 60.0096 and 60.0408 s
    assert any("2 x 1 seeds = 2 runs, 1 at a time: 2 min 00 s, 0.03 hours" in x for x in asked)
    untold = plan(study_of(runs, steps_of(runs)), Ask(cells=((32, 8),), steps=9)).lines
    assert any("unknown, since the time of some step cannot be told" in x for x in untold)


def test_no_minus_before_a_zero():
    assert [time_text(x) for x in (-2e-7, -6e-7, 0.0)] == ["0 µs", "-1 µs", "0 µs"]
    assert time_text(-0.00004, "+", like=0.05) == "+0.0 ms"
    # sync costs the same in all runs but for noise: nothing to explain, R² none
    runs = runs_of(GRID, seeds=(0, 1))
    steps = steps_of(runs, noise=1e-9)
    # a select that no n drives, falling by less than a microsecond
    steps["seconds/select"] = 1e-7 - 1e-10 * steps.step
    steps["seconds/sync"] = np.tile([1e-6, 3e-6], len(steps))[: len(steps)]
    text = "\n".join(plan(study_of(runs, steps), Ask()).lines)
    assert not re.search(r"-0(\.0+)?\b(?!\.)", text)
    (sync,) = (line.split() for line in text.split("\n") if line.startswith("sync"))
    assert sync[-1] == "-"


def test_published_step_times():
    rows = published()
    assert (len(rows), int(rows.seconds.notna().sum())) == (11, 8)
    found = plan_published(Ask())
    step = found.tables["fit"].set_index("what").loc["step"]
    assert step.fixed == pytest.approx(4.41, abs=0.01)
    assert step.generated == pytest.approx(0.0584, abs=1e-4)
    assert step.kept == pytest.approx(0.1227, abs=1e-4)
    assert found.tables["residuals"].percent.abs().max() < 4.2
    arms = found.tables["arms"].set_index("dear")
    assert arms.cost["pods 64→16"] == pytest.approx(10.12 / 7.56)
    assert arms.cost["64→64"] == pytest.approx((4.414 + 64 * 0.1811) / 10.12, rel=1e-3)
    text = "\n".join(found.lines)
    assert "64→64, outside of what was measured" in text
    assert "16→8, 16→4, 16→2 have inference seconds alone" in text
    assert "update: the rest, 6 to 23 % of a step" in text


def test_the_cost_grid_tells_n_from_m():
    preset = yaml.safe_load((ROOT / "conf/experiment/cost_grid.yaml").read_text())
    names = preset["hydra"]["sweeper"]["params"]["nm"].split(",")
    sizes = [composed("experiment=cost_grid", f"nm={name}").nm for name in names]
    cells = [(size.n, size.m) for size in sizes]
    assert len(set(cells)) >= 9 and {(16, 16), (64, 16), (64, 64)} <= set(cells)
    assert why_untold(model_of(cells)) == ""
