"""Exact integer products through encodings: planes of narrow values, sums within the accumulator's exact depth.

x and y are replaced by planes P_t(x), Q_t(y) whose products a narrow unit computes exactly; Σ λ_t (P_t Q_t) gives the
product, over integers at once or modulo each modulus of a design and then by the Chinese remainder theorem. The
planes run as INT8 on any engine that multiplies INT8 exactly; sums are cut where the format's accumulator would stop
being exact, so a device with that accumulator returns the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, isfinite, log2, prod

import numpy as np
import numpy.typing as npt

from gemmulate.encodings import Catalogue, Design, Encoding, UnknownEncoding, WindowTooLarge, design
from gemmulate.encodings.domain import Domain
from gemmulate.encodings.fold import Fold

Int8 = npt.NDArray[np.int8]
Int64 = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]
# (left (m, k), right (k, n)), both int8 -> their exact product, int64 (m, n).
PlaneProduct = Callable[[Int8, Int8], Int64]

# Digits in which wide integers are reduced: 2^26 · (m − 1) · digits stays below 2^53 for m < 2^12.
_DIGIT_BITS = 26


def numpy_product(left: Int8, right: Int8) -> Int64:
    """The exact product of int8 planes by float64 BLAS: |sums| ≤ k·2^14 < 2^53 for every k that fits memory."""
    return np.asarray((left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64))


@lru_cache(maxsize=512)
def _table(encoding: Encoding, side: str) -> tuple[int, Int8]:
    """First value and plane table (products, values) as int8, one column per value (uncovered residues: zero)."""
    values, _ = encoding.limbs(side)
    planes = encoding.planes(side)
    if planes.max(initial=0) > 127 or planes.min(initial=0) < -128:
        raise ValueError(f"the planes of {encoding.key} exceed int8, as which planes run here; choose a signed format")
    domain = encoding.side(side)[0]
    width = encoding.modulus or domain.size
    first = 0 if encoding.modulus else domain.low
    table = np.zeros((encoding.products, width), dtype=np.int8)
    table[:, values - first] = planes
    return first, table


def planes_of(encoding: Encoding, side: str, values: Int64) -> Int8:
    """Planes (products, *shape) of integers in the domain (residues in 0 … m − 1), as int8."""
    first, table = _table(encoding, side)
    return np.asarray(table[:, values - first])


def exact_sums(
    encoding: Encoding, left: Int8, right: Int8, multiply: PlaneProduct, accumulator: str | None = None
) -> Int64:
    """Plane products (products, m, n), each a sum of pieces that the accumulator holds exactly.

    `left` (products, m, k) and `right` (products, k, n). Raises ValueError when not even one product is exact.
    """
    depth = encoding.max_depth(accumulator)
    if depth < 1:
        raise ValueError(f"{encoding.key} has no exact sum in {accumulator or encoding.format.accumulator}")
    k = left.shape[2]
    total = np.zeros((encoding.products, left.shape[1], right.shape[2]), dtype=np.int64)
    for start in range(0, k, depth):
        for t in range(encoding.products):
            # The unit's accumulator starts at zero for each piece; pieces are added in 64-bit integers.
            total[t] += multiply(left[t, :, start : start + depth], right[t, start : start + depth, :])
    return total


def multiply_direct(
    a: Int64, b: Int64, encoding: Encoding, multiply: PlaneProduct = numpy_product, accumulator: str | None = None
) -> Objects:
    """The exact product of integers in an encoding's ranges, a (m, k), b (k, n), as Python ints (m, n).

    >>> from gemmulate import encodings
    >>> e = encodings.get("int8.int8.fp4_e2m1")
    >>> multiply_direct(np.array([[-128, 127]]), np.array([[-128], [127]]), e).tolist()
    [[32513]]
    """
    sums = exact_sums(encoding, planes_of(encoding, "left", a), planes_of(encoding, "right", b), multiply, accumulator)
    total = np.zeros(sums.shape[1:], dtype=object)
    for coefficient, plane in zip(encoding.coefficients, sums, strict=True):
        total += coefficient * plane.astype(object)
    return np.asarray(total // encoding.divisor)


@dataclass(frozen=True)
class Digits:
    """Integers (vectors, depth) as signed digits of 26 bits, least first: what residues are taken of."""

    digits: tuple[Int64, ...]

    @classmethod
    def of_integers(cls, x: npt.NDArray[np.int64] | npt.NDArray[np.uint64] | Objects) -> Digits:
        """Split int64, uint64 or Python integers of any size."""
        rest, digits = x.astype(object) if x.dtype.kind in "Ou" else x.astype(np.int64), []
        while True:
            low = rest & ((1 << _DIGIT_BITS) - 1)
            rest = rest >> _DIGIT_BITS
            digits.append(low.astype(np.int64))
            if not np.any((rest != 0) & (rest != -1)):
                # The last step is −1 or 0 everywhere: it goes into the leading digit as its sign.
                digits[-1] += rest.astype(np.int64) << _DIGIT_BITS
                return cls(tuple(digits))

    @classmethod
    def of_scaled(cls, x: npt.NDArray[np.float64], bits: int) -> tuple[Digits, npt.NDArray[np.bool_]]:
        """rint(x) for |x| ≤ 2^bits by exact float64 steps, and where it differs from x."""
        digits: list[Int64] = []
        rest = x
        for d in reversed(range(bits // _DIGIT_BITS + 1)):
            q = np.rint(np.ldexp(rest, -_DIGIT_BITS * d))
            rest = rest - np.ldexp(q, _DIGIT_BITS * d)
            digits.insert(0, q.astype(np.int64))
        return cls(tuple(digits)), np.asarray(rest != 0)

    @cached_property
    def largest_norm(self) -> float:
        """An upper bound of the largest Euclidean norm of a vector; infinite where float64 overflows."""
        with np.errstate(over="ignore"):
            # Each |x| errs by less than 2^-50 of itself, the sum of k squares by k·2^-53: 2^-20 covers both.
            value = sum(np.ldexp(np.abs(d).astype(np.float64), _DIGIT_BITS * i) for i, d in enumerate(self.digits))
            square = (np.asarray(value) ** 2).sum(axis=1).max(initial=0.0)
        return float(np.sqrt(square) * (1 + 2.0**-20))

    def residues(self, m: int) -> Int64:
        """Residues in 0 … m − 1."""
        total = np.zeros(self.digits[0].shape, dtype=np.int64)
        for d, digit in enumerate(self.digits):
            total += digit * pow(2, _DIGIT_BITS * d, m) % m
        return np.asarray(total % m)


def recombine(residues: Sequence[Int64], moduli: Sequence[int]) -> Objects:
    """The integers in (−P/2, P/2] with these residues, as Python ints; P is the product of the moduli."""
    whole = prod(moduli)
    total = np.zeros(residues[0].shape, dtype=object)
    for residue, m in zip(residues, moduli, strict=True):
        part = whole // m
        digit = residue * pow(part, -1, m) % m
        total += digit.astype(object) * part
    total %= whole
    return np.asarray(np.where(2 * total > whole, total - whole, total))


@dataclass(frozen=True)
class EncodedOperand:
    """Planes of one operand for each modulus of a design: (products, vectors, depth), int8."""

    design: Design
    planes: tuple[Int8, ...]
    left: bool

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.planes)


def prepare(digits: Digits, chosen: Design, left: bool) -> EncodedOperand:
    """Residues and planes of an operand (vectors, depth): the deconstruction, reusable for many products."""
    side = "left" if left else "right"
    planes = tuple(planes_of(e, side, digits.residues(e.modulus or 0)) for e in chosen.encodings)
    return EncodedOperand(chosen, planes, left)


def multiply_prepared(left: EncodedOperand, right: EncodedOperand, multiply: PlaneProduct = numpy_product) -> Objects:
    """The exact integer product (m, n) of prepared operands (m, k) and (n, k), as Python ints.

    Exact while every true element is below half the product of the moduli: the design's window guarantees it.
    """
    if not left.left or right.left or left.design is not right.design:
        raise ValueError("prepare the left and the right operand with one design")
    residues = []
    for e, p, q in zip(left.design.encodings, left.planes, right.planes, strict=True):
        m = e.modulus or 0
        accumulator = left.design.rates.accumulator(e.format.name)
        sums = exact_sums(e, p, q.transpose(0, 2, 1), multiply, accumulator)
        total = np.zeros(sums.shape[1:], dtype=np.int64)
        for coefficient, plane in zip(e.coefficients, sums, strict=True):
            total += coefficient * (plane % m)
        residues.append(total % m)
    return recombine(residues, left.design.moduli)


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


def check_formats(formats: str | Sequence[str]) -> tuple[str, ...]:
    """Format names for which the catalogue has residue encodings; ValueError names them otherwise."""
    names = tuple(n.strip() for n in formats.split(",")) if isinstance(formats, str) else tuple(formats)
    catalogue = Catalogue()
    for name in names:
        if not any(key.startswith("mod") for key in catalogue.keys(name)):
            raise UnknownEncoding(f"formats = {name!r}: the catalogue has no residue encodings over it")
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
        total += (p @ q).astype(np.int64).astype(object)
    if encoding.modulus:
        return np.asarray(total * pow(folded.factor, -1, encoding.modulus) % encoding.modulus)
    return np.asarray(total // (folded.factor * encoding.divisor))
