"""Search for encodings modulo m with three limbs: five and six products.

    five   planes a, b, c, u, v, the two others small forms (p1·a + p2·b + p3·c)/s. With C the relations of the planes
           (a code [5, 2]) a functional x multiplies by itself in five products iff its kernel is μ∘C for units μ with
           Σ μ_t c_t c'_t = 0 for all c, c' in C: three equations for five μ, so that each pair of forms leaves one
           free parameter, and the coefficients are 1/μ_t. All its values are tried.
    six    planes a, b, c and three small forms whose squares, with a², b², c², span all quadratic forms: then every
           functional x has coefficients, and a + β·b + γ·c is tried for all γ and the smallest β.

More than 225 values need three limbs, and three limbs five products at least (Sylvester); so five products are optimal
for every prime above 225. What is enumerated is the class above, not every encoding: forms with larger coefficients
leave fewer limb vectors.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product
from math import gcd

import numpy as np
import numpy.typing as npt

from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.limbs import Ints, plane_letters
from gemmulate.encodings.search.modular import Rejected, make_encoding, symmetric
from gemmulate.formats import Alphabet, Format

Bools = npt.NDArray[np.bool_]

# Coefficients and divisors of the forms of five products: up to 779 limb vectors; with a 4 among them up to 705.
_SMALL = 3
# The β of six products; where a complete functional exists, one has been found below 40 for every modulus so far.
_MOST_BETAS = 64
# Functionals tried at once: their table of hits is this many times m bytes.
_BLOCK = 512


def _limb_vectors(letters: Ints) -> Ints:
    return np.stack(np.meshgrid(letters, letters, letters, indexing="ij"), axis=-1).reshape(-1, 3)


def _allowed(letters: Ints, m: int) -> Bools:
    table = np.zeros(m, dtype=bool)
    table[letters % m] = True
    return table


def _first_complete(points: Ints, weights: Ints, m: int) -> int | None:
    """The first of the functionals `weights` (count, 3) whose values at the points (n, 3) are all residues mod m."""
    for start in range(0, len(weights), _BLOCK):
        block = weights[start : start + _BLOCK]
        hit = np.zeros((len(block), m), dtype=bool)
        hit[np.arange(len(block))[:, None], block @ points.T % m] = True
        complete = np.flatnonzero(hit.all(axis=1))
        if complete.size:
            return start + int(complete[0])
    return None


@lru_cache(maxsize=1)
def _rational_forms() -> tuple[tuple[int, ...], ...]:
    """(p1, p2, p3, s): forms (p·limbs)/s without a zero, in lowest terms."""
    nonzero = [c for c in range(-_SMALL, _SMALL + 1) if c]
    return tuple((*p, s) for s in range(1, _SMALL + 1) for p in product(nonzero, repeat=3) if gcd(*p, s) == 1)


def _form_pairs(m: int, vectors: Ints, allowed: Bools) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Pairs of forms mod m with the limb vectors they allow, most vectors first, while these are at least m.

    A symmetric alphabet and the order of limbs make the first form's coefficients positive and increasing.
    """
    forms = [f for f in _rational_forms() if gcd(f[3], m) == 1]
    rows = np.array([[c * pow(f[3], -1, m) % m for c in f[:3]] for f in forms], dtype=np.int64)
    masks = allowed[rows @ vectors.T % m]
    leading = [n for n, f in enumerate(forms) if 0 < f[0] <= f[1] <= f[2]]
    # Counts below 2^24 are exact in float32.
    counts = (masks[leading].astype(np.float32) @ masks.T.astype(np.float32)).astype(np.int64)
    order = np.argsort(-counts, axis=None, kind="stable")
    for at in order.tolist():
        i, j = divmod(at, len(forms))
        if counts[i, j] < m:
            return
        yield rows[leading[i]], rows[j], vectors[masks[leading[i]] & masks[j]]


def _self_products(m: int, p: Ints, q: Ints, inverse: Ints) -> tuple[Ints, Ints]:
    """Functionals (count, 3), first weight 1, and coefficients (count, 5) of the planes a, b, c, p, q; maybe none."""
    unit = inverse != 0
    both, cross = p * q % m, np.cross(p, q) % m
    if not (unit[both].all() and unit[cross].all()):
        return np.zeros((0, 3), dtype=np.int64), np.zeros((0, 5), dtype=np.int64)
    second = np.arange(1, m)
    third = -(both[0] + second * both[1]) * inverse[both[2]] % m
    mu = np.stack([np.ones_like(second), second, third], axis=1)
    mu = np.concatenate([mu, (-(mu @ (p * p % m)) % m)[:, None], (-(mu @ (q * q % m)) % m)[:, None]], axis=1)
    lam = inverse[mu[unit[mu].all(axis=1)]]
    weights = cross * lam[:, :3] % m
    scale = (lam[:, 0] + lam[:, 3] * (p[0] * p[0] % m) + lam[:, 4] * (q[0] * q[0] % m)) % m
    kept = unit[scale]
    weights = weights[kept] * inverse[weights[kept, 0]][:, None] % m
    return weights, lam[kept] * inverse[scale[kept]][:, None] % m


def five(m: int, fmt: Format, alphabet: Alphabet) -> Encoding | Rejected:
    """Five products: every pair of small forms, every functional that they multiply."""
    letters = plane_letters(alphabet, m)
    if len(letters) ** 3 < m or alphabet.smallest != -alphabet.largest:
        return Rejected("five", "needs a symmetric alphabet whose triples are as many as the residues")
    inverse = np.array([pow(z, -1, m) if gcd(z, m) == 1 else 0 for z in range(m)], dtype=np.int64)
    most = 0
    for p, q, points in _form_pairs(m, _limb_vectors(letters), _allowed(letters, m)):
        weights, coefficients = _self_products(m, p, q, inverse)
        most = max(most, len(points) if len(weights) else 0)
        at = _first_complete(points, weights, m)
        if at is not None:
            forms = [[1, 0, 0], [0, 1, 0], [0, 0, 1], p.tolist(), q.tolist()]
            return _encoding(m, fmt, alphabet, weights[at], forms, coefficients[at], "five")
    if not most:
        return Rejected("five", f"no pair of forms up to {_SMALL}/{_SMALL} gives a product on {m} limb vectors")
    return Rejected(
        "five", f"of pairs of forms up to {_SMALL}/{_SMALL} ({most} limb vectors) no functional is complete"
    )


def _triples(m: int, vectors: Ints, allowed: Bools) -> list[tuple[Ints, Ints]]:
    """Triples of forms with coefficients −1, 0, 1 whose squares span, and their limb vectors; the most come first."""
    signs = [f for f in product((-1, 0, 1), repeat=3) if np.count_nonzero(f) > 1 and next(c for c in f if c) > 0]
    masks = {f: allowed[vectors @ np.array(f) % m] for f in signs}
    found: dict[int, tuple[Ints, Ints]] = {}
    for triple in combinations(signs, 3):
        forms = np.array(triple, dtype=np.int64)
        if gcd(round(np.linalg.det(_mixed(forms))), m) != 1:
            continue
        points = vectors[masks[triple[0]] & masks[triple[1]] & masks[triple[2]]]
        if len(points) >= m:
            # Equal counts are the same class, but for the signs and the order of limbs, in all cases at hand.
            found.setdefault(len(points), (forms, points))
    return [found[n] for n in sorted(found, reverse=True)]


def _mixed(forms: Ints) -> Ints:
    """Coefficients of ab, ac, bc (up to the factor 2) in the squares of the forms, one column for each."""
    return np.stack([forms[:, 0] * forms[:, 1], forms[:, 0] * forms[:, 2], forms[:, 1] * forms[:, 2]])


def six(m: int, fmt: Format, alphabet: Alphabet) -> Encoding | Rejected:
    """Six products: planes a, b, c and three forms of signs; x = a + β·b + γ·c for all γ and the smallest β."""
    letters = plane_letters(alphabet, m)
    if len(letters) ** 3 < m or alphabet.smallest != -alphabet.largest:
        return Rejected("six", "needs a symmetric alphabet whose triples are as many as the residues")
    triples = _triples(m, _limb_vectors(letters), _allowed(letters, m))
    if not triples:
        return Rejected("six", f"no three forms of signs leave {m} limb vectors")
    gammas = np.arange(m, dtype=np.int64)
    for forms, points in triples:
        for beta in range(1, min(m, _MOST_BETAS + 1)):
            weights = np.stack([np.ones_like(gammas), np.full_like(gammas, beta), gammas], axis=1)
            at = _first_complete(points, weights, m)
            if at is None:
                continue
            coefficients = _squares(m, forms, weights[at])
            if coefficients.all():
                rows = [[1, 0, 0], [0, 1, 0], [0, 0, 1], *forms.tolist()]
                return _encoding(m, fmt, alphabet, weights[at], rows, coefficients, "six")
    return Rejected("six", f"no a + β·b + γ·c with β ≤ {_MOST_BETAS} is complete on three forms of signs")


def _squares(m: int, forms: Ints, w: Ints) -> Ints:
    """λ (6,) with Σ λ_t plane_t² = (w·limbs)² mod m: mixed terms by the forms, by Cramer's rule, then the squares."""
    mixed = _mixed(forms)
    determinant = round(np.linalg.det(mixed))
    target = np.array([w[0] * w[1], w[0] * w[2], w[1] * w[2]]) % m
    lam = []
    for column in range(3):
        replaced = [[int(target[r]) if c == column else int(mixed[r, c]) for c in range(3)] for r in range(3)]
        lam.append(_determinant(replaced) * pow(determinant, -1, m) % m)
    first = [(int(w[i]) ** 2 - sum(v * int(f[i]) ** 2 for v, f in zip(lam, forms, strict=True))) % m for i in range(3)]
    return np.array([*first, *lam], dtype=np.int64)


def _determinant(r: list[list[int]]) -> int:
    (a, b, c), (d, e, f), (g, h, i) = r
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def _encoding(
    m: int, fmt: Format, alphabet: Alphabet, weights: Ints, forms: list[list[int]], coefficients: Ints, search: str
) -> Encoding:
    w = weights.tolist()
    # Forms of small coefficients read best as such; modulo m they come as residues.
    forms = [[symmetric(c, m) for c in row] for row in forms]
    return make_encoding(fmt, m, m, alphabet.max_abs, (w, w), (forms, forms), coefficients.tolist(), search)
