"""Verification: the identity of an encoding, over its whole domain."""

from dataclasses import dataclass

import numpy as np

from gemmulate.blas import finite_matmul
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.limbs import Ints

# Pairs × products above which only the polynomial identity is checked; sig11 × sig11 in 12 planes is 2.0e8.
_MOST_EVALUATIONS = 1 << 32
_BLOCK_PAIRS = 1 << 22


@dataclass(frozen=True, slots=True)
class Certificate:
    """What `verify` found: `valid`, how many pairs were evaluated, the largest planes, and why it failed if so.

    `method` is "exhaustive" (every pair of the domain was evaluated, and the identity holds as polynomials) or
    "polynomial" (every value has limbs, and AᵀΛB = divisor·w_A·w_Bᵀ in exact integers: it holds for all limbs).
    """

    key: str
    valid: bool
    method: str
    pairs: int
    products: int
    plane_max_left: int
    plane_max_right: int
    failure: str = ""

    def __bool__(self) -> bool:
        return self.valid


def verify(encoding: Encoding) -> Certificate:
    """Prove or refute an encoding: shapes, polynomial identity, coverage, alphabets, then every pair of the domain.

    Returns a Certificate, false with a reason when anything fails; never raises for a wrong encoding.

    >>> from gemmulate import encodings
    >>> encodings.verify(encodings.get("int4.int8.fp4_e2m1")).pairs
    4096
    """
    try:
        failure = check_identity(encoding)
        if failure:
            return _failed(encoding, failure)
        return _pairs(encoding)
    except (ValueError, OverflowError) as error:
        return _failed(encoding, str(error))


def check_identity(encoding: Encoding) -> str:
    """The first fault of shapes or polynomial identity, or "": what reading a catalogue file checks."""
    return _shapes(encoding) or _polynomials(encoding)


def _failed(encoding: Encoding, failure: str) -> Certificate:
    return Certificate(encoding.key, False, "refuted", 0, encoding.products, 0, 0, failure)


def _shapes(e: Encoding) -> str:
    products = e.products
    if products < 1:
        return "no products"
    if e.divisor < 1 or (e.modulus and e.divisor != 1):
        return f"divisor = {e.divisor}: positive, and 1 modulo m"
    if any(c == 0 for c in e.coefficients):
        return "a coefficient is 0: that product is not needed"
    for side in ("left", "right"):
        _, weights, planes = e.side(side)
        if len(planes) != products or any(len(row) != len(weights) for row in planes) or not weights:
            return f"planes_{side} is not a {products}×{len(weights)} matrix"
    if e.bound < 1:
        return f"bound = {e.bound}: at least one product is needed"
    if e.bound > products:
        return f"the stated lower bound {e.bound} exceeds the {products} products"
    return ""


def _polynomials(e: Encoding) -> str:
    """AᵀΛB = divisor·w_A·w_Bᵀ, in Python integers (no overflow), modulo m where there is one."""
    for i, wa in enumerate(e.weights_left):
        for j, wb in enumerate(e.weights_right):
            total = sum(c * p[i] * q[j] for c, p, q in zip(e.coefficients, e.planes_left, e.planes_right, strict=True))
            error = total - e.divisor * wa * wb
            if error % e.modulus if e.modulus else error:
                return f"the coefficient of a{i}·b{j} is {total}, not {e.divisor * wa * wb}"
    return ""


def _pairs(e: Encoding) -> Certificate:
    tables = {}
    for side in ("left", "right"):
        domain, _, _ = e.side(side)
        values, _ = e.limbs(side)
        if domain.partial and len(values) != domain.size:
            return _failed(e, f"{len(values)} residues are covered on the {side}, the key says {domain.size}")
        if len(values) < domain.size:
            missing = sorted(set(range(domain.low, domain.high + 1)) - set(values.tolist()))
            return _failed(e, f"{len(missing)} values have no limbs on the {side}, first {missing[0]}")
        tables[side] = (values, e.planes(side))
    (xs, left), (ys, right) = tables["left"], tables["right"]
    peak = [int(np.abs(plane).max(initial=0)) for plane in (left, right)]
    pairs = len(xs) * len(ys)
    method = "exhaustive" if pairs * e.products <= _MOST_EVALUATIONS else "polynomial"
    if method == "exhaustive":
        failure = _evaluate(e, xs, left, ys, right)
        if failure:
            return _failed(e, failure)
    return Certificate(e.key, True, method, pairs if method == "exhaustive" else 0, e.products, peak[0], peak[1])


def _evaluate(e: Encoding, xs: Ints, left: Ints, ys: Ints, right: Ints) -> str:
    """Every pair, in blocks of rows; float64 products where all sums stay below 2^53, int64 otherwise."""
    worst = sum(abs(c) for c in e.coefficients) * int(np.abs(left).max()) * int(np.abs(right).max())
    worst = max(worst, e.divisor * int(np.abs(xs).max()) * int(np.abs(ys).max()))
    if worst >= 1 << 62:
        return "sums of this encoding do not fit 64 bits"
    kind = np.float64 if worst < 1 << 53 else np.int64
    scaled = (np.array(e.coefficients, dtype=np.int64)[:, None] * left).T.astype(kind)
    table = right.astype(kind)
    rows = max(1, _BLOCK_PAIRS // len(ys))
    for start in range(0, len(xs), rows):
        block = finite_matmul(scaled[start : start + rows], table)
        error = block - kind(e.divisor) * xs[start : start + rows, None].astype(kind) * ys[None, :].astype(kind)
        wrong = np.mod(error, e.modulus) != 0 if e.modulus else error != 0
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            return f"x = {xs[start + i]}, y = {ys[j]}: the planes give {int(block[i, j])}"
    return ""
