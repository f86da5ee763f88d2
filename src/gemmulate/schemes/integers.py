"""Exact integer products: widths from the data, then one direct product of bytes or residues.

A direct product stores x − z as bytes (z the zero point, so any data whose values span at most 255 qualifies):
Σ (a' + za)(b' + zb) = Σ a'b' + za Σ b' + zb Σ a' + k za zb, exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gemmulate.engines.base import Array, Engine, Operand
from gemmulate.engines.digit_system import DigitSystem
from gemmulate.engines.python_ints import words_to_ints
from gemmulate.engines.residue_system import ResidueSystem, residue_system
from gemmulate.schemes.blocks import for_blocks, halved, is_symmetric, mirror
from gemmulate.schemes.wrapped import multiply_wrapped


@dataclass(frozen=True)
class IntegerChoice:
    """How an integer product will run."""

    bits_left: int  # |a| ≤ 2^bits_left
    bits_right: int
    bound: int  # |every result| ≤ bound
    zero_points: tuple[int, int] | None  # of a direct product
    system: ResidueSystem | None  # of a residue product
    wide: bool = False  # results fit 64 bits and the engine's own multiplications cost less than the residues
    modulus: int | None = None  # the bits are those of entries that are reduced mod it while they are packed
    digits: DigitSystem | None = None  # of a product modulo a small number, in place of zero points and system

    @property
    def products(self) -> int:
        """INT8 matrix products that it takes (or would take, were it not wide)."""
        if self.digits is not None:
            return self.digits.products
        return 1 if self.system is None else len(self.system.moduli)


def magnitude_bits(low: int, high: int) -> int:
    """Least b with low ≥ −2^b and high ≤ 2^b."""
    return max((-low - 1).bit_length() if low < 0 else 0, (high - 1).bit_length() if high > 0 else 0)


def choose_integers(engine: Engine, a: Array, bt: Array) -> IntegerChoice:
    """Measure the values of a (m, k) and bt (n, k) and choose the cheapest exact product."""
    if a.itemsize == bt.itemsize == 1:  # one product whatever the values: reading them would take as long as packing
        return choose_for_ranges(dtype_range(a), dtype_range(bt), a.shape[1])
    choice = choose_for_ranges(engine.integer_range(a), engine.integer_range(bt), a.shape[1])
    # A result below 2^63 is the result modulo 2^64. (Wider ones: the wrapped result with residues that tell whether it
    # is the whole one takes one modulus more than the residues alone; EPYC Zen 5, 2026-11-30.)
    wide = choice.bound < 1 << 63 and choice.products > engine.wrapped_cost(8)
    return replace(choice, wide=True) if wide else choice


def dtype_range(x: Array) -> tuple[int, int]:
    """What integers of x's dtype may be."""
    info = np.iinfo(x.dtype)
    return int(info.min), int(info.max)


def choose_for_ranges(left: tuple[int, int], right: tuple[int, int], k: int) -> IntegerChoice:
    """The cheapest exact product of integers in the closed ranges `left` and `right` over depth k.

    Raises ValueError where no residue system is wide enough.
    """
    (low_a, high_a), (low_b, high_b) = left, right
    bits_a, bits_b = magnitude_bits(low_a, high_a), magnitude_bits(low_b, high_b)
    bound = k * max(-low_a, high_a) * max(-low_b, high_b)
    if high_a - low_a <= 255 and high_b - low_b <= 255:
        za = 0 if low_a >= 0 else low_a
        zb = 0 if low_b >= -128 and high_b <= 127 else low_b + 128
        return IntegerChoice(bits_a, bits_b, bound, (za, zb), None)
    system = residue_system(bound)
    if system is None:
        raise ValueError(
            f"results of {bound.bit_length()} bits exceed the residue system of INT8 moduli (341 bits); "
            "split the operands"
        )
    return IntegerChoice(bits_a, bits_b, bound, None, system)


def multiply_integers(
    engine: Engine, a: Array, bt: Array, choice: IntegerChoice, out: Array, modulus: int | None = None
) -> int:
    """Write the product's low 64 bits to out (int64 or uint64; a direct product to int32 as well).

    Returns the largest bit length of a result, its sign included. With a modulus, writes the results mod it instead,
    in [0, modulus), to out (int64); the return value then has no meaning.
    """
    bits = 0

    def direct(left: Operand, right: Operand, rows: slice, columns: slice) -> None:
        nonlocal bits
        bits = max(bits, engine.multiply_direct(left, right, out[rows, columns], modulus))

    def residues(left: Operand, right: Operand, rows: slice, columns: slice) -> None:
        nonlocal bits
        if modulus is not None:
            engine.multiply_modular(left, right, system, modulus, out[rows, columns])
            return
        bits = max(bits, engine.multiply_integers(left, right, system, out[rows, columns]))

    def by_digits(left: Operand, right: Operand, rows: slice, columns: slice) -> None:
        assert choice.digits is not None
        engine.multiply_digits(left, right, choice.digits, out[rows, columns])

    if choice.wide and modulus is None and out.dtype.itemsize == 8:
        return multiply_wrapped(engine, a, bt, out)
    (m, k), n = a.shape, bt.shape[0]
    digits, zero_points = choice.digits, choice.zero_points
    if digits is not None:
        planes, multiply = digits.planes, by_digits

        def pack(left: bool, x: Array) -> Operand:
            return engine.pack_digits(left, x, digits)

    elif zero_points is not None:
        planes, multiply = 1, direct
        if choice.modulus is not None:
            a, bt = engine.centred(a, choice.modulus), engine.centred(bt, choice.modulus)

        def pack(left: bool, x: Array) -> Operand:
            return engine.pack_direct(left, x, zero_points[0 if left else 1])

    else:
        assert choice.system is not None
        system = halved(engine, choice.system, m, k, n)
        planes, multiply = system.bytes_per_entry, residues

        def pack(left: bool, x: Array) -> Operand:
            bits = choice.bits_left if left else choice.bits_right
            if choice.modulus is not None:
                return engine.pack_reduced(left, x, system, bits, choice.modulus)
            return engine.pack_integers(left, x, system, bits)

    symmetric = is_symmetric(a, bt, k * planes)
    for_blocks(
        engine,
        m,
        n,
        k * planes,
        lambda rows: pack(True, a[rows]),
        lambda columns: pack(False, bt[columns]),
        multiply,
        symmetric=symmetric,
    )
    if symmetric:
        mirror(out)
    return bits


def multiply_to_objects(engine: Engine, a: Array, bt: Array, choice: IntegerChoice) -> Array:
    """The product of integers (or of 32-bit words, shape (vectors, depth, words)) as an object array."""
    assert choice.system is not None
    m, k, n = *a.shape[:2], bt.shape[0]
    system = halved(engine, choice.system, m, k, n)
    out = np.empty((m, n), dtype=object)
    words = choice.bound.bit_length() // 64 + 1

    def pack(left: bool, x: Array, bits: int) -> Operand:
        return engine.pack_words(left, x, system, bits) if x.ndim == 3 else engine.pack_integers(left, x, system, bits)

    def multiply(left: Operand, right: Operand, rows: slice, columns: slice) -> None:
        block = np.empty((rows.stop - rows.start, columns.stop - columns.start, words), dtype=np.uint64)
        engine.multiply_words(left, right, system, block)
        out[rows, columns] = words_to_ints(block)

    for_blocks(
        engine,
        m,
        n,
        k * system.bytes_per_entry,
        lambda rows: pack(True, a[rows], choice.bits_left),
        lambda columns: pack(False, bt[columns], choice.bits_right),
        multiply,
    )
    return out
