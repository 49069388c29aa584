"""Intervals, tests and resampling, against hand-worked numbers and scipy."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from pods.analysis.numbers import statistics
from pods.analysis.numbers.statistics import (
    TTest,
    holm,
    is_told_apart,
    percentile_interval,
    t_test,
    welch_test,
)


def samples(seed: int, *sizes: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(0.5 + 0.3 * k, 1.0 + k, size) for k, size in enumerate(sizes)]


def test_mean_stderr_and_t_interval_by_hand():
    mean, stderr = statistics.mean_and_stderr(np.array([[1.0, 1.0], [2.0, np.nan], [6.0, np.nan]]))
    assert mean.tolist() == [3.0, 1.0]
    assert stderr[0] == pytest.approx(np.sqrt((4 + 1 + 9) / 2 / 3)) and np.isnan(stderr[1])
    # 1, 2, 6: mean 3, stderr sqrt(7/3), t of 2 degrees of freedom 4.3027
    interval = pytest.approx((3 - 6.5725, 3 + 6.5725), abs=1e-4)
    values = np.array([1.0, 2.0, 6.0])
    test, apart = t_test(values), statistics.spread("a", values)
    assert (test.low, test.high) == interval == (apart["a_low"], apart["a_high"])
    alike = statistics.spread("a", np.array([0.1 + 0.2, 0.3, 0.3]))  # no spread, no interval
    assert alike["a"] == pytest.approx(0.3) and np.isnan([alike["a_low"], alike["a_high"]]).all()


def assert_is(found: TTest, reference, estimate: float):
    interval = reference.confidence_interval()
    expected = (reference.pvalue, reference.df, interval.low, interval.high)
    assert (found.p, found.df, found.low, found.high) == pytest.approx(expected, rel=1e-12)
    assert found.estimate == pytest.approx(estimate)
    assert found.stderr == pytest.approx(abs(found.estimate / reference.statistic))


@pytest.mark.parametrize("size", [3, 8, 11])
def test_of_pairs_it_is_the_paired_t_test(size):
    ours, theirs = samples(size, size, size)
    assert_is(t_test(ours - theirs), stats.ttest_rel(ours, theirs), (ours - theirs).mean())


@pytest.mark.parametrize("sizes", [(3, 3), (8, 8), (10, 4), (3, 12)])
def test_of_two_samples_it_is_the_test_of_welch(sizes):
    ours, theirs = samples(sum(sizes), *sizes)
    reference = stats.ttest_ind(ours, theirs, equal_var=False)
    assert_is(welch_test(ours, theirs), reference, ours.mean() - theirs.mean())


@pytest.mark.parametrize("shift", [1e-3, 1.0, 30.0])
def test_small_and_large_p_are_those_of_scipy(shift):
    ours, theirs = samples(5, 9, 6)
    ours = ours + theirs.mean() - ours.mean() + shift
    assert_is(welch_test(ours, theirs), stats.ttest_ind(ours, theirs, equal_var=False), shift)
    assert_is(t_test(ours), stats.ttest_1samp(ours, 0), ours.mean())


def test_a_comparison_does_not_import_scipy_stats():
    """It takes half a second, which was a third of `pods compare`."""
    code = "import sys, pods.analysis.compare.tables; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_one_run_is_an_estimate_and_two_have_an_interval_and_no_p():
    one, two = np.array([0.5]), np.array([0.25, 0.5])
    several = np.array([0.1, 0.2, 0.4])
    for test, estimate in ((t_test(one), 0.5), (welch_test(one, several), 0.5 - 0.7 / 3)):
        assert test.estimate == pytest.approx(estimate)
        assert np.isnan([test.stderr, test.df, test.low, test.high, test.p]).all()

    # mean 0.375, stderr 0.125, t of 1 degree of freedom 12.7062
    pair = t_test(two)
    assert (pair.low, pair.high) == pytest.approx((0.375 - 1.58828, 0.375 + 1.58828), abs=1e-4)
    unpaired = welch_test(two, several)
    interval = stats.ttest_ind(two, several, equal_var=False).confidence_interval()
    assert (unpaired.low, unpaired.high) == pytest.approx((interval.low, interval.high))
    assert np.isnan([pair.p, unpaired.p, welch_test(several, two).p, t_test(0 * two).p]).all()


@pytest.mark.parametrize("test", [
    t_test(np.array([0.25, 0.25, 0.25])),
    t_test(np.array([0.8 - 0.55, 0.35 - 0.1, 0.95 - 0.7])),  # 0.25 but for rounding
    welch_test(np.array([0.75, 0.75, 0.75]), np.array([0.5, 0.5, 0.5]))])  # fmt: skip
def test_a_difference_that_is_the_same_in_all_runs_is_not_tested(test):
    assert test.estimate == pytest.approx(0.25) and test.stderr < 1e-15
    assert np.isnan([test.df, test.low, test.high, test.p]).all()


@pytest.mark.parametrize("test", [
    t_test(np.zeros(5)),
    t_test(np.array([0.0, 1e-17, -1e-17])),
    welch_test(np.array([0.1 + 0.2, 0.3, 0.3]), np.array([0.3, 0.3, 0.3]))])  # fmt: skip
def test_no_difference_in_any_run_counts_as_a_test_that_found_nothing(test):
    assert abs(test.estimate) < 1e-16 and test.p == 1.0
    assert np.isnan([test.df, test.low, test.high]).all()


def test_a_small_spread_is_still_a_test_and_one_arm_may_have_none():
    values = 0.25 + np.array([0, 1e-9, 2e-9])
    assert t_test(values).p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-4)
    # one arm alike and the other not: the degrees of freedom are those of the other
    mixed = welch_test(np.array([0.5, 0.5, 0.5]), np.array([0.4, 0.6, 0.5]))
    assert mixed.df == pytest.approx(2.0) and mixed.p == pytest.approx(1.0)


def test_a_value_that_is_no_number_leaves_nothing_known():
    """Neither the smallest p of all nor a mean over the rest."""
    gap, whole = np.array([0.5, np.nan, 0.75, 0.5]), np.array([0.25, 0.5, 0.5])
    for test in (t_test(gap), welch_test(gap, whole), welch_test(whole, gap)):
        assert np.isnan([test.estimate, test.stderr, test.df, test.low, test.high, test.p]).all()
        assert not is_told_apart(test.p)


def test_holm_by_hand():
    """Of four tests: 4 x 0.01, 3 x 0.02, 2 x 0.025 raised to that, 0.6; a NaN is none of them."""
    adjusted = holm(np.array([0.6, 0.01, np.nan, 0.025, 0.02]))
    assert adjusted == pytest.approx([0.6, 0.04, np.nan, 0.06, 0.06], nan_ok=True)
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]  # no p is above 1
    assert np.isnan(holm(np.array([np.nan]))).all() and not len(holm(np.array([])))


def test_arms_are_told_apart_below_five_percent():
    assert [is_told_apart(p) for p in (0.0499, 0.05, np.nan)] == [True, False, False]


def test_bootstrap_draws_whole_runs_with_a_seed():
    places = statistics.resamples([3, 5], 4000, seed=1)
    assert [p.shape for p in places] == [(4000, 3), (4000, 5)]
    assert np.array_equal(places[1], statistics.resamples([3, 5], 4000, seed=1)[1])
    assert not np.array_equal(places[1], statistics.resamples([3, 5], 4000, seed=2)[1])
    one, other = statistics.resamples([5, 5], 4000, seed=1)  # of one size: each has its own draws
    assert (one == other).mean() == pytest.approx(0.2, abs=0.02)
    shares = np.bincount(places[1].ravel(), minlength=5) / places[1].size
    assert shares == pytest.approx([0.2] * 5, abs=0.01)


def test_percentile_interval_by_hand():
    assert percentile_interval(np.arange(41.0)) == (1.0, 39.0)  # ranks 0.025 * 40, 0.975 * 40
    assert percentile_interval(np.arange(40.0)) == (0.0, 39.0)  # 0.975 and 38.025, outwards
    # the ends of 41 with unknown ones: each could lie below and above all others
    values = np.array([np.nan, np.inf, *range(39)])
    assert percentile_interval(values) == (0.0, np.inf)
    assert percentile_interval(np.full(5, np.inf)) == (np.inf, np.inf)
