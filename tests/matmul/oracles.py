"""Exact answers for matrix products, from Python integers and python-flint; nothing here is taken from gemmulate.

A float matrix becomes integers times one power of two per row (left operand) or per column (right operand), the
integer product is exact, and each element is rounded once. `test_oracles.py` checks each piece against another source.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Binary:
    """An IEEE binary format: precision p (hidden bit included) and the exponents of its normal numbers."""

    p: int
    emin: int
    emax: int

    @property
    def quantum(self) -> int:
        """Exponent of the smallest subnormal."""
        return self.emin - self.p + 1


FORMATS = {
    np.dtype(ml_dtypes.bfloat16): Binary(8, -126, 127),
    np.dtype("f2"): Binary(11, -14, 15),
    np.dtype("f4"): Binary(24, -126, 127),
    np.dtype("f8"): Binary(53, -1022, 1023),
}


def binary(dtype: Any) -> Binary:
    return FORMATS[np.dtype(dtype).newbyteorder("=")]


def round_scaled(n: int, e: int, fmt: Binary) -> float:
    """n·2^e rounded once to nearest, ties to even, into `fmt` (returned as a Python float, which holds it exactly)."""
    sign, n = (-1.0, -n) if n < 0 else (1.0, n)
    if n == 0:
        return 0.0
    quantum = max(n.bit_length() - 1 + e - fmt.p + 1, fmt.quantum)  # exponent of the last place kept
    drop = quantum - e
    if drop <= 0:
        kept = n << -drop
    else:
        kept, rest, half = n >> drop, n & ((1 << drop) - 1), 1 << (drop - 1)
        kept += rest > half or (rest == half and kept & 1)
    if kept.bit_length() + quantum > fmt.emax + 1:
        return sign * float("inf")
    return sign * float(np.ldexp(float(kept), quantum))


def split_float(x: Array) -> tuple[Array, Array]:
    """Integer significands and exponents (object arrays) with x = significand · 2^exponent; non-finite counts as 0."""
    wide = np.asarray(x, dtype=np.float64)
    fraction, exponent = np.frexp(np.where(np.isfinite(wide), wide, 0.0))
    return np.ldexp(fraction, 53).astype(np.int64).astype(object), (exponent.astype(np.int64) - 53).astype(object)


def _scale_lines(x: Array, axis: int) -> tuple[Array, Array]:
    """Integers and one exponent for each line along `axis`, with x = integers · 2^exponent."""
    significand, exponent = split_float(x)
    zero = significand == 0
    lowest = np.where(zero, 10**6, exponent).min(axis=axis, initial=10**6)
    lowest = np.where(lowest == 10**6, 0, lowest)
    shift = np.where(zero, 0, exponent - np.expand_dims(lowest, axis))
    return np.left_shift(significand, shift), lowest


def int_matmul(a: Array, b: Array) -> Array:
    """The exact product of two-dimensional integer arrays of any size of entry, as Python ints."""
    (m, k), n = a.shape, b.shape[1]
    if 0 in (m, n, k):
        return np.full((m, n), 0, dtype=object)
    left = flint.fmpz_mat(m, k, [int(v) for v in a.ravel()])
    right = flint.fmpz_mat(k, n, [int(v) for v in b.ravel()])
    return np.array([int(v) for v in (left * right).entries()], dtype=object).reshape(m, n)


@dataclass(frozen=True)
class ExactProduct:
    """A·B = value · 2^exponent and |A||B| = magnitude · 2^exponent, elementwise, for the finite parts of A and B."""

    value: Array
    magnitude: Array
    exponent: Array
    k: int


# Products already computed: every engine and grade is checked against the same ones. Oldest out first.
_KNOWN: dict[tuple[Any, ...], ExactProduct] = {}
_MOST_KNOWN = 400


def exact_product(a: Array, b: Array) -> ExactProduct:
    """Exact A·B and |A||B| of two-dimensional float arrays."""
    key = (a.shape, b.shape, *(hashlib.sha256(x.astype(np.float64).tobytes()).digest() for x in (a, b)))
    if key not in _KNOWN:
        _KNOWN[key] = _exact_product(a, b)
        if len(_KNOWN) > _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
    return _KNOWN[key]


def _exact_product(a: Array, b: Array) -> ExactProduct:
    left, row_exponent = _scale_lines(a, 1)
    right, column_exponent = _scale_lines(b, 0)
    value = int_matmul(left, right)
    signed = bool((np.asarray(a) < 0).any() or (np.asarray(b) < 0).any())
    magnitude = int_matmul(np.abs(left), np.abs(right)) if signed else value
    return ExactProduct(value, magnitude, row_exponent[:, None] + column_exponent[None, :], a.shape[1])


def _count(left: Array, right: Array) -> Array:
    return left.astype(np.int64) @ right.astype(np.int64)


def _sign_of_zeros(a: Array, b: Array) -> Array:
    """True where every product is −0, so that the exact zero is −0 (IEEE 754-2019, 6.3); k = 0 gives +0."""
    sa, sb, za, zb = np.signbit(a), np.signbit(b), a == 0, b == 0
    negative_zeros = (
        _count(za & sa, ~sb) + _count(za & ~sa, sb) + _count(~za & sa, zb & ~sb) + _count(~za & ~sa, zb & sb)
    )
    return (negative_zeros == a.shape[1]) & (a.shape[1] > 0)


def apply_special_values(c: Array, a: Array, b: Array) -> Array:
    """c with the elements whose row or column holds NaN or inf replaced by IEEE's value of the exact dot product.

    inf·0 and any NaN give NaN; infinite products of both signs give NaN; of one sign, that infinity. A product of
    finite numbers is finite, however large.
    """
    ia, ib, na, nb = np.isinf(a), np.isinf(b), np.isnan(a), np.isnan(b)
    if not (ia.any() or ib.any() or na.any() or nb.any()):
        return c
    ones_a, ones_b = np.ones_like(na), np.ones_like(nb)
    invalid = _count(na, ones_b) + _count(ones_a, nb) + _count(ia, b == 0) + _count(a == 0, ib) > 0
    signs = {}
    for name, flip in (("positive", False), ("negative", True)):
        signs[name] = np.zeros(c.shape, dtype=bool)
        for s in (False, True):
            of_a, of_b = np.signbit(a) == s, np.signbit(b) == (s != flip)
            finite_a, finite_b = ~ia & ~na & (a != 0), ~ib & ~nb & (b != 0)
            signs[name] |= _count(ia & of_a, (finite_b | ib) & of_b) + _count(finite_a & of_a, ib & of_b) > 0
    c = np.where(signs["positive"], np.inf, c)
    c = np.where(signs["negative"], -np.inf, c)
    return np.where(invalid | (signs["positive"] & signs["negative"]), np.nan, c)


def correctly_rounded(a: Array, b: Array, dtype: Any = None) -> Array:
    """The exact product of two-dimensional float arrays, rounded once to `dtype` (default: the common one)."""
    dtype = np.result_type(a, b) if dtype is None else np.dtype(dtype)
    fmt = binary(dtype)
    with np.errstate(invalid="ignore"):  # ml_dtypes warns where it meets a NaN
        a, b = (np.asarray(x).astype(np.float64) for x in (a, b))
    exact = exact_product(a, b)
    rounded = np.frompyfunc(lambda n, e: round_scaled(n, e, fmt), 2, 1)(exact.value, exact.exponent)
    c = np.where(_sign_of_zeros(a, b) & (exact.value == 0), -0.0, rounded.astype(np.float64))
    with np.errstate(invalid="ignore"):
        return np.asarray(apply_special_values(c, a, b).astype(dtype))


def stacked(product: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """`product` of two-dimensional arrays extended to vectors and broadcast stacks by numpy.matmul's rules."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left = np.broadcast_to(left, batch + left.shape[-2:])
    right = np.broadcast_to(right, batch + right.shape[-2:])
    # A pair that is not empty fixes the dtype also for an empty stack.
    dtype = product(np.ones((1, 1), a.dtype), np.ones((1, 1), b.dtype)).dtype
    c = np.empty((*batch, left.shape[-2], right.shape[-1]), dtype=dtype)
    for index in np.ndindex(*batch):
        c[index] = product(left[index], right[index])
    if b.ndim == 1:
        c = c[..., 0]
    return c[..., 0] if a.ndim == 1 and b.ndim == 1 else (c[..., 0, :] if a.ndim == 1 else c)
