"""From paired timings to a verdict: undecided until the evidence says faster, slower or same, with a reason code."""

import math
import tomllib
from functools import cache
from importlib.resources import files

import msgspec
import numpy as np

from gemmulate.evidence.statistics import (
    PERCENTILES,
    Floats,
    drift,
    hodges_lehmann,
    order_statistic_ranks,
    outliers,
    quartile_ratio,
    sample_floor,
)

Interval = tuple[float, float]

REASONS = {
    "too_few_pairs": "too few pairs for an interval; run more",
    "below_floor": "a time lies below the floor, which is impossible; check what was timed",
    "outputs_differ": "the outputs of A and B differ",
    "outputs_unknown": "equal outputs were asked for, and a side gave nothing that can be compared",
    "calibration_failed": "A against A came out different; the machine is not quiet enough",
    "signs_disagree": "the interval and the majority of the pairs point in different directions",
    "interval_too_wide": "the interval holds both a difference and none; run more pairs",
    "interval_excludes_one": "the whole interval of the ratio lies on one side of 1",
    "interval_within_margin": "the whole interval of the ratio lies within the equivalence margin",
    "below_smallest_effect": "the difference is certain and smaller than the smallest effect that counts",
}


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The figures of thresholds.toml."""

    version: int
    confidence: float
    percentile_confidence: float
    quads_from_pairs: int
    disturbed_quartile_ratio: float
    quiet_group_quads: int
    quiet_groups: int
    equivalence: float
    smallest_effect: float
    sign_agreement: float
    auto_width: float
    auto_first_pairs: int
    auto_pairs: int
    auto_seconds: float


@cache
def thresholds() -> Thresholds:
    """The thresholds of this version."""
    text = files("gemmulate.evidence").joinpath("thresholds.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Thresholds)


class Percentile(msgspec.Struct, frozen=True):
    """A quantile in seconds with its interval, or a note saying how many samples it needs."""

    value: float | None
    interval: Interval | None
    note: str = ""


class Analysis(msgspec.Struct, frozen=True):
    """Statistics and verdict of one set of paired timings; ratio = time of B / time of A, below 1 when B is faster."""

    verdict: str
    reason: str
    ratio: float | None
    ratio_interval: Interval | None
    difference_s: float | None
    difference_interval_s: Interval | None
    confidence: float
    unit: str
    units: int
    pairs: int
    sign_agreement: float | None
    percentiles: dict[str, dict[str, Percentile]]
    drift: float
    outliers: dict[str, int]
    thresholds_version: int


def analyse(order: str, times_s: Floats, *, floor_s: float | None = None, rules: Thresholds | None = None) -> Analysis:
    """Judge timings taken in `order`, a string of A and B in which every two letters are a pair.

    times_s: seconds in the order taken. floor_s: a time that no run can beat. The verdict is "faster" when B is.
    Raises ValueError when order and times do not match or a time is not positive.
    """
    rules = rules or thresholds()
    times = np.asarray(times_s, dtype=np.float64)
    sides = np.array(list(order))
    if len(order) != len(times) or len(order) % 2 or any(set(order[i : i + 2]) != {"A", "B"} for i in _starts(order)):
        raise ValueError(f"order {order[:40]!r} does not describe {len(times)} timings in pairs of A and B")
    if len(times) and not (np.isfinite(times).all() and times.min() > 0):
        raise ValueError("a time is zero, negative or not finite; time more work per sample")
    a, b = times[sides == "A"], times[sides == "B"]
    pairs = len(a)
    unit, log_units, second_units = _units(order, times, pairs, rules)
    ratio = interval = difference = difference_interval = agreement = None
    if pairs:
        centre, log_interval = hodges_lehmann(log_units, rules.confidence)
        difference, difference_interval = hodges_lehmann(second_units, rules.confidence)
        ratio = math.exp(centre)
        interval = None if log_interval is None else (math.exp(log_interval[0]), math.exp(log_interval[1]))
        agreement = float(np.mean(np.sign(log_units) == np.sign(centre)))
    verdict, reason = _decide(ratio, interval, agreement, rules)
    if floor_s is not None and len(times) and times.min() < floor_s:
        verdict, reason = "undecided", "below_floor"
    normalised = np.where(sides == "A", times / np.median(a), times / np.median(b)) if pairs else times
    return Analysis(
        verdict=verdict,
        reason=reason,
        ratio=ratio,
        ratio_interval=interval,
        difference_s=difference,
        difference_interval_s=difference_interval,
        confidence=rules.confidence,
        unit=unit,
        units=len(log_units),
        pairs=pairs,
        sign_agreement=agreement,
        percentiles={
            "a": _percentiles(a, rules.percentile_confidence),
            "b": _percentiles(b, rules.percentile_confidence),
        },
        drift=drift(normalised),
        outliers={"a": outliers(a) if pairs else 0, "b": outliers(b) if pairs else 0},
        thresholds_version=rules.version,
    )


def _starts(order: str) -> range:
    return range(0, len(order), 2)


def _units(order: str, times: Floats, pairs: int, rules: Thresholds) -> tuple[str, Floats, Floats]:
    """What the statistics count, and its differences B − A in logarithms and in seconds.

    Single pairs when they are few, else whole quads, a pair left over being dropped; the quietest pair of each group
    of quads when many runs were disturbed.
    """
    log_pairs, second_pairs = _differences(order, np.log(times)), _differences(order, times)
    if pairs < rules.quads_from_pairs:
        return "pair", log_pairs, second_pairs
    whole = pairs // 2 * 2
    log_quads, second_quads = log_pairs[:whole].reshape(-1, 2), second_pairs[:whole].reshape(-1, 2)
    if quartile_ratio(log_pairs) <= rules.disturbed_quartile_ratio:
        return "quad", log_quads.mean(axis=1), second_quads.mean(axis=1)
    size = 2 * max(1, min(rules.quiet_group_quads, whole // 2 // rules.quiet_groups))
    kept = whole // size * size
    totals = times.reshape(-1, 2).sum(axis=1)[:kept].reshape(-1, size)
    quiet = np.arange(0, kept, size) + totals.argmin(axis=1)
    return "quiet pair", log_pairs[quiet], second_pairs[quiet]


def _differences(order: str, values: Floats) -> Floats:
    """B − A of every pair."""
    return np.array([(values[i + 1] - values[i]) * (1 if order[i] == "A" else -1) for i in _starts(order)])


def _decide(
    ratio: float | None, interval: Interval | None, agreement: float | None, rules: Thresholds
) -> tuple[str, str]:
    if ratio is None or interval is None or agreement is None:
        return "undecided", "too_few_pairs"
    low, high = interval
    margin = 1 + rules.equivalence
    excludes_one = high < 1 or low > 1
    if excludes_one and abs(math.log(ratio)) >= math.log1p(rules.smallest_effect):
        if agreement <= rules.sign_agreement:
            return "undecided", "signs_disagree"
        return ("faster" if high < 1 else "slower"), "interval_excludes_one"
    if 1 / margin <= low and high <= margin:
        return "same", "below_smallest_effect" if excludes_one else "interval_within_margin"
    return "undecided", "interval_too_wide"


def _percentiles(times: Floats, confidence: float) -> dict[str, Percentile]:
    result = {}
    ordered = np.sort(times)
    for p in PERCENTILES:
        ranks = order_statistic_ranks(len(times), p, confidence)
        name = f"p{round(100 * p)}"
        if ranks is None:
            note = f"not enough samples: {len(times)} of {sample_floor(p, confidence)}"
            result[name] = Percentile(None, None, note)
        else:
            ends = (float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1]))
            result[name] = Percentile(float(np.quantile(times, p)), ends)
    return result
