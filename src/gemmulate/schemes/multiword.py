"""Matrices of exact integers of a few words, by NumPy: Chinese remainders, low bits, and one rounding to floats.

The twin of the reference engine's Python integers for products that are put together outside the native core; every
step is exact, so both give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from gemmulate.blas import finite_matmul
from gemmulate.engines.base import Array, FloatOutcome, Int32
from gemmulate.engines.python_ints import words_to_ints
from gemmulate.engines.rounding import FLOAT_FORMATS, BinaryFormat

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]

WORD = 32
_MASK = (1 << WORD) - 1
# Elements that are worked on at once: their words and the steps' temporaries stay in a second-level cache.
_CHUNK = 1 << 14
# Multiplications of one small matrix product: OpenBLAS starts threads beyond this, which cost more than they bring.
_ONE_THREAD = 1 << 18


def _chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Row ranges of at most _CHUNK elements (at least one row)."""
    step = max(1, _CHUNK // max(1, shape[1]))
    return (slice(start, min(shape[0], start + step)) for start in range(0, shape[0], step))


def _carry(words: Int64) -> None:
    """Bring all words but the last to 0 … 2^32 − 1, in place; the last one takes the sign."""
    for i in range(len(words) - 1):
        words[i + 1] += words[i] >> WORD
        words[i] &= _MASK


def _split(value: int, count: int) -> list[int]:
    """`count` words of an integer, the last one signed."""
    return [value >> WORD * i & _MASK for i in range(count - 1)] + [value >> WORD * (count - 1)]


@dataclass(frozen=True)
class Words:
    """Integers (m, n) as `words` (count, m, n), least first: 32 bits each but the last, which carries the sign."""

    words: Int64

    @classmethod
    def of_integers(cls, x: Int64 | Objects) -> Words:
        """Integers (m, n), int64 or Python's."""
        if x.dtype == np.int64:
            return cls(np.stack([x & _MASK, x >> WORD]).astype(np.int64))
        bits = max((int(v).bit_length() for v in x.flat), default=0)
        count = bits // WORD + 1
        split = np.array([_split(int(v), count) for v in x.flat], dtype=np.int64)
        return cls(split.reshape(*x.shape, count).transpose(2, 0, 1).copy())

    @property
    def shape(self) -> tuple[int, int]:
        return self.words.shape[1], self.words.shape[2]

    def to_objects(self) -> Objects:
        """Python ints (m, n)."""
        return words_to_ints(self.doubles(len(self.words) // 2 + 1))

    def doubles(self, count: int) -> npt.NDArray[np.uint64]:
        """Two's complement words of 64 bits (m, n, count), least first; higher ones are cut off."""
        present, sign = len(self.words), (self.words[-1] >> 63).view(np.uint64)
        out = np.empty((*self.shape, count), dtype=np.uint64)
        for i in range(count):
            # The last word is sign-extended by itself; beyond it only the sign is left.
            low, high = (self.words[j].view(np.uint64) if j < present else sign for j in (2 * i, 2 * i + 1))
            out[:, :, i] = (low & np.uint64(_MASK)) | (high << np.uint64(WORD))
        return out

    def store_low_bits(self, out: Array) -> int:
        """Write the low bits to an integer array; return the largest bit length, sign included (0 when empty)."""
        out[...] = self.doubles(1)[:, :, 0].view(np.int64).astype(out.dtype)
        return self.largest_bits()

    def largest_bits(self) -> int:
        """Largest bit length of the numbers in two's complement, the sign included (0 when empty)."""
        if not self.words[0].size:
            return 0
        negative = self.words[-1] < 0
        for i in reversed(range(len(self.words))):
            peak = int(np.where(negative, ~self.words[i] & _MASK, self.words[i]).max())
            if peak:
                return WORD * i + peak.bit_length() + 1
        return 1

    def residues(self, modulus: int) -> Int64:
        """Residues in 0 … modulus − 1 as int64, modulus in 2 … 2^63."""
        if modulus & modulus - 1 == 0:
            return np.asarray(self.doubles(1)[:, :, 0].view(np.int64) & np.int64(modulus - 1))
        if modulus >> 30:
            return np.asarray((self.to_objects() % modulus).astype(np.int64))
        # Horner's rule: a remainder below 2^30 times 2^32 and a word stay in 63 bits.
        total = self.words[-1] % modulus
        for word in self.words[-2::-1]:
            total = ((total << WORD) + word) % modulus
        return np.asarray(total)

    def approximate(self) -> Float64:
        """float64 values (m, n) within 2^-40 of their magnitude."""
        total = np.zeros(self.shape)
        magnitude = _magnitude(self.words.copy())[0]
        for i, word in enumerate(magnitude):
            total += np.ldexp(word.astype(np.float64), WORD * i)
        return total


@dataclass(frozen=True)
class Remainders:
    """Chinese remainders of fixed moduli: integers in (−P/2, P/2], P their product, from digits."""

    moduli: tuple[int, ...]
    product: int
    inverses: tuple[int, ...]  # (P/m)^-1 mod m: a residue times it, mod m, is a digit
    parts: Float64  # words of P/m, (count, moduli)
    words: tuple[int, ...]  # of P
    shares: Float64  # 1/m

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, moduli: tuple[int, ...]) -> Remainders:
        whole = prod(moduli)
        count = (whole.bit_length() + 1) // WORD + 1
        # Digits are kept in 16 bits, and their sums with words must be exact in float64.
        if max(moduli) > 1 << 16 or sum(moduli) >> 53 - WORD:
            raise ValueError(f"moduli {moduli[0]} … {moduli[-1]} exceed 2^16 or sum to 2^21; take smaller ones")
        inverses = tuple(pow(whole // m, -1, m) for m in moduli)
        parts = np.array([_split(whole // m, count) for m in moduli], dtype=np.float64).T
        return cls(moduli, whole, inverses, parts, tuple(_split(whole, count)), 1.0 / np.array(moduli))

    def recombine(self, digits: npt.NDArray[np.uint16]) -> Words:
        """The integers whose residues times `inverses` have these `digits` (moduli, m, n), each in 0 … m − 1."""
        shape, count = digits.shape[1:], len(self.words)
        out = np.empty((count, *shape), dtype=np.int64)
        width = max(1, _ONE_THREAD // self.parts.size)
        for rows in _chunks(shape):
            part = digits[:, rows].reshape(len(self.moduli), -1).astype(np.float64)
            sums = np.empty((count, part.shape[1]))
            for start in range(0, part.shape[1], width):
                finite_matmul(self.parts, part[:, start : start + width], out=sums[:, start : start + width])
            words = sums.astype(np.int64)
            turns = self._turns(finite_matmul(self.shares, part), part)
            for word, whole in zip(words, self.words, strict=True):
                word -= turns * whole
            _carry(words)
            out[:, rows] = words.reshape(count, -1, shape[1])
        return Words(out)

    def _turns(self, ratio: Float64, digits: Float64) -> Int64:
        """How many times P is to be subtracted; where float64 leaves that open, from exact integers."""
        nearest = np.rint(ratio)
        # Each of at most 2^11 terms below 1 errs by 2^-52, their sum by 2^-52 of itself in each step.
        open_ = np.flatnonzero(np.abs(ratio - nearest) > 0.5 - 2.0**-28)
        for e in open_:
            total = sum(int(d) * (self.product // m) for d, m in zip(digits[:, e], self.moduli, strict=True))
            nearest[e] = -((self.product - 2 * total) // (2 * self.product))
        return nearest.astype(np.int64)


def _magnitude(words: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """|x| in place, and where x was negative."""
    negative = words[-1] < 0
    words *= np.where(negative, -1, 1)
    _carry(words)
    return words, negative


def _rounded(words: Int64, exponent: Int64, form: BinaryFormat) -> tuple[Float64, npt.NDArray[np.bool_]]:
    """Integers (count, n), overwritten, times 2^exponent rounded to nearest even in `form`, and their signs.

    `engines.rounding.round_to_float` for many elements: subnormal results and overflow as IEEE 754.
    """
    words, negative = _magnitude(words)
    count, size = words.shape
    highest, lowest = np.zeros(size, dtype=np.int64), np.full(size, count, dtype=np.int64)
    for i in range(count):
        np.copyto(highest, i, where=words[i] != 0)
        np.copyto(lowest, count - 1 - i, where=words[count - 1 - i] != 0)
    padded = np.zeros((count + 2, size), dtype=np.uint64)
    padded[2:] = words.view(np.uint64)
    at = np.arange(size)
    first, second, third = (padded[highest + 2 - i, at] for i in range(3))
    length = np.frexp(first.astype(np.float64))[1].astype(np.int64)  # of the highest word: 1 … 32, or 0 for x = 0
    shift = np.maximum(length, 1).astype(np.uint64)
    # The leading 64 bits, the first one set, and whether anything is below them.
    top = (first << (np.uint64(64) - shift)) | (second << (np.uint64(32) - shift)) | (third >> shift)
    sticky = ((third & ((np.uint64(1) << shift) - np.uint64(1))) != 0) | (lowest < highest - 2)
    scale = exponent + WORD * highest + length - 64
    # digits ≤ 53, so that at least eleven bits go; where 64 go, half a unit may be left; where more, nothing.
    drop = np.maximum(64 - form.digits, form.least - scale)
    cut = np.minimum(drop, 63).astype(np.uint64)
    kept = top >> cut
    rest = top & ((np.uint64(1) << cut) - np.uint64(1))
    half = np.uint64(1) << (cut - np.uint64(1))
    up = (rest > half) | ((rest == half) & (sticky | ((kept & np.uint64(1)) != 0)))
    beyond = drop > 63
    if beyond.any():
        kept[beyond] = 0
        tie = np.uint64(1) << np.uint64(63)
        up[beyond] = (drop[beyond] == 64) & ((top[beyond] > tie) | ((top[beyond] == tie) & sticky[beyond]))
    value = (kept + up.astype(np.uint64)).astype(np.float64)
    with np.errstate(over="ignore"):
        # Exact: 53 bits at most, none below the least subnormal number.
        result = np.ldexp(value, np.clip(scale + drop, -5000, 5000).astype(np.int32))
        result[np.frexp(value)[1] + scale + drop > form.largest + 1] = np.inf
    result[top == 0] = 0.0
    return np.where(negative, -result, result), negative


def _bound_words(counts: Int64, shift: int, count: int) -> Int64:
    """Words (count, vectors) of counts · 2^shift."""
    return np.array([_split(int(c) << shift, count) for c in counts], dtype=np.int64).reshape(-1, count).T


def round_words(
    exact: Words,
    row_exponent: Int32,
    column_exponent: Int32,
    out: Array,
    check: tuple[int, int] | None,
    inexact: tuple[Int64, Int64],
) -> FloatOutcome:
    """Round integers (m, n) times 2^(row + column) to `out`; see `Engine.multiply_floats`.

    `inexact` counts the rounded entries of each row and column, for `check`.
    """
    form = FLOAT_FORMATS[out.dtype.name]
    rows, columns = inexact
    open_ = check is not None and bool(rows.any() or columns.any())
    count = len(exact.words) + 1
    if open_ and check is not None:
        # In halves: |error| ≤ inexact_i 2^(bits_right − 1) + inexact_j 2^(bits_left − 1).
        widest = (int(rows.max(initial=0)) << check[1]) + (int(columns.max(initial=0)) << check[0])
        count = max(count, widest.bit_length() // WORD + 2)
        row_bound, column_bound = (_bound_words(c, b, count) for c, b in ((rows, check[1]), (columns, check[0])))
    uncertain: list[Int64] = []
    for part in _chunks(exact.shape):
        exponent = (row_exponent[part].astype(np.int64)[:, None] + column_exponent[None, :]).ravel()
        words = exact.words[:, part].reshape(len(exact.words), -1)
        if not open_:
            out[part] = _rounded(words.copy(), exponent, form)[0].reshape(-1, out.shape[1])
            continue
        doubled = np.zeros((count, words.shape[1]), dtype=np.int64)
        doubled[: len(words)] = 2 * words
        bound = (row_bound[:, part, None] + column_bound[:, None, :]).reshape(count, -1)
        ends = []
        for end in (doubled - bound, doubled + bound):
            _carry(end)
            ends.append(_rounded(end, exponent - 1, form))
        (low, low_sign), (high, high_sign) = ends
        closed = (low == high) & (low != 0) & (low_sign == high_sign)
        doubtful = (rows[part, None] + columns[None, :] != 0).ravel() & ~closed
        at = np.flatnonzero(doubtful)
        uncertain.append(np.stack([part.start + at // out.shape[1], at % out.shape[1]], axis=1))
        out[part] = low.reshape(-1, out.shape[1])
    places = np.concatenate(uncertain) if uncertain else np.zeros((0, 2), dtype=np.int64)
    return FloatOutcome(places, int(np.count_nonzero(out == 0)))


def recombine(residues: Sequence[Int64], moduli: Sequence[int]) -> Objects:
    """The integers in (−P/2, P/2] with these residues (m, n), as Python ints; P is the product of the moduli."""
    system = Remainders.of(tuple(moduli))
    steps = zip(residues, system.moduli, system.inverses, strict=True)
    return system.recombine(np.array([r * inverse % m for r, m, inverse in steps], dtype=np.uint16)).to_objects()
