"""Search for encodings modulo m: one, two, three, four and six products, two limbs or nilpotent ones.

Every class is exhaustive over its parameters, so the search needs no seed and gives the same result everywhere:

    one      x ≡ a                                    1 product
    split    x by the Chinese remainder of coprime factors (orthogonal idempotents)
    square   x = a + g·b with g² ≡ 0 (mod m): the b·b' term vanishes        3 products
    pair     x = a + β·b with a third plane p·a + q·b                       3 products
    school   x = a + β·b, all four limb products                            4 products
    cube     x = a + g·b + g²·c with g³ ≡ 0 (mod m)                         6 products

Five and six products of three limbs modulo any m: `search.three_limbs`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, isqrt

import numpy as np

from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.limbs import Ints, plane_letters
from gemmulate.formats import Alphabet, Format


@dataclass(frozen=True, slots=True)
class Rejected:
    """A class that gives no encoding of this modulus, and the named reason."""

    search: str
    reason: str


def symmetric(value: int, m: int) -> int:
    """The representative of value mod m in (−m/2, m/2]."""
    value %= m
    return value - m if 2 * value > m else value


def make_encoding(
    fmt: Format,
    m: int,
    covered: int,
    plane_max: int,
    weights: tuple[list[int], list[int]],
    planes: tuple[list[list[int]], list[list[int]]],
    coefficients: list[int],
    search: str,
) -> Encoding:
    """An encoding modulo m (not yet verified) from weights, plane forms and coefficients, all reduced to symmetric."""
    name = f"mod{m}" if covered == m else f"mod{m}c{covered}"
    return Encoding(
        key=f"{name}.{fmt.name}",
        weights_left=tuple(symmetric(w, m) for w in weights[0]),
        weights_right=tuple(symmetric(w, m) for w in weights[1]),
        planes_left=tuple(map(tuple, planes[0])),
        planes_right=tuple(map(tuple, planes[1])),
        coefficients=tuple(symmetric(c, m) for c in coefficients),
        plane_max=plane_max,
        provenance={"search": search},
    )


def one_product(m: int, fmt: Format, alphabet: Alphabet, *, partial: bool = False) -> Encoding | Rejected:
    """x ≡ a with the smallest plane_max that reaches all residues, or (partial) as many as the alphabet can."""
    reached = np.unique(alphabet.array() % m).size
    if reached < m and not partial:
        return Rejected("one", f"the alphabet reaches {reached} of {m} residues")
    bound = next(b for b in range(alphabet.max_abs + 1) if np.unique(alphabet.limited(b).array() % m).size == reached)
    return make_encoding(fmt, m, reached, bound, ([1], [1]), ([[1]], [[1]]), [1], "one")


def _complete(alphabet: Alphabet, m: int) -> bool:
    return np.unique(alphabet.array() % m).size == m


def square(m: int, fmt: Format, alphabet: Alphabet) -> Encoding | Rejected:
    """x = a + g·b: a·a' + g·(a·b' + b·a'), since g² vanishes; a must be complete mod g, b mod m/g."""
    for g in range(isqrt(m), m):
        if m % g == 0 and g * g % m == 0 and _complete(alphabet, g) and _complete(alphabet, m // g):
            left, right = [[1, 0], [1, 0], [0, 1]], [[1, 0], [0, 1], [1, 0]]
            return make_encoding(fmt, m, m, alphabet.max_abs, ([1, g], [1, g]), (left, right), [1, g, g], "square")
    return Rejected("square", "no g with g² ≡ 0 whose two limbs are complete")


def cube(m: int, fmt: Format, alphabet: Alphabet) -> Encoding | Rejected:
    """x = a + g·b + g²·c with m = g³: the terms of g³ and above vanish, six products stay."""
    g = round(m ** (1 / 3))
    if g**3 != m or not _complete(alphabet, g):
        return Rejected("cube", "m is no cube of a modulus that one plane completes")
    left = [[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    right = [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    weights = [1, g, g * g]
    coefficients = [1, g, g, g * g, g * g, g * g]
    return make_encoding(fmt, m, m, alphabet.max_abs, (weights, weights), (left, right), coefficients, "cube")


def _cover_counts(points: Ints, m: int) -> Ints:
    """For β = 0 … m−1 the number of residues that a + β·b reaches over the points (n, 2)."""
    betas = np.arange(m, dtype=np.int64)
    values = (points[:, 0][:, None] + points[:, 1][:, None] * betas[None, :]) % m
    hit = np.zeros((m, m), dtype=bool)
    hit[np.broadcast_to(betas, values.shape), values] = True
    return np.asarray(hit.sum(axis=1))


def pair_forms(m: int, alphabet: Alphabet, small: int | None) -> Iterator[tuple[int, int, Ints]]:
    """Third planes p·a + q·b with the limb pairs (n, 2) they allow, most pairs first.

    `small` limits |p| and |q|; None takes all of Z_m. A symmetric alphabet absorbs the third plane's sign: p > 0 there.
    """
    letters = plane_letters(alphabet, m)
    allowed = np.zeros(m, dtype=bool)
    allowed[letters % m] = True
    a, b = (grid.ravel() for grid in np.meshgrid(letters, letters, indexing="ij"))
    top = m // 2 if small is None else min(small, m // 2)
    counted = []
    mirrored = range(1, top + 1) if alphabet.smallest == -alphabet.largest else [*range(1, top + 1), *range(-top, 0)]
    for p in mirrored:
        for q in range(1, top + 1):
            for sign in (-1, 1):
                mask = allowed[(p * a + sign * q * b) % m]
                counted.append((-int(mask.sum()), abs(p) + q, p, sign * q))
    for _, _, p, q in sorted(counted):
        mask = allowed[(p * a + q * b) % m]
        yield p, q, np.stack([a[mask], b[mask]], axis=1)


def _third_coefficient(m: int, p: int, q: int, beta: int) -> int | None:
    """λ3 with λ3·p·q ≡ β (mod m) that leaves all three coefficients nonzero; None when there is none."""
    g = gcd(p * q, m)
    if beta % g:
        return None
    base = beta // g * pow(p * q // g, -1, m // g) if m > g else 0
    for third in range(base % (m // g), m, m // g):
        if third and (1 - third * p * p) % m and (beta * beta - third * q * q) % m:
            return third
    return None


def pair(
    m: int, fmt: Format, alphabet: Alphabet, *, small: int | None = None, partial: bool = False
) -> Encoding | Rejected:
    """x = a + β·b with planes a, b, p·a + q·b: λ3·p·q = β, λ1 = 1 − λ3·p², λ2 = β² − λ3·q².

    Exhaustive over p, q (or |p|, |q| ≤ small) and all β. With `partial` the largest cover is returned.
    """
    if len(plane_letters(alphabet, m)) ** 2 < m and not partial:
        return Rejected("pair", f"two limbs of {len(alphabet)} letters are fewer pairs than {m} residues")
    best: tuple[int, int, int, int, int] | None = None
    for p, q, points in pair_forms(m, alphabet, small):
        wanted = m if not partial else best[0] + 1 if best else 1
        if len(points) < wanted:
            break
        counts = _cover_counts(points, m)
        for beta in np.argsort(-counts, kind="stable").tolist():
            if counts[beta] < wanted:
                break
            third = _third_coefficient(m, p, q, beta)
            if third is not None:
                best = (int(counts[beta]), p, q, beta, third)
                break
        if best and best[0] == m:
            break
    if best is None:
        return Rejected("pair", f"no third plane p·a + q·b leaves limb pairs that reach all {m} residues")
    covered, p, q, beta, third = best
    planes = [[1, 0], [0, 1], [p, q]]
    coefficients = [1 - third * p * p, beta * beta - third * q * q, third]
    return make_encoding(
        fmt, m, covered, alphabet.max_abs, ([1, beta], [1, beta]), (planes, planes), coefficients, "pair"
    )


def schoolbook(m: int, fmt: Format, alphabet: Alphabet, *, partial: bool = False) -> Encoding | Rejected:
    """x = a + β·b with all four limb products: the smallest β for which a + β·b reaches most (all) residues."""
    letters = plane_letters(alphabet, m)
    if len(letters) ** 2 < m and not partial:
        return Rejected("school", f"{len(letters)}² limb pairs are fewer than {m} residues")
    a, b = (grid.ravel() for grid in np.meshgrid(letters, letters, indexing="ij"))
    counts = _cover_counts(np.stack([a, b], axis=1), m)
    covered, beta = int(counts.max()), int(counts.argmax())
    if covered < m and not partial:
        return Rejected("school", f"a + β·b reaches at most {covered} of {m} residues")
    left, right = [[1, 0], [1, 0], [0, 1], [0, 1]], [[1, 0], [0, 1], [1, 0], [0, 1]]
    weights = [1, beta]
    return make_encoding(
        fmt, m, covered, alphabet.max_abs, (weights, weights), (left, right), [1, beta, beta, beta * beta], "school"
    )


def split(m: int, fmt: Format, parts: tuple[Encoding, Encoding]) -> Encoding:
    """Chinese remainder of two coprime moduli: their idempotents are orthogonal, so no mixed term is left."""
    first, second = parts
    m1, m2 = first.modulus or 0, second.modulus or 0
    e1, e2 = m2 * pow(m2, -1, m1) % m, m1 * pow(m1, -1, m2) % m
    weights, planes = [], []
    for side in ("left", "right"):
        _, w1, p1 = first.side(side)
        _, w2, p2 = second.side(side)
        weights.append([e1 * w for w in w1] + [e2 * w for w in w2])
        planes.append([[*row, *([0] * len(w2))] for row in p1] + [[*([0] * len(w1)), *row] for row in p2])
    coefficients = [e1 * c for c in first.coefficients] + [e2 * c for c in second.coefficients]
    bound = max(first.plane_max or 0, second.plane_max or 0)
    return make_encoding(fmt, m, m, bound, (weights[0], weights[1]), (planes[0], planes[1]), coefficients, "split")
