"""An engine whose products run on the planes of another format: what `matmul(…, formats="fp4_e2m1")` uses.

It surveys, repairs and rounds as the engine it wraps does, so bits and grades are chosen alike; only the exact
integer products go through encodings. Equal bits to the INT8 route follow, since both are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt

from gemmulate.encodings import Design, Encoding
from gemmulate.engines.base import Array, Engine, FloatOutcome, Int32, Norms, Operand, PairSurvey, Scan
from gemmulate.engines.reference import integers_of_words, pair_integers, round_pairs, scaled, store_words
from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.schemes.encoded import (
    Digits,
    EncodedOperand,
    Int64,
    Planes,
    Sums,
    check_formats,
    design_for_window,
    direct_for_ranges,
    multiply_direct,
    multiply_prepared,
    prepare,
    reach_bits,
    window_of,
)
from gemmulate.schemes.floats import FloatChoice, operand_shifts
from gemmulate.schemes.multiword import Words, round_words
from gemmulate.schemes.partial import Cover, cover_for, extra_bits, multiply_partial
from gemmulate.schemes.special import fill_special


def fast_cover(engine: EncodedEngine, choice: FloatChoice, k: int, dtype: np.dtype[Any]) -> tuple[int, Cover] | None:
    """Bits of the scale and the partial covers that the grade "fast" may take; None where they do not serve."""
    if choice.system is None or not choice.rounds_operands or dtype != np.float64:
        return None
    bits = max(choice.bits_left, choice.bits_right) + extra_bits()
    cover = cover_for(k, bits, engine.formats)
    return None if cover is None else (bits, cover)


def multiply_fast(engine: EncodedEngine, a: Array, bt: Array, choice: FloatChoice, out: Array) -> bool:
    """Write the product by partial covers where they cost less and the "fast" bound is proven; else return False.

    a (m, k), bt (n, k) float64; `choice` is that of the grade "fast": its bits, raised by the freedom, set the scale.
    """
    planned = fast_cover(engine, choice, a.shape[1], a.dtype)
    if planned is None:
        return False
    bits, _ = planned
    shift_a, shift_b = operand_shifts(choice.left.scan, bits), operand_shifts(choice.right.scan, bits)
    right_inner = None if choice.inner is None else (-choice.inner).astype(np.int32)
    left, right = scaled(a, shift_a, choice.inner), scaled(bt, shift_b, right_inner)
    found = multiply_partial(left, right, bits, engine.formats, engine.plane_product)
    if found is None:
        return False
    # 2u·k·max|a_i|·max|b_j| less one rounding of the result, u·|C|.
    peaks = np.abs(left).max(axis=1)[:, None] * np.abs(right).max(axis=1)[None, :]
    size = found.exact.approximate() * (1 + 2.0**-38)
    if (found.bound + 2.0**-53 * size > 2.0**-52 * a.shape[1] * peaks * (1 - 2.0**-40)).any():
        return False
    zeros = np.zeros(len(a), dtype=np.int64), np.zeros(len(bt), dtype=np.int64)
    round_words(found.exact, -shift_a, -shift_b, out, None, zeros)
    engine.fix_negative_zeros(a, bt, out)
    fill_special(engine, a, bt, choice.left.scan.special, choice.right.scan.special, out)
    return True


@dataclass(frozen=True)
class _Residues:
    """Integers of one operand, their planes for the designs met so far, and how many entries were rounded."""

    digits: Digits
    left: bool
    inexact: npt.NDArray[np.int64]
    prepared: dict[tuple[int, ...], EncodedOperand] = field(default_factory=dict)

    def planes(self, design: Design) -> EncodedOperand:
        found = self.prepared.get(design.moduli)
        if found is None or found.design is not design:
            self.prepared.clear()  # blocks rarely need another design, and planes are large
            found = self.prepared[design.moduli] = prepare(self.digits, design, self.left)
        return found

    @property
    def nbytes(self) -> int:
        return sum(d.nbytes for d in self.digits.digits) + sum(p.nbytes for p in self.prepared.values())

    @property
    def rounded(self) -> int:
        return int(self.inexact.sum())


@dataclass(frozen=True)
class _Values:
    """Integers of a direct product (vectors, depth): the encoding is chosen when both ranges are known."""

    x: Int64

    @property
    def nbytes(self) -> int:
        return self.x.nbytes

    @property
    def rounded(self) -> int:
        return 0


_FOREIGN = "the operand was prepared by another engine; prepare it with the one that multiplies"


def _residues(operand: Operand) -> _Residues:
    if not isinstance(operand, _Residues):
        raise TypeError(_FOREIGN)
    return operand


def _values(operand: Operand) -> _Values:
    if not isinstance(operand, _Values):
        raise TypeError(_FOREIGN)
    return operand


@final
class EncodedEngine(Engine):
    """Exact products over the planes of `formats`, run as INT8 on `inner`; accumulator depths as on the device."""

    def __init__(self, formats: str | Sequence[str], inner: Engine) -> None:
        self.formats = check_formats(formats)
        self.inner = inner
        self.name = f"{inner.name} ({'+'.join(self.formats)} planes)"

    @property
    def widest_bits(self) -> int:
        return min(self.inner.widest_bits, reach_bits(self.formats))

    def plane_product(self, left: Planes, right: Planes) -> Sums:
        """left (m, k) · right (k, n), planes, exact: one direct product of the inner engine."""
        unsigned = left.dtype == np.uint8
        # Times 2^14 or 255².
        fits = left.shape[1] < (1 << 15 if unsigned else 1 << 17)
        out = np.empty((left.shape[0], right.shape[1]), dtype=np.int32 if fits else np.int64)
        a = self.inner.pack_direct(True, np.ascontiguousarray(left), 0 if unsigned else -128)
        b = self.inner.pack_direct(False, np.ascontiguousarray(right.T), 128 if unsigned else 0)
        self.inner.multiply_direct(a, b, out)
        return out

    def pack_floats(
        self, left: bool, x: Array, shift: Int32, inner: Int32 | None, system: ResidueSystem, bits: int, count: bool
    ) -> Operand:
        value = scaled(x, shift, inner)
        digits, rounded = Digits.of_scaled(value, bits)
        vanished = np.isfinite(x) & (x != 0) & (value == 0)  # by the scaling itself
        return _Residues(digits, left, (rounded | vanished).sum(axis=1))

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
        return self.pack_integers(left, pair_integers(high, low, shift, inner), system, bits)

    def pack_integers(self, left: bool, x: Array, system: ResidueSystem, bits: int) -> Operand:
        return _Residues(Digits.of_integers(x), left, np.zeros(len(x), dtype=np.int64))

    def pack_words(self, left: bool, x: npt.NDArray[np.uint32], system: ResidueSystem, bits: int) -> Operand:
        return self.pack_integers(left, integers_of_words(x), system, bits)

    def pack_direct(self, left: bool, x: Array, zero_point: int) -> Operand:
        return _Values(x.astype(np.int64))

    def residue_design(self, left: Operand, right: Operand, system: ResidueSystem) -> Design:
        """The design by which operands of `pack_floats`, `pack_pairs`, `pack_integers` or `pack_words` multiply."""
        x, y = _residues(left), _residues(right)
        # The INT8 moduli cover twice the bound of the results, and the design may do so more tightly.
        return design_for_window(window_of(x.digits, y.digits, system.product), self.formats)

    def direct_choice(self, left: Operand, right: Operand) -> Encoding | Design:
        """What multiplies operands of `pack_direct`: an encoding of their ranges, or residues if fewer products."""
        a, b = _values(left).x, _values(right).x
        ranges = [(int(x.min(initial=0)), int(x.max(initial=0))) for x in (a, b)]
        encoding = direct_for_ranges(ranges[0], ranges[1], self.formats)
        window = 2 * max(1, a.shape[1]) * max(map(abs, ranges[0])) * max(map(abs, ranges[1])) + 2
        chosen = design_for_window(window, self.formats)
        return encoding if encoding is not None and encoding.products <= chosen.products else chosen

    def _integers(self, left: Operand, right: Operand, system: ResidueSystem) -> Words:
        chosen = self.residue_design(left, right, system)
        return multiply_prepared(_residues(left).planes(chosen), _residues(right).planes(chosen), self.plane_product)

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
        exact = self._integers(left, right, system)
        inexact = _residues(left).inexact, _residues(right).inexact
        return round_words(exact, row_exponent, column_exponent, out, check, inexact)

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
        exact = self._integers(left, right, system).to_objects()
        return round_pairs(exact, row_exponent, column_exponent, high, low)

    def multiply_integers(self, left: Operand, right: Operand, system: ResidueSystem, out: Array) -> int:
        return self._integers(left, right, system).store_low_bits(out)

    def multiply_words(self, left: Operand, right: Operand, system: ResidueSystem, out: npt.NDArray[np.uint64]) -> int:
        exact = self._integers(left, right, system)
        out[...] = exact.doubles(out.shape[2])
        return exact.largest_bits()

    def multiply_limbs(
        self,
        left: Sequence[Operand],
        right: Sequence[Operand],
        system: ResidueSystem,
        limb_bits: int,
        out: npt.NDArray[np.uint64],
    ) -> None:
        a, b = ([x for x in side if isinstance(x, _Residues)] for side in (left, right))
        # One design for all: an operand's planes are kept for one.
        window = max(window_of(x.digits, y.digits, system.product) for x in a for y in b)
        chosen = design_for_window(window, self.formats)
        total = np.zeros(out.shape[:2], dtype=object)
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                product = multiply_prepared(x.planes(chosen), y.planes(chosen), self.plane_product)
                total += product.to_objects() << limb_bits * (i + j)
        store_words(total, out)

    def multiply_modular(self, left: Operand, right: Operand, system: ResidueSystem, modulus: int, out: Array) -> None:
        out[...] = self._integers(left, right, system).residues(modulus)

    def multiply_direct(self, left: Operand, right: Operand, out: Array, modulus: int | None = None) -> int:
        a, b, chosen = _values(left).x, _values(right).x, self.direct_choice(left, right)
        if isinstance(chosen, Encoding):
            product = multiply_direct(a, b.T, chosen, self.plane_product)
            exact = Words.of_integers(product)
        else:
            operands = [prepare(Digits.of_integers(x), chosen, side) for x, side in ((a, True), (b, False))]
            exact = multiply_prepared(operands[0], operands[1], self.plane_product)
        if modulus is None:
            return exact.store_low_bits(out)
        out[...] = exact.residues(modulus)
        return 0

    # What has no narrow products is the inner engine's.

    def scan(self, x: Array, inner: Int32 | None) -> Scan:
        return self.inner.scan(x, inner)

    def norms(self, x: Array, top: Int32, inner: Int32 | None) -> Norms:
        return self.inner.norms(x, top, inner)

    def survey_pairs(self, high: Array, low: Array, inner: Int32 | None) -> PairSurvey:
        return self.inner.survey_pairs(high, low, inner)

    def depths(self, x: Array, top: Int32, inner: Int32 | None, bins: int) -> npt.NDArray[np.int64]:
        return self.inner.depths(x, top, inner, bins)

    def integer_range(self, x: Array) -> tuple[int, int]:
        return self.inner.integer_range(x)

    def pack_magnitudes(self, left: bool, x: Array, top: Int32, inner: Int32 | None) -> Operand:
        return self.inner.pack_magnitudes(left, x, top, inner)

    def assess(
        self,
        left: Operand,
        right: Operand,
        sum_left: npt.NDArray[np.uint64],
        sum_right: npt.NDArray[np.uint64],
        budget: float,
        need: npt.NDArray[np.uint8],
    ) -> npt.NDArray[np.int64]:
        return self.inner.assess(left, right, sum_left, sum_right, budget, need)

    def exact_dots(self, a: Array, b: Array, at: npt.NDArray[np.int64], out: Array) -> None:
        self.inner.exact_dots(a, b, at, out)

    def exact_dot_pairs(self, a: Array, b: Array, at: npt.NDArray[np.int64], high: Array, low: Array) -> None:
        self.inner.exact_dot_pairs(a, b, at, high, low)

    def fix_negative_zeros(self, a: Array, b: Array, out: Array) -> None:
        self.inner.fix_negative_zeros(a, b, out)
