"""The array engine: the whole contract in the array operations of a framework, on any of its devices.

Integers and bit patterns throughout (`array_floats`, `array_crt`); INT8 products with int32 sums by the library.
Matrices are worked on in blocks of whole vectors: a temporary holds at most max(`Library.block`, one vector) int64 for
each modulus or digit, and the INT8 products of a panel of rows at most max(2^25, one row for each modulus) int32, less
where memory is little. To
these come the packed operands, a byte for each entry and modulus, and what an INT8 product itself pads. Where special
values or signs of zeros are decided, four bytes for each entry of the right operand are held.

Results for each vector, histograms and lists of elements come back as NumPy arrays. Exact dot products, which are few,
run on the host: their vectors are fetched for the native engine, or the reference one where that is not built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmulate.engines import array_crt as crt
from gemmulate.engines import array_floats as floats
from gemmulate.engines import array_special as special
from gemmulate.engines import progress, spans
from gemmulate.engines.array_library import Tensor
from gemmulate.engines.array_operand import ArrayOperand, fetch, host_engine, load, store, store_at
from gemmulate.engines.array_packing import ArrayPacking
from gemmulate.engines.base import Array, DeviceArray, FloatOutcome, Int32, Operand, dtype_name
from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.rounding import FLOAT_FORMATS, BinaryFormat

_STACK = 1 << 27  # bytes of the int32 sums that a panel of rows holds for all moduli
_DOTS = 1024  # exact dot products fetched at a time


class ArrayEngine(ArrayPacking):
    """Kernels in the operations of `library`; threads are the framework's own affair."""

    def _own(self, operand: Operand) -> ArrayOperand:
        if not isinstance(operand, ArrayOperand) or operand.library is not self.library:
            raise TypeError("the operand was prepared by another engine; prepare it with the one that multiplies")
        return operand

    def products(self, left: Tensor, right: Tensor) -> list[Tensor]:
        """INT8 products of each pair of planes, exact: int32 or int64 (m, n); (planes, m, k) and (planes, n, k)."""
        return [self.library.int8_product(left[p], right[p]) for p in range(left.shape[0])]

    def _panels(self, pairs: Sequence[tuple[Operand, Operand]], planes: int) -> Iterator[tuple[slice, Tensor]]:
        """Sums of the pairs' products (planes, rows, n), blocks of rows one after the other."""
        lib = self.library
        operands = [(self._own(x).planes, self._own(y).planes) for x, y in pairs]
        m, n = operands[0][0].shape[1], operands[0][1].shape[1]
        if not n:
            return
        rows, report = max(1, lib.temporary(_STACK) // (4 * planes * n)), progress.current()
        for start in range(0, m, rows):
            stop = min(start + rows, m)
            sums: list[Tensor] = []
            for x, y in operands:
                with spans.span(spans.PRODUCTS):
                    here = self.products(x[:, start:stop], y)
                # Two int32 sums may be more than int32 holds.
                wide = here if len(operands) == 1 else [lib.astype(s, "int64") for s in here]
                sums = [s + t for s, t in zip(sums, wide, strict=True)] if sums else wide
            for part in self._blocks(stop - start, n):
                yield slice(start + part.start, start + part.stop), lib.stack([s[part] for s in sums])
            if report:
                report(stop, m)

    def _integers(self, left: Operand, right: Operand, system: ResidueSystem) -> Iterator[tuple[slice, floats.Limbs]]:
        for part, sums in self._panels([(left, right)], len(system.moduli)):
            yield part, crt.combine(self.library, sums, system)

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
        lib, form = self.library, FLOAT_FORMATS[dtype_name(out.dtype)]
        inexact = self._own(left).inexact, self._own(right).inexact
        if check is not None and not (inexact[0].any() or inexact[1].any()):
            check = None
        columns = self._vector(column_exponent)[None, :]
        uncertain: list[npt.NDArray[np.int64]] = [np.zeros((0, 2), dtype=np.int64)]
        zeros: Any = 0
        for part, limbs in self._integers(left, right, system):
            exponent = self._vector(row_exponent[part])[:, None] + columns
            if check is None:
                rounded = floats.round_limbs(lib, limbs, exponent, form)
            else:
                rounded, open_ = self._interval(limbs, exponent, form, (inexact[0][part], inexact[1]), check)
                uncertain.append(lib.argwhere(open_) + np.array([part.start, 0]))
            store(lib, out[part], self._patterns(rounded.signed(lib, form), form))
            zeros = zeros + self._counted(rounded.pattern == 0)
        return FloatOutcome(np.concatenate(uncertain), zeros if isinstance(out, DeviceArray) else int(zeros))

    def _patterns(self, signed: Tensor, form: BinaryFormat) -> Tensor:
        size = floats.storage_bits(form)
        return signed if size == 64 else self.library.astype(signed, "int32" if size == 32 else "int16")

    def _counted(self, condition: Tensor) -> Tensor:
        """How often it holds: a scalar on the device."""
        lib = self.library
        return lib.sum(lib.astype(condition, "int64").reshape((-1,)), 0)

    def _interval(
        self,
        limbs: floats.Limbs,
        exponent: Tensor,
        form: BinaryFormat,
        inexact: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
        check: tuple[int, int],
    ) -> tuple[floats.Rounded, Tensor]:
        """The lower ends' roundings, and where the upper ends' are others, or zero.

        In halves, |error| ≤ inexact_i 2^(bits_right − 1) + inexact_j 2^(bits_left − 1).
        """
        lib = self.library
        bounds = [[int(c) << bits for c in side] for side, bits in zip(inexact, (check[1], check[0]), strict=True)]
        widest = max(v.bit_length() for side in bounds for v in [*side, 0]) + 2
        count = max(len(limbs), -(-widest // floats.LIMB)) + 1
        rows, columns = (lib.load(crt.limbs_of_ints(side, count)) for side in bounds)
        zero = limbs[0] * 0
        twice = [2 * limb for limb in limbs] + [zero] * (count - len(limbs))
        errors = [rows[w][:, None] + columns[w][None, :] for w in range(count)]
        ends = [
            floats.round_limbs(lib, floats.carry([t + s * e for t, e in zip(twice, errors, strict=True)]), half, form)
            for s, half in ((-1, exponent - 1), (1, exponent - 1))
        ]
        low, high = ends
        same = (low.pattern == high.pattern) & (low.negative == high.negative) & (low.pattern != 0)
        lossy = (self._vector(inexact[0])[:, None] + self._vector(inexact[1])[None, :]) != 0
        return low, lossy & ~same

    def multiply_pairs(
        self,
        left: Operand,
        right: Operand,
        system: ResidueSystem,
        row_exponent: Int32,
        column_exponent: Int32,
        high: Array,
        low: Array,
    ) -> int:
        lib, form, zeros = self.library, FLOAT_FORMATS["float64"], 0
        columns = self._vector(column_exponent)[None, :]
        for part, limbs in self._integers(left, right, system):
            exponent = self._vector(row_exponent[part])[:, None] + columns
            upper, lower, zero = floats.round_limbs_to_pair(lib, limbs, exponent, form)
            store(lib, high[part], upper)
            store(lib, low[part], lower)
            zeros += int(self._counted(zero))
        return zeros

    def _store_integers(self, out: Array, limbs: floats.Limbs) -> int:
        lib = self.library
        low = crt.words_of(limbs, 1)[0]
        store(lib, out, low if out.dtype.itemsize == 8 else lib.astype(low, f"int{8 * out.dtype.itemsize}"))
        return crt.largest_bits(lib, limbs)

    def multiply_integers(self, left: Operand, right: Operand, system: ResidueSystem, out: Array) -> int:
        blocks = self._integers(left, right, system)
        return max((self._store_integers(out[part], limbs) for part, limbs in blocks), default=0)

    def _store_words(self, out: Array, limbs: floats.Limbs) -> None:
        for w, word in enumerate(crt.words_of(limbs, out.shape[2])):
            store(self.library, out[:, :, w], word)

    def multiply_words(self, left: Operand, right: Operand, system: ResidueSystem, out: npt.NDArray[np.uint64]) -> int:
        longest = 0
        for part, limbs in self._integers(left, right, system):
            self._store_words(out[part], limbs)
            longest = max(longest, crt.largest_bits(self.library, limbs))
        return longest

    def multiply_limbs(
        self,
        left: Sequence[Operand],
        right: Sequence[Operand],
        system: ResidueSystem,
        limb_bits: int,
        out: npt.NDArray[np.uint64],
    ) -> None:
        lib, report = self.library, progress.current()
        count = -(-64 * out.shape[2] // floats.LIMB) + 1
        by_weight: list[list[tuple[Operand, Operand]]] = [[] for _ in range(len(left) + len(right) - 1)]
        for i, x in enumerate(left):
            for j, y in enumerate(right):
                by_weight[i + j].append((x, y))
        m, n = self._own(left[0]).planes.shape[1], self._own(right[0]).planes.shape[1]
        rows = max(1, self.library.block // max(1, n))
        for start in range(0, m if n else 0, rows):
            part = slice(start, min(start + rows, m))
            total: list[Tensor] = [None] * count
            for s, pairs in enumerate(by_weight):
                # The coefficient's limbs are to fall on the result's.
                place, shift = divmod(limb_bits * s, floats.LIMB)
                cut = [(self._rows(x, part), y) for x, y in pairs]
                for inside, sums in self._panels(cut, len(system.moduli)):
                    assert inside == slice(0, part.stop - part.start)
                    for w, limb in enumerate(crt.combine(lib, sums, system, shift), start=place):
                        if w < count:
                            total[w] = limb if total[w] is None else total[w] + limb
            zero = next(t for t in total if t is not None) * 0
            self._store_words(out[part], floats.carry([zero if t is None else t for t in total]))
            if report:
                report(part.stop, m)

    def _rows(self, operand: Operand, part: slice) -> ArrayOperand:
        whole = self._own(operand)
        return ArrayOperand(whole.library, whole.planes[:, part], whole.zero_point)

    def multiply_modular(self, left: Operand, right: Operand, system: ResidueSystem, modulus: int, out: Array) -> None:
        for part, limbs in self._integers(left, right, system):
            store(self.library, out[part], crt.modulo(self.library, limbs, modulus))

    def multiply_direct(self, left: Operand, right: Operand, out: Array, modulus: int | None = None) -> int:
        lib, x, y = self.library, self._own(left), self._own(right)
        depth, longest = int(x.planes.shape[2]), 0
        # (a + za)(b + zb) = a b + za b + zb a + za zb: a term for each row, one for each column.
        rows = [y.zero_point * s + x.zero_point * y.zero_point * depth for s in self._entry_sums(x)]
        columns = [x.zero_point * s for s in self._entry_sums(y)]
        size = max(map(abs, [*rows, 0])) + max(map(abs, [*columns, 0])) + depth * 128 * 128
        count = -(-(size.bit_length() + 2) // floats.LIMB) + 1
        small = size.bit_length() < 62
        terms = [
            lib.load(np.array([side], dtype=np.int64) if small else crt.limbs_of_ints(side, count))
            for side in (rows, columns)
        ]
        for part, sums in self._panels([(x, y)], 1):
            exact = lib.astype(sums[0], "int64")
            if small:
                limbs = crt.of_int64(exact + terms[0][0][part][:, None] + terms[1][0][None, :])
            else:
                parts = crt.of_int64(exact) + [exact * 0] * (count - 2)
                limbs = floats.carry(
                    [p + terms[0][w][part][:, None] + terms[1][w][None, :] for w, p in enumerate(parts)]
                )
            if modulus is None:
                longest = max(longest, self._store_integers(out[part], limbs))
            else:
                residues = crt.modulo(lib, limbs, modulus)
                longest = max(longest, self._store_integers(out[part], crt.of_int64(residues)))
        return longest

    def _entry_sums(self, operand: ArrayOperand) -> list[int]:
        lib, plane = self.library, operand.planes[0]
        found: list[int] = []
        for part in self._blocks(*plane.shape):
            found += lib.to_numpy(lib.sum(lib.astype(plane[part], "int64"), 1)).tolist()
        return found

    def assess(
        self,
        left: Operand,
        right: Operand,
        sum_left: npt.NDArray[np.uint64],
        sum_right: npt.NDArray[np.uint64],
        budget: float,
        need: npt.NDArray[np.uint8],
    ) -> npt.NDArray[np.int64]:
        # The order of operations is part of the contract: it fixes the bits of the ratio. Each is an operation of its
        # own on normal numbers, with nothing to contract.
        lib, found = self.library, np.zeros(256, dtype=np.int64)
        rows, columns = self._vector(sum_left), self._vector(sum_right)
        for part, products in self._panels([(left, right)], 1):
            i, j = rows[part][:, None], columns[None, :]
            sums = lib.astype(i + j + 1, "float64")
            allowed = lib.astype(products[0], "float64") * budget
            empty = lib.astype(allowed == 0, "int64")
            ratio = sums / (allowed + lib.astype(empty, "float64")) * (1.0 + 2.0**-40)
            pattern = lib.bitcast(ratio, "int64")
            power = lib.astype((pattern & ((1 << 52) - 1)) == 0, "int64")
            bits = lib.clip((pattern >> 52) - 1022 - power - 2, 0, 255)
            bits = (bits + empty * (255 - bits)) * lib.astype((i != 0) & (j != 0), "int64")
            store(lib, need[part], lib.astype(bits, "int8"))
            found += lib.bincount(bits, 256)
        return found

    # Products modulo 2^32 and 2^64: bytes of one weight, those that overflow left out.

    def wrapped_cost(self, itemsize: int) -> float:
        return itemsize * (itemsize + 1) / 2

    def multiply_wrapped(self, left: Operand, right: Operand, out: Array) -> int:
        lib, x, y = self.library, self._own(left).planes, self._own(right).planes
        size, longest, (m, n) = int(x.shape[0]), 1, out.shape
        rows = max(1, self.library.block // max(1, n))
        for start in range(0, m if n else 0, rows):
            part = slice(start, min(start + rows, m))
            total = None
            for i in range(size):
                for j in range(size - i):
                    term = lib.astype(lib.int8_product(x[i, part], y[j]), "int64") << 8 * (i + j)
                    total = term if total is None else total + term
            if size == 4:
                total = lib.astype(total, "int32")
            store(lib, out[part], total)
            longest = max(longest, self._bits_of(out.dtype, lib.astype(total, "int64")))
        return longest

    def _bits_of(self, dtype: np.dtype[Any], low: Tensor) -> int:
        """Largest bit length, sign included, of integers of a dtype seen as signed ones of its size."""
        limbs = crt.of_int64(low)
        if dtype.kind == "u":
            limbs[1] = limbs[1] & ((1 << 8 * dtype.itemsize - floats.LIMB) - 1) if dtype.itemsize == 8 else limbs[1] * 0
            limbs[0] = limbs[0] if dtype.itemsize == 8 else limbs[0] & 0xFFFFFFFF
        return crt.largest_bits(self.library, limbs)

    # Single elements.

    def _dots(self, a: Array, b: Array, at: npt.NDArray[np.int64], outs: Sequence[Array]) -> None:
        """Exact dot products of fetched vectors on the host, some elements at a time."""
        for start in range(0, len(at), _DOTS):
            here = at[start : start + _DOTS]
            rows, i = np.unique(here[:, 0], return_inverse=True)
            columns, j = np.unique(here[:, 1], return_inverse=True)
            inside = np.stack([i.ravel(), j.ravel()], axis=1).astype(np.int64)
            values = [np.zeros((len(rows), len(columns)), dtype=out.dtype) for out in outs]
            x, y = fetch(self.library, a, rows), fetch(self.library, b, columns)
            if len(outs) == 1:
                host_engine().exact_dots(x, y, inside, values[0])
            else:
                host_engine().exact_dot_pairs(x, y, inside, values[0], values[1])
            for out, value in zip(outs, values, strict=True):
                store_at(self.library, out, here, value[inside[:, 0], inside[:, 1]])

    def exact_dots(self, a: Array, b: Array, at: npt.NDArray[np.int64], out: Array) -> None:
        self._dots(a, b, at, [out])

    def exact_dot_pairs(self, a: Array, b: Array, at: npt.NDArray[np.int64], high: Array, low: Array) -> None:
        self._dots(a, b, at, [high, low])

    def fix_negative_zeros(self, a: Array, b: Array, out: Array) -> None:
        lib = self.library
        if any(int(self._counted(load(lib, out[part]) == 0)) for part in self._blocks(*out.shape)):
            self.settle(a, b, out)

    def settle(self, a: Array, bt: Array, out: Array) -> None:
        lib, (n, k) = self.library, bt.shape
        if not (k and n and len(a)):
            return
        form, result = (FLOAT_FORMATS[dtype_name(x.dtype)] for x in (a, out))
        right = special.join(
            lib, [special.classify(lib, load(lib, bt[part]), form, False) for part in self._blocks(n, k)]
        )
        for part in self._blocks(len(a), max(2 * k, n)):
            left = special.classify(lib, load(lib, a[part]), form, True)
            pattern = lib.astype(load(lib, out[part]), "int64")
            store(lib, out[part], self._patterns(special.decide(lib, left, right, pattern, result), result))
