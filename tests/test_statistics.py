"""Intervals, tests and resampling, against hand-worked numbers, scipy and brute force."""

import numpy as np
import pytest
from scipy import stats

from pods.analysis.numbers import statistics
from pods.analysis.numbers.statistics import percentile_interval, permutation, sign_flip, t_test


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


@pytest.mark.parametrize("sizes", [(2,), (3,), (8,), (11,), (2, 2), (8, 8), (10, 4), (3, 12)])
def test_t_tests_are_those_of_scipy(sizes):
    """Paired, of one size; and Welch's of two."""
    if len(sizes) == 1:
        ours, theirs = samples(sizes[0], *sizes * 2)
        found, reference = t_test(ours - theirs), stats.ttest_rel(ours, theirs)
    else:
        ours, theirs = samples(sum(sizes), *sizes)
        found, reference = t_test(ours, theirs), stats.ttest_ind(ours, theirs, equal_var=False)
    interval = reference.confidence_interval()
    assert (found.p, found.df) == pytest.approx((reference.pvalue, reference.df), rel=1e-10)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-10)
    assert found.estimate == pytest.approx(ours.mean() - theirs.mean())


@pytest.mark.parametrize("test", [
    t_test(np.array([0.25, 0.25])),
    t_test(np.array([0.8 - 0.55, 0.35 - 0.1, 0.95 - 0.7])),  # 0.25 but for rounding
    t_test(np.zeros(5)),
    t_test(np.array([0.0, 1e-17, -1e-17])),
    t_test(np.array([0.75, 0.75]), np.array([0.5, 0.5, 0.5])),
    t_test(np.array([0.1 + 0.2, 0.3]), np.array([0.3, 0.3]))])  # fmt: skip
def test_differences_without_spread_settle_nothing(test):
    assert test.estimate == pytest.approx(0.25) or abs(test.estimate) < 1e-16
    assert test.stderr < 1e-15
    assert np.isnan([test.df, test.low, test.high, test.p]).all()


def test_a_small_spread_is_still_a_test():
    one = t_test(np.array([0.25, 0.25 + 1e-9]))
    assert one.p == pytest.approx(stats.ttest_1samp([0.25, 0.25 + 1e-9], 0).pvalue, rel=1e-4)
    # one arm alike and the other not: Welch's df are those of the other
    mixed = t_test(np.array([0.5, 0.5, 0.5]), np.array([0.4, 0.6]))
    assert mixed.df == pytest.approx(1.0) and mixed.p == pytest.approx(1.0)


@pytest.mark.parametrize("sizes", [(2,), (5,), (9,), (3, 6), (7, 2), (5, 5)])
def test_exact_tests_go_through_all_arrangements_as_those_of_scipy(sizes):
    """Sign-flip, of one size; and permutation of two: the share of as large a difference."""
    drawn, paired = samples(sum(sizes), *sizes), len(sizes) == 1
    reference = stats.permutation_test(
        drawn, lambda one, *other: abs(one.mean() - sum(map(np.mean, other))),
        permutation_type="samples" if paired else "independent", alternative="greater",
        n_resamples=np.inf, vectorized=False)  # fmt: skip
    found = sign_flip(*drawn) if paired else permutation(*drawn)
    assert (found.p, found.drawn) == (pytest.approx(reference.pvalue), 0)
    alike = 2 if sizes[0] == sizes[-1] else 1  # of one size each difference comes with both signs
    assert found.smallest == alike / len(reference.null_distribution)
    assert paired or permutation(*drawn[::-1]).p == found.p


def test_one_run_against_several_by_hand():  # scipy wants two of each
    one, several = np.array([9.0]), np.array([1.0, 2.0, 3.0, 4.0])
    for found in (permutation(one, several), permutation(several, one)):
        assert found.p == found.smallest == 1 / 5  # any of the five could be the one


def test_exact_tests_see_ties_through_rounding():
    assert sign_flip(np.array([0.1, 0.2, -0.3])).p == 1.0  # sums to 5e-17 and not to 0
    rng = np.random.default_rng(0)
    for _ in range(20):  # accuracies are n / 1280: the same p as in whole numbers
        ours, theirs = rng.integers(900, 910, (2, 7)).astype(float)
        assert sign_flip((ours - theirs) / 1280).p == sign_flip(ours - theirs).p
        assert permutation(ours / 1280, theirs / 1280).p == permutation(ours, theirs).p


def test_many_runs_are_rearranged_at_random_and_that_is_said():
    low, high = samples(1, 21, 21)[0], samples(1, 21, 21)[0] + 9
    for test in (sign_flip(high), permutation(low, high)):
        assert test.drawn == statistics.RANDOM_ARRANGEMENTS
        assert test.p == test.smallest == 1 / (1 + test.drawn)  # the one seen counts
    pairs = samples(5, 25)[0] - 0.3
    assert sign_flip(pairs, seed=1) == sign_flip(pairs, seed=1) != sign_flip(pairs, seed=2)
    assert sign_flip(pairs).p == pytest.approx(t_test(pairs).p, abs=0.03)
    ours, theirs = samples(6, 12, 12)
    assert permutation(ours, theirs).drawn == statistics.RANDOM_ARRANGEMENTS
    assert permutation(ours, theirs).p == pytest.approx(t_test(ours, theirs).p, abs=0.03)


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
