"""Products and recombination in one kernel: a tile of C goes through all moduli and is rounded once, in registers.

Nothing of size moduli · m · n is written. The CRT digits are bytes, so four moduli share a register of each result;
limbs would take more than twice as many until all moduli are through.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.torch import capability_of
from gemmulate.engines.triton.floating import FloatLayout
from gemmulate.engines.triton.multiword import add_digit, crt_table, limb_count, no_digits, settle
from gemmulate.engines.triton.recombine import Certainty, store_float, store_words, wide_limbs
from gemmulate.engines.triton.residue_gemm import (
    Blocks,
    multiply_planes,
    plane_arguments,
    reduction_table,
    tile_of,
    tile_pointers,
)


@triton.jit
def multiply_all(
    a,
    b,
    reduction,
    tile_m,
    tile_n,
    m,
    n,
    depth,
    stride_a,
    stride_b,
    low_a,
    low_b,
    plane_a,
    plane_b,
    KIND: tl.constexpr,
    EVEN: tl.constexpr,
    SHALLOW: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr,
):
    """The CRT digits of one tile, four moduli to an int32, in PARTS groups of columns."""
    x = tile_pointers(a, tile_m * BLOCK_M, m, stride_a, BLOCK_M, BLOCK_K)
    y = tile_pointers(b, tile_n * BLOCK_N, n, stride_b, BLOCK_N, BLOCK_K).T
    zero = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    packed = ()
    for _ in tl.static_range((COUNT + 3) // 4):
        packed = packed + (zero,)
    for modulus in range(COUNT):
        digit = multiply_planes(
            x, y, reduction + modulus * 4, depth, low_a, low_b, KIND, EVEN, SHALLOW, BLOCK_M, BLOCK_N, BLOCK_K
        )
        packed = put_byte(packed, digit, modulus, COUNT)
        x += plane_a
        y += plane_b
    parts = ()
    for w in tl.static_range((COUNT + 3) // 4):
        parts = parts + (columns_in_parts(packed[w], BLOCK_M, BLOCK_N, PARTS),)
    return parts


@triton.jit
def columns_in_parts(word, BLOCK_M: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """A tile (BLOCK_M, WIDTH) cut into PARTS tiles of neighbouring columns."""
    if PARTS == 1:
        parts = (word,)
    else:
        left, right = tl.split(tl.permute(tl.reshape(word, (BLOCK_M, 2, WIDTH // 2)), (0, 2, 1)))
        parts = columns_in_parts(left, BLOCK_M, WIDTH // 2, PARTS // 2)
        parts = parts + columns_in_parts(right, BLOCK_M, WIDTH // 2, PARTS // 2)
    return parts


@triton.jit
def unpack(parts, part, table, COUNT: tl.constexpr, LIMBS: tl.constexpr):
    """The integers, two's complement limbs, of one part of the columns; parts[w][part] holds digits 4 w … 4 w + 3."""
    total = no_digits(parts[0][part] * 0, LIMBS)
    for modulus in tl.static_range(COUNT):
        digit = (parts[modulus // 4][part] >> (8 * (modulus % 4))) & 0xFF
        total = add_digit(total, digit, table + modulus * (LIMBS + 2), LIMBS)
    return settle(total, table + COUNT * (LIMBS + 2), LIMBS)


@triton.jit
def put_byte(packed, digit, at, COUNT: tl.constexpr):
    """`digit` into byte `at` of the registers, which is 0: one of them gets digit · 2^(8 (at mod 4)), the others 0."""
    out = ()
    for w in tl.static_range((COUNT + 3) // 4):
        out = out + (packed[w] + digit * tl.where(at // 4 == w, 1 << (8 * (at % 4)), 0),)
    return out


@triton.jit
def fused_floats_kernel(
    a,
    b,
    reduction,
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
    depth,
    stride_a,
    stride_b,
    low_a,
    low_b,
    plane_a,
    plane_b,
    stride_m,
    stride_n,
    KIND: tl.constexpr,
    EVEN: tl.constexpr,
    SHALLOW: tl.constexpr,
    COUNT: tl.constexpr,
    LIMBS: tl.constexpr,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    CHECK: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One tile of C, floats of the layout (FRACTION, EXPONENT)."""
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    parts = multiply_all(
        a,
        b,
        reduction,
        tile_m,
        tile_n,
        m,
        n,
        depth,
        stride_a,
        stride_b,
        low_a,
        low_b,
        plane_a,
        plane_b,
        KIND,
        EVEN,
        SHALLOW,
        COUNT,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        PARTS,
    )
    i = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    for part in tl.static_range(PARTS):
        j = tile_n * BLOCK_N + part * (BLOCK_N // PARTS) + tl.arange(0, BLOCK_N // PARTS)
        store_float(
            unpack(parts, part, table, COUNT, LIMBS),
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
            i.to(tl.int64)[:, None] * stride_m + j.to(tl.int64)[None, :] * stride_n,
            (i < m)[:, None] & (j < n)[None, :],
            i < m,
            j < n,
            i.to(tl.int64)[:, None] * n + j[None, :],
            LIMBS,
            FRACTION,
            EXPONENT,
            CHECK,
            WIDE,
        )


@triton.jit
def fused_words_kernel(
    a,
    b,
    reduction,
    table,
    out,
    longest,
    m,
    n,
    depth,
    stride_a,
    stride_b,
    low_a,
    low_b,
    plane_a,
    plane_b,
    stride_m,
    stride_n,
    KIND: tl.constexpr,
    EVEN: tl.constexpr,
    SHALLOW: tl.constexpr,
    COUNT: tl.constexpr,
    LIMBS: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One tile of C, WORDS 64-bit words of each integer."""
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    parts = multiply_all(
        a,
        b,
        reduction,
        tile_m,
        tile_n,
        m,
        n,
        depth,
        stride_a,
        stride_b,
        low_a,
        low_b,
        plane_a,
        plane_b,
        KIND,
        EVEN,
        SHALLOW,
        COUNT,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        PARTS,
    )
    i = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    for part in tl.static_range(PARTS):
        j = tile_n * BLOCK_N + part * (BLOCK_N // PARTS) + tl.arange(0, BLOCK_N // PARTS)
        at = i.to(tl.int64)[:, None] * stride_m + j.to(tl.int64)[None, :] * stride_n
        limbs = unpack(parts, part, table, COUNT, LIMBS)
        store_words(limbs, out, longest, at, (i < m)[:, None] & (j < n)[None, :], LIMBS, WORDS)


def fused_blocks(capability: int | None) -> Blocks:
    """BLOCK_M, BLOCK_N, BLOCK_K, warps and stages; capability as `residue_gemm.gemm_blocks`."""
    # 16 results of each thread: more digits do not fit its registers.
    return (64, 64, 256, 4, 1) if capability is None else (64, 64, 128, 8, 4 if 90 <= capability < 120 else 3)


def column_parts(moduli: int) -> int:
    """Groups of columns that are put together one after the other, so that the limbs fit the registers."""
    return 4 if moduli <= 16 else 8


def fused_floats(
    a: torch.Tensor,
    b: torch.Tensor,
    system: ResidueSystem,
    row_exponent: torch.Tensor,
    column_exponent: torch.Tensor,
    out: torch.Tensor,
    layout: FloatLayout,
    certainty: Certainty | None = None,
    blocks: Blocks | None = None,
) -> torch.Tensor | None:
    """`residue_gemm` and `recombine_floats` in one kernel, without the digits in memory; same arguments, same bits."""
    block_m, block_n, block_k, warps, stages = blocks or fused_blocks(capability_of(a.device))
    kind, strides, even, shallow = plane_arguments(a, b, block_k)
    m, n, depth = a.shape[-2], b.shape[-2], a.shape[-1]
    open_ = None if certainty is None else torch.empty((m, n), dtype=torch.int8, device=a.device)
    if out.numel() == 0:
        return open_
    lost = (row_exponent, column_exponent, 0, 0) if certainty is None else certainty
    fused_floats_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        a,
        b,
        reduction_table(system, a.device),
        crt_table(system, a.device),
        row_exponent,
        column_exponent,
        *lost,
        out,
        row_exponent if open_ is None else open_,
        m,
        n,
        depth,
        *strides,
        out.stride(0),
        out.stride(1),
        KIND=kind,
        EVEN=even,
        SHALLOW=shallow,
        COUNT=len(system.moduli),
        LIMBS=limb_count(system),
        FRACTION=layout.fraction_bits,
        EXPONENT=layout.exponent_bits,
        CHECK=open_ is not None,
        WIDE=wide_limbs(system, certainty),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        PARTS=column_parts(len(system.moduli)),
        GROUP=8,
        num_warps=warps,
        num_stages=stages,
        enable_fp_fusion=False,
    )
    return open_


def fused_words(
    a: torch.Tensor,
    b: torch.Tensor,
    system: ResidueSystem,
    out: torch.Tensor,
    blocks: Blocks | None = None,
) -> int:
    """`residue_gemm` and `recombine_words` in one kernel, without the digits in memory; same arguments, same bits."""
    block_m, block_n, block_k, warps, stages = blocks or fused_blocks(capability_of(a.device))
    kind, strides, even, shallow = plane_arguments(a, b, block_k)
    m, n, depth = a.shape[-2], b.shape[-2], a.shape[-1]
    longest = torch.zeros(1, dtype=torch.int32, device=a.device)
    if out.numel() == 0:
        return 0
    fused_words_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        a,
        b,
        reduction_table(system, a.device),
        crt_table(system, a.device),
        out,
        longest,
        m,
        n,
        depth,
        *strides,
        out.stride(0),
        out.stride(1),
        KIND=kind,
        EVEN=even,
        SHALLOW=shallow,
        COUNT=len(system.moduli),
        LIMBS=limb_count(system),
        WORDS=out.shape[2],
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        PARTS=column_parts(len(system.moduli)),
        GROUP=8,
        num_warps=warps,
        num_stages=stages,
        enable_fp_fusion=False,
    )
    return int(longest.item())
