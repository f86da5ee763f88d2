"""Residue systems for FP4 units: which moduli cost least there, and each residue's E2M1 digits.

A modulus of the catalogue writes x·y as Σ_t λ_t P_t(x) Q_t(y), with one to six products of FP4 values, where INT8's
moduli, close to 256, would take five or six each. So an FP4 engine keeps INT8's window, and covers it by moduli of its
own: 58 products for the 15 moduli of a float64 product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2, prod

import numpy as np
import numpy.typing as npt

from gemmulate.encodings.bounds.lower import prime_factors
from gemmulate.encodings.catalogue import Catalogue
from gemmulate.encodings.encoding import Encoding
from gemmulate.engines.residue_system import ResidueSystem, symmetric
from gemmulate.formats import accumulator as accumulator_called
from gemmulate.formats import get as format_called

FORMAT = "fp4_e2m1"
# Every integer v of the alphabet is stored as v/2, so that a product of two is v w / 4.
QUANTA_PER_UNIT = 4


def fp4_depth(multiple: int, accumulator: str = "fp32") -> int:
    """The largest multiple to which sums of products of E2M1 values are exact in `accumulator` (gm.formats).

    |v w| ≤ 144 quanta of 1/4, and FP32 holds every multiple of the quantum up to 2^24 of them: 116,508 terms.
    """
    alphabet = format_called(FORMAT).alphabet
    return accumulator_called(accumulator).max_depth(alphabet, alphabet) // multiple * multiple


@dataclass(frozen=True, eq=False)
class Fp4Digits:
    """How integers of a byte multiply on FP4: Σ_t coefficients_t · left_t(x) · right_t(y), ≡ x y modulo the modulus.

    left, right: uint8 (products, 256), E2M1 codes, looked up by the byte that stores x in two's complement.
    """

    coefficients: tuple[int, ...]
    left: npt.NDArray[np.uint8]
    right: npt.NDArray[np.uint8]

    def bound(self, depth: int) -> int:
        """A bound of |Σ_t coefficients_t (sums over the depth)|, in quanta."""
        peak = format_called(FORMAT).alphabet.max_abs ** 2
        return sum(map(abs, self.coefficients)) * peak * depth


def _codes(encoding: Encoding, side: str) -> npt.NDArray[np.uint8]:
    """E2M1 codes of each plane by byte, −128 … 127 in two's complement."""
    form = format_called(FORMAT)
    code_of = {v: form.code(v) for v in form.alphabet}
    values, _ = encoding.limbs(side)
    columns = {
        int(v): [code_of[int(p)] for p in plane] for v, plane in zip(values, encoding.planes(side).T, strict=True)
    }
    modulus = encoding.modulus
    signed = [b - 256 if b > 127 else b for b in range(256)]
    return np.array([columns[v % modulus if modulus else v] for v in signed], dtype=np.uint8).T.copy()


@lru_cache(maxsize=256)
def digits_modulo(m: int) -> Fp4Digits:
    """The catalogue's digits of residues modulo m, 2 ≤ m ≤ 256; coefficients of least magnitude."""
    encoding = Catalogue().get(f"mod{m}.{FORMAT}")
    coefficients = tuple(symmetric(c * pow(encoding.divisor, -1, m), m) for c in encoding.coefficients)
    return Fp4Digits(coefficients, _codes(encoding, "left"), _codes(encoding, "right"))


@lru_cache(maxsize=1)
def digits_of_int8() -> Fp4Digits:
    """The catalogue's six products for INT8 times INT8, over the integers."""
    encoding = Catalogue().get(f"int8.int8.{FORMAT}")
    return Fp4Digits(encoding.coefficients, _codes(encoding, "left"), _codes(encoding, "right"))


@lru_cache(maxsize=64)
def fp4_system(system: ResidueSystem) -> ResidueSystem:
    """The moduli of least cost in FP4 products, each ≤ 256, whose product is at least that of `system`."""
    for products in range(1, _MOST + 1):
        moduli = _widest_moduli(products)
        if prod(moduli) >= system.product:
            return ResidueSystem(moduli)
    raise ValueError(f"FP4 moduli up to 256 do not cover {system.product.bit_length()} bits; use another engine")


# Moduli are shared out by these primes; a larger one divides at most one modulus, as two make more than 256.
_SMALL_PRIMES = (2, 3, 5, 7, 11, 13)
_SETS = 1 << len(_SMALL_PRIMES)
_MOST = 200  # products; the widest window of INT8 moduli takes 198
_MODULUS = 2.0**-20  # bits: of the same product by more or fewer moduli, 9 and 11 or 99, fewer have fewer sums


@dataclass(frozen=True)
class _Candidate:
    modulus: int
    products: int
    small: int  # the set of small primes that divide it, as bits


@lru_cache(maxsize=1)
def _groups() -> tuple[tuple[_Candidate, ...], ...]:
    """The catalogue's moduli that bytes hold, those of one larger prime together: at most one of each is chosen."""
    groups: dict[int, list[_Candidate]] = {}
    for encoding in Catalogue().residues(FORMAT):
        m = encoding.modulus or 0
        if m > 256 or encoding.left.size != m:  # partial covers are for rounded operands alone
            continue
        small = sum(1 << i for i, p in enumerate(_SMALL_PRIMES) if m % p == 0)
        larger = max(prime_factors(m), default=0)
        groups.setdefault(larger if larger > _SMALL_PRIMES[-1] else -m, []).append(
            _Candidate(m, encoding.products, small)
        )
    return tuple(map(tuple, groups.values()))


@lru_cache(maxsize=1)
def _widest() -> tuple[npt.NDArray[np.float64], tuple[npt.NDArray[np.int16], ...]]:
    """bits[s, n]: the most bits of coprime moduli of at most n products that use up the small primes s; and, group by
    group, which of its candidates that takes (counted from 1)."""
    bits = np.full((_SETS, _MOST + 1), -np.inf)
    bits[0] = 0
    taken = []
    for group in _groups():
        wider, which = bits.copy(), np.zeros(bits.shape, dtype=np.int16)
        for i, candidate in enumerate(group, start=1):
            n, free = candidate.products, [s for s in range(_SETS) if not s & candidate.small]
            for s in free:
                gained = bits[s, : _MOST + 1 - n] + log2(candidate.modulus) - _MODULUS
                row, choice = wider[s | candidate.small, n:], which[s | candidate.small, n:]
                better = gained > row
                row[better], choice[better] = gained[better], i
        bits = wider
        taken.append(which)
    return bits, tuple(taken)


@lru_cache(maxsize=256)
def _widest_moduli(products: int) -> tuple[int, ...]:
    """The coprime moduli of at most so many products whose product is largest, largest first."""
    bits, taken = _widest()
    moduli, left, s = [], products, int(np.argmax(bits[:, products]))
    for group, which in zip(reversed(_groups()), reversed(taken), strict=True):
        if choice := int(which[s, left]):
            candidate = group[choice - 1]
            moduli.append(candidate.modulus)
            left, s = left - candidate.products, s & ~candidate.small
    return tuple(sorted(moduli, reverse=True))
