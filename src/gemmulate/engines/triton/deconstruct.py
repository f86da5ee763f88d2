"""Operands to residues in one read: scale by a power of two, round to an integer, take it modulo all moduli.

A float is read as an integer: significand M and exponent, so that x 2^shift = ±M 2^q. Rounding is a shift of M, to
nearest even. The integer is cut into balanced digits d_j of 14 bits, |d_j| ≤ 2^13, and with the coefficients
c_lj = 2^(14 j) mod m_l (on the left times the CRT inverse), |c_lj| ≤ 2^7, its residue is Σ_j d_j c_lj mod m_l.

The sums run in float32, where every operand and result is an integer below 2^24 and so exact, fused or not; Hopper
issues twice as many float32 as int32 operations. Four digits give |t| ≤ 2^22 + 2^7 with the reduced sum of the digits
before. t − m rint(t · fl(1/m)) is then the symmetric residue: tests/engines/triton enumerates every such t for all
moduli, with fused and with separate rounding of the product.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from gemmulate.engines.residue_system import ResidueSystem, digits_for
from gemmulate.engines.torch_array import to_device
from gemmulate.engines.triton.floating import FloatLayout

# Adding 1.5 · 2^23 to a float32 |t| ≤ 2^22 rounds it to the nearest integer, ties to even, and leaves it in the low
# bits of the significand.
ROUNDER = tl.constexpr(12582912.0)

_ALIGNMENT = 16  # bytes
_ALIGNED_DEPTH = 512  # at most 3 % more memory; shallower products gain little by TMA


@triton.jit
def split_float(bits, FRACTION: tl.constexpr, EXPONENT: tl.constexpr):
    """Sign, significand and exponent of its unit, |x| = significand · 2^exponent; NaN and inf give 0."""
    mask: tl.constexpr = (1 << EXPONENT) - 1
    wide = bits.to(tl.int64)
    biased = ((wide >> FRACTION) & mask).to(tl.int32)
    fraction = wide & ((1 << FRACTION) - 1)
    significand = tl.where(biased > 0, fraction | (1 << FRACTION), fraction)
    significand = tl.where(biased == mask, 0, significand)
    bias: tl.constexpr = (1 << (EXPONENT - 1)) - 1 + FRACTION
    return bits < 0, significand, tl.maximum(biased, 1) - bias


@triton.jit
def round_significand(significand, exponent):
    """(n, lost): significand · 2^exponent to the nearest integer n · 2^max(exponent, 0), ties to even."""
    shift = tl.minimum(tl.maximum(-exponent, 0), 63)  # of a significand below 2^53 it leaves nothing
    kept = significand >> shift.to(tl.int64)
    # What is shifted out, left-justified in 64 bits, against one half; a tie becomes more than half where kept is odd.
    rest = ((significand << 1) << (63 - shift).to(tl.int64)).to(tl.uint64, bitcast=True)
    up = (rest | (kept & 1).to(tl.uint64, bitcast=True)) > 0x8000000000000000
    return kept + up.to(tl.int64), rest != 0


@triton.jit
def narrow_digits(negative, magnitude, DIGITS: tl.constexpr):
    """Balanced digits of ±magnitude ≤ 2^(14 DIGITS − 1), an int64, DIGITS ≤ 4, as float32, the least first."""
    bias: tl.constexpr = 8192 * (((1 << (14 * DIGITS)) - 1) // 16383)  # 8192 Σ_j 2^(14 j) makes every digit ≥ 0
    sign = -negative.to(tl.int64)
    biased = (magnitude ^ sign) - sign + bias
    digits = ()
    for j in tl.static_range(DIGITS):
        # The top digit may be 2^13 itself.
        digit = (biased >> (14 * j)).to(tl.int32) & (0x7FFF if j == DIGITS - 1 else 0x3FFF)
        # Under the exponent of 2^23 the integer is a float32 that needs no conversion.
        digits = digits + ((digit | 0x4B000000).to(tl.float32, bitcast=True) - 8396800.0,)
    return digits


@triton.jit
def wide_digits(negative, magnitude, exponent, DIGITS: tl.constexpr):
    """Balanced digits of ±magnitude · 2^exponent ≤ 2^(14 DIGITS − 1), magnitude < 2^54, as float32, least first."""
    carry = tl.zeros(magnitude.shape, tl.int32)
    digits = ()
    for j in tl.static_range(DIGITS):
        right = 14 * j - exponent
        down = magnitude >> tl.minimum(tl.maximum(right, 0), 63).to(tl.int64)
        up = magnitude << tl.minimum(tl.maximum(-right, 0), 63).to(tl.int64)  # from 14 on, nothing of it is kept
        digit = (tl.where(right >= 0, down, up).to(tl.int32) & 0x3FFF) + carry
        carry = (digit + 8192) >> 14
        if j < DIGITS - 1:
            digit -= carry << 14
        # 2^23 + 2^22 plus a number below 2^22 in magnitude, as above.
        digit = tl.where(negative, -digit, digit) + 0x4B400000
        digits = digits + (digit.to(tl.float32, bitcast=True) - ROUNDER,)
    return digits


@triton.jit
def symmetric_residue(digits, row, DIGITS: tl.constexpr):
    """The residue of Σ digits_j c_j as int8; `row` points at m, 1/m, c_0, c_1, …"""
    modulus, inverse = tl.load(row), tl.load(row + 1)
    total = digits[0] * tl.load(row + 2)
    for j in tl.static_range(1, DIGITS):
        if j % 4 == 0:  # digits that are summed before a reduction
            quotient = tl.fma(total, inverse, ROUNDER) - ROUNDER
            total = tl.fma(quotient, -modulus, total)
        total = tl.fma(digits[j], tl.load(row + 2 + j), total)
    quotient = tl.fma(total, inverse, ROUNDER) - ROUNDER
    residue = tl.fma(quotient, -modulus, total) + ROUNDER
    return residue.to(tl.int32, bitcast=True).to(tl.int8)  # 128 modulo 256 becomes −128


@triton.jit
def load_rounded(
    x,
    scale,
    inner,
    v,
    k,
    vectors,
    depth,
    stride_vector,
    stride_depth,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    INNER: tl.constexpr,
):
    """Sign, magnitude, exponent ≥ 0 and whether anything was lost of rint(x 2^(scale + inner)), of vectors v at k."""
    inside = (v < vectors)[:, None] & (k < depth)[None, :]
    at = v.to(tl.int64)[:, None] * stride_vector + k.to(tl.int64)[None, :] * stride_depth
    bits = tl.load(x + at, mask=inside, other=0)
    scale = scale[:, None]
    if INNER:
        scale += tl.load(inner + k, mask=k < depth, other=0)[None, :]
    negative, significand, exponent = split_float(bits, FRACTION, EXPONENT)
    exponent += scale
    magnitude, inexact = round_significand(significand, exponent)
    return negative, magnitude, tl.maximum(exponent, 0), inexact


@triton.jit
def store_residues(
    negative, magnitude, exponent, table, planes, v, k, vectors, depth, row, count, DIGITS: tl.constexpr
):
    """The residues of ±magnitude · 2^exponent modulo the `count` moduli of the table, in planes of rows `row` apart."""
    if DIGITS <= 4:
        # Of a magnitude that is not 0 the exponent is at most 55; the mask keeps the shift defined for those that are.
        digits = narrow_digits(negative, magnitude << (exponent & 63).to(tl.int64), DIGITS)
    else:
        digits = wide_digits(negative, magnitude, exponent, DIGITS)
    inside = (v < vectors)[:, None] & (k < depth)[None, :]
    plane = tl.cast(vectors, tl.int64) * row  # a size of 1 is a constant, which has no methods
    target = planes + (v.to(tl.int64)[:, None] * row + k[None, :])
    for modulus in range(count):
        residue = symmetric_residue(digits, table + modulus * (DIGITS + 2), DIGITS)
        tl.store(target, residue, mask=inside)
        target += plane


@triton.jit
def deconstruct_kernel(
    x,
    shift,
    inner,
    table,
    planes,
    lost,
    vectors,
    depth,
    row,
    stride_vector,
    stride_depth,
    count,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    DIGITS: tl.constexpr,
    INNER: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of BLOCK_V vectors × BLOCK_K entries: read once, `count` residues of each entry written."""
    tiles = tl.cdiv(depth, BLOCK_K)
    v = (tl.program_id(0) // tiles) * BLOCK_V + tl.arange(0, BLOCK_V)
    k = (tl.program_id(0) % tiles) * BLOCK_K + tl.arange(0, BLOCK_K)
    scale = tl.load(shift + v, mask=v < vectors, other=0)
    negative, magnitude, exponent, inexact = load_rounded(
        x, scale, inner, v, k, vectors, depth, stride_vector, stride_depth, FRACTION, EXPONENT, INNER
    )
    if COUNT:
        tl.atomic_add(lost + v, tl.sum(inexact.to(tl.int32), axis=1), mask=v < vectors, sem="relaxed")
    store_residues(negative, magnitude, exponent, table, planes, v, k, vectors, depth, row, count, DIGITS)


def coefficient_rows(system: ResidueSystem, digits: int, left: bool) -> npt.NDArray[np.float32]:
    """Rows m, fl(1/m), c_0, c_1, … of every modulus, float32."""
    moduli = np.array(system.moduli, dtype=np.float32)[:, None]
    return np.hstack([moduli, np.float32(1) / moduli, system.coefficients(digits, left)]).astype(np.float32)


@cache  # for good: CUDA graphs read it at every replay
def _table(system: ResidueSystem, digits: int, left: bool, device: torch.device) -> torch.Tensor:
    return to_device(coefficient_rows(system, digits, left), device)


def block_shape(digits: int) -> tuple[int, int]:
    """Vectors and depth of a tile: 128 threads keep all digits of 16 entries each, of 8 or 4 where digits are many."""
    return (16 if digits <= 4 else 8 if digits <= 8 else 4), 128


def empty_planes(count: int, vectors: int, depth: int, device: torch.device) -> torch.Tensor:
    """Planes (count, vectors, depth), int8; from _ALIGNED_DEPTH on rows begin at multiples of 16 bytes, as TMA asks.

    What lies between the rows is not written, and nobody's.
    """
    row = -(-depth // _ALIGNMENT) * _ALIGNMENT if depth >= _ALIGNED_DEPTH else depth
    return torch.empty((count, vectors, row), dtype=torch.int8, device=device)[..., :depth]


def deconstruct(
    x: torch.Tensor,
    layout: FloatLayout,
    shift: torch.Tensor,
    inner: torch.Tensor | None,
    system: ResidueSystem,
    bits: int,
    left: bool,
    count: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Symmetric residues of rint(x 2^(shift + inner)), |·| ≤ 2^bits.

    x: (vectors, depth), bit patterns of floats of that layout as its carrier integers, any strides; shift (vectors,),
    inner (depth,): int32.
    Returns planes (moduli, vectors, depth) as `empty_planes`, on the left multiplied by the CRT inverse, and with
    `count` the entries of each vector (int32) that the rounding changed. Exact; NaN and inf count as 0.
    """
    vectors, depth = x.shape
    moduli, digits = len(system.moduli), digits_for(bits)
    planes = empty_planes(moduli, vectors, depth, x.device)
    lost = torch.zeros(vectors, dtype=torch.int32, device=x.device) if count else None
    if planes.numel() == 0:
        return planes, lost
    block_v, block_k = block_shape(digits)
    deconstruct_kernel[(triton.cdiv(vectors, block_v) * triton.cdiv(depth, block_k),)](
        x,
        shift,
        shift if inner is None else inner,
        _table(system, digits, left, x.device),
        planes,
        shift if lost is None else lost,
        vectors,
        depth,
        planes.stride(1),
        x.stride(0),
        x.stride(1),
        moduli,
        FRACTION=layout.fraction_bits,
        EXPONENT=layout.exponent_bits,
        DIGITS=digits,
        INNER=inner is not None,
        COUNT=count,
        BLOCK_V=block_v,
        BLOCK_K=block_k,
        num_warps=4,
        enable_fp_fusion=False,
    )
    return planes, lost
