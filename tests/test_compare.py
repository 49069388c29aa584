"""Arms are compared: outcomes and speed-ups by hand, resampling by brute force, verdicts."""

import dataclasses
import itertools
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from curves import curve, pairs_of, ramps, study

from pods.analysis.compare.compare import compare
from pods.analysis.compare.speedup import default_targets, measured_targets, speedups
from pods.analysis.compare.tables import findings, format_comparison, tables_of
from pods.analysis.compare.text import caveats, verdicts
from pods.analysis.loading.arm_names import curves_named, default_baseline, resolve
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.numbers import outcomes
from pods.analysis.numbers.contrasts import differences
from pods.analysis.numbers.outcomes import Window, crossings, mean_accuracy, run_curves, window
from pods.analysis.numbers.statistics import holm, resamples, t_test, welch_test

PODS, GRPO = "pods 64→16", "grpo 16→16"


def noisy(seed, centre, spread, size=8):
    """Runs of 0, 5 and 10 s whose levels differ."""
    levels = np.random.default_rng(seed).normal(centre, spread, size)
    return [[(0, 0.2), (5, level - 0.1), (10, level)] for level in levels]


def test_outcomes_by_hand_in_the_window_that_all_records_cover():
    run = curve([(0, 0.2), (4, 0.6), (12, 1.0)])
    span = Window(0.0, 10.0)  # at 10 s: 0.6 + 0.4 * 6 / 8 = 0.9
    assert outcomes.final_accuracy(run, span) == pytest.approx(0.9)
    assert mean_accuracy(run, span) == pytest.approx((4 * 0.4 + 6 * 0.75) / 10)
    assert mean_accuracy(run, Window(4, 12)) == pytest.approx(0.8)
    longer = curve([(0, 0.2), (4, 0.6), (12, 1.0), (16, 0.0), (20, 1.0)])
    assert mean_accuracy(longer, span) == pytest.approx(mean_accuracy(run, span))
    assert mean_accuracy(run, Window(12, 12)) == 1.0
    short, late = curve([(0, 0), (9, 1)]), curve([(1, 0), (13, 1)])
    assert (window([run, short]), window([run, short, late])) == (Window(0, 9), Window(1, 9))
    with pytest.raises(ValueError, match="one ends at 9, the first evaluation of another one is"):
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


def test_only_complete_runs_count_and_a_curve_is_in_the_order_of_time():
    made = study({PODS: [[(0, 0.2), (4, 0.6), (12, 1.0)], [(0, 0.1), (3, 0.3)]]})
    backwards = dataclasses.replace(made, evaluations=made.evaluations[::-1])
    for first, second in (run_curves(one, PODS) for one in (made, backwards)):
        assert (first.seed, first.seconds.tolist()) == (0, [0, 4, 12])
        assert first.accuracy.tolist() == [0.2, 0.6, 1.0]
        assert (second.seed, second.accuracy.tolist()) == (1, [0.1, 0.3])
    made = study({PODS: ramps(0.5, 0.7)}, incomplete=[f"{PODS} 0"])
    assert [one.seed for one in run_curves(made, PODS)] == [1]


OURS = [curve(points, seed=k) for k, points in enumerate(ramps(0.8, 0.8, 0.4))]
THEIRS = [curve(points, "grpo 16→16", k) for k, points in enumerate(ramps(0.5, 0.4, 0.2))]
SPAN = Window(0.0, 10.0)


def speed(ours, theirs, targets, draws=50, paired=True):
    places = resamples([len(ours)] if paired else [len(ours), len(theirs)], draws, 0)
    return speedups(ours, theirs, targets, SPAN, (places[0], places[-1]))


def test_a_ratio_of_medians_with_misses_by_hand():
    # to 0.4: 5, 5, 10 s against 8, 10 s and never; 25, 25, 50 steps against 80, 100 and never
    at_40, at_60, at_90, peak = speed(OURS, THEIRS, [0.4, 0.6, 0.9])
    assert (at_40["seconds"], at_40["baseline_seconds"]) == pytest.approx((5, 10))
    assert (at_40["ratio"], at_40["steps_ratio"]) == pytest.approx((2, 4))
    assert (at_40["reached"], at_40["baseline_reached"], at_40["runs"]) == (3, 2, 3)
    assert np.isnan(at_40["bound"])
    # to 0.6: 7.5, 7.5 s and never, against never: faster than 10 / 7.5 for certain
    assert (at_60["ratio"], at_60["baseline_reached"]) == (np.inf, 0)
    assert at_60["bound"] == pytest.approx(10 / 7.5)
    assert np.isnan(at_90["ratio"]) and (at_90["reached"], at_90["baseline_reached"]) == (0, 0)
    # 99 % of the peak of the baseline's mean: 0.363; 10 * 0.363 / 0.8 against 10 * 0.363 / 0.4
    assert peak["target"] == pytest.approx(0.99 * 1.1 / 3)
    assert peak["ratio"] == pytest.approx(2)
    assert speed(OURS, THEIRS, [0.4], paired=False)[0]["ratio"] == pytest.approx(2)


def test_the_other_way_round_it_is_the_inverse_and_half_of_the_misses_is_a_miss():
    at_40, at_60, *_ = speed(THEIRS, OURS, [0.4, 0.6])
    assert (at_40["ratio"], at_60["ratio"], at_60["bound"]) == pytest.approx((0.5, 0, 0.75))
    (row, *_) = speed(OURS[1:], THEIRS[1:], [0.4])  # 5 and 10 s; 10 s and never
    assert (row["seconds"], row["baseline_seconds"], row["ratio"]) == (7.5, np.inf, np.inf)
    assert row["bound"] == pytest.approx(10 / 7.5)


def test_targets_lie_above_the_start_and_the_peak_after_it():
    """Both arms begin at 0.5; the baseline is best at its start, then at 10 s."""
    rising = [curve(points) for points in ([(0, 0.5), (10, 0.75)], [(0, 0.5), (10, 0.65)])]
    assert default_targets([rising, rising[:1]], SPAN) == [0.6, 0.7, 0.75]
    falling = [curve([(0, 0.9), (5, 0.3), (10, 0.6)], GRPO)] * 2
    *_, peak = speed(rising, falling, [])
    assert peak["target"] == pytest.approx(0.99 * 0.6)


def test_an_arm_with_a_single_run_has_a_ratio_and_no_interval():
    for ours, theirs in ((OURS, THEIRS[:1]), (OURS[:1], THEIRS)):
        for row in speed(ours, theirs, [0.3], paired=False):
            assert row["ratio"] > 1 and np.isnan([row["low"], row["high"]]).all()


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
        grid = outcomes.knots(theirs, span)
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


NAMED = study({
    PODS: ramps(0.5), "pods 32→16": ramps(0.5), "grpo 16→16, update.lr=0.1": ramps(0.5),
    "grpo_ga 64→64": ramps(0.5)})  # fmt: skip


def test_an_arm_is_named_by_label_rule_or_curve():
    words = {"pods 64→16": "pods 64→16", " pods 32->16": "pods 32→16", "grpo_ga": "grpo_ga 64→64"}
    by_key = ("grpo", "grpo 16->16", "grpo lr=0.1", "grpo, update.lr=0.1", "lr=0.1")
    words |= dict.fromkeys(by_key, "grpo 16→16, update.lr=0.1")
    assert {word: resolve(NAMED, word) for word in words} == words
    assert curves_named(NAMED, "pods") == ["pods 64→16", "pods 32→16"]
    with_steps = replace(NAMED, steps=NAMED.evaluations)
    shown = apply_filter(with_steps, StudyFilter(("pods", "grpo_ga")))
    assert [*shown.runs.series] == ["pods 64→16", "pods 32→16", "grpo_ga 64→64"]
    for word in ("lr=0.2", "pods grpo", ",", "64"):
        with pytest.raises(ValueError, match=f"arm '{word}' is unknown"):
            curves_named(NAMED, word)


@pytest.mark.parametrize(("arms", "targets", "message"), [
    (["pods", "grpo"], None, r"'pods' is ambiguous in .* one of pods 64→16 \| pods 32→16$"),
    (["max_variance", "grpo"], None, r"'max_variance' is ambiguous in .* pods 64→16 \| pods"),
    (["all", "grpo"], None, r"'all' is ambiguous in .* grpo 16→16, update.lr=0.1 \| grpo_ga"),
    (["gpro", "grpo"], None, "'gpro' is unknown in .* one of pods 64→16 .* grpo_ga 64→64$"),
    (["grpo", "grpo 16→16"], None, "arms=grpo grpo 16→16: must be two or more different"),
    (["grpo"], None, "arms=grpo: must be two or more different ones of pods 64→16"),
    *(([], [0.5, target], "target=.*: must be an accuracy above 0 and at most 1")
      for target in (0.0, 95.0, float("nan")))])  # fmt: skip
def test_what_is_not_clear_is_refused_with_the_candidates(arms, targets, message):
    with pytest.raises(ValueError, match=message):
        compare(NAMED, arms, targets=targets)


def test_which_arms_are_compared():
    grpo, rest = "grpo 16→16, update.lr=0.1", ["pods 64→16", "pods 32→16", "grpo_ga 64→64"]
    named = pairs_of(NAMED, ["grpo", "pods 64→16", "grpo_ga"])
    assert named == [[grpo, "pods 64→16"], [grpo, "grpo_ga 64→64"]]
    assert pairs_of(NAMED) == [[name, grpo] for name in rest]
    assert pairs_of(NAMED, ["grpo_ga"]) == [["grpo_ga 64→64", grpo]]
    one = ramps(0.5)
    # the only arm that keeps all of its rollouts; two of them; one that is not complete
    unlabelled = study({"mine 64→16": one, "all 16→16": one, "random 64→16": one})
    assert pairs_of(unlabelled) == [[name, "all 16→16"] for name in ("mine 64→16", "random 64→16")]
    two = study({GRPO: one, "grpo 32→32": one, PODS: one})
    assert default_baseline(two) is None and len(pairs_of(two)) == 3
    lost = study({GRPO: one, PODS: one, "random 64→16": one}, incomplete=[f"{GRPO} 0"])
    assert pairs_of(lost) == [[PODS, "random 64→16"]]
    lost = study({PODS: ramps(0.5, 0.6), GRPO: ramps(0.4)}, incomplete=[f"{GRPO} 0"])
    with pytest.raises(ValueError, match="'grpo 16→16' has no complete run"):
        compare(lost, ["pods", "grpo"])
    with pytest.raises(ValueError, match=r"two arms with .* the study has: pods 64→16$"):
        compare(lost)


def test_a_paired_contrast_tests_the_differences_of_its_pairs():
    made = study({PODS: noisy(0, 0.8, 0.02), GRPO: noisy(1, 0.75, 0.02)})
    found = compare(made, ["pods", "grpo"]).contrasts.set_index("outcome")
    ends = {s: rows.accuracy.to_numpy()[2::3] for s, rows in made.evaluations.groupby("series")}
    expected = t_test(ends[PODS] - ends[GRPO])
    row = found.loc["final_accuracy"]
    assert (row.design, row.runs, row.baseline_runs, row.left_out) == ("paired", 8, 8, 0)
    assert row.p == row.p_holm == pytest.approx(expected.p)
    assert (row.low, row.high) == pytest.approx((expected.low, expected.high))
    difference = ends[PODS] - ends[GRPO]
    assert (row.higher, row.lower) == ((difference > 0).sum(), (difference < 0).sum())
    # a run's area from 0.2: 5 (0.2 + l - 0.1) / 2 + 5 (2 l - 0.1) / 2, over 10: 0.75 l
    assert found.loc["mean_accuracy"].estimate == pytest.approx(0.75 * difference.mean())


def test_runs_whose_seeds_mean_nothing_are_not_paired():
    ours, theirs = noisy(0, 0.8, 0.02, 5), noisy(1, 0.75, 0.04, 7)
    found = compare(study({PODS: ours, GRPO: theirs}, seeded=False), ["pods", "grpo"])
    ends = [np.array([run[2][1] for run in runs]) for runs in (ours, theirs)]
    row = found.contrasts.set_index("outcome").loc["final_accuracy"]
    assert (row.design, row.runs, row.baseline_runs) == ("unpaired", 5, 7)
    assert row.p == pytest.approx(welch_test(*ends).p) and np.isnan(row.higher)
    sides = [run_curves(found.study, name) for name in (PODS, GRPO)]  # each has draws of its own
    peak = speedups(*sides, [], found.window, tuple(resamples([5, 7], found.draws, 0)))[0]
    assert found.speedups.iloc[-1][["low", "high"]].to_list() == [peak["low"], peak["high"]]


def test_pairs_are_of_shared_seeds_and_the_rest_is_counted():
    seeds = {PODS: [0, 1, 2, 3], GRPO: [0, 3, 1, 4]}
    made = study({PODS: ramps(0.1, 0.6, 0.1, 0.9), GRPO: ramps(0, 0.5, 0.4, 0)},
                 seeds=seeds, incomplete=["pods 64→16 0"])  # fmt: skip
    found = compare(made, ["pods", "grpo"])
    row = found.contrasts.set_index("outcome").loc["final_accuracy"]
    assert (row.runs, row.left_out, row.higher) == (2, 3, 2)
    assert row.estimate == pytest.approx((0.2 + 0.4) / 2)  # seeds 1 and 3
    assert found.left_out == [
        "pods 64→16 seed 2: grpo 16→16 has no such seed",
        "grpo 16→16 seed 0: pods 64→16 has no such seed",
        "grpo 16→16 seed 4: pods 64→16 has no such seed",
    ]
    assert found.arms[["runs", "left_out"]].to_numpy().tolist() == [[3, 1], [4, 0]]
    assert f"Left out: {found.left_out[0]}" in list(caveats(found))
    seeds = {PODS: [0, 1, 2], GRPO: [2, 3, 4]}  # one shared seed makes no pairs
    arms = {name: noisy(k, 0.8, 0.1, 3) for k, name in enumerate(seeds)}
    found = compare(study(arms, seeds=seeds))
    assert set(found.contrasts.design) == {"unpaired"} and not found.left_out
    assert "fewer than two seeds are not paired" in "".join(caveats(found))


def test_a_contrast_does_not_depend_on_what_else_is_compared_but_for_holm():
    made = study({PODS: noisy(0, 0.8, 0.02), GRPO: noisy(1, 0.79, 0.02),
                  "grpo_ga 64→64": noisy(2, 0.7, 0.02)})  # fmt: skip
    among = compare(made, ["pods", "grpo", "grpo_ga"])
    alone = compare(made, ["pods", "grpo"])
    columns = [c for c in alone.contrasts if not c.endswith("holm")]
    pd.testing.assert_frame_equal(alone.contrasts[columns], among.contrasts[columns][:2])
    rows = among.contrasts[among.contrasts.outcome == "final_accuracy"]
    assert rows.p_holm.tolist() == pytest.approx(holm(rows.p.to_numpy()))
    again = compare(made, ["pods", "grpo"])
    pd.testing.assert_frame_equal(alone.speedups, again.speedups)


def sentences(ours, theirs, arms=("pods", "grpo"), **others):
    found = compare(study({PODS: ours, GRPO: theirs, **others}), arms, draws=10)
    return verdicts(found), found.contrasts


def test_a_difference_is_above_or_below_with_its_interval():
    for arms, word in ((["pods", "grpo"], "above"), (["grpo", "pods"], "below")):
        [line, last], rows = sentences(noisy(0, 0.80, 0.01), noisy(1, 0.75, 0.01), arms)
        row = rows.iloc[0]
        low, high = sorted(100 * abs(end) for end in (row.low, row.high))
        points = f"{100 * abs(row.estimate):.2f} points"
        certainty = f"(95 % interval {low:.2f} to {high:.2f}, p < 0.0001)"
        assert line == f"Mean accuracy: {row.series} is {points} {word} {row.baseline} {certainty}."
        assert last.startswith("Final acc")


def test_the_interval_has_the_side_of_the_sentence_and_p_is_adjusted():
    [line, _], rows = sentences(noisy(0, 0.8, 0.05), noisy(5, 0.8, 0.05))
    row = rows.iloc[0]
    assert row.low < 0 < row.high
    assert row.estimate > 0
    interval = f"95 % interval {100 * row.low:.2f} to {100 * row.high:.2f}, p = {row.p:.2g}"
    assert f" points above grpo 16→16 ({interval})." in line
    [line, _], rows = sentences(noisy(5, 0.8, 0.05), noisy(0, 0.8, 0.05))
    row = rows.iloc[0]  # how far below, so that the interval holds the number before it
    assert row.low < row.estimate < 0 < row.high
    interval = f"95 % interval {-100 * row.high:.2f} to {-100 * row.low:.2f}, p = {row.p:.2g}"
    below = f"{-100 * row.estimate:.2f} points below grpo 16→16 ({interval})."
    assert below in line

    alike = {f"other{k} 64→16": noisy(k + 20, 0.8, 0.03) for k in range(4)}
    arms = ["pods", "grpo", *(name.split()[0] for name in alike)]
    lines, rows = sentences(noisy(0, 0.8, 0.03), noisy(2, 0.77, 0.03), arms, **alike)
    row = rows.iloc[0]
    assert row.p < 0.05 < row.p_holm and len(lines) == 10
    assert f"p = {row.p_holm:.2g} after Holm over 5 contrasts)." in lines[0]


@pytest.mark.parametrize(("size", "seeded", "clause"), [
    (6, True, "p < 0.0001)."),
    (5, True, "; with 5 pairs this rests on normal differences)."),
    (5, False, "; with 5 and 5 runs this rests on normal outcomes)."),
    (3, True, "; with 3 pairs this rests on normal differences).")])  # fmt: skip
def test_a_clause_says_what_few_runs_rest_on(size, seeded, clause):
    arms = {PODS: noisy(0, 0.8, 0.002, size), GRPO: noisy(1, 0.7, 0.002, size)}
    found = compare(study(arms, seeded=seeded), draws=10)
    for line in verdicts(found):
        assert " points above " in line and line.endswith(clause)


def test_two_runs_have_an_interval_and_no_p():
    arms = {PODS: noisy(0, 0.8, 0.002, 2), GRPO: noisy(1, 0.7, 0.002, 2)}
    found = compare(study(arms), draws=10)
    rows = found.contrasts
    assert rows.low.min() > 0 and rows[["p", "p_holm"]].isna().all(None)
    for line in verdicts(found):
        assert " points above grpo 16→16 (95 % interval " in line
        assert line.endswith("; with 2 pairs there is no p).")


def test_a_window_that_ends_early_is_named_unless_it_was_chosen():
    short = [[(0, 0.2), (8, 0.5), (10, 0.6)]] * 3
    long = [[(0, 0.2), (8, 0.5), (12, 0.6)]] * 3
    found = study({PODS: short, GRPO: long})
    unequal = [line for line in caveats(compare(found, draws=10)) if "unequal" in line]
    assert unequal == [f"Runs end at unequal times: the first at 10 s, where the window ends, the "
                       f"last ({GRPO}) at 12 s."]  # fmt: skip
    chosen = replace(found, until=9.0)
    assert not any("unequal" in line for line in caveats(compare(chosen, draws=10)))
    nearly = study({PODS: short, GRPO: [[(0, 0.2), (11, 0.6)]] * 3})  # 10 of 11 s are seen
    assert not any("unequal" in line for line in caveats(compare(nearly, draws=10)))


@pytest.mark.parametrize("seeded", [True, False])
def test_differences_without_spread_are_not_tested(seeded):
    arms = {PODS: ramps(0.8, 0.8, 0.8), GRPO: ramps(0.55, 0.55, 0.55)}
    found = compare(study(arms, seeded=seeded), ["pods", "grpo"])
    columns = ["p", "p_holm", "low", "high", "df"]
    assert found.contrasts[columns].isna().all(None)
    assert found.contrasts.estimate.tolist() == pytest.approx([0.125, 0.25])
    assert found.arms[["final_accuracy_low", "final_accuracy_high"]].isna().all(None)
    said = (
        "the difference is the same in all 3 pairs" if seeded else "the runs of each arm are equal"
    )
    assert verdicts(found)[0].endswith(f"12.50 points above grpo 16→16 ({said}).")
    assert "nan" not in format_comparison(found).lower()


def test_one_run_per_arm_allows_no_test():
    found = compare(study({PODS: ramps(0.8), GRPO: ramps(0.4)}))
    assert " (with 1 and 1 runs there is no p)." in verdicts(found)[0]
    assert found.contrasts[["stderr", "low", "p"]].isna().all(None)
    peak = found.speedups[found.speedups.kind == "peak"].iloc[0]
    assert (peak.ratio, peak.steps_ratio) == pytest.approx((2.0, 4.0)) and np.isnan(peak.low)
    assert "nan" not in format_comparison(found).lower()


GAP = [(0, 0.0), (4, 0.5), (6, np.nan), (8, 0.9), (10, 1.0)]
"""A run whose evaluation at 6 s gave no number: what is reached after 4 s is not known."""


def test_a_gap_in_a_curve_leaves_later_crossings_unknown_and_not_never():
    targets = np.array([0.25, 0.5, 0.7, 1.1, np.nan])
    seconds, steps = crossings([curve(GAP)], targets, Window(0, 10))
    assert seconds[:, 0] == pytest.approx([2, 4, np.nan, np.nan, np.nan], nan_ok=True)
    assert steps[:, 0] == pytest.approx([10, 20, np.nan, np.nan, np.nan], nan_ok=True)
    early, _ = crossings([curve(GAP)], targets, Window(0, 4))  # ends before the gap
    assert early[:, 0] == pytest.approx([2, 4, np.inf, np.inf, np.nan], nan_ok=True)
    nothing, _ = crossings([curve([(0, np.nan), (10, 1.0)])], targets, Window(0, 10))
    assert np.isnan(nothing).all()


def test_a_gap_in_one_run_leaves_its_comparison_unknown():
    arms = {PODS: [GAP, *ramps(0.99, 0.98)], GRPO: ramps(0.5, 0.52, 0.49)}
    found = compare(study(arms), ["pods", "grpo"], targets=[0.25, 0.51], draws=200)
    known, unknown, _ = found.speedups.itertuples()
    assert known.reached == 3 and 1 < known.ratio < np.inf
    assert unknown.reached == 2 and np.isnan([unknown.ratio, unknown.bound]).all()
    assert (unknown.low, unknown.high) == (0, np.inf)  # anything
    mean, final = verdicts(found)
    assert mean == ("Mean accuracy: pods 64→16 against grpo 16→16 is unknown: "
                    "a run has a value that is no number.")  # fmt: skip
    assert " points above " in final  # at 10 s all runs have a value
    # the gap is in the baseline: its peak is unknown, and another run's default targets are timed
    other = compare(study(arms), ["grpo", "pods"], draws=50)
    assert np.isnan(other.speedups[other.speedups.kind == "peak"].ratio).all()
    assert 0.9 in other.speedups.target.tolist()


def test_an_arm_with_a_gap_is_ranked_last():
    lower = {GRPO: ramps(0.5, 0.6, 0.55), "all 8→8": ramps(0.1, 0.2, 0.3)}
    arms = {PODS: [GAP, *ramps(0.8, 0.9)], **lower}
    ranking = compare(study(arms), draws=10, by="mean").ranking
    assert ranking.table.series.tolist() == [GRPO, "all 8→8", PODS]
    assert ranking.table.against_best.tolist()[2] == "not told apart"


def test_caveats():
    few = {PODS: noisy(0, 0.8, 0.01, 4), GRPO: noisy(1, 0.7, 0.01, 4)}
    flaws = {"missing": ["a run"], "inconsistencies": ["two machines"], "note": "nominal"}
    said = list(caveats(compare(study(few, **flaws), draws=10)))
    parts = ("Missing: a run", "Inconsistent: two machines", "Note: nominal")
    assert len(said) == 3 and all(part in line for part, line in zip(parts, said, strict=True))
    for end, said in ((11, False), (11.2, True)):  # 10 s of 11 are more than 90 %
        longer = [[*run, (end, 0.9)] for run in noisy(1, 0.8, 0.02)]
        near = compare(study({GRPO: noisy(0, 0.8, 0.02), PODS: longer}), draws=10)
        assert ("the first at 10 s" in "".join(caveats(near))) is said
    found = compare(study({PODS: noisy(0, 0.80, 0.01), GRPO: noisy(1, 0.75, 0.01)}), draws=10)
    assert not list(caveats(found)) and "caveats" not in format_comparison(found)


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_at_a_grid_point_is_that_of_the_runs_there(paired):
    """Halfway, at 5 s, each run is on its line, at half of what it has in the end."""
    ours, theirs = np.array((0.5, 0.9, 0.75)), np.array((0.1, 0.4, 0.5))
    made = study({PODS: ramps(*ours), GRPO: ramps(*theirs)}, seeded=paired)
    halfway = (ours / 2, theirs / 2)
    test = t_test(halfway[0] - halfway[1]) if paired else welch_test(*halfway)
    row = differences(made).set_index("train_seconds").loc[5.0]
    assert row.design == ("paired" if paired else "unpaired")
    expected = [(ours - theirs).mean() / 2, test.low, test.high]
    assert [row.estimate, row.low, row.high] == pytest.approx(expected)
    # a study without baseline or an arm of one run has no difference
    assert differences(study({PODS: ramps(0.5, 0.6)})).empty
    assert differences(study({PODS: ramps(0.5, 0.6), GRPO: ramps(0.5)})).empty


def test_the_output_fits_screen_and_files():
    others = {GRPO: noisy(1, 0.6, 0.02), "grpo_ga 64→64": noisy(2, 0.7, 0.3)}
    found = compare(study({PODS: noisy(0, 0.8, 0.02)} | others), draws=200)
    lines = format_comparison(found).splitlines()
    assert lines[:4] == verdicts(found) and max(map(len, lines[5:])) <= 120
    data = json.loads(json.dumps(findings(found), allow_nan=False))
    assert data["settings"]["primary_outcome"] == "mean_accuracy"
    assert data["settings"]["bootstrap_draws"] == 200 and data["verdicts"] == verdicts(found)
    assert list(tables_of(found)) == ["", "arms.", "speedup."]
    assert tables_of(found)[""].equals(found.contrasts)


def test_misses_have_a_bound_instead_of_a_ratio():
    arms = {PODS: ramps(*[0.8] * 5, 0.79), GRPO: ramps(*[0.5] * 5, 0.49)}
    found = compare(study(arms), ["pods", "grpo"], targets=[0.6, 0.95])
    row, never = found.speedups.iloc[0], found.speedups.iloc[1]
    assert (row.low, row.high, row.ratio) == (np.inf, np.inf, np.inf) and np.isnan(never.ratio)
    other = compare(study(arms), ["grpo", "pods"], targets=[0.6])
    lines = "\n".join(map(format_comparison, (found, other)))
    cells = [" ".join(line.split("%")[1].split()) for line in lines.splitlines() if " 60 %" in line]
    assert cells == [  # 10 / 7.5 s; what was not reached is no zero
        "7.50 6 never 0 inf inf inf 1.33 inf", "never 0 7.50 6 never never never 0.75 never",
    ]  # fmt: skip


def test_which_targets_are_timed():
    """The default ones are above the start and reached, and not on the first line of both arms."""
    arms = [[curve([(0, 0.55), (10, 0.9)])], [curve([(0, 0.1), (10, 0.76)], GRPO)]]
    assert default_targets(arms, SPAN) == [0.6, 0.7, 0.75, 0.8, 0.85, 0.9]

    def timed(made, **options):
        found = compare(made, ["pods", "grpo"], draws=10, **options)
        shown = [line.split(" %")[0].split()[-1] for line in format_comparison(found).splitlines()
                 if " % " in line[:32]]  # fmt: skip
        return found.speedups[found.speedups.kind == "fixed"].target.tolist(), shown

    # pods passes 0.5 to 0.7 before its first evaluation, at 4 s; grpo 0.5 and 0.6 before its own
    pods = [[(0, 0.1), (4, 0.72 + 0.001 * k), (10, 0.91)] for k in range(4)]
    grpo = [[(0, 0.1), (4, 0.62 + 0.001 * k), (10, 0.81)] for k in range(4)]
    made = study({PODS: pods, GRPO: grpo})
    assert timed(made)[0] == [0.7, 0.75, 0.8, 0.85, 0.9]
    half = [curve([(0, 0.1), (4, at), (10, 1.0)]) for at in (0.9, 0.2)]  # one of two is early
    assert measured_targets([half], [0.5, 0.95], SPAN) == [0.95]
    # a target at the first evaluation itself was seen there
    assert timed(study({PODS: [[(0, 0.1), (4, 0.6), (10, 0.91)]] * 3, GRPO: grpo}))[0][0] == 0.6
    found, shown = timed(made, targets=[0.5, 0.4, 0.99, 0.7, 0.55])
    assert found == [0.4, 0.5, 0.55, 0.7, 0.99] and shown[:5] == ["40", "50", "55", "70", "99"]
    assert timed(made, targets=[])[0] == []


def test_runs_of_no_time():
    made = study({PODS: [[(0, 0.5)], [(0, 0.6)]], GRPO: [[(0, 0.3)], [(0, 0.5)]]})
    found = compare(made)
    assert found.contrasts.outcome.tolist() == ["final_accuracy"]  # which the mean equals
    assert found.contrasts.estimate.tolist() == pytest.approx([0.15])
    assert not len(found.speedups) and "0 s" in format_comparison(found)
