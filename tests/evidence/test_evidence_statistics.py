"""Contract: the intervals are exact: checked against enumeration, SciPy and coverage counts, not against themselves."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from gemmulate.evidence.statistics import (
    binomial_probabilities,
    drift,
    hodges_lehmann,
    order_statistic_ranks,
    outliers,
    sample_floor,
    signed_rank_cutoff,
    walsh_averages,
)


@pytest.mark.parametrize("n", range(1, 13))
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.98, 0.99])
def test_the_cutoff_against_all_sign_patterns(n: int, confidence: float) -> None:
    sums = [sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in itertools.product((0, 1), repeat=n)]
    tail = (1 - Fraction(str(confidence))) / 2
    good = [c for c in range(max(sums) + 1) if Fraction(sum(total <= c for total in sums), 2**n) <= tail]
    assert signed_rank_cutoff(n, confidence) == (max(good) if good else None)


@pytest.mark.parametrize("n", [15, 25, 40, 50])
def test_the_cutoff_against_scipy_s_exact_p_values(n: int) -> None:
    cutoff = signed_rank_cutoff(n, 0.95)
    assert cutoff is not None

    def p_value(positive_sum: int) -> float:
        # Differences 1…n whose positive ranks add up to the sum asked for, chosen greedily.
        signs, left = np.full(n, -1), positive_sum
        for rank in range(n, 0, -1):
            if left >= rank:
                signs[rank - 1], left = 1, left - rank
        return float(scipy.stats.wilcoxon(signs * np.arange(1, n + 1), method="exact").pvalue)

    assert p_value(cutoff) <= 0.05 < p_value(cutoff + 1)


def test_the_largest_number_of_units_is_near_the_normal_limit() -> None:
    n = 1000
    cutoff = signed_rank_cutoff(n, 0.95)
    mean, spread = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    assert cutoff == pytest.approx(mean - 1.959964 * spread, rel=1e-4)
    with pytest.raises(ValueError, match="outside"):
        signed_rank_cutoff(1001, 0.95)


def test_the_published_critical_values() -> None:
    # Wilcoxon's table, two-sided 5 %: the largest rank sum that rejects.
    table = {6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13, 15: 25, 20: 52, 25: 89, 30: 137}
    assert {n: signed_rank_cutoff(n, 0.95) for n in table} == table


def test_walsh_averages_and_the_centre() -> None:
    values = np.array([3.0, -1.0, 10.0, 2.5])
    pairs = sorted((values[i] + values[j]) / 2 for i in range(4) for j in range(i, 4))
    assert walsh_averages(values).tolist() == pairs
    assert hodges_lehmann(values, 0.95) == (float(np.median(pairs)), None)


@pytest.mark.parametrize("n", [7, 12, 30])
def test_the_signed_rank_interval_inverts_the_test(n: int) -> None:
    rng = np.random.default_rng(n)
    differences = rng.standard_t(3, n) + 0.3
    _, interval = hodges_lehmann(differences, 0.95)
    assert interval is not None
    for shift, inside in ((interval[0] - 1e-9, False), (interval[0] + 1e-9, True), (interval[1] - 1e-9, True)):
        p_value = float(scipy.stats.wilcoxon(differences - shift, method="exact").pvalue)
        assert (p_value > 0.05) is inside


@pytest.mark.parametrize("distribution", ["normal", "laplace", "ties"])
def test_the_signed_rank_interval_covers(distribution: str) -> None:
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(2000):
        if distribution == "ties":
            sample = rng.integers(-2, 3, 15).astype(float)
        else:
            sample = getattr(rng, distribution)(0.0, 1.0, 15)
        _, interval = hodges_lehmann(sample, 0.95)
        assert interval is not None
        missed += not interval[0] <= 0 <= interval[1]
    # 5 % of 2,000 is 100; four standard deviations of the count are 39.
    assert missed <= 139


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (7, 0.1), (60, 0.95), (300, 0.99), (2000, 0.5)])
def test_binomial_probabilities(n: int, p: float) -> None:
    expected = scipy.stats.binom.pmf(np.arange(n + 1), n, p)
    np.testing.assert_allclose(binomial_probabilities(n, p), expected, rtol=1e-9, atol=1e-300)


def test_the_sample_floors() -> None:
    assert [sample_floor(p, 0.95) for p in (0.90, 0.95, 0.99)] == [29, 59, 299]
    assert sample_floor(0.10, 0.95) == 29


@pytest.mark.parametrize("n", [5, 6, 10, 28, 29, 40, 58, 59, 100])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.95])
def test_the_ranks_are_the_narrowest_that_cover(n: int, p: float) -> None:
    def cover(low: int, high: int) -> float:
        return float(scipy.stats.binom.cdf(high - 1, n, p) - scipy.stats.binom.cdf(low - 1, n, p))

    good = [(low, high) for low in range(1, n + 1) for high in range(low + 1, n + 1) if cover(low, high) >= 0.95]
    ranks = order_statistic_ranks(n, p, 0.95)
    if not good:
        assert ranks is None
        assert n < sample_floor(p, 0.95)
    else:
        assert ranks in good
        assert ranks[1] - ranks[0] == min(high - low for low, high in good)


def test_the_percentile_interval_covers_a_skewed_distribution() -> None:
    rng = np.random.default_rng(3)
    truth = math.log(20)  # p95 of the unit exponential
    ranks = order_statistic_ranks(100, 0.95, 0.95)
    assert ranks is not None
    samples = np.sort(rng.exponential(size=(4000, 100)), axis=1)
    missed = np.count_nonzero((samples[:, ranks[0] - 1] > truth) | (samples[:, ranks[1] - 1] < truth))
    # 5 % of 4,000 is 200; four standard deviations are 55.
    assert missed <= 255


def test_drift_recovers_a_trend_under_outliers() -> None:
    rng = np.random.default_rng(5)
    times = np.exp(rng.normal(0, 0.01, 400)) * np.linspace(1.0, 1.10, 400)
    times[::37] *= 5
    assert drift(times) == pytest.approx(0.10, abs=0.01)
    assert drift(np.ones(3)) == 0
    assert drift(np.array([])) == 0


def test_outliers_are_counted_on_the_slow_side() -> None:
    times = np.concatenate((np.random.default_rng(1).normal(1, 0.01, 100), [2.0, 3.0, 0.5]))
    assert outliers(times) == 2
    assert outliers(np.ones(10)) == 0
