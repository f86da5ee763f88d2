"""Integers of several 32-bit limbs in registers: Chinese remainders, and one rounding to a float, without floats.

The CRT digits d_l of x, 0 ≤ d_l < m_l, give x = Σ_l d_l P/m_l − Q P with Q = round(Σ_l d_l / m_l). Limb i of the sum
stays below 49 · 255 · 2^32 < 2^46 and is carried once, at the end. Q comes from Σ_l d_l ⌊2^56/m_l⌋, which is low by
less than 49 · 255 in units of 2^-56, that is 2^-42; `residue_system.covers` keeps |x|/P by 2^-40 away from 1/2.

A number is a tuple of tensors, one for each limb, least first; the functions are unrolled for the number of limbs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl

from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.torch_array import to_device


def limb_count(system: ResidueSystem) -> int:
    """Limbs of 32 bits that hold every |x| < P/2 in two's complement, and P itself without sign."""
    return -(-system.product.bit_length() // 32)


def crt_rows(system: ResidueSystem, limbs: int) -> list[list[int]]:
    """Rows of 32-bit words: the limbs of P/m_l, then ⌊2^56/m_l⌋, low and high word; the last row holds P's limbs."""

    def words(x: int, count: int) -> list[int]:
        return [x >> 32 * i & 0xFFFFFFFF for i in range(count)]

    rows = [words(system.product // m, limbs) + words((1 << 56) // m, 2) for m in system.moduli]
    rows.append(words(system.product, limbs) + [0, 0])
    return rows


@cache  # for good: CUDA graphs read it at every replay
def crt_table(system: ResidueSystem, device: torch.device) -> torch.Tensor:
    """`crt_rows` of as many limbs as hold P, int32."""
    return to_device(np.array(crt_rows(system, limb_count(system)), dtype=np.uint32).view(np.int32), device)


@triton.jit
def word(pointer):
    """The unsigned 32-bit word at `pointer` to an int32, as uint64."""
    return tl.load(pointer).to(tl.uint32, bitcast=True).to(tl.uint64)


@triton.jit
def no_digits(zero, LIMBS: tl.constexpr):
    """The empty sum: limbs, and the low and high word of the quotient's fraction; `zero` is an int32 tensor."""
    total = ()
    for _ in tl.static_range(LIMBS + 1):
        total = total + (zero.to(tl.uint64),)
    return total + (zero.to(tl.uint32),)


@triton.jit
def add_digit(total, digit, row, LIMBS: tl.constexpr):
    """Add the CRT digit (uint32, below 256) of the modulus whose words `row` points at."""
    wide = digit.to(tl.uint32).to(tl.uint64)
    out = ()
    for i in tl.static_range(LIMBS + 1):
        out = out + (total[i] + wide * word(row + i),)
    # d ⌊2^56/m⌋ < 2^56: the high words of all digits sum to less than 2^30.
    high = tl.load(row + LIMBS + 1).to(tl.uint32, bitcast=True)
    return out + (total[LIMBS + 1] + digit.to(tl.uint32) * high,)


@triton.jit
def settle(total, last, LIMBS: tl.constexpr):
    """The sum minus Q P, in two's complement limbs (uint32); `last` points at the words of P."""
    fraction = total[LIMBS] + (total[LIMBS + 1].to(tl.uint64) << 32)
    quotient = (fraction + (1 << 55)) >> 56
    carry = tl.zeros(fraction.shape, tl.int64)
    limbs = ()
    for i in tl.static_range(LIMBS):
        value = total[i].to(tl.int64) - (quotient * word(last + i)).to(tl.int64) + carry
        limbs = limbs + (value.to(tl.uint32),)
        carry = value >> 32
    return limbs


@triton.jit
def is_negative(limbs, LIMBS: tl.constexpr):
    """The sign of two's complement limbs."""
    return limbs[LIMBS - 1].to(tl.int32, bitcast=True) < 0


@triton.jit
def magnitude(limbs, negative, LIMBS: tl.constexpr):
    """|x| of two's complement limbs whose sign is `negative`."""
    flip = tl.where(negative, 0xFFFFFFFF, 0).to(tl.uint32)
    carry = negative.to(tl.uint64)
    out = ()
    for i in tl.static_range(LIMBS):
        value = (limbs[i] ^ flip).to(tl.uint64) + carry
        out = out + (value.to(tl.uint32),)
        carry = value >> 32
    return out


@triton.jit
def doubled_plus(
    limbs, row, row_shift, column, column_shift, NEGATE: tl.constexpr, LIMBS: tl.constexpr, WIDE: tl.constexpr
):
    """2 x ± (row · 2^row_shift + column · 2^column_shift) in WIDE ≥ LIMBS + 1 limbs; row, column < 2^31."""
    filler = (limbs[LIMBS - 1].to(tl.int32, bitcast=True) >> 31).to(tl.int64)  # once, above the limbs: −1 is all ones
    row_bits = row.to(tl.uint64) << tl.cast(row_shift % 32, tl.uint64)
    column_bits = column.to(tl.uint64) << tl.cast(column_shift % 32, tl.uint64)
    carry = tl.zeros(filler.shape, tl.int64)
    out = ()
    for i in tl.static_range(WIDE):
        value = (limbs[i].to(tl.int64) if i < LIMBS else filler if i == LIMBS else 0) * 2
        for half in tl.static_range(2):
            at_row = tl.where(row_shift // 32 + half == i, (row_bits >> (32 * half)) & 0xFFFFFFFF, 0).to(tl.int64)
            at_column = tl.where(column_shift // 32 + half == i, (column_bits >> (32 * half)) & 0xFFFFFFFF, 0)
            term = at_row + at_column.to(tl.int64)
            value = value - term if NEGATE else value + term
        value += carry
        out = out + (value.to(tl.uint32),)
        carry = value >> 32
    return out


@triton.jit
def bit_length32(x):
    """Bits of a uint32, 0 for 0, as int32."""
    length = tl.zeros(x.shape, tl.int32)
    rest = x
    for step in tl.static_range(5):
        large = rest >= (1 << (16 >> step))
        length += tl.where(large, 16 >> step, 0)
        rest = tl.where(large, rest >> (16 >> step), rest)
    return length + rest.to(tl.int32)


@triton.jit
def bit_length(limbs, LIMBS: tl.constexpr):
    """Bits of an unsigned number, as int32."""
    length = bit_length32(limbs[0])
    for i in tl.static_range(1, LIMBS):
        length = tl.where(limbs[i] != 0, 32 * i + bit_length32(limbs[i]), length)
    return length


@triton.jit
def round_to_float(limbs, negative, exponent, LIMBS: tl.constexpr, FRACTION: tl.constexpr, EXPONENT: tl.constexpr):
    """Bits (int64) of ±limbs · 2^exponent rounded once to nearest even; subnormal results and ±inf as IEEE 754."""
    # The highest limb that is not zero, the two below it, and whether anything lies below those.
    zero = tl.zeros(limbs[0].shape, tl.uint32)
    first, second, third = limbs[0], zero, zero
    sticky = zero
    index = tl.zeros(limbs[0].shape, tl.int32)
    below = zero
    for i in tl.static_range(1, LIMBS):
        here = limbs[i] != 0
        first = tl.where(here, limbs[i], first)
        second = tl.where(here, limbs[i - 1], second)
        third = tl.where(here, limbs[i - 2] if i >= 2 else zero, third)
        if i >= 3:
            below = below | limbs[i - 3]
        sticky = tl.where(here, below, sticky)
        index = tl.where(here, i, index)
    # Shifted up so that the leading bit of 64 is set: the value is window · 2^unit and something smaller.
    lead = 32 - bit_length32(first)
    shift = lead.to(tl.uint64)
    tail = third.to(tl.uint64) << shift
    window = (((first.to(tl.uint64) << 32) | second.to(tl.uint64)) << shift) | (tail >> 32)
    unit = exponent + 32 * (index - 1) - lead
    rest = (tail.to(tl.uint32) | sticky) != 0
    least: tl.constexpr = 2 - (1 << (EXPONENT - 1)) - FRACTION
    # 65 bits or more dropped: below half of the least subnormal number.
    drop = tl.minimum(tl.maximum(63 - FRACTION, least - unit), 65)
    low = tl.minimum(drop - 1, 63).to(tl.uint64)
    one = tl.full(window.shape, 1, tl.uint64)
    halves = tl.where(drop == 65, 0, window >> low)
    kept = halves >> 1
    odd = (kept & 1) != 0
    rest = rest | ((window & ((one << low) - 1)) != 0)
    up = ((halves & 1) != 0) & (rest | odd)
    kept += up.to(tl.uint64)
    infinite: tl.constexpr = ((1 << EXPONENT) - 1) << FRACTION
    # The hidden bit, added to the field, raises the exponent by one; so does a carry of the rounding.
    field = tl.minimum(tl.maximum(unit + drop - least, 0), (1 << EXPONENT) - 2).to(tl.uint64)
    bits = (field << FRACTION) + kept  # at most 2^63
    bits = tl.where(first == 0, 0, tl.where(bits > infinite, infinite, bits).to(tl.int64))
    sign: tl.constexpr = FRACTION + EXPONENT
    return bits | (negative.to(tl.int64) << sign)
