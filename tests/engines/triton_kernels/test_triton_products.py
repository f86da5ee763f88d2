"""residue_gemm, recombine and fused: CRT digits, exact integers and their one rounding, as Python's ints have them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem, covers
from gemmulate.engines.rounding import FLOAT_FORMATS, round_to_float
from gemmulate.engines.triton import residue_gemm as module
from gemmulate.engines.triton.floating import layout_of
from gemmulate.engines.triton.fused import fused_floats, fused_words
from gemmulate.engines.triton.recombine import Certainty, recombine_floats, recombine_words
from gemmulate.engines.triton.residue_gemm import as_format, fp8_depth, gemm_blocks, plane_sums, residue_gemm
from gemmulate.formats import accumulator
from gemmulate.formats.alphabet import Alphabet

BLOCKS = (16, 16, 32, 4, 2)


def tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def exponents(values: Any) -> torch.Tensor:
    return tensor(np.array(values, dtype=np.int32))


def floats(pattern: torch.Tensor, dtype: Any) -> Any:
    return pattern.numpy().view(dtype)


def digits_of(values: list[list[int]], system: ResidueSystem) -> torch.Tensor:
    return torch.tensor(
        [
            [[v * inverse % m for v in row] for row in values]
            for m, inverse in zip(system.moduli, system.inverses, strict=True)
        ],
        dtype=torch.uint8,
    )


def window(system: ResidueSystem) -> int:
    """The largest bound that the moduli cover."""
    low, high = 0, system.product
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if covers(system.product, middle) else (low, middle)
    return low


def hostile_integers(limit: int, shape: tuple[int, int], seed: int) -> list[list[int]]:
    """All sizes; ties of 53 and 24 bits and their neighbours; powers of two; the window's ends."""
    rng = random.Random(seed)

    def one() -> int:
        bits = rng.randint(0, limit.bit_length())
        value = rng.getrandbits(bits) if bits else 0
        kind = rng.randrange(6)
        if kind < 3:
            cut = max(0, bits - rng.choice([25, 54]))
            value = (value >> cut << cut) + (kind - 1)
        elif kind == 3:
            value = (1 << bits) - rng.randrange(2)
        return max(-limit, min(limit, value * rng.choice([-1, 1])))

    values = [[one() for _ in range(shape[1])] for _ in range(shape[0])]
    values[0][:5] = [0, limit, -limit, min(1, limit), -min(1, limit)]
    return values


@pytest.mark.parametrize("plane_format", ["int8", "bfloat16", "fp8_e4m3"])
@pytest.mark.parametrize(("m", "n", "k", "count"), [(1, 1, 1, 4), (5, 19, 37, 3), (17, 33, 64, 2), (3, 2, 801, 7)])
def test_digits_of_products(plane_format: Any, m: int, n: int, k: int, count: int) -> None:
    rng = np.random.default_rng(k)
    system = ResidueSystem(INT8_MODULI[:count])
    a = rng.integers(-128, 128, (count, m, k), dtype=np.int8)
    b = rng.integers(-128, 128, (count, n, k), dtype=np.int8)
    a[:, 0], b[:, 0], b[:, -1] = -128, -128, 127
    expected = (
        np.einsum("lik,ljk->lij", a.astype(np.int64), b.astype(np.int64)) % np.array(system.moduli)[:, None, None]
    )
    got = residue_gemm(as_format(tensor(a), plane_format), as_format(tensor(b), plane_format), system, BLOCKS)
    assert (got.numpy() == expected).all()
    padded = as_format(torch.nn.functional.pad(tensor(a), (0, 5)), plane_format)[..., :k]
    assert torch.equal(residue_gemm(padded, as_format(tensor(b), plane_format), system), got)


@pytest.mark.parametrize("plane_format", ["int8", "bfloat16", "fp8_e4m3"])
def test_depths_beyond_one_accumulator(plane_format: Any) -> None:
    """Entries of one sign and largest size, to twice the depth that is reduced at once."""
    depth = 65_280 * 2 + 3 if plane_format == "int8" else 5_003
    system = ResidueSystem((256, 255, 29))
    a = np.full((3, 2, depth), -128, dtype=np.int8)
    a[:, 1] = 127
    planes = as_format(tensor(a), plane_format)
    got = residue_gemm(planes, planes, system, (16, 16, 128, 4, 2))
    sums = np.array([[128 * 128, -128 * 127], [-128 * 127, 127 * 127]]) * depth
    assert (got.numpy() == sums[None] % np.array(system.moduli)[:, None, None]).all()


def test_parts_for_fp8_are_exact() -> None:
    """Every residue is 16 h + l, with h + l beside them, and x y = 240 h h' + 16 s s' − 15 l l' for every pair."""
    every = torch.arange(-128, 128, dtype=torch.int8)[None, None]
    high, low, both = as_format(every, "fp8_e4m3").to(torch.float32)[0]
    assert torch.equal(16 * high + low, every.to(torch.float32)[0])
    assert torch.equal(high + low, both)
    assert max(high.abs().max(), low.abs().max()) == 8
    h, l, s = (part.T * part for part in (high, low, both))  # noqa: E741 - the field's letters
    assert torch.equal(240 * h + 16 * s - 15 * l, every.to(torch.float32)[0].T * every.to(torch.float32)[0])


def test_blocks_for_fp8_are_as_deep_as_its_sums_are_exact() -> None:
    """The accumulators of gm.formats: 14 bits on Hopper and Ada, FP32 on Blackwell, for parts of at most 16."""
    parts = Alphabet(tuple(range(-16, 17)))
    for capability, name in ((89, "fp8_13bit"), (90, "fp8_13bit"), (100, "fp32"), (103, "fp32"), (120, "fp32")):
        deepest = accumulator(name).max_depth(parts, parts)
        assert gemm_blocks(2, capability)[2] <= fp8_depth(capability) <= deepest
    assert 2 * fp8_depth(90) > accumulator("fp8_13bit").max_depth(parts, parts)  # no power of two more


def test_deeper_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "capability_of", lambda device: 90)
    planes = as_format(torch.zeros((1, 2, 64), dtype=torch.int8), "fp8_e4m3")
    with pytest.raises(ValueError, match="blocks of depth 64: FP8 sums are exact to 32 here"):
        residue_gemm(planes, planes, ResidueSystem((256,)), (16, 16, 64, 4, 2))
    residue_gemm(planes, planes, ResidueSystem((256,)), (16, 16, 32, 4, 2))


@pytest.mark.parametrize("plane_format", ["bfloat16", "fp8_e4m3"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 70, 33), (3, 2, 1601), (2, 3, 0)])
def test_sums_of_bytes(plane_format: Any, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-128, 128, (v, k), dtype=np.int8) for v in (m, n))
    a[0], b[-1] = -128, -128
    got = plane_sums(tensor(a), tensor(b), plane_format)
    assert got.dtype == torch.int32
    assert (got.numpy() == a.astype(np.int64) @ b.astype(np.int64).T).all()


def test_sums_beyond_int32_are_refused() -> None:
    a = torch.zeros((1, 65_281), dtype=torch.int8)
    with pytest.raises(ValueError, match="depth = 65281 exceeds 65280"):
        plane_sums(a, a, "bfloat16")


@pytest.mark.parametrize("count", range(1, 31))
def test_integers_of_every_count_of_moduli(count: int) -> None:
    system = ResidueSystem(INT8_MODULI[:count])
    values = hostile_integers(window(system), (3, 70), count)
    digits = digits_of(values, system)
    flat = [v for row in values for v in row]
    longest = max((v if v >= 0 else ~v).bit_length() + 1 for v in flat)
    for words in {1, longest // 64 + 1}:
        out = torch.empty((3, 70, words), dtype=torch.int64)
        assert recombine_words(digits, system, out) == longest
        got = [int.from_bytes(e.tobytes(), "little") for e in out.numpy().reshape(-1, words)]
        assert got == [v % (1 << 64 * words) for v in flat]


@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
@pytest.mark.parametrize("count", [1, 2, 5, 8, 15, 16, 49])
def test_one_rounding(name: str, count: int) -> None:
    """To nearest even from the smallest subnormals and below to overflow, with the sign of what vanishes."""
    system, dtype = ResidueSystem(INT8_MODULI[:count]), np.dtype(name)
    limit = window(system)
    values = hostile_integers(limit, (4, 64), count)
    digits, form, layout = digits_of(values, system), FLOAT_FORMATS[name], layout_of(name)
    bits = limit.bit_length()
    columns = [j % 7 - 3 for j in range(64)]
    for rows in (
        [-3, form.least - bits + 3, form.least - bits // 2, form.least - 2],
        [form.largest - bits, form.largest - bits // 2, form.largest, 0],
        [-5000, 5000, form.least, -bits],
    ):
        out = torch.empty((64, 4), dtype=layout.carrier).T
        recombine_floats(digits, system, exponents(rows), exponents(columns), out, layout)
        expected = [
            [round_to_float(v, rows[i] + columns[j], dtype) for j, v in enumerate(row)] for i, row in enumerate(values)
        ]
        assert floats(out.contiguous(), dtype).tobytes() == np.array(expected, dtype=dtype).tobytes()


# 12 moduli take 3 limbs, the interval of 94 bits 5.
@pytest.mark.parametrize(("count", "bits"), [(24, (20, 20)), (24, (3, 61)), (24, (90, 32)), (12, (94, 1))])
def test_what_roundings_of_operands_leave_open(count: int, bits: tuple[int, int]) -> None:
    system, form = ResidueSystem(INT8_MODULI[:count]), np.dtype(np.float64)
    values = hostile_integers(window(system) >> 4, (4, 40), 5)
    row_lost, column_lost = [0, 1, 0, 1000], [j % 3 * 77 for j in range(40)]
    rows, columns = [-1100, -1, 0, 900], list(range(40))
    out = torch.empty((4, 40), dtype=torch.int64)
    certainty = Certainty(exponents(row_lost), exponents(column_lost), *bits)
    open_ = recombine_floats(
        digits_of(values, system), system, exponents(rows), exponents(columns), out, layout_of("float64"), certainty
    )
    assert open_ is not None
    got = floats(out, np.float64)
    for i, j in np.ndindex(4, 40):
        bound = (row_lost[i] << bits[1]) + (column_lost[j] << bits[0])
        exponent = rows[i] + columns[j] - 1
        low, high = (round_to_float(2 * values[i][j] + s * bound, exponent, form) for s in (-1, 1))
        assert got[i, j] == low
        certain = bound == 0 or (low == high != 0)
        assert bool(open_[i, j]) != certain
    assert 0 < open_.sum() < open_.numel()


@pytest.mark.parametrize(("m", "n", "k", "count"), [(1, 1, 1, 1), (5, 35, 40, 3), (9, 17, 33, 15), (2, 3, 64, 20)])
def test_the_fused_kernel_gives_the_same_bits(m: int, n: int, k: int, count: int) -> None:
    rng = np.random.default_rng(count)
    system = ResidueSystem(INT8_MODULI[:count])
    a = tensor(rng.integers(-128, 128, (count, m, k), dtype=np.int8))
    b = tensor(rng.integers(-128, 128, (count, n, k), dtype=np.int8))
    digits = residue_gemm(a, b, system)
    rows, columns = exponents(range(m)), exponents([-j for j in range(n)])
    layout = layout_of("float64")
    certainty = Certainty(rows, exponents([1] * n), 40, 41)
    for known in (None, certainty):
        one, two = (torch.empty((m, n), dtype=torch.int64) for _ in range(2))
        apart = recombine_floats(digits, system, rows, columns, one, layout, known)
        together = fused_floats(a, b, system, rows, columns, two, layout, known, BLOCKS)
        assert torch.equal(one, two)
        assert (apart is None and together is None) or torch.equal(apart, together)
    one, two = (torch.empty((m, n, 2), dtype=torch.int64) for _ in range(2))
    assert recombine_words(digits, system, one) == fused_words(a, b, system, two, BLOCKS)
    assert torch.equal(one, two)


def test_planes_that_do_not_belong_together() -> None:
    a, b = torch.zeros((2, 3, 4), dtype=torch.int8), torch.zeros((2, 3, 5), dtype=torch.int8)
    system = ResidueSystem(INT8_MODULI[:2])
    with pytest.raises(ValueError, match="depth must agree"):
        residue_gemm(a, b, system)
    with pytest.raises(TypeError, match=r"int8.*bfloat16"):
        residue_gemm(a, a.to(torch.bfloat16), system)
    with pytest.raises(ValueError, match="'fp4' is unknown"):
        as_format(a, "fp4")  # type: ignore[arg-type]
