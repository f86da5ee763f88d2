"""Exact dot products in Triton: against fractions, rounded by a search among the numbers of the format, and native."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import triton.language as tl
from test_triton_engine import OTHER
from triton_inputs import bits, hostile, refuse_reads

from gemmulate.engines import get_engine
from gemmulate.engines.torch_array import TorchArray
from gemmulate.engines.triton import exact_dot as module
from gemmulate.engines.triton.engine import TritonEngine
from gemmulate.engines.triton.exact_dot import dot_values, exact_dots, exact_dots_where
from gemmulate.engines.triton.floating import FloatLayout, layout_of

NAMES = ("float64", "float32", "float16", "bfloat16")


class Format:
    """A binary format by its fraction and exponent bits alone."""

    def __init__(self, name: str) -> None:
        self.layout: FloatLayout = layout_of(name)
        self.fraction, self.exponent = self.layout.fraction_bits, self.layout.exponent_bits
        self.infinity = ((1 << self.exponent) - 1) << self.fraction
        self.negative = 1 << (self.fraction + self.exponent)
        self.one = ((1 << (self.exponent - 1)) - 1) << self.fraction
        self.least = 2 - (1 << (self.exponent - 1)) - self.fraction  # exponent of the least number

    def value(self, pattern: int) -> Fraction:
        """The number of a pattern; of infinity the power of two that it stands for in rounding."""
        size = pattern & (self.negative - 1)
        field = size >> self.fraction
        significand = (size & ((1 << self.fraction) - 1)) | (1 << self.fraction if field else 0)
        size_value = significand * Fraction(2) ** (self.least + max(field, 1) - 1)
        return -size_value if pattern & self.negative else size_value

    def power(self, exponent: int) -> int:
        """The pattern of 2^exponent."""
        if exponent < self.least + self.fraction:
            return 1 << (exponent - self.least)
        return (exponent - self.least - self.fraction + 1) << self.fraction

    def rounded(self, x: Fraction) -> int:
        """The pattern nearest to x, of two the even one, with the sign of x."""
        low, high = 0, self.infinity
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.value(middle) <= abs(x) else (low, middle)
        if abs(x) >= self.value(self.infinity):
            low = self.infinity
        else:
            twice = self.value(low) + self.value(high) - 2 * abs(x)
            low = high if twice < 0 or (twice == 0 and low % 2) else low
        return low | (self.negative if x < 0 else 0)

    def tensor(self, patterns: npt.ArrayLike) -> torch.Tensor:
        size = (self.fraction + self.exponent + 1) // 8
        return torch.from_numpy(np.array(patterns, dtype=np.uint64).astype(f"u{size}").view(f"i{size}"))

    def unsigned(self, x: torch.Tensor) -> npt.NDArray[Any]:
        array = x.contiguous().numpy()
        return array.view(f"u{array.itemsize}")

    def dot(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Fraction:
        """The exact sum, NaN and infinities taken for 0."""
        terms = (
            self.value(int(x)) * self.value(int(y))
            for x, y in zip(np.array(a), np.array(b), strict=True)
            if all(int(z) & (self.negative - 1) < self.infinity for z in (x, y))
        )
        return sum(terms, Fraction(0))


def check(form: Format, result: Format, a: Any, b: Any) -> list[int]:
    """Compare the products of rows of a and b, one by one; returns them."""
    a, b = np.array(a, dtype=np.uint64), np.array(b, dtype=np.uint64)
    at = torch.arange(len(a)).repeat(2, 1).T
    found = result.unsigned(dot_values(form.tensor(a), form.tensor(b), form.layout, at, result.layout)).tolist()
    for x, y, pattern in zip(a, b, found, strict=True):
        exact = form.dot(x, y)
        want = result.rounded(exact)
        if exact == 0 and len(x) and all((int(u) ^ int(v)) & form.negative for u, v in zip(x, y, strict=True)):
            zeros = all(form.dot([u], [v]) == 0 for u, v in zip(x, y, strict=True))
            want = result.negative if zeros else want
        assert pattern == want, (x, y, hex(pattern), hex(want))
    return [int(pattern) for pattern in found]


@pytest.mark.parametrize("name", NAMES)
def test_any_bits(name: str) -> None:
    """Uniform patterns: all exponents, NaN and infinities, subnormal numbers; and mostly small exponents."""
    form, rng = Format(name), np.random.default_rng(1)
    a, b = (rng.integers(0, 2 * form.negative, (4, 9), dtype=np.uint64, endpoint=False) for _ in range(2))
    a[2:] &= np.uint64(form.negative | ((8 << form.fraction) - 1))
    a[0, 3], b[0, 4] = form.infinity, form.infinity + 1
    check(form, form, a, b)


@pytest.mark.parametrize("depth", [0, 1, 64, 65, 257, 600])
def test_depths(depth: int) -> None:
    """A block and less, a whole number of blocks and one more, and both shapes of blocks."""
    form, rng = Format("float64"), np.random.default_rng(depth)
    a, b = (rng.standard_normal((2, depth)).view(np.uint64) for _ in range(2))
    check(form, form, a, b)


@pytest.mark.parametrize("name", NAMES)
def test_sparse_sums_that_cancel(name: str) -> None:
    """Powers of two of either sign far apart, some taken away again: runs of zeros and of ones over many digits."""
    form, rng = Format(name), np.random.default_rng(2)
    least, most = form.least, (1 << (form.exponent - 1)) - 1
    a, b = np.full((2, 14, 12), form.one, dtype=np.uint64)
    for i in range(14):
        powers = rng.choice(np.arange(least, most + 1), 4)
        others = rng.choice([powers[0], least, 0, most], 4)
        for j in range(4):
            sign = form.negative * int(rng.integers(2))
            a[i, j], b[i, j] = form.power(int(powers[j])), form.power(int(others[j])) | sign
            # The first terms, those of most, are taken away again.
            taken = j < i % 5
            a[i, 4 + j], b[i, 4 + j] = (a[i, j], b[i, j] ^ np.uint64(form.negative)) if taken else (0, 0)
            a[i, 8 + j] = 0
        order = rng.permutation(12)
        a[i], b[i] = a[i, order], b[i, order]
    found = check(form, form, a, b)
    assert 0 in found  # 4 taken away


@pytest.mark.parametrize(
    ("name", "to"),
    [(name, name) for name in NAMES] + [("float64", "float32"), ("float32", "float16"), ("float32", "bfloat16")],
)
def test_ties_and_edges(name: str, to: str) -> None:
    """Halfway between neighbours, a last bit to either side; the largest number, and the least ones."""
    form, result = Format(name), Format(to)
    top = (1 << (result.exponent - 1)) - 1  # exponent of the largest numbers
    units = {  # patterns, and the exponent of their unit
        result.one: -result.fraction,
        result.infinity - 2: top - result.fraction,
        result.infinity - 1: top - result.fraction,
        0: result.least,
        1: result.least,
        (1 << result.fraction) - 1: result.least,
    }
    a, b, wanted = [], [], []
    for pattern, unit in units.items():
        whole, half = form.rounded(result.value(pattern)), (unit - 1) // 2
        assert form.value(whole) == result.value(pattern)
        for nudge in (0, 1, -1):  # by the least product that there is
            for sign in (0, form.negative):
                against = sign if nudge > 0 else sign ^ form.negative
                a.append([whole, form.power(half), abs(nudge)])
                b.append([form.one | sign, form.power(unit - 1 - half) | sign, 1 | against])
                up = nudge > 0 or (nudge == 0 and pattern % 2 == 1)
                wanted.append(pattern + up + (result.negative if sign else 0))
    assert check(form, result, a, b) == wanted


def test_the_largest_sums_of_a_thread() -> None:
    """More terms than limbs take before their carries, their digits as large as they get; and all of it negative."""
    form, depth = Format("float64"), 256 * int(module.STEPS.value) + 300
    largest = form.one + (1 << form.fraction) - 1
    a = np.full((2, depth), largest, dtype=np.uint64)
    a[1] |= np.uint64(form.negative)
    b = np.full((2, depth), largest + (2 << form.fraction), dtype=np.uint64)
    at = torch.tensor([[0, 0], [1, 1]])
    found = form.unsigned(dot_values(form.tensor(a), form.tensor(b), form.layout, at, form.layout)).tolist()
    want = form.rounded(depth * form.value(largest) * form.value(largest + (2 << form.fraction)))
    assert found == [want, want | form.negative]


def test_many_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Carries after every block."""
    monkeypatch.setattr(module, "STEPS", tl.constexpr(1))
    form, rng = Format("float64"), np.random.default_rng(3)
    a, b = (rng.standard_normal((2, 1030)) * 2.0 ** rng.integers(-40, 40, (2, 1030)) for _ in range(2))
    a[1, 515:], b[1, 515:] = -a[1, :515], b[1, :515]
    a[1, 0] *= 1 + 2.0**-50
    check(form, form, a.view(np.uint64), b.view(np.uint64))


def test_a_lower_class_behind_the_first_block() -> None:
    form = Format("float64")
    x = np.ones((3, 70))
    x[1, 68], x[2, 68], x[2, 69] = 2.0**-500, 2.0**-300, -(2.0**-900)
    y = np.ones((3, 70))
    y[:, 1::2] = -1.0
    assert check(form, form, x.view(np.uint64), y.view(np.uint64))[0] == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_against_the_native_engine(dtype: Any) -> None:
    """Hostile operands of NumPy and of torch, results with strides; what is not asked for stays."""
    rng, engine = np.random.default_rng(4), TritonEngine("triton", "cpu")
    a, b = hostile(rng, dtype, (7, 34)), hostile(rng, dtype, (5, 34))
    b[3] = -np.abs(b[3])
    a[6] = 0.0  # zeros of one sign against negative numbers: −0
    at = np.array([(i, j) for i in range(7) for j in range(5) if (i + j) % 4], dtype=np.int64)
    want = np.full((7, 5), 3, dtype=dtype)
    get_engine(OTHER).exact_dots(a, b, at, want)
    out = np.full((14, 6), 3, dtype=dtype)
    engine.exact_dots(a, b, at, out[::2, 1:])
    assert bits(out[::2, 1:]) == bits(want)
    assert (out[1::2] == 3).all()
    on_device = torch.full((5, 7), 3, dtype=torch.from_numpy(want).dtype).T
    engine.exact_dots(TorchArray(torch.from_numpy(a)), TorchArray(torch.from_numpy(b)), at, TorchArray(on_device))
    assert bits(on_device) == bits(want)
    assert (np.signbit(want) & (want == 0)).any()
    engine.exact_dots(a, b, at[:0], out)


def test_few_results_have_a_program_each() -> None:
    """On a GPU, where a tile's elements, maybe all with long vectors, would have a single multiprocessor."""
    sides = {(1, 1): 1, (70, 70): 1, (300, 300): 8, (1024, 1024): 32, (1, 1 << 15): 32, (8000, 8000): 32}
    assert {shape: module.tile_side(*shape, False) for shape in sides} == sides
    assert module.tile_side(1, 1, True) == 32


@pytest.mark.parametrize("side", [1, 8, 32])
@pytest.mark.parametrize("case", ["none", "need", "open", "both", "all", "all without masks", "neither"])
def test_masks(case: str, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of several tiles each; masks, operands and results with strides of their own; nothing is read here."""
    monkeypatch.setattr(module, "PROGRAMS", 2)
    monkeypatch.setattr(module, "tile_side", lambda *_: side)
    rng, form, result = np.random.default_rng(5), Format("float32"), Format("bfloat16")
    m, n = (5, 7) if case.startswith("all") or side == 1 else (70, 34)
    values = [torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in ((3, m), (2 * n, 6))]
    a, b = values[0].T.view(torch.int32), values[1][::2, ::2].view(torch.int32)
    need = torch.from_numpy(rng.integers(0, 40, (n, m), dtype=np.uint8)).T
    need[0, 0], need[m - 1, n - 1], need[m // 2, n // 2] = 255, 52, 51
    open_ = torch.zeros(m, 2 * n, dtype=torch.int8)[:, ::2]
    open_[m - 1, 0], open_[m // 2, n // 2], open_[m // 2, n - 1] = 1, -1, 1
    whole = torch.full((2 * m, n + 1), 77, dtype=result.layout.carrier)
    limit, mask, marks = {
        "none": (255, need, torch.zeros_like(open_)),
        "need": (51, need, None),
        "open": (255, need, open_),
        "both": (51, need, open_),
        "all": (-3, need, open_),
        "all without masks": (-1, None, None),
        "neither": (3, None, None),
    }[case]
    asked = np.zeros((m, n), dtype=bool) | (limit < 0)
    if mask is not None:
        asked |= mask.numpy() > limit
    if marks is not None:
        asked |= marks.numpy() != 0
    where = torch.tensor([limit], dtype=torch.int32)
    with monkeypatch.context() as patch:
        refuse_reads(patch)
        exact_dots_where(a, b, form.layout, mask, where, marks, whole[::2, 1:], result.layout)
    expected = whole.clone().fill_(77)
    inside = expected[::2, 1:]
    for i, j in np.argwhere(asked):
        x, y = form.unsigned(a)[i], form.unsigned(b)[j]
        inside[i, j] = int(np.array(result.rounded(form.dot(x, y)), np.uint16).view(np.int16))
    assert bits(whole) == bits(expected)
    assert asked.sum() == {"none": 0, "need": 2, "open": 3, "both": 5, "neither": 0}.get(case, m * n)


def test_lists_write_what_they_name() -> None:
    form, rng = Format("float64"), np.random.default_rng(6)
    a, b = (torch.from_numpy(rng.standard_normal((size, 5))).view(torch.int64) for size in (4, 6))
    whole = torch.full((6, 8), 77)
    out, at = whole.T[::2], torch.tensor([[3, 5], [0, 2], [0, 2]])
    exact_dots(a, b, form.layout, at, out, form.layout)
    expected = torch.full((4, 6), 77)
    for i, j in at.tolist():
        pattern = form.rounded(form.dot(form.unsigned(a)[i], form.unsigned(b)[j]))
        expected[i, j] = int(np.array(pattern, np.uint64).view(np.int64))
    assert torch.equal(out, expected)
    assert bool((whole.T[1::2] == 77).all())
