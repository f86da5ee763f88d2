"""Products of INT8 residue planes for Hopper, with one group of tensor instructions always in flight; in Gluon.

Triton keeps no product with int32 sums in flight on Hopper: its pipeline asks for float32 sums ("rule 2.1" of its
WGMMAPipeline.cpp), so that after each step of the depth the tensor units wait for barriers and loads. Here the loop is
written out: load by TMA three steps ahead, start the product of a step, wait for that of the step before, refill the
buffer that it has read. A program stays on its SM and goes from tile to tile; the loads of the next tile begin before
the digits of the last are stored.

Two SMs may share a program, a cluster of two blocks of threads ("CTAs"), each with half of the tile's rows: TMA brings
the right operand to both at once ("multicast"), so that the L2 cache is read a third less.

Operands as `described_gemm`. Not run on a GPU, and Gluon has no interpreter: `tests` run this source on stand-ins for
its operations, whose copies and products take effect as early and as late as the hardware may let them.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from gemmulate.engines.residue_system import ResidueSystem, _system
from gemmulate.engines.triton.chosen import MOST_MODULI, moduli_of
from gemmulate.engines.triton.described_gemm import (
    NOT_SPECIALIZED,
    as_matrix,
    describes,
    multiprocessors,
    plane_rows,
)
from gemmulate.engines.triton.residue_gemm import reduction_table

BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 128  # of one SM
WARPS, STAGES = 8, 4
# The prologue's loads are those of one tile.
LEAST_DEPTH = (STAGES - 2) * BLOCK_K + 1


@gluon.jit
def place_of(tile, m, n, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP: gl.constexpr):
    """Modulus, first row and first column of a tile, in bands of GROUP rows of tiles as `tile_of`."""
    tiles_m = (m + BLOCK_M - 1) // BLOCK_M
    tiles_n = (n + BLOCK_N - 1) // BLOCK_N
    modulus = tile // (tiles_m * tiles_n)
    program = tile % (tiles_m * tiles_n)
    band = program // (GROUP * tiles_n)
    rows = gl.minimum(tiles_m - band * GROUP, GROUP)
    within = program % (GROUP * tiles_n)
    return modulus, (band * GROUP + within % rows) * BLOCK_M, within // rows * BLOCK_N


@gluon.jit
def load_step(a, b, x, y, full, row, column, k, slot, there):
    """Start the loads of one step of the depth into a buffer, if there is such a step."""
    mbarrier.expect(full.index(slot), a.nbytes_per_cta + b.nbytes_per_cta, there)
    tma.async_load(a, [row, k], full.index(slot), x.index(slot), there)
    tma.async_load(b, [column, k], full.index(slot), y.index(slot), there, multicast=gl.num_ctas() > 1)


@gluon.jit(do_not_specialize=NOT_SPECIALIZED)
def warpgroup_gemm_kernel(
    a,
    b,
    table,
    count,
    digits,
    m,
    n,
    depth,
    rows_a,
    rows_b,
    tiles,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
    CTAS: gl.constexpr,
    CHOSEN: gl.constexpr,
):
    """Arguments as `described_gemm_kernel`; blocks are those of CTAS SMs. Depth > (STAGES − 2) BLOCK_K."""
    x = gl.allocate_shared_memory(gl.int8, [STAGES, BLOCK_M, BLOCK_K], a.layout)
    y = gl.allocate_shared_memory(gl.int8, [STAGES, BLOCK_N, BLOCK_K], b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
    # TMA is to find them initialised, in both SMs.
    fence_async_shared(cluster=CTAS > 1)
    gl.barrier(cluster=CTAS > 1)
    halves: gl.constexpr = [[1, 0]] if CTAS == 2 else []
    # 128 columns are the widest instruction that Triton 3.9 writes for INT8.
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, 128, 32], halves)
    lanes: gl.constexpr = [512 // BLOCK_N, BLOCK_N // 16]
    rows_of_warps: gl.constexpr = gl.BlockedLayout([1, 16], lanes, [gl.num_warps(), 1], [1, 0], halves)
    whole = (depth + BLOCK_K - 1) // BLOCK_K * BLOCK_K

    if CHOSEN:
        tiles *= gl.load(count)
    first = gl.program_id(0)
    modulus, i0, j0 = place_of(first, m, n, BLOCK_M, BLOCK_N, GROUP)
    there = first < tiles  # else this program ends at once, and no copy may arrive after it
    for slot in gl.static_range(STAGES - 1):
        load_step(a, b, x, y, full, modulus * rows_a + i0, modulus * rows_b + j0, slot * BLOCK_K, slot, there)
    read, phase, refilled = 0, 0, STAGES - 1
    for tile in range(first, tiles, gl.num_programs(0)):
        after = tile + gl.num_programs(0)
        next_modulus, next_i0, next_j0 = place_of(after, m, n, BLOCK_M, BLOCK_N, GROUP)
        row, next_row = modulus * rows_a + i0, next_modulus * rows_a + next_i0
        column, next_column = modulus * rows_b + j0, next_modulus * rows_b + next_j0
        total = gl.zeros([BLOCK_M, BLOCK_N], gl.int32, sums)
        for k in range(0, depth, BLOCK_K):
            mbarrier.wait(full.index(read), phase)
            total = warpgroup_mma(x.index(read), y.index(read).permute((1, 0)), total, is_async=True)
            total = warpgroup_mma_wait(1, deps=(total,))  # the product of the step before has read its buffer
            # Of all warps, whose products are each their own. It publishes no data, so that it may be relaxed.
            if CTAS > 1:
                cluster.barrier(relaxed=True)
            else:
                gl.barrier()
            ahead = k + (STAGES - 1) * BLOCK_K
            over = ahead >= whole
            load_step(
                a,
                b,
                x,
                y,
                full,
                gl.where(over, next_row, row),
                gl.where(over, next_column, column),
                gl.where(over, ahead - whole, ahead),
                refilled,
                (ahead < whole) | (after < tiles),
            )
            refilled = read
            read += 1
            if read == STAGES:
                read = 0
                phase ^= 1
        total = warpgroup_mma_wait(0, deps=(total,))
        # `reduce` of residue_gemm.
        line = table + modulus * 4
        shifted = (total + gl.load(line + 1)).to(gl.uint32, bitcast=True)
        magic = gl.load(line + 2).to(gl.uint32, bitcast=True)
        quotient = gl.umulhi(shifted, magic) >> gl.load(line + 3).to(gl.uint32, bitcast=True)
        digit = shifted.to(gl.int32, bitcast=True) - quotient.to(gl.int32, bitcast=True) * gl.load(line)
        stored = gl.convert_layout(digit.to(gl.uint8), rows_of_warps)
        i = i0 + gl.arange(0, BLOCK_M, gl.SliceLayout(1, rows_of_warps))
        j = j0 + gl.arange(0, BLOCK_N, gl.SliceLayout(0, rows_of_warps))
        at = gl.cast(modulus, gl.int64) * m * n + i.to(gl.int64)[:, None] * n + j[None, :]
        gl.store(digits + at, stored, mask=(i < m)[:, None] & (j < n)[None, :])
        modulus, i0, j0 = next_modulus, next_i0, next_j0


def operand_layouts(ctas: int) -> tuple[gl.NVMMASharedLayout, gl.NVMMASharedLayout]:
    """How tensor instructions read buffers: rows of 128 bytes, swizzled. Two SMs halve the left, share the right."""
    shares: list[list[list[int]]] = [[[1, 0]], [[0, 0]]] if ctas == 2 else [[], []]
    left, right = (gl.NVMMASharedLayout(128, 8, 2, cga_layout=share) for share in shares)
    return left, right


def has_warpgroup_gemm(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the kernel takes these planes, on a Hopper GPU."""
    return a.shape[2] >= LEAST_DEPTH and describes(a, b, BLOCK_M, BLOCK_N)


def warpgroup_gemm(a: torch.Tensor, b: torch.Tensor, system: ResidueSystem, ctas: int = 1) -> torch.Tensor:
    """`residue_gemm` of INT8 planes that `has_warpgroup_gemm` allows: the same digits. ctas: 1, or 2 SMs a program."""
    return _launched(a, b, system, None, ctas)


def warpgroup_gemm_chosen(a: torch.Tensor, b: torch.Tensor, choice: torch.Tensor, ctas: int = 1) -> torch.Tensor:
    """`residue_gemm_chosen` of planes that `has_warpgroup_gemm` allows: the same digits, and as many are written."""
    return _launched(a, b, _system(MOST_MODULI), moduli_of(choice), ctas)


def _launched(
    a: torch.Tensor, b: torch.Tensor, system: ResidueSystem, count: torch.Tensor | None, ctas: int
) -> torch.Tensor:
    if not has_warpgroup_gemm(a, b):
        raise ValueError(
            f"planes of shapes {tuple(a.shape)} and {tuple(b.shape)}, strides {a.stride()} and {b.stride()}: this "
            f"kernel needs strides of a multiple of 16 bytes and a depth in {LEAST_DEPTH} … 65280; use residue_gemm"
        )
    (moduli, m, depth), n, block_m = a.shape, b.shape[1], ctas * BLOCK_M
    digits = torch.empty((moduli, m, n), dtype=torch.uint8, device=a.device)
    plane_tiles = triton.cdiv(m, block_m) * triton.cdiv(n, BLOCK_N)
    left, right = operand_layouts(ctas)
    table = reduction_table(system, a.device)
    warpgroup_gemm_kernel[(min(moduli * plane_tiles, multiprocessors(a.device) // ctas),)](
        TensorDescriptor(a, *as_matrix(a), [block_m, BLOCK_K], left),
        TensorDescriptor(b, *as_matrix(b), [BLOCK_N, BLOCK_K], right),
        table,
        table if count is None else count,
        digits,
        m,
        n,
        depth,
        plane_rows(a),
        plane_rows(b),
        moduli * plane_tiles if count is None else plane_tiles,
        BLOCK_M=block_m,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        GROUP=8,
        STAGES=STAGES,
        CTAS=ctas,
        CHOSEN=count is not None,
        num_warps=WARPS,
        num_ctas=ctas,
        enable_fp_fusion=False,
    )
    return digits
