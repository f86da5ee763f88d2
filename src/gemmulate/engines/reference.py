"""The reference engine: NumPy and Python integers, obvious and exact, for machines without a compiler and for tests.

Residue products run as float64 matrix products, exact while k · 255 · 128 < 2^53; results are put together in
Python integers, about a microsecond for each element and modulus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from gemmulate.blas import finite_matmul
from gemmulate.engines import progress
from gemmulate.engines.base import NO_EXPONENT, Array, Engine, FloatOutcome, Int32, Norms, Operand, Scan
from gemmulate.engines.residue_system import DIGIT_BITS, ResidueSystem, digits_for, symmetric, widest_bits
from gemmulate.engines.rounding import round_to_float, round_to_pair

# Exact while every partial sum of u8 × s8 products stays below 2^53: depth 2^53 / (255 · 128).
_MAX_DEPTH = 2**53 // (255 * 128)


@dataclass(frozen=True)
class Planes:
    """Residue planes, shape (planes, vectors, depth)."""

    planes: npt.NDArray[np.float64]
    zero_point: int = 0
    inexact: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return int(self.planes.nbytes)

    @property
    def rounded(self) -> int:
        return int(self.inexact.sum())


@dataclass(frozen=True)
class Wrapped:
    """Entries modulo 2^32 or 2^64, shape (vectors, depth): NumPy's own product wraps."""

    values: Array  # uint32 or uint64

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)

    @property
    def rounded(self) -> int:
        return 0


def _as_planes(operand: Operand) -> Planes:
    if not isinstance(operand, Planes):
        raise TypeError("the operand was prepared by another engine; prepare it with the one that multiplies")
    return operand


def scaled(x: Array, shift: Int32, inner: Int32 | None) -> npt.NDArray[np.float64]:
    """x · 2^(shift + inner) with nonfinite entries as zero; exact where the result is not below 2^-1000."""
    total = shift.astype(np.int64)[:, None] + (0 if inner is None else inner.astype(np.int64)[None, :])
    total = np.clip(total, -1300, 1400)
    value = np.where(np.isfinite(x), x, 0).astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        half = total // 2
        return np.asarray(np.ldexp(np.ldexp(value, half), total - half))


def _residue_planes(digits: list[Array], system: ResidueSystem, left: bool) -> npt.NDArray[np.float64]:
    planes = []
    for m, inverse in zip(system.moduli, system.inverses, strict=True):
        total = np.zeros(digits[0].shape, dtype=np.int64)
        for d, digit in enumerate(digits):
            total += digit.astype(np.int64) * symmetric((1 << DIGIT_BITS * d) * (inverse if left else 1), m)
        residue = total % m
        planes.append(residue if left else np.where(2 * residue >= m, residue - m, residue))
    return np.array(planes, dtype=np.float64)


@final
class ReferenceEngine(Engine):
    """NumPy alone; `threads` is accepted and left to NumPy's BLAS."""

    name = "reference"

    @property
    def widest_bits(self) -> int:
        return widest_bits()

    def scan(self, x: Array, inner: Int32 | None) -> Scan:
        finite = np.isfinite(x)
        value = np.where(finite, x, 0).astype(np.float64)
        fraction, exponent = np.frexp(value)
        mantissa = np.abs(np.ldexp(fraction, 53)).astype(np.int64)  # frexp normalises subnormal numbers, too
        trailing = np.where(mantissa == 0, 0, mantissa & -mantissa)
        lsb = exponent.astype(np.int64) - 53 + np.frexp(trailing.astype(np.float64))[1] - 1
        top = exponent.astype(np.int64)
        if inner is not None:
            top, lsb = top + inner, lsb + inner
        zero = value == 0
        tops = np.where(zero, NO_EXPONENT, top).max(axis=1, initial=NO_EXPONENT)
        lsbs = np.where(zero, -NO_EXPONENT, lsb).min(axis=1, initial=-NO_EXPONENT)
        special = (~finite).any(axis=1)
        return Scan(tops.astype(np.int32), lsbs.astype(np.int32), np.asarray(special, dtype=np.uint8))

    def norms(self, x: Array, top: Int32, inner: Int32 | None) -> Norms:
        magnitude = np.abs(scaled(x, (15 - top).astype(np.int32), inner))
        nonzero = np.isfinite(x) & (x != 0)
        q = np.where(nonzero, np.maximum(np.ceil(magnitude), 1), 0).astype(np.uint64)
        return Norms(q.sum(axis=1), (q * q).sum(axis=1), q.max(axis=1, initial=0))

    def depths(self, x: Array, top: Int32, inner: Int32 | None, bins: int) -> npt.NDArray[np.int64]:
        flat = x.reshape(-1, 1)
        lsb = self.scan(flat, None).lsb.astype(np.int64).reshape(x.shape)
        if inner is not None:
            lsb = lsb + inner
        kept = np.isfinite(x) & (x != 0)
        depth = np.clip(top.astype(np.int64)[:, None] - lsb, 0, bins - 1)
        return np.bincount(depth[kept], minlength=bins).astype(np.int64)

    def integer_range(self, x: Array) -> tuple[int, int]:
        return min(0, int(x.min(initial=0))), max(0, int(x.max(initial=0)))

    def pack_floats(
        self, left: bool, x: Array, shift: Int32, inner: Int32 | None, system: ResidueSystem, bits: int, count: bool
    ) -> Operand:
        rest = scaled(x, shift, inner)
        vanished = np.isfinite(x) & (x != 0) & (rest == 0)  # by the scaling itself
        digits: list[Array] = []
        for d in reversed(range(digits_for(bits))):
            q = np.rint(np.ldexp(rest, -DIGIT_BITS * d))
            rest = rest - np.ldexp(q, DIGIT_BITS * d)
            digits.insert(0, q)
        return Planes(_residue_planes(digits, system, left), 0, ((rest != 0) | vanished).sum(axis=1))

    def pack_pairs(
        self,
        left: bool,
        high: Array,
        low: Array,
        shift: Int32,
        inner: Int32 | None,
        system: ResidueSystem,
        bits: int,
    ) -> Operand:
        return self._pack_objects(left, pair_integers(high, low, shift, inner), system)

    def pack_integers(self, left: bool, x: Array, system: ResidueSystem, bits: int) -> Operand:
        return self._pack_objects(left, x.astype(object), system)

    def pack_words(self, left: bool, x: npt.NDArray[np.uint32], system: ResidueSystem, bits: int) -> Operand:
        return self._pack_objects(left, integers_of_words(x), system)

    def _pack_objects(self, left: bool, x: Array, system: ResidueSystem) -> Operand:
        planes = np.zeros((len(system.moduli), *x.shape), dtype=np.float64)
        for plane, m, inverse in zip(planes, system.moduli, system.inverses, strict=True):
            residue = (x * inverse % m if left else x % m).astype(np.int64)
            plane[...] = residue if left else np.where(2 * residue >= m, residue - m, residue)
        return Planes(planes)

    def pack_direct(self, left: bool, x: Array, zero_point: int) -> Operand:
        value = (x.astype(object) - zero_point).astype(np.float64)
        return Planes(value[None], zero_point)

    def pack_magnitudes(self, left: bool, x: Array, top: Int32, inner: Int32 | None) -> Operand:
        return Planes(np.floor(np.abs(scaled(x, (7 - top).astype(np.int32), inner)))[None])

    def _integers(self, left: Operand, right: Operand, system: ResidueSystem) -> Array:
        """The exact products as an object array of Python ints, by Chinese remainders."""
        a, b = _as_planes(left).planes, _as_planes(right).planes
        if a.shape[2] > _MAX_DEPTH:
            raise ValueError(f"k = {a.shape[2]} exceeds the depth {_MAX_DEPTH} that float64 sums exactly; split k")
        total = np.zeros((a.shape[1], b.shape[1]), dtype=object)
        report = progress.current()
        for step, (m, plane_a, plane_b) in enumerate(zip(system.moduli, a, b, strict=True), start=1):
            residue = np.fmod(finite_matmul(plane_a, plane_b.T), m).astype(np.int64)
            total += residue.astype(object) * (system.product // m)
            if report:
                report(step, len(system.moduli))
        total %= system.product
        return np.where(2 * total >= system.product, total - system.product, total)

    def multiply_floats(
        self,
        left: Operand,
        right: Operand,
        system: ResidueSystem,
        row_exponent: Int32,
        column_exponent: Int32,
        out: Array,
        check: tuple[int, int] | None,
    ) -> FloatOutcome:
        exact = self._integers(left, right, system)
        inexact = _as_planes(left).inexact, _as_planes(right).inexact
        return round_products(exact, row_exponent, column_exponent, out, check, inexact)

    def multiply_pairs(
        self,
        left: Operand,
        right: Operand,
        system: ResidueSystem,
        row_exponent: Int32,
        column_exponent: Int32,
        high: Array,
        low: Array,
    ) -> int:
        return round_pairs(self._integers(left, right, system), row_exponent, column_exponent, high, low)

    def multiply_integers(self, left: Operand, right: Operand, system: ResidueSystem, out: Array) -> int:
        return store_low_bits(self._integers(left, right, system), out)

    def multiply_words(self, left: Operand, right: Operand, system: ResidueSystem, out: npt.NDArray[np.uint64]) -> int:
        exact = self._integers(left, right, system)
        store_words(exact, out)
        return largest_bits(exact)

    def multiply_limbs(
        self,
        left: Sequence[Operand],
        right: Sequence[Operand],
        system: ResidueSystem,
        limb_bits: int,
        out: npt.NDArray[np.uint64],
    ) -> None:
        total = np.zeros(out.shape[:2], dtype=object)
        for i, x in enumerate(left):
            for j, y in enumerate(right):
                total += self._integers(x, y, system) << limb_bits * (i + j)
        store_words(total, out)

    def multiply_modular(self, left: Operand, right: Operand, system: ResidueSystem, modulus: int, out: Array) -> None:
        out[...] = (self._integers(left, right, system) % modulus).astype(np.int64)

    def multiply_direct(self, left: Operand, right: Operand, out: Array, modulus: int | None = None) -> int:
        a, b = _as_planes(left), _as_planes(right)
        depth = a.planes.shape[2]
        if depth > _MAX_DEPTH:
            raise ValueError(f"k = {depth} exceeds the depth {_MAX_DEPTH} that float64 sums exactly; split k")
        sums = finite_matmul(a.planes[0], b.planes[0].T).astype(np.int64).astype(object)
        sums += a.zero_point * b.planes[0].sum(axis=1).astype(np.int64).astype(object)[None, :]
        sums += b.zero_point * a.planes[0].sum(axis=1).astype(np.int64).astype(object)[:, None]
        exact = sums + a.zero_point * b.zero_point * depth
        return store_low_bits(exact if modulus is None else exact % modulus, out)

    def wrapped_cost(self, itemsize: int) -> float:
        return 1.0  # always: putting one residue together takes longer than NumPy's whole sum

    def pack_wrapped(self, left: bool, x: Array, itemsize: int) -> Operand:
        return Wrapped(x.astype(np.uint32 if itemsize == 4 else np.uint64))

    def multiply_wrapped(self, left: Operand, right: Operand, out: Array) -> int:
        if not isinstance(left, Wrapped) or not isinstance(right, Wrapped):
            raise TypeError("the operand was prepared by another engine; prepare it with the one that multiplies")
        bits, (n, k) = 1, right.values.shape
        rows = max(1, (1 << 26) // max(1, n * k))  # some hundredths of a second: NumPy's product cannot be interrupted
        for i in range(0, len(left.values), rows):
            product = (left.values[i : i + rows] @ right.values.T).astype(out.dtype)
            out[i : i + rows] = product
            bits = max(bits, int(np.where(product < 0, ~product, product).max(initial=0)).bit_length() + 1)
        return bits

    def assess(
        self,
        left: Operand,
        right: Operand,
        sum_left: npt.NDArray[np.uint64],
        sum_right: npt.NDArray[np.uint64],
        budget: float,
        need: npt.NDArray[np.uint8],
    ) -> npt.NDArray[np.int64]:
        magnitudes = finite_matmul(_as_planes(left).planes[0], _as_planes(right).planes[0].T)
        need[...] = needed_bits(magnitudes, sum_left, sum_right, budget)
        return np.bincount(need.ravel(), minlength=256).astype(np.int64)

    def exact_dots(self, a: Array, b: Array, at: npt.NDArray[np.int64], out: Array) -> None:
        for i, j in at:
            total = _exact_dot(a[i], b[j])
            value = round_to_float(total, -2148, out.dtype)
            out[i, j] = -0.0 if total == 0 and _all_negative_zero(a[i], b[j]) else value

    def exact_dot_pairs(self, a: Array, b: Array, at: npt.NDArray[np.int64], high: Array, low: Array) -> None:
        for i, j in at:
            high[i, j], low[i, j] = round_to_pair(_exact_dot(a[i], b[j]), -2148)

    def fix_negative_zeros(self, a: Array, b: Array, out: Array) -> None:
        for i, j in np.argwhere((out == 0) & ~np.signbit(out)):
            if _all_negative_zero(a[i], b[j]):
                out[i, j] = -0.0


def needed_bits(
    magnitudes: npt.NDArray[np.float64],
    sum_left: npt.NDArray[np.uint64],
    sum_right: npt.NDArray[np.uint64],
    budget: float,
) -> npt.NDArray[np.uint8]:
    """Bits that each element asks for (`Engine.assess`), from the product of magnitudes (m, n)."""
    sums = sum_left[:, None] + sum_right[None, :] + np.uint64(1)
    with np.errstate(divide="ignore"):
        # The order of operations is part of the contract: it fixes the bits of the ratio.
        ratio = sums.astype(np.float64) / (magnitudes * budget) * (1.0 + 2.0**-40)
    fraction, exponent = np.frexp(ratio)
    bits = np.clip(exponent.astype(np.int64) - (fraction == 0.5) - 2, 0, 255)
    bits[magnitudes * budget == 0] = 255
    bits[(sum_left == 0)[:, None] | (sum_right == 0)[None, :]] = 0
    return np.asarray(bits, dtype=np.uint8)


def _exact_dot(x: Array, y: Array) -> int:
    """The dot product of the finite terms in units of 2^-2148, the product of two least subnormals."""
    total = 0
    for u, v in zip(x.tolist(), y.tolist(), strict=True):
        if u and v and math.isfinite(u) and math.isfinite(v):
            (nu, du), (nv, dv) = u.as_integer_ratio(), v.as_integer_ratio()
            total += nu * nv << (2148 - du.bit_length() - dv.bit_length() + 2)
    return total


def integers_of_words(x: npt.NDArray[np.uint32]) -> Array:
    """Two's complement integers (vectors, depth, words), 32-bit words, least first, as Python integers."""
    value = np.zeros(x.shape[:2], dtype=object)
    for w in range(x.shape[2]):
        value += x[:, :, w].astype(object) << 32 * w
    value -= (x[:, :, -1] >> 31).astype(object) << 32 * x.shape[2]
    return value


def pair_integers(high: Array, low: Array, shift: Int32, inner: Int32 | None) -> Array:
    """rint(high 2^(shift + inner)) + rint(low 2^(shift + inner)) as Python integers; see `Engine.pack_pairs`."""

    def integers(x: Array) -> Array:
        rows = np.rint(scaled(x, shift, inner)).tolist()
        return np.array([[int(v) for v in row] for row in rows], dtype=object).reshape(x.shape)

    return np.asarray(integers(high) + integers(low))


def round_pairs(exact: Array, row_exponent: Int32, column_exponent: Int32, high: Array, low: Array) -> int:
    """Round Python integers (m, n) times 2^(row + column) to pairs; return how many are zero."""
    for i, j in np.ndindex(*exact.shape):
        exponent = int(row_exponent[i]) + int(column_exponent[j])
        high[i, j], low[i, j] = round_to_pair(int(exact[i, j]), exponent)
    return int(np.count_nonzero(high == 0))


def round_products(
    exact: Array,
    row_exponent: Int32,
    column_exponent: Int32,
    out: Array,
    check: tuple[int, int] | None,
    inexact: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
) -> FloatOutcome:
    """Round Python integers (m, n) times 2^(row + column) to `out`; see `Engine.multiply_floats`.

    `inexact` counts the rounded entries of each row and column, for `check`.
    """
    rows, columns = inexact
    uncertain: list[tuple[int, int]] = []
    for i, j in np.ndindex(*exact.shape):
        exponent = int(row_exponent[i]) + int(column_exponent[j])
        value = int(exact[i, j])
        if check is None or not (rows[i] or columns[j]):
            out[i, j] = round_to_float(value, exponent, out.dtype)
            continue
        # In halves: |error| ≤ inexact_i 2^(bits_right − 1) + inexact_j 2^(bits_left − 1).
        bound = (int(rows[i]) << check[1]) + (int(columns[j]) << check[0])
        low = round_to_float(2 * value - bound, exponent - 1, out.dtype)
        high = round_to_float(2 * value + bound, exponent - 1, out.dtype)
        if low != high or low == 0 or (2 * value - bound < 0) != (2 * value + bound < 0):
            uncertain.append((i, j))
        out[i, j] = low
    return FloatOutcome(np.array(uncertain, dtype=np.int64).reshape(-1, 2), int(np.count_nonzero(out == 0)))


def _all_negative_zero(x: Array, y: Array) -> bool:
    """Whether every product is −0 (and there is at least one)."""
    return bool(x.size) and bool(np.all((np.signbit(x) != np.signbit(y)) & ((x == 0) | (y == 0))))


def largest_bits(exact: Array) -> int:
    """Largest bit length of two's complement numbers, the sign included."""
    return max((((~v) if v < 0 else v).bit_length() + 1 for v in exact.flat), default=0)


def store_words(exact: Array, out: npt.NDArray[np.uint64]) -> None:
    """Python ints (m, n) as two's complement words (m, n, words), least first."""
    for w in range(out.shape[2]):
        out[:, :, w] = (exact >> 64 * w & (1 << 64) - 1).astype(np.uint64)


def store_low_bits(exact: Array, out: Array) -> int:
    """Write the low bits of Python integers to an integer array; return the largest bit length, sign included."""
    bits = 8 * out.dtype.itemsize
    low = exact % (1 << bits)
    out[...] = low.astype(np.dtype(f"u{out.dtype.itemsize}")).astype(out.dtype)
    return largest_bits(exact)
