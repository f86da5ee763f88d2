"""Exact partial sums of integer products, and the one rounding at their end.

A partial sum over a part of k is a matrix of integers: two's complement words of 64 bits, as many as its bound needs,
or Python ints beyond the widest residue system. Sums of such parts do not depend on their order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmulate.engines.array_floats import LIMB, LIMB_MASK, round_limbs
from gemmulate.engines.array_namespace import NumpyLibrary
from gemmulate.engines.base import Array, dtype_name
from gemmulate.engines.python_ints import words_to_ints
from gemmulate.engines.rounding import FLOAT_FORMATS, round_to_float
from gemmulate.schemes.blocks import panels

Words = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]


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


def round_sums(sums: ExactSum, exponent: npt.NDArray[np.int32], out: Array) -> None:
    """Write integer · 2^exponent, rounded once, to out; all of shape (m, n)."""
    library, form = NumpyLibrary(), FLOAT_FORMATS[dtype_name(out.dtype)]
    (m, n), size = out.shape, out.dtype.itemsize
    for rows in panels(m, max(1, library.block // max(1, n))):
        rounded = round_limbs(library, _limbs(sums.words[rows]), exponent[rows].astype(np.int64), form)
        out[rows].view(f"i{size}")[...] = rounded.signed(library, form).astype(f"i{size}")


def _limbs(words: Words) -> list[Int64]:
    """Two's complement words as limbs of 40 bits, least first, the last one with the sign (`array_floats.carry`)."""
    count = -(-64 * words.shape[2] // LIMB)
    wide = _extended(words, LIMB * count // 64 + 2)
    limbs = []
    for limb in range(count):
        word, offset = divmod(LIMB * limb, 64)
        part = wide[:, :, word] >> np.uint64(offset)
        if offset + LIMB > 64:
            part = part | (wide[:, :, word + 1] << np.uint64(64 - offset))
        limbs.append((part & np.uint64(LIMB_MASK)).view(np.int64))
    half = 1 << LIMB - 1
    return [*limbs[:-1], (limbs[-1] ^ half) - half]


def round_ints(values: Array, exponent: npt.NDArray[np.int32], out: Array) -> None:
    """The same of Python ints (an object array), of any size; values, exponent and out of one shape."""
    for index in np.ndindex(*out.shape):
        out[index] = round_to_float(int(values[index]), int(exponent[index]), out.dtype)
