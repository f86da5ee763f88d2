"""Products modulo p by digits: how entries are cut into bytes, and how many INT8 products that takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DigitSystem:
    """Entries modulo p as `digits` digits of `bits` bits (native/digits.hpp has the ranges and their proofs).

    Of digits of 8 bits all pairs are multiplied. Those of 7 bits leave room in a byte for the sums of two, which give
    the mixed terms: x₀y₁ + x₁y₀ = (x₀ + x₁)(y₀ + y₁) − x₀y₀ − x₁y₁ (Karatsuba and Ofman 1962).
    """

    modulus: int
    bits: int
    digits: int

    @property
    def planes(self) -> int:
        """Matrices of bytes that an operand becomes: its digits and, with 7 bits, the sums of two."""
        return self.digits if self.bits == 8 else self.digits * (self.digits + 1) // 2

    @property
    def products(self) -> int:
        """INT8 products."""
        return self.digits**2 if self.bits == 8 else self.planes


def digit_system(p: int) -> DigitSystem | None:
    """The digits that take the fewest products modulo p: 1, 3, 4 and 6 to p = 2^8, 2^14, 2^16 and 2^21; None beyond.

    >>> [digit_system(p).products for p in (251, 16381, 65521, 2**21)]
    [1, 3, 4, 6]
    """
    systems = (8, 1), (7, 2), (8, 2), (7, 3)
    return next((DigitSystem(p, bits, digits) for bits, digits in systems if p <= 1 << bits * digits), None)
