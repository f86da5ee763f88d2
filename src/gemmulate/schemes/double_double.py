"""Products of double-double matrices: residues of integers of about 110 bits, one rounding to a pair.

With α the largest |hi| of a row, α < 2^top, its entries become integers a' = (hi + lo) 2^(t − top) + δ, |δ| ≤ 3/4;
columns likewise. A'B' is exact and is rounded once to hi + lo, within 2^-106 (or 2^-1075 where lo is subnormal). Every
element keeps

    |C − AB| ≤ 2^-104 |A||B|,

since t is chosen as for the grade "fp64" (schemes/floats.py): with E_ij the bound of what the roundings δ do to element
(i, j) and L_ij ≤ (|A||B|)_ij from one INT8 product of magnitudes, t is such that E ≤ 3 · 2^-106 L. Where exponents
spread along k, an inner scaling (A 2^e, 2^-e B) comes first if it helps. Elements that ask for more bits than residues
pay for (exponents spread widely in a row) are computed by the exact long accumulator from the four products of parts,
so the bound holds whatever the data. Bits depend on the data alone.

Sources: Ozaki, Uchino, Imamura 2025 (residues); Hida, Li, Bailey 2001 (pairs).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmulate.engines.base import NO_EXPONENT, Array, Engine, Int32, Norms, Operand, Scan
from gemmulate.engines.residue_system import ResidueSystem, residue_system
from gemmulate.schemes.blocks import for_blocks, halved, panels
from gemmulate.schemes.floats import Side, componentwise_bits, inner_scaling, operand_shifts, window
from gemmulate.schemes.special import fill_special

# Of the error 2^-104 |A||B| the rounding of the result takes 2^-106 |A'B'| at most, so the roundings of the operands
# may take 3 · 2^-106. `assess` counts roundings of 1/2 where pairs have up to 3/4, hence two thirds of that as budget;
# the last factor covers |lo| ≤ 2^-53 |hi|, which the norms and magnitudes of hi leave out, and |A'B'| above |A||B|.
_BUDGET = 2.0**-105 * (1 - 2.0**-40)
_LEAST_BITS = 105
# Bits beyond which an inner scaling is looked for: Gaussian pairs need 107 + ~25 bits to be kept exactly, and t is
# about 112 where exponents do not spread.
_INNER_SCALING_BITS = 140


@dataclass(frozen=True)
class PairSide:
    """One operand, shape (vectors, depth): both parts and what is known of them."""

    high: Array
    low: Array
    side: Side


@dataclass(frozen=True)
class PairChoice:
    """How a double-double product will run."""

    left: PairSide
    right: PairSide
    inner: Int32 | None  # A 2^inner and 2^-inner B are multiplied
    bits_left: int
    bits_right: int
    bound: int  # |A'B'| ≤ bound
    system: ResidueSystem | None  # None: the long accumulator for every element
    repair: npt.NDArray[np.int64]  # elements for the long accumulator, (count, 2)
    assessed: bool  # one product of magnitudes told how many bits are needed


def _survey(engine: Engine, high: Array, low: Array, inner: Int32 | None) -> PairSide:
    found = engine.survey_pairs(high, low, inner)
    # |a'| ≤ (q + 1) 2^(t − 15) for t ≥ 16: 3/4 and |lo| 2^(t − top) ≤ 2^(t − 54) together stay below 2^(t − 15).
    root = math.isqrt(int(found.square.max(initial=0))) + math.isqrt(high.shape[1]) + 2
    norms = Norms(found.sum, np.array([root * root], dtype=np.uint64), np.zeros(0, dtype=np.uint64))
    alive = found.top != NO_EXPONENT
    exact_bits = int((found.top.astype(np.int64) - found.lsb)[alive].max(initial=1))
    return PairSide(high, low, Side(Scan(found.top, found.lsb, found.special), norms, exact_bits))


def _survey_both(
    engine: Engine, a: tuple[Array, Array], bt: tuple[Array, Array]
) -> tuple[PairSide, PairSide, Int32 | None]:
    """Both operands measured, under an inner scaling where the exponents along k spread and it helps."""
    left, right = _survey(engine, *a, None), _survey(engine, *bt, None)
    before = left.side.exact_bits + right.side.exact_bits
    if max(left.side.exact_bits, right.side.exact_bits) > _INNER_SCALING_BITS:
        inner = inner_scaling(engine, a[0], bt[0], left.side.scan, right.side.scan)
        if inner is not None:
            scaled = _survey(engine, *a, inner), _survey(engine, *bt, (-inner).astype(np.int32))
            if sum(s.side.exact_bits for s in scaled) < before:
                return *scaled, inner
    return left, right, None


def choose_pairs(engine: Engine, a: tuple[Array, Array], bt: tuple[Array, Array], exact: bool) -> PairChoice:
    """Survey the parts (high, low) of a (m, k) and bt (n, k), float64, and choose bits and moduli.

    `exact` asks for the rounded exact product, else for the bound 2^-104 |A||B|.
    """
    left, right, inner = _survey_both(engine, a, bt)
    right_inner = None if inner is None else (-inner).astype(np.int32)
    (m, k), n = left.high.shape, right.high.shape[0]
    sides, spread = (left.side, right.side), (left.side.exact_bits, right.side.exact_bits)
    none = np.zeros((0, 2), dtype=np.int64)

    def choice(t: int, repair: npt.NDArray[np.int64] = none, *, assessed: bool = True) -> PairChoice:
        bits = min(t, spread[0]), min(t, spread[1])
        bound = window(*sides, *(max(16, b) for b in bits))
        return PairChoice(left, right, inner, *bits, bound, residue_system(bound), repair, assessed)

    # No assessment asks for fewer bits: with |a| ≤ 2^top the sums of magnitudes are at least 2^-top L each.
    if exact or max(spread) <= _LEAST_BITS:
        return choice(max(spread), assessed=False)
    need = np.empty((m, n), dtype=np.uint8)
    hist = engine.assess(
        engine.pack_magnitudes(True, left.high, left.side.scan.top, inner),
        engine.pack_magnitudes(False, right.high, right.side.scan.top, right_inner),
        left.side.norms.sum,
        right.side.norms.sum,
        _BUDGET,
        need,
    )
    # With 2^(t − 15) ≥ k the second-order terms k δ² are below the 1 that `assess` adds to the sums.
    best = componentwise_bits(*sides, hist, 17 + k.bit_length())
    if best.t is None:
        return PairChoice(left, right, inner, 0, 0, 0, None, none, True)
    if best.t >= max(spread):
        return choice(max(spread))
    return choice(best.t, np.argwhere(need > best.t))


def multiply_pairs(engine: Engine, choice: PairChoice, high: Array, low: Array) -> None:
    """Write the product to the float64 matrices high and low (m, n)."""
    left, right, system = choice.left, choice.right, choice.system
    (m, k), n = left.high.shape, right.high.shape[0]
    if system is None:
        for rows in panels(m, max(1, (1 << 18) // max(1, n))):
            at = np.stack(np.meshgrid(np.arange(rows.start, rows.stop), np.arange(n), indexing="ij"), -1)
            _repair(engine, left, right, at.reshape(-1, 2), high, low)
    else:
        system = halved(engine, system, m, k, n)
        shift_a = operand_shifts(left.side.scan, choice.bits_left)
        shift_b = operand_shifts(right.side.scan, choice.bits_right)

        def pack(side: PairSide, is_left: bool, part: slice, shift: Int32, bits: int) -> Operand:
            inner = choice.inner if is_left or choice.inner is None else (-choice.inner).astype(np.int32)
            return engine.pack_pairs(is_left, side.high[part], side.low[part], shift[part], inner, system, bits)

        def multiply(x: Operand, y: Operand, rows: slice, columns: slice) -> None:
            block = high[rows, columns], low[rows, columns]
            engine.multiply_pairs(x, y, system, -shift_a[rows], -shift_b[columns], *block)

        for_blocks(
            engine,
            m,
            n,
            k * system.bytes_per_entry,
            lambda rows: pack(left, True, rows, shift_a, choice.bits_left),
            lambda columns: pack(right, False, columns, shift_b, choice.bits_right),
            multiply,
        )
        _repair(engine, left, right, choice.repair, high, low)
    engine.fix_negative_zeros(left.high, right.high, high)
    special = left.side.scan.special, right.side.scan.special
    fill_special(engine, left.high, right.high, *special, high)
    low[np.flatnonzero(special[0])] = 0.0
    low[:, np.flatnonzero(special[1])] = 0.0


def _repair(
    engine: Engine, left: PairSide, right: PairSide, at: npt.NDArray[np.int64], high: Array, low: Array
) -> None:
    """Elements by the long accumulator: [hi, hi, lo, lo] · [hi, lo, hi, lo], of the rows and columns that occur."""
    if not at.size:
        return
    rows, i = np.unique(at[:, 0], return_inverse=True)
    columns, j = np.unique(at[:, 1], return_inverse=True)
    a = np.concatenate([left.high[rows], left.high[rows], left.low[rows], left.low[rows]], axis=1)
    b = np.concatenate([right.high[columns], right.low[columns], right.high[columns], right.low[columns]], axis=1)
    index = np.ascontiguousarray(np.stack([i.reshape(-1), j.reshape(-1)], axis=1), dtype=np.int64)
    block = np.zeros((2, len(rows), len(columns)))
    engine.exact_dot_pairs(a, b, index, block[0], block[1])
    high[at[:, 0], at[:, 1]], low[at[:, 0], at[:, 1]] = (part[index[:, 0], index[:, 1]] for part in block)
