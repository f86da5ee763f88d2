"""Formats: code points against ml_dtypes, alphabets against their written-out sets, accumulators against arithmetic.

Oracles: ml_dtypes (an independent implementation of OCP MX and OFP8), struct for IEEE formats, and the alphabets as
the OCP tables list them.
"""

import math
import struct
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from gemmulate import formats

ML_DTYPES = {
    "fp4_e2m1": ml_dtypes.float4_e2m1fn,
    "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
}


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("name", ML_DTYPES)
def test_every_code_point_agrees_with_ml_dtypes(name: str) -> None:
    fmt = formats.get(name)
    kind = np.uint8 if fmt.bits <= 8 else np.uint16
    with np.errstate(invalid="ignore"):  # signalling NaNs of bf16
        theirs = np.arange(1 << fmt.bits, dtype=kind).view(ML_DTYPES[name]).astype(np.float64)
    wrong = [c for c in range(1 << fmt.bits) if not same(fmt.decode(c), float(theirs[c]))]
    assert not wrong


@pytest.mark.parametrize(("name", "low", "high"), [("int4", -8, 7), ("int8", -128, 127), ("uint8", 0, 255)])
def test_integers(name: str, low: int, high: int) -> None:
    fmt = formats.get(name)
    assert sorted(int(fmt.decode(c)) for c in range(1 << fmt.bits)) == list(range(low, high + 1)) == list(fmt.alphabet)
    assert fmt.largest == high


def test_tf32_is_float32_cut_to_ten_mantissa_bits() -> None:
    fmt = formats.get("tf32")
    for code in range(0, 1 << 19, 37):
        (value,) = struct.unpack("<f", struct.pack("<I", code << 13))
        assert same(fmt.decode(code), value), code


def test_fp64_decodes_like_struct() -> None:
    fmt = formats.get("fp64")
    for value in (0.0, -0.0, 1.0, -1.5, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, math.inf, -math.inf):
        (code,) = struct.unpack("<Q", struct.pack("<d", value))
        assert same(fmt.decode(code), value)
    assert fmt.largest == 1.7976931348623157e308


def test_e8m0_scales_are_powers_of_two() -> None:
    scale = formats.get_block("mxfp4").scale
    theirs = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    assert all(same(scale.decode(c), float(theirs[c])) for c in range(256))


def test_nvfp4_scales_are_the_positive_half_of_e4m3() -> None:
    block = formats.get_block("nvfp4")
    positive = {v for v in np.arange(128, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(float) if v >= 1}
    assert block.block == 16
    assert set(block.scales) == {int(v) for v in positive if v.is_integer()}


def test_alphabets_are_the_written_sets() -> None:
    fp4 = {0, 1, 2, 3, 4, 6, 8, 12}
    assert set(formats.get("fp4_e2m1").alphabet) == fp4 | {-v for v in fp4}
    e4m3 = set(range(17)) | {s << e for s in range(8, 16) for e in range(6) if s << e <= 448}
    assert set(formats.get("fp8_e4m3").alphabet) == e4m3 | {-v for v in e4m3}
    e2m3 = set(range(16)) | set(range(16, 32, 2)) | set(range(32, 61, 4))
    assert set(formats.get("fp6_e2m3").alphabet) == e2m3 | {-v for v in e2m3}
    for name, bound in (("bf16", 2**8), ("fp16", 2**11), ("tf32", 2**11), ("fp64", 2**53)):
        alphabet = formats.get(name).alphabet
        assert (alphabet.smallest, alphabet.largest, len(alphabet)) == (-bound, bound, 2 * bound + 1)


@pytest.mark.parametrize("name", [n for n, f in formats.FORMATS.items() if f.bits <= 19])
def test_codes_store_the_alphabet(name: str) -> None:
    fmt = formats.get(name)
    for value in fmt.alphabet:
        assert fmt.decode(fmt.code(value)) == math.ldexp(value, fmt.unit_exponent)
    with pytest.raises(ValueError, match="not in the alphabet"):
        fmt.code(fmt.alphabet.largest + 1)


def test_depths_of_the_literature() -> None:
    s, s8, u8 = (formats.get(n).alphabet for n in ("fp4_e2m1", "int8", "uint8"))
    assert formats.accumulator("fp32").max_depth(s, s) == 2**24 // 144 == 116508
    assert formats.accumulator("fp8_13bit").max_depth(s, s) == 113
    assert formats.accumulator("int32").max_depth(u8, s8) == 65793


@pytest.mark.parametrize("accumulator", formats.ACCUMULATORS)
@pytest.mark.parametrize("pair", list(product(("fp4_e2m1", "int4", "int8", "uint8", "fp6_e2m3"), repeat=2)))
def test_the_depth_is_exact_and_one_more_is_not(accumulator: str, pair: tuple[str, str]) -> None:
    acc, (left, right) = formats.accumulator(accumulator), (formats.get(n).alphabet for n in pair)
    products = [p * q for p in (left.smallest, left.largest) for q in (right.smallest, right.largest)]
    depth = acc.max_depth(left, right)

    def fits(total: int) -> bool:
        if acc.kind == "int":
            return -(1 << (acc.bits - 1)) <= total < 1 << (acc.bits - 1)
        return abs(total) < 1 << acc.bits if acc.kind == "aligned" else abs(total) <= 1 << acc.bits

    assert all(fits(depth * v) for v in products)
    assert not all(fits((depth + 1) * v) for v in products)


def test_a_multiple_of_a_quantum_sums_deeper() -> None:
    even = formats.Alphabet((-4, -2, 0, 2, 4))
    assert formats.accumulator("fp32").max_depth(even, even) == 2**24 // 4
    zero = formats.Alphabet((0,))
    assert formats.accumulator("fp32").max_depth(zero, even) == 2**63 - 1


@pytest.mark.parametrize("name", ["fp4", "FP4_E2M1", "", "int 8", None])
def test_an_unknown_format_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match="choose from fp4_e2m1"):
        formats.get(name)


def test_alphabets_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="empty"):
        formats.Alphabet(())
    with pytest.raises(ValueError, match="increase"):
        formats.Alphabet((2, 1))
    with pytest.raises(ValueError, match="not listed"):
        formats.get("fp64").alphabet.array()
