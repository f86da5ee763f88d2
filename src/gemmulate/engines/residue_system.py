"""Residue systems on INT8 moduli: which moduli cover a window, and the constants that engines need of them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

import numpy as np
import numpy.typing as npt

# Integers are cut into signed digits of this radix before their residues are taken, and CRT weights into limbs:
# the derivations stand in native/isa.hpp.
DIGIT_BITS = 14
LIMB_BITS = 40


def _coprime_moduli() -> tuple[int, ...]:
    """Pairwise coprime moduli up to 256, largest first: the greedy choice 256, 255, 253, 251, 247, …"""
    chosen: list[int] = []
    for candidate in range(256, 1, -1):
        if all(gcd(candidate, m) == 1 for m in chosen):
            chosen.append(candidate)
    return tuple(chosen)


INT8_MODULI = _coprime_moduli()


def symmetric(x: int, m: int) -> int:
    """The residue of x mod m in [-m/2, m/2)."""
    r = x % m
    return r - m if 2 * r >= m else r


@dataclass(frozen=True)
class ResidueSystem:
    """Pairwise coprime moduli m_l ≤ 256; integers |x| < P/2 are determined by their residues (Chinese remainders)."""

    moduli: tuple[int, ...]
    halved: bool = False  # engines that can multiply by one level of Strassen's algorithm, Winograd's form

    @property
    def bytes_per_entry(self) -> int:
        """Packed residues of an entry, in bytes: seven factors of a quarter each for every modulus of a halved one."""
        return -(-7 * len(self.moduli) // 4) if self.halved else len(self.moduli)

    @cached_property
    def product(self) -> int:
        """P, the product of the moduli."""
        p = 1
        for m in self.moduli:
            p *= m
        return p

    @cached_property
    def limbs(self) -> int:
        """Limbs of 40 bits that hold P."""
        return self._count(0)

    @cached_property
    def inverses(self) -> tuple[int, ...]:
        """(P/m_l)^-1 mod m_l; multiplied into the left operand, so that a product's residues are CRT digits."""
        return tuple(pow(self.product // m, -1, m) for m in self.moduli)

    @lru_cache(maxsize=64)  # noqa: B019 - systems are few and live as long as the process
    def coefficients(self, digits: int, left: bool) -> npt.NDArray[np.float32]:
        """2^(14 d) mod m_l (times the CRT inverse on the left), symmetric: shape (moduli, digits), float32."""
        table = [
            [symmetric((1 << DIGIT_BITS * d) * (inv if left else 1), m) for d in range(digits)]
            for m, inv in zip(self.moduli, self.inverses, strict=True)
        ]
        return np.array(table, dtype=np.float32)

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """Limbs of P/m_l, shape (limbs, moduli), exact in float64."""
        return self.shifted_weights(0)

    @cached_property
    def product_limbs(self) -> npt.NDArray[np.float64]:
        """Limbs of P, shape (limbs,), exact in float64."""
        return self.shifted_product(0)

    def shifted_weights(self, shift: int) -> npt.NDArray[np.float64]:
        """Limbs of P/m_l · 2^shift, as many as hold P · 2^shift: shape (limbs, moduli)."""
        return np.array([_limbs(self.product // m << shift, self._count(shift)) for m in self.moduli]).T.copy()

    def shifted_product(self, shift: int) -> npt.NDArray[np.float64]:
        """Limbs of P · 2^shift, shape (limbs,)."""
        return np.array(_limbs(self.product << shift, self._count(shift)))

    def weights_modulo(self, p: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Limbs of P/m_l mod p and of P mod p, for results mod p: shapes (limbs, moduli) and (limbs,)."""
        count = -(-(p - 1).bit_length() // LIMB_BITS)
        weights = [_limbs(self.product // m % p, count) for m in self.moduli]
        return np.array(weights).T.copy(), np.array(_limbs(self.product % p, count))

    def _count(self, shift: int) -> int:
        return -(-(self.product.bit_length() + shift) // LIMB_BITS)


def _limbs(x: int, count: int) -> list[float]:
    return [float(x >> LIMB_BITS * w & ((1 << LIMB_BITS) - 1)) for w in range(count)]


def covers(product: int, bound: int) -> bool:
    """Whether moduli with this product determine every integer |x| ≤ bound.

    The CRT's quotient is rounded in float64 from a sum of at most 54 terms, with an absolute error below 2^-40;
    |x|/P must stay that far from 1/2.
    """
    return 2 * bound * (1 << 40) < product * ((1 << 40) - 2)


@lru_cache(maxsize=1024)
def _system(count: int) -> ResidueSystem:
    return ResidueSystem(INT8_MODULI[:count])


@lru_cache(maxsize=1)
def _products() -> tuple[int, ...]:
    out, p = [], 1
    for m in INT8_MODULI:
        p *= m
        out.append(p)
    return tuple(out)


@lru_cache(maxsize=1)
def largest_bounds() -> tuple[int, ...]:
    """For 1, 2, … INT8 moduli, the largest bound that `covers` accepts."""
    return tuple((p * ((1 << 40) - 2) - 1) // (1 << 41) for p in _products())


def widest_bits() -> int:
    """Bits, sign included, of the widest integers that INT8 moduli determine."""
    return largest_bounds()[-1].bit_length() + 1


def largest_shifts(bound: int) -> list[int]:
    """For 1, 2, … INT8 moduli, the largest s (maybe negative) for which they cover bound · 2^s."""
    return [
        (limit // bound).bit_length() - 1 if limit >= bound else -(-(-bound // limit) - 1).bit_length()
        for limit in largest_bounds()
    ]


def moduli_needed(bound: int) -> int | None:
    """The least number of INT8 moduli that determine every integer |x| ≤ bound; None if all of them do not."""
    count = bisect_left(largest_bounds(), bound) + 1
    return count if count <= len(INT8_MODULI) else None


def residue_system(bound: int) -> ResidueSystem | None:
    """The least system of INT8 moduli for integers |x| ≤ bound, or None where the bound is too wide (above 2^341)."""
    count = moduli_needed(bound)
    return None if count is None else _system(count)


def digits_for(bits: int) -> int:
    """Digits that hold integers |x| ≤ 2^bits: 14 digits − 1 ≥ bits."""
    return max(1, -(-(bits + 1) // DIGIT_BITS))
