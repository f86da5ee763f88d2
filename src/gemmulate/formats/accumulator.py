"""Accumulators: how deep a sum of exact products stays exact."""

from dataclasses import dataclass
from typing import Literal

from gemmulate.formats.alphabet import Alphabet


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Adds products exactly up to a depth that depends on the alphabets.

    kind "int": two's complement of `bits`; exact while the true sum fits.
    kind "float": every partial sum of at most 2^bits product quanta is exact.
    kind "aligned": addends are aligned and cut, so partial sums must stay below 2^bits product quanta.

    >>> from gemmulate import formats
    >>> s = formats.get("fp4_e2m1").alphabet
    >>> formats.accumulator("fp32").max_depth(s, s), formats.accumulator("fp8_13bit").max_depth(s, s)
    (116508, 113)
    """

    name: str
    kind: Literal["int", "float", "aligned"]
    bits: int
    note: str = ""

    def max_depth(self, left: Alphabet, right: Alphabet) -> int:
        """The largest number k of products left·right whose sum is exact in every order, whatever the values.

        0 means that not even one product is exact; a product that is always zero allows any depth (2^63 − 1).
        """
        corners = [p * q for p in (left.smallest, left.largest) for q in (right.smallest, right.largest)]
        low, high = min(corners), max(corners)
        if low == high == 0:
            return (1 << 63) - 1
        if self.kind == "int":
            top, bottom = (1 << (self.bits - 1)) - 1, 1 << (self.bits - 1)
            limits = [top // high] if high > 0 else []
            if low < 0:
                limits.append(bottom // -low)
            return min(limits)
        reach = (1 << self.bits) - (1 if self.kind == "aligned" else 0)
        return reach * left.quantum * right.quantum // max(high, -low)

    def sum_limit(self) -> int:
        """The largest magnitude of a partial sum, in product quanta, that this accumulator holds exactly."""
        if self.kind == "int":
            return (1 << (self.bits - 1)) - 1
        return (1 << self.bits) - (1 if self.kind == "aligned" else 0)


# FP32: 24-bit significand, so integers of magnitude <= 2^24 are exact. FP16: 11-bit significand.
# fp8_13bit: Hopper and Ada tensor cores keep 13 fraction bits of FP8 products when they align them (DeepSeek-V3,
# arXiv 2412.19437, section 3.3.2, saw 14 bits), so only sums below 2^14 quanta are exact.
ACCUMULATORS = {
    a.name: a
    for a in (
        Accumulator("int32", "int", 32, "INT8, UINT8 and INT4 units"),
        Accumulator("int64", "int", 64, "NumPy's integer product"),
        Accumulator("fp32", "float", 24, "FP32; Blackwell's FP4 sums were measured to keep 24 bits or more"),
        Accumulator("fp16", "float", 11, "FP16 accumulation of consumer FP8 and FP16 units"),
        Accumulator("fp64", "float", 53, "FP64"),
        Accumulator("fp8_13bit", "aligned", 14, "FP8 on Hopper and Ada: 13 fraction bits survive alignment"),
    )
}
