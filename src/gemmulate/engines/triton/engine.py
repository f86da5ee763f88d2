"""The Triton engine: the array engine on torch tensors, whose residue products run in Triton's kernels.

Floats are surveyed and come apart in one read each (`survey`, `deconstruct`); products go through `residue_gemm` and
`recombine`, or through `fused` where the depth is small; `exact_dot` rounds the elements that stay open. All else is
the array engine's. Not run on a GPU: the tests run the interpreter.

`triton` multiplies INT8 planes. For devices whose INT8 is slow `triton-bf16` and `triton-fp8` multiply the same
residues as BF16 planes and as three FP8 ones, and all other INT8 products likewise (`PlaneLibrary`).

Large INT8 products of residues take the fastest of several ways, measured once in a process (`gemm_choice`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from gemmulate.engines import progress, spans
from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.array_library import ProductRules, Tensor
from gemmulate.engines.array_operand import ArrayOperand, load, store, store_at
from gemmulate.engines.base import (
    NO_EXPONENT,
    Array,
    DeviceArray,
    FloatOutcome,
    Int32,
    Norms,
    Operand,
    Scan,
    dtype_name,
)
from gemmulate.engines.resident import ResidentFloats
from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.torch import TorchLibrary
from gemmulate.engines.torch_array import TorchArray, capturing, to_device
from gemmulate.engines.triton import survey
from gemmulate.engines.triton.choose import EVERY
from gemmulate.engines.triton.deconstruct import deconstruct
from gemmulate.engines.triton.exact_dot import dot_values, exact_dots, exact_dots_where
from gemmulate.engines.triton.floating import FloatLayout, layout_of
from gemmulate.engines.triton.fused import fused_floats, fused_words
from gemmulate.engines.triton.gemm_choice import chosen_way
from gemmulate.engines.triton.gemm_ways import Way, digits_by
from gemmulate.engines.triton.panels import assessed, on_its_device, panel_height
from gemmulate.engines.triton.recombine import Certainty, recombine_floats, recombine_words
from gemmulate.engines.triton.resident import TritonResident
from gemmulate.engines.triton.residue_gemm import DEPTH, PlaneFormat, as_format, plane_sums, residue_gemm
from gemmulate.engines.triton.settle import settle

# Bytes of the CRT digits of a panel of rows.
_DIGITS = 1 << 29
# On paper, not measured: the fused kernel's tiles of 64 × 64 load an operand byte for each 32 multiplications, those of
# 128 × 256 for each 85, assumed to bound it to 0.3 of the INT8 rate where they reach 0.8; what it saves is to write and
# read a byte for each element and modulus. With 2 · 10^15 operations and 4.8 · 10^12 bytes a second (H200's
# datasheet), 2 k (1/0.3 − 1/0.8) / (2 · 10^15) = 2 / (4.8 · 10^12) at k = 200.
FUSED_DEPTH = 200
# Five registers of four digits for each element; docs/triton-kernels.md has no spills up to there.
FUSED_MODULI = 20

_PLANE_FORMATS: dict[str, PlaneFormat] = {"triton": "int8", "triton-bf16": "bfloat16", "triton-fp8": "fp8_e4m3"}


class PlaneLibrary(TorchLibrary):
    """Tensors on one device; INT8 products through planes of another format, by Triton."""

    def __init__(self, device: str, plane_format: PlaneFormat) -> None:
        super().__init__(device, ProductRules(depth=int(DEPTH.value)))
        self._plane_format = plane_format

    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            return plane_sums(a, b, self._plane_format)


@final
class TritonEngine(ArrayEngine):
    """Kernels on CUDA, or in Triton's interpreter on the processor."""

    def __init__(
        self,
        name: str,
        device: str,
        fused: bool | None = None,
        plane_format: PlaneFormat = "int8",
        way: Way | None = None,
    ) -> None:
        library = TorchLibrary(device) if plane_format == "int8" else PlaneLibrary(device, plane_format)
        super().__init__(name, library)
        self._device = library.device
        self._plane_format = plane_format
        self._fused = fused  # None: by depth and moduli
        self._way = way  # None: by time
        self._small_by_dots = self._device.type == "cuda"  # the interpreter takes elements one after the other
        self._resident = TritonResident(library, self.current, way) if plane_format == "int8" else None

    def _int32(self, x: Array) -> torch.Tensor:
        if isinstance(x, TorchArray):
            return x.tensor.to(torch.int32)
        return to_device(np.array(x, dtype=np.int32), self._device)

    @property
    def resident(self) -> ResidentFloats | None:
        return self._resident

    @property
    def capturing(self) -> bool:
        return self._device.type == "cuda" and capturing()

    @on_its_device
    def exact_product(self, a: Array, b: Array, out: Array) -> bool:
        # Three launches where a choice of bits takes eighty.
        if not (self._small_by_dots and isinstance(out, TorchArray)):
            return False
        (x, layout, _), (y, _, _) = self._floats(a, None), self._floats(b, None)
        every = torch.full((1,), int(EVERY.value), dtype=torch.int32, device=self._device)
        exact_dots_where(x, y, layout, None, every, None, load(self.library, out), layout_of(dtype_name(out.dtype)))
        self.settle(a, b, out)
        return True

    def current(self) -> AbstractContextManager[Any]:
        """The engine's device as torch's current one, within a block."""
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()

    def _takes_fused(self, depth: int, system: ResidueSystem) -> bool:
        if self._plane_format != "int8":
            return False  # the fused tiles are those of INT8
        if self._fused is not None:
            return self._fused
        return depth <= FUSED_DEPTH and len(system.moduli) <= FUSED_MODULI

    def _digits(self, a: torch.Tensor, b: torch.Tensor, system: ResidueSystem) -> torch.Tensor:
        """CRT digits of two operands' planes, by the way that is set, or the fastest: the same digits."""
        way = self._way or chosen_way(a, b)
        return residue_gemm(a, b, system) if way == "pointers" else digits_by(way, a, b, system)

    def _int64(self, x: npt.NDArray[Any]) -> torch.Tensor:
        return to_device(np.array(x, dtype=np.int64), self._device)

    def _floats(self, x: Array, inner: Int32 | None) -> tuple[torch.Tensor, FloatLayout, torch.Tensor | None]:
        along = None if inner is None else self._int32(inner)
        return load(self.library, x), layout_of(dtype_name(x.dtype)), along

    @on_its_device
    def scan(self, x: Array, inner: Int32 | None) -> Scan:
        top, negative_lsb, special = survey.scan(*self._floats(x, inner)).cpu().numpy()
        return Scan(top, -negative_lsb, (special == 1).astype(np.uint8))

    @on_its_device
    def device_shifts(self, x: Array, bits: int) -> Array:
        top = survey.scan(*self._floats(x, None))[0]
        shifts: Array = self.library.wrap((bits - top) * (top != NO_EXPONENT))
        return shifts

    @on_its_device
    def norms(self, x: Array, top: Int32, inner: Int32 | None) -> Norms:
        pattern, layout, along = self._floats(x, inner)
        return Norms(*survey.norms(pattern, layout, self._int32(top), along).cpu().numpy().view(np.uint64))

    @on_its_device
    def pack_magnitudes(self, left: bool, x: Array, top: Int32, inner: Int32 | None) -> Operand:
        pattern, layout, along = self._floats(x, inner)
        return ArrayOperand(self.library, survey.magnitudes(pattern, layout, self._int32(top), along)[None])

    @on_its_device
    def assess(
        self,
        left: Operand,
        right: Operand,
        sum_left: npt.NDArray[np.uint64],
        sum_right: npt.NDArray[np.uint64],
        budget: float,
        need: npt.NDArray[np.uint8],
    ) -> npt.NDArray[np.int64]:
        a, b = self._own(left).planes, self._own(right).planes
        m = len(need)
        rows, columns = self._int64(sum_left), self._int64(sum_right)
        found, report = torch.zeros(256, dtype=torch.int64, device=self._device), progress.current()
        for part, bits in assessed(self.library, a[0], b[0], rows, columns, budget, found):
            store(self.library, need[part], bits)
            if report:
                report(part.stop, m)
        return self.library.to_numpy(found)

    @on_its_device
    def pack_floats(
        self, left: bool, x: Array, shift: Int32, inner: Int32 | None, system: ResidueSystem, bits: int, count: bool
    ) -> Operand:
        pattern, layout, along = self._floats(x, inner)
        planes, lost = deconstruct(pattern, layout, self._int32(shift), along, system, bits, left, count)
        inexact = np.zeros(len(x), dtype=np.int64) if lost is None else lost.cpu().numpy().astype(np.int64)
        return ArrayOperand(self.library, planes, 0, inexact)

    def _rows_at_a_time(
        self, left: ArrayOperand, right: ArrayOperand, system: ResidueSystem, fused: bool
    ) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Panels of rows whose digits fit the memory set aside for them, with planes of theirs and of all columns."""
        m, n = left.planes.shape[1], right.planes.shape[1]
        columns = as_format(right.planes, self._plane_format)
        rows = m if fused else panel_height(self.library, _DIGITS, len(system.moduli) * n, m)
        report = progress.current()
        for start in range(0, m if n else 0, max(1, rows)):
            part = slice(start, min(start + rows, m))
            yield part, as_format(left.planes[:, part], self._plane_format), columns
            if report:
                report(part.stop, m)

    @on_its_device
    def multiply_floats(
        self,
        left: Operand,
        right: Operand,
        system: ResidueSystem,
        row_exponent: Int32,
        column_exponent: Int32,
        out: Array,
        check: tuple[int, int] | None,
    ) -> FloatOutcome:
        a, b = self._own(left), self._own(right)
        layout, fused = layout_of(dtype_name(out.dtype)), self._takes_fused(a.planes.shape[2], system)
        if check is not None and not (a.inexact.any() or b.inexact.any()):
            check = None
        rows, columns = self._int32(row_exponent), self._int32(column_exponent)
        uncertain: list[npt.NDArray[np.int64]] = [np.zeros((0, 2), dtype=np.int64)]
        zeros: Any = 0
        for part, planes, right_planes in self._rows_at_a_time(a, b, system, fused):
            result = torch.empty((planes.shape[-2], len(columns)), dtype=layout.carrier, device=self._device)
            certainty = None
            if check is not None:
                certainty = Certainty(self._int32(a.inexact[part]), self._int32(b.inexact), *check)
            if fused:
                open_ = fused_floats(planes, right_planes, system, rows[part], columns, result, layout, certainty)
            else:
                with spans.span(spans.PRODUCTS):
                    digits = self._digits(planes, right_planes, system)
                open_ = recombine_floats(digits, system, rows[part], columns, result, layout, certainty)
            if open_ is not None:
                uncertain.append(torch.nonzero(open_).cpu().numpy() + np.array([part.start, 0]))
            zeros = zeros + torch.count_nonzero((result << 1) == 0)  # but for the sign
            store(self.library, out[part], result)
        return FloatOutcome(np.concatenate(uncertain), zeros if isinstance(out, DeviceArray) else int(zeros))

    @on_its_device
    def exact_dots(self, a: Array, b: Array, at: npt.NDArray[np.int64], out: Array) -> None:
        result = layout_of(dtype_name(out.dtype))
        if isinstance(out, np.ndarray):  # so are the operands: their rows in question go to the device, values return
            rows, i = np.unique(at[:, 0], return_inverse=True)
            columns, j = np.unique(at[:, 1], return_inverse=True)
            (x, layout, _), (y, _, _) = self._floats(a[rows], None), self._floats(b[columns], None)
            values = dot_values(x, y, layout, self._int64(np.stack([i.ravel(), j.ravel()], axis=1)), result)
            store_at(self.library, out, at, self.library.to_numpy(values).view(out.dtype))
        else:
            (x, layout, _), (y, _, _) = self._floats(a, None), self._floats(b, None)
            exact_dots(x, y, layout, self._int64(at), load(self.library, out), result)

    @on_its_device
    def settle(self, a: Array, bt: Array, out: Array) -> None:
        if isinstance(out, np.ndarray):  # a copy on the device would be written
            super().settle(a, bt, out)
            return
        (x, layout, _), (y, _, _) = self._floats(a, None), self._floats(bt, None)
        special = [survey.scan(pattern, layout, None)[2] for pattern in (x, y)]
        settle(x, y, layout, *special, load(self.library, out), layout_of(dtype_name(out.dtype)))

    def _words(
        self, left: Operand, right: Operand, system: ResidueSystem, words: int
    ) -> Iterator[tuple[slice, torch.Tensor, int]]:
        """Panels of results (rows, n, words), int64, and their largest bit lengths."""
        a, b = self._own(left), self._own(right)
        fused = self._takes_fused(a.planes.shape[2], system)
        for part, planes, right_planes in self._rows_at_a_time(a, b, system, fused):
            result = torch.empty((planes.shape[-2], b.planes.shape[1], words), dtype=torch.int64, device=self._device)
            if fused:
                bits = fused_words(planes, right_planes, system, result)
            else:
                with spans.span(spans.PRODUCTS):
                    digits = self._digits(planes, right_planes, system)
                bits = recombine_words(digits, system, result)
            yield part, result, bits

    @on_its_device
    def multiply_integers(self, left: Operand, right: Operand, system: ResidueSystem, out: Array) -> int:
        longest = 0
        for part, result, bits in self._words(left, right, system, 1):
            store(self.library, out[part], result[:, :, 0])
            longest = max(longest, bits)
        return longest

    @on_its_device
    def multiply_words(self, left: Operand, right: Operand, system: ResidueSystem, out: npt.NDArray[np.uint64]) -> int:
        longest = 0
        for part, result, bits in self._words(left, right, system, out.shape[2]):
            for w in range(out.shape[2]):
                store(self.library, out[part][:, :, w], result[:, :, w])
            longest = max(longest, bits)
        return longest


@functools.lru_cache(maxsize=64)  # operands are those of one library
def triton_engine(name: str, device: str) -> TritonEngine:
    """The engine on a torch device, its planes' format by its name."""
    return TritonEngine(name, device, plane_format=_PLANE_FORMATS[name])
