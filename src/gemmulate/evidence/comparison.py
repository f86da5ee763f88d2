"""Paired comparison of two kernels: warm up, take ABBA quads, judge, keep everything.

B is the candidate, A what it is compared with: "faster" means that B is faster.
"""

import gc
import math
import time
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from gemmulate.evidence import schedule, store
from gemmulate.evidence.environment import environment
from gemmulate.evidence.statistics import MAX_UNITS
from gemmulate.evidence.subjects import Subject
from gemmulate.evidence.verdict import REASONS, Analysis, Interval, Percentile, Thresholds, analyse, thresholds

# A sample shorter than this is repeated inside the timed span: the clock's own cost stays below 0.1 %.
MIN_SAMPLE_S: Final = 1e-3
MAX_REPEATS: Final = 1_000_000
MAX_PAIRS: Final = 2 * MAX_UNITS

Progress = Callable[[int, int], None]


class Outputs(msgspec.Struct, frozen=True):
    """Fingerprints of what A and B gave, in the order first seen; `equal` is None when one cannot be told."""

    a: list[str]
    b: list[str]
    equal: bool | None


class Calibration(msgspec.Struct, frozen=True):
    """What comparing A with itself gave: a sound machine says "same"."""

    verdict: str
    reason: str
    ratio: float | None
    ratio_interval: Interval | None


class Comparison(msgspec.Struct, frozen=True, tag_field="kind", tag="comparison"):
    """The verdict on B against A, and all it rests on. Times in seconds; ratio = time of B / time of A."""

    verdict: str
    reason: str
    explanation: str
    ratio: float | None
    ratio_interval: Interval | None
    difference_s: float | None
    difference_interval_s: Interval | None
    confidence: float
    sign_agreement: float | None
    percentiles: dict[str, dict[str, Percentile]]
    drift: float
    outliers: dict[str, int]
    outputs: Outputs
    pairs: int
    unit: str
    units: int
    samples: dict[str, list[float]]
    order: str
    seed: int
    warmup: int
    repeats: dict[str, int]
    timer: str
    floor_s: float | None
    thresholds_version: int
    calibration: Calibration | None
    subjects: dict[str, str]
    environment: dict[str, str]


class Settings(msgspec.Struct, frozen=True):
    """How a comparison is run: the arguments of `compare` of the same names.

    Raises ValueError out of range, TypeError for a count that is no integer.
    """

    pairs: int | None = None
    warmup: int = 3
    seed: int | None = None
    timer: str = "wall"
    floor_s: float | None = None
    same_output: bool = False
    calibrate: bool = False
    store: str | None = None

    def __post_init__(self) -> None:
        for name in ("pairs", "warmup", "seed"):
            count = getattr(self, name)
            if count is not None and not isinstance(count, (int, np.integer)):
                raise TypeError(f"{name} = {count!r} is no integer; give a whole number")
        if self.pairs is not None and not 1 <= self.pairs <= MAX_PAIRS:
            raise ValueError(f"pairs = {self.pairs} is outside 1…{MAX_PAIRS}; 60 give p95, 300 give p99")
        if not 0 <= self.warmup <= 1000:
            raise ValueError(f"warmup = {self.warmup} is outside 0…1000")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"seed = {self.seed} is outside 0…2^63 − 1")
        if self.floor_s is not None and not 0 < self.floor_s < float("inf"):
            raise ValueError(f"floor = {self.floor_s} s is not a positive finite time")


def run(
    a: Subject, b: Subject, settings: Settings, *, one_run_per_sample: bool = False, progress: Progress | None = None
) -> Comparison:
    """Compare two subjects; the record is appended to `settings.store` when the run is complete.

    The store is checked first, so that no measurement is lost to a name that cannot be written.
    """
    if settings.store is not None:
        store.check(settings.store)
    seed = schedule.new_seed() if settings.seed is None else settings.seed
    rules = thresholds()
    collecting = gc.isenabled()
    gc.disable()
    try:
        seen = {"A": _Seen(), "B": _Seen()}
        for _ in range(settings.warmup):
            for subject in (a, b):
                subject.run(1)
                seen[subject.name].add(subject.output())
                subject.release()
        repeats = {"A": 1, "B": 1} if one_run_per_sample else _repeats(a, b)
        calibration = None
        if settings.calibrate:
            _, calibration = _take(a, a, settings, seed + 1, repeats, rules, seen, None)
        (order, times), analysis = _take(a, b, settings, seed, repeats, rules, seen, progress)
    finally:
        if collecting:
            gc.enable()
    result = _record(settings, seed, repeats, order, times, analysis, calibration, seen, (a, b))
    if settings.store is not None:
        store.append(settings.store, result)
    return result


class _Seen:
    """Distinct fingerprints of one side; a few are enough to show that it is not reproducible."""

    def __init__(self) -> None:
        self.prints: list[str] = []
        self.unknown = False

    def add(self, fingerprint: str | None) -> None:
        if fingerprint is None:
            self.unknown = True
        elif fingerprint not in self.prints and len(self.prints) < 4:
            self.prints.append(fingerprint)


def _repeats(a: Subject, b: Subject) -> dict[str, int]:
    """Runs per sample of each side, such that the samples of both last equally long.

    An interruption of a given length then hits both sides with the same odds and the same weight: with samples of
    unequal length, a busy machine makes the side with the longer ones look slow. Sides that are close get one count,
    because a second run in a row finds warmer caches than the first: 1 against 2 runs made A/A differ by 1 % (int8
    product of 512³ on one core, 2026-11-29).
    """
    single = {subject.name: _single_run_s(subject) for subject in (a, b)}
    fast, slow = sorted(single.values())
    if slow < 2 * fast:
        return dict.fromkeys(single, min(MAX_REPEATS, math.ceil(MIN_SAMPLE_S / slow)))
    length = max(MIN_SAMPLE_S, slow)
    return {name: min(MAX_REPEATS, round(length / seconds)) for name, seconds in single.items()}


def _single_run_s(subject: Subject) -> float:
    """Seconds of one run, from enough of them to fill the shortest sample; the fastest of several tries."""
    repeats = 1
    while (seconds := min(subject.run(repeats) for _ in range(5))) < MIN_SAMPLE_S and repeats < MAX_REPEATS:
        repeats *= 2
    subject.release()
    return max(seconds, 1e-9) / repeats


def _take(
    a: Subject,
    b: Subject,
    settings: Settings,
    seed: int,
    repeats: dict[str, int],
    rules: Thresholds,
    seen: dict[str, _Seen],
    progress: Progress | None,
) -> tuple[tuple[str, list[float]], Analysis]:
    limit = settings.pairs or rules.auto_pairs
    order = schedule.order(limit, seed)
    times: list[float] = []
    start = time.monotonic()
    target = settings.pairs or rules.auto_first_pairs
    while True:
        while len(times) < 2 * target:
            letter = order[len(times)]
            subject = a if letter == "A" else b
            times.append(subject.run(repeats[subject.name]) / repeats[subject.name])
            # Fingerprints cost time and cache; the first quad and the last run show what there is to see.
            if len(times) <= 4 or len(times) >= 2 * limit - 4:
                seen[subject.name].add(subject.output())
            subject.release()
            if progress is not None:
                progress(len(times), 2 * target)
            if settings.pairs is None and _used_up(start, times, rules):
                break
        done = order[: len(times)]
        analysis = analyse(done, np.array(times), floor_s=settings.floor_s, rules=rules)
        if settings.pairs is not None or len(times) < 2 * target or target == limit or _narrow(analysis, rules):
            return (done, times), analysis
        target = min(limit, target * 3 // 2 // 2 * 2)


def _used_up(start: float, times: list[float], rules: Thresholds) -> bool:
    """The time is over and whole quads are in, enough of them to be units."""
    return (
        time.monotonic() - start > rules.auto_seconds
        and len(times) % 4 == 0
        and len(times) >= 2 * rules.quads_from_pairs
    )


def _narrow(analysis: Analysis, rules: Thresholds) -> bool:
    if analysis.ratio_interval is None:
        return False
    low, high = analysis.ratio_interval
    return high / low <= 1 + rules.auto_width


def _record(
    settings: Settings,
    seed: int,
    repeats: dict[str, int],
    order: str,
    times: list[float],
    analysis: Analysis,
    calibration: Analysis | None,
    seen: dict[str, _Seen],
    subjects: tuple[Subject, Subject],
) -> Comparison:
    equal = None if seen["A"].unknown or seen["B"].unknown else seen["A"].prints == seen["B"].prints
    verdict, reason = analysis.verdict, analysis.reason
    if verdict in ("faster", "slower") and calibration is not None and calibration.verdict in ("faster", "slower"):
        verdict, reason = "undecided", "calibration_failed"
    if settings.same_output and equal is not True and reason != "below_floor":
        verdict, reason = "undecided", "outputs_unknown" if equal is None else "outputs_differ"
    return Comparison(
        verdict=verdict,
        reason=reason,
        explanation=REASONS[reason],
        ratio=analysis.ratio,
        ratio_interval=analysis.ratio_interval,
        difference_s=analysis.difference_s,
        difference_interval_s=analysis.difference_interval_s,
        confidence=analysis.confidence,
        sign_agreement=analysis.sign_agreement,
        percentiles=analysis.percentiles,
        drift=analysis.drift,
        outliers=analysis.outliers,
        outputs=Outputs(seen["A"].prints, seen["B"].prints, equal),
        pairs=analysis.pairs,
        unit=analysis.unit,
        units=analysis.units,
        samples={
            side.lower(): [seconds for letter, seconds in zip(order, times, strict=True) if letter == side]
            for side in "AB"
        },
        order=order,
        seed=seed,
        warmup=settings.warmup,
        repeats={side.lower(): count for side, count in repeats.items()},
        timer=settings.timer,
        floor_s=settings.floor_s,
        thresholds_version=analysis.thresholds_version,
        calibration=None
        if calibration is None
        else Calibration(calibration.verdict, calibration.reason, calibration.ratio, calibration.ratio_interval),
        subjects={subject.name.lower(): subject.description for subject in subjects},
        environment=environment(),
    )
