"""Residue products by FP4 units: torch._scaled_mm on float4_e2m1fn_x2 with unit block scales (NVFP4).

Residues become planes of E2M1 codes when an operand is packed (`fp4_residues`), two codes in a byte; each product of
two planes is one scaled product with FP32 sums. Not run on a GPU: on the processor, which has no FP4 product, a
stand-in takes the same bytes and scales and multiplies their values in FP32.

An FP32 accumulator that keeps 24 bits or more adds them exactly to depth 116,480 (`fp4_depth`). Measured on B200 and
RTX Blackwell: the FP4 units align their terms to 35 fraction bits and give FP32 (Xie, Wang, Yang, Yang 2025, "MMA-Sim",
arXiv 2511.10909, and its source). The vendor documents no width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.array_library import INT32_DEPTH, ProductRules, Tensor
from gemmulate.engines.array_operand import ArrayOperand
from gemmulate.engines.base import Array, Int32, Operand
from gemmulate.engines.fp4_residues import (
    QUANTA_PER_UNIT,
    Fp4Digits,
    digits_modulo,
    digits_of_int8,
    fp4_depth,
    fp4_system,
)
from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.torch import TorchLibrary
from gemmulate.engines.torch_array import capturing, to_device

# Elements along k that share a block scale, and the tiles of scales that cuBLASLt reads: 128 rows of 4 blocks.
SCALE_BLOCK = 16
_TILE_ROWS, _TILE_BLOCKS = 128, 4
# torch._scaled_mm on CUDA: the bytes of a row, two elements each, and the columns are multiples of 16.
_DEPTH_MULTIPLE, _COLUMN_MULTIPLE = 32, 16


def packed_codes(codes: Tensor) -> Tensor:
    """E2M1 codes (…, depth), depth even, two to a byte: the first in the low half, as torch.float4_e2m1fn_x2 has it."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def swizzled(scales: Tensor) -> Tensor:
    """Block scales (rows, blocks), bytes, flat in the order that cuBLASLt reads them (torch's SWIZZLE_32_4_4).

    Tiles of 128 rows and 4 blocks one after the other, by rows of tiles; the scale of row r and block c of a tile is
    byte 16 (r mod 32) + 4 ⌊r/32⌋ + c of its 512. What is missing of a tile is zero. Source: cuBLAS documentation, "1D
    Block Scaling Factors Layout".
    """
    rows, blocks = scales.shape
    padded = torch.nn.functional.pad(scales, (0, -blocks % _TILE_BLOCKS, 0, -rows % _TILE_ROWS))
    tiles = padded.reshape(-1, 4, 32, padded.shape[1] // _TILE_BLOCKS, _TILE_BLOCKS)
    return tiles.permute(0, 3, 2, 1, 4).reshape(-1)


def _unit_scales(rows: int, depth: int, device: torch.device) -> Tensor:
    ones = torch.ones((rows, -(-depth // SCALE_BLOCK)), device=device).to(torch.float8_e4m3fn)
    return swizzled(ones.view(torch.uint8)).view(torch.float8_e4m3fn)


@lru_cache(maxsize=64)
def _kept_scales(rows: int, depth: int, device: torch.device) -> Tensor:
    # By a copy, which is done when it returns: another stream may be the next to read them.
    return _unit_scales(rows, depth, torch.device("cpu")).to(device)


def unit_scales(rows: int, depth: int, device: torch.device) -> Tensor:
    """Scales 1 of E4M3 for an operand (rows, depth), swizzled.

    A CUDA graph makes its own at every replay: kept ones may be forgotten while it still reads them.
    """
    make = _unit_scales if device.type == "cuda" and capturing() else _kept_scales
    return make(rows, depth, device)


@cache  # for good: CUDA graphs read it at every replay
def _codes(digits: Fp4Digits, left: bool, device: torch.device) -> Tensor:
    """A side's codes by byte, on the device."""
    return to_device(digits.left if left else digits.right, device)


def _values(codes: Tensor, scales: Tensor) -> Tensor:
    """FP32 values (rows, depth) of packed codes and their swizzled scales."""
    rows, depth = codes.shape[0], 2 * codes.shape[1]
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    table = torch.cat([table, -table])
    elements = table[torch.stack([codes & 15, codes >> 4], dim=-1).reshape(rows, depth).to(torch.int64)]
    tiles = scales.to(torch.float32).reshape(-(-rows // _TILE_ROWS), -1, 32, 4, _TILE_BLOCKS).permute(0, 3, 2, 1, 4)
    unrolled = tiles.reshape(-1, tiles.shape[3] * _TILE_BLOCKS)[:rows].repeat_interleave(SCALE_BLOCK, dim=1)
    return elements * unrolled[:, :depth]


def stand_in(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """What torch._scaled_mm gives on an FP4 unit, from the same operands, on the processor: a (m, k/2), b (n, k/2).

    Products of codes have eight bits and those of unit scales none, so FP32 sums are the unit's where both are exact.
    """
    return torch.matmul(_values(a, scale_a), _values(b, scale_b).T)


class Fp4Library(TorchLibrary):
    """Tensors on one device; INT8 products as six products of FP4 planes."""

    def __init__(self, device: str = "cpu", depth: int | None = None) -> None:
        self.fp4_depth = depth or fp4_depth(_DEPTH_MULTIPLE)
        deepest = min(self.fp4_depth, INT32_DEPTH // _DEPTH_MULTIPLE * _DEPTH_MULTIPLE)
        super().__init__(device, ProductRules(least_depth=_DEPTH_MULTIPLE, multiple=_DEPTH_MULTIPLE, depth=deepest))
        self.on_unit = self.device.type != "cpu"

    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        digits = digits_of_int8()
        return self.combined(digits, self.encoded(a, digits, True), self.encoded(b, digits, False), a.shape[1])

    def encoded(self, x: Tensor, digits: Fp4Digits, left: bool) -> Tensor:
        """Packed codes, uint8 (products, vectors, bytes), of bytes (vectors, depth): 16 for each 32, or for less."""
        table = _codes(digits, left, self.device)
        missing = -x.shape[1] % _DEPTH_MULTIPLE if x.shape[1] else _DEPTH_MULTIPLE
        padded = torch.nn.functional.pad(x, (0, missing)).view(torch.uint8)
        rows = max(1, self.block // max(1, padded.shape[1]))
        parts = [packed_codes(table[:, padded[i : i + rows].to(torch.int64)]) for i in range(0, max(1, len(x)), rows)]
        return self.concatenate(parts, 1)

    def combined(self, digits: Fp4Digits, left: Tensor, right: Tensor, depth: int) -> Tensor:
        """Σ_t coefficients_t (left_t right_tᵀ) of packed planes, exact: int32, or int64 where that may not hold it."""
        wide = digits.bound(depth) >> 31
        total: Tensor = None
        for coefficient, a, b in zip(digits.coefficients, left, right, strict=True):
            sums = self.fp4_product(a, b)
            term = (sums.to(torch.int64) if wide else sums) * coefficient
            total = term if total is None else total + term
        return total

    def fp4_product(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ_k v_ik w_jk of packed codes of the integers v/2 (m, k/2) and w/2 (n, k/2), exact: int32, or int64."""
        step = self.fp4_depth // 2
        columns = -len(b) % _COLUMN_MULTIPLE
        if columns:
            b = self.pad(b, columns, 0)
        total: Tensor = None
        for start in range(0, a.shape[1], step):
            piece = self._scaled(a[:, start : start + step].contiguous(), b[:, start : start + step].contiguous())
            sums = (piece * QUANTA_PER_UNIT).to(torch.int32)
            total = sums if total is None else total.to(torch.int64) + sums
        return total[:, : total.shape[1] - columns]

    def _scaled(self, a: Tensor, b: Tensor) -> Tensor:
        scales = [unit_scales(len(x), 2 * x.shape[1], self.device) for x in (a, b)]
        if not self.on_unit:
            return stand_in(a, b, *scales)
        x, y = a.view(torch.float4_e2m1fn_x2), b.view(torch.float4_e2m1fn_x2)
        return torch._scaled_mm(x, y.T, scale_a=scales[0], scale_b=scales[1], out_dtype=torch.float32)


@dataclass(frozen=True)
class CodePlanes:
    """Residues as packed E2M1 codes, seen as an array (moduli, vectors, depth).

    planes: for each modulus uint8 (products, vectors, bytes).
    """

    planes: tuple[Tensor, ...]
    moduli: tuple[int, ...]
    depth: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.moduli), int(self.planes[0].shape[1]), self.depth

    def __getitem__(self, at: tuple[slice, slice]) -> CodePlanes:
        """The planes of some vectors, `planes[:, vectors]`."""
        return CodePlanes(tuple(p[:, at[1]] for p in self.planes), self.moduli, self.depth)


@dataclass(frozen=True)
class Fp4Operand(ArrayOperand):
    """An operand whose planes are `CodePlanes`."""

    @property
    def nbytes(self) -> int:
        return sum(int(p.numel()) for p in self.planes.planes)


@final
class Fp4Engine(ArrayEngine):
    """The array engine over residues modulo FP4's moduli, whatever INT8 moduli a scheme names: they cover as much."""

    library: Fp4Library

    def memory(self) -> int:
        # A scheme counts a byte for each INT8 modulus. 58 products are 29 bytes in place of 15, beside them while an
        # operand is packed 19 bytes of residues: about three times what it counts.
        return super().memory() // 3

    def _encoded(self, operand: Operand, left: bool, system: ResidueSystem) -> Fp4Operand:
        own = self._own(operand)
        tables = [digits_modulo(m) for m in system.moduli]
        planes = tuple(
            self.library.encoded(plane, table, left) for plane, table in zip(own.planes, tables, strict=True)
        )
        depth = int(own.planes.shape[2])
        return Fp4Operand(self.library, CodePlanes(planes, system.moduli, depth), own.zero_point, own.inexact)

    def products(self, left: Tensor, right: Tensor) -> list[Tensor]:
        if not isinstance(left, CodePlanes):
            return super().products(left, right)
        return [
            self.library.combined(digits_modulo(m), a, b, left.depth)
            for m, a, b in zip(left.moduli, left.planes, right.planes, strict=True)
        ]

    def pack_floats(
        self, left: bool, x: Array, shift: Int32, inner: Int32 | None, system: ResidueSystem, bits: int, count: bool
    ) -> Operand:
        own = fp4_system(system)
        return self._encoded(super().pack_floats(left, x, shift, inner, own, bits, count), left, own)

    def pack_pairs(
        self,
        left: bool,
        high: Array,
        low: Array,
        shift: Int32,
        inner: Int32 | None,
        system: ResidueSystem,
        bits: int,
    ) -> Operand:
        own = fp4_system(system)
        return self._encoded(super().pack_pairs(left, high, low, shift, inner, own, bits), left, own)

    def pack_integers(self, left: bool, x: Array, system: ResidueSystem, bits: int) -> Operand:
        own = fp4_system(system)
        return self._encoded(super().pack_integers(left, x, own, bits), left, own)

    def pack_words(self, left: bool, x: npt.NDArray[np.uint32], system: ResidueSystem, bits: int) -> Operand:
        own = fp4_system(system)
        return self._encoded(super().pack_words(left, x, own, bits), left, own)

    def _integers(self, left: Operand, right: Operand, system: ResidueSystem) -> Any:
        return super()._integers(left, right, fp4_system(system))

    def multiply_limbs(
        self, left: Any, right: Any, system: ResidueSystem, limb_bits: int, out: npt.NDArray[np.uint64]
    ) -> None:
        super().multiply_limbs(left, right, fp4_system(system), limb_bits, out)


@lru_cache(maxsize=64)
def fp4_engine(name: str, device: str) -> Fp4Engine:
    """The engine whose products run on FP4 planes."""
    return Fp4Engine(name, Fp4Library(device))
