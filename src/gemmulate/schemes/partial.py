"""Partial-cover moduli: float operands rounded to the nearest integers that cheaper planes can represent.

A modulus whose planes reach c of m residues costs log2(m/c) bits of freedom per operand and fewer products. A float
operand is rounded anyway; here it is rounded to the nearest integer all of whose residues are covered, with the scale
raised so that their mean spacing stays below that of the plain rounding. The product of the rounded matrices is
exact; the bound of the grade "fast" is proven afterwards from the roundings actually made, and the caller falls back
to full covers where it does not hold. Never used for integers, nor for the other grades. The bits of the result
differ from the INT8 route's, the one exception to engine independence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np
import numpy.typing as npt

from gemmulate.blas import finite_matmul
from gemmulate.encodings import Design, WindowTooLarge, design
from gemmulate.schemes.encoded import Digits, Int64, PlaneProduct, modulo, multiply_prepared, prepare
from gemmulate.schemes.multiword import Words

# Of F = 0.25 … 5, one bit saves 6 of 59 products and raises the root mean square error from 0.29 to 0.49 spacings.
FREEDOM_BITS = 1.0
# Integers are kept in int64 while candidates are tried.
_MOST_BITS = 61
# With densities of covered integers above 1/4, a gap of 512 has a chance below 1e-60; a longer one is refused.
_MOST_STEPS = 512


@dataclass(frozen=True)
class Cover:
    """Which residues each partial modulus of a design represents."""

    design: Design
    masks: tuple[tuple[int, npt.NDArray[np.bool_]], ...]

    @classmethod
    def of(cls, chosen: Design) -> Cover:
        masks = []
        for e in chosen.encodings:
            if e.left.partial:
                mask = np.zeros(e.modulus or 0, dtype=bool)
                mask[e.limbs("left")[0]] = True
                masks.append((e.modulus or 0, mask))
        return cls(chosen, tuple(sorted(masks, key=lambda item: item[1].mean())))

    @property
    def density(self) -> float:
        """The share of integers that every modulus represents."""
        share = 1.0
        for _, mask in self.masks:
            share *= float(mask.mean())
        return share

    def holds(self, values: Int64) -> npt.NDArray[np.bool_]:
        covered = np.ones(values.shape, dtype=bool)
        for m, mask in self.masks:
            covered[covered] = mask[modulo(values[covered], m)]
        return covered


@dataclass(frozen=True)
class Rounding:
    """Covered integers nearest to real numbers, the distances, and how many candidates were tried in all."""

    values: Int64
    errors: npt.NDArray[np.float64]
    candidates: int


def round_to_cover(x: npt.NDArray[np.float64], cover: Cover) -> Rounding:
    """The nearest covered integer of each |x| < 2^61; ties and equal distances go to the even integer's side.

    Candidates are tried in order of distance: rint(x), its neighbour on x's side, the other one, and so on.
    """
    nearest = np.rint(x)
    base = nearest.astype(np.int64).ravel()
    offset = (x - nearest).ravel()
    side = np.where(offset >= 0, 1, -1).astype(np.int64)
    chosen = base.copy()
    open_ = np.arange(base.size)
    tried = 0
    for step in range(2 * _MOST_STEPS):
        if not open_.size:
            break
        jump = (step + 1) // 2 * (1 if step % 2 else -1)
        candidate = base[open_] + jump * side[open_]
        tried += open_.size
        held = cover.holds(candidate)
        chosen[open_[held]] = candidate[held]
        open_ = open_[~held]
    if open_.size:
        raise ValueError(f"no covered integer within {_MOST_STEPS} of {x.ravel()[open_[0]]}: use less freedom")
    errors = np.abs((chosen - base).astype(np.float64) - offset)
    return Rounding(chosen.reshape(x.shape), errors.reshape(x.shape), tried)


@lru_cache(maxsize=64)
def partial_design(window: int, formats: tuple[str, ...], freedom: float = FREEDOM_BITS) -> Cover | None:
    """A design with partial covers for products up to this window, or None where none is left to choose."""
    try:
        chosen = design(formats=formats, window=window, freedom=freedom)
    except WindowTooLarge:
        return None
    return Cover.of(chosen) if any(e.left.partial for e in chosen.encodings) else None


@lru_cache(maxsize=64)
def cover_for(k: int, bits: int, formats: tuple[str, ...], freedom: float = FREEDOM_BITS) -> Cover | None:
    """The design with partial covers for operands |x| ≤ 2^bits over depth k; None where it saves nothing."""
    if bits + 1 > _MOST_BITS:
        return None
    # Roundings may move an operand beyond 2^bits by a few units; the window leaves room for them.
    reach = (1 << bits) + _MOST_STEPS
    cover = partial_design(2 * k * reach * reach, formats, freedom)
    full = design(formats=formats, window=2 * k << 2 * bits)
    return None if cover is None or cover.design.cost >= full.cost else cover


@dataclass(frozen=True)
class PartialProduct:
    """The exact product of the rounded operands, in units of 2^(row + column), and its proven error bound."""

    exact: Words
    bound: npt.NDArray[np.float64]
    products: int


def multiply_partial(
    left: npt.NDArray[np.float64],
    right: npt.NDArray[np.float64],
    bits: int,
    formats: tuple[str, ...],
    multiply: PlaneProduct,
    freedom: float = FREEDOM_BITS,
) -> PartialProduct | None:
    """Multiply real operands (m, k), (n, k), |x| ≤ 2^bits, already scaled, each rounded to covered integers.

    `bound` (m, n) is a bound of |exact − left·rightᵀ| from the roundings made, rounded outward. None where partial
    covers save nothing or integers would exceed 61 bits.
    """
    cover = cover_for(left.shape[1], bits, formats, freedom)
    if cover is None:
        return None
    rounded = round_to_cover(left, cover), round_to_cover(right, cover)
    a, b = (
        prepare(Digits.of_integers(r.values), cover.design, side)
        for r, side in zip(rounded, (True, False), strict=True)
    )
    exact = multiply_prepared(a, b, multiply)
    magnitudes = np.abs(rounded[0].values).astype(np.float64), np.abs(right)
    # |a'b' − ab| ≤ |a'||δb| + |δa||b|; sums of k terms in float64 err by less than 2^-20 of themselves.
    bound = (finite_matmul(magnitudes[0], rounded[1].errors.T) + finite_matmul(rounded[0].errors, magnitudes[1].T)) * (
        1 + 2.0**-20
    )
    return PartialProduct(exact, bound, cover.design.products)


def extra_bits(freedom: float = FREEDOM_BITS) -> int:
    """Bits by which the scale is raised, so that covered integers are no sparser than integers were."""
    return ceil(freedom)
