"""Elements that IEEE's rules decide beside the exact sum: each tile of results looks whether it holds any.

A tile with a zero, or with a row or column that holds NaN or infinities, reads its rows and columns once more and sums
their signs as `array_special` says; the others are read and left. Not run on a GPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gemmulate.engines.triton.floating import FloatLayout

# Results and depth of a tile: 256 threads hold 16 results each, and 8 entries of either operand.
BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 32


@triton.jit
def classify(bits, inside, FRACTION: tl.constexpr, EXPONENT: tl.constexpr):
    """Sign, 1 where not zero, infinity with its sign, all int8 and 0 outside; 1 where NaN, int32."""
    infinity: tl.constexpr = ((1 << EXPONENT) - 1) << FRACTION
    magnitude = bits & ((1 << (FRACTION + EXPONENT)) - 1)
    sign = tl.where(inside, tl.where(bits < 0, -1, 1), 0).to(tl.int8)
    nonzero = ((magnitude != 0) & inside).to(tl.int8)
    return sign, nonzero, sign * (magnitude == infinity).to(tl.int8), ((magnitude > infinity) & inside).to(tl.int32)


@triton.jit
def settle_kernel(
    a,
    b,
    special_a,
    special_b,
    out,
    m,
    n,
    depth,
    stride_a,
    stride_a_depth,
    stride_b,
    stride_b_depth,
    stride_m,
    stride_n,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    OUT_FRACTION: tl.constexpr,
    OUT_EXPONENT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of results; `special_…` are 1 where a row of a or of b holds NaN or infinities."""
    tiles = tl.cdiv(n, BLOCK_N)
    i = (tl.program_id(0) // tiles).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (i < m)[:, None] & (j < n)[None, :]
    target = out + (i[:, None] * stride_m + j[None, :] * stride_n)
    pattern = tl.load(target, mask=inside, other=1).to(tl.int64)
    rows, columns = tl.load(special_a + i, mask=i < m, other=0), tl.load(special_b + j, mask=j < n, other=0)
    special = (rows == 1)[:, None] | (columns == 1)[None, :]
    asked = inside & (special | (pattern == 0))
    if tl.max(tl.max(asked.to(tl.int32), axis=1), axis=0) > 0:
        signs = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
        terms = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
        count_a, count_b = tl.zeros((BLOCK_M,), tl.int32), tl.zeros((BLOCK_N,), tl.int32)
        nan_a, nan_b = tl.zeros((BLOCK_M,), tl.int32), tl.zeros((BLOCK_N,), tl.int32)
        for first in range(0, depth, BLOCK_K):
            k = (first + tl.arange(0, BLOCK_K)).to(tl.int64)
            inside_a = (i < m)[:, None] & (k < depth)[None, :]
            inside_b = (k < depth)[:, None] & (j < n)[None, :]
            x = tl.load(a + (i[:, None] * stride_a + k[None, :] * stride_a_depth), mask=inside_a, other=0)
            y = tl.load(b + (j[None, :] * stride_b + k[:, None] * stride_b_depth), mask=inside_b, other=0)
            sign_a, nonzero_a, infinite_a, is_nan_a = classify(x, inside_a, FRACTION, EXPONENT)
            sign_b, nonzero_b, infinite_b, is_nan_b = classify(y, inside_b, FRACTION, EXPONENT)
            signs = tl.dot(sign_a, sign_b, signs, out_dtype=tl.int32)
            signs = tl.dot(nonzero_a, nonzero_b, signs, out_dtype=tl.int32)
            terms = tl.dot(infinite_a, sign_b * nonzero_b, terms, out_dtype=tl.int32)
            terms = tl.dot(sign_a * nonzero_a, infinite_b, terms, out_dtype=tl.int32)
            count_a += tl.sum(tl.abs(infinite_a).to(tl.int32), axis=1)
            count_b += tl.sum(tl.abs(infinite_b).to(tl.int32), axis=0)
            nan_a, nan_b = tl.maximum(nan_a, tl.max(is_nan_a, axis=1)), tl.maximum(nan_b, tl.max(is_nan_b, axis=0))
        infinity: tl.constexpr = ((1 << OUT_EXPONENT) - 1) << OUT_FRACTION
        negative: tl.constexpr = -(1 << (OUT_FRACTION + OUT_EXPONENT))
        count = count_a[:, None] + count_b[None, :]
        nan = (nan_a[:, None] | nan_b[None, :]) != 0
        nan = nan | ((terms != count) & (terms != -count))
        decided = tl.where(terms < 0, infinity + negative, infinity)
        decided = tl.where(nan, infinity + (1 << (OUT_FRACTION - 1)), decided)
        zero = tl.where(signs == -depth, negative, 0)
        tl.store(target, tl.where(special, decided, zero).to(out.dtype.element_ty), mask=asked)


def settle(
    a: torch.Tensor,
    b: torch.Tensor,
    layout: FloatLayout,
    special_a: torch.Tensor,
    special_b: torch.Tensor,
    out: torch.Tensor,
    result: FloatLayout,
) -> None:
    """Overwrite in `out` (m, n) what NaN and infinities of a (m, k) and b (n, k) decide, and +0 by −0 where all k are.

    All are bit patterns, a and b of one layout and `out` of its own, any strides. `special_…` (m,) and (n,), int32: 1
    where a row holds NaN or infinities, as `survey.scan` finds them. `out` holds the sums with those taken for 0.
    """
    (m, n), depth = out.shape, a.shape[1]
    if out.numel() == 0 or depth == 0:
        return
    settle_kernel[(triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)](
        a,
        b,
        special_a,
        special_b,
        out,
        m,
        n,
        depth,
        *a.stride(),
        *b.stride(),
        *out.stride(),
        FRACTION=layout.fraction_bits,
        EXPONENT=layout.exponent_bits,
        OUT_FRACTION=result.fraction_bits,
        OUT_EXPONENT=result.exponent_bits,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        num_warps=8,
        num_stages=1,  # with three registers spill on sm_80 and sm_120a
        enable_fp_fusion=False,
    )
