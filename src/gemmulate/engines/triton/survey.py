"""What is asked of float matrices before their product, each answer in one read: exponents, norms, magnitudes, bits.

Exponents and norms: a program goes along a part of the depth of a few vectors, keeps one partial result for each place
of its tile, reduces them at the end, and merges with the other parts by atomic maxima and sums. All are integers, so
that no order can change a bit. Tiles lie along the smaller stride; rows and columns are both read in whole lines.

Only `assess_bits` computes in float64: a conversion, a product, a quotient and a product, each rounded once, as the
contract of `Engine.assess` fixes them. Not run on a GPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from gemmulate.engines.base import NO_EXPONENT
from gemmulate.engines.triton.deconstruct import split_float
from gemmulate.engines.triton.floating import FloatLayout

_NOTHING = tl.constexpr(NO_EXPONENT)
ALL_ONES = tl.constexpr(0xFFFFFFFF)  # ~ of uint32 is an error in the interpreter of Triton 3.8
# Programs that a matrix with few vectors is spread over, along its depth: about three for each that an H200 holds at
# once (132 · 5, docs/triton-kernels.md).
PROGRAMS = 2048
# Tiles of a program: int32 holds sums of as many q ≤ 2^15.
_STEPS = (1 << 15) - 1


@triton.jit
def load_entries(
    x,
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
    """Bits, significand and exponent of its unit of a tile; v and k are int64. NaN, inf and what is outside give 0."""
    inside = (v < vectors)[:, None] & (k < depth)[None, :]
    bits = tl.load(x + (v[:, None] * stride_vector + k[None, :] * stride_depth), mask=inside, other=0)
    _negative, significand, exponent = split_float(bits, FRACTION, EXPONENT)
    if INNER:
        exponent += tl.load(inner + k, mask=k < depth, other=0)[None, :]
    return bits, significand if FRACTION > 31 else significand.to(tl.int32), exponent


@triton.jit
def bit_length(x):
    """Of a uint32 that is not 0: the exponent of a float32. Without the bit below its top one, none rounds up to it."""
    pattern = (x & ((x >> 1) ^ ALL_ONES)).to(tl.float32).to(tl.int32, bitcast=True)
    return (pattern >> 23) - 126


@triton.jit
def outer_bits(significand, FRACTION: tl.constexpr):
    """Bit length and number of trailing zeros of a significand that is not 0, int32."""
    low = significand.to(tl.uint32)
    if FRACTION > 31:
        high = (significand >> 32).to(tl.uint32)
        length = bit_length(tl.where(high != 0, high, low)) + tl.where(high != 0, 32, 0)
        zeros = tl.where(low != 0, 0, 32)
        low = tl.where(low != 0, low, high)
    else:
        length = bit_length(low)
        zeros = 0
    return length, bit_length(low & ((low ^ ALL_ONES) + 1)) - 1 + zeros


@triton.jit
def place(depth, steps, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr):
    """A program's vectors and the ends of its part of the depth, `steps` tiles long, int64."""
    parts = tl.cdiv(depth, BLOCK_K * steps)
    v = (tl.program_id(0) // parts).to(tl.int64) * BLOCK_V + tl.arange(0, BLOCK_V)
    start = (tl.program_id(0) % parts).to(tl.int64) * BLOCK_K * steps
    return v, start, tl.minimum(start + BLOCK_K * steps, depth)


@triton.jit
def scan_kernel(
    x,
    inner,
    top,
    negative_lsb,
    special,
    vectors,
    depth,
    stride_vector,
    stride_depth,
    gate,
    steps,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    INNER: tl.constexpr,
    GATED: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Maxima over the program's part of the depth, into `top`, `negative_lsb` and `special` (1 where one is)."""
    v, start, stop = place(depth, steps, BLOCK_V, BLOCK_K)
    if GATED:
        stop = tl.where(tl.load(gate) != 0, stop, start)
    tops = tl.full((BLOCK_V, BLOCK_K), _NOTHING, tl.int32)
    lowest = tl.full((BLOCK_V, BLOCK_K), _NOTHING, tl.int32)
    fields = tl.zeros((BLOCK_V, BLOCK_K), tl.int32)
    field_mask: tl.constexpr = (1 << EXPONENT) - 1
    for first in range(start, stop, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        bits, significand, exponent = load_entries(
            x, inner, v, k, vectors, depth, stride_vector, stride_depth, FRACTION, EXPONENT, INNER
        )
        length, zeros = outer_bits(significand, FRACTION)
        tops = tl.maximum(tops, tl.where(significand != 0, exponent + length, _NOTHING))
        lowest = tl.maximum(lowest, tl.where(significand != 0, -exponent - zeros, _NOTHING))
        fields = tl.maximum(fields, (bits >> FRACTION).to(tl.int32) & field_mask)
    inside = v < vectors
    tl.atomic_max(top + v, tl.max(tops, axis=1), mask=inside, sem="relaxed")
    tl.atomic_max(negative_lsb + v, tl.max(lowest, axis=1), mask=inside, sem="relaxed")
    tl.atomic_max(special + v, (tl.max(fields, axis=1) == field_mask).to(tl.int32), mask=inside, sem="relaxed")


@triton.jit
def norms_kernel(
    x,
    inner,
    top,
    total,
    square,
    peak,
    vectors,
    depth,
    stride_vector,
    stride_depth,
    gate,
    steps,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    INNER: tl.constexpr,
    GATED: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Σ q, Σ q² and max q over the program's part of the depth, into int64 vectors; q ≤ 2^15."""
    v, start, stop = place(depth, steps, BLOCK_V, BLOCK_K)
    if GATED:
        stop = tl.where(tl.load(gate) != 0, stop, start)
    inside = v < vectors
    scale = 15 - tl.load(top + v, mask=inside, other=0)[:, None]
    totals = tl.zeros((BLOCK_V, BLOCK_K), tl.int32)
    squares = tl.zeros((BLOCK_V, BLOCK_K), tl.int64)
    peaks = tl.zeros((BLOCK_V, BLOCK_K), tl.int32)
    most: tl.constexpr = 63 if FRACTION > 31 else 31
    for first in range(start, stop, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        _bits, significand, exponent = load_entries(
            x, inner, v, k, vectors, depth, stride_vector, stride_depth, FRACTION, EXPONENT, INNER
        )
        shift = exponent + scale
        left = tl.minimum(tl.maximum(shift, 0), 15).to(significand.dtype)
        right = tl.minimum(tl.maximum(-shift, 0), most).to(significand.dtype)
        # ⌈s / 2^r⌉ = −⌊−s / 2^r⌋, which is 1 of an s that is shifted out.
        q = (-(-(significand << left) >> right)).to(tl.int32)
        totals += q
        squares += q.to(tl.int64) * q.to(tl.int64)
        peaks = tl.maximum(peaks, q)
    tl.atomic_add(total + v, tl.sum(totals.to(tl.int64), axis=1), mask=inside, sem="relaxed")
    tl.atomic_add(square + v, tl.sum(squares, axis=1), mask=inside, sem="relaxed")
    tl.atomic_max(peak + v, tl.max(peaks, axis=1).to(tl.int64), mask=inside, sem="relaxed")


@triton.jit
def magnitudes_kernel(
    x,
    inner,
    top,
    plane,
    vectors,
    depth,
    stride_vector,
    stride_depth,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    INNER: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of magnitudes, written along the depth however it is read."""
    v, k, _stop = place(depth, 1, BLOCK_V, BLOCK_K)
    k += tl.arange(0, BLOCK_K)
    _bits, significand, exponent = load_entries(
        x, inner, v, k, vectors, depth, stride_vector, stride_depth, FRACTION, EXPONENT, INNER
    )
    shift = exponent + (7 - tl.load(top + v, mask=v < vectors, other=0)[:, None])
    left = tl.minimum(tl.maximum(shift, 0), 7).to(significand.dtype)
    right = tl.minimum(tl.maximum(-shift, 0), 63 if FRACTION > 31 else 31).to(significand.dtype)
    inside = (v < vectors)[:, None] & (k < depth)[None, :]
    tl.store(plane + (v[:, None] * depth + k[None, :]), ((significand << left) >> right).to(tl.int8), mask=inside)


@triton.jit(do_not_specialize=["m"])  # the height of a panel, which free memory decides; it changes no instruction
def assess_kernel(
    products,
    rows,
    columns,
    factors,
    need,
    histogram,
    m,
    n,
    stride_m,
    stride_n,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Bits of ROWS × BLOCK_N results and how often each number of bits occurs; `factors`: budget, 1 + 2^-40."""
    tiles = tl.cdiv(n, BLOCK_N)
    j = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = (tl.program_id(0) // tiles).to(tl.int64) * ROWS
    right = tl.load(columns + j, mask=j < n, other=0)
    budget, margin = tl.load(factors), tl.load(factors + 1)
    counts = tl.zeros((256,), tl.int32)
    for i in range(first, tl.minimum(first + ROWS, m)):
        left = tl.load(rows + i)
        product = tl.load(products + (i * stride_m + j * stride_n), mask=j < n, other=0)
        allowed = product.to(tl.float64) * budget
        empty = allowed == 0
        ratio = (left + right + 1).to(tl.float64) / tl.where(empty, margin, allowed) * margin
        pattern = ratio.to(tl.int64, bitcast=True)
        # The ratio's exponent as frexp has it; a power of two counts as the end of the range below.
        bits = (pattern >> 52).to(tl.int32) - 1024 - ((pattern & ((1 << 52) - 1)) == 0).to(tl.int32)
        bits = tl.where(empty, 255, tl.minimum(tl.maximum(bits, 0), 255))
        bits = tl.where((left == 0) | (right == 0), 0, bits)
        tl.store(need + (i * n + j), bits.to(tl.int8), mask=j < n)
        counts += tl.histogram(bits, 256, mask=j < n)
    tl.atomic_add(histogram + tl.arange(0, 256), counts.to(tl.int64), mask=counts > 0, sem="relaxed")


def block_shape(stride_vector: int, stride_depth: int) -> tuple[int, int]:
    """Vectors and depth of a survey's tile, long in the direction in which entries lie closer together."""
    return (128, 16) if stride_vector < stride_depth else (16, 128)


# Read in lines of 256 bytes of float64 across the vectors, or longer ones along the depth, and written in 128 bytes.
MAGNITUDES_BLOCK = (32, 128)
# Results of an assessing program: rows, and columns at a time.
ASSESS_BLOCK = (16, 1024)


class Launch(NamedTuple):
    """Programs, tiles of each along the depth, and the tile."""

    programs: int
    steps: int
    block: tuple[int, int]


def spread(vectors: int, depth: int, block: tuple[int, int]) -> Launch:
    """Whole depths, or parts of them until there are `PROGRAMS`."""
    along, across = triton.cdiv(depth, block[1]), triton.cdiv(vectors, block[0])
    steps = min(max(1, along * across // PROGRAMS), along, _STEPS)
    return Launch(across * triton.cdiv(along, steps), steps, block)


def _constants(layout: FloatLayout, inner: torch.Tensor | None, block: tuple[int, int]) -> dict[str, Any]:
    fields = {"FRACTION": layout.fraction_bits, "EXPONENT": layout.exponent_bits, "INNER": inner is not None}
    return fields | {"BLOCK_V": block[0], "BLOCK_K": block[1], "enable_fp_fusion": False}


def scan(
    x: torch.Tensor, layout: FloatLayout, inner: torch.Tensor | None, gate: torch.Tensor | None = None
) -> torch.Tensor:
    """Of each vector x 2^inner: top with |x| < 2^top (least such), −lsb, and 1 where NaN or inf occurs, else not 1.

    x: (vectors, depth), bit patterns of floats of that layout as its carrier integers, any strides; inner (depth,):
    int32; gate (1,): int32, where it is 0 nothing is read and every entry counts as 0. Returns (3, vectors), int32;
    `NO_EXPONENT` stands for top and −lsb where every entry is 0, NaN or inf.
    """
    vectors, depth = x.shape
    found = torch.full((3, vectors), NO_EXPONENT, dtype=torch.int32, device=x.device)
    if x.numel():
        launch = spread(vectors, depth, block_shape(x.stride(0), x.stride(1)))
        scan_kernel[(launch.programs,)](
            x,
            found[0] if inner is None else inner,
            *found,
            vectors,
            depth,
            *x.stride(),
            found if gate is None else gate,
            launch.steps,
            GATED=gate is not None,
            **_constants(layout, inner, launch.block),
        )
    return found


def norms(
    x: torch.Tensor,
    layout: FloatLayout,
    top: torch.Tensor,
    inner: torch.Tensor | None,
    gate: torch.Tensor | None = None,
) -> torch.Tensor:
    """Σ q, Σ q² and max q of each vector with q = ⌈|x| 2^(15 − top + inner)⌉, |x| 2^inner < 2^top: (3, vectors), int64.

    x, inner and gate as in `scan`; top (vectors,): int32. NaN and inf count as 0. Exact.
    """
    vectors, depth = x.shape
    found = torch.zeros((3, vectors), dtype=torch.int64, device=x.device)
    if x.numel():
        launch = spread(vectors, depth, block_shape(x.stride(0), x.stride(1)))
        norms_kernel[(launch.programs,)](
            x,
            top if inner is None else inner,
            top,
            *found,
            vectors,
            depth,
            *x.stride(),
            found if gate is None else gate,
            launch.steps,
            GATED=gate is not None,
            **_constants(layout, inner, launch.block),
        )
    return found


def magnitudes(x: torch.Tensor, layout: FloatLayout, top: torch.Tensor, inner: torch.Tensor | None) -> torch.Tensor:
    """⌊|x| 2^(7 − top + inner)⌋ of each entry, |x| 2^inner < 2^top: int8, (vectors, depth), contiguous.

    x, top and inner as in `norms`. NaN and inf give 0.
    """
    vectors, depth = x.shape
    plane = torch.empty((vectors, depth), dtype=torch.int8, device=x.device)
    if x.numel():
        block = MAGNITUDES_BLOCK
        magnitudes_kernel[(triton.cdiv(vectors, block[0]) * triton.cdiv(depth, block[1]),)](
            x,
            top if inner is None else inner,
            top,
            plane,
            vectors,
            depth,
            *x.stride(),
            **_constants(layout, inner, block),
            num_warps=8,
        )
    return plane


def assess_bits(
    products: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, budget: float, histogram: torch.Tensor
) -> torch.Tensor:
    """Bits that each element asks for (`Engine.assess`), as int8 modulo 256, shape (m, n), contiguous.

    products: (m, n) of magnitudes, int32 or int64, any strides; rows (m,) and columns (n,): Σ q, int64. Adds to
    `histogram` (256,), int64, how often each number of bits occurs.
    """
    m, n = products.shape
    need = torch.empty((m, n), dtype=torch.int8, device=products.device)
    if need.numel():
        # A tensor: Triton takes a Python float as float32. Filled there: a CUDA graph can hold no copy from the host.
        factors = torch.full((2,), 1.0 + 2.0**-40, dtype=torch.float64, device=products.device)
        factors[:1].fill_(budget)
        rows_each, block = ASSESS_BLOCK
        assess_kernel[(triton.cdiv(m, rows_each) * triton.cdiv(n, block),)](
            products,
            rows,
            columns,
            factors,
            need,
            histogram,
            m,
            n,
            *products.stride(),
            ROWS=rows_each,
            BLOCK_N=block,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return need
