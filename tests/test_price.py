"""The cost model against known costs, least squares by hand, cards, and where an arm pays."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from compose import ROOT, composed
from scipy import stats
from step_costs import EACH_GENERATED, EACH_KEPT, EMPTY, FIXED, GRID, runs_of, steps_of, study_of

from pods.analysis.compare.compare import compare
from pods.analysis.loading.prices import at_prices
from pods.config.parse import ConfigError
from pods.config.price_card import PriceCard, read_card
from pods_lab.price import model as costing
from pods_lab.price.card import fitted_card, write_card
from pods_lab.price.costs import authors_costs, costs, parse_nm, predictions
from pods_lab.price.figure import draw
from pods_lab.price.least_squares import fit
from pods_lab.price.model import coefficient, cost_model, per_run, predict, residuals
from pods_lab.price.pays import lead_table
from pods_lab.price.pays_text import card_sentences, sentence, sentences, sign_changes
from pods_lab.price.settings import authors_runs


def model_of(sizes, **options):
    runs = runs_of(sizes, **options)
    steps = steps_of(runs)
    return cost_model(per_run(runs, steps, pd.DataFrame(columns=EMPTY)))


def test_known_costs_are_recovered():
    model = model_of(GRID)
    prices = [coefficient(model, term)[0] for term in ("fixed", "generated", "kept")]
    assert prices == pytest.approx([FIXED, EACH_GENERATED, EACH_KEPT], rel=1e-9)
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
    assert " x prompts n + " in costs(study_of(runs, steps)).lines[1]


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
    report = costs(study_of(runs, steps_of(runs)))
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
    report = costs(study)
    assert any(line.startswith("- dapo: prompts are resampled or skipped") for line in report.lines)


def test_as_many_sizes_as_coefficients_leave_linearity_unchecked():
    for sizes, unchecked in (([(16, 16), (64, 16), (64, 64)], True), (GRID, False)):
        runs = runs_of(sizes, seeds=range(4))
        lines = costs(study_of(runs, steps_of(runs, noise=0.001))).lines
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


def test_two_machines_or_models_have_two_fits():
    one, other = runs_of(GRID, machine="A"), runs_of(GRID, machine="B")
    other["run"] += "-b"
    runs = pd.concat([one, other], ignore_index=True)
    steps = steps_of(runs)
    steps.loc[steps.run.isin(other.run), "seconds/generate"] += 1
    table = costs(study_of(runs, steps)).tables["fit"]
    table = table[table.what == "step"]
    assert table.fixed.tolist() == pytest.approx([0.020, 1.020])
    assert table.setting.tolist() == ["A", "B"]
    report = costs(study_of(runs, steps[steps.run.isin(other.run)]))  # A's steps were not logged
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
        found = costs(study_of(runs, steps_of(runs))).tables["fit"]
        assert found.setting.nunique() == (1 if key in same else 2), key


def test_rules_are_settings_of_their_own_if_tokens_were_not_counted():
    """Imported logs: a rule that makes completions longer would be a cost of n."""
    runs = runs_of(GRID)
    for rule, settings in (("max_variance_aliased", 1), ("max_reward", 2)):
        runs["rule"] = [rule if n == 64 else "all" for n in runs.n]
        for seeded in (True, False):
            study = replace(study_of(runs, steps_of(runs)), seeded=seeded)
            found = costs(study).tables["fit"].setting.nunique()
            assert found == (1 if seeded else settings), (rule, seeded)


def test_a_request_is_checked():
    study = study_of(runs_of(GRID), steps_of(runs_of(GRID)))
    for seconds in (0.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match=f"--seconds={seconds}: must be a number > 0"):
            costs(study, seconds=seconds)
    for word in ("64x16", "4,5", "4,0"):
        with pytest.raises(ConfigError, match=f"--nm={word}: must be N,M with 1 <= M <= N"):
            parse_nm(word)


def test_published_step_times():
    rows = authors_runs()
    assert (len(rows), int(rows.seconds.notna().sum())) == (11, 8)
    report = authors_costs()
    step = report.tables["fit"].set_index("what").loc["step"]
    assert step.fixed == pytest.approx(4.41, abs=0.01)
    assert step.generated == pytest.approx(0.0584, abs=1e-4)
    assert step.kept == pytest.approx(0.1227, abs=1e-4)
    assert report.tables["residuals"].percent.abs().max() < 4.2
    assert "github.com/YixuanEvenXu/pods" in "\n".join(report.lines)


def test_the_cost_grid_identifies_all_costs():
    preset = yaml.safe_load((ROOT / "conf/experiment/cost_grid.yaml").read_text())
    names = preset["hydra"]["sweeper"]["params"]["nm"].split(",")
    sizes = [composed("experiment=cost_grid", f"nm={name}").nm for name in names]
    nm = [(size.n, size.m) for size in sizes]
    assert len(set(nm)) >= 9 and {(16, 16), (64, 16), (64, 64)} <= set(nm)
    assert costing.why_not_identifiable(model_of(nm)) == ""


# Where an arm pays: a step of `grpo` generates 2 rollouts, one of `pods` 8, and both train on 2.
# Accuracy rises by a rate per step.
STEPS = 40


def learning_study(rates, baseline_rates, tokens=False):
    """Make a study of both arms with a run for each rate, evaluated every fourth step."""
    runs = []
    steps = []
    evaluations = []
    sides = (("grpo 2→2", 2, 2, baseline_rates), ("pods 8→2", 8, 2, rates))
    for series, n, m, of_runs in sides:
        for seed, rate in enumerate(of_runs):
            name = {"series": series, "seed": seed, "run": f"{series} {seed}"}
            rule = "all" if n == m else "max_variance"
            runs.append({**name, "arm": series.split()[0], "rule": rule, "n": n, "m": m,
                         "prompts": 1, "complete": True, "machine": "A CPU"})  # fmt: skip
            for step in range(1, STEPS + 1):
                steps.append({**name, "step": step, "generated_rollouts": n, "trained_rollouts": m,
                              "generated_tokens": 10 * n, "trained_tokens": 30 * m})  # fmt: skip
            for step in range(0, STEPS + 1, 4):
                evaluations.append({**name, "step": step, "train_seconds": float(step),
                                    "accuracy": rate * step})  # fmt: skip
    return study_of(pd.DataFrame(runs), pd.DataFrame(steps), pd.DataFrame(evaluations))


def test_an_arm_pays_where_its_progress_is_worth_its_cost():
    """By hand: with r, 2 + 2 r against 8 + 2 r a step, so twice the progress pays from r = 2 on."""
    rates = 0.02 + np.array([-0.001, 0.0, 0.0005, 0.0005])
    study = learning_study(rates, [0.01] * 4)
    table, left_out = lead_table(study, [])
    rows = table[table.by == "ratio"].set_index("ratio")
    assert left_out == [] and set(rows.series) == {"pods 8→2"} == set(rows.series)
    # the span ends with the 40 steps of grpo, in which pods makes 40 (2 + 2 r) / (8 + 2 r)
    row = rows.loc[4.0]
    assert row.end == pytest.approx(40 * 10) and row.runs == 4
    assert row.estimate == pytest.approx((0.02 * 25 - 0.01 * 40) / 2)
    assert sign_changes(rows.index.to_numpy(), rows.estimate.to_numpy()) == pytest.approx(
        [2], rel=0.01
    )

    # the interval of r: where the t interval of the mean rate has the ratio of the costs
    half = stats.t.ppf(0.975, 3) * stats.sem(rates)
    ends = []
    for rate in (0.02 + half, 0.02 - half):
        times = rate / 0.01  # 8 + 2 r = times (2 + 2 r)
        ends.append((8 - 2 * times) / (2 * times - 2))
    [text] = sentences(table)
    said = re.fullmatch(r"pods 8→2 is ahead of grpo 2→2 if a rollout trained on costs more than "
                        r"(.*) generated ones \(95 %: from (.*) to (.*)\)\.", text)  # fmt: skip
    assert [float(number) for number in said.groups()] == pytest.approx([2, *ends], rel=0.02)


def test_a_lead_is_not_guessed_where_an_arm_was_not_evaluated():
    """As by the comparison at prices: 40 steps of grpo pay for 12 of pods at r = 0.25."""
    study = learning_study([0.02, 0.021], [0.01, 0.01])
    rows = study.evaluations
    late = study.evaluations[(rows.series != "pods 8→2") | rows.step.isin([0, STEPS])]
    with pytest.raises(ValueError, match="pods 8→2 seed 0 has no evaluation after step 0 until"):
        lead_table(replace(study, evaluations=late), [])

    # with one at step 20, which pods reaches where 40 (2 + 2 r) pay for 20 (8 + 2 r): from r = 2
    half = study.evaluations[(rows.series != "pods 8→2") | rows.step.isin([0, 20, STEPS])]
    table, left_out = lead_table(replace(study, evaluations=half), [])
    ratios = table[table.by == "ratio"].ratio
    assert len(ratios) == 13 and ratios.min() == pytest.approx(2)
    [line] = left_out
    assert line.startswith("not drawn: r = 0.25 to 1.68: pods 8→2 seed 0 has no evaluation after")
    assert "at prices r = 0.25" in line
    [text] = sentences(table)
    assert text.startswith("pods 8→2 is ahead of grpo 2→2 at every r from 2 to 16")
    draw(study, table)


def test_both_ends_of_a_line_say_why_they_are_not_drawn():
    """By hand: 20 steps of grpo 8→8, 160 (1 + r), and 40 of pods 16→2, 640 + 80 r, as r = 6 has."""
    study = learning_study([0.02, 0.021], [0.01, 0.01])
    amounts = {"grpo 2→2": (8, 8), "pods 8→2": (16, 2)}
    steps = study.steps.assign(
        generated_rollouts=study.steps.series.map(lambda name: amounts[name][0]),
        trained_rollouts=study.steps.series.map(lambda name: amounts[name][1]),
    )
    steps = steps[(steps.series != "grpo 2→2") | (steps.step <= 20)]
    rows = study.evaluations
    at = rows.step.isin([0, 28, 40]) & (rows.series != "grpo 2→2")
    at |= rows.step.isin([0, 20]) & (rows.series == "grpo 2→2")
    seen = replace(study, steps=steps, evaluations=rows[at])
    table, [low, high, share] = lead_table(seen, [])
    ratios = table[table.by == "ratio"].ratio
    # pods gets to step 28 from 160 (1 + r) = 28 (16 + 2 r) on, r = 2.77, and grpo to 20 until r = 6
    assert (ratios.min(), ratios.max()) == pytest.approx((2.828, 5.657), rel=1e-3)
    assert low.startswith("not drawn: r = 0.25 to 2.38: pods 8→2 seed 0") and "r = 0.25:" in low
    assert high.startswith("not drawn: r = 6.73 to 16: grpo 2→2 seed 0") and "r = 6.73:" in high
    assert share.startswith("not drawn: fixed share = 0 to 0.95: pods 8→2 seed 0")
    draw(seen, table)


def test_cards_are_named_above_the_panel_and_near_ones_together():
    study = learning_study([0.02, 0.021], [0.01, 0.01])
    table, _ = lead_table(study, [])
    places = {"one": (2.0, 0.4), "two": (2.1, 0.1), "far": (8.0, 0.9), "out": (100.0, 0.95)}
    row = table.iloc[0].to_dict() | {"by": "card"}
    cards = [row | {"card": c, "ratio": r, "fixed_share": s} for c, (r, s) in places.items()]
    by_ratio, by_share = draw(study, pd.concat([table, pd.DataFrame(cards)])).axes[:2]
    names = {text.get_text(): text.xy for text in by_ratio.texts}
    # 2 is half way from 0.25 to 16 on a scale of logarithms, and 8 five sixths
    assert names == {"one, two": pytest.approx((0.5, 1.01)), "far": pytest.approx((5 / 6, 1.01))}
    assert [text.get_text() for text in by_share.texts] == ["two", "one", "far, out"]


def test_a_fixed_share_is_one_of_the_baselines_step():
    table, _ = lead_table(learning_study([0.02, 0.021], [0.01, 0.01]), [])
    rows = table[table.by == "fixed_share"]
    assert set(rows.ratio) == {2.0} and rows.fixed_share.iloc[-1] == 0.95
    # r = 2: 6 of rollouts a step of grpo; at a share of 0.4 another 4, so that pods costs 12 + 4
    row = rows[np.isclose(rows.fixed_share, 0.4)].iloc[0]
    assert row.end == pytest.approx(40 * 10)
    assert row.estimate == pytest.approx((0.0205 * 40 * 10 / 16 - 0.01 * 40) / 2)


def test_cards_lie_where_their_prices_put_them_and_say_what_compare_says(tmp_path):
    study = learning_study([0.02, 0.0205, 0.021], [0.01, 0.0101, 0.0102])
    card = PriceCard(name="tokens", unit="$", per_step=10.0, per_generated_rollout=0.0,
                     per_trained_rollout=0.0, per_generated_token=2.0, per_trained_token=1.0,
                     fitted_to="a hand", does_not_cover="all else")  # fmt: skip
    table, left_out = lead_table(study, [card])
    row = table[table.by == "card"].iloc[0]
    # a rollout of grpo: 20 to generate, 30 to train on; its step 10 + 40 + 60
    assert (row.ratio, row.fixed_share) == pytest.approx((1.5, 10 / 110)) and left_out == []
    theirs = compare(at_prices(study, card), ["pods 8→2", "grpo 2→2"]).contrasts
    theirs = theirs[theirs.outcome == "mean_accuracy"].iloc[0]
    assert (row.estimate, row.low, row.high) == (theirs.estimate, theirs.low, theirs.high)
    assert list(card_sentences(table, study)) == [
        f"tokens: pods 8→2 is {-100 * row.estimate:.2f} points below grpo 2→2 (95 %: "
        f"{-100 * row.high:.2f} to {-100 * row.low:.2f})."]  # fmt: skip
    single = next(card_sentences(table.assign(low=np.nan, high=np.nan), study))
    assert single.endswith(" points below grpo 2→2 (no interval, with so few runs).")

    bare = replace(study, steps=study.steps.drop(columns="trained_tokens"))
    table, [line] = lead_table(bare, [card])
    assert "card" not in set(table.by)
    assert line.startswith("not marked: prices=tokens: ") and "trained_tokens" in line


AROUND_2 = (0.5, 1, 4, 8)  # on a logarithmic scale 2 is in the middle


@pytest.mark.parametrize(("ratios", "lead", "spread", "said"), [
    (AROUND_2, [-2, -1, 1, 2], 0.5, "a is ahead of b if a rollout trained on costs more than 2.00 "
                                    "generated ones (95 %: from 1.41 to 2.83)."),
    (AROUND_2, [2, 1, -1, -2], 0.5, "a is ahead of b if a rollout trained on costs less than 2.00 "
                                    "generated ones (95 %: from 1.41 to 2.83)."),
    (AROUND_2, [-2, -1, 1, 2], 3, "a is ahead of b if a rollout trained on costs more than 2.00 "
                                  "generated ones (95 %: from below 0.5 to above 8)."),
    (AROUND_2, [-2, -1, 1, 2], math.nan, "a is ahead of b if a rollout trained on costs more than "
                                         "2.00 generated ones (95 %: unknown, with so few runs)."),
    (AROUND_2, [4, 3, 2, 1], 0.5, "a is ahead of b at every r from 0.5 to 8 (95 %, each r by "
                                  "itself)."),
    (AROUND_2, [-4, -3, -1, -1], 2, "a is behind b at every r from 0.5 to 8 (95 % for r "
                                    "from 0.50 to 1.00)."),
    (AROUND_2, [1, 1, 1, 1], 3, "a is ahead of b at every r from 0.5 to 8, but at none does "
                                "the 95 % interval exclude 0."),
    ((0.5, 2, 8, 32), [-1, 1, -1, -2], 0.5, "The lead of a over b changes its sign at r = 1.00, "
                                            "4.00."),
])  # fmt: skip
def test_each_shape_of_a_lead_has_its_sentence(ratios, lead, spread, said):
    estimate = np.array(lead, float)
    points = pd.DataFrame({"ratio": np.array(ratios, float), "estimate": estimate,
                           "low": estimate - spread, "high": estimate + spread})  # fmt: skip
    assert sentence("a", "b", points) == said


def test_a_card_of_a_studys_own_steps_is_read_back(tmp_path):
    runs = runs_of(GRID, seeds=(0, 1))
    card = fitted_card(study_of(runs, steps_of(runs)))
    path = tmp_path / "mine.yaml"
    write_card(card, path)
    again = read_card(str(path))
    assert (again.per_step, again.per_generated_rollout, again.per_trained_rollout) == (
        pytest.approx((FIXED, EACH_GENERATED, EACH_KEPT))
    )
    assert (again.unit, again.prompts_per_step) == ("s", 2)
    assert again.fitted_to.startswith("12 runs of a study on A CPU, 20")
    with pytest.raises(ConfigError, match="must be a new file; this one exists"):
        write_card(card, path)

    with pytest.raises(ConfigError, match=r"must be a YAML file such as mine\.yaml"):
        write_card(card, Path("mine"))

    cheaper = steps_of(runs)  # each rollout that is trained on would give time back
    cheaper["seconds/update"] = 0.2 - 1e-4 * cheaper.run.map(runs.set_index("run").m)
    with pytest.raises(ValueError, match=r"too noisy for prices: .*, kept -5e-05 s"):
        fitted_card(study_of(runs, cheaper))

    apart = pd.concat([runs_of(GRID[:3]), runs_of(GRID[3:], prompts=5)], ignore_index=True)
    assert fitted_card(study_of(apart, steps_of(apart))).prompts_per_step is None
    few = runs_of([(64, 16), (16, 16)])
    with pytest.raises(ValueError, match="does not identify its prices: all runs have m = 16"):
        fitted_card(study_of(few, steps_of(few)))
    two = pd.concat([runs_of(GRID, machine="A"), runs_of(GRID, machine="B").assign(
        run=lambda table: table.run + "b")], ignore_index=True)  # fmt: skip
    with pytest.raises(ValueError, match=r"runs of several settings.*: A \| B; choose one"):
        fitted_card(study_of(two, steps_of(two)))
