"""Contract: under drift and noise `compare` raises few false alarms and finds real effects; one sample never decides.

The timings are simulated: a subject's time follows a drift that the next run of either side continues.
"""

import math
from typing import Any

import numpy as np
import pytest

from gemmulate.evidence.comparison import Settings, run
from gemmulate.evidence.schedule import order
from gemmulate.evidence.verdict import analyse, thresholds

RUNS = 1000


class Machine:
    """Time per run: base · (1 + drift · progress) · lognormal noise that may last (autocorrelation).

    `busy` is the share of time in which another process takes the core for milliseconds; its spells last a few runs.
    """

    def __init__(
        self, seed: int, runs: int, drift: float, noise: float, memory: float = 0.0, busy: float = 0.0
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.runs, self.drift, self.noise, self.memory, self.busy = runs, drift, noise, memory, busy
        self.step, self.last, self.disturbed = 0, 0.0, False

    def next(self) -> float:
        self.last = self.memory * self.last + self.rng.normal(0.0, self.noise)
        self.step += 1
        if self.busy and self.rng.random() < 0.5:
            self.disturbed = bool(self.rng.random() < self.busy)
        waiting = self.rng.integers(1, 3) * 4e-3 if self.disturbed else 0.0
        return 1e-3 * (1 + self.drift * self.step / self.runs) * math.exp(self.last) + waiting


class Simulated:
    def __init__(self, name: str, machine: Machine, effect: float) -> None:
        self.name, self.description, self.machine, self.effect = name, name, machine, effect

    def run(self, repeats: int) -> float:
        return sum(self.machine.next() for _ in range(repeats)) * self.effect

    def output(self) -> str | None:
        return "same"

    def release(self) -> None:
        pass


def verdicts(
    pairs: int, effect: float, noise: float, drift: float, memory: float = 0.0, busy: float = 0.0, runs: int = RUNS
) -> list[str]:
    found = []
    for seed in range(runs):
        machine = Machine(seed, 2 * pairs, drift, noise, memory, busy)
        subjects = Simulated("A", machine, 1.0), Simulated("B", machine, effect)
        result = run(*subjects, Settings(pairs=pairs, warmup=0, seed=seed), one_run_per_sample=True)
        found.append(result.verdict)
    return found


@pytest.mark.parametrize(
    ("noise", "memory", "busy"),
    [(0.01, 0.0, 0.0), (0.05, 0.0, 0.0), (0.05, 0.8, 0.0), (0.01, 0.0, 0.35)],
    ids=["quiet", "noisy", "noise that lasts", "busy"],
)
def test_false_alarms_under_one_percent_drift(noise: float, memory: float, busy: float) -> None:
    found = verdicts(40, 1.0, noise, 0.01, memory, busy)
    assert found.count("faster") + found.count("slower") <= 0.05 * RUNS


@pytest.mark.parametrize(("effect", "verdict"), [(1.02, "slower"), (1 / 1.02, "faster")])
@pytest.mark.parametrize("pairs", [12, 30])
def test_a_two_percent_effect_is_found(effect: float, verdict: str, pairs: int) -> None:
    assert verdicts(pairs, effect, 0.01, 0.01).count(verdict) >= 0.90 * RUNS


def test_a_busy_machine_hides_neither_a_difference_nor_its_absence() -> None:
    for effect, verdict in ((1.0, "same"), (1.05, "slower")):
        assert verdicts(200, effect, 0.01, 0.01, busy=0.35, runs=100).count(verdict) >= 95
    machine = Machine(1, 400, 0.0, 0.01, busy=0.35)
    result = analyse(order(200, 1), np.array([machine.next() for _ in range(400)]))
    assert (result.unit, result.units) == ("quiet pair", 25)


def disturbed(shape: str, pairs: int, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Timings without an effect: 1 % noise and a disturbance that both sides meet, at a phase that differs by run."""
    rng = np.random.default_rng([2026, seed])
    runs = 2 * pairs
    step = np.arange(runs)
    phase = 2 * math.pi * rng.random()
    noise = rng.normal(0, 0.01, runs)
    log = {
        "slow sine": lambda: 0.05 * np.sin(2 * math.pi * step / runs + phase),
        "sine of a quad": lambda: 0.05 * np.sin(2 * math.pi * step / 4 + phase),
        "sine of two quads": lambda: 0.05 * np.sin(2 * math.pi * step / 8 + phase),
        "odd sine": lambda: 0.05 * np.sin(2 * math.pi * step / 7.3 + phase),
        "step": lambda: np.where(step >= rng.integers(runs), 0.2, 0.0),
        "steps": lambda: np.cumsum(np.where(rng.random(runs) < 0.05, rng.normal(0, 0.05, runs), 0.0)),
        "bursts": lambda: np.sum(
            [np.where(abs(step - rng.integers(runs)) < rng.integers(1, 6), 1.0, 0.0) for _ in range(3)], axis=0
        ),
        "heavy tail": lambda: np.minimum(0.02 * rng.pareto(1.2, runs), 5.0),
        "Cauchy": lambda: np.clip(0.01 * rng.standard_cauchy(runs), -1.0, 5.0),
        "two clocks": lambda: 0.1 * (np.cumsum(rng.random(runs) < 0.3) % 2),
        "random walk": lambda: np.cumsum(rng.normal(0, 0.01, runs)),
    }[shape]()
    return np.asarray(1e-3 * np.exp(log + noise))


SHAPES = ["slow sine", "sine of a quad", "sine of two quads", "odd sine", "step", "steps", "bursts", "heavy tail"]


@pytest.mark.parametrize("shape", [*SHAPES, "Cauchy", "two clocks", "random walk"])
def test_false_alarms_under_other_disturbances(shape: str) -> None:
    found = [analyse(order(24, 7000 + seed), disturbed(shape, 24, seed)).verdict for seed in range(400)]
    assert found.count("faster") + found.count("slower") <= 0.05 * 400


def test_ten_percent_drift_hides_nothing() -> None:
    found = verdicts(30, 1.0, 0.01, 0.10, runs=200)
    assert found.count("faster") + found.count("slower") <= 10
    assert verdicts(30, 1.02, 0.01, 0.10, runs=200).count("slower") >= 180


def test_blocks_would_have_raised_false_alarms() -> None:
    """The design matters: the same drift judged in the order AABB alone is a difference."""
    machine = Machine(1, 80, 0.05, 0.001)
    times = np.array([machine.next() for _ in range(80)])
    blocks = analyse("AB" * 40, np.stack((times[:40], times[40:]), axis=1).ravel())
    assert blocks.verdict == "slower"
    assert analyse(order(40, 1), times).verdict == "same"


@pytest.mark.parametrize("pairs", range(1, 7))
def test_too_few_pairs_never_decide(pairs: int) -> None:
    times = np.where(np.array(list(order(pairs, 0))) == "A", 1.0, 0.001)
    result = analyse(order(pairs, 0), times)
    assert (result.verdict, result.reason, result.ratio_interval) == ("undecided", "too_few_pairs", None)
    assert analyse(order(7, 0), np.where(np.array(list(order(7, 0))) == "A", 1.0, 0.001)).verdict == "faster"


def test_no_percentile_below_its_floor() -> None:
    for pairs, known in ((28, ["p50"]), (29, ["p10", "p50", "p90"]), (58, ["p10", "p50", "p90"])):
        percentiles = analyse(order(pairs, 0), np.ones(2 * pairs)).percentiles["b"]
        assert [name for name, one in percentiles.items() if one.value is not None] == known
        assert all("not enough samples" in one.note for one in percentiles.values() if one.value is None)
    assert analyse(order(299, 0), np.ones(598)).percentiles["a"]["p99"].value == 1


def test_a_certain_but_small_difference_is_the_same() -> None:
    letters = order(60, 3)
    times = np.where(np.array(list(letters)) == "A", 1.0, 1.004)
    result = analyse(letters, times)
    assert (result.verdict, result.reason) == ("same", "below_smallest_effect")
    assert result.ratio == pytest.approx(1.004)


def test_a_wide_interval_is_undecided() -> None:
    letters = order(20, 3)
    times = np.exp(np.random.default_rng(2).normal(0, 0.5, 40))
    assert analyse(letters, times).reason == "interval_too_wide"


def test_a_time_below_the_floor_is_impossible() -> None:
    letters = order(20, 3)
    times = np.where(np.array(list(letters)) == "A", 1.0, 0.5)
    assert analyse(letters, times, floor_s=0.4).verdict == "faster"
    result = analyse(letters, times, floor_s=0.6)
    assert (result.verdict, result.reason) == ("undecided", "below_floor")


def test_a_minority_of_huge_differences_does_not_decide() -> None:
    """A few outliers on one side do not outvote the others: ranks, not sizes, count."""
    letters = order(40, 3)
    times = np.exp(np.random.default_rng(2).normal(0, 0.002, 80))
    slow = [i for i, letter in enumerate(letters) if letter == "B"][:3]
    times[slow] *= 50
    assert analyse(letters, times).verdict == "same"


@pytest.mark.parametrize(
    ("letters", "times"),
    [("ABB", [1.0, 1, 1]), ("AABB", [1.0, 1, 1, 1]), ("AB", [1.0]), ("AB", [0.0, 1]), ("AB", [float("nan"), 1])],
)
def test_what_is_no_paired_timing(letters: str, times: list[float]) -> None:
    with pytest.raises(ValueError, match=r"order|time"):
        analyse(letters, np.array(times))


def test_the_order_is_balanced_quads() -> None:
    seen = set()
    for seed in range(50):
        letters = order(10, seed)
        quads = {letters[i : i + 4] for i in range(0, 20, 4)}
        assert quads <= {"ABBA", "BAAB"}
        assert letters == order(10, seed)
        seen.add(letters)
        assert order(5, seed) == order(6, seed)[:10]
    assert len(seen) > 20


def test_the_thresholds_are_versioned() -> None:
    rules = thresholds()
    assert rules.version == 1
    assert rules.smallest_effect < rules.equivalence
