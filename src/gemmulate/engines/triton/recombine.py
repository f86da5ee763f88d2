"""CRT digits to results: exact integers in limbs, then one rounding to a float times a power of two, or integer words.

Every result is computed on its own from r bytes; nothing is read twice.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.triton.floating import FloatLayout
from gemmulate.engines.triton.multiword import (
    add_digit,
    bit_length,
    crt_table,
    doubled_plus,
    is_negative,
    limb_count,
    magnitude,
    no_digits,
    round_to_float,
    settle,
)


@triton.jit
def store_float(
    limbs,
    rows,
    columns,
    row_exponent,
    column_exponent,
    row_lost,
    column_lost,
    left_bits,
    right_bits,
    out,
    open_,
    at,
    inside,
    row_inside,
    column_inside,
    at_open,
    LIMBS: tl.constexpr,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    CHECK: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Round a tile of integers · 2^(row + column) and store it; with CHECK, mark what the roundings leave open."""
    exponent = tl.load(row_exponent + rows, mask=row_inside, other=0)[:, None]
    exponent = exponent + tl.load(column_exponent + columns, mask=column_inside, other=0)[None, :]
    store_rounded(
        limbs,
        exponent,
        rows,
        columns,
        row_lost,
        column_lost,
        left_bits,
        right_bits,
        out,
        open_,
        at,
        inside,
        row_inside,
        column_inside,
        at_open,
        LIMBS,
        FRACTION,
        EXPONENT,
        CHECK,
        WIDE,
    )


@triton.jit
def store_rounded(
    limbs,
    exponent,
    rows,
    columns,
    row_lost,
    column_lost,
    left_bits,
    right_bits,
    out,
    open_,
    at,
    inside,
    row_inside,
    column_inside,
    at_open,
    LIMBS: tl.constexpr,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    CHECK: tl.constexpr,
    WIDE: tl.constexpr,
):
    """`store_float` of integers · 2^exponent, a tensor of the tile.

    The exact product lies within lost_row 2^(right_bits − 1) + lost_column 2^(left_bits − 1) of the integer.
    """
    if CHECK:
        row = tl.load(row_lost + rows, mask=row_inside, other=0)[:, None]
        column = tl.load(column_lost + columns, mask=column_inside, other=0)[None, :]
        low = doubled_plus(limbs, row, right_bits, column, left_bits, True, LIMBS, WIDE)
        negative = is_negative(low, WIDE)
        bits = round_to_float(magnitude(low, negative, WIDE), negative, exponent - 1, WIDE, FRACTION, EXPONENT)
        high = doubled_plus(limbs, row, right_bits, column, left_bits, False, LIMBS, WIDE)
        negative = is_negative(high, WIDE)
        other = round_to_float(magnitude(high, negative, WIDE), negative, exponent - 1, WIDE, FRACTION, EXPONENT)
        value_mask: tl.constexpr = (1 << (FRACTION + EXPONENT)) - 1
        unsure = ((bits != other) | ((bits & value_mask) == 0)) & ((row | column) != 0)
        tl.store(open_ + at_open, unsure.to(tl.int8), mask=inside)
    else:
        negative = is_negative(limbs, LIMBS)
        bits = round_to_float(magnitude(limbs, negative, LIMBS), negative, exponent, LIMBS, FRACTION, EXPONENT)
    tl.store(out + at, bits.to(out.dtype.element_ty), mask=inside)


@triton.jit
def store_words(limbs, out, longest, at, inside, LIMBS: tl.constexpr, WORDS: tl.constexpr):
    """Store the low WORDS · 64 bits in two's complement, and the largest bit length, sign included, in `longest`."""
    filler = (limbs[LIMBS - 1].to(tl.int32, bitcast=True) >> 31).to(tl.uint32, bitcast=True)
    for w in tl.static_range(WORDS):
        low = limbs[2 * w] if 2 * w < LIMBS else filler
        high = limbs[2 * w + 1] if 2 * w + 1 < LIMBS else filler
        value = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
        tl.store(out + at + w, value.to(tl.int64, bitcast=True), mask=inside)
    ones = ()
    for i in tl.static_range(LIMBS):
        ones = ones + (limbs[i] ^ filler,)  # bits of x or ~x
    bits = tl.where(inside, bit_length(ones, LIMBS) + 1, 0)
    tl.atomic_max(longest, tl.max(tl.max(bits, axis=1), axis=0), sem="relaxed")


@triton.jit
def gather_digits(digits, table, at, inside, plane, count, LIMBS: tl.constexpr):
    """The integers of a tile from their CRT digits in memory."""
    total = no_digits((at * 0).to(tl.int32), LIMBS)
    source = digits + at
    row = table
    for _ in range(count):
        total = add_digit(total, tl.load(source, mask=inside, other=0), row, LIMBS)
        source += plane
        row += LIMBS + 2
    return settle(total, row, LIMBS)


@triton.jit
def recombine_floats_kernel(
    digits,
    table,
    row_exponent,
    column_exponent,
    row_lost,
    column_lost,
    left_bits,
    right_bits,
    out,
    open_,
    m,
    n,
    stride_m,
    stride_n,
    count,
    LIMBS: tl.constexpr,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    CHECK: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One tile of results: digits (count, m, n) in, floats of the layout (FRACTION, EXPONENT) out."""
    tiles = tl.cdiv(n, BLOCK_N)
    i = (tl.program_id(0) // tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (tl.program_id(0) % tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (i < m)[:, None] & (j < n)[None, :]
    flat = i.to(tl.int64)[:, None] * n + j[None, :]
    limbs = gather_digits(digits, table, flat, inside, tl.cast(m, tl.int64) * n, count, LIMBS)
    at = i.to(tl.int64)[:, None] * stride_m + j.to(tl.int64)[None, :] * stride_n
    store_float(
        limbs,
        i,
        j,
        row_exponent,
        column_exponent,
        row_lost,
        column_lost,
        left_bits,
        right_bits,
        out,
        open_,
        at,
        inside,
        i < m,
        j < n,
        flat,
        LIMBS,
        FRACTION,
        EXPONENT,
        CHECK,
        WIDE,
    )


@triton.jit
def recombine_words_kernel(
    digits,
    table,
    out,
    longest,
    m,
    n,
    stride_m,
    stride_n,
    count,
    LIMBS: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One tile of results: digits (count, m, n) in, WORDS 64-bit words of each integer out."""
    tiles = tl.cdiv(n, BLOCK_N)
    i = (tl.program_id(0) // tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (tl.program_id(0) % tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (i < m)[:, None] & (j < n)[None, :]
    flat = i.to(tl.int64)[:, None] * n + j[None, :]
    limbs = gather_digits(digits, table, flat, inside, tl.cast(m, tl.int64) * n, count, LIMBS)
    at = i.to(tl.int64)[:, None] * stride_m + j.to(tl.int64)[None, :] * stride_n
    store_words(limbs, out, longest, at, inside, LIMBS, WORDS)


def block_shape(device: torch.device) -> tuple[int, int]:
    """Rows and columns of a tile: 128 threads keep the limbs of two results each, a row of 256 digits is contiguous."""
    return (1, 256) if device.type == "cuda" else (32, 64)  # the interpreter's time goes by operations


class Certainty(NamedTuple):
    """What is known of the operands' roundings: entries rounded per row and column (int32), and |a'|, |b'| ≤ 2^bits."""

    row_lost: torch.Tensor
    column_lost: torch.Tensor
    left_bits: int
    right_bits: int


def wide_limbs(system: ResidueSystem, certainty: Certainty | None) -> int:
    """Limbs that hold 2 x ± bound, |x| < P/2 and bound < 2^(31 + bits + 1)."""
    if certainty is None:
        return limb_count(system)
    bound = 33 + max(certainty.left_bits, certainty.right_bits)
    return -(-(max(system.product.bit_length() + 1, bound) + 2) // 32)


def recombine_floats(
    digits: torch.Tensor,
    system: ResidueSystem,
    row_exponent: torch.Tensor,
    column_exponent: torch.Tensor,
    out: torch.Tensor,
    layout: FloatLayout,
    certainty: Certainty | None = None,
) -> torch.Tensor | None:
    """Write x 2^(row + column), rounded once, to `out` (m, n): bit patterns of that layout, any strides.

    digits: (moduli, m, n), uint8, contiguous: 0 ≤ d_l < m_l with x = Σ d_l P/m_l mod P, |x| < P/2. Exponents int32.
    Returns with `certainty` which results may differ from the correctly rounded product (m, n), int8, as the reference
    engine decides it: where rounded entries meet, both ends of the interval have to round to one float but zero.
    """
    _, m, n = digits.shape
    open_ = None if certainty is None else torch.empty((m, n), dtype=torch.int8, device=digits.device)
    if out.numel() == 0:
        return open_
    lost = (row_exponent, column_exponent, 0, 0) if certainty is None else certainty
    block_m, block_n = block_shape(digits.device)
    recombine_floats_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        digits,
        crt_table(system, digits.device),
        row_exponent,
        column_exponent,
        *lost,
        out,
        row_exponent if open_ is None else open_,
        m,
        n,
        out.stride(0),
        out.stride(1),
        len(system.moduli),
        LIMBS=limb_count(system),
        FRACTION=layout.fraction_bits,
        EXPONENT=layout.exponent_bits,
        CHECK=open_ is not None,
        WIDE=wide_limbs(system, certainty),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        num_warps=4,
        enable_fp_fusion=False,
    )
    return open_


def recombine_words(digits: torch.Tensor, system: ResidueSystem, out: torch.Tensor) -> int:
    """Write x in two's complement to `out` (m, n, words), int64, words contiguous; return the largest bit length.

    digits as `recombine_floats`; the sign counts as a bit; with fewer words than x has, its low bits.
    """
    _, m, n = digits.shape
    longest = torch.zeros(1, dtype=torch.int32, device=digits.device)
    if out.numel() == 0:
        return 0
    block_m, block_n = block_shape(digits.device)
    recombine_words_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        digits,
        crt_table(system, digits.device),
        out,
        longest,
        m,
        n,
        out.stride(0),
        out.stride(1),
        len(system.moduli),
        LIMBS=limb_count(system),
        WORDS=out.shape[2],
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        num_warps=4,
        enable_fp_fusion=False,
    )
    return int(longest.item())
