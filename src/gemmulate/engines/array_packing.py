"""The array engine's part that sees one operand: surveys, residues and bytes, block by block on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmulate.engines import array_crt as crt
from gemmulate.engines import array_floats as floats
from gemmulate.engines.array_library import Library, Tensor
from gemmulate.engines.array_operand import ArrayOperand, load
from gemmulate.engines.base import (
    NO_EXPONENT,
    Array,
    DeviceArray,
    Engine,
    Int32,
    Norms,
    Operand,
    Scan,
    dtype_name,
)
from gemmulate.engines.residue_system import ResidueSystem, digits_for, widest_bits
from gemmulate.engines.rounding import FLOAT_FORMATS


class ArrayPacking(Engine):
    """Surveys and packed operands in the operations of `library`, `Library.block` entries at a time."""

    def __init__(self, name: str, library: Library) -> None:
        self.name = name
        self.library = library

    @property
    def arrays(self) -> type | None:
        """Arrays of the device behind NumPy's names, which operands and results may be beside NumPy's own."""
        return self.library.arrays

    @property
    def widest_bits(self) -> int:
        return widest_bits()

    @property
    def panel(self) -> tuple[int, int] | None:
        return self.library.panel

    def memory(self) -> int:
        return self.library.memory()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        array: Array = self.library.empty(shape, dtype)
        return array

    def positions_above(self, x: Array, limit: int) -> npt.NDArray[np.int64]:
        lib = self.library
        found = [np.zeros((0, 2), dtype=np.int64)]
        for part in self._blocks(*x.shape):
            above = (lib.astype(load(lib, x[part]), "int64") & 255) > limit
            found.append(lib.argwhere(above) + np.array([part.start, 0]))
        return np.concatenate(found)

    def centred(self, x: Array, p: int) -> Array:
        if isinstance(x, np.ndarray):
            return super().centred(x, p)
        array: Array = self.library.device_array(super().centred(self.library.host_array(x), p))
        return array

    def _blocks(self, vectors: int, depth: int) -> Iterator[slice]:
        rows = max(1, self.library.block // max(1, depth))
        return (slice(i, min(i + rows, vectors)) for i in range(0, vectors, rows))

    def _vector(self, x: Array) -> Tensor:
        if isinstance(x, DeviceArray):
            return self.library.astype(self.library.load(x), "int64")
        return self.library.load(np.ascontiguousarray(x, dtype=np.int64))

    def _parts(self, x: Array, inner: Int32 | None) -> floats.Parts:
        lib = self.library
        along = None if inner is None else self._vector(inner)[None, :]
        return floats.decode(lib, load(lib, x), FLOAT_FORMATS[dtype_name(x.dtype)], along)

    def _each(self, x: Array, results: int, one: Callable[[slice], Sequence[Tensor]]) -> list[npt.NDArray[np.int64]]:
        """Results for each vector of x, block by block; zeros for vectors without entries."""
        if not x.size:
            return [np.zeros(len(x), dtype=np.int64)] * results
        found = [[self.library.to_numpy(r) for r in one(part)] for part in self._blocks(*x.shape)]
        return [np.concatenate(column) for column in zip(*found, strict=True)]

    def scan(self, x: Array, inner: Int32 | None) -> Scan:
        lib = self.library

        def one(part: slice) -> Sequence[Tensor]:
            parts = self._parts(x[part], inner)
            top, lsb = floats.exponents(lib, parts)
            return lib.amax(top, 1), lib.amin(lsb, 1), lib.amin(lib.astype(parts.finite, "int64"), 1)

        if not x.shape[1]:
            none = np.full(len(x), NO_EXPONENT, dtype=np.int32)
            return Scan(none, -none, np.zeros(len(x), dtype=np.uint8))
        top, lsb, finite = self._each(x, 3, one)
        return Scan(top.astype(np.int32), lsb.astype(np.int32), (finite == 0).astype(np.uint8))

    def device_shifts(self, x: Array, bits: int) -> Array:
        lib, found = self.library, []
        for part in self._blocks(*x.shape):
            top = lib.amax(floats.tops(lib, self._parts(x[part], None)), 1)
            found.append((bits - top) * lib.astype(top != NO_EXPONENT, "int64"))
        shifts: Array = lib.wrap(lib.concatenate(found, 0))
        return shifts

    def norms(self, x: Array, top: Int32, inner: Int32 | None) -> Norms:
        lib = self.library

        def one(part: slice) -> Sequence[Tensor]:
            q = floats.norm_integers(lib, self._parts(x[part], inner), self._vector(top[part])[:, None])
            return lib.sum(q, 1), lib.sum(q * q, 1), lib.amax(q, 1)

        return Norms(*(r.astype(np.uint64) for r in self._each(x, 3, one)))

    def depths(self, x: Array, top: Int32, inner: Int32 | None, bins: int) -> npt.NDArray[np.int64]:
        lib = self.library
        found = np.zeros(bins + 1, dtype=np.int64)  # zeros and special values go to the last bin
        for part in self._blocks(*x.shape):
            parts = self._parts(x[part], inner)
            depth = lib.clip(self._vector(top[part])[:, None] - floats.exponents(lib, parts)[1], 0, bins - 1)
            empty = lib.astype(parts.mantissa == 0, "int64")
            found += lib.bincount(depth + empty * (bins - depth), bins + 1)
        return found[:bins]

    def integer_range(self, x: Array) -> tuple[int, int]:
        lib, low, high = self.library, 0, 0
        if not x.shape[1]:
            return 0, 0
        unsigned = x.dtype == np.uint64
        flip = -(1 << 63) if unsigned else 0  # orders uint64 as int64
        for part in self._blocks(*x.shape):
            entries = load(lib, x[part]).reshape((-1,))
            if unsigned:
                entries = entries ^ flip
            low = min(low, int(lib.to_numpy(lib.amin(entries, 0))) - flip)
            high = max(high, int(lib.to_numpy(lib.amax(entries, 0))) - flip)
        return low, high

    def _pack(
        self, x: Array, planes: int, one: Callable[[slice], Tensor], zero_point: int = 0, inexact: Any = None
    ) -> ArrayOperand:
        """Planes of one block of vectors after the other."""
        found = [one(part) for part in self._blocks(len(x), x.shape[1])]
        if not found:
            found = [self.library.load(np.zeros((planes, 0, x.shape[1]), dtype=np.int8))]
        lost = np.zeros(len(x), dtype=np.int64) if inexact is None else np.concatenate([*inexact, np.zeros(0, int)])
        return ArrayOperand(self.library, self.library.concatenate(found, 1), zero_point, lost.astype(np.int64))

    def _float_digits(self, x: Array, shift: Int32, inner: Int32 | None, bits: int) -> tuple[floats.Limbs, Tensor]:
        scaled = floats.to_integers(self.library, self._parts(x, inner), self._vector(shift)[:, None])
        # A normal mantissa of d places is not raised where its integer is at most 2^(d − 1), a subnormal one where the
        # scaling is not above the least exponent's, which the host only knows of its own vectors.
        form = FLOAT_FORMATS[dtype_name(x.dtype)]
        raises = bits >= form.digits or isinstance(shift, DeviceArray)
        if not raises:
            raises = int(shift.max(initial=0)) + (0 if inner is None else int(inner.max(initial=0))) > -form.least
        return floats.scaled_digits(self.library, scaled, digits_for(bits), raises), scaled.rounded

    def pack_floats(
        self, left: bool, x: Array, shift: Int32, inner: Int32 | None, system: ResidueSystem, bits: int, count: bool
    ) -> Operand:
        lib = self.library
        inexact: list[npt.NDArray[np.int64]] = []

        def one(part: slice) -> Tensor:
            digits, rounded = self._float_digits(x[part], shift[part], inner, bits)
            inexact.append(
                lib.to_numpy(lib.sum(lib.astype(rounded, "int64"), 1))
                if count
                else np.zeros(part.stop - part.start, dtype=np.int64)
            )
            return crt.residues_of_digits(lib, digits, system, left)

        return self._pack(x, len(system.moduli), one, inexact=inexact)

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
        def one(part: slice) -> Tensor:
            both = [self._float_digits(x[part], shift[part], inner, bits)[0] for x in (high, low)]
            digits = [h + t for h, t in zip(*both, strict=True)]
            return crt.residues_of_digits(self.library, digits, system, left)

        return self._pack(high, len(system.moduli), one)

    def pack_integers(self, left: bool, x: Array, system: ResidueSystem, bits: int) -> Operand:
        lib, count, unsigned = self.library, digits_for(bits), x.dtype == np.uint64

        def one(part: slice) -> Tensor:
            digits = crt.digits_of_int64(lib.astype(load(lib, x[part]), "int64"), count, unsigned)
            return crt.residues_of_digits(lib, digits, system, left)

        return self._pack(x, len(system.moduli), one)

    def pack_words(self, left: bool, x: npt.NDArray[np.uint32], system: ResidueSystem, bits: int) -> Operand:
        lib = self.library

        def one(part: slice) -> Tensor:
            words = [lib.astype(load(lib, x[part, :, w]), "int64") for w in range(x.shape[2])]
            return crt.residues_of_digits(lib, crt.digits_of_words(lib, words, digits_for(bits)), system, left)

        return self._pack(x, len(system.moduli), one)

    def pack_direct(self, left: bool, x: Array, zero_point: int) -> Operand:
        lib = self.library
        origin = zero_point + 128 if left else zero_point  # bytes 0 … 255 become −128 … 127
        low = (origin + (1 << 63)) % (1 << 64) - (1 << 63)

        def one(part: slice) -> Tensor:
            return lib.astype(lib.astype(load(lib, x[part]), "int64") - low, "int8")[None]

        return self._pack(x, 1, one, origin)

    def pack_magnitudes(self, left: bool, x: Array, top: Int32, inner: Int32 | None) -> Operand:
        def one(part: slice) -> Tensor:
            parts = self._parts(x[part], inner)
            return floats.magnitude_bytes(self.library, parts, self._vector(top[part])[:, None])[None]

        return self._pack(x, 1, one)

    def pack_wrapped(self, left: bool, x: Array, itemsize: int) -> Operand:
        lib = self.library

        def one(part: slice) -> Tensor:
            rest, digits = lib.astype(load(lib, x[part]), "int64"), []
            for _ in range(itemsize):  # signed bytes
                digit = ((rest + 128) & 255) - 128
                digits.append(lib.astype(digit, "int8"))
                rest = (rest - digit) >> 8
            return lib.stack(digits)

        return self._pack(x, itemsize, one)
