"""Contract of residue systems on INT8 moduli: the published moduli and widths, and windows that are never overrun."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from gemmulate.engines.residue_system import (
    INT8_MODULI,
    ResidueSystem,
    covers,
    digits_for,
    largest_shifts,
    moduli_needed,
    residue_system,
)

# Ozaki, Uchino, Imamura 2025: the moduli in order, and bits per operand (log2 P − 1)/2 for some numbers of them.
PUBLISHED = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173)
WIDTHS = {7: 27.36, 8: 31.29, 12: 46.90, 13: 50.76, 14: 54.58, 15: 58.39, 16: 62.19, 18: 69.73, 20: 77.19}


def test_published_moduli() -> None:
    assert INT8_MODULI[: len(PUBLISHED)] == PUBLISHED
    assert all(math.gcd(x, y) == 1 for x, y in combinations(INT8_MODULI, 2))


@pytest.mark.parametrize(("count", "bits"), WIDTHS.items())
def test_published_widths(count: int, bits: float) -> None:
    assert round((math.log2(ResidueSystem(INT8_MODULI[:count]).product) - 1) / 2, 2) == bits


def test_moduli_are_the_fewest_that_cover() -> None:
    rng = np.random.default_rng(1)
    for width in range(1, 380):
        bound = int.from_bytes(rng.bytes(48), "little") % (1 << width) + 1
        count = moduli_needed(bound)
        products = [math.prod(INT8_MODULI[:r]) for r in range(1, len(INT8_MODULI) + 1)]
        assert count == next((r for r, p in enumerate(products, 1) if covers(p, bound)), None)
        if count is not None:
            system = residue_system(bound)
            assert system is not None
            assert Fraction(bound, system.product) < Fraction(1, 2)


def test_largest_shifts() -> None:
    rng = np.random.default_rng(2)
    for width in range(1, 300, 7):
        bound = int.from_bytes(rng.bytes(40), "little") % (1 << width) + 1
        for count, shift in enumerate(largest_shifts(bound), 1):
            product = math.prod(INT8_MODULI[:count])
            if shift >= 0:
                assert covers(product, bound << shift)
                assert not covers(product, bound << shift + 1)
            else:
                assert covers(product, -(-bound // 2**-shift))
                assert not covers(product, 2 * -(-bound // 2**-shift))


def test_constants() -> None:
    system = ResidueSystem(INT8_MODULI)
    for m, inverse, weights in zip(system.moduli, system.inverses, system.weights.T, strict=True):
        assert system.product // m * inverse % m == 1
        assert sum(int(w) << 40 * i for i, w in enumerate(weights)) == system.product // m
    assert sum(int(w) << 40 * i for i, w in enumerate(system.product_limbs)) == system.product
    for shift in (0, 8, 39):
        weights = system.shifted_weights(shift)
        for m, column in zip(system.moduli, weights.T, strict=True):
            assert sum(int(w) << 40 * i for i, w in enumerate(column)) == system.product // m << shift
        product = system.shifted_product(shift)
        assert len(product) == len(weights)
        assert sum(int(w) << 40 * i for i, w in enumerate(product)) == system.product << shift
        assert max(product.max(), weights.max()) < 1 << 40
    for left in (False, True):
        for m, inverse, row in zip(system.moduli, system.inverses, system.coefficients(9, left), strict=True):
            assert np.abs(row).max() <= 128
            assert all((int(c) - 2 ** (14 * d) * (inverse if left else 1)) % m == 0 for d, c in enumerate(row))


def test_digits_hold_their_bits() -> None:
    for bits in range(250):
        count = digits_for(bits)
        assert 14 * count - 1 >= bits
        assert count == 1 or 14 * (count - 1) - 1 < bits
