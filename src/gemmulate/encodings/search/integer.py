"""Search for encodings of integer ranges: limb weights, plane forms and coefficients.

Classes, all solved exactly and checked by `verify` afterwards:

    one      x = P(x)                                                            1 product
    school   x = Σ w_i a_i, all limb products                                    r_left·r_right products
    tight2   planes a0, a1, p·a0 + q·a1 on both sides                            3 products (rank bound 2 + 2 − 1)
    tight3   planes a0, a1, two forms of them × b0, b1, b2, one form of them     4 products (rank bound 2 + 3 − 1)
    pairs    n limbs and all forms a_i − a_j: xy = W·Σ w_i a_i b_i − Σ w_i w_j (a_i − a_j)(b_i − b_j), W = Σ w_i
    nested   digits h·d1 + d0 with d = a + β·b, each digit product by tight2      12 products
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from math import gcd, lcm
from typing import Any

import numpy as np

from gemmulate.encodings.domain import Domain
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.limbs import Ints, limb_vectors
from gemmulate.encodings.search.modular import Rejected
from gemmulate.formats import Alphabet, Format

_Form = tuple[int, int]


def _build(
    left: Domain,
    right: Domain,
    fmt: Format,
    weights: tuple[list[int], list[int]],
    planes: tuple[list[list[int]], list[list[int]]],
    coefficients: list[Fraction],
    search: str,
) -> Encoding:
    divisor = lcm(*(Fraction(c).denominator for c in coefficients))
    return Encoding(
        key=f"{left.name}.{right.name}.{fmt.name}",
        weights_left=tuple(weights[0]),
        weights_right=tuple(weights[1]),
        planes_left=tuple(map(tuple, planes[0])),
        planes_right=tuple(map(tuple, planes[1])),
        coefficients=tuple(int(c * divisor) for c in coefficients),
        divisor=divisor,
        plane_max=alphabet_of(fmt).max_abs,
        provenance={"search": search},
    )


def alphabet_of(fmt: Format) -> Alphabet:
    """The alphabet searched: FP6 and FP8 cut to |v| ≤ 32, so that sums stay exact in FP32 to k = 16,384."""
    return fmt.alphabet.limited(32) if fmt.name.startswith(("fp6", "fp8")) else fmt.alphabet


def covers(points: Ints, weights: tuple[int, ...], domain: Domain) -> bool:
    """Whether Σ weights·limbs takes every value of the range over the points (n, limbs)."""
    return bool(_present(points @ np.array(weights, dtype=np.int64), domain).all())


def one(left: Domain, right: Domain, fmt: Format) -> Encoding | Rejected:
    """Both ranges lie in the alphabet as they are."""
    letters = set(alphabet_of(fmt))
    for domain in (left, right):
        if not letters.issuperset(range(domain.low, domain.high + 1)):
            return Rejected("one", f"{domain.name} is not inside the alphabet")
    return _build(left, right, fmt, ([1], [1]), ([[1]], [[1]]), [Fraction(1)], "one")


def free_weights(domain: Domain, alphabet: Alphabet, limbs: int) -> list[int] | None:
    """Weights 1 ≤ w_0 < w_1 < … of `limbs` free limbs that reach every value of the range, or None.

    Powers of one radix are tried first. Two limbs of a narrow alphabet are then exhaustive over weights up to its
    reach; each further limb extends the pair with the longest unbroken reach by the weight that keeps it longest.
    """
    letters = alphabet.array()
    if len(letters) ** limbs < domain.size:
        return None
    span = int(letters.max() - letters.min()) + 2
    if limbs == 1:
        return [1] if set(range(domain.low, domain.high + 1)) <= set(letters.tolist()) else None
    for u in range(2, span):
        # Digits to one radix: for FP4, 13 is the largest whose digits are complete.
        if limbs > 2 and (np.unique(letters % u).size < u or span * u ** (limbs - 1) < domain.size):
            continue
        reached = letters
        for i in range(1, limbs):
            reached = np.unique((reached[:, None] + letters[None, :] * u**i).ravel())
        if _present(reached, domain).all():
            return [u**i for i in range(limbs)]
    if len(letters) > 16:
        return None
    best = (-1, (1, 1))
    for w0 in range(1, min(span, _WIDEST_FIRST) + 1):
        for w1 in range(w0 + 1, 2 * span + 1):
            if gcd(w0, w1) > 1:
                continue
            sums = (letters[:, None] * w0 + letters[None, :] * w1).ravel()
            present = _present(sums, domain) if limbs == 2 else None
            if present is not None and present.all():
                return [w0, w1]
            if limbs > 2:
                best = max(best, (_unbroken(sums), (-w0, -w1)))
    if limbs == 2:
        return None
    weights = [-w for w in best[1]]
    reached = np.unique((letters[:, None] * weights[0] + letters[None, :] * weights[1]).ravel())
    while len(weights) < limbs:
        longest = (-1, 1)
        for w in range(max(weights) + 1, 2 * int(reached.max()) + 2):
            longest = max(longest, (_unbroken((letters[:, None] * w + reached[None, :]).ravel()), w))
        weights.append(longest[1])
        reached = np.unique((letters[:, None] * longest[1] + reached[None, :]).ravel())
    return weights if _present(reached, domain).all() else None


# Beyond this first weight two free limbs never reached further in any alphabet here.
_WIDEST_FIRST = 12


def _present(values: Ints, domain: Domain) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    hit = np.zeros(domain.size, dtype=bool)
    hit[values[(values >= domain.low) & (values <= domain.high)] - domain.low] = True
    return hit


def _unbroken(values: Ints) -> int:
    """The length of the run of consecutive values around 0."""
    low, high = int(values.min()), int(values.max())
    hit = np.zeros(high - low + 3, dtype=bool)
    hit[values - low + 1] = True
    zero = 1 - low
    up = int(np.argmin(hit[zero:]))
    down = int(np.argmin(hit[zero::-1]))
    return min(up, down) if low < 0 else up


def schoolbook(left: Domain, right: Domain, fmt: Format, rows: int, columns: int) -> Encoding | Rejected:
    """Each of `rows` limbs of x times each of `columns` limbs of y."""
    weights = []
    for domain, limbs in ((left, rows), (right, columns)):
        found = free_weights(domain, alphabet_of(fmt), limbs)
        if found is None:
            return Rejected("school", f"{limbs} free limbs do not reach {domain.name}")
        weights.append(found)
    planes_left = [[int(i == t // columns) for i in range(rows)] for t in range(rows * columns)]
    planes_right = [[int(j == t % columns) for j in range(columns)] for t in range(rows * columns)]
    coefficients = [Fraction(wa * wb) for wa in weights[0] for wb in weights[1]]
    return _build(left, right, fmt, (weights[0], weights[1]), (planes_left, planes_right), coefficients, "school")


def _forms(largest: int) -> list[_Form]:
    """Coprime (p, q), p > 0, q ≠ 0, small first: every plane p·a + q·b of two limbs up to sign."""
    forms = [
        (p, s * q) for p in range(1, largest + 1) for q in range(1, largest + 1) for s in (-1, 1) if gcd(p, q) == 1
    ]
    return sorted(forms, key=lambda f: (f[0] + abs(f[1]), f))


def _two_limb(domain: Domain, alphabet: Alphabet, forms: list[_Form], largest: int) -> Iterator[tuple[_Form, ...]]:
    """(plane form, weights) of two limbs whose third plane leaves the whole range reachable."""
    wide = len(alphabet) > 16
    for p, q in forms[:2] if wide else forms:
        points = limb_vectors(((1, 0), (0, 1), (p, q)), alphabet)
        if len(points) < domain.size:
            continue
        for u in range(1, 2 if wide else largest + 1):
            reach = range(2, 2 * alphabet.max_abs + 2) if wide else range(1, largest + 1)
            for w in (s * w for w in reach for s in (-1, 1)):
                if gcd(u, w) == 1 and covers(points, (u, w), domain):
                    yield (p, q), (u, w)


def tight2(
    left: Domain, right: Domain, fmt: Format, *, largest_form: int = 4, largest_weight: int = 40
) -> Encoding | Rejected:
    """Three products: λ3 = w0·v1/(p·q'), with (p/q)·(w1/w0) the same on both sides."""
    forms = _forms(largest_form)
    known: dict[Fraction, tuple[_Form, _Form]] = {}
    for (p, q), (w0, w1) in _two_limb(left, alphabet_of(fmt), forms, largest_weight):
        known.setdefault(Fraction(p * w1, q * w0), ((p, q), (w0, w1)))
    if not known:
        return Rejected("tight2", f"no third plane leaves {left.name} reachable")
    for (p2, q2), (v0, v1) in _two_limb(right, alphabet_of(fmt), forms, largest_weight):
        match = known.get(Fraction(p2 * v1, q2 * v0))
        if match:
            (p, q), (w0, w1) = match
            third = Fraction(w0 * v1, p * q2)
            coefficients = [w0 * v0 - third * p * p2, w1 * v1 - third * q * q2, third]
            planes = [[[1, 0], [0, 1], list(form)] for form in ((p, q), (p2, q2))]
            return _build(left, right, fmt, ([w0, w1], [v0, v1]), (planes[0], planes[1]), coefficients, "tight2")
    return Rejected("tight2", "no pair of forms and weights agrees in (p/q)·(w1/w0)")


def tight3(
    left: Domain, right: Domain, fmt: Format, *, largest_form: int = 3, largest_weight: int = 12
) -> Encoding | Rejected:
    """Four products, two limbs by three: the right weights follow from the left ones and the right form.

    Products a0·b0, a1·b1, (p3·a0 + q3·a1)·b2, (p4·a0 + q4·a1)·(r·b): comparing coefficients gives
    v = λ4·(r0·q4/w1, r1·p4/w0, r2·(p4·q3 − q4·p3)/(w0·q3 − w1·p3)).
    """
    gains: dict[tuple[Fraction, ...], tuple[_Form, _Form, _Form]] = {}
    forms = _forms(largest_form)
    for third, fourth in ((f, g) for f in forms for g in forms if f != g):
        (p3, q3), (p4, q4) = third, fourth
        points = limb_vectors(((1, 0), (0, 1), third, fourth), alphabet_of(fmt))
        if len(points) < left.size:
            continue
        for w0 in range(1, largest_weight + 1):
            for w1 in range(-largest_weight, largest_weight + 1):
                if w1 == 0 or gcd(w0, w1) > 1 or w0 * q3 == w1 * p3 or w0 * q4 == w1 * p4:
                    continue
                if covers(points, (w0, w1), left):
                    g = (Fraction(q4, w1), Fraction(p4, w0), Fraction(p4 * q3 - q4 * p3, w0 * q3 - w1 * p3))
                    gains.setdefault(tuple(x / g[0] for x in g), (third, fourth, (w0, w1)))
    if not gains:
        return Rejected("tight3", f"no two planes p·a0 + q·a1 leave {left.name} reachable")
    small = [s * n for n in range(1, largest_form + 1) for s in (1, -1)]
    relations = sorted(
        ((r0, r1, r2) for r0 in range(1, largest_form + 1) for r1 in small for r2 in small if gcd(r0, r1, r2) == 1),
        key=lambda r: (sum(map(abs, r)), r),
    )
    for relation in relations:
        points = limb_vectors(((1, 0, 0), (0, 1, 0), (0, 0, 1), relation), alphabet_of(fmt))
        if len(points) < right.size:
            continue
        for gain, (third, fourth, weights) in gains.items():
            rational = [r * g for r, g in zip(relation, gain, strict=True)]
            scale = lcm(*(x.denominator for x in rational))
            v = [int(x * scale) for x in rational]
            common = gcd(*v)
            v = [x // common for x in v]
            if max(map(abs, v)) <= right.size and covers(points, tuple(v), right):
                return _tight3_encoding(left, right, fmt, third, fourth, weights, relation, v)
    return Rejected("tight3", "no relation of the right limbs leaves its range reachable")


def _tight3_encoding(
    left: Domain,
    right: Domain,
    fmt: Format,
    third: _Form,
    fourth: _Form,
    weights: _Form,
    relation: tuple[int, int, int],
    v: list[int],
) -> Encoding:
    (p3, q3), (p4, q4), (w0, w1), (r0, r1, r2) = third, fourth, weights, relation
    last = Fraction(v[0] * w1, r0 * q4)
    coefficients = [
        w0 * v[0] - last * r0 * p4,
        w1 * v[1] - last * r1 * q4,
        (w0 * v[2] - last * r2 * p4) / p3,
        last,
    ]
    planes_left = [[1, 0], [0, 1], [p3, q3], [p4, q4]]
    planes_right = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [r0, r1, r2]]
    return _build(left, right, fmt, ([w0, w1], v), (planes_left, planes_right), coefficients, "tight3")


def pairs(left: Domain, right: Domain, fmt: Format, limbs: int, *, largest_weight: int) -> Encoding | Rejected:
    """n(n+1)/2 products of n limbs and all their differences; the same weights 1 ≤ w_0 < … on both sides."""
    edges = list(combinations(range(limbs), 2))
    planes = [[int(i == j) for j in range(limbs)] for i in range(limbs)]
    planes += [[(j == a) - (j == b) for j in range(limbs)] for a, b in edges]
    points = limb_vectors(tuple(map(tuple, planes)), alphabet_of(fmt))
    wide = left if left.size >= right.size else right
    if len(points) < wide.size:
        return Rejected("pairs", f"{len(points)} limb vectors are fewer than {wide.size} values")
    # Alphabets without gaps near 0 take digits to one radix; FP4's gaps leave only a search over all weights.
    radices = range(2, 2 * alphabet_of(fmt).max_abs + 2)
    geometric = (tuple(u**i for i in range(limbs)) for u in radices)
    for weights in combinations(range(1, largest_weight + 1), limbs) if len(alphabet_of(fmt)) <= 16 else geometric:
        if gcd(*weights) == 1 and covers(points, weights, wide) and covers(points, weights, left):
            total = sum(weights)
            coefficients = [Fraction(total * w) for w in weights]
            coefficients += [Fraction(-weights[a] * weights[b]) for a, b in edges]
            columns = list(weights)
            return _build(left, right, fmt, (columns, columns), (planes, planes), coefficients, "pairs")
    return Rejected("pairs", f"no weights up to {largest_weight} cover {wide.name}")


def nested(
    left: Domain, right: Domain, fmt: Format, *, largest_beta: int = 13, largest_base: int = 400
) -> Encoding | Rejected:
    """Two digits of two limbs each, x = h·(a0 + β·a1) + (a2 + β·a3): four digit products of three products each."""
    wide = left if left.size >= right.size else right
    for p, q in _forms(2):
        points = limb_vectors(((1, 0), (0, 1), (p, q)), alphabet_of(fmt))
        for beta in range(2, largest_beta + 1):
            digits = np.unique(points @ np.array([1, beta]))
            if len(digits) ** 2 < wide.size:
                continue
            for base in range(int(wide.high // max(1, digits.max())), largest_base + 1):
                sums = (base * digits[:, None] + digits[None, :]).ravel()
                sums = sums[(sums >= wide.low) & (sums <= wide.high)]
                if np.unique(sums).size == wide.size:
                    return _nested_encoding(left, right, fmt, p, q, beta, base)
    return Rejected("nested", f"no radix up to {largest_base} covers {wide.name}")


def _nested_encoding(left: Domain, right: Domain, fmt: Format, p: int, q: int, beta: int, base: int) -> Encoding:
    third = Fraction(beta, p * q)
    inner = [Fraction(1) - third * p * p, Fraction(beta * beta) - third * q * q, third]
    weights = [base, base * beta, 1, beta]
    scales = [base, 1]
    digit = [[1, 0], [0, 1], [p, q]]
    planes_left, planes_right, coefficients = [], [], []
    for i in range(2):
        for j in range(2):
            for form, c in zip(digit, inner, strict=True):
                planes_left.append([0] * (2 * i) + form + [0] * (2 - 2 * i))
                planes_right.append([0] * (2 * j) + form + [0] * (2 - 2 * j))
                coefficients.append(c * scales[i] * scales[j])
    return _build(left, right, fmt, (weights, weights), (planes_left, planes_right), coefficients, "nested")
