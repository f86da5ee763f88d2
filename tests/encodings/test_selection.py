"""Selection against brute force, its dual certificate, and the published product counts.

Oracles: all subsets of small candidate lists in exact integers; arXiv 2609.24519's counts.
"""

import itertools
import random
from fractions import Fraction
from math import gcd, prod
from pathlib import Path

import pytest

from gemmulate import encodings
from gemmulate.encodings import WindowTooLarge, design
from gemmulate.encodings.bounds.lower import prime_factors
from gemmulate.encodings.bounds.selection import Duals, Item, dual_bound, log2_bounds
from gemmulate.encodings.catalogue import write
from gemmulate.encodings.selection import FREEDOM_SLACK, exceeds, freedom_bits, select


def brute(items: list[Item], window: int, budget: float) -> Fraction | None:
    best = None
    for size in range(1, len(items) + 1):
        for subset in itertools.combinations(items, size):
            if any(gcd(x.modulus, y.modulus) > 1 for x, y in itertools.combinations(subset, 2)):
                continue
            if sum(map(freedom_bits, subset)) > (budget + float(FREEDOM_SLACK) if budget else 0):
                continue
            if prod(x.covered**2 for x in subset) > window * prod(x.modulus for x in subset):
                cost = sum((x.cost for x in subset), Fraction(0))
                best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(30))
def test_the_optimum_equals_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    items = []
    for _ in range(11):
        m = rng.randrange(2, 60)
        covered = m if rng.random() < 0.6 else rng.randrange(max(2, m - 4), m + 1)
        items.append(
            Item(m, covered, Fraction(rng.randrange(1, 9), rng.choice([1, 1, 3])), frozenset(prime_factors(m)))
        )
    window, budget = rng.randrange(2, 10**8), rng.choice([0.0, 0.0, 0.3, 1.0])
    expected = brute(items, window, budget)
    if expected is None:
        with pytest.raises(WindowTooLarge):
            select(items, window, budget)
        return
    found = select(items, window, budget)
    chosen = [items[n] for n in found.chosen]
    assert found.cost == expected == sum((i.cost for i in chosen), Fraction(0))
    assert exceeds(chosen, window)
    assert found.bound <= expected
    assert found.optimal


@pytest.mark.parametrize("edge", [-1, 0, 1])
def test_the_window_is_compared_in_exact_integers(edge: int) -> None:
    """A product equal to the window, or 1 below or above it, where logarithms agree to 1e-30."""
    moduli = [m for m in range(3, 400, 2) if len(prime_factors(m)) == 1 and prime_factors(m).get(m) == 1][:40]
    items = [Item(m, m, Fraction(1), frozenset([m])) for m in moduli]
    total = prod(moduli)
    if edge < 0:
        assert len(select(items, total - 1).chosen) == len(moduli)
    else:
        with pytest.raises(WindowTooLarge):
            select(items, total + edge)


@pytest.mark.parametrize(
    ("bits", "k", "products"),
    [(53, 16384, 59), (53, 1024, 57), (53, 4096, 58), (53, 65536, 61), (24, 16384, 28), (55, 16384, 62)],
)
def test_published_product_counts_are_proven_optimal(bits: int, k: int, products: int) -> None:
    d = design(bits=bits, k=k, formats="fp4_e2m1")
    assert (d.products, d.cost, d.optimal) == (products, products, True)
    assert prod(d.moduli) > 2 * k * 4**bits
    assert all(gcd(x, y) == 1 for x, y in itertools.combinations(d.moduli, 2))
    assert "dual" in d.proof


@pytest.mark.parametrize(("freedom", "products"), [(0.25, 56), (0.54, 54), (1.0, 53), (2.6, 51), (5, 50)])
def test_partial_covers_reach_the_known_counts(freedom: float, products: int) -> None:
    d = design(bits=53, k=16384, formats="fp4_e2m1", freedom=freedom)
    assert d.products <= products
    assert d.optimal
    assert d.freedom_bits <= freedom + float(FREEDOM_SLACK)
    assert d.product_bits > d.window_bits


def test_the_certificate_bounds_from_below_and_refuses_negative_multipliers() -> None:
    d = design(bits=53, k=16384, formats="fp4_e2m1")
    items = [
        Item(e.modulus, e.left.size, Fraction(e.products), frozenset(prime_factors(e.modulus)))
        for e in encodings.Catalogue().residues("fp4_e2m1")
        if not e.left.partial
    ]
    bound = dual_bound(items, d.window, Fraction(0), d.selection.duals)
    assert 58 < bound <= 59
    with pytest.raises(ValueError, match="negative"):
        dual_bound(items, d.window, Fraction(0), Duals(Fraction(-1), Fraction(0), {}))


def test_logarithm_bounds_enclose() -> None:
    for n, exact in ((8, 3), (2**121, 121), (1, 0)):
        low, high = log2_bounds(n)
        assert low < exact < high
        assert high - low < Fraction(1, 10**29)
    low, high = log2_bounds(3)
    # 3^1000 lies between 2^1584 and 2^1585.
    assert Fraction(1584, 1000) < low < high < Fraction(1585, 1000)


def test_mixed_formats() -> None:
    b200 = design(device="b200", formats="fp4_e2m1,fp8_e4m3")
    assert b200.cost <= 53
    assert set(b200.products_by_format) == {"fp4_e2m1", "fp8_e4m3"}
    assert design(device="b300", formats="fp4_e2m1,fp8_e4m3").cost <= 59
    only = design(formats="fp8_e4m3")
    assert only.products <= 36


def test_a_catalogue_of_ones_own_is_named_by_its_folder(tmp_path: Path) -> None:
    for key in ("mod7.fp4_e2m1", "mod13.fp4_e2m1"):
        write(encodings.get(key), tmp_path)
    assert design(bits=2, k=1, formats="fp4_e2m1", catalogue=tmp_path).moduli == (7, 13)
    with pytest.raises(WindowTooLarge, match=r"the moduli over fp4_e2m1 reach 6\.51: at most bits = 2"):
        design(bits=3, k=1, formats="fp4_e2m1", catalogue=str(tmp_path))
    with pytest.raises(LookupError, match="no residue encodings over int8"):
        design(bits=1, k=1, formats="int8", catalogue=tmp_path)


def test_an_impossible_window_says_what_is_possible() -> None:
    with pytest.raises(WindowTooLarge, match=r"at most bits = (\d+)") as caught:
        design(bits=500, formats="fp4_e2m1")
    possible = int(str(caught.value).split("at most bits = ")[1].split()[0])
    assert design(bits=possible, formats="fp4_e2m1").products > 59
    with pytest.raises(WindowTooLarge):
        design(bits=possible + 1, formats="fp4_e2m1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 0}, "bits = 0"),
        ({"bits": -3}, "bits = -3"),
        ({"bits": 5.5}, "bits = 5.5"),
        ({"bits": True}, "bits = True"),
        ({"k": 0}, "k = 0"),
        ({"k": 2**40}, "split k"),
        ({"formats": ""}, "unknown format"),
        ({"formats": []}, "empty"),
        ({"formats": "fp4"}, "did you mean 'fp4_e2m1'"),
        ({"formats": "fp16"}, "no rate"),
        ({"device": "b2000"}, "unknown device"),
        ({"device": "h100", "formats": "fp4_e2m1"}, "no rate for fp4_e2m1"),
        ({"freedom": -1}, "freedom = -1"),
        ({"freedom": float("nan")}, "freedom = nan"),
        ({"freedom": "1"}, "freedom = '1'"),
        ({"device": ""}, "unknown device"),
        ({"window": 1 << 900}, "the request needs a window of 900.00 bits"),
        ({"device": "h100", "formats": "fp8_e4m3", "k": 655, "bits": 11}, "too few for any bits"),
    ],
)
def test_bad_requests_name_the_argument(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        design(**arguments)


def test_extremes() -> None:
    assert design(bits=1, k=1).products == 1
    deep = design(bits=53, k=2**31)
    assert deep.optimal
    assert deep.max_depth == 116508
