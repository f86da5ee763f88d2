"""A number format from its defining fields: every value, code point and alphabet is derived."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gemmulate.formats.alphabet import Alphabet

# Which code points are not finite numbers:
#   ieee  the largest exponent field holds infinities and NaNs (FP8 E5M2, BF16, FP16, TF32, FP64)
#   fn    "finite and NaN": only the all-ones magnitude is NaN (FP8 E4M3, OCP OFP8 v1.0 section 5.3)
#   none  every code point is a finite number (FP4, FP6: OCP MX v1.0 section 5.3)
#   e8m0  an exponent alone: no sign, no zero, all ones is NaN (OCP MX v1.0 section 5.4)
Specials = Literal["ieee", "fn", "none", "e8m0"]


@dataclass(frozen=True)
class Format:
    """A number format of a matrix unit: floating point (exponent and mantissa fields) or two's-complement integer.

    `unit_exponent` fixes the alphabet's scale: the integer v of the alphabet is stored as v·2^unit_exponent.
    `consecutive` limits the alphabet of a wide float to its consecutive integers, which is how it is used.

    >>> from gemmulate import formats
    >>> list(formats.get("fp4_e2m1").alphabet)
    [-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12]
    """

    name: str
    kind: Literal["float", "int"]
    bits: int
    signed: bool = True
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    specials: Specials = "none"
    unit_exponent: int = 0
    consecutive: bool = False
    accumulator: str = "fp32"

    def decode(self, code: int) -> float:
        """The value of a code point (0 ≤ code < 2^bits), exact as a Python float; NaN and infinities as such."""
        if not 0 <= code < 1 << self.bits:
            raise ValueError(f"code = {code} is outside 0 … {(1 << self.bits) - 1}, the code points of {self.name}")
        if self.kind == "int":
            return float(code - (1 << self.bits) if self.signed and code >> (self.bits - 1) else code)
        mantissa = code & ((1 << self.mantissa_bits) - 1)
        exponent = (code >> self.mantissa_bits) & ((1 << self.exponent_bits) - 1)
        negative = self.signed and code >> (self.bits - 1) == 1
        last = (1 << self.exponent_bits) - 1
        if self.specials == "e8m0":
            return math.nan if exponent == last else math.ldexp(1.0, exponent - self.bias)
        if self.specials == "ieee" and exponent == last:
            return math.nan if mantissa else (-math.inf if negative else math.inf)
        if self.specials == "fn" and exponent == last and mantissa == (1 << self.mantissa_bits) - 1:
            return math.nan
        hidden = 1 << self.mantissa_bits if exponent else 0
        value = math.ldexp(float(hidden + mantissa), max(exponent, 1) - self.bias - self.mantissa_bits)
        return -value if negative else value

    @cached_property
    def largest(self) -> float:
        """The largest finite value."""
        if self.kind == "int":
            return float((1 << (self.bits - (1 if self.signed else 0))) - 1)
        magnitudes = (1 << (self.bits - (1 if self.signed else 0))) - 1
        if self.specials == "ieee":
            magnitudes = (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1
        elif self.specials in ("fn", "e8m0"):
            magnitudes -= 1
        return self.decode(magnitudes)

    @cached_property
    def alphabet(self) -> Alphabet:
        """The integers v with v·2^unit_exponent in the format (its consecutive ones alone when `consecutive`)."""
        if self.kind == "int":
            low = -(1 << (self.bits - 1)) if self.signed else 0
            return Alphabet(range(low, low + (1 << self.bits)))
        if self.consecutive:
            bound = 1 << (self.mantissa_bits + 1)
            return Alphabet(range(-bound, bound + 1))
        found = set()
        for code in range(1 << self.bits):
            value = self.decode(code)
            if math.isfinite(value):
                scaled = math.ldexp(value, -self.unit_exponent)
                if scaled.is_integer():
                    found.add(int(scaled))
        return Alphabet(tuple(sorted(found)))

    def code(self, value: int) -> int:
        """The code point that stores the alphabet's integer `value` (positive zero for 0); ValueError outside."""
        if value not in self.alphabet:
            raise ValueError(
                f"value = {value} is not in the alphabet of {self.name}; see formats.get({self.name!r}).alphabet"
            )
        if self.kind == "int":
            return value % (1 << self.bits)
        sign = (1 << (self.bits - 1)) if value < 0 else 0
        fraction, exponent = math.frexp(math.ldexp(float(abs(value)), self.unit_exponent))
        biased = exponent - 1 + self.bias  # value = 1.f · 2^(exponent-1)
        if value == 0:
            return 0
        if biased >= 1:
            mantissa = int(math.ldexp(2 * fraction - 1, self.mantissa_bits))
            return sign | biased << self.mantissa_bits | mantissa
        return sign | int(math.ldexp(fraction, exponent + self.bias - 1 + self.mantissa_bits))
