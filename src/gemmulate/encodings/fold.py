"""Scale-folded reconstruction: coefficients in the block scales, so that one accumulator receives Σ λ_t P_t Q_t.

In a block-scaled format each run of `block` elements along k has a scale on either side. Plane t is laid out in runs
of its own with scales s_t and s'_t, s_t·s'_t = |λ_t| (the sign goes into the left plane), and all planes are
concatenated along k: one product, one accumulator, one output to read back instead of one per plane.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from gemmulate import formats
from gemmulate.encodings.encoding import Encoding

# Multipliers tried for a common factor of all coefficients; integer encodings rarely need more than a few.
_LARGEST_FACTOR = 64


@dataclass(frozen=True, slots=True)
class Fold:
    """Scales per product; Σ_t sign_t·left_t·right_t·P_t·Q_t = factor·divisor·x·y (modulo m: ≡ factor·x·y).

    `max_depth` is the largest k (of the wide product) that one FP32 accumulator sums exactly:
    floor(2^24 / Σ_t left_t·right_t·max|P_t|·max|Q_t|).
    """

    key: str
    block_format: str
    block: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    signs: tuple[int, ...]
    factor: int
    max_depth: int


def fold(encoding: Encoding, block_format: str = "nvfp4") -> Fold:
    """The deepest folding of an encoding's coefficients into the scales of a block format.

    Modulo m any unit factor and any representative of a coefficient will do; over the integers a common factor.
    Raises ValueError when the elements differ or a coefficient is no product of two scales.

    >>> from gemmulate import encodings
    >>> f = fold(encodings.get("mod13.fp4_e2m1"))
    >>> f.left, f.right, f.factor
    ((1,), (1,), 1)
    """
    block = formats.get_block(block_format)
    if block.element.name != encoding.format.name:
        raise ValueError(
            f"{block_format} holds {block.element.name}, {encoding.key} has planes of {encoding.format.name}"
        )
    products = _products(block_format)
    peaks = [
        int(abs(p).max()) * int(abs(q).max())
        for p, q in zip(encoding.planes("left"), encoding.planes("right"), strict=True)
    ]
    best: tuple[int, int, list[int]] | None = None
    m = encoding.modulus
    factors = range(1, m) if m else range(1, _LARGEST_FACTOR + 1)
    for factor in factors:
        if m and gcd(factor, m) > 1:
            continue
        values = [_representative(c * factor, m, products) for c in encoding.coefficients]
        if all(v is not None for v in values):
            whole = [v for v in values if v is not None]
            total = sum(abs(v) * peak for v, peak in zip(whole, peaks, strict=True))
            if best is None or total < best[0]:
                best = (total, factor, whole)
    if best is None:
        bad = next((c for c in encoding.coefficients if abs(c) not in products), encoding.coefficients[0])
        raise ValueError(
            f"{encoding.key} cannot be folded into {block_format}: coefficient {bad} (and its multiples up to "
            f"{_LARGEST_FACTOR}) is no product of two scales; use an encoding modulo m or recombine outside"
        )
    total, factor, whole = best
    split = [products[abs(v)] for v in whole]
    return Fold(
        encoding.key,
        block_format,
        block.block,
        tuple(s for s, _ in split),
        tuple(s for _, s in split),
        tuple(1 if v > 0 else -1 for v in whole),
        factor,
        formats.accumulator("fp32").sum_limit() // total,
    )


@lru_cache(maxsize=8)
def _products(block_format: str) -> dict[int, tuple[int, int]]:
    """Every product of two whole scales below 2^16 with its most even split."""
    scales = [s for s in formats.get_block(block_format).scales if s < 1 << 16]
    table: dict[int, tuple[int, int]] = {}
    for s in scales:
        for t in scales:
            if s * t < 1 << 16 and (s * t not in table or max(s, t) < max(table[s * t])):
                table[s * t] = (s, t)
    return table


def _representative(value: int, m: int | None, products: dict[int, tuple[int, int]]) -> int | None:
    """The smallest magnitude congruent to value (value itself over the integers) that two scales multiply to."""
    if m is None:
        return value if abs(value) in products else None
    residue = value % m
    candidates = sorted((residue + j * m for j in range(-3, 3)), key=abs)
    return next((c for c in candidates if abs(c) in products), None)
