"""Float products in blocks: exact partial sums over k, and the one rounding at their end.

A part is an integer matrix in units of its rows and columns, the same for every part of k: 2^(top − bits), or 2^lsb
where Python ints keep every bit. Elements that the chosen bits leave open are summed from all their bits besides.
Blocks come as (vectors, depth).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmulate.distributed.exact_sum import ExactSum, round_ints, round_sums, words_for
from gemmulate.distributed.float_survey import BlockBits, Surveyed, Verdict
from gemmulate.distributed.runner import Runner
from gemmulate.engines.base import NO_EXPONENT, Array, Engine, Int32, Scan
from gemmulate.engines.residue_system import residue_system
from gemmulate.schemes.anchored import span
from gemmulate.schemes.blocks import for_blocks, halved, panels
from gemmulate.schemes.floats import operand_shifts
from gemmulate.schemes.python_ints import multiply_objects
from gemmulate.schemes.special import SpecialTerms, decide, meet, special_terms

Mask = npt.NDArray[np.bool_]

# Entries that are Python ints at once: 32 bytes and more each.
_INTS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class FloatPart:
    """One block of the result over a part of k."""

    sums: ExactSum | Array  # integers in words, or Python ints (object)
    at: npt.NDArray[np.int64]  # elements summed from all their bits, (count, 2)
    exact: Array  # their integers (object)
    negative_zero: Mask  # every product so far is −0
    special_rows: SpecialTerms | None
    special_columns: SpecialTerms | None

    def __add__(self, other: FloatPart) -> FloatPart:
        sums: ExactSum | Array
        if isinstance(self.sums, ExactSum):
            assert isinstance(other.sums, ExactSum)  # both in words, or both Python ints: by the one verdict
            sums = self.sums.plus(other.sums, self.sums.bound)  # which holds for the sum over any part of k
        else:
            sums = self.sums + other.sums
        return FloatPart(
            sums,
            self.at,
            self.exact + other.exact,
            self.negative_zero & other.negative_zero,
            _either(self.special_rows, other.special_rows),
            _either(self.special_columns, other.special_columns),
        )


def _either(x: SpecialTerms | None, y: SpecialTerms | None) -> SpecialTerms | None:
    return None if x is None or y is None else SpecialTerms(*(p | q for p, q in zip(x, y, strict=True)))


@dataclass(frozen=True)
class Units:
    """How one block of the result is summed: the bits of its integers, or Python ints where no system covers them."""

    bits: BlockBits | None
    row: Int32  # exponent of the unit of each row
    column: Int32
    inner: bool  # whether entries are scaled along k first


def block_units(verdict: Verdict, depth: int, left: Surveyed, right: Surveyed) -> Units:
    """By the verdict; where that keeps every bit, by the exponents of this block alone: the result is the same."""
    if verdict.bits is not None:
        bits, scans, inner = verdict.bits, (left.side.scan, right.side.scan), True
    else:
        kept, scans, inner = (span(left.scan), span(right.scan)), (left.scan, right.scan), False
        bits = BlockBits(*kept, depth << sum(kept), False, 0)
        if residue_system(bits.bound) is None:
            return Units(None, _units(left.scan), _units(right.scan), False)
    return Units(bits, -operand_shifts(scans[0], bits.left), -operand_shifts(scans[1], bits.right), inner)


def _units(scan: Scan) -> Int32:
    """Exponents of the lowest bit of each vector."""
    return np.where(scan.top == NO_EXPONENT, 0, scan.lsb).astype(np.int32)


@dataclass(frozen=True)
class MultiplyFloats:
    """The task of one pair of blocks over a part of k; `depth` is the whole of k."""

    runner: Runner
    depth: int

    def __call__(
        self,
        verdict: Verdict,
        x: Array,
        y: Array,
        left: Surveyed,
        right: Surveyed,
        inner_left: Int32 | None = None,
        inner_right: Int32 | None = None,
        need: npt.NDArray[np.uint8] | None = None,
    ) -> FloatPart:
        engine = self.runner.engine
        units = block_units(verdict, self.depth, left, right)
        sums: ExactSum | Array
        if units.bits is None:
            sums = _int_products(engine, x, y, units)
            zero = np.asarray(sums == 0, dtype=bool)
        else:
            inner = (inner_left, inner_right) if units.inner else (None, None)
            sums = _word_products(engine, x, y, units, units.bits, inner)
            zero = sums.zero
        at = np.zeros((0, 2), dtype=np.int64)
        if units.bits is not None and units.bits.repairs:
            assert need is not None
            at = np.argwhere(need > units.bits.t)
        rows, columns = np.flatnonzero(left.scan.special), np.flatnonzero(right.scan.special)
        return FloatPart(
            sums,
            at,
            _exact_elements(x, y, left.scan, right.scan, at),
            _all_negative_zero(x, y, zero),
            special_terms(x[rows], y) if rows.size else None,
            special_terms(x, y[columns]) if columns.size else None,
        )


def add_parts(parts: list[FloatPart]) -> FloatPart:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@dataclass(frozen=True)
class RoundFloats:
    """The task that rounds a block of the result once."""

    depth: int
    result: np.dtype[Any]

    def __call__(self, verdict: Verdict, part: FloatPart, left: Surveyed, right: Surveyed) -> Array:
        out = np.empty((len(left.scan.top), len(right.scan.top)), dtype=self.result)
        units = block_units(verdict, self.depth, left, right)
        exponent = (units.row[:, None] + units.column[None, :]).astype(np.int32)
        if isinstance(part.sums, ExactSum):
            round_sums(part.sums, exponent, out)
        else:
            round_ints(part.sums, exponent, out)
        if len(part.at):
            i, j = part.at.T
            repaired = np.empty(len(i), dtype=self.result)
            round_ints(part.exact, _units(left.scan)[i] + _units(right.scan)[j], repaired)
            out[i, j] = repaired
        zero = (out == 0) & ~np.signbit(out)
        out[zero & part.negative_zero] = self.result.type(-0.0)
        if part.special_rows is not None:
            rows = np.flatnonzero(left.scan.special)
            out[rows] = decide(part.special_rows, out[rows])
        if part.special_columns is not None:
            columns = np.flatnonzero(right.scan.special)
            out[:, columns] = decide(part.special_columns, out[:, columns])
        return out


def _word_products(
    engine: Engine, x: Array, y: Array, units: Units, bits: BlockBits, inner: tuple[Int32 | None, Int32 | None]
) -> ExactSum:
    (m, k), n = x.shape, y.shape[0]
    system = residue_system(bits.bound)
    assert system is not None
    system = halved(engine, system, m, k, n)
    words = np.empty((m, n, words_for(bits.bound)), dtype=np.uint64)

    def multiply(left: Any, right: Any, rows: slice, columns: slice) -> None:
        block = np.empty((rows.stop - rows.start, columns.stop - columns.start, words.shape[2]), dtype=np.uint64)
        engine.multiply_words(left, right, system, block)
        words[rows, columns] = block

    shift = -units.row, -units.column
    for_blocks(
        engine,
        m,
        n,
        k * system.bytes_per_entry,
        lambda rows: engine.pack_floats(True, x[rows], shift[0][rows], inner[0], system, bits.left, False),
        lambda columns: engine.pack_floats(False, y[columns], shift[1][columns], inner[1], system, bits.right, False),
        multiply,
    )
    return ExactSum(bits.bound, words)


def _int_products(engine: Engine, x: Array, y: Array, units: Units) -> Array:
    total = np.full((x.shape[0], y.shape[0]), 0, dtype=object)
    for steps in panels(x.shape[1], max(1, _INTS_AT_ONCE // (x.shape[0] + y.shape[0]))):
        total = total + multiply_objects(engine, _ints(x[:, steps], units.row), _ints(y[:, steps], units.column))
    return total


def _ints(x: Array, unit: Int32) -> Array:
    """x / 2^unit as Python ints, which all finite entries are; others count as zero."""
    fraction, exponent = np.frexp(np.where(np.isfinite(x), x, 0).astype(np.float64))
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    shift = np.where(mantissa == 0, 0, exponent.astype(np.int64) - 53 - unit[:, None])
    # Below the unit lie zeros alone: what is shifted out to the right is none of the entry's bits.
    down, up = np.maximum(-shift, 0), np.maximum(shift, 0)
    return np.asarray((mantissa >> np.minimum(down, 63)).astype(object) << up.astype(object), dtype=object)


def _exact_elements(x: Array, y: Array, scan_x: Scan, scan_y: Scan, at: npt.NDArray[np.int64]) -> Array:
    """The exact sums of single elements, in units of 2^lsb of their row and column."""
    out = np.empty(len(at), dtype=object)
    (rows, i), (columns, j) = (np.unique(index, return_inverse=True) for index in at.T)
    out[:] = 0
    for steps in panels(x.shape[1], max(1, _INTS_AT_ONCE // max(1, len(rows) + len(columns)))):
        left = _ints(x[rows][:, steps], _units(scan_x)[rows])
        right = _ints(y[columns][:, steps], _units(scan_y)[columns])
        for e in range(len(at)):
            out[e] += np.dot(left[i[e]], right[j[e]])
    return out


def _all_negative_zero(x: Array, y: Array, zero: Mask) -> Mask:
    """Where every product over this part of k is −0, among the elements whose sum is zero."""
    if not x.shape[1]:
        return np.ones_like(zero)
    signs = np.signbit(x), np.signbit(y)
    found = np.asarray(zero & (signs[0][:, :1] != signs[1][:, :1].T), dtype=bool)
    rows, columns = np.flatnonzero(found.any(axis=1)), np.flatnonzero(found.any(axis=0))
    if not rows.size:
        return found
    sx, sy = signs[0][rows], signs[1][columns]

    other = meet(sx, sy) | meet(~sx, ~sy) | meet(x[rows] != 0, y[columns] != 0)
    found[np.ix_(rows, columns)] &= ~other
    return found
