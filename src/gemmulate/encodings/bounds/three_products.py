"""How far three products reach: ranges for which no encoding over a small symmetric alphabet has three products.

Three products force plane spans U, V of dimension 2 in Q³ when one plane does not suffice (Sylvester), and both have
relations c·l = 0 without a zero (`bounds.lower`, "pairs", holds over Q as modulo a prime). If X has more values than
the alphabet has letters, two points of U that stand for values of X share a letter, so every ratio of c is in
(S − S)/(S − S): finitely many planes. x is a linear functional on U; S = −S, so it takes every value of −N … N with
N the largest magnitude in X. Modulo a prime q > 2N its values are scaled residues of −N … N; each functional modulo q
and each scale is lifted to the rationals from two independent points, as all choices of one point per value contain
such a pair, and checked. Degenerate lattices, whose points lie on one line modulo q, are seen by the same enumeration.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import lcm

import numpy as np

from gemmulate.encodings.limbs import Ints
from gemmulate.formats import Alphabet

_Relation = tuple[int, int, int]


def relations(letters: Sequence[int]) -> list[_Relation]:
    """0 < c_0 ≤ c_1 ≤ c_2 with all ratios in (S − S)/(S − S), up to sign and order of the coordinates."""
    gaps = sorted({abs(a - b) for a, b in product(letters, repeat=2)} - {0})
    ratios = {Fraction(a, b) for a, b in product(gaps, repeat=2)}
    upward = sorted(r for r in ratios if r >= 1)
    found = []
    for second in upward:
        for third in upward:
            if third >= second and third / second in ratios:
                d = lcm(second.denominator, third.denominator)
                found.append((d, int(second * d), int(third * d)))
    return found


def _points(relation: _Relation, letters: Ints) -> Ints:
    """Pairs (l0, l1) whose third letter −(c0·l0 + c1·l1)/c2 is in the alphabet."""
    grid = np.stack(np.meshgrid(letters, letters, indexing="ij"), axis=-1).reshape(-1, 2)
    sums = -(grid @ np.array(relation[:2]))
    last = sums // relation[2]
    return np.asarray(grid[(last * relation[2] == sums) & np.isin(last, letters)])


def _prime_above(n: int) -> int:
    return next(q for q in range(n + 1, 2 * n + 3) if all(q % d for d in range(2, int(q**0.5) + 1)))


def functionals(points: Ints, reach: int) -> Iterator[tuple[Fraction, Fraction]]:
    """Functionals (x0, x1) on pairs (l0, l1) whose values include −reach … reach; may repeat, up to sign."""
    q = _prime_above(2 * reach)
    for f in [(0, 1), *((1, b) for b in range(q))]:
        residues = (points @ np.array(f)) % q
        counts = np.bincount(residues, minlength=q)
        if counts[0] > 2 * reach:
            raise ValueError(f"more than {2 * reach} points lie on one line modulo {q}: not covered by the argument")
        if np.count_nonzero(counts) <= 2 * reach:
            continue
        for scale in range(1, q // 2 + 1):
            wanted = [scale * v % q for v in range(1, reach + 1)]
            if all(counts[r] for r in wanted):
                yield from _lifts(points, residues, wanted, reach)


def _lifts(points: Ints, residues: Ints, wanted: Sequence[int], reach: int) -> Iterator[tuple[Fraction, Fraction]]:
    """x with x(p) = v for one point p of each class v, from two independent points of the smallest classes."""
    classes = sorted(((points[residues == r], v) for v, r in enumerate(wanted, start=1)), key=lambda item: len(item[0]))
    first, v = classes[0]
    for p in first:
        for second, w in classes[1:]:
            independent = [s for s in second if p[0] * s[1] != p[1] * s[0]]
            for s in independent:
                d = int(p[0] * s[1] - p[1] * s[0])
                x = int(v * s[1] - w * p[1]), int(w * p[0] - v * s[0])
                values = points @ np.array(x)
                whole = set((values[values % d == 0] // d).tolist())
                if whole.issuperset(range(-reach, reach + 1)):
                    yield Fraction(x[0], d), Fraction(x[1], d)
            if len(independent) == len(second):
                break


@lru_cache(maxsize=64)
def reachable(alphabet: Alphabet, reach: int) -> bool:
    """Whether some three planes of two limbs let x take every value of −reach … reach (a necessary condition).

    Raises ValueError unless the alphabet is symmetric and −reach … reach has more values than it has letters.
    """
    if alphabet.smallest != -alphabet.largest or len(alphabet) >= 2 * reach + 1:
        raise ValueError("the argument needs a symmetric alphabet with fewer letters than values")
    letters = alphabet.array()
    for relation in relations(list(alphabet)):
        # A sign or an order of coordinates changes names only: S is symmetric, and x is any functional.
        points = _points(relation, letters)
        if len(points) > 2 * reach and next(functionals(points, reach), None) is not None:
            return True
    return False
