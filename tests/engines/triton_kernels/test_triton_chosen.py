"""chosen, recombine_chosen: the bits of today's kernels and of Python's integers, whatever choice lies on the device;
nothing beyond its moduli written, nothing at all for none, and the same launches for every choice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from triton_inputs import hostile

from gemmulate.engines.base import NO_EXPONENT
from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem, _system, covers, symmetric
from gemmulate.engines.rounding import round_to_float
from gemmulate.engines.triton import chosen as module
from gemmulate.engines.triton import recombine_chosen as results
from gemmulate.engines.triton.chosen import (
    CHECK,
    FIELDS,
    LEFT_BITS,
    LIMIT,
    MODULI,
    MOST_MODULI,
    RIGHT_BITS,
    deconstruct_chosen,
    residue_gemm_chosen,
)
from gemmulate.engines.triton.deconstruct import deconstruct
from gemmulate.engines.triton.floating import layout_of
from gemmulate.engines.triton.recombine import Certainty, recombine_floats
from gemmulate.engines.triton.recombine_chosen import recombine_chosen, tiers
from gemmulate.engines.triton.residue_gemm import residue_gemm

MARK = 77  # in memory that a kernel gets uninitialised
# Moduli and bits of both operands; every tier of digits and limbs from both sides, limbs by bits too.
CHOICES = [
    *((1, 2, 2), (2, 7, 5), (7, 24, 24), (13, 55, 41), (14, 13, 90), (15, 56, 55), (16, 97, 20), (17, 98, 27)),
    *((24, 14, 162), (25, 90, 91), (33, 69, 170), (34, 200, 45), (49, 140, 190)),
]


def choice_of(moduli: int, left_bits: int, right_bits: int, check: bool) -> torch.Tensor:
    choice = torch.full((FIELDS,), -1, dtype=torch.int32)  # fields that are not read
    for field, value in ((MODULI, moduli), (LEFT_BITS, left_bits), (RIGHT_BITS, right_bits), (CHECK, int(check))):
        choice[field.value] = value
    return choice


def tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def int32(values: Any) -> torch.Tensor:
    return tensor(np.array(values, dtype=np.int32))


@contextmanager
def marked() -> Iterator[None]:
    """torch.empty gives memory full of MARK."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", lambda shape, **options: torch.full(shape, MARK, **options))
        yield


def tops(x: Any, inner: Any) -> list[int]:
    """Exponents of the largest entries under the inner scaling, as `survey.scan` gives them."""
    found = []
    for row in x:
        powers = [int(np.frexp(t)[1]) + int(e) for t, e in zip(row, inner, strict=True) if np.isfinite(t) and t]
        found.append(max(powers, default=NO_EXPONENT))
    return found


def integers(x: Any, shifts: list[int], inner: Any) -> tuple[list[list[int]], list[int]]:
    """rint(x 2^(shift + inner)) and how many entries of each row it changed, by fractions; NaN and inf count as 0."""
    scaled = [
        [
            Fraction(float(t)) * Fraction(2) ** (s + int(e)) if np.isfinite(t) else Fraction(0)
            for t, e in zip(row, inner, strict=True)
        ]
        for row, s in zip(x, shifts, strict=True)
    ]
    return [[round(t) for t in row] for row in scaled], [sum(t.denominator != 1 for t in row) for row in scaled]


def operand(rng: np.random.Generator, dtype: Any, vectors: int, depth: int) -> Any:
    x = hostile(rng, dtype, (vectors, depth))
    x[5, :3] = [np.nan, np.inf, -np.inf][:depth]
    x[6] = 0
    x[7] = x[7] * dtype(2) ** -12 + dtype(0.5)  # ties and their neighbours where few bits are kept
    return x


def shifts_of(top: list[int], bits: int) -> list[int]:
    return [0 if t == NO_EXPONENT else bits - t for t in top]


@pytest.mark.parametrize(("count", "left_bits", "right_bits"), CHOICES)
@pytest.mark.parametrize("check", [False, True])
def test_a_product(count: int, left_bits: int, right_bits: int, check: bool) -> None:
    rng = np.random.default_rng(count)
    at = CHOICES.index((count, left_bits, right_bits))
    dtype, scaled = (np.float32 if (at + check) % 2 else np.float64), at // 2 % 2 == check
    m, n, depth = 9, 10, 3 if count < 7 else 19
    layout, system = layout_of(np.dtype(dtype).name), _system(count)
    assert covers(system.product, depth << left_bits + right_bits)
    choice = choice_of(count, left_bits, right_bits, check)
    along = rng.integers(-9, 9, depth) if scaled else np.zeros(depth, dtype=np.int64)
    planes, losts, values, exponents = [], [], [], []
    for left, vectors, bits, inner in ((True, m, left_bits, along), (False, n, right_bits, -along)):
        x = operand(rng, dtype, vectors, depth)
        x = np.asfortranarray(x) if left else x
        top = tops(x, inner)
        assert NO_EXPONENT in top
        shifts, pattern = shifts_of(top, bits), torch.from_numpy(x.view(f"i{x.itemsize}"))
        given = int32(inner) if scaled else None
        with marked():
            found, lost = deconstruct_chosen(pattern, layout, int32(top), given, choice, left)
        today, today_lost = deconstruct(pattern, layout, int32(shifts), given, system, bits, left, True)
        rounded, changed = integers(x, shifts, inner)
        factors = system.inverses if left else (1,) * count
        assert found[:count].tolist() == [
            [[symmetric(t * factor, modulus) for t in row] for row in rounded]
            for modulus, factor in zip(system.moduli, factors, strict=True)
        ]
        assert torch.equal(found[:count], today)
        assert (found[count:] == MARK).all()
        assert lost.tolist() == (changed if check else [0] * vectors)
        assert today_lost is not None
        assert not check or torch.equal(lost, today_lost)
        planes.append(found)
        losts.append(lost)
        values.append(rounded)
        exponents.append((int32(top), int32([-s for s in shifts])))

    with marked():
        digits = residue_gemm_chosen(*planes, choice)
    exact = [[sum(x * y for x, y in zip(row, column, strict=True)) for column in values[1]] for row in values[0]]
    assert digits[:count].tolist() == [
        [[t * inverse % modulus for t in row] for row in exact]
        for modulus, inverse in zip(system.moduli, system.inverses, strict=True)
    ]
    assert torch.equal(digits[:count], residue_gemm(planes[0][:count], planes[1][:count], system))
    assert (digits[count:] == MARK).all()

    (top_a, row), (top_b, column) = exponents
    storage = torch.full((n, 2 * m), MARK, dtype=layout.carrier)
    out, open_ = storage.T[::2], torch.full((m, 3 * n), MARK, dtype=torch.int8)
    recombine_chosen(digits, choice, top_a, top_b, *losts, out, layout, open_[:, 1::3])
    assert (storage.T[1::2] == MARK).all()
    today_out = torch.empty((m, n), dtype=layout.carrier)
    certainty = Certainty(*losts, left_bits, right_bits) if check else None
    today_open = recombine_floats(digits[:count].contiguous(), system, row, column, today_out, layout, certainty)
    assert torch.equal(out, today_out)
    got = out.contiguous().numpy().view(dtype)
    for i, j in np.ndindex(m, n):
        bound = (int(losts[0][i]) << right_bits) + (int(losts[1][j]) << left_bits)
        unit = int(row[i] + column[j]) - 1
        low, high = (round_to_float(2 * exact[i][j] + s * bound, unit, np.dtype(dtype)) for s in (-1, 1))
        assert got[i, j].tobytes() == dtype(low).tobytes(), (i, j, got[i, j], low)
        if check:
            assert int(open_[i, 1 + 3 * j]) == int(bound != 0 and not (low == high != 0))
    if today_open is not None:
        assert torch.equal(open_[:, 1::3], today_open)
    assert (open_[:, ::3] == MARK).all()
    assert (open_[:, 2::3] == MARK).all()
    assert check or (open_ == MARK).all()


@pytest.mark.parametrize("bits", [0, 1, 13, 14, 41, 54, 55, 56, 69, 70, 97, 98, 111, 150, 200])
def test_residues_at_every_tier_of_digits(bits: int) -> None:
    """±2^bits, ±(2^bits − 1) and neighbours, ties and what is rounded off, over several tiles of both directions."""
    rng = np.random.default_rng(bits)
    count = 1 + bits % 6
    system = ResidueSystem(INT8_MODULI[:count])
    x = rng.standard_normal((21, 131))
    x[0, :4] = [1.0, -1.0, 1 - 2.0**-53, -(1 - 2.0**-53)]
    x[1, :4] = [1 - 2.0**-24, 2.0**-bits / 2, 3 * 2.0**-bits / 2, -(2.0**-bits) * 0.75]
    x[2] = 0
    top = [1 if not i else 3 for i in range(21)]
    x[0] = np.clip(x[0], -1, 1) * 2  # |x| ≤ 2^top, the bound of |a'|
    top[2] = NO_EXPONENT
    for left in (True, False):
        check = left == bool(bits % 2)
        choice = choice_of(count, bits if left else 7, 7 if left else bits, check)
        with marked():
            planes, lost = deconstruct_chosen(
                tensor(x.view(np.int64)), layout_of("float64"), int32(top), None, choice, left
            )
        values, changed = integers(x, shifts_of(top, bits), np.zeros(131, dtype=int))
        assert max(abs(v) for row in values for v in row) == 1 << bits
        factors = system.inverses if left else (1,) * count
        assert planes[:count].tolist() == [
            [[symmetric(v * factor, modulus) for v in row] for row in values]
            for modulus, factor in zip(system.moduli, factors, strict=True)
        ]
        assert (planes[count:] == MARK).all()
        assert lost.tolist() == (changed if check else [0] * 21)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_residues_do_not_depend_on_the_digits_taken(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tier of 15 digits, run where 1 to 14 would do, gives the residues of today's digits."""
    monkeypatch.setattr(module, "DIGIT_TIERS", (15,))
    rng = np.random.default_rng(4)
    x = operand(rng, dtype, 9, 11)
    layout, top = layout_of(np.dtype(dtype).name), tops(x, [0] * 11)
    pattern = tensor(x).view(layout.carrier)
    for bits in (0, 13, 27, 30, 54, 83, 111, 195):
        planes, _ = deconstruct_chosen(pattern, layout, int32(top), None, choice_of(4, bits, 0, False), True)
        today, _ = deconstruct(pattern, layout, int32(shifts_of(top, bits)), None, _system(4), bits, True)
        assert torch.equal(planes[:4], today), bits


@pytest.mark.parametrize(("m", "n", "k", "count"), [(1, 1, 1, 4), (70, 135, 37, 3), (17, 33, 256, 24), (3, 2, 801, 49)])
def test_digits_of_products(m: int, n: int, k: int, count: int) -> None:
    """Several tiles in bands, depths that fill no block, planes with padding; any planes beyond the first r."""
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-128, 128, (MOST_MODULI, v, k), dtype=np.int8) for v in (m, n))
    a[:, 0], b[:, 0], b[:, -1] = -128, -128, 127
    padded = torch.nn.functional.pad(tensor(a), (0, 5))[..., :k]
    expected = np.einsum("lik,ljk->lij", a[:count].astype(np.int64), b[:count].astype(np.int64))
    expected %= np.array(INT8_MODULI[:count])[:, None, None]
    for left in (tensor(a), padded):
        with marked():
            got = residue_gemm_chosen(left, tensor(b), choice_of(count, 9, 9, False))
        assert (got[:count].numpy() == expected).all()
        assert (got[count:] == MARK).all()


def test_depths_beyond_one_accumulator() -> None:
    depth = 65_280 * 2 + 3
    row = torch.full((1, 2, depth), -128, dtype=torch.int8)
    row[:, 1] = 127
    planes = row.expand(MOST_MODULI, 2, depth)
    got = residue_gemm_chosen(planes, planes, choice_of(3, 7, 7, False), (16, 16, 256, 4, 2))
    sums = np.array([[128 * 128, -128 * 127], [-128 * 127, 127 * 127]]) * depth
    assert (got[:3].numpy() == sums[None] % np.array(INT8_MODULI[:3])[:, None, None]).all()


@pytest.mark.parametrize("depth", [0, 4])
def test_depths_and_sizes_of_nothing(depth: int) -> None:
    layout, choice = layout_of("float64"), choice_of(3, 9, 9, True)
    for m, n in ((2, 3), (0, 3), (2, 0)):
        a, lost_a = deconstruct_chosen(
            torch.zeros((m, depth), dtype=torch.int64), layout, int32([0] * m), None, choice, True
        )
        b, lost_b = deconstruct_chosen(
            torch.zeros((n, depth), dtype=torch.int64), layout, int32([0] * n), None, choice, False
        )
        digits = residue_gemm_chosen(a, b, choice)
        assert digits.shape == (MOST_MODULI, m, n)
        assert not digits[:3].any()
        out, open_ = torch.full((m, n), MARK, dtype=torch.int64), torch.full((m, n), MARK, dtype=torch.int8)
        recombine_chosen(digits, choice, int32([0] * m), int32([0] * n), lost_a, lost_b, out, layout, open_)
        assert not out.any()
        assert not open_.any()


def random_integers(limit: int, shape: tuple[int, int], seed: int) -> list[list[int]]:
    """All sizes, ties of 53 and 24 bits and their neighbours, powers of two, the ends."""
    rng = random.Random(seed)

    def one() -> int:
        bits = rng.randint(0, limit.bit_length())
        value = rng.getrandbits(bits) if bits else 0
        kind = rng.randrange(5)
        if kind < 3:
            cut = max(0, bits - rng.choice([25, 54]))
            value = (value >> cut << cut) + kind - 1
        elif kind == 3:
            value = 1 << bits
        return max(-limit, min(limit, value * rng.choice([-1, 1])))

    values = [[one() for _ in range(shape[1])] for _ in range(shape[0])]
    values[0][:4] = [0, limit, -limit, min(limit, 1)]
    return values


# Half of the cases for each count of moduli, in turn.
_COUNTS = (1, 2, 7, 13, 14, 15, 16, 17, 24, 25, 33, 34, 49)
_CASES: list[tuple[str, tuple[int, int], bool]] = [
    *(("float64", (200, 3), True), ("float64", (125, 126), True), ("float32", (157, 120), True)),
    *(("float16", (0, 158), True), ("float64", (200, 200), False), ("float32", (0, 1), False)),
]


@pytest.mark.parametrize(
    ("count", "name", "bits", "check"),
    [(count, *case) for at, count in enumerate(_COUNTS) for case in _CASES[at % 2 :: 2]],
)
def test_results_of_any_integers(count: int, name: str, bits: tuple[int, int], check: bool) -> None:
    """Integers up to the window's ends with counts up to 2^31 − 1, whatever the moduli, in several tiles."""
    m, n = 7, 130
    system, dtype, layout = _system(count), np.dtype(name), layout_of(name)
    limit = next(t for t in (((system.product - 1) // 2) >> s for s in range(4)) if covers(system.product, t))
    # Two rows of integers, and the same under other exponents and counts.
    values = random_integers(limit, (2, n), count)
    digits = torch.full((MOST_MODULI, m, n), MARK, dtype=torch.uint8)
    for modulus, inverse, plane in zip(system.moduli, system.inverses, digits, strict=False):
        two = torch.tensor([[v * inverse % modulus for v in row] for row in values], dtype=torch.uint8)
        plane[:] = two.repeat(4, 1)[:m]
    span = limit.bit_length()
    top_a = [NO_EXPONENT if i == 5 else i % 2 * 40 - span // 2 - 3 for i in range(m)]
    top_b = [NO_EXPONENT if j == 9 else j % 5 - 20 + sum(bits) for j in range(n)]
    lost_a = [(0, 0, 1, 2**31 - 1)[i % 4] for i in range(m)]
    lost_b = [(0, 1, 0, 12345, 2**31 - 1)[j % 5] for j in range(n)]
    open_ = torch.full((n, m), MARK, dtype=torch.int8).T
    out = torch.full((m, n), MARK, dtype=layout.carrier)
    recombine_chosen(
        digits,
        choice_of(count, *bits, check),
        int32(top_a),
        int32(top_b),
        int32(lost_a),
        int32(lost_b),
        out,
        layout,
        open_,
    )
    rows, columns = ([-s for s in shifts_of(top, b)] for top, b in ((top_a, bits[0]), (top_b, bits[1])))
    today_out = torch.empty((m, n), dtype=layout.carrier)
    certainty = Certainty(int32(lost_a), int32(lost_b), *bits) if check else None
    today = recombine_floats(
        digits[:count].contiguous(), system, int32(rows), int32(columns), today_out, layout, certainty
    )
    got = out.numpy().view(dtype)
    for i in (0, 1, 2, 3, 5):
        for j in range(0, n, 1 if i < 2 else 9):
            bound = (lost_a[i] << bits[1]) + (lost_b[j] << bits[0]) if check else 0
            value, at = values[i % 2][j], rows[i] + columns[j] - 1
            low, high = (round_to_float(2 * value + s * bound, at, dtype) for s in (-1, 1))
            assert got[i, j].tobytes() == np.array(low, dtype=dtype).tobytes(), (i, j, got[i, j], low)
            assert not check or int(open_[i, j]) == int(bound != 0 and not (low == high != 0))
    assert torch.equal(out, today_out)
    assert (open_ == MARK).all() if today is None else torch.equal(open_, today)


@pytest.mark.parametrize("check", [False, True])
def test_no_moduli(check: bool) -> None:
    """Nothing is written."""
    layout, choice = layout_of("float64"), choice_of(0, 54, 54, check)
    x = tensor(np.random.default_rng(0).standard_normal((5, 20)).view(np.int64))
    top, lost = int32([1] * 5), int32([1] * 5)
    with marked():
        for left in (True, False):
            planes, counted = deconstruct_chosen(x, layout, top, None, choice, left)
            assert (planes == MARK).all()
            assert not counted.any()
        digits = residue_gemm_chosen(planes, planes, choice)
    assert (digits == MARK).all()
    out, open_ = torch.full((5, 5), MARK, dtype=torch.int64), torch.full((5, 5), MARK, dtype=torch.int8)
    recombine_chosen(digits, choice, top, top, lost, lost, out, layout, open_)
    assert (out == MARK).all()
    assert (open_ == MARK).all()


def test_each_choice_belongs_to_one_tier() -> None:
    """The limbs of a tier hold P of its moduli, and 2 x ± bound of its bits; the last holds every choice."""
    previous = 0
    for tier in tiers():
        product = _system(tier.moduli).product
        assert product < 1 << 32 * tier.limbs
        largest = 2 * (product // 2) + 2 * ((2**31 - 1) << tier.bits)
        assert largest < 1 << (32 * tier.wide - 1)
        assert tier.moduli > previous
        previous = tier.moduli
    assert (tiers()[-1].moduli, tiers()[-1].bits >= 200) == (MOST_MODULI, True)
    assert 14 * module.DIGIT_TIERS[-1] - 1 >= 200
    assert len({field.value for field in (MODULI, LEFT_BITS, RIGHT_BITS, LIMIT, CHECK)} | set(range(FIELDS))) == FIELDS


class _Recorder:
    """Stands for a kernel: its grids and constants, and no launch."""

    def __init__(self) -> None:
        self.launches: list[Any] = []

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **constants: Any) -> None:
            sizes = [x for x in arguments if not isinstance(x, torch.Tensor)]
            self.launches.append((grid, sizes, constants))

        return launch


def test_the_launches_are_the_same_for_every_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for moduli, bits, check in ((0, 0, False), (15, 55, False), (49, 200, True)):
        recorder, layout, choice = _Recorder(), layout_of("float64"), choice_of(moduli, bits, bits, check)
        for owner, name in (
            (module, "deconstruct_chosen_kernel"),
            (module, "residue_gemm_chosen_kernel"),
            (results, "recombine_chosen_kernel"),
        ):
            monkeypatch.setattr(owner, name, recorder)
        x, top = torch.zeros((30, 200), dtype=torch.int64), int32([0] * 30)
        planes, lost = deconstruct_chosen(x, layout, top, None, choice, True)
        digits = residue_gemm_chosen(planes, planes, choice)
        out = torch.zeros((30, 30), dtype=torch.int64)
        recombine_chosen(digits, choice, top, top, lost, lost, out, layout, out.to(torch.int8))
        found.append(recorder.launches)
    assert len(found[0]) == len(module.DIGIT_TIERS) + 1 + 2 * len(tiers())
    assert found[0] == found[1] == found[2]
