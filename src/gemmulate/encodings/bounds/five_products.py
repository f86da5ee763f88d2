"""Proof that INT8 × INT8 has no encoding with five products over FP4.

Class: Σ_{t=1..5} λ_t P_t(x) Q_t(y) = x·y for all −128 ≤ x, y ≤ 127, with real λ_t and P, Q arbitrary functions into
S = {0, ±1, ±2, ±3, ±4, ±6, ±8, ±12}. (Zero-point corrections, which add terms of x or y alone, are not in the class.)

Let U and V be the spans of the plane vectors P(x) and Q(y) in Q^5 and D = diag(λ), so uᵀDv = x(u)·y(v).

1. 15² < 256, so dim U, dim V ≥ 3; Sylvester's 5 ≥ dim U + dim V − 1 makes both 3, and U^⊥ = D·ker y, V^⊥ = D·ker x.
2. If a vector of U^⊥ had two zeros i, j, y would be a function of the planes i and j (or x of two others, or y of
   one), hence take at most 225 values. So every four coordinates of U satisfy exactly one relation A·l = 0, and all
   its coefficients are nonzero; it holds 256 points of S^4. Two of these share two coordinates (225 < 256), so every
   ratio A_i/A_j is in (S − S)/(S − S): a finite list of `hyperplanes`.
3. U is cut out by two such relations, the other three follow and must be in the list, and U ∩ S^5 has 256 points:
   a finite list of `subspaces` up to permutation and signs of the coordinates.
4. x is a linear functional on U with values −128 … 127 on points of U ∩ S^5, and ±128 by symmetry. Modulo the prime
   q = 257 these are all residues, once each, so a functional on F_q³ must reach every residue; and either x reduces
   to such a functional or 257 points lie in one plane modulo q, which the same enumeration sees. Smaller primes,
   whose residues must each be hit often enough, reject most subspaces first.
5. A functional modulo q is lifted: in residue classes with one candidate the value of the point is forced up to the
   scale; three independent points determine x, which is then checked.
6. For (U, x) the partner satisfies V^⊥ = D·ker x and U^⊥ = D·ker y: `torus_invariants` (cross-ratios of Plücker
   coordinates) must agree under a permutation of the products. They never do.

Everything is integer arithmetic. `prove` runs all of it (minutes); `certificate` is the stored outcome, of which the
tests recompute 1–3 and 6 completely and 4–5 on samples.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from itertools import combinations, permutations, product
from math import gcd, lcm
from typing import Any

import numpy as np

from gemmulate.encodings.limbs import Ints

LETTERS = (-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12)
REACH = 128
PRIME = 257  # 2·REACH + 1: the values −128 … 128 are its residues, each once
_SIEVES = (17, 31, 61, 127)
_VALUES = 256
Relation = tuple[int, int, int, int]
Subspace = tuple[Relation, Relation]  # a·(l0, l1, l2, l3) = 0 and b·(l0, l1, l2, l4) = 0


@dataclass(frozen=True)
class Complete:
    """A subspace with the functionals (x0, x1, x2)/d of (l0, l1, l2) that reach 1 … 128."""

    subspace: Subspace
    functionals: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Certificate:
    """The proof's outcome: counts, a digest of the subspaces, all complete functionals, matching pairs (none)."""

    hyperplanes: int
    subspaces: int
    digest: str
    complete: tuple[Complete, ...]
    pairs: int


def _differences() -> list[int]:
    return sorted({abs(a - b) for a, b in combinations(LETTERS, 2)})


def hyperplanes() -> list[Relation]:
    """Relations 0 < A_0 ≤ … ≤ A_3 with all ratios in (S − S)/(S − S) and at least 256 points of S^4."""
    letters = np.array(LETTERS)
    ratios = {Fraction(a, b) for a, b in product(_differences(), repeat=2)}
    upward = sorted(r for r in ratios if r >= 1)
    above = {r: [s for s in upward if s >= r and s / r in ratios] for r in upward}
    found = []
    for second in upward:
        for third in above[second]:
            allowed = set(above[third])
            for fourth in above[second]:
                if fourth in allowed:
                    d = lcm(second.denominator, third.denominator, fourth.denominator)
                    relation = (d, int(second * d), int(third * d), int(fourth * d))
                    pairs = [np.add.outer(letters * relation[i], letters * relation[i + 1]).ravel() for i in (0, 2)]
                    big = int(max(abs(p).max() for p in pairs))
                    counts = [np.bincount(p + big, minlength=2 * big + 1) for p in pairs]
                    if int(counts[0] @ counts[1]) >= _VALUES:  # S = −S, so sums need no sign
                        found.append(relation)
    return found


class _Listed:
    """Membership of relations (up to order, sign and scale) in the list of hyperplanes."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        self.codes = np.sort(self._code(np.array(relations, dtype=np.int64)))

    @staticmethod
    def _code(rows: Ints) -> Ints:
        return np.asarray(((rows[:, 0] * 1000 + rows[:, 1]) * 1000 + rows[:, 2]) * 1000 + rows[:, 3])

    def __contains__(self, rows: object) -> bool:
        raise TypeError("use holds")

    def holds(self, rows: Ints) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        rows = np.abs(rows)
        full = (rows != 0).all(axis=1)
        rows = rows // np.maximum(1, np.gcd.reduce(rows, axis=1))[:, None]
        rows = np.sort(rows, axis=1)
        codes = self._code(np.minimum(rows, 999))
        at = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.asarray(full & (rows[:, 3] < 999) & (self.codes[at] == codes))


def subspaces(relations: Sequence[Relation]) -> list[Subspace]:
    """All U with five listed relations and at least 256 points of S^5, one of each class under symmetry."""
    listed = _Listed(relations)
    orders = {
        (p[0], s * p[1], t * p[2], p[3]) for a in relations for p in permutations(a) for s in (1, -1) for t in (1, -1)
    }
    second = np.array(sorted(orders), dtype=np.int64)
    pairs = []
    for a in relations:
        b = second
        for j in range(3):
            # a_j·b − b_j·a eliminates coordinate j: coordinates of the other two, of l3 and of l4 stay.
            others = [i for i in range(3) if i != j]
            rows = np.stack(
                [*(a[j] * b[:, i] - b[:, j] * a[i] for i in others), -b[:, j] * a[3], a[j] * b[:, 3]], axis=1
            )
            b = b[listed.holds(rows)]
        on_first = _cut(_cube(), a)[:, :3]
        sums = -(on_first @ b[:, :3].T)
        last = sums // b[:, 3]
        b = b[((last * b[:, 3] == sums) & np.isin(last, LETTERS)).sum(axis=0) >= _VALUES]
        pairs.append(np.concatenate([np.broadcast_to(a, b.shape), b], axis=1))
    return _classes(np.concatenate(pairs))


def _relation(row: Sequence[int]) -> Relation:
    return (row[0], row[1], row[2], row[3])


def _classes(pairs: Ints) -> list[Subspace]:
    """One representative, the least, of each class under the 120 permutations and 32 signs of the coordinates."""
    count = len(pairs)
    a, b = pairs[:, :4], pairs[:, 4:]
    normals = np.zeros((count, 5, 5), dtype=np.int64)
    normals[:, 4, :4] = a
    normals[:, 3, [0, 1, 2, 4]] = b
    for j in range(3):
        normals[:, j] = normals[:, 4, j, None] * normals[:, 3] - normals[:, 3, j, None] * normals[:, 4]
    normals //= np.gcd.reduce(normals, axis=2)[:, :, None]
    least = None
    for order in permutations(range(5)):
        first = normals[:, order[4]][:, list(order)]
        other = normals[:, order[3]][:, list(order)]
        signs = np.sign(first)
        signs[:, 4] = 1
        first, other = first * signs, other * signs
        other = other * np.sign(other[:, :1])
        other[:, 4] = np.abs(other[:, 4])
        key = np.concatenate([first[:, :4], other[:, [0, 1, 2, 4]]], axis=1)
        if least is None:
            least = key
        else:
            differs = key != least
            at = differs.argmax(axis=1)
            rows = np.arange(count)
            smaller = differs.any(axis=1) & (key[rows, at] < least[rows, at])
            least = np.where(smaller[:, None], key, least)
    assert least is not None
    return [(_relation(row[:4]), _relation(row[4:])) for row in np.unique(least, axis=0).tolist()]


@lru_cache(maxsize=1)
def _cube() -> Ints:
    return np.stack(np.meshgrid(*[LETTERS] * 3, indexing="ij"), axis=-1).reshape(-1, 3)


def points(subspace: Subspace) -> Ints:
    """The points (l0 … l4) of U ∩ S^5."""
    return _cut(_cut(_cube(), subspace[0]), subspace[1])


def _cut(rows: Ints, relation: Relation) -> Ints:
    """Rows (l0, l1, l2, …) with one more letter l = −(A0·l0 + A1·l1 + A2·l2)/A3, where that is one."""
    sums = -(rows[:, :3] @ np.array(relation[:3]))
    last = sums // relation[3]
    kept = (last * relation[3] == sums) & np.isin(last, LETTERS)
    return np.asarray(np.concatenate([rows, last[:, None]], axis=1)[kept])


def _half(rows: Ints) -> Ints:
    """(l0, l1, l2) of one of each pair ±l, without 0."""
    nonzero = rows[(rows != 0).any(axis=1), :3]
    lead = nonzero[np.arange(len(nonzero)), (nonzero != 0).argmax(axis=1)]
    return np.asarray(nonzero[lead > 0])


@lru_cache(maxsize=8)
def _functionals(q: int) -> "np.ndarray[Any, np.dtype[np.int32]]":
    """All functionals on F_q³ up to scale."""
    rows = [(0, 0, 1), *((0, 1, c) for c in range(q)), *((1, b, c) for b in range(q) for c in range(q))]
    return np.array(rows, dtype=np.int32)


def surviving(half: Ints, q: int, *, first_only: bool = False) -> list[tuple[int, int, int]]:
    """Functionals modulo q that hit each residue as often as −128 … 128 do; ValueError if 257 points lie in a plane."""
    most, folded = (q - 1) // 2, half.astype(np.int32)
    needed = min(sum(v % q == r for v in range(-REACH, REACH + 1)) for r in range(1, q))
    found: list[tuple[int, int, int]] = []
    step = max(1, 2_000_000 // len(half))
    for start in range(0, len(_functionals(q)), step):
        f = _functionals(q)[start : start + step]
        residues = (folded @ f.T) % q
        residues = np.minimum(residues, q - residues) + np.arange(len(f), dtype=np.int32) * (most + 1)
        counts = np.bincount(residues.ravel(), minlength=len(f) * (most + 1)).reshape(len(f), most + 1)
        degenerate = 2 * counts[:, 0] + 1 > 2 * REACH
        complete = (counts[:, 1:] >= needed).all(axis=1)
        if q == PRIME and degenerate.any():
            raise ValueError("257 points lie in a plane modulo 257: the argument does not cover this subspace")
        found += [(int(u), int(v), int(w)) for u, v, w in f[complete | degenerate].tolist()]
        if found and first_only:
            break
    return found


def _centred(values: Ints) -> Ints:
    values = values % PRIME
    return np.asarray(np.where(values > REACH, values - PRIME, values))


def lifts(half: Ints, functional: tuple[int, int, int]) -> set[tuple[int, int, int, int]]:
    """All rational functionals (x0, x1, x2)/d up to sign that reach 1 … 128 and reduce to this one modulo 257."""
    residues = (half @ np.array(functional)) % PRIME
    signed = np.where(residues > REACH, -1, 1)[:, None] * half
    residues = np.where(residues > REACH, PRIME - residues, residues)
    classes = sorted((np.flatnonzero(residues == r) for r in range(1, REACH + 1)), key=len)
    single = [int(c[0]) for c in classes if len(c) == 1]
    scales = np.arange(1, REACH + 1)
    result = set()
    for triple in _triples(signed, classes):
        basis = signed[list(triple)]
        adjugate = np.stack(
            [np.cross(basis[1], basis[2]), np.cross(basis[2], basis[0]), np.cross(basis[0], basis[1])], 1
        )
        d = int(basis[0] @ adjugate[:, 0])
        x = _centred(scales[:, None] * residues[list(triple)]) @ adjugate.T
        # Points alone in their class have forced values, too.
        fits = np.ones(len(x), dtype=bool)
        for p in single:
            fits &= x @ signed[p] == d * _centred(scales * residues[p])
        for row in x[fits].tolist():
            values = half @ np.array(row)
            whole = np.abs(values[values % d == 0] // d)
            if len(np.unique(whole[(whole >= 1) & (whole <= REACH)])) == REACH:
                result.add(_lowest(row, d))
    return result


def _lowest(row: Sequence[int], d: int) -> tuple[int, int, int, int]:
    """(x, d) in lowest terms, d > 0, the first nonzero coefficient positive (a functional and its negative are one)."""
    g = gcd(*row, d)
    lead = next(v for v in row if v)
    sign = 1 if lead > 0 else -1
    return (sign * row[0] // g, sign * row[1] // g, sign * row[2] // g, abs(d) // g)


def _triples(signed: Ints, classes: Sequence[Ints]) -> Iterator[tuple[int, int, int]]:
    """Independent points of the smallest classes such that every choice of one point per class contains one triple."""

    def extend(chosen: tuple[int, ...], at: int) -> Iterator[tuple[int, int, int]]:
        if len(chosen) == 3:
            yield (chosen[0], chosen[1], chosen[2])
            return
        dependent = False
        for p in classes[at].tolist():
            rows = signed[[*chosen, p]]
            if len(chosen) == 2:
                independent = bool(np.cross(rows[0], rows[1]) @ rows[2])
            else:
                independent = len(chosen) == 0 or bool(np.cross(rows[0], rows[1]).any())
            if independent:
                yield from extend((*chosen, p), at + 1)
            else:
                dependent = True
        if dependent:
            yield from extend(chosen, at + 1)

    return extend((), 0)


def complete_functionals(subspace: Subspace) -> Complete:
    """Steps 4 and 5 for one subspace."""
    half = _half(points(subspace))
    if any(not surviving(half, q, first_only=True) for q in _SIEVES):
        return Complete(subspace, ())
    found = set()
    for functional in surviving(half, PRIME):
        found |= lifts(half, functional)
    return Complete(subspace, tuple(sorted(found)))


def _minors(first: Sequence[Fraction | int], second: Sequence[Fraction | int]) -> dict[tuple[int, int], Fraction]:
    return {(i, j): Fraction(first[i] * second[j] - first[j] * second[i]) for i, j in permutations(range(5), 2)}


def torus_invariants(minors: dict[tuple[int, int], Fraction], order: Sequence[int]) -> tuple[Fraction, Fraction]:
    """Two cross-ratios of a plane in Q^5: equal for planes that differ by a diagonal matrix, with this order."""
    a, b, c, d, e = order
    m = minors
    return m[a, b] * m[c, d] / (m[a, c] * m[b, d]), m[a, b] * m[c, e] / (m[a, c] * m[b, e])


def _planes(complete: Complete) -> Iterator[tuple[dict[tuple[int, int], Fraction], dict[tuple[int, int], Fraction]]]:
    """Plücker coordinates of ker x and of U^⊥ for each functional."""
    a, b = complete.subspace
    normal = _minors((*a, 0), (b[0], b[1], b[2], 0, b[3]))
    for x0, x1, x2, _ in complete.functionals:
        x = (x0, x1, x2)
        pivot = next(i for i in range(3) if x[i])
        kernel = []
        for other in (i for i in range(3) if i != pivot):
            point = [Fraction(0)] * 3
            point[other], point[pivot] = Fraction(x[pivot]), Fraction(-x[other])
            tail = [-sum((r[i] * point[i] for i in range(3)), Fraction(0)) / r[3] for r in (a, b)]
            kernel.append([*point, *tail])
        yield _minors(kernel[0], kernel[1]), normal


def matching_pairs(found: Sequence[Complete]) -> int:
    """How many (U, x), (V, y) and permutations have equal invariants of (ker x, V^⊥) and of (U^⊥, ker y)."""
    # A zero Plücker coordinate of ker x would be one of V^⊥, which step 2 excludes.
    planes = [p for c in found for p in _planes(c) if all(p[0].values())]
    identity = range(5)
    partners: dict[tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]], int] = {}
    for kernel, normal in planes:
        key = (torus_invariants(normal, identity), torus_invariants(kernel, identity))
        partners[key] = partners.get(key, 0) + 1
    return sum(
        partners.get((torus_invariants(kernel, order), torus_invariants(normal, order)), 0)
        for kernel, normal in planes
        for order in permutations(identity)
    )


def digest(found: Sequence[Subspace]) -> str:
    """SHA-256 of the sorted list of subspaces."""
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()


def prove(*, processes: int = 1, progress: Callable[[int, int], None] = lambda done, total: None) -> Certificate:
    """Run the whole proof; the theorem holds when `pairs` is 0."""
    relations = hyperplanes()
    listed = subspaces(relations)
    found = []
    with ProcessPoolExecutor(processes) as pool:
        for n, one in enumerate(pool.map(complete_functionals, listed, chunksize=4), start=1):
            progress(n, len(listed))
            if one.functionals:
                found.append(one)
    return Certificate(len(relations), len(listed), digest(listed), tuple(found), matching_pairs(found))


def certificate() -> Certificate:
    """The stored outcome of `prove`."""
    text = resources.files("gemmulate.encodings.bounds").joinpath("five_products.json").read_text()
    record = json.loads(text)

    def subspace(rows: list[list[int]]) -> Subspace:
        return (_relation(rows[0]), _relation(rows[1]))

    complete = tuple(
        Complete(subspace(c["subspace"]), tuple((f[0], f[1], f[2], f[3]) for f in c["functionals"]))
        for c in record["complete"]
    )
    return Certificate(record["hyperplanes"], record["subspaces"], record["digest"], complete, record["pairs"])


def to_json(outcome: Certificate) -> str:
    """The certificate as JSON text, one complete subspace per line."""
    body = asdict(outcome)
    complete = ",\n".join("    " + json.dumps(c) for c in body.pop("complete"))
    head = ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in body.items())
    return f'{{\n{head},\n  "complete": [\n{complete}\n  ]\n}}\n'
