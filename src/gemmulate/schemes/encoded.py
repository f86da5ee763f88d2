"""Exact integer products through encodings: planes of narrow values, sums within the accumulator's exact depth.

x and y are replaced by planes P_t(x), Q_t(y) whose products a narrow unit computes exactly; Σ λ_t (P_t Q_t) gives the
product, over integers at once or modulo each modulus of a design and then by the Chinese remainder theorem. The
planes run as INT8 on any engine that multiplies INT8 exactly; sums are cut where the format's accumulator would stop
being exact, so a device with that accumulator returns the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, isfinite, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmulate.blas import finite_matmul
from gemmulate.encodings import Catalogue, Design, Encoding, UnknownEncoding, WindowTooLarge, design
from gemmulate.encodings.domain import Domain
from gemmulate.encodings.fold import Fold
from gemmulate.engines.residue_system import symmetric
from gemmulate.formats import FORMATS
from gemmulate.schemes.multiword import Remainders, Words

# Planes of a format: int8, or uint8 where the alphabet is unsigned.
Planes = npt.NDArray[np.int8 | np.uint8]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]
# Sums of products: int32 where that holds them.
Sums = npt.NDArray[np.signedinteger[Any]]
# (left (m, k), right (k, n)), both planes -> their exact product (m, n).
PlaneProduct = Callable[[Planes, Planes], Sums]

# Digits in which wide integers are reduced: float64 holds digits · 2^26 · m/2 exactly, see Digits.residues.
_DIGIT_BITS = 26
# Elements of an operand whose digits, residues and planes are made at once.
_CACHED = 1 << 14


def numpy_product(left: Planes, right: Planes) -> Int64:
    """The exact product of planes by float64 BLAS: |sums| ≤ k·2^16 < 2^53 for every k that fits memory."""
    return finite_matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.int64)


def _plane_type(encoding: Encoding) -> type[np.int8] | type[np.uint8]:
    return np.int8 if encoding.format.signed else np.uint8


@lru_cache(maxsize=512)
def _table(encoding: Encoding, side: str) -> tuple[int, Planes]:
    """First value and plane table (products, values) in bytes, one column per value (uncovered residues: zero)."""
    values, _ = encoding.limbs(side)
    planes = encoding.planes(side)
    domain = encoding.side(side)[0]
    if len(values) != domain.size:
        raise ValueError(f"{encoding.key} reaches {len(values)} of {domain.size} values: `encodings verify` refutes it")
    kind = _plane_type(encoding)
    if planes.max(initial=0) > np.iinfo(kind).max or planes.min(initial=0) < np.iinfo(kind).min:
        raise ValueError(f"the planes of {encoding.key} exceed bytes, as which planes run here; choose another format")
    width = encoding.modulus or domain.size
    first = 0 if encoding.modulus else domain.low
    table: Planes = np.zeros((encoding.products, width), dtype=kind)
    table[:, values - first] = planes
    return first, table


def planes_stored(encoding: Encoding, side: str) -> int:
    """How many different planes of an operand the products read."""
    return len(set(encoding.side(side)[2]))


def planes_of(encoding: Encoding, side: str, values: Int64, out: Planes | None = None) -> Planes:
    """Planes (products, *shape) of integers in the domain (residues in 0 … m − 1), in `out` if given.

    int8, or uint8 where the format is unsigned.
    """
    first, table = _table(encoding, side)
    at = values - first if first else values
    if first and at.size and int(at.min()) < 0:
        # take() would count from the table's end.
        raise IndexError(f"{int(values.min())} lies below the domain of {encoding.key}")
    if out is None:
        out = np.empty((len(table), *values.shape), dtype=table.dtype)
    for row, plane in zip(table, out, strict=True):
        row.take(at, out=plane, mode="clip")
    return out


def _pieces(
    encoding: Encoding, left: Planes, right: Planes, multiply: PlaneProduct, accumulator: str | None
) -> Iterator[tuple[int, Sums]]:
    """(t, product of a piece of the t-th planes): each piece as deep as the accumulator sums exactly, no deeper."""
    depth = encoding.max_depth(accumulator)
    if depth < 1:
        raise ValueError(f"{encoding.key} has no exact sum in {accumulator or encoding.format.accumulator}")
    for start in range(0, left.shape[2], depth):
        for t in range(encoding.products):
            # The unit's accumulator starts at zero for each piece; pieces are added in 64-bit integers.
            yield t, multiply(left[t, :, start : start + depth], right[t, start : start + depth, :])


def exact_sums(
    encoding: Encoding, left: Planes, right: Planes, multiply: PlaneProduct, accumulator: str | None = None
) -> Int64:
    """Plane products (products, m, n), each a sum of pieces that the accumulator holds exactly.

    `left` (products, m, k) and `right` (products, k, n). Raises ValueError when not even one product is exact.
    """
    total = np.zeros((encoding.products, left.shape[1], right.shape[2]), dtype=np.int64)
    for t, piece in _pieces(encoding, left, right, multiply, accumulator):
        total[t] += piece
    return total


def _weighted_sum(
    encoding: Encoding,
    weights: Sequence[int],
    left: Planes,
    right: Planes,
    multiply: PlaneProduct,
    accumulator: str | None,
) -> Sums | None:
    """Σ_t weights_t · P_t Q_t (m, n) from pieces as in `exact_sums`; None where 64 bits might not hold it."""
    bound = sum(map(abs, weights)) * encoding.alphabet.max_abs**2 * left.shape[2]
    if bound >> 63:
        return None
    dtype: np.dtype[np.signedinteger[Any]] = np.dtype(np.int64 if bound >> 31 else np.int32)
    total = np.zeros((left.shape[1], right.shape[2]), dtype=dtype)
    for t, piece in _pieces(encoding, left, right, multiply, accumulator):
        part = piece.astype(dtype, copy=False)
        part *= weights[t]
        total += part
    return total


def multiply_direct(
    a: Int64, b: Int64, encoding: Encoding, multiply: PlaneProduct = numpy_product, accumulator: str | None = None
) -> Int64 | Objects:
    """The exact product of integers in an encoding's ranges, a (m, k), b (k, n): int64, or Python ints if wider.

    >>> from gemmulate import encodings
    >>> e = encodings.get("int8.int8.fp4_e2m1")
    >>> multiply_direct(np.array([[-128, 127]]), np.array([[-128], [127]]), e).tolist()
    [[32513]]
    """
    left, right = planes_of(encoding, "left", a), planes_of(encoding, "right", b)
    total = _weighted_sum(encoding, encoding.coefficients, left, right, multiply, accumulator)
    if total is not None:
        return np.asarray((total if encoding.divisor == 1 else total // encoding.divisor).astype(np.int64))
    wide = np.zeros((a.shape[0], b.shape[1]), dtype=object)
    for t, piece in _pieces(encoding, left, right, multiply, accumulator):
        wide += encoding.coefficients[t] * piece.astype(object)
    return np.asarray(wide // encoding.divisor)


@dataclass(frozen=True)
class Digits:
    """Integers (vectors, depth) as signed digits of 26 bits, least first, in float64: what residues are taken of."""

    digits: tuple[Float64, ...]

    @classmethod
    def of_integers(cls, x: npt.NDArray[np.int64] | npt.NDArray[np.uint64] | Objects) -> Digits:
        """Split int64, uint64 or Python integers of any size."""
        rest, digits = x.astype(object) if x.dtype.kind in "Ou" else x.astype(np.int64), []
        while True:
            low = rest & ((1 << _DIGIT_BITS) - 1)
            rest = rest >> _DIGIT_BITS
            digits.append(low.astype(np.float64))
            if not np.any((rest != 0) & (rest != -1)):
                # The last step is −1 or 0 everywhere: it goes into the leading digit as its sign.
                digits[-1] += np.ldexp(rest.astype(np.float64), _DIGIT_BITS)
                return cls(tuple(digits))

    @classmethod
    def of_scaled(cls, x: Float64, bits: int) -> tuple[Digits, npt.NDArray[np.bool_]]:
        """rint(x) for |x| ≤ 2^bits by exact float64 steps, and where it differs from x."""
        digits: list[Float64] = []
        rest = x
        for d in reversed(range(bits // _DIGIT_BITS + 1)):
            # Scaling by powers of two is exact: nothing here is near the ends of float64's range.
            q = np.rint(rest * 2.0 ** (-_DIGIT_BITS * d))
            rest = rest - q * 2.0 ** (_DIGIT_BITS * d)
            digits.insert(0, q)
        return cls(tuple(digits)), np.asarray(rest != 0)

    @property
    def shape(self) -> tuple[int, int]:
        return self.digits[0].shape[0], self.digits[0].shape[1]

    @cached_property
    def largest_norm(self) -> float:
        """An upper bound of the largest Euclidean norm of a vector; infinite where float64 overflows."""
        with np.errstate(over="ignore"):
            # Each |x| errs by less than 2^-50 of itself, the sum of k squares by k·2^-53: 2^-20 covers both.
            value = self.digits[-1]
            for d in reversed(self.digits[:-1]):
                value = np.abs(value) * 2.0**_DIGIT_BITS + np.abs(d)
            square = np.einsum("ij,ij->i", value, value).max(initial=0.0)
        return float(np.sqrt(square) * (1 + 2.0**-20))

    def residues(self, m: int) -> Int64:
        """Residues in 0 … m − 1."""
        if m * len(self.digits) >> 25:
            raise ValueError(f"m = {m} with {len(self.digits)} digits of {_DIGIT_BITS} bits: sums exceed 2^51")
        powers = [float(symmetric(pow(2, _DIGIT_BITS * d, m), m)) for d in range(len(self.digits))]
        total = self.digits[0] * powers[0]
        turns = np.empty_like(total)
        for digit, power in zip(self.digits[1:], powers[1:], strict=True):
            total += np.multiply(digit, power, out=turns)
        # x + 1/2 is at least 1/(2m) from a multiple of m once divided by it, and |x| < 2^51 errs by less than that:
        # the quotient is exact.
        np.add(total, 0.5, out=turns)
        turns *= 1.0 / m
        np.floor(turns, out=turns)
        turns *= m
        total -= turns
        return total.astype(np.int64)

    def parts(self) -> Iterator[tuple[slice, Digits]]:
        """The vectors in groups whose digits stay in a second-level cache."""
        vectors, depth = self.shape
        step = max(1, _CACHED // max(1, depth))
        for start in range(0, vectors, step):
            rows = slice(start, min(vectors, start + step))
            yield rows, Digits(tuple(d[rows] for d in self.digits))


def modulo(x: Sums, m: int) -> Sums:
    """x mod m in 0 … m − 1. By floor division, which NumPy vectorises for a scalar, unlike the remainder."""
    return np.asarray(x - x // m * m)


@dataclass(frozen=True)
class EncodedOperand:
    """Planes of one operand for each modulus of a design: (products, vectors, depth), in bytes."""

    design: Design
    planes: tuple[Planes, ...]
    left: bool

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.planes)


def prepare(digits: Digits, chosen: Design, left: bool) -> EncodedOperand:
    """Residues and planes of an operand (vectors, depth): the deconstruction, reusable for many products."""
    side = "left" if left else "right"
    planes = tuple(np.empty((e.products, *digits.shape), dtype=_plane_type(e)) for e in chosen.encodings)
    for rows, part in digits.parts():
        for e, out in zip(chosen.encodings, planes, strict=True):
            planes_of(e, side, part.residues(e.modulus or 0), out[:, rows])
    return EncodedOperand(chosen, planes, left)


def multiply_prepared(left: EncodedOperand, right: EncodedOperand, multiply: PlaneProduct = numpy_product) -> Words:
    """The exact integer product (m, n) of prepared operands (m, k) and (n, k).

    Exact while every true element is below half the product of the moduli: the design's window guarantees it.
    """
    if not left.left or right.left or left.design is not right.design:
        raise ValueError("prepare the left and the right operand with one design")
    system = Remainders.of(left.design.moduli)
    shape = left.planes[0].shape[1], right.planes[0].shape[1]
    digits = np.empty((len(system.moduli), *shape), dtype=np.uint16)
    for i, (e, p, q) in enumerate(zip(left.design.encodings, left.planes, right.planes, strict=True)):
        m, accumulator = system.moduli[i], left.design.rates.accumulator(e.format.name)
        # The remainder's inverse goes into the coefficients: sums come out as digits.
        weights = [symmetric(c * system.inverses[i], m) for c in e.coefficients]
        turned = q.transpose(0, 2, 1)
        total = _weighted_sum(e, weights, p, turned, multiply, accumulator)
        if total is None:
            total = np.zeros(shape, dtype=np.int64)
            for t, piece in _pieces(e, p, turned, multiply, accumulator):
                total += modulo(piece.astype(np.int64), m) * weights[t]
        digits[i] = modulo(total, m)
    return system.recombine(digits)


@lru_cache(maxsize=256)
def design_for_window(window: int, formats: tuple[str, ...]) -> Design:
    """The cheapest full-cover design of these formats whose moduli exceed a window."""
    return design(formats=formats, window=window)


@lru_cache(maxsize=64)
def reach_bits(formats: tuple[str, ...]) -> int:
    """Bits, sign included, of the widest integers that these formats' moduli determine, whatever the operands."""
    try:
        design_for_window(1 << 4096, formats)
    except WindowTooLarge as error:
        return int(error.reach_bits) - 1  # `window_of` rounds up to the next quarter of a bit
    raise AssertionError("a catalogue of finitely many moduli covers any window")


def window_of(left: Digits, right: Digits, most: int) -> int:
    """A window for the product of these operands: 2·‖a_i‖·‖b_j‖ (Cauchy–Schwarz), at most `most`.

    Rounded up to the next quarter of a bit, so that blocks of one product share few designs.
    """
    bound = 2 * left.largest_norm * right.largest_norm
    if not isfinite(bound):
        return most
    quarters = ceil(4 * log2(max(bound, 1.0)) + 2.0**-20)
    # 2^(quarters/4), its fraction rounded up in units of 2^-40.
    mantissa = ceil(2.0 ** (quarters % 4 / 4 + 40)) + 1
    return int(min(most, (mantissa << quarters // 4 >> 40) + 4))


@lru_cache(maxsize=256)
def direct_for_ranges(left: tuple[int, int], right: tuple[int, int], formats: tuple[str, ...]) -> Encoding | None:
    """The catalogue's direct encoding with fewest products whose ranges hold these, with int8 planes; or None."""
    best: Encoding | None = None
    catalogue = Catalogue()
    for name in formats:
        for key in catalogue.keys(name):
            if key.startswith("mod"):
                continue
            stored = catalogue.get(key)
            for e in {stored, stored.transposed()}:
                if _holds(e.left, left) and _holds(e.right, right) and (best is None or e.products < best.products):
                    best = e
    return best


def _holds(domain: Domain, values: tuple[int, int]) -> bool:
    return domain.low <= values[0] and values[1] <= domain.high


@lru_cache(maxsize=64)
def _has_residues(name: str) -> bool:
    return any(key.startswith("mod") for key in Catalogue().keys(name))


def check_formats(formats: str | Sequence[str]) -> tuple[str, ...]:
    """Different format names for which the catalogue has residue encodings; an error says which names there are."""
    if isinstance(formats, bytes) or not isinstance(formats, Iterable):
        raise TypeError(f'formats = {formats!r}: name formats as in "fp4_e2m1,fp8_e4m3" or ["fp4_e2m1", "fp8_e4m3"]')
    listed = formats.split(",") if isinstance(formats, str) else formats
    names = tuple(dict.fromkeys(n.strip() if isinstance(n, str) else n for n in listed))
    for name in names:
        if not _has_residues(name):
            have = ", ".join(n for n in FORMATS if _has_residues(n))
            raise UnknownEncoding(f"formats = {name!r}: the catalogue has no residue encodings over it; choose {have}")
    if not names:
        raise ValueError("formats is empty: name at least one, e.g. fp4_e2m1")
    return names


def multiply_folded(a: Int64, b: Int64, encoding: Encoding, folded: Fold) -> Objects:
    """The exact product (modulo m: residues in 0 … m − 1) with all planes in one accumulator, as Python ints.

    a (m, k), b (k, n) in the encoding's domains. Runs of one block along k hold one plane each, as a block-scaled
    unit reads them; every accumulator starts anew after `max_depth` and never exceeds FP32's 2^24.
    """
    if folded.max_depth < 1:
        raise ValueError(f"{encoding.key} folded into {folded.block_format} has no exact sum in fp32")
    left = planes_of(encoding, "left", a).astype(np.float64) * np.array(folded.signs)[:, None, None]
    right = planes_of(encoding, "right", b).astype(np.float64)
    depth = max(folded.block, folded.max_depth // folded.block * folded.block)
    depth = min(depth, folded.max_depth)
    total = np.zeros((a.shape[0], b.shape[1]), dtype=object)
    for start in range(0, a.shape[1], depth):
        # Plane after plane along k: one product of depth products · (depth of this piece).
        p = np.concatenate([plane[:, start : start + depth] * s for plane, s in zip(left, folded.left, strict=True)], 1)
        q = np.concatenate([plane[start : start + depth] * s for plane, s in zip(right, folded.right, strict=True)], 0)
        total += finite_matmul(p, q).astype(np.int64).astype(object)
    if encoding.modulus:
        return np.asarray(total * pow(folded.factor, -1, encoding.modulus) % encoding.modulus)
    return np.asarray(total // (folded.factor * encoding.divisor))
