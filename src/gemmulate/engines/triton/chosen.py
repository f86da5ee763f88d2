"""Residues and their products whose bits and moduli lie on the device: nothing waits for the host to know them.

A choice is eight int32 on the device. The launches are the same whatever it says, so that a CUDA graph may hold them:
each reads the choice, and where it has nothing to do its loop over tiles has no turn. What a kernel is compiled for
(digits of the conversion, limbs of the recombination) comes in a few tiers, one launch each, of which one runs. More
digits or limbs than are needed hold the same integers, hence the same residues and results. Not run on a GPU.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl

from gemmulate.engines.base import NO_EXPONENT
from gemmulate.engines.residue_system import DIGIT_BITS, INT8_MODULI, _system
from gemmulate.engines.torch import capability_of
from gemmulate.engines.torch_array import to_device
from gemmulate.engines.triton.deconstruct import (
    block_shape,
    coefficient_rows,
    empty_planes,
    load_rounded,
    store_residues,
)
from gemmulate.engines.triton.floating import FloatLayout
from gemmulate.engines.triton.residue_gemm import (
    Blocks,
    gemm_blocks,
    multiply_planes,
    plane_arguments,
    reduction_table,
    tile_of,
    tile_pointers,
)

# Fields of a choice.
MODULI = tl.constexpr(0)  # r: the first r INT8 moduli; 0: nothing is to be done
LEFT_BITS = tl.constexpr(1)  # |a'| ≤ 2^bits, 0 … 200
RIGHT_BITS = tl.constexpr(2)
LIMIT = tl.constexpr(3)  # of whoever chooses; not read here
CHECK = tl.constexpr(4)  # 1: count the operands' roundings and say which results they leave open; 0: neither
FIELDS = 8

MOST_MODULI = len(INT8_MODULI)
# Digits up to which one compiled conversion goes: 55 bits, 97, 209.
DIGIT_TIERS = (4, 7, 15)

NOTHING = tl.constexpr(NO_EXPONENT)
_DIGIT_BITS = tl.constexpr(DIGIT_BITS)
# Programs of a launch for each multiprocessor. Of conversion and recombination several times as many as one holds
# (docs/triton-kernels.md: 3 to 12), few enough that launches with nothing to do are short; not measured. Products have
# one resident block, and operands in the cache are shared best when all programs go through the tiles side by side.
_PROGRAMS, _PRODUCT_PROGRAMS = 32, 1


def moduli_of(choice: torch.Tensor) -> torch.Tensor:
    """r as one int32 on the device."""
    return choice[int(MODULI.value) : int(MODULI.value) + 1]


def choice_of_moduli(r: int, device: torch.device) -> torch.Tensor:
    """A choice for products alone."""
    choice = torch.zeros(FIELDS, dtype=torch.int32, device=device)
    moduli_of(choice).fill_(r)
    return choice


def programs_for(device: torch.device, items: int, each: int = _PROGRAMS) -> int:
    """Programs that share the items of a launch between them."""
    if device.type != "cuda":
        return min(items, 2)  # of the interpreter, which runs them one after the other
    return min(items, each * torch.cuda.get_device_properties(device).multi_processor_count)


# Heights of panels follow from free memory, and a capture's must need nothing that was not compiled before it. Their
# divisibility by 16 changes no instruction (sm_90).
@triton.jit(do_not_specialize=["vectors", "left"])
def deconstruct_chosen_kernel(
    x,
    top,
    inner,
    choice,
    table,
    planes,
    lost,
    vectors,
    depth,
    row,
    stride_vector,
    stride_depth,
    left,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    FEWER: tl.constexpr,
    DIGITS: tl.constexpr,
    INNER: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Tiles of BLOCK_V vectors × BLOCK_K entries where the bits need more than FEWER and at most DIGITS digits."""
    count = tl.load(choice + MODULI)
    bits = tl.load(choice + tl.where(left != 0, LEFT_BITS, RIGHT_BITS))
    check = tl.load(choice + CHECK) != 0
    rows = table + tl.where(left != 0, count * (count - 1) // 2, 0) * (DIGITS + 2)
    mine = (count > 0) & (bits >= FEWER * _DIGIT_BITS) & (bits < DIGITS * _DIGIT_BITS)
    across = tl.cdiv(depth, BLOCK_K)
    tiles = tl.where(mine, tl.cdiv(vectors, BLOCK_V) * across, 0)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), disable_licm=True):
        v = (tile // across) * BLOCK_V + tl.arange(0, BLOCK_V)
        k = (tile % across) * BLOCK_K + tl.arange(0, BLOCK_K)
        largest = tl.load(top + v, mask=v < vectors, other=NOTHING)
        scale = tl.where(largest == NOTHING, 0, bits - largest)
        negative, magnitude, exponent, _inexact = load_rounded(
            x, scale, inner, v, k, vectors, depth, stride_vector, stride_depth, FRACTION, EXPONENT, INNER
        )
        store_residues(negative, magnitude, exponent, rows, planes, v, k, vectors, depth, row, count, DIGITS)
        if check:
            # Read again, from the cache: to know it above takes 160 registers in place of 95 (sm_90, 55 bits), of
            # products that count nothing too.
            _negative, _magnitude, _exponent, inexact = load_rounded(
                x, scale, inner, v, k, vectors, depth, stride_vector, stride_depth, FRACTION, EXPONENT, INNER
            )
            tl.atomic_add(lost + v, tl.sum(inexact.to(tl.int32), axis=1), mask=v < vectors, sem="relaxed")


@cache  # for good: CUDA graphs read it at every replay
def _coefficient_table(digits: int, left: bool, device: torch.device) -> torch.Tensor:
    """`coefficient_rows` of all moduli; on the left, whose CRT inverses differ, of the first r for r = 1, 2, …"""
    systems = [_system(r) for r in (range(1, MOST_MODULI + 1) if left else [MOST_MODULI])]
    return to_device(np.concatenate([coefficient_rows(system, digits, left) for system in systems]), device)


def deconstruct_chosen(
    x: torch.Tensor,
    layout: FloatLayout,
    top: torch.Tensor,
    inner: torch.Tensor | None,
    choice: torch.Tensor,
    left: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric residues of rint(x 2^(bits − top + inner)), |·| ≤ 2^bits, for the choice's bits and moduli.

    x: (vectors, depth), bit patterns of floats of that layout as its carrier integers, any strides; top (vectors,),
    inner (depth,): int32, top of a vector without any finite entry but 0 `NO_EXPONENT`; choice (8,), int32.
    Returns planes (49, vectors, depth) as `empty_planes`, the first r written, on the left multiplied by the CRT
    inverse, and the entries of each vector (int32) that the rounding changed, 0 without CHECK. Exact; NaN and inf count
    as 0.
    """
    vectors, depth = x.shape
    planes = empty_planes(MOST_MODULI, vectors, depth, x.device)
    lost = torch.zeros(vectors, dtype=torch.int32, device=x.device)
    if planes.numel() == 0:
        return planes, lost
    for fewer, digits in zip((0, *DIGIT_TIERS), DIGIT_TIERS, strict=False):
        block_v, block_k = block_shape(digits)
        tiles = triton.cdiv(vectors, block_v) * triton.cdiv(depth, block_k)
        deconstruct_chosen_kernel[(programs_for(x.device, tiles),)](
            x,
            top,
            top if inner is None else inner,
            choice,
            _coefficient_table(digits, left, x.device),
            planes,
            lost,
            vectors,
            depth,
            planes.stride(1),
            x.stride(0),
            x.stride(1),
            int(left),
            FRACTION=layout.fraction_bits,
            EXPONENT=layout.exponent_bits,
            FEWER=fewer,
            DIGITS=digits,
            INNER=inner is not None,
            BLOCK_V=block_v,
            BLOCK_K=block_k,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return planes, lost


@triton.jit(do_not_specialize=["m"])  # as above; compiled ahead of time without it, too
def residue_gemm_chosen_kernel(
    a,
    b,
    choice,
    table,
    digits,
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Tiles of the first r moduli, one modulus after the other, shared between the programs."""
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    for item in range(tl.program_id(0), tiles * tl.load(choice + MODULI), tl.num_programs(0)):
        modulus = (item // tiles).to(tl.int64)
        tile_m, tile_n = tile_of(item % tiles, m, n, BLOCK_M, BLOCK_N, GROUP)
        x = tile_pointers(a + modulus * plane_a, tile_m * BLOCK_M, m, stride_a, BLOCK_M, BLOCK_K)
        y = tile_pointers(b + modulus * plane_b, tile_n * BLOCK_N, n, stride_b, BLOCK_N, BLOCK_K)
        row = table + modulus * 4
        digit = multiply_planes(x, y.T, row, depth, low_a, low_b, KIND, EVEN, SHALLOW, BLOCK_M, BLOCK_N, BLOCK_K)
        # 0, since the table's shifts are below 8, which the compiler can't know: else it computes the 128 rows of every
        # thread before the products and keeps them, and registers spill (sm_80 and 90).
        zero = tl.load(row + 3) >> 3
        i = (tile_m + zero) * BLOCK_M + tl.arange(0, BLOCK_M)
        j = (tile_n + zero) * BLOCK_N + tl.arange(0, BLOCK_N)
        at = modulus * m * n + i.to(tl.int64)[:, None] * n + j[None, :]
        tl.store(digits + at, digit.to(tl.uint8), mask=(i < m)[:, None] & (j < n)[None, :])


def residue_gemm_chosen(
    a: torch.Tensor, b: torch.Tensor, choice: torch.Tensor, blocks: Blocks | None = None
) -> torch.Tensor:
    """The CRT digits Σ_k a_lik b_ljk mod m_l, uint8, shape (planes, m, n), of which the first r are written.

    a (planes, m, depth) and b (planes, n, depth): int8, any depth, of the first INT8 moduli, r of them or more; choice
    (8,), int32. Exact. `blocks` as `gemm_blocks`.
    """
    block_m, block_n, block_k, warps, stages = blocks or gemm_blocks(0, capability_of(a.device))
    kind, strides, even, shallow = plane_arguments(a, b, block_k)
    planes, m, depth = a.shape
    n = b.shape[-2]
    empty = torch.empty if depth else torch.zeros
    digits: torch.Tensor = empty((planes, m, n), dtype=torch.uint8, device=a.device)
    if digits.numel() == 0 or depth == 0:
        return digits
    items = planes * triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    residue_gemm_chosen_kernel[(programs_for(a.device, items, _PRODUCT_PROGRAMS),)](
        a,
        b,
        choice,
        reduction_table(_system(MOST_MODULI), a.device),
        digits,
        m,
        n,
        depth,
        *strides,
        KIND=kind,
        EVEN=even,
        SHALLOW=shallow,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP=8,
        num_warps=warps,
        num_stages=stages,
        enable_fp_fusion=False,
    )
    return digits
