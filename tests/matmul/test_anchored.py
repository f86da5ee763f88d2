"""Correct rounding by anchored sums: every element against exact integers, and the ways out where they cannot tell."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gemmulate.engines import get_engine
from gemmulate.engines.base import Engine
from gemmulate.engines.native import instruction_sets
from gemmulate.schemes import floats
from gemmulate.schemes.anchored import MAX_SPAN, multiply_anchored, prefers_anchored

from .checks import assert_bits
from .oracles import correctly_rounded

Array = np.ndarray[Any, Any]
Data = Callable[[np.random.Generator, int, int, int], tuple[Array, Array]]


@pytest.fixture(params=["avx2", "avxvnni", "avx512vnni"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if not instruction_sets().get(request.param):
        pytest.skip(f"this processor or build has no {request.param}")
    return get_engine(f"native-{request.param}", 2)


def gaussian(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.standard_normal((m, k)), rng.standard_normal((k, n))


def wide(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    a, b = gaussian(rng, m, k, n)
    return a * np.exp2(rng.integers(-40, 40, (m, k))), b * np.exp2(rng.integers(-40, 40, (k, n)))


def cancelling(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Pairs of terms that cancel but for the last bits."""
    a, b = gaussian(rng, m, k, n)
    h = k // 2
    a[:, h : 2 * h], b[h : 2 * h] = a[:, :h], -b[:h] * (1 + 2.0**-50)
    return a, b


def ties(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Sums that lie halfway between two floats, or next to halfway."""
    a, b = np.zeros((m, k)), np.ones((k, n))
    a[:, 0] = 2.0**53 + 2 * rng.integers(0, 100, m)
    a[:, k // 2] = 1.0
    a[::2, -1] = rng.choice([2.0**-60, -(2.0**-60), 2.0**-100], len(a[::2]))
    return a, b


def integral(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.integers(-9, 9, (m, k)).astype(float), rng.integers(-9, 9, (k, n)).astype(float)


def scattered(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Mostly zeros, of both signs: many results have no term at all."""
    a, b = gaussian(rng, m, k, n)
    return np.where(rng.random(a.shape) < 0.9, -0.0, a), np.where(rng.random(b.shape) < 0.9, 0.0, b)


def tiny(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    a, b = gaussian(rng, m, k, n)
    return a * 2.0**-530, b * 2.0**-520  # results around 2^-1050: subnormal


def huge(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    a, b = gaussian(rng, m, k, n)
    return a * 2.0**520, b * 2.0**502  # results around the largest float


def subnormal(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    a, b = gaussian(rng, m, k, n)
    return a * 2.0**-1060, b * 2.0**900


SHAPES = [(1, 2, 1), (5, 3, 25), (13, 257, 24), (97, 129, 31), (3, 600, 121)]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("data", [gaussian, wide, cancelling, ties, integral, scattered, tiny, huge, subnormal])
def test_every_element_is_correctly_rounded_or_reported(engine: Engine, data: Data, dtype: str) -> None:
    finished = 0
    for m, k, n in SHAPES:
        rng = np.random.default_rng(m + k)
        with np.errstate(all="ignore"):
            a, b = (x.astype(dtype) for x in data(rng, m, k, n))
        a[~np.isfinite(a)], b[~np.isfinite(b)] = 1, 1
        bt = b.T
        want = correctly_rounded(a, b)
        scans = engine.scan(a, None), engine.scan(bt, None)
        out = np.full((2 * m, n + 3), 5, dtype=dtype)[::2, 3:]
        if multiply_anchored(engine, a, bt, *scans, out):
            finished += 1
            assert_bits(out, want)
        single = np.empty((m, n), dtype=dtype)
        if engine.exact_product(a, bt, single):
            assert_bits(single, want)
    if data in (gaussian, wide, integral):
        assert finished == len(SHAPES)  # not left to the residues


def test_many_open_elements_are_left_to_the_residues(engine: Engine) -> None:
    rng = np.random.default_rng(3)
    a, b = cancelling(rng, 80, 200, 90)
    out = np.empty((80, 90))
    assert not multiply_anchored(engine, a, b.T, engine.scan(a, None), engine.scan(b.T, None), out)
    choice = floats.choose_floats(engine, a, b.T, "exact")
    assert choice.anchored
    floats.multiply_floats(engine, a, b.T, choice, out)
    assert_bits(out, correctly_rounded(a, b))


def test_a_wide_span_is_not_anchored(engine: Engine) -> None:
    for span, anchored in ((MAX_SPAN - 60, True), (MAX_SPAN + 10, False)):
        a = np.random.default_rng(4).standard_normal((70, 70))
        a[0, 0] = 2.0**-span
        scans = engine.scan(a, None), engine.scan(a.T, None)
        assert prefers_anchored(engine, *scans, 70, a.dtype) == anchored
        out = np.empty((70, 70))
        floats.multiply_floats(engine, a, a.T, floats.choose_floats(engine, a, a.T, "exact"), out)
        assert_bits(out, correctly_rounded(a, a))
        assert engine.exact_product(a, a.T, out) == anchored


def test_nonfinite_operands_leave_the_short_way(engine: Engine) -> None:
    a = np.ones((4, 4))
    a[1, 2] = np.nan
    assert not engine.exact_product(a, np.ones((4, 4)), np.empty((4, 4)))
