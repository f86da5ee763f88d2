"""Residues and the Chinese remainder theorem on a library's device: digits to limbs, limbs to words and residues.

An exact integer is a list of int64 arrays, its limbs of 40 bits, least first; all but the last lie in [0, 2^40), the
last one carries the sign.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gemmulate.engines.array_floats import LIMB, LIMB_MASK, Limbs, carry
from gemmulate.engines.array_library import Library, Tensor
from gemmulate.engines.residue_system import DIGIT_BITS, ResidueSystem

_TABLES: WeakKeyDictionary[Library, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()


def _kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """A table that stays on the device as long as its library: a product copies none there after the first of its kind.

    A few KiB each. None is forgotten, for CUDA graphs of products read them at every replay.
    """

    @wraps(make)
    def table(lib: Library, *key: Any) -> Any:
        tables = _TABLES.setdefault(lib, {})
        if (make, *key) not in tables:
            tables[make, *key] = make(lib, *key)
        return tables[make, *key]

    return table


@_kept
def _coefficients(lib: Library, system: ResidueSystem, digits: int, left: bool) -> Tensor:
    return lib.load(system.coefficients(digits, left).astype(np.float64))


@_kept
def _weights(lib: Library, system: ResidueSystem, shift: int) -> Tensor:
    """Limbs of the weights, and in the last row 1/m, whose sums are the quotients by P: (limbs + 1, moduli)."""
    return lib.load(np.vstack([system.shifted_weights(shift), 1.0 / np.array(system.moduli, dtype=np.float64)]))


@_kept
def _moduli(lib: Library, system: ResidueSystem) -> tuple[Tensor, Tensor]:
    """m and 1/m as columns."""
    moduli = np.array(system.moduli, dtype=np.float64)[:, None]
    return lib.load(moduli), lib.load(1.0 / moduli)


def reduce(lib: Library, x: Tensor, system: ResidueSystem) -> Tensor:
    """Float64 integers (moduli, count), |x| < 2^48, modulo each, in [−m/2, m/2).

    x/m + 1/2 is an integer or at least 1/(2 m) from one, and for m = 256 exact, so that the quotient is right; it need
    not be: residues a little larger serve as well.
    """
    moduli, inverses = _moduli(lib, system)
    return x - lib.floor(x * inverses + 0.5) * moduli


def residues_of_digits(lib: Library, digits: Limbs, system: ResidueSystem, left: bool) -> Tensor:
    """Symmetric residues, int8 (moduli, …), of integers Σ digit_d 2^(14 d), |digit| ≤ 2^15.

    One float64 product by the digits' residues: |Σ| ≤ 25 · 2^15 · 2^7 < 2^27, exact in any order.
    """
    shape = digits[0].shape
    table = _coefficients(lib, system, len(digits), left)
    flat = lib.astype(lib.stack(digits), "float64").reshape((len(digits), -1))
    return lib.astype(reduce(lib, lib.matmul(table, flat), system), "int8").reshape((len(system.moduli), *shape))


def digits_of_int64(x: Tensor, count: int, unsigned: bool) -> Limbs:
    """Digits of radix 2^14 of int64, or of uint64 seen as int64; the last one carries the sign."""
    mask = (1 << DIGIT_BITS) - 1
    digits = []
    for d in range(count):
        shift = DIGIT_BITS * d
        digit = x >> min(shift, 63)
        if unsigned and shift + DIGIT_BITS > 64:
            digit = digit & ((1 << max(64 - shift, 0)) - 1)
        elif d + 1 < count:
            digit = digit & mask
        digits.append(digit)
    return digits


def digits_of_words(lib: Library, words: Limbs, count: int) -> Limbs:
    """Digits of radix 2^14 of two's complement integers, int64 arrays of 32-bit words, least first."""
    sign = -(words[-1] >> 31)
    wide = [*words, *[sign & 0xFFFFFFFF] * 2]
    digits = []
    for d in range(count):
        word, offset = divmod(DIGIT_BITS * d, 32)
        if word >= len(words):
            digits.append(sign * 1 if d + 1 == count else sign & ((1 << DIGIT_BITS) - 1))
            continue
        pair = (wide[word] >> offset) | (wide[word + 1] << (32 - offset))
        if d + 1 < count:
            digits.append(pair & ((1 << DIGIT_BITS) - 1))
        else:  # |last| ≤ 2^13, its sign in the bit above
            digits.append(((pair & ((2 << DIGIT_BITS) - 1)) ^ (1 << DIGIT_BITS)) - (1 << DIGIT_BITS))
    return digits


def combine(lib: Library, sums: Tensor, system: ResidueSystem, shift: int = 0) -> Limbs:
    """Limbs of x 2^shift, |x| < P/2, from sums (moduli, m, n) congruent to the CRT's digits, |sum| < 2^48.

    x = Σ d_l P/m_l − q P with symmetric digits |d_l| ≤ 128. The limb sums are one float64 product, exact in any order
    since 54 · 128 · 2^40 < 2^53; q = rint(Σ d_l/m_l), which `residue_system.covers` keeps away from ties.
    """
    count, m, n = sums.shape
    digits = reduce(lib, lib.astype(sums, "float64").reshape((count, -1)), system)
    totals = lib.matmul(_weights(lib, system, shift), digits)
    quotient = lib.floor(totals[-1] + 0.5)
    limbs = [
        lib.astype(totals[w] - quotient * float(p), "int64").reshape((m, n))
        for w, p in enumerate(system.shifted_product(shift))
    ]
    return carry(limbs)


def of_int64(x: Tensor) -> Limbs:
    """Two limbs of int64."""
    return [x & LIMB_MASK, x >> LIMB]


def limbs_of_ints(values: list[int], count: int) -> npt.NDArray[np.int64]:
    """Python ints as two's complement limbs: (count, values), the last one signed."""
    last = count - 1
    rows = [[v >> LIMB * w & LIMB_MASK if w < last else v >> LIMB * w for v in values] for w in range(count)]
    return np.array(rows, dtype=np.int64).reshape(count, len(values))


def words_of(limbs: Limbs, count: int) -> Limbs:
    """Two's complement words of 64 bits as int64, least first."""
    words = []
    for v in range(count):
        word = None
        for w, limb in enumerate(limbs):
            shift, last = LIMB * w - 64 * v, w + 1 == len(limbs)
            if shift >= 64 or (shift <= -LIMB and not last):
                continue
            part = limb << shift if shift >= 0 else limb >> min(-shift, 63)
            word = part if word is None else word | part
        assert word is not None
        words.append(word)
    return words


def largest_bits(lib: Library, limbs: Limbs) -> int:
    """Largest bit length of two's complement integers, the sign included; 0 for none."""
    if 0 in limbs[0].shape:
        return 0
    sign = limbs[-1] >> 63
    longest = 1
    for w, limb in enumerate(limbs):
        bits = limb ^ sign if w + 1 == len(limbs) else limb ^ (sign & LIMB_MASK)
        top = int(lib.to_numpy(lib.amax(bits.reshape((-1,)), 0)))
        if top:
            longest = LIMB * w + top.bit_length() + 1
    return longest


def modulo(lib: Library, limbs: Limbs, modulus: int) -> Tensor:
    """Residues in [0, modulus), 2 ≤ modulus ≤ 2^63, as int64: Horner's rule over the limbs.

    Each step r ← r 2^40 + limb − q p computes modulo 2^64 with q the nearest integer of the quotient in float64, off by
    less than 1/2 + 2^-10: |r| < 0.51 p + 1 < 2^63 is found exactly from its low 64 bits.
    """
    low = modulus - (1 << 64) if modulus >= 1 << 63 else modulus
    inverse = 1.0 / modulus
    r = limbs[-1] * 0
    for limb in reversed(limbs):
        estimate = (lib.astype(r, "float64") * float(1 << LIMB) + lib.astype(limb, "float64")) * inverse
        r = ((r << LIMB) + limb) - lib.astype(lib.floor(estimate + 0.5), "int64") * low
    return r + lib.astype(r < 0, "int64") * low
