"""Exact partial sums of integer products, and the one rounding at their end.

A partial sum over a part of k is a matrix of integers: two's complement words of 64 bits, as many as its bound needs,
or Python ints beyond the widest residue system. Sums of such parts do not depend on their order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmulate.engines.base import Array, Engine
from gemmulate.engines.python_ints import words_to_ints
from gemmulate.engines.residue_system import residue_system
from gemmulate.engines.rounding import round_to_float
from gemmulate.schemes.blocks import panels

Words = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]

# Elements that are rounded at once: each takes a byte for every modulus (at most 54).
_ROUNDED_AT_ONCE = 1 << 18


def words_for(bound: int) -> int:
    """Words of 64 bits that hold every integer |x| ≤ bound in two's complement."""
    return bound.bit_length() // 64 + 1


@dataclass(frozen=True)
class ExactSum:
    """Integers of absolute value at most `bound`."""

    bound: int
    words: Words  # (m, n, words), least first

    def plus(self, other: ExactSum, bound: int) -> ExactSum:
        """The sum, which is known to be at most `bound` in absolute value."""
        count = words_for(bound)
        x, y = _extended(self.words, count), _extended(other.words, count)
        total = np.empty_like(x)
        carry = np.zeros(x.shape[:2], dtype=np.uint64)
        for w in range(count):
            part = x[:, :, w] + y[:, :, w]
            total[:, :, w] = part + carry
            carry = ((part < x[:, :, w]) | (total[:, :, w] < part)).astype(np.uint64)
        return ExactSum(bound, total)

    @property
    def zero(self) -> npt.NDArray[np.bool_]:
        """Which sums are zero, (m, n)."""
        return np.asarray(~self.words.any(axis=2), dtype=bool)

    def low_bits(self, dtype: np.dtype[np.generic]) -> tuple[Array, int]:
        """The low 64 bits as int64, or as uint64 where no sum is negative, and the largest bit length of those that
        do not fit (their sign included), 0 where all do.
        """
        low = np.ascontiguousarray(self.words[:, :, 0])
        sign = (low >> np.uint64(63) if dtype.kind == "i" else np.zeros_like(low)) * np.uint64(2**64 - 1)
        wide = (self.words[:, :, 1:] != sign[:, :, None]).any(axis=2)
        bits = 0
        if wide.any():
            bits = max((((~v) if v < 0 else v).bit_length() + 1 for v in words_to_ints(self.words[wide])), default=0)
        return low.view(dtype), bits


def _extended(words: Words, count: int) -> Words:
    if words.shape[2] == count:
        return words
    sign = (words[:, :, -1:] >> np.uint64(63)) * np.uint64(2**64 - 1)
    return np.concatenate((words, np.repeat(sign, count - words.shape[2], axis=2)), axis=2)


def of_int64(x: Int64, bound: int) -> ExactSum:
    """The sum whose integers are x, |x| ≤ bound < 2^63."""
    return ExactSum(bound, np.ascontiguousarray(x).view(np.uint64)[:, :, None])


def round_sums(engine: Engine, sums: ExactSum, exponent: npt.NDArray[np.int32], out: Array) -> None:
    """Write integer · 2^exponent, rounded once, to out; all of shape (m, n).

    Each integer is a product of depth 1 with the number one, which the engine rounds as any other.
    """
    system = residue_system(sums.bound)
    assert system is not None  # words come from products that one covered
    bits = sums.bound.bit_length()
    one = engine.pack_integers(False, np.ones((1, 1), dtype=np.int64), system, 1)
    (m, n), zero = out.shape, np.zeros(1, dtype=np.int32)
    words = np.ascontiguousarray(sums.words, dtype="<u8").view("<u4").reshape(m * n, 1, -1)
    flat, exponents = np.empty((m * n, 1), dtype=out.dtype), np.ascontiguousarray(exponent).reshape(-1)
    for rows in panels(m * n, _ROUNDED_AT_ONCE):
        left = engine.pack_words(True, words[rows], system, bits)
        engine.multiply_floats(left, one, system, exponents[rows], zero, flat[rows], None)
    out[...] = flat.reshape(m, n)


def round_ints(values: Array, exponent: npt.NDArray[np.int32], out: Array) -> None:
    """The same of Python ints (an object array), of any size; values, exponent and out of one shape."""
    for index in np.ndindex(*out.shape):
        out[index] = round_to_float(int(values[index]), int(exponent[index]), out.dtype)
