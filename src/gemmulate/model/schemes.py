"""What each scheme costs for one FP64 product: narrow operations, bytes of prepared operands, default counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from gemmulate.model.checks import check_choice
from gemmulate.model.device import Rates

Unit = Literal["int8", "fp8", "fp4"]


@dataclass(frozen=True)
class SchemeCost:
    """Costs as functions of r (moduli, or slices): see the fields' comments; `source` says where they come from."""

    name: str
    unit: Unit
    r_default: int  # for FP64 accuracy (53 to 55 bits)
    quadratic: bool  # slices: s(s+1)/2 products; otherwise products_slope·r + products_offset
    products_slope: float
    products_offset: float
    bytes_per_r: float  # of one prepared input, for each modulus or slice
    source: str

    def products(self, r: float) -> float:
        """α: narrow products of the operands' size, hence narrow operations for each FP64 operation."""
        return r * (r + 1) / 2 if self.quadratic else self.products_slope * r + self.products_offset

    def rate(self, rates: Rates) -> float | None:
        """Operations/s of the unit that multiplies, None where the device has no such unit."""
        return {"int8": rates.int8, "fp8": rates.fp8, "fp4": rates.fp4}[self.unit]


SCHEMES: Final[dict[str, SchemeCost]] = {
    cost.name: cost
    for cost in (
        SchemeCost(
            "residues-int8", "int8", 15, False, 1.0, 0.0, 1.0,
            "arXiv 2504.08009: one product and one byte a modulus; 15 moduli keep 58 bits",
        ),
        # 30 bytes at r = 12: two planes for six square moduli, three for six Karatsuba moduli.
        SchemeCost(
            "residues-fp8", "fp8", 12, False, 3.0, 1.0, 2.5,
            "arXiv 2606.06510: alpha = 3r + 1 (solved: 37 at r = 12); arXiv 2610.10924: 30 bytes at r = 12",
        ),
        # Each of the 59 products has a plane of half a byte on either side.
        SchemeCost(
            "residues-fp4", "fp4", 21, False, 59 / 21, 0.0, 0.5 * (59 / 21),
            "arXiv 2609.24519: 59 products over 21 moduli for 53 bits at k = 16384, scaled by r / 21",
        ),
        SchemeCost(
            "slices-int8", "int8", 7, True, 0.0, 0.0, 1.0,
            "Ozaki et al. (2012), Ootomo, Ozaki, Yokota (2024): s(s+1)/2 products, one byte a slice; "
            "cuBLAS: s = ceil((bits + 1)/8)",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Constant:
    """A dimensionless cost: 32-bit integer operations for each input (or output) and modulus, with its span."""

    value: float
    low: float
    high: float
    source: str


# c_q. The published figures are met at 6; counts of machine code on sm_90a and sm_103a say 6.8 to 14.4 for residues
# (three 32-bit limbs 6.8/7.5, dp4a 7.0/7.7, 64-bit mulhi 13.6/14.4) and 5.5/7.25 for 8-bit slices; measured conversion
# phases of an open INT8 library imply 13 to 15.
C_Q_RESIDUES: Final = Constant(
    6.0, 6.0, 15.0, "arXiv 2610.10924 (solved: 6); machine code 6.8 to 14.4, measured 13 to 15"
)
C_Q_SLICES: Final = Constant(5.5, 5.5, 7.25, "machine code on sm_90a (5.5) and sm_103a (7.25)")
# c_rec. The published stencil figure (1.78 = 8/(72/16)) leaves no room for reconstruction in a fused kernel: 0. A
# staged pipeline's recombination at 7 % of 8192³, r = 15 on GB200 is met by about 8.
C_REC_FUSED: Final = Constant(0.0, 0.0, 0.0, "arXiv 2610.10924 (solved: the figures neglect reconstruction)")
C_REC_STAGED: Final = Constant(8.0, 8.0, 8.0, "solved from the recombination share, 7 % of 8192^3 at r = 15 on GB200")
# Reducing one INT32 sum modulo m: multiply-high, multiply-subtract, one correction.
C_REQUANTISE: Final = 3.0


def scheme_cost(name: str) -> SchemeCost:
    """The costs of a scheme by name.

    Raises:
        ModelError: no such scheme.

    >>> scheme_cost("residues-fp8").products(12)
    37.0
    """
    return SCHEMES[check_choice("scheme", name, SCHEMES)]


def default_c_q(scheme: SchemeCost) -> Constant:
    """c_q when none is given: the published value, with the span of independent estimates."""
    return C_Q_SLICES if scheme.quadratic else C_Q_RESIDUES
