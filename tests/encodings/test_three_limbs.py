"""Five and six products of three limbs: found by search as catalogued, exact on every pair, and of use to designs.

Oracles: Python integers for the identity; the rank bound for what is optimal; the INT8 route for products of matrices.
"""

from math import isqrt, prod

import numpy as np
import pytest

import gemmulate as gm
from gemmulate import encodings, formats
from gemmulate.encodings import Encoding, design, verify
from gemmulate.encodings.bounds.lower import prime_factors
from gemmulate.encodings.search.modular import Rejected
from gemmulate.encodings.search.regenerate import search_key
from gemmulate.encodings.search.residues import bounded
from gemmulate.encodings.search.three_limbs import five, six

FP4 = formats.get("fp4_e2m1")
PRIME_POWERS = [m for m in range(163, 560) if len(prime_factors(m)) == 1 and m != 169]
FIVE = [m for m in PRIME_POWERS if m <= 383 and m not in (243, 256)]
SIX = [243, 256, *(m for m in PRIME_POWERS if 383 < m <= 547 and m != 529)]


@pytest.mark.parametrize("m", [163, 227, 289, 343, 383])
def test_five_products_are_found_again(m: int) -> None:
    found = five(m, FP4, FP4.alphabet)
    assert isinstance(found, Encoding)
    assert found.products == 5
    assert verify(found)
    assert bounded(found) == encodings.get(f"mod{m}.fp4_e2m1")


@pytest.mark.parametrize("m", [256, 389, 509, 547])
def test_six_products_are_found_again(m: int) -> None:
    found = six(m, FP4, FP4.alphabet)
    assert isinstance(found, Encoding)
    assert found.products == 6
    assert verify(found)
    assert bounded(found) == encodings.get(f"mod{m}.fp4_e2m1")


def test_every_pair_of_residues_in_python_integers() -> None:
    for m in (173, 243):
        e = encodings.get(f"mod{m}.fp4_e2m1")
        letters = set(FP4.alphabet)
        left, right = (e.planes(side).T.tolist() for side in ("left", "right"))
        assert e.limbs("left")[0].tolist() == list(range(m))
        assert all(letters.issuperset(planes) for planes in left + right)
        for x in range(m):
            scaled = [c * p for c, p in zip(e.coefficients, left[x], strict=True)]
            for y in range(m):
                assert (sum(s * q for s, q in zip(scaled, right[y], strict=True)) - x * y) % m == 0


def test_the_catalogue_holds_every_prime_power_of_the_classes() -> None:
    for moduli, products in ((FIVE, 5), (SIX, 6)):
        for m in moduli:
            assert encodings.get(f"mod{m}.fp4_e2m1").products == products, m
    # A prime above 15² needs three limbs, and these five products (Sylvester): what has five is optimal.
    assert len(FP4.alphabet) ** 2 == 225
    for m in FIVE:
        prime = all(m % d for d in range(2, isqrt(m) + 1))
        assert (encodings.get(f"mod{m}.fp4_e2m1").status == "optimal") == (prime and m > 225), m


def test_beyond_the_reach_of_the_classes_the_reason_is_named() -> None:
    for search, m in ((five, 256), (six, 512 + 17)):
        found = search(m, FP4, FP4.alphabet)
        assert isinstance(found, Rejected)
        assert found.search == search.__name__
        assert "complete" in found.reason or "limb vectors" in found.reason
    int4 = formats.get("int4")
    for search in (five, six):
        refused = search(257, int4, int4.alphabet)
        assert isinstance(refused, Rejected)
        assert "symmetric alphabet" in refused.reason
    found, rejected = search_key("mod557.fp4_e2m1")
    assert found is None
    assert [r.search for r in rejected] == ["one", "square", "pair", "school", "five", "cube", "six"]


def test_five_products_end_at_383() -> None:
    """389 in the class stated in docs/encodings.md: 779 limb vectors at most, no complete functional."""
    found = five(389, FP4, FP4.alphabet)
    assert isinstance(found, Rejected)
    assert "779 limb vectors" in found.reason


def test_wide_designs_take_five_products() -> None:
    """At 107 bits five products save three; without them 128 bits had no design at all."""
    d = design(bits=107, k=4096, formats="fp4_e2m1")
    fives = [e for e in d.encodings if e.products == 5]
    assert d.optimal
    assert fives
    assert prod(d.moduli) > 2 * 4096 << 214
    assert d.products < 124
    assert design(bits=128, k=4096, formats="fp4_e2m1").optimal


def test_narrow_designs_stay_those_of_fewer_products() -> None:
    for bits, k in ((53, 16384), (24, 16384), (55, 16384)):
        assert all(e.products <= 4 for e in design(bits=bits, k=k, formats="fp4_e2m1").encodings)


def test_products_of_300_bits_equal_the_int8_route() -> None:
    rng = np.random.default_rng(6)
    a = rng.integers(-(2**62), 2**62, (3, 9)).astype(object) * 2**85 + 1
    b = rng.integers(-(2**62), 2**62, (9, 2)).astype(object) * 2**80 - 1
    plan = gm.plan(a, b, formats="fp4_e2m1")
    assert plan.window_bits > 290
    assert any(encodings.get(key).products == 5 for key in plan.encodings)
    assert (gm.matmul(a, b, formats="fp4_e2m1") == a @ b).all()
    x = np.ldexp(rng.standard_normal((3, 9)), rng.integers(-40, 40, (3, 9)))
    y = np.ldexp(rng.standard_normal((9, 2)), rng.integers(-40, 40, (9, 2)))
    got, want = gm.matmul(x, y, accuracy="exact", formats="fp4_e2m1"), gm.matmul(x, y, accuracy="exact")
    assert got.tobytes() == want.tobytes()
