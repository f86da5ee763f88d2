"""Exact products of Python ints of any size: limbs that residues cover, coefficient by coefficient.

x = Σ_i x_i 2^(h i) with balanced limbs |x_i| ≤ 2^(h − 1), so that AB = Σ_s 2^(h s) Σ_{i+j=s} A_i B_j. A coefficient's
terms are summed residue by residue before the one reconstruction, so s_a s_b r narrow products, r moduli for
2h + log2(k min(s_a, s_b)) bits, give the product; h is the cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmulate.engines.base import Array, Engine, Operand
from gemmulate.engines.python_ints import int_bounds, ints_to_int64, ints_to_words, words_to_ints
from gemmulate.engines.residue_system import ResidueSystem, residue_system
from gemmulate.schemes.blocks import for_blocks
from gemmulate.schemes.integers import (
    choose_for_ranges,
    magnitude_bits,
    multiply_integers,
    multiply_to_objects,
)

# Bits of a limb: whole words of 32 bits, at most what two limbs' product and a depth of 2^20 leave of the 341 bits that
# INT8 moduli cover.
_LIMB_BITS = (32, 64, 96, 128, 160)


@dataclass(frozen=True)
class LimbChoice:
    """How wide integers are cut."""

    limb_bits: int  # of every limb but the last
    limbs: tuple[int, int]  # of a and b
    system: ResidueSystem  # covers every coefficient

    @property
    def products(self) -> int:
        """INT8 matrix products that it takes."""
        return self.limbs[0] * self.limbs[1] * len(self.system.moduli)


def choose_limbs(bits_a: int, bits_b: int, k: int, widest_bits: int) -> LimbChoice:
    """The cheapest cut of integers |a| ≤ 2^bits_a, |b| ≤ 2^bits_b over depth k for an engine's `widest_bits`."""
    choices = []
    for h in _LIMB_BITS:
        counts = max(1, -(-bits_a // h)), max(1, -(-bits_b // h))
        bound = k * _largest_coefficient(h, counts, (bits_a, bits_b))
        system = residue_system(bound)
        if system is not None and bound.bit_length() + 1 <= widest_bits:
            choices.append(LimbChoice(h, counts, system))
    return min(choices, key=lambda c: c.products)


def _largest_coefficient(h: int, counts: tuple[int, int], bits: tuple[int, int]) -> int:
    """A bound of Σ_{i+j=s} |a_i||b_j| over all s, for limbs below the last of at most 2^(h − 1)."""
    low, terms = 1 << h - 1, min(counts)
    # The last limb holds the rest and the carry of the balanced ones below.
    last_a, last_b = ((1 << b - h * (count - 1)) + 1 for b, count in zip(bits, counts, strict=True))
    if terms == 1:
        return max(last_a, low) * max(last_b, low)
    # At most two terms hold a last limb, unless it is the one of both.
    return max(terms * low * low, (terms - 2) * low * low + low * (last_a + last_b), last_a * last_b)


def multiply_objects(engine: Engine, a: Array, bt: Array) -> Array:
    """The exact product of matrices of Python ints (object arrays), of any size, as an object array."""
    m, n, k = a.shape[0], bt.shape[0], a.shape[1]
    if 0 in (m, n, k):
        return np.full((m, n), 0, dtype=object)
    range_a, range_b = int_bounds(a), int_bounds(bt)
    assert range_a is not None
    assert range_b is not None
    bits_a, bits_b = magnitude_bits(*range_a), magnitude_bits(*range_b)
    bound = k * max(-range_a[0], range_a[1]) * max(-range_b[0], range_b[1])
    if residue_system(bound) is None or bound.bit_length() + 1 > engine.widest_bits:
        return _multiply_limbs(engine, a, bt, (bits_a, bits_b), bound)
    choice = choose_for_ranges(range_a, range_b, k)
    if choice.system is None or (max(bits_a, bits_b) <= 62 and choice.bound < 1 << 63):
        out = np.empty((m, n), dtype=np.int64)
        multiply_integers(engine, ints_to_int64(a), ints_to_int64(bt), choice, out)
        return out.astype(object)
    left, right = (
        ints_to_int64(x) if bits <= 62 else ints_to_words(x, _words(bits)) for x, bits in ((a, bits_a), (bt, bits_b))
    )
    return multiply_to_objects(engine, left, right, choice)


def _words(bits: int) -> int:
    """Words of 32 bits that hold |x| ≤ 2^bits with its sign."""
    return (bits + 2 + 31) // 32


def _multiply_limbs(engine: Engine, a: Array, bt: Array, bits: tuple[int, int], bound: int) -> Array:
    (m, k), n = a.shape, bt.shape[0]
    choice = choose_limbs(*bits, k, engine.widest_bits)
    step = choice.limb_bits // 32
    words = [
        # One bit more: the carry of the balanced limbs.
        ints_to_words(x, max(_words(b + 1), step * (count - 1) + 1), step, count)
        for x, b, count in zip((a, bt), bits, choice.limbs, strict=True)
    ]
    out = np.empty((m, n), dtype=object)

    def pack(side: int, vectors: slice) -> list[Operand]:
        count, x = choice.limbs[side], words[side][vectors]
        packed = []
        for i in range(count):
            limb = x[:, :, step * i : step * (i + 1) if i + 1 < count else None]
            size = choice.limb_bits - 1 if i + 1 < count else max(1, bits[side] - choice.limb_bits * i + 1)
            packed.append(engine.pack_words(side == 0, limb, choice.system, size))
        return packed

    def multiply(left: list[Operand], right: list[Operand], rows: slice, columns: slice) -> None:
        shape = rows.stop - rows.start, columns.stop - columns.start, bound.bit_length() // 64 + 1
        block: npt.NDArray[np.uint64] = np.empty(shape, dtype=np.uint64)
        engine.multiply_limbs(left, right, choice.system, choice.limb_bits, block)
        out[rows, columns] = words_to_ints(block)

    for_blocks(
        engine,
        m,
        n,
        k * len(choice.system.moduli) * max(choice.limbs),
        lambda rows: pack(0, rows),
        lambda columns: pack(1, columns),
        multiply,
    )
    return out
