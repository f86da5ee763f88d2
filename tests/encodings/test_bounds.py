"""Lower bounds and the five-product proof, recomputed: lists from scratch, functionals singly, rejections on samples.

Oracles: the argument's own definitions in Python integers, independent of the vectorised code, and small cases whose
answer is known by brute force.
"""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from gemmulate import encodings, formats
from gemmulate.encodings.bounds import check_bound, lower_bound
from gemmulate.encodings.bounds import five_products as five
from gemmulate.encodings.bounds import three_products as three
from gemmulate.encodings.bounds.lower import planes_needed
from gemmulate.encodings.domain import Domain

FP4 = formats.get("fp4_e2m1")


def test_no_entry_beats_its_bound_and_every_bound_is_recomputed() -> None:
    for key in (
        "int8.int8",
        "int4.int8",
        "pm8.pm16",
        "pm8.pm32",
        "sig11.sig11",
        "mod13",
        "mod17",
        "mod85",
        "mod89",
        "mod97",
        "mod139",
    ):
        e = encodings.get(f"{key}.fp4_e2m1")
        bound = lower_bound(e.left, e.right, e.format, e.plane_max_of_class)
        assert (e.bound, e.bound_by) == (bound.products, bound.by)
        assert e.products >= bound.products
        assert e.status == ("optimal" if e.products == bound.products else "best known")


PLANES = {"pm4": 1, "pm5": 2, "int3": 1, "int4": 2, "pm8": 2, "pm112": 2, "pm113": 3, "int8": 3, "sig11": 4}


@pytest.mark.parametrize(("name", "planes"), PLANES.items())
def test_planes_needed(name: str, planes: int) -> None:
    assert planes_needed(Domain.parse(name), FP4.alphabet) == planes


def test_two_products_exist_exactly_for_coprime_splits_of_complete_moduli() -> None:
    """Brute force over {−1, 0, 1}: which m have two-product encodings with arbitrary functions as planes."""
    letters = (-1, 0, 1)
    tiny = formats.Format("tiny", "int", 2)
    object.__setattr__(tiny, "alphabet", formats.Alphabet(letters))
    vectors = list(product(letters, repeat=2))
    for m in (5, 6, 7):
        found = False
        for alpha in product(range(m), repeat=2):
            fibres = [[v for v in vectors if (alpha[0] * v[0] + alpha[1] * v[1]) % m == x] for x in range(m)]
            if not all(fibres):
                continue
            for scales in product(range(1, m), repeat=2):
                # With x = 1 fixed, y = β·v: β_t = λ_t·u_t(1).
                for choice in product(*fibres):
                    if all(
                        (scales[0] * u[0] * v[0] + scales[1] * u[1] * v[1] - x * y) % m == 0
                        for x, u in enumerate(choice)
                        for y, v in enumerate(choice)
                    ):
                        found = True
        bound = lower_bound(Domain.parse(f"mod{m}"), Domain.parse(f"mod{m}"), tiny)
        assert (bound.products <= 2) == found, m


def test_three_products_reach_30_and_no_further() -> None:
    """±30 is reached by x = a − 7·b with the third plane a + 2·b; ±31 and beyond never."""
    letters = set(FP4.alphabet)
    values = {a - 7 * b for a in letters for b in letters if a + 2 * b in letters}
    assert values.issuperset(range(-30, 31))
    assert three.reachable(FP4.alphabet, 30)
    assert not three.reachable(FP4.alphabet, 31)
    assert not three.reachable(FP4.alphabet, 32)


@pytest.mark.parametrize("letters", [(-1, 0, 1), (-2, -1, 0, 1, 2), (-3, -1, 0, 1, 3)])
def test_reach_equals_brute_force_over_small_alphabets(letters: tuple[int, ...]) -> None:
    """All relations c·l = 0 with |c| ≤ 6 and all functionals (u, w)/d with |u|, |w| ≤ 12, d ≤ 6."""
    best = 0
    for c in product(range(-6, 7), repeat=3):
        if c[2] <= 0 or 0 in c:
            continue
        plane = [p for p in product(letters, repeat=3) if sum(x * y for x, y in zip(c, p, strict=True)) == 0]
        if len(plane) <= 2 * best + 1:
            continue
        for u, w, d in product(range(13), range(-12, 13), range(1, 7)):
            values = {Fraction(u * p[0] + w * p[1], d) for p in plane}
            reach = 0
            while reach + 1 in values and -reach - 1 in values:
                reach += 1
            best = max(best, reach)
    alphabet = formats.Alphabet(letters)
    assert 2 * best >= len(letters)
    assert three.reachable(alphabet, best)
    assert not three.reachable(alphabet, best + 1)


def test_hyperplanes_are_the_published_1311() -> None:
    relations = five.hyperplanes()
    assert len(relations) == 1311 == five.certificate().hyperplanes
    letters = five.LETTERS
    rng = random.Random(1)
    for a in rng.sample(relations, 5):
        count = sum(1 for p in product(letters, repeat=4) if sum(x * y for x, y in zip(a, p, strict=True)) == 0)
        assert count >= 256


def test_subspaces_are_those_of_the_certificate() -> None:
    listed = five.subspaces(five.hyperplanes())
    stored = five.certificate()
    assert len(listed) == stored.subspaces == 5366
    assert five.digest(listed) == stored.digest
    assert max(len(five.points(s)) for s in listed[:: len(listed) // 50]) <= 779
    rng = random.Random(2)
    complete = {c.subspace for c in stored.complete}
    for subspace in rng.sample([s for s in listed if s not in complete], 3):
        assert five.complete_functionals(subspace).functionals == ()


def test_the_listed_functionals_are_complete_and_found_again() -> None:
    stored = five.certificate()
    assert sum(len(c.functionals) for c in stored.complete) == 770
    for c in stored.complete:
        points = five.points(c.subspace)
        a, b = c.subspace
        assert not (points[:, :4] @ np.array(a)).any()
        assert not (points[:, [0, 1, 2, 4]] @ np.array(b)).any()
        for x0, x1, x2, d in c.functionals:
            values = {Fraction(x0 * p + x1 * q + x2 * r, d) for p, q, r in points[:, :3].tolist()}
            assert values.issuperset(range(-128, 129))
    small = min(stored.complete, key=lambda c: len(five.points(c.subspace)))
    assert five.complete_functionals(small.subspace) == small


def test_no_two_of_them_are_partners() -> None:
    assert five.matching_pairs(five.certificate().complete) == 0


def test_the_partner_test_finds_a_real_encoding() -> None:
    """Toom–Cook: a0, a2, a(1), a(−1), a(2) on both sides multiply a(5)·b(5) in five products, so it must be matched."""
    planes = np.array([[1, 0, 0], [0, 0, 1], [1, 1, 1], [1, -1, 1], [1, 2, 4]])
    weights = np.array([1, 5, 25])
    # The coefficients exist: w·wᵀ is a combination of the five p·pᵀ.
    system = np.array([np.multiply.outer(p, p).ravel() for p in planes], dtype=float).T
    solution, *_ = np.linalg.lstsq(system, np.multiply.outer(weights, weights).ravel().astype(float), rcond=None)
    assert np.allclose(system @ solution, np.multiply.outer(weights, weights).ravel())
    # a(−1) = 2·a0 + 2·a2 − a(1), a(2) = −a0 + 2·a2 + 2·a(1); x = −4·a0 + 20·a2 + 5·a(1).
    found = five.Complete(((2, 2, -1, -1), (-1, 2, 2, -1)), ((-4, 20, 5, 1),))
    assert five.matching_pairs([found]) > 0
    other = five.Complete(found.subspace, ((-4, 20, 6, 1),))
    assert five.matching_pairs([other]) == 0


def test_a_forged_optimum_is_refuted() -> None:
    three_of_four = encodings.get("mod97c95.fp4_e2m1")
    assert check_bound(three_of_four) == ""
    forged = replace(three_of_four, bound=3, bound_by="somebody")
    assert forged.status == "optimal"
    assert "somebody" in check_bound(forged)
    # A wider alphabet than that of the class has a weaker bound: |v| ≤ 32 needs three products for 67 residues.
    e = encodings.get("mod67.fp8_e4m3")
    assert e.bound == 3
    assert check_bound(e) == ""
    assert "derived" in check_bound(replace(e, plane_max=448, bound=4))
