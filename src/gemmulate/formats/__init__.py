"""Formats: what a unit can store and multiply exactly.

Sources: OCP Microscaling Formats (MX) v1.0 (2023) for FP4, FP6, E8M0 and the block sizes; OCP OFP8 v1.0 (2023) for
FP8; IEEE 754-2019 for FP16 and FP64. NVFP4: blocks of 16 with an FP8 E4M3 scale whose sign bit is unused.
"""

from difflib import get_close_matches
from typing import TypeVar

from gemmulate.formats.accumulator import ACCUMULATORS, Accumulator
from gemmulate.formats.alphabet import Alphabet
from gemmulate.formats.block import BlockFormat
from gemmulate.formats.format import Format

_T = TypeVar("_T")

# unit_exponent: FP4's and FP6's is that of their smallest subnormal, so that nothing is lost. FP8's is 0: one more
# factor of two only adds integers too large to be summed exactly to any useful depth.
FORMATS = {
    f.name: f
    for f in (
        Format("fp4_e2m1", "float", 4, exponent_bits=2, mantissa_bits=1, bias=1, unit_exponent=-1),
        Format("fp6_e2m3", "float", 6, exponent_bits=2, mantissa_bits=3, bias=1, unit_exponent=-3),
        Format("fp6_e3m2", "float", 6, exponent_bits=3, mantissa_bits=2, bias=3, unit_exponent=-4),
        Format("fp8_e4m3", "float", 8, exponent_bits=4, mantissa_bits=3, bias=7, specials="fn"),
        Format("fp8_e5m2", "float", 8, exponent_bits=5, mantissa_bits=2, bias=15, specials="ieee"),
        Format("int4", "int", 4, accumulator="int32"),
        Format("int8", "int", 8, accumulator="int32"),
        Format("uint8", "int", 8, signed=False, accumulator="int32"),
        Format("bf16", "float", 16, exponent_bits=8, mantissa_bits=7, bias=127, specials="ieee", consecutive=True),
        Format("fp16", "float", 16, exponent_bits=5, mantissa_bits=10, bias=15, specials="ieee", consecutive=True),
        Format("tf32", "float", 19, exponent_bits=8, mantissa_bits=10, bias=127, specials="ieee", consecutive=True),
        Format(
            "fp64",
            "float",
            64,
            exponent_bits=11,
            mantissa_bits=52,
            bias=1023,
            specials="ieee",
            consecutive=True,
            accumulator="fp64",
        ),
    )
}
E8M0 = Format("e8m0", "float", 8, signed=False, exponent_bits=8, bias=127, specials="e8m0")
UE4M3 = Format("ue4m3", "float", 7, signed=False, exponent_bits=4, mantissa_bits=3, bias=7, specials="fn")

BLOCK_FORMATS = {
    b.name: b
    for b in (
        BlockFormat("mxfp4", FORMATS["fp4_e2m1"], E8M0, 32),
        BlockFormat("mxfp6_e2m3", FORMATS["fp6_e2m3"], E8M0, 32),
        BlockFormat("mxfp6_e3m2", FORMATS["fp6_e3m2"], E8M0, 32),
        BlockFormat("mxfp8_e4m3", FORMATS["fp8_e4m3"], E8M0, 32),
        BlockFormat("mxfp8_e5m2", FORMATS["fp8_e5m2"], E8M0, 32),
        BlockFormat("nvfp4", FORMATS["fp4_e2m1"], UE4M3, 16),
    )
}


def _pick(table: dict[str, _T], name: str, what: str) -> _T:
    try:
        return table[name]
    except (KeyError, TypeError):
        near = [n for n in table if name and n.startswith(str(name))][:1] or get_close_matches(str(name), table, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown {what} {name!r}: choose from {', '.join(table)}{hint}") from None


def get(name: str) -> Format:
    """The format of that name, e.g. "fp4_e2m1"; ValueError lists all names."""
    return _pick(FORMATS, name, "format")


def get_block(name: str) -> BlockFormat:
    """The block-scaled format of that name, e.g. "nvfp4"; ValueError lists all names."""
    return _pick(BLOCK_FORMATS, name, "block format")


def accumulator(name: str) -> Accumulator:
    """The accumulator of that name, e.g. "fp32"; ValueError lists all names."""
    return _pick(ACCUMULATORS, name, "accumulator")


__all__ = [
    "ACCUMULATORS",
    "BLOCK_FORMATS",
    "FORMATS",
    "Accumulator",
    "Alphabet",
    "BlockFormat",
    "Format",
    "accumulator",
    "get",
    "get_block",
]
