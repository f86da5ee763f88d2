"""Moduli and digits for FP4 units: least cost, and the identity of every pair of bytes, both by other code."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, prod

import numpy as np
import pytest

from gemmulate.encodings import Catalogue
from gemmulate.engines.fp4_residues import Fp4Digits, digits_modulo, digits_of_int8, fp4_depth, fp4_system
from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem

# OCP Microscaling Formats v1.0, table of E2M1: sign, then magnitudes of codes 0 … 7. Doubled, they are integers.
DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
# −128 … 127 in the order of their bytes.
BYTES = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
SYSTEMS = [ResidueSystem(INT8_MODULI[:count]) for count in range(1, len(INT8_MODULI) + 1)]


def product_of_all_pairs(digits: Fp4Digits) -> np.ndarray:
    left, right = DOUBLED[digits.left], DOUBLED[digits.right]
    return np.einsum("t,tx,ty->xy", np.array(digits.coefficients), left, right)


def test_every_pair_of_residues() -> None:
    """Σ_t coefficients_t P_t(x) Q_t(y) ≡ x y for all bytes x, y and every modulus that a system takes."""
    moduli = {m for system in SYSTEMS for m in fp4_system(system).moduli}
    assert len(moduli) > 50
    for m in moduli:
        digits = digits_modulo(m)
        assert ((product_of_all_pairs(digits) - np.outer(BYTES, BYTES)) % m == 0).all(), m
        assert 2 * max(map(abs, digits.coefficients)) <= m


def test_every_pair_of_bytes() -> None:
    digits = digits_of_int8()
    assert len(digits.coefficients) == 6
    assert (product_of_all_pairs(digits) == np.outer(BYTES, BYTES)).all()
    assert digits.bound(1) == sum(map(abs, digits.coefficients)) * 12 * 12


def test_zero_has_zero_digits() -> None:
    """What is padded with residues 0 adds nothing."""
    for digits in (digits_of_int8(), *(digits_modulo(m) for m in fp4_system(SYSTEMS[30]).moduli)):
        assert not digits.left[:, 0].any()
        assert not digits.right[:, 0].any()


@pytest.mark.parametrize("count", range(1, len(INT8_MODULI) + 1))
def test_systems_cover_what_int8_moduli_cover(count: int) -> None:
    system = SYSTEMS[count - 1]
    moduli = fp4_system(system).moduli
    assert prod(moduli) >= system.product
    assert max(moduli) <= 256  # residues are bytes, and CRT digits
    assert len(moduli) <= 54  # as `residue_system.covers` derives
    assert all(gcd(p, q) == 1 for i, p in enumerate(moduli) for q in moduli[:i])


@pytest.mark.parametrize("count", [1, 2, 7, 15, 16, 29, len(SYSTEMS)])
def test_no_cheaper_system(count: int) -> None:
    """The integer program of `encodings.selection`, with its proof, over the same moduli."""
    pytest.importorskip("scipy")
    from gemmulate.encodings.bounds.lower import prime_factors
    from gemmulate.encodings.bounds.selection import Item
    from gemmulate.encodings.selection import select

    entries = [e for e in Catalogue().residues("fp4_e2m1") if e.modulus is not None and e.left.size == e.modulus <= 256]
    items = [
        Item(e.modulus or 0, e.left.size, Fraction(e.products), frozenset(prime_factors(e.modulus or 0)))
        for e in entries
    ]
    system = SYSTEMS[count - 1]
    best = select(items, system.product - 1)
    assert best.optimal
    assert sum(len(digits_modulo(m).coefficients) for m in fp4_system(system).moduli) == best.cost


def test_the_depth_follows_from_the_accumulator() -> None:
    """144 quanta a product; FP32 holds 2^24 of them."""
    assert fp4_depth(32) == 2**24 // 144 // 32 * 32 == 116_480
    assert fp4_depth(1) * 144 <= 2**24 < (fp4_depth(1) + 1) * 144
    assert fp4_depth(16, "fp8_13bit") == (2**14 - 1) // 144 // 16 * 16
