"""Arms are compared: outcomes and speed-ups by hand, resampling by brute force, verdicts."""

import dataclasses
import itertools
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pods.analysis.comparison.compare import compare
from pods.analysis.comparison.contrasts import default_baseline, resolve
from pods.analysis.comparison.formatting import as_json, csv_tables, format_comparison
from pods.analysis.comparison.speedup import (
    authors_grid,
    authors_rule,
    default_targets,
    speedups,
)
from pods.analysis.comparison.verdicts import caveats, headline, verdicts
from pods.analysis.outcomes import (
    RunCurve,
    Window,
    crossings,
    final_accuracy,
    knots,
    mean_accuracy,
    plain_mean,
    run_curves,
    window,
)
from pods.analysis.resampling import resamples
from pods.analysis.study import Study

RULES = {"pods": "max_variance", "grpo": "all", "grpo_ga": "all"}
STEPS_PER_SECOND = {"pods": 5, "grpo": 10}


def curve(points, series="pods 64→16", seed=0):
    """A run from (seconds, accuracy), with 5 steps a second for pods and 10 for grpo."""
    seconds, accuracy = (np.array(x, float) for x in zip(*points, strict=True))
    steps = seconds * STEPS_PER_SECOND.get(series.split()[0], 10)
    return RunCurve(f"{series} {seed}", series, seed, seconds, steps, accuracy)


def study(arms, *, answers=(), incomplete=(), seeds=None, **others):
    """A study from the points of each series' runs."""
    runs, rows = [], []
    for series, of_series in arms.items():
        arm, sizes = series.split(",")[0].split()
        n, m = map(int, sizes.split("→"))
        for place, points in enumerate(of_series):
            seed = seeds[series][place] if seeds else place
            one = curve(points, series, seed)
            where = {"series": series, "seed": seed, "run": one.run}
            runs.append({**where, "arm": arm, "rule": RULES.get(arm, arm), "n": n, "m": m,
                         "complete": one.run not in incomplete})  # fmt: skip
            points_of = zip(one.seconds, one.steps, one.accuracy, strict=True)
            rows += [{**where, "train_seconds": t, "step": s, "accuracy": a}
                     for t, s, a in points_of]  # fmt: skip
    questions = pd.DataFrame(answers, columns=["run", "question", "correct"])
    empty = {"missing": [], "inconsistencies": []}
    return Study("made", pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame(), questions,
                 machines=["A CPU"], budget="10 s", **empty | others)  # fmt: skip


def ramps(*ends):
    """Runs that rise from 0 in a straight line for 10 s."""
    return [[(0, 0.0), (10, end)] for end in ends]


def noisy(seed, centre, spread, size=8):
    """Runs of 0, 5 and 10 s whose levels differ."""
    levels = np.random.default_rng(seed).normal(centre, spread, size)
    return [[(0, 0.2), (5, level - 0.1), (10, level)] for level in levels]


# Outcomes


def test_outcomes_by_hand():
    run = curve([(0, 0.2), (4, 0.6), (12, 1.0)])
    span = Window(0.0, 10.0)  # at 10 s: 0.6 + 0.4 * 6 / 8 = 0.9
    assert final_accuracy(run, span) == pytest.approx(0.9)
    assert mean_accuracy(run, span) == pytest.approx((4 * 0.4 + 6 * 0.75) / 10)
    assert plain_mean(run, span) == pytest.approx(0.6)  # 12 s is past the end, 0 is the start
    assert plain_mean(run, Window(0, 12)) == pytest.approx(0.8)
    assert mean_accuracy(run, Window(4, 12)) == pytest.approx(0.8)
    longer = curve([(0, 0.2), (4, 0.6), (12, 1.0), (16, 0.0), (20, 1.0)])
    assert mean_accuracy(longer, span) == pytest.approx(mean_accuracy(run, span))
    assert mean_accuracy(run, Window(12, 12)) == 1.0
    assert np.isnan(plain_mean(run, Window(0, 0)))


def test_the_window_is_what_all_records_cover():
    long, short, late = curve([(0, 0), (12, 1)]), curve([(0, 0), (9, 1)]), curve([(1, 0), (13, 1)])
    assert window([long, short]) == Window(0.0, 9.0)
    assert window([long, short, late]) == Window(1.0, 9.0)
    with pytest.raises(
        ValueError, match="one ends at 9, the first evaluation of another one is at 20"
    ):
        window([short, curve([(20, 0), (30, 1)])])


def test_crossings_by_hand():
    # rises to 0.6 at 4 s, falls, crosses 0.7 again in the middle of the last line, at 10 s
    run = curve([(0, 0.2), (4, 0.6), (8, 0.4), (12, 1.0)], "grpo 16→16")
    targets = np.array([0.1, 0.2, 0.4, 0.6, 0.7, 1.0, 1.1])
    seconds, steps = crossings([run], targets, Window(0, 12))
    assert seconds[:, 0] == pytest.approx([0, 0, 2, 4, 10, 12, np.inf])
    assert steps[:, 0] == pytest.approx([0, 0, 20, 40, 100, 120, np.inf])
    cut, _ = crossings([run], targets, Window(0, 9.5))
    assert np.isinf(cut[4:, 0]).all() and cut[3, 0] == pytest.approx(4)


def test_only_complete_runs_count():
    made = study({"pods 64→16": ramps(0.5, 0.7)}, incomplete=["pods 64→16 0"])
    assert [one.seed for one in run_curves(made, "pods 64→16")] == [1]


def test_a_curve_is_in_the_order_of_time_however_its_rows_come():
    made = study({"pods 64→16": [[(0, 0.2), (4, 0.6), (12, 1.0)], [(0, 0.1), (3, 0.3)]]})
    backwards = dataclasses.replace(made, evaluations=made.evaluations[::-1])
    for first, second in (run_curves(one, "pods 64→16") for one in (made, backwards)):
        assert (first.seed, first.seconds.tolist()) == (0, [0, 4, 12])
        assert first.accuracy.tolist() == [0.2, 0.6, 1.0]
        assert (second.seed, second.accuracy.tolist()) == (1, [0.1, 0.3])


# Speed-ups

OURS = [curve(points, seed=k) for k, points in enumerate(ramps(0.8, 0.8, 0.4))]
THEIRS = [curve(points, "grpo 16→16", k) for k, points in enumerate(ramps(0.5, 0.4, 0.2))]
SPAN = Window(0.0, 10.0)


def speed(ours, theirs, targets, draws=50, paired=True):
    places = resamples([len(ours)] if paired else [len(ours), len(theirs)], draws, 0)
    return speedups(ours, theirs, targets, SPAN, (places[0], places[-1]))


def test_a_ratio_of_medians_with_misses_by_hand():
    # to 0.4: 5, 5, 10 s against 8, 10 s and never; 25, 25, 50 steps against 80, 100 and never
    at_40, at_60, at_90, peak, authors = speed(OURS, THEIRS, [0.4, 0.6, 0.9])
    assert (at_40["seconds"], at_40["baseline_seconds"]) == pytest.approx((5, 10))
    assert (at_40["ratio"], at_40["steps_ratio"]) == pytest.approx((2, 4))
    assert (at_40["reached"], at_40["baseline_reached"], at_40["n"]) == (3, 2, 3)
    assert np.isnan(at_40["bound"])
    # to 0.6: 7.5, 7.5 s and never, against never: faster than 10 / 7.5 for certain
    assert (at_60["ratio"], at_60["baseline_reached"]) == (np.inf, 0)
    assert at_60["bound"] == pytest.approx(10 / 7.5)
    assert np.isnan(at_90["ratio"]) and (at_90["reached"], at_90["baseline_reached"]) == (0, 0)
    # 99 % of the peak of the baseline's mean: 0.363; 10 * 0.363 / 0.8 against 10 * 0.363 / 0.4
    assert peak["target"] == pytest.approx(0.99 * 1.1 / 3)
    assert peak["ratio"] == pytest.approx(2)
    assert authors["ratio"] == 1.0  # the only grid time is 10 s
    assert speed(OURS, THEIRS, [0.4], paired=False)[0]["ratio"] == pytest.approx(2)


def test_the_other_way_round_it_is_the_inverse():
    at_40, at_60, *_ = speed(THEIRS, OURS, [0.4, 0.6])
    assert at_40["ratio"] == pytest.approx(0.5)
    assert at_60["ratio"] == 0
    assert at_60["bound"] == pytest.approx(0.75)


def test_half_of_an_even_number_of_misses_is_a_miss():
    (row, *_) = speed(OURS[1:], THEIRS[1:], [0.4])  # 5 and 10 s; 10 s and never
    assert (row["seconds"], row["baseline_seconds"], row["ratio"]) == (7.5, np.inf, np.inf)
    assert row["bound"] == pytest.approx(10 / 7.5)


def test_one_run_an_arm_has_a_ratio_and_no_interval():
    (row, *_) = speed(OURS[:1], THEIRS[:1], [0.4])
    assert row["ratio"] == pytest.approx(8 / 5)
    assert np.isnan([row["low"], row["high"]]).all()


def slow_crossing(run, target, end):
    """The first crossing, a segment at a time."""
    points = list(zip(run.seconds, run.accuracy, strict=True))
    if points[0][1] >= target:
        return 0.0
    for (t0, a0), (t1, a1) in itertools.pairwise(points):
        if a1 >= target:
            found = t0 + (target - a0) / (a1 - a0) * (t1 - t0)
            return found if found <= end else np.inf
    return np.inf


def slow_ratio(ours, theirs, target, span):
    if target is None:
        grid = knots(theirs, span)
        target = 0.99 * max(np.mean([np.interp(t, r.seconds, r.accuracy) for r in theirs])
                            for t in grid)  # fmt: skip
    one, other = (np.median([slow_crossing(r, target, span.end) for r in runs])
                  for runs in (ours, theirs))  # fmt: skip
    with np.errstate(invalid="ignore"):
        return other / one


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("kind", "target"), [("fixed", 0.62), ("peak", None)])
def test_the_interval_resamples_whole_runs(paired, kind, target):
    rng = np.random.default_rng(7)
    times = np.arange(0, 11, 2.0)

    def arm(series, gain, size):
        return [curve(zip(times, 0.2 + gain * np.sqrt(times) + rng.normal(0, 0.05, 6), strict=True),
                      series, k) for k in range(size)]  # fmt: skip

    ours, theirs = arm("pods 64→16", 0.16, 6), arm("grpo 16→16", 0.15, 6 if paired else 5)
    rows = {row["kind"]: row for row in speed(ours, theirs, [0.62], 200, paired)}
    places = resamples([6] if paired else [6, 5], 200, 0)
    ratios = [
        slow_ratio([ours[i] for i in one], [theirs[i] for i in other], target, SPAN)
        for one, other in zip(places[0], places[-1], strict=True)
    ]
    assert rows[kind]["ratio"] == pytest.approx(slow_ratio(ours, theirs, target, SPAN))
    # ranks 0.025 * 199 = 4.975 downwards, 0.975 * 199 = 194.025 upwards; NaN counts against both
    low = np.sort(np.nan_to_num(ratios, nan=0, posinf=np.inf))[4]
    high = np.sort(np.nan_to_num(ratios, nan=np.inf, posinf=np.inf))[195]
    assert (rows[kind]["low"], rows[kind]["high"]) == pytest.approx((low, high))
    assert low < rows[kind]["ratio"] < high


def test_the_authors_rule_by_hand():
    # the baseline's mean peaks at 0.7, at 6 s; 99 %: 0.693. It is there at 6 s, the arm at 2 s
    ours = [curve([(0, 0.1), (2, 0.70), (4, 0.6), (6, 0.8)])]
    theirs = [curve([(0, 0.1), (2, 0.60), (4, 0.685), (6, 0.7)], "grpo 16→16")]
    grid = authors_grid([*ours, *theirs], Window(0, 6))
    row = authors_rule(ours, theirs, grid)
    assert grid.tolist() == [2, 4, 6] and row["ratio"] == 3.0
    assert row["target"] == pytest.approx(0.693)
    apart = [curve([(0, 0.1), (2, 0.70), (4.5, 0.6), (6, 0.8)])]
    grid = authors_grid([*apart, *theirs], Window(0, 6))
    assert grid == pytest.approx(np.arange(0.5, 6.1, 0.5))
    # the evaluation at 2 s is the nearest one to 1.5 s, that at 6 s to 5.5 s; 1 s is as far from 0
    row = authors_rule(apart, theirs, grid)
    assert (row["seconds"], row["baseline_seconds"]) == (1.5, 5.5)


def test_default_targets_are_above_the_start_and_reached():
    arms = [[curve([(0, 0.55), (10, 0.9)])], [curve([(0, 0.1), (10, 0.76)], "grpo 16→16")]]
    assert default_targets(arms, SPAN) == [0.6, 0.7, 0.75, 0.8, 0.85, 0.9]


# Arms

NAMED = study({
    "pods 64→16": ramps(0.5), "pods 32→16": ramps(0.5), "grpo 16→16, update.lr=0.1": ramps(0.5),
    "grpo_ga 64→64": ramps(0.5),
})  # fmt: skip


@pytest.mark.parametrize(
    ("word", "series"),
    [
        ("pods 64→16", "pods 64→16"),
        (" pods 32->16", "pods 32→16"),
        ("grpo", "grpo 16→16, update.lr=0.1"),
        ("grpo 16->16", "grpo 16→16, update.lr=0.1"),
        ("grpo_ga", "grpo_ga 64→64"),
    ],
)
def test_an_arm_is_named_by_label_rule_or_curve(word, series):
    assert resolve(NAMED, word) == series


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (["pods", "grpo"], r"arm 'pods' is ambiguous: must be one of pods 64→16 \| pods 32→16$"),
        (
            ["max_variance", "grpo"],
            r"'max_variance' is ambiguous: must be one of pods 64→16 \| pods",
        ),
        (
            ["all", "grpo"],
            r"'all' is ambiguous: must be one of grpo 16→16, update.lr=0.1 \| grpo_ga",
        ),
        (["gpro", "grpo"], "'gpro' is unknown: must be one of pods 64→16 .* grpo_ga 64→64$"),
        (["grpo", "grpo 16→16"], "arms=grpo grpo 16→16: must be two or more different ones of"),
        (["grpo"], "arms=grpo: must be two or more different ones of pods 64→16"),
    ],
)
def test_an_arm_that_is_not_clear_is_refused_with_the_candidates(arms, message):
    with pytest.raises(ValueError, match=message):
        compare(NAMED, arms)


@pytest.mark.parametrize("target", [0.0, 95.0, float("nan")])
def test_a_target_that_is_no_accuracy_is_refused(target):
    with pytest.raises(ValueError, match=r"target=.*: must be an accuracy above 0 and at most 1"):
        compare(NAMED, targets=[0.5, target])


def pairs_of(made, arms=None):
    contrasts = compare(made, arms, draws=10).contrasts
    return contrasts[["series", "baseline"]].drop_duplicates().to_numpy().tolist()


def test_the_first_of_several_arms_is_compared_with_the_others():
    grpo = "grpo 16→16, update.lr=0.1"
    named = pairs_of(NAMED, ["grpo", "pods 64→16", "grpo_ga"])
    assert named == [[grpo, "pods 64→16"], [grpo, "grpo_ga 64→64"]]


def test_the_grpo_arm_is_the_baseline_if_none_is_named():
    grpo = "grpo 16→16, update.lr=0.1"
    others = ["pods 64→16", "pods 32→16", "grpo_ga 64→64"]
    assert pairs_of(NAMED) == [[name, grpo] for name in others]
    assert pairs_of(NAMED, ["grpo_ga"]) == [["grpo_ga 64→64", grpo]]
    arms = {"mine 64→16": ramps(0.5), "all 16→16": ramps(0.5), "random 64→16": ramps(0.5)}
    unlabelled = study(arms)  # the only arm that keeps all of its rollouts
    assert pairs_of(unlabelled) == [[name, "all 16→16"] for name in ("mine 64→16", "random 64→16")]


def test_every_two_arms_are_compared_where_no_single_one_is_grpo():
    two = study({"grpo 16→16": ramps(0.5), "grpo 32→32": ramps(0.5), "pods 64→16": ramps(0.5)})
    assert default_baseline(two) is None and len(pairs_of(two)) == 3
    lost = study({"grpo 16→16": ramps(0.5), "pods 64→16": ramps(0.5), "random 64→16": ramps(0.5)},
                 incomplete=["grpo 16→16 0"])  # fmt: skip
    assert pairs_of(lost) == [["pods 64→16", "random 64→16"]]


def test_arms_without_complete_runs():
    made = study({"pods 64→16": ramps(0.5, 0.6), "grpo 16→16": ramps(0.4)},
                 incomplete=["grpo 16→16 0"])  # fmt: skip
    with pytest.raises(ValueError, match="'grpo 16→16' has no complete run"):
        compare(made, ["pods", "grpo"])
    with pytest.raises(ValueError, match=r"two arms with .* the study has: pods 64→16$"):
        compare(made)


# Contrasts


def test_a_paired_contrast_is_that_of_scipy():
    made = study({"pods 64→16": noisy(0, 0.8, 0.02), "grpo 16→16": noisy(1, 0.75, 0.02)})
    found = compare(made, ["pods", "grpo"]).contrasts.set_index("outcome")
    ends = {s: rows.accuracy.to_numpy()[2::3] for s, rows in made.evaluations.groupby("series")}
    reference = stats.ttest_rel(ends["pods 64→16"], ends["grpo 16→16"])
    interval = reference.confidence_interval()
    row = found.loc["final_accuracy"]
    assert (row.design, row.n, row.baseline_n, row.left_out) == ("paired", 8, 8, 0)
    assert row.p == row.p_holm == pytest.approx(reference.pvalue)
    assert (row.low, row.high) == pytest.approx((interval.low, interval.high))
    difference = ends["pods 64→16"] - ends["grpo 16→16"]
    assert (row.higher, row.lower) == ((difference > 0).sum(), (difference < 0).sum())
    boot = difference[resamples([8], 10_000, 0)[0]].mean(1)
    limits = np.quantile(boot, [0.025, 0.975])
    assert (row.bootstrap_low, row.bootstrap_high) == pytest.approx(limits, abs=1e-4)
    # a run's area from 0.2: 5 (0.2 + l - 0.1) / 2 + 5 (2 l - 0.1) / 2, over 10: 0.75 l
    assert found.loc["mean_accuracy"].estimate == pytest.approx(0.75 * difference.mean())


def test_runs_whose_seeds_mean_nothing_are_not_paired():
    arms = {"pods 64→16": noisy(0, 0.8, 0.02, 5), "grpo 16→16": noisy(1, 0.75, 0.04, 7)}
    made = study(arms, seeded=False)
    ends = {s: rows.accuracy.to_numpy()[2::3] for s, rows in made.evaluations.groupby("series")}
    reference = stats.ttest_ind(ends["pods 64→16"], ends["grpo 16→16"], equal_var=False)
    row = compare(made, ["pods", "grpo"]).contrasts.set_index("outcome").loc["final_accuracy"]
    assert (row.design, row.n, row.baseline_n) == ("unpaired", 5, 7)
    assert row.p == pytest.approx(reference.pvalue)
    assert row.exact_smallest == 1 / 792
    assert np.isnan(row.higher)


def test_pairs_are_of_shared_seeds_and_the_rest_is_counted():
    seeds = {"pods 64→16": [0, 1, 2, 3], "grpo 16→16": [0, 3, 1, 4]}
    made = study({"pods 64→16": ramps(0.1, 0.6, 0.1, 0.9), "grpo 16→16": ramps(0, 0.5, 0.4, 0)},
                 seeds=seeds, incomplete=["pods 64→16 0"])  # fmt: skip
    found = compare(made, ["pods", "grpo"])
    row = found.contrasts.set_index("outcome").loc["final_accuracy"]
    assert (row.n, row.left_out, row.higher) == (2, 3, 2)
    assert row.estimate == pytest.approx((0.2 + 0.4) / 2)  # seeds 1 and 3
    assert found.left_out == [
        "pods 64→16 seed 0: not complete (pods 64→16 0)",
        "pods 64→16 seed 2: grpo 16→16 has no such seed",
        "grpo 16→16 seed 0: pods 64→16 has no such seed",
        "grpo 16→16 seed 4: pods 64→16 has no such seed",
    ]
    assert found.arms[["n", "left_out"]].to_numpy().tolist() == [[3, 1], [4, 0]]
    assert f"Left out: {found.left_out[0]}" in list(caveats(found))


def test_one_shared_seed_makes_no_pairs():
    seeds = {"pods 64→16": [0, 1, 2], "grpo 16→16": [2, 3, 4]}
    made = study({name: noisy(k, 0.8, 0.1, 3) for k, name in enumerate(seeds)}, seeds=seeds)
    found = compare(made)
    assert set(found.contrasts.design) == {"unpaired"} and not found.left_out
    assert "Arms that share fewer than two seeds are not paired." in list(caveats(found))


def test_a_contrast_does_not_depend_on_what_else_is_compared_but_for_holm():
    made = study({"pods 64→16": noisy(0, 0.8, 0.02), "grpo 16→16": noisy(1, 0.79, 0.02),
                  "grpo_ga 64→64": noisy(2, 0.7, 0.02)})  # fmt: skip
    among = compare(made, ["pods", "grpo", "grpo_ga"])
    alone = compare(made, ["pods", "grpo"])
    columns = [c for c in alone.contrasts if not c.endswith("holm")]
    pd.testing.assert_frame_equal(alone.contrasts[columns], among.contrasts[columns][:2])
    rows = among.contrasts[among.contrasts.outcome == "final_accuracy"]
    p = sorted(rows.p)
    expected = np.maximum.accumulate([2 * p[0], p[1]])
    assert sorted(rows.p_holm) == pytest.approx(np.minimum(expected, 1))
    again = compare(made, ["pods", "grpo"])
    pd.testing.assert_frame_equal(alone.speedups, again.speedups)


def test_arms_have_interval_and_interquartile_mean():
    made = study({"pods 64→16": ramps(0.1, 0.6, 0.7, 0.8), "grpo 16→16": ramps(0.5, 0.5)})
    row = compare(made, draws=10).arms.iloc[0]
    assert row.final_accuracy_iqm == pytest.approx(0.65)
    reference = stats.ttest_1samp([0.1, 0.6, 0.7, 0.8], 0).confidence_interval()
    limits = (row.final_accuracy_low, row.final_accuracy_high)
    assert limits == pytest.approx((reference.low, reference.high))
    assert row.plain_mean == pytest.approx(0.55)


def test_questions_by_hand():
    answers = [("pods 64→16 0", "a", 1.0), ("pods 64→16 1", "a", 0.5), ("pods 64→16 0", "b", 0.2),
               ("pods 64→16 1", "b", 0.2), ("pods 64→16 0", "c", 0.1), ("pods 64→16 1", "c", 0.7),
               ("grpo 16→16 0", "a", 0.5), ("grpo 16→16 1", "a", 0.5), ("grpo 16→16 0", "b", 0.4),
               ("grpo 16→16 1", "b", 0.6), ("grpo 16→16 0", "c", 0.3), ("grpo 16→16 1", "c", 0.5),
               ("grpo 16→16 0", "d", 1.0)]  # fmt: skip
    made = study({"pods 64→16": ramps(0.5, 0.7), "grpo 16→16": ramps(0.4, 0.5)}, answers=answers)
    (row,) = compare(made, ["pods", "grpo"]).questions.itertuples()
    differences = np.array([0.25, -0.3, 0.0])  # c: 0.4 and 0.4 but for rounding; d is not shared
    assert (row.questions, row.unshared) == (3, 1)
    assert (row.better, row.worse, row.equal) == (1, 1, 1)
    assert row.estimate == pytest.approx(differences.mean())
    assert row.stderr == pytest.approx(differences.std(ddof=1) / np.sqrt(3))
    assert "over questions, not over seeds" in format_comparison(compare(made), verbose=True)


# Verdicts


def test_a_verdict_names_the_higher_arm_with_its_evidence():
    for named, word in ((["pods", "grpo"], "HIGHER"), (["grpo", "pods"], "LOWER")):
        arms = {"pods 64→16": noisy(0, 0.80, 0.01), "grpo 16→16": noisy(1, 0.75, 0.01)}
        found = compare(study(arms), named)
        first, last = found.contrasts.itertuples()
        low, high, final = 100 * first.low, 100 * first.high, 100 * last.estimate
        [line] = verdicts(found)
        assert line.startswith(
            f"{first.series} vs {first.baseline}: {word} in mean accuracy, "
            f"{100 * first.estimate:+.2f} points [{low:.2f}, {high:.2f}], p < 0.0001; "
            f"final accuracy {final:+.2f} points ["
        )


def test_nothing_is_settled_where_the_interval_contains_0():
    made = study({"pods 64→16": noisy(0, 0.8, 0.05), "grpo 16→16": noisy(5, 0.8, 0.05)})
    found = compare(made)
    row = found.contrasts.iloc[0]
    assert row.low < 0 < row.high
    [line] = verdicts(found)
    assert line.startswith("pods 64→16 vs grpo 16→16: no difference settled in mean accuracy, ")
    assert "equal" not in line
    assert f"{100 * row.detectable:.2f}" in format_comparison(found, verbose=True)


def test_a_difference_that_holm_does_not_confirm_is_a_hint():
    alike = {f"other{k} 64→16": noisy(k + 20, 0.8, 0.03) for k in range(4)}
    made = study({"pods 64→16": noisy(0, 0.8, 0.03), "grpo 16→16": noisy(2, 0.77, 0.03), **alike})
    found = compare(made, ["pods", "grpo", *(name.split()[0] for name in alike)])
    row = found.contrasts.iloc[0]
    assert row.p < 0.05 < row.p_holm
    lines = verdicts(found)
    assert len(lines) == 5 and "only a hint, not settled after Holm, in mean accuracy" in lines[0]


def test_a_verdict_says_where_the_outcomes_disagree():
    early = [[(0, 0.2), (2, 0.8 + 0.001 * k), (10, 0.8 + 0.003 * k)] for k in range(6)]
    late = [[(0, 0.2), (2, 0.3), (10, 0.9 - 0.002 * k)] for k in range(6)]
    [line] = verdicts(compare(study({"grpo 16→16": early, "pods 64→16": late}), ["grpo", "pods"]))
    assert "grpo 16→16 vs pods 64→16: HIGHER in mean accuracy, +" in line
    assert "; final accuracy -" in line and line.endswith(": settled the other way")
    unsure = [[(0, 0.2), (2, 0.3), (10, 0.82 + 0.05 * (-1) ** k)] for k in range(6)]
    found = compare(study({"grpo 16→16": early, "pods 64→16": unsure}), ["grpo", "pods"])
    first, last = found.contrasts.itertuples()
    assert first.estimate > 0 > last.estimate and first.p_holm < 0.05 < last.p_holm
    assert "the other way" not in verdicts(found)[0]


@pytest.mark.parametrize("seeded", [True, False])
def test_differences_without_spread_are_not_tested(seeded):
    arms = {"pods 64→16": ramps(0.8, 0.8), "grpo 16→16": ramps(0.55, 0.55)}
    found = compare(study(arms, seeded=seeded), ["pods", "grpo"])
    columns = ["p", "p_holm", "low", "high", "bootstrap_low", "detectable", "runs_needed", "df"]
    assert found.contrasts[columns].isna().all(None)
    assert found.contrasts.estimate.tolist() == pytest.approx([0.125, 0.25])
    # 2 of 4 sign patterns; 2 of 6 arrangements
    assert found.contrasts.exact_p.tolist() == pytest.approx([1 / 2 if seeded else 1 / 3] * 2)
    assert found.arms[["final_accuracy_low", "final_accuracy_high"]].isna().all(None)
    assert verdicts(found) == [
        "pods 64→16 vs grpo 16→16: not tested (no spread between runs) in mean accuracy, "
        "+12.50 points; final accuracy +25.00 points"
    ]
    assert "nan" not in format_comparison(found, verbose=True).lower()
    assert as_json(found)["contrasts"][0]["runs_needed"] is None


def test_one_run_per_arm_allows_no_test():
    found = compare(study({"pods 64→16": ramps(0.8), "grpo 16→16": ramps(0.4)}))
    assert verdicts(found) == [
        "pods 64→16 vs grpo 16→16: not tested (an arm has one run) in mean accuracy, "
        "+20.00 points; final accuracy +40.00 points"
    ]
    assert found.contrasts[["stderr", "low", "p", "exact_p", "bootstrap_low"]].isna().all(None)
    peak = found.speedups[found.speedups.kind == "peak"].iloc[0]
    assert (peak.ratio, peak.steps_ratio) == pytest.approx((2.0, 4.0)) and np.isnan(peak.low)
    assert "nan" not in format_comparison(found).lower()
    assert as_json(found)["contrasts"][0]["p"] is None


def test_a_sentence_says_first_what_is_settled():
    pods, grpo, same = noisy(0, 0.80, 0.01), noisy(1, 0.75, 0.01), noisy(5, 0.75, 0.03)
    made = study({"pods 64→16": pods, "grpo 16→16": grpo, "random 64→16": same})
    row = compare(made, ["pods", "grpo"]).contrasts.iloc[0]
    by = f"{100 * row.estimate:.2f} points ({100 * row.low:.2f} to {100 * row.high:.2f})"
    said = f"is higher than grpo 16→16, by {by}."
    assert headline(compare(made, ["pods", "grpo"])) == f"In mean accuracy, pods 64→16 {said}"
    other = headline(compare(made, ["grpo", "pods"]))
    assert other == f"In mean accuracy, grpo 16→16 is lower than pods 64→16, by {by}."
    both = headline(compare(made))
    assert both.startswith("In mean accuracy, pods 64→16 is higher than grpo 16→16, by ")
    assert "; no difference between random 64→16 and grpo 16→16 is settled" in both
    two = headline(compare(made, ["pods", "grpo", "random"]))  # the first with each other one
    assert two == "In mean accuracy, pods 64→16 is higher than grpo 16→16, by " + two[59:]


def test_the_sentence_says_how_many_runs_could_settle_a_difference():
    made = study({"pods 64→16": noisy(0, 0.78, 0.05), "grpo 16→16": noisy(5, 0.768, 0.05)})
    found = compare(made)
    row = found.contrasts.iloc[0]
    assert row.p > 0.05 and row.runs_needed > row.n
    assert headline(found) == (
        "In mean accuracy, no difference between pods 64→16 and grpo 16→16 is settled by "
        f"{row.n} pairs of runs; about {row.runs_needed:.0f} would settle one as large as was "
        "measured."
    )


# Caveats


def test_caveats_of_few_runs_and_of_an_incomplete_study():
    arms = {"pods 64→16": noisy(0, 0.8, 0.01, 4), "grpo 16→16": noisy(1, 0.7, 0.01, 4)}
    flaws = {"missing": ["a run"], "inconsistencies": ["two machines"], "note": "nominal"}
    assert list(caveats(compare(study(arms, **flaws), draws=10))) == [
        "Fewer than 5 runs per arm cannot show whether a t interval is justified.",
        "With 4 and 4 runs, paired, the exact test cannot settle anything: its smallest p after "
        "Holm is 0.12.",
        "Missing: a run",
        "Inconsistent: two machines",
        "Note: nominal",
    ]


def test_caveats_of_an_exact_test_that_is_too_coarse_after_holm():
    names = ["pods 64→16", "grpo 16→16", "grpo_ga 64→64", "random 64→16", "best 64→16"]
    arms = {name: noisy(k, 0.8 - k / 20, 0.01, 7) for k, name in enumerate(names)}
    coarse = "the exact test cannot settle anything: its smallest p after Holm is 0.062."
    assert coarse in "".join(caveats(compare(study(arms), draws=10)))  # 4 x 2 / 128
    three = {name: arms[name] for name in names[:4]}  # 3 x 2 / 128 < 0.05
    assert "exact test" not in "".join(caveats(compare(study(three), draws=10)))


def test_a_caveat_names_a_difference_that_the_exact_test_does_not_confirm():
    pairs = (0.01, 0.06, -0.02, 0.03, 0.04, 0.06, 0.02)  # scipy: t 0.038; sign-flip 8 of 128
    arms = {"pods 64→16": ramps(*(0.5 + x for x in pairs)), "grpo 16→16": ramps(*[0.5] * 7)}
    assert (
        "The exact test does not confirm the final accuracy of pods 64→16 vs grpo 16→16 (p = 0.062 "
        "after Holm)."
    ) in list(caveats(compare(study(arms), draws=10)))


def test_caveats_of_a_window_that_ends_without_evaluations():
    # the fast arm ends at 3 s; the slow one was evaluated at 0 and near 10 s, or at 2.5 s too
    fast = [[(0, 0.2), (3, level)] for level in (0.5, 0.55, 0.6, 0.5, 0.52)]
    slow = [[(0, 0.2), (10 - 0.1 * k, 0.8)] for k in range(5)]
    seen = [[(0, 0.2), (2.5, 0.4), (10 - 0.1 * k, 0.8)] for k in range(5)]
    after = [[(0, 0.2), (3.5, 0.4), (10 - 0.1 * k, 0.8)] for k in range(5)]
    arms = {"grpo 16→16": fast, "pods 64→16": slow, "random 64→16": seen, "best 64→16": after}
    text = "\n".join(caveats(compare(study(arms), draws=10)))
    assert (
        "Runs of pods 64→16 have no evaluation within 0.6 s of the end, 3 s: the accuracy there is "
        "interpolated between evaluations up to 10 s apart."
    ) in text
    unequal = "Runs end at unequal times: the first at "
    assert f"{unequal}3 s, where the window ends, the last (pods 64→16) at 10 s." in text
    # one run of the arm is enough: its evaluations are 9.9 s apart
    text = "\n".join(
        caveats(compare(study({"grpo 16→16": fast, "pods 64→16": seen[:1] + slow[1:]})))
    )
    assert "Runs of pods 64→16 have no evaluation" in text and "up to 9.9 s apart" in text
    for end, said in ((11, False), (11.2, True)):  # 10 s of 11 are more than 90 %
        longer = [[*run, (end, 0.9)] for run in noisy(1, 0.8, 0.02)]
        near = compare(study({"grpo 16→16": noisy(0, 0.8, 0.02), "pods 64→16": longer}))
        assert (f"{unequal}10 s" in "".join(caveats(near))) is said


def test_a_comparison_without_flaws_has_no_caveats():
    arms = {"pods 64→16": noisy(0, 0.80, 0.01), "grpo 16→16": noisy(1, 0.75, 0.01)}
    found = compare(study(arms))
    assert not list(caveats(found)) and "caveats" not in format_comparison(found)


# Output


def test_the_output_fits_screen_and_files():
    arms = {"pods 64→16": noisy(0, 0.8, 0.02), "grpo 16→16": noisy(1, 0.6, 0.02),
            "grpo_ga 64→64": noisy(2, 0.7, 0.3)}  # fmt: skip
    found = compare(study(arms), draws=200)
    text = format_comparison(found)
    assert text.splitlines()[:4] == [headline(found), "", *verdicts(found)]
    assert max(map(len, text.splitlines()[4:])) <= 120
    assert "(peak)" in text and "authors" not in text and "bootstrap" not in text
    verbose = format_comparison(found, verbose=True)
    for name in ("(authors' rule)", "bootstrap_low", "exact_p_holm", "detectable", "runs_needed"):
        assert name in verbose
    data = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert data["settings"]["primary_outcome"] == "mean_accuracy"
    assert data["settings"]["bootstrap_draws"] == 200
    assert len(data["contrasts"]) == 4 and data["verdicts"] == verdicts(found)
    missed = [row for row in data["speedups"] if row["baseline_seconds"] == "not reached"]
    assert missed and all(row["ratio"] in ("infinite", None) for row in missed)
    assert list(csv_tables(found)) == ["compare.csv", "compare.arms.csv", "compare.speedup.csv",
                                       "compare.questions.csv"]  # fmt: skip
    assert csv_tables(found)["compare.csv"].equals(found.contrasts)


def test_misses_have_a_bound_instead_of_a_ratio():
    arms = {"pods 64→16": ramps(*[0.8] * 5, 0.79), "grpo 16→16": ramps(*[0.5] * 5, 0.49)}
    found = compare(study(arms), ["pods", "grpo"], targets=[0.6, 0.95])
    row, never = found.speedups.iloc[0], found.speedups.iloc[1]
    assert (row.low, row.high, row.ratio) == (np.inf, np.inf, np.inf)
    assert as_json(found)["speedups"][0]["low"] == "infinite"
    assert np.isnan(never.ratio)
    lines = {line.split("%")[0].split()[-1]: line.split("%")[1].split()
             for line in format_comparison(found).splitlines() if " % " in line[:32]}  # fmt: skip
    assert lines["60"] == [
        "7.50",
        "6",
        "inf",
        "0",
        "inf",
        "inf",
        "inf",
        "1.33",
        "inf",
    ]  # 10 / 7.5 s
    assert lines["95"][:4] == ["inf", "0", "inf", "0"]


def test_default_targets_on_the_first_line_of_both_arms_are_left_out():
    # pods passes 0.5 to 0.7 before its first evaluation, at 4 s; grpo 0.5 and 0.6 before its own
    pods = [[(0, 0.1), (4, 0.72 + 0.001 * k), (10, 0.91)] for k in range(4)]
    grpo = [[(0, 0.1), (4, 0.62 + 0.001 * k), (10, 0.81)] for k in range(4)]
    made = study({"pods 64→16": pods, "grpo 16→16": grpo})
    found = compare(made, ["pods", "grpo"], draws=10).speedups
    assert found[found.kind == "fixed"].target.tolist() == [0.7, 0.75, 0.8, 0.85, 0.9]
    # a target at the first evaluation itself was seen there
    level = study({"pods 64→16": [[(0, 0.1), (4, 0.6), (10, 0.91)]] * 3, "grpo 16→16": grpo})
    found = compare(level, ["pods", "grpo"], draws=10).speedups
    assert found[found.kind == "fixed"].target.tolist()[0] == 0.6
    given = compare(made, ["pods", "grpo"], targets=[0.5, 0.7], draws=10).speedups
    assert given[given.kind == "fixed"].target.tolist() == [0.5, 0.7]


def test_targets_that_a_user_gives_are_all_shown():
    made = study({"pods 64→16": noisy(0, 0.8, 0.02), "grpo 16→16": noisy(1, 0.6, 0.02)})
    text = format_comparison(compare(made, targets=[0.4, 0.3, 0.99, 0.5, 0.55], draws=100))
    shown = [line.split(" %")[0].split()[-1] for line in text.splitlines() if " % " in line[:32]]
    assert shown[:5] == ["30", "40", "50", "55", "99"]
    assert len(compare(made, targets=[], draws=10).speedups) == 2


def test_runs_of_no_time():
    made = study({"pods 64→16": [[(0, 0.5)], [(0, 0.6)]], "grpo 16→16": [[(0, 0.3)], [(0, 0.5)]]})
    found = compare(made)
    assert found.contrasts.estimate.tolist() == pytest.approx([0.15, 0.15])
    assert not len(found.speedups) and "0 s" in format_comparison(found)
