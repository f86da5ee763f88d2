"""Products of residue planes with the reduction in the epilogue: exact sums of small integers in, CRT digits out.

INT8: |a b| ≤ 2^14, so int32 holds sums to depth 2^17; after DEPTH terms the sum is reduced and goes on from there.

BF16: every integer of 8 bits is a bfloat16. Sums of products stay exact in float32 below 2^24, depth 1,024; they are
added to int32 every FP32_DEPTH. The tensor units keep at least 24 bits when they align the terms (Fasi, Higham,
Mikaitis, Pranesh 2021, "Numerical behavior of NVIDIA tensor cores").

FP8 (E4M3, four significant bits): a residue is 16 h + l, and x y = 240 h h' + 16 s s' − 15 l l' with s = h + l: three
products of parts that E4M3 holds exactly (`torch_fp8`), each summed over one block of the depth from zero, |sum| ≤ 256
for a step. Hopper and Ada keep 13 fraction bits of an FP8 sum, so that sums below 2^14 are exact: FP8_DEPTH = 32 steps,
the largest power of two below 64. Blackwell keeps 25 (both measured: Xie, Wang, Yang, Yang 2025, "MMA-Sim", arXiv
2511.10909, and its source). Not checked on a GPU. The sums of each block join in FP32, the smaller ones first: before a
block of K steps |sum| ≤ 2^14 (768 − K), and 15 · 64 K + 16 · 256 K < 2^14 K, so that all stays within 2^14 · 768.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Literal

import numpy as np
import torch
import triton
import triton.language as tl

from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.torch import capability_of
from gemmulate.engines.torch_array import to_device
from gemmulate.engines.torch_fp8 import fp8_accumulator, high_and_low

# |sum| ≤ 255 + 65,280 · 2^14 < 2^30, as the reduction asks for; a multiple of every BLOCK_K.
DEPTH = tl.constexpr(65280)
FP32_DEPTH = tl.constexpr(768)  # 768 · 2^14 < 2^24, a multiple of BLOCK_K
FP8_DEPTH = 32  # 32 · 256 < 2^14, of Hopper and Ada
FP8_DEPTH_BLACKWELL = 128  # 65,536 · 256 = 2^24; no block is deeper than this

INT8 = tl.constexpr(0)
BF16 = tl.constexpr(1)
FP8 = tl.constexpr(2)
# The interpreter of Triton 3.9 multiplies the bits of bfloat16 as if they were integers: there they become float32.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

PlaneFormat = Literal["int8", "bfloat16", "fp8_e4m3"]
_KINDS: dict[torch.dtype, int] = {torch.int8: 0, torch.bfloat16: 1, torch.float8_e4m3fn: 2}


@cache  # for good: CUDA graphs read it at every replay
def reduction_table(system: ResidueSystem, device: torch.device) -> torch.Tensor:
    """Rows m, offset, magic, shift, int32, for t mod m of an int32 |t| < 2^30.

    offset is the least multiple of m that is at least 2^30, so that u = t + offset is in [0, 2^31). With
    2^s < m ≤ 2^(s+1) and magic = ⌊2^(32+s)/m⌋ + 1 < 2^32, ⌊u magic / 2^(32+s)⌋ = ⌊u/m⌋, for the quotient exceeds u/m by
    at most u / 2^(32+s) < 2^31 / 2^(32+s) ≤ 1/m (Granlund and Montgomery 1994, "Division by invariant integers using
    multiplication", theorem 4.2).
    """
    rows = []
    for m in system.moduli:
        s = (m - 1).bit_length() - 1
        rows.append([m, -(-(1 << 30) // m) * m, (1 << (32 + s)) // m + 1, s])
    return to_device(np.array(rows, dtype=np.uint32).view(np.int32), device)


@triton.jit
def reduce(total, row):
    """An int32 tensor |t| < 2^30 modulo m as int32 in [0, m); `row` points at m, offset, magic, shift."""
    shifted = (total + tl.load(row + 1)).to(tl.uint32, bitcast=True)
    magic = tl.load(row + 2).to(tl.uint32, bitcast=True)
    quotient = tl.umulhi(shifted, magic) >> tl.load(row + 3).to(tl.uint32, bitcast=True)
    return shifted.to(tl.int32, bitcast=True) - quotient.to(tl.int32, bitcast=True) * tl.load(row)


@triton.jit
def load_tile(source, k, depth, KIND: tl.constexpr, BLOCK_K: tl.constexpr, EVEN: tl.constexpr, ALONG: tl.constexpr):
    """A tile at depth k; entries beyond the depth are 0."""
    if EVEN:
        return tl.load(source)
    at = tl.arange(0, BLOCK_K)
    inside = (at < depth - k)[None, :] if ALONG else (at < depth - k)[:, None]
    return tl.load(source, mask=inside, other=0 if KIND == INT8 else 0.0)


@triton.jit
def multiply_planes(
    a,
    b,
    row,
    depth,
    low_a,
    low_b,
    KIND: tl.constexpr,
    EVEN: tl.constexpr,
    SHALLOW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Σ_k a_ik b_jk mod m of one tile, int32 in [0, m).

    a: pointers (BLOCK_M, BLOCK_K), b: pointers (BLOCK_K, BLOCK_N) at depth 0. FP8: those of the parts h; the parts l
    and s lie low_a and low_b further each. SHALLOW: depth ≤ DEPTH, no reduction on the way.
    """
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    if SHALLOW:
        total = add_products(total, a, b, 0, depth, depth, low_a, low_b, KIND, EVEN, BLOCK_M, BLOCK_N, BLOCK_K)
    else:
        for start in range(0, depth, DEPTH):
            stop = tl.minimum(start + DEPTH, depth)
            total = add_products(
                reduce(total, row), a, b, start, stop, depth, low_a, low_b, KIND, EVEN, BLOCK_M, BLOCK_N, BLOCK_K
            )
    return reduce(total, row)


@triton.jit
def add_products(
    total,
    a,
    b,
    start,
    stop,
    depth,
    low_a,
    low_b,
    KIND: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """total plus the products from depth `start` to `stop`, exact in int32."""
    if KIND == INT8:
        for k in range(start, stop, BLOCK_K):
            x = load_tile(a + k, k, depth, KIND, BLOCK_K, EVEN, True)
            y = load_tile(b + k, k, depth, KIND, BLOCK_K, EVEN, False)
            total = tl.dot(x, y, total, out_dtype=tl.int32)
    elif KIND == BF16:
        for first in range(start, stop, FP32_DEPTH):
            part = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for k in range(first, tl.minimum(first + FP32_DEPTH, stop), BLOCK_K):
                x = load_tile(a + k, k, depth, KIND, BLOCK_K, EVEN, True)
                y = load_tile(b + k, k, depth, KIND, BLOCK_K, EVEN, False)
                part = tl.dot(x.to(tl.float32), y.to(tl.float32), part) if INTERPRETED else tl.dot(x, y, part)
            total += part.to(tl.int32)
    else:
        for first in range(start, stop, FP32_DEPTH):
            part = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for k in range(first, tl.minimum(first + FP32_DEPTH, stop), BLOCK_K):
                high = dot_of_parts(a, b, 0, low_a, low_b, k, depth, KIND, EVEN, BLOCK_K)
                low = dot_of_parts(a, b, 1, low_a, low_b, k, depth, KIND, EVEN, BLOCK_K)
                both = dot_of_parts(a, b, 2, low_a, low_b, k, depth, KIND, EVEN, BLOCK_K)
                part = tl.fma(high, 240.0, tl.fma(both, 16.0, tl.fma(low, -15.0, part)))
            total += part.to(tl.int32)
    return total


@triton.jit
def dot_of_parts(a, b, part, low_a, low_b, k, depth, KIND: tl.constexpr, EVEN: tl.constexpr, BLOCK_K: tl.constexpr):
    """Σ over one block of the depth of the products of part h (0), l (1) or s (2), float32 from zero."""
    # 2^30 entries and more: two parts lie further apart than int32 counts.
    x = load_tile(a + part * tl.cast(low_a, tl.int64) + k, k, depth, KIND, BLOCK_K, EVEN, True)
    y = load_tile(b + part * tl.cast(low_b, tl.int64) + k, k, depth, KIND, BLOCK_K, EVEN, False)
    return tl.dot(x, y)


@triton.jit
def tile_of(program, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a program's tile, in bands of GROUP rows of tiles, so that neighbours share operands."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    band = program // (GROUP * tiles_n)
    rows = tl.minimum(tiles_m - band * GROUP, GROUP)
    within = program % (GROUP * tiles_n)
    return band * GROUP + within % rows, within // rows


@triton.jit
def tile_pointers(planes, first, vectors, stride, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr):
    """Pointers (BLOCK_V, BLOCK_K) to vectors from `first` on at depth 0; those past the end read others instead."""
    v = ((first + tl.arange(0, BLOCK_V)) % vectors).to(tl.int64)
    return planes + v[:, None] * stride + tl.arange(0, BLOCK_K)[None, :]


@triton.jit
def residue_gemm_kernel(
    a,
    b,
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
    """One tile of one modulus: the grid is (tiles, moduli)."""
    modulus = tl.program_id(1).to(tl.int64)
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    x = tile_pointers(a + modulus * plane_a, tile_m * BLOCK_M, m, stride_a, BLOCK_M, BLOCK_K)
    y = tile_pointers(b + modulus * plane_b, tile_n * BLOCK_N, n, stride_b, BLOCK_N, BLOCK_K)
    digit = multiply_planes(
        x, y.T, table + modulus * 4, depth, low_a, low_b, KIND, EVEN, SHALLOW, BLOCK_M, BLOCK_N, BLOCK_K
    )
    i = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    at = modulus * m * n + i.to(tl.int64)[:, None] * n + j[None, :]
    tl.store(digits + at, digit.to(tl.uint8), mask=(i < m)[:, None] & (j < n)[None, :])


@triton.jit
def plane_sums_kernel(
    a,
    b,
    sums,
    m,
    n,
    depth,
    stride_a,
    stride_b,
    low_a,
    low_b,
    KIND: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One tile of Σ_k a_ik b_jk, int32, of one plane of depth ≤ DEPTH."""
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    x = tile_pointers(a, tile_m * BLOCK_M, m, stride_a, BLOCK_M, BLOCK_K)
    y = tile_pointers(b, tile_n * BLOCK_N, n, stride_b, BLOCK_N, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    total = add_products(total, x, y.T, 0, depth, depth, low_a, low_b, KIND, EVEN, BLOCK_M, BLOCK_N, BLOCK_K)
    i = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(sums + i.to(tl.int64)[:, None] * n + j[None, :], total, mask=(i < m)[:, None] & (j < n)[None, :])


def as_format(planes: torch.Tensor, plane_format: PlaneFormat) -> torch.Tensor:
    """INT8 planes (moduli, vectors, depth) in another format; FP8: (moduli, 3, vectors, depth), parts h, l, h + l."""
    if plane_format == "int8":
        return planes
    if plane_format == "bfloat16":
        return planes.to(torch.bfloat16)
    if plane_format != "fp8_e4m3":
        raise ValueError(f"plane_format = {plane_format!r} is unknown; use int8, bfloat16 or fp8_e4m3")
    high, low = high_and_low(planes)
    return torch.stack((high, low, high + low), dim=1).to(torch.float8_e4m3fn)


Blocks = tuple[int, int, int, int, int]

# By what registers and shared memory hold without spills (docs/triton-kernels.md), not by time. The tensor units of
# Hopper and datacentre Blackwell read operands from shared memory, those of the others from registers.
_BLOCKS: dict[str, dict[int, Blocks]] = {
    "shared": {0: (128, 256, 128, 8, 3), 1: (128, 64, 64, 8, 4), 2: (128, 64, 128, 8, 2)},
    "registers": {0: (128, 128, 128, 8, 3), 1: (128, 64, 64, 8, 3), 2: (64, 128, FP8_DEPTH, 8, 3)},
    "interpreter": {0: (64, 64, 256, 4, 1), 1: (64, 64, 256, 4, 1), 2: (64, 64, 128, 4, 1)},
}


def fp8_depth(capability: int | None) -> int:
    """The deepest block over which a device's FP8 sums are exact; capability as `gemm_blocks`."""
    return FP8_DEPTH if fp8_accumulator(capability) == "fp8_13bit" else FP8_DEPTH_BLACKWELL


@lru_cache(maxsize=8)
def gemm_blocks(kind: int, capability: int | None) -> Blocks:
    """BLOCK_M, BLOCK_N, BLOCK_K, warps and pipeline stages for a plane format.

    capability: 90 for sm_90; None for the interpreter.
    """
    if capability is None:
        family = "interpreter"
    elif kind == _KINDS[torch.float8_e4m3fn] and fp8_depth(capability) == FP8_DEPTH:
        family = "registers"  # its block of the depth is the one that Hopper sums exactly
    else:
        family = "shared" if 90 <= capability < 120 else "registers"
    return _BLOCKS[family][kind]


def plane_arguments(a: torch.Tensor, b: torch.Tensor, block_k: int) -> tuple[int, tuple[int, ...], bool, bool]:
    """Kind, strides and offsets, EVEN and SHALLOW of two operands in one format; checks that they belong together."""
    if a.dtype != b.dtype or a.dtype not in _KINDS:
        names = ", ".join(str(dtype) for dtype in _KINDS)
        raise TypeError(f"planes of {a.dtype} and {b.dtype}; give both as one of {names}")
    if (
        a.shape[0] != b.shape[0]
        or a.shape[-1] != b.shape[-1]
        or (a.shape[-1] > 1 and not a.stride(-1) == b.stride(-1) == 1)
    ):
        raise ValueError(
            f"planes of shapes {tuple(a.shape)} and {tuple(b.shape)}: moduli and depth must agree, depth be contiguous"
        )
    kind, depth = _KINDS[a.dtype], a.shape[-1]
    if kind == 2 and block_k > fp8_depth(capability_of(a.device)):
        raise ValueError(f"blocks of depth {block_k}: FP8 sums are exact to {fp8_depth(capability_of(a.device))} here")
    low = (a.stride(1), b.stride(1)) if kind == 2 else (0, 0)
    strides = (a.stride(-2), b.stride(-2), *low, a.stride(0), b.stride(0))
    return kind, strides, depth % block_k == 0, depth <= int(DEPTH.value)


def residue_gemm(a: torch.Tensor, b: torch.Tensor, system: ResidueSystem, blocks: Blocks | None = None) -> torch.Tensor:
    """The CRT digits Σ_k a_lik b_ljk mod m_l, uint8, shape (moduli, m, n).

    a (moduli, m, depth) and b (moduli, n, depth): int8 or bfloat16, integers in [−128, 127]; or float8_e4m3fn as
    `as_format` splits them; any depth. Exact. `blocks` as `gemm_blocks`.
    """
    kind = _KINDS.get(a.dtype, 0)
    block_m, block_n, block_k, warps, stages = blocks or gemm_blocks(kind, capability_of(a.device))
    kind, strides, even, shallow = plane_arguments(a, b, block_k)
    moduli, m, n, depth = a.shape[0], a.shape[-2], b.shape[-2], a.shape[-1]
    digits = torch.empty((moduli, m, n), dtype=torch.uint8, device=a.device)
    if digits.numel() == 0 or depth == 0:
        return digits.zero_()
    residue_gemm_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n), moduli)](
        a,
        b,
        reduction_table(system, a.device),
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


def plane_sums(a: torch.Tensor, b: torch.Tensor, plane_format: PlaneFormat) -> torch.Tensor:
    """Σ_k a_ik b_jk, int32 (m, n), exact, through planes of a format.

    a (m, depth) and b (n, depth): int8, any strides, depth ≤ DEPTH; ValueError beyond.
    """
    x, y = (as_format(v.contiguous()[None], plane_format) for v in (a, b))
    block_m, block_n, block_k, warps, stages = gemm_blocks(_KINDS[x.dtype], capability_of(a.device))
    kind, (stride_a, stride_b, low_a, low_b, *_), even, shallow = plane_arguments(x, y, block_k)
    (m, depth), n = a.shape, b.shape[0]
    if not shallow:
        raise ValueError(f"depth = {depth} exceeds {DEPTH.value}, to which int32 sums are exact; cut it")
    sums = torch.zeros((m, n), dtype=torch.int32, device=a.device)
    if sums.numel() and depth:
        plane_sums_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
            x,
            y,
            sums,
            m,
            n,
            depth,
            stride_a,
            stride_b,
            low_a,
            low_b,
            KIND=kind,
            EVEN=even,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            GROUP=8,
            num_warps=warps,
            num_stages=stages,
            enable_fp_fusion=False,
        )
    return sums
