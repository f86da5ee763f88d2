"""Assertions: exact results compare bit for bit, inexact ones against the bound of their grade in exact arithmetic."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from matmul.oracles import Array, ExactProduct, binary, exact_product, round_scaled


def bits_of(x: Array) -> Array:
    """The bit pattern of each element; NaNs (whose payloads carry no meaning) share one."""
    x = np.asarray(x)
    if x.dtype.kind == "f" or x.dtype.name == "bfloat16":
        with np.errstate(invalid="ignore"):  # ml_dtypes warns where it meets a signalling NaN
            x = np.where(np.isnan(x), np.array(np.nan, dtype=x.dtype), x)
        return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)
    return x


def assert_bits(got: Any, want: Any) -> None:
    """Same shape, dtype and bits (for object arrays: the same Python ints)."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    if got.dtype == object:
        assert all(type(v) is int for v in got.flat), "an object result holds Python ints and nothing else"
    differ = np.argwhere(np.atleast_1d(bits_of(got) != bits_of(want)))
    if len(differ):
        i = tuple(int(v) for v in differ[0])[: got.ndim]
        raise AssertionError(
            f"{len(differ)} of {got.size} elements differ, first at {i}: "
            f"{got[i]!r} ({bits_of(got)[i]:#x}), expected {want[i]!r} ({bits_of(want)[i]:#x})"
        )


def result_or_refusal(call: Callable[[], Any], *errors: type[Exception]) -> tuple[Any, str | None]:
    """What the call returns and None, or None and the message of one of the errors allowed."""
    try:
        return call(), None
    except errors as error:
        return None, str(error)


def _error(c: float, n: int, e: int) -> tuple[int, int]:
    """|c − n·2^e| as integer and exponent of two."""
    if c == 0:
        return abs(n), e
    numerator, denominator = c.as_integer_ratio()
    exponent = 1 - denominator.bit_length()
    low = min(e, exponent)
    return abs((n << (e - low)) - (numerator << (exponent - low))), low


def _less_equal(x: int, xe: int, terms: Iterable[tuple[int, int]]) -> bool:
    """x·2^xe ≤ Σ y·2^ye, exactly."""
    terms = list(terms)
    low = min([xe] + [ye for _, ye in terms])
    return x << (xe - low) <= sum(y << (ye - low) for y, ye in terms)


def _assert_bound(c: Array, exact: ExactProduct, bound: Array, bound_exponent: Array, rule: str) -> None:
    """|c − AB| ≤ bound·2^bound_exponent, plus half the smallest subnormal for the one rounding below the normal range.

    An infinite element is right only if some value within the bound rounds to it.
    """
    fmt = binary(c.dtype)
    for i in np.ndindex(*c.shape):
        n, e, value = exact.value[i], int(exact.exponent[i]), float(c[i])
        b, be = int(bound[i]), int(bound_exponent[i])
        if np.isfinite(value):
            error, ee = _error(value, n, e)
            fine = _less_equal(error, ee, [(b, be), (1, fmt.quantum - 1)])
        else:
            low = min(e, be)
            reach = (n << (e - low)) + (1 if value > 0 else -1) * (b << (be - low))
            fine = round_scaled(reach, low, fmt) == value
        assert fine, f"C{list(i)} = {value!r} breaks {rule}; exact {round_scaled(n, e, fmt)!r}, bound {b}·2^{be}"


def sample(count: int, rng: np.random.Generator, keep: int) -> Array:
    """`keep` of `count` indices, first and last among them, for oracles too slow to check every row."""
    if count <= keep:
        return np.arange(count)
    inner = rng.choice(np.arange(1, count - 1), keep - 2, replace=False)
    return np.concatenate([[0], np.sort(inner), [count - 1]])


def assert_componentwise(
    c: Array, a: Array, b: Array, *, relative_to_value: int | None = None, depth: int | None = None
) -> None:
    """Grade A: |C − AB| ≤ k·u·|A||B| elementwise; or ≤ relative_to_value·k·u·|AB| where that is asked for.

    `depth` is k where a and b are the part of a deeper product in which nothing but zeros was left out.
    """
    assert c.dtype == np.result_type(a, b)
    assert c.shape == (a.shape[0], b.shape[1])
    exact, u = exact_product(a, b), -binary(c.dtype).p
    k = exact.k if depth is None else depth
    if relative_to_value is not None:
        bound, rule = np.abs(exact.value) * (relative_to_value * k), f"{relative_to_value}·k·u·|AB|"
    else:
        bound, rule = exact.magnitude * k, "k·u·|A||B|"
    _assert_bound(c, exact, bound, exact.exponent + u, rule)


def assert_normwise(c: Array, a: Array, b: Array) -> None:
    """The "fast" contract: |C − AB| ≤ 2u·k·(row max of A)·(column max of B), and 2u = 2^-52 in float64."""
    exact = exact_product(a, b)
    bound, exponent = np.zeros(c.shape, dtype=object), np.zeros(c.shape, dtype=object)
    if exact.k:
        rows = [float(v).as_integer_ratio() for v in np.abs(a).max(axis=1)]
        columns = [float(v).as_integer_ratio() for v in np.abs(b).max(axis=0)]
        for i, j in np.ndindex(*c.shape):
            bound[i, j] = exact.k * rows[i][0] * columns[j][0]
            exponent[i, j] = 3 - rows[i][1].bit_length() - columns[j][1].bit_length() - binary(c.dtype).p
    _assert_bound(c, exact, bound, exponent, "2u·k·(row max)·(column max)")


def largest_growth(c: Array, a: Array, b: Array) -> float:
    """max |C − AB| / (2u·|A||B|), the growth of Demmel et al. (2024); elements with |A||B| = 0 must be exact."""
    exact, worst = exact_product(a, b), 0.0
    for i in np.ndindex(*c.shape):
        error, ee = _error(float(c[i]), exact.value[i], int(exact.exponent[i]))
        if exact.magnitude[i] == 0:
            assert error == 0, f"C{list(i)} = {c[i]!r} where |A||B| is 0"
            continue
        low = min(ee, int(exact.exponent[i]))
        ratio = (error << (ee - low)) / (exact.magnitude[i] << (int(exact.exponent[i]) - low))
        worst = max(worst, ratio * 2.0 ** (binary(c.dtype).p - 1))
    return worst
