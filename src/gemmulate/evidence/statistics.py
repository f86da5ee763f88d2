"""Distribution-free statistics of paired timings: signed-rank and order-statistic intervals, drift, outliers.

Nothing here assumes normal noise: timings have long right tails. All intervals are exact for independent differences
that are symmetric about their centre (signed rank) or for any distribution at all (order statistics).
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The exact null distribution costs n³/6 additions; 1,000 units take a third of a second.
MAX_UNITS: Final = 1000
PERCENTILES: Final = (0.10, 0.50, 0.90, 0.95, 0.99)


@lru_cache(maxsize=32)
def signed_rank_cutoff(n: int, confidence: float) -> int | None:
    """Largest c with P(W+ ≤ c) ≤ (1 − confidence)/2 for n pairs; None when even c = 0 is too likely.

    W+ is the sum of the ranks of positive differences; under the null each rank is in with probability 1/2
    (Wilcoxon 1945). Exact up to rounding for n ≤ 1,000; raises ValueError beyond.

    >>> signed_rank_cutoff(6, 0.95), signed_rank_cutoff(5, 0.95)
    (0, None)
    """
    if not 1 <= n <= MAX_UNITS:
        raise ValueError(f"n = {n} is outside 1…{MAX_UNITS}; use fewer pairs")
    chance = np.zeros(n * (n + 1) // 2 + 1)
    chance[0] = 1.0
    top = 0
    for rank in range(1, n + 1):
        top += rank
        # Halving at each step keeps probabilities instead of counts, which overflow at n = 1024.
        chance[rank : top + 1] = 0.5 * (chance[rank : top + 1] + chance[: top - rank + 1])
        chance[:rank] *= 0.5
    # The tail is compared with a hair of slack: (1 − 0.95)/2 is not 0.025 in binary.
    tail = (1 - confidence) / 2 * (1 + 1e-12)
    below = np.cumsum(chance)
    return int(np.searchsorted(below, tail, side="right")) - 1 if below[0] <= tail else None


def walsh_averages(differences: Floats) -> Floats:
    """The sorted averages (d_i + d_j)/2 for i ≤ j (Walsh 1949); n(n + 1)/2 of them."""
    i, j = np.triu_indices(len(differences))
    return np.sort(0.5 * (differences[i] + differences[j]))


def hodges_lehmann(differences: Floats, confidence: float) -> tuple[float, tuple[float, float] | None]:
    """Centre of the differences and its signed-rank interval: the median of the Walsh averages (Hodges, Lehmann 1963).

    The interval covers the centre with at least `confidence` for independent symmetric differences, ties included; it
    is None when there are too few differences for it (fewer than 6 at 95 %, 7 at 98 %).

    >>> hodges_lehmann(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 0.95)
    (3.5, (1.0, 6.0))
    """
    averages = walsh_averages(differences)
    cutoff = signed_rank_cutoff(len(differences), confidence)
    interval = None if cutoff is None else (float(averages[cutoff]), float(averages[-1 - cutoff]))
    return float(np.median(averages)), interval


def quartile_ratio(differences: Floats) -> float:
    """Upper over lower quartile of the absolute differences: 3.6 for normal noise, 5.8 for Cauchy noise.

    It looks at sizes alone, never at signs: a choice between two sign-symmetric tests by it keeps both exact.

    >>> round(quartile_ratio(np.array([-1.0, 2.0, -3.0, 4.0, 5.0])), 2)
    2.0
    """
    low, high = np.quantile(np.abs(differences), (0.25, 0.75))
    if low == 0:
        return 1.0 if high == 0 else math.inf
    return float(high / low)


def binomial_probabilities(n: int, p: float) -> Floats:
    """P(Bin(n, p) = i) for i = 0…n, 0 < p < 1."""
    steps = np.log(np.arange(n, 0, -1)) - np.log(np.arange(1, n + 1))
    log_choose = np.concatenate(([0.0], np.cumsum(steps)))
    i = np.arange(n + 1)
    return np.asarray(np.exp(log_choose + i * math.log(p) + (n - i) * math.log1p(-p)))


def sample_floor(p: float, confidence: float) -> int:
    """Fewest samples whose range covers the p-quantile with `confidence`: smallest n with 1 − pⁿ − (1−p)ⁿ ≥ confidence.

    >>> [sample_floor(p, 0.95) for p in (0.10, 0.50, 0.90, 0.95, 0.99)]
    [29, 6, 29, 59, 299]
    """
    n = 1
    while 1 - p**n - (1 - p) ** n < confidence:
        n += 1
    return n


@lru_cache(maxsize=256)
def order_statistic_ranks(n: int, p: float, confidence: float) -> tuple[int, int] | None:
    """Ranks l < u, counted from 1, such that the l-th and u-th smallest enclose the p-quantile with `confidence`.

    Of all such pairs the one with the fewest ranks between, then the one whose tails differ least. None below the
    sample floor. Exact for every continuous distribution: P = Σ_{i=l}^{u−1} C(n,i) pⁱ (1−p)ⁿ⁻ⁱ (David, Nagaraja 2003,
    equation 7.1.2).

    >>> order_statistic_ranks(59, 0.95, 0.95), order_statistic_ranks(58, 0.95, 0.95)
    ((50, 59), None)
    """
    if n < sample_floor(p, confidence):
        return None
    below = np.concatenate(([0.0], np.cumsum(binomial_probabilities(n, p))))  # below[i] = P(Bin < i)
    for width in range(1, n):
        low = np.arange(1, n - width + 1)
        cover = below[low + width] - below[low]
        good = np.flatnonzero(cover >= confidence)
        if len(good):
            ranks = low[good]
            imbalance = np.abs(below[ranks] - (1 - below[ranks + width]))
            best = int(ranks[np.argmin(imbalance)])
            return best, best + width
    return 1, n


def drift(times: Floats) -> float:
    """Relative change of the timings over the run: Theil–Sen slope of the logarithms times the length.

    `times` in the order taken, each side already divided by its median. Long runs are reduced to 200 block medians
    first, which keeps the cost bounded.
    """
    if len(times) < 2:
        return 0.0
    blocks = np.array([np.median(block) for block in np.array_split(np.log(times), min(200, len(times)))])
    i, j = np.triu_indices(len(blocks), 1)
    slope = float(np.median((blocks[j] - blocks[i]) / (j - i)))
    return math.expm1(slope * len(blocks))


def outliers(times: Floats) -> int:
    """How many timings lie more than 5 scaled median absolute deviations above the median; they are kept."""
    median = np.median(times)
    spread = 1.4826 * np.median(np.abs(times - median))
    return int(np.count_nonzero(times > median + 5 * spread)) if spread > 0 else 0
