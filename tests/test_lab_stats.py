"""Means with confidence intervals, and ratios of means, of `tacit.lab`."""

import math
import random

import pytest

from tacit.lab._stats import Summary, fieller, ratio, t_quantile


def near(x, within):
    return pytest.approx(x, rel=0, abs=within)


def of_mean(s):
    """Student's interval of a mean."""
    half = t_quantile(s.n - 1) * math.sqrt(s.mean_variance)
    return s.mean - half, s.mean + half


@pytest.mark.parametrize("n", [2, 5, 10, 100])
def test_mean_and_deviation_of_one_to_n(n):
    # Mean (n + 1) / 2, variance n (n + 1) / 12.
    s = Summary.of([float(i) for i in range(1, n + 1)])
    assert s.mean == near((n + 1) / 2, 1e-12 * n) and s.sd == near(math.sqrt(n * (n + 1) / 12), 1e-12 * n)


def test_no_summary_of_nothing_and_none_of_what_is_not_finite():
    assert Summary.of([0.1] * 10) == Summary(10, 0.1, 0.0)
    assert Summary.of([]) is None and Summary.of([1.0, math.nan]) is None


def test_a_large_mean_costs_no_digits():
    assert Summary.of([v + 1e9 for v in (4.0, 7.0, 13.0, 16.0)]).sd == near(math.sqrt(30), 1e-9)


def test_quantiles_agree_with_the_closed_forms_and_the_table():
    # One degree of freedom: Cauchy, tan(pi (p - 1/2)). Two: 2 (p - 1/2) sqrt(2 / (4 p (1 - p))).
    p = 0.975
    assert t_quantile(1) == near(math.tan(math.pi * (p - 0.5)), 1e-6)
    assert t_quantile(2) == near(2 * (p - 0.5) * math.sqrt(2 / (4 * p * (1 - p))), 1e-8)
    assert t_quantile(9) == near(2.262_157, 1e-6)
    assert t_quantile(120) == near(1.979_930, 1e-6)


def test_quantiles_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 1.001, 1.5, 2.7, 8, 31.4, 1000, 1e6):
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-8)


def test_interval_of_a_mean():
    half = 2.262_157 * 2 / math.sqrt(10)
    low, high = of_mean(Summary(10, 5.0, 2.0))
    assert low == near(5 - half, 1e-5) and high == near(5 + half, 1e-5)


def test_what_all_values_share_does_not_average_out():
    s = Summary(100, 5.0, 2.0)
    assert s.with_shared([0.3, 0.5]).mean_variance == near(0.04 + 0.17, 1e-12)
    assert s.with_shared([]) == s


def test_ratio_against_hand_calculation():
    # A divisor without spread: Student's interval, scaled. Nine degrees of freedom, all from `a`.
    a, b = Summary(10, 6.0, 1.0), Summary(10, 3.0, 0.0)
    (low, high), mean = fieller(a, b), of_mean(a)
    assert ratio(a, b) == near(2.0, 1e-12)
    assert low == near(mean[0] / 3, 1e-9) and high == near(mean[1] / 3, 1e-9)
    # Equal samples of mean 10, sd 1, n 4: df 6, t 2.446912, g = t^2 / (4 * 100) = 0.0149684;
    # ends (1 -+ sqrt(1 - (1 - g)^2)) / (1 - g).
    s = Summary(4, 10.0, 1.0)
    low, high = fieller(s, s)
    g = 2.446_912**2 / 400
    root = math.sqrt(1 - (1 - g) ** 2)
    assert low == near((1 - root) / (1 - g), 1e-6) and high == near((1 + root) / (1 - g), 1e-6)


def test_no_interval_where_none_can_be_had():
    one, noisy, fine, same = Summary(1, 2.0, 0.0), Summary(3, 1.0, 5.0), Summary(3, 4.0, 0.1), Summary(3, 4.0, 0.0)
    assert fieller(one, fine) is None and fieller(fine, one) is None
    assert fieller(fine, noisy) is None, "the divisor may be zero"
    assert ratio(fine, Summary(3, 0.0, 0.1)) is None
    assert fieller(same, same) == (1.0, 1.0)


@pytest.mark.parametrize("case", range(24))
def test_coverage(case):
    """The true ratio lies in 95 % of the intervals: over 2000 draws, within 4 standard errors (0.5 % each) and the small known error
    of Welch's degrees of freedom."""
    dice = random.Random(case)
    n, m, truth = dice.randrange(4, 12), dice.randrange(4, 12), dice.uniform(0.2, 5.0)
    sd_a, sd_b = (10 * scale * dice.uniform(0.01, 0.15) for scale in (truth, 1.0))

    def covers():
        a = Summary.of([dice.gauss(10 * truth, sd_a) for _ in range(n)])
        b = Summary.of([dice.gauss(10, sd_b) for _ in range(m)])
        found = fieller(a, b)
        return found is not None and found[0] <= truth <= found[1]

    assert 0.925 <= sum(covers() for _ in range(2000)) / 2000 <= 0.975


@pytest.mark.parametrize("case", range(24))
def test_inverting_the_ratio_inverts_its_interval(case):
    dice = random.Random(100 + case)
    n, ma, mb = dice.randrange(3, 20), dice.uniform(1, 100), dice.uniform(1, 100)
    a, b = Summary(n, ma, ma * dice.uniform(0, 0.1)), Summary(n, mb, mb * dice.uniform(0.001, 0.1))
    there, back = fieller(a, b), fieller(b, a)
    assert abs(there[0] * back[1] - 1) < 1e-9 and abs(there[1] * back[0] - 1) < 1e-9
    assert there[0] <= ratio(a, b) <= there[1]
