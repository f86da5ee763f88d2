"""Products of INT8 residue planes that load through tensor descriptors (TMA), in a grid that stays on the device.

The digits of `residue_gemm`, by other loads: one thread asks for a tile, where there each thread keeps addresses and
asks for 16 bytes at a time. A program goes from tile to tile and from modulus to modulus; how many moduli there are may
be known on the device alone.

The planes (moduli, vectors, depth) of an operand are one matrix to the descriptor, the moduli below each other. Entries
beyond the depth are zeros of the hardware; vectors past a plane's end are the next plane's, and no digit of theirs is
stored. Not run on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmulate.engines.residue_system import ResidueSystem, _system
from gemmulate.engines.torch import capability_of
from gemmulate.engines.triton.chosen import MOST_MODULI, moduli_of
from gemmulate.engines.triton.residue_gemm import DEPTH, reduce, reduction_table, tile_of

_TMA_BYTES = 16  # addresses and strides of a descriptor are multiples of it


@dataclass(frozen=True)
class Tile:
    """Blocks, warps, pipeline stages, programs for each multiprocessor, whether warps have roles of their own."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    programs: int
    specialized: bool = False


# What compiles without spills (docs/triton-kernels.md). Hopper: a wait for an INT8 product leaves the tensor units idle
# (Triton keeps no product with int32 sums in flight), so two programs of an SM take turns.
_TILES: dict[str, Tile] = {
    "hopper": Tile(128, 128, 128, 4, 3, 2),
    "datacentre blackwell": Tile(128, 256, 128, 8, 4, 1, specialized=True),
    "blackwell": Tile(128, 256, 64, 8, 4, 1),
    "interpreter": Tile(32, 64, 128, 4, 1, 1),
}


def described_tile(capability: int | None) -> Tile | None:
    """The tile for a compute capability, 90 for sm_90; None where there is no TMA. Capability None: the interpreter."""
    if capability is None:
        return _TILES["interpreter"]
    if capability < 90:
        return None
    return _TILES["hopper" if capability < 100 else "datacentre blackwell" if capability < 120 else "blackwell"]


# So that two compiled kernels are all that there are, by the divisibility of n, by which digits are stored: the capture
# of a CUDA graph is to load none, and finds those that `gemm_choice.measure` has run.
NOT_SPECIALIZED = ["m", "depth", "rows_a", "rows_b", "tiles"]


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def described_gemm_kernel(
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    SPECIALIZED: tl.constexpr,
    CHOSEN: tl.constexpr,
):
    """Tiles of all moduli; rows_a, rows_b: rows of the descriptors' matrices from one plane to the next.

    CHOSEN: tiles are those of one plane, and the moduli as many as `count` points to.
    """
    plane_tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    if CHOSEN:
        tiles *= tl.load(count)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=SPECIALIZED):
        modulus = tile // plane_tiles
        tile_m, tile_n = tile_of(tile % plane_tiles, m, n, BLOCK_M, BLOCK_N, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
        for k in range(0, depth, BLOCK_K):
            x = a.load([modulus * rows_a + tile_m * BLOCK_M, k])
            y = b.load([modulus * rows_b + tile_n * BLOCK_N, k])
            total = tl.dot(x, y.T, total, out_dtype=tl.int32)
        digit = reduce(total, table + modulus * 4)
        i = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        j = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        at = tl.cast(modulus, tl.int64) * m * n + i.to(tl.int64)[:, None] * n + j[None, :]
        tl.store(digits + at, digit.to(tl.uint8), mask=(i < m)[:, None] & (j < n)[None, :])


def plane_rows(planes: torch.Tensor) -> int | None:
    """Rows from one plane to the next of INT8 planes (moduli, vectors, depth) as one matrix that TMA reads; or None.

    None: strides or the address are no multiples of 16 bytes, the planes are no whole rows apart, or the depth or the
    moduli exceed what the kernels take.
    """
    moduli, vectors, depth = planes.shape
    row, plane = planes.stride(1), planes.stride(0)
    if planes.dtype != torch.int8 or not planes.numel() or depth > int(DEPTH.value):
        return None
    if (depth > 1 and planes.stride(2) != 1) or row < depth or row % _TMA_BYTES or planes.data_ptr() % _TMA_BYTES:
        return None
    if moduli > 1 and (plane % row or plane // row < vectors):
        return None
    rows = plane // row if moduli > 1 else vectors
    return rows if rows * moduli < 1 << 31 else None


def as_matrix(planes: torch.Tensor) -> tuple[list[int], list[int]]:
    """Shape and strides of planes for which `plane_rows` is not None, as one matrix."""
    moduli, vectors, depth = planes.shape
    rows = plane_rows(planes)
    assert rows is not None
    return [(moduli - 1) * rows + vectors, depth], [planes.stride(1), 1]


def describes(a: torch.Tensor, b: torch.Tensor, block_m: int, block_n: int) -> bool:
    """Whether both operands are matrices that TMA reads, with so few tiles that an int32 counts beyond them."""
    tiles = a.shape[0] * triton.cdiv(a.shape[1], block_m) * triton.cdiv(b.shape[1], block_n)
    return plane_rows(a) is not None and plane_rows(b) is not None and tiles < 1 << 30


def multiprocessors(device: torch.device) -> int:
    """Of a CUDA device; 2 for the interpreter, so that its programs go on to further tiles."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 2


def described_gemm(a: torch.Tensor, b: torch.Tensor, system: ResidueSystem, tile: Tile | None = None) -> torch.Tensor:
    """`residue_gemm` of INT8 planes that `describes` allows: the same digits. `tile` as `described_tile`."""
    return _launched(a, b, system, None, tile)


def described_gemm_chosen(
    a: torch.Tensor, b: torch.Tensor, choice: torch.Tensor, tile: Tile | None = None
) -> torch.Tensor:
    """`residue_gemm_chosen` of INT8 planes that `describes` allows: the same digits, and as many are written."""
    return _launched(a, b, _system(MOST_MODULI), moduli_of(choice), tile)


def _launched(
    a: torch.Tensor, b: torch.Tensor, system: ResidueSystem, count: torch.Tensor | None, tile: Tile | None
) -> torch.Tensor:
    tile = tile or described_tile(capability_of(a.device))
    rows_a, rows_b = plane_rows(a), plane_rows(b)
    if tile is None or rows_a is None or rows_b is None:
        raise ValueError(
            f"planes of shapes {tuple(a.shape)} and {tuple(b.shape)}, strides {a.stride()} and {b.stride()}: tensor "
            "descriptors need sm_90, strides of a multiple of 16 bytes and a depth up to 65280; use residue_gemm"
        )
    (moduli, m, depth), n = a.shape, b.shape[1]
    digits = torch.empty((moduli, m, n), dtype=torch.uint8, device=a.device)
    plane_tiles = triton.cdiv(m, tile.block_m) * triton.cdiv(n, tile.block_n)
    table = reduction_table(system, a.device)
    described_gemm_kernel[(min(moduli * plane_tiles, tile.programs * multiprocessors(a.device)),)](
        TensorDescriptor(a, *as_matrix(a), [tile.block_m, tile.block_k]),
        TensorDescriptor(b, *as_matrix(b), [tile.block_n, tile.block_k]),
        table,
        table if count is None else count,
        digits,
        m,
        n,
        depth,
        rows_a,
        rows_b,
        moduli * plane_tiles if count is None else plane_tiles,
        BLOCK_M=tile.block_m,
        BLOCK_N=tile.block_n,
        BLOCK_K=tile.block_k,
        GROUP=8,
        SPECIALIZED=tile.specialized,
        CHOSEN=count is not None,
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=False,
    )
    return digits
