"""Contract of products of Python ints of any size: exact, on every engine, whatever the limbs.

Oracles: NumPy's object product (Python ints) for small matrices, python-flint's fmpz_mat for larger ones.
"""

from collections.abc import Callable
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmulate as gm
from gemmulate.engines.residue_system import covers, widest_bits
from gemmulate.schemes.python_ints import choose_limbs

Matmul = Callable[..., Any]


def entries(rng: np.random.Generator, shape: tuple[int, int], bits: int) -> Any:
    """Of `bits` bits and any sign, with zeros, the extremes ±2^bits, runs of ones and single bits among them."""
    out = np.empty(shape, dtype=object)
    size = bits // 8 + 1
    for at in np.ndindex(*shape):
        value = int.from_bytes(rng.bytes(size), "little") % ((1 << bits) + 1)
        kind = int(rng.integers(0, 12))
        if kind < 5:
            value = [0, 1 << bits, (1 << bits) - 1, 1 << int(rng.integers(0, bits)), value >> bits // 2][kind]
        out[at] = value if rng.random() < 0.5 else -value
    return out


def equal(got: Any, want: Any) -> None:
    assert got.dtype == object
    assert got.shape == want.shape
    for i in np.ndindex(*want.shape):
        assert got[i] == want[i], (i, got[i], want[i])
        assert type(got[i]) is int


@pytest.mark.parametrize("bits", [(64, 64), (128, 128), (170, 171), (200, 200), (256, 31), (512, 512), (1024, 1024)])
def test_sizes(mm: Matmul, is_fast: bool, bits: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(bits))
    for m, k, n in ((1, 1, 1), (5, 3, 4), (27, 70, 66) if is_fast else (4, 9, 3)):
        a, b = entries(rng, (m, k), bits[0]), entries(rng, (k, n), bits[1])
        equal(mm(a, b), a @ b)
        equal(mm(b.T, a.T), (a @ b).T)


@pytest.mark.parametrize("bits", [1, 29, 62, 63, 95, 96, 97, 127, 128, 129, 159, 160, 161, 319, 320, 321, 511, 513])
def test_around_limbs_and_words(mm: Matmul, is_fast: bool, bits: int) -> None:
    rng = np.random.default_rng(bits)
    sizes = (bits, 500 - bits if bits < 500 else 40) if is_fast else (bits,)
    for other in sizes:
        a, b = entries(rng, (3, 6), bits), entries(rng, (6, 3), other)
        equal(mm(a, b), a @ b)
        worst = np.full((2, 6), -(1 << bits), dtype=object), np.full((6, 2), 1 << other, dtype=object)
        equal(mm(*worst), worst[0] @ worst[1])


def test_against_flint(mm: Matmul, is_fast: bool) -> None:
    if not is_fast:
        pytest.skip("large matrices on the native engine")
    rng = np.random.default_rng(5)
    for m, k, n, bits in ((130, 200, 150, 190), (97, 1000, 65, 700), (3, 20000, 3, 300)):
        a, b = entries(rng, (m, k), bits), entries(rng, (k, n), bits)
        product = flint.fmpz_mat(a.tolist()) * flint.fmpz_mat(b.tolist())
        want = np.array([*(int(v) for row in product.tolist() for v in row), None], dtype=object)[:-1].reshape(m, n)
        for threads in (1, 2):
            equal(mm(a, b, threads=threads), want)


def test_huge_and_lopsided(mm: Matmul) -> None:
    rng = np.random.default_rng(6)
    for bits in ((6000, 6000), (5000, 1), (3, 4000)):
        a, b = entries(rng, (2, 3), bits[0]), entries(rng, (3, 2), bits[1])
        equal(mm(a, b), a @ b)


def test_planes_of_other_formats_give_the_same(mm: Matmul) -> None:
    """FP4's moduli reach 240 bits, INT8's 341: what fits one residue system there is cut into limbs here."""
    rng = np.random.default_rng(7)
    for bits in ((300, 200), (128, 128), (115, 120)):
        a, b = entries(rng, (2, 4), bits[0]), entries(rng, (4, 2), bits[1])
        equal(mm(a, b, formats="fp4_e2m1"), a @ b)


def test_lists_and_other_ints(mm: Matmul) -> None:
    wide = [[2**400, -1], [3, 2**399 + 1]]
    equal(mm(wide, wide), np.array(wide, dtype=object) @ np.array(wide, dtype=object))
    mixed = np.array([[np.int64(5), True], [2**300, np.uint8(7)]], dtype=object)
    want = np.array([[5, 1], [2**300, 7]], dtype=object)
    equal(mm(mixed, mixed), want @ want)
    assert mixed[0, 1] is True


def test_the_choice_of_limbs_is_covered() -> None:
    """Balanced limbs of the chosen width at their extremes: every coefficient lies in the system's window."""
    for bits in ((171, 172), (256, 256), (1024, 1024), (1000, 17), (333, 4096)):
        for k in (1, 64, 5000):
            c = choose_limbs(*bits, k, widest_bits())
            limbs = [
                [1 << c.limb_bits - 1] * (count - 1) + [(1 << b - c.limb_bits * (count - 1)) + 1]
                for count, b in zip(c.limbs, bits, strict=True)
            ]
            for s in range(sum(c.limbs) - 1):
                terms = [limbs[0][i] * limbs[1][s - i] for i in range(s + 1) if i < c.limbs[0] and s - i < c.limbs[1]]
                assert covers(c.system.product, k * sum(terms))


def test_the_plan(mm: Matmul, engine: str) -> None:
    a = np.array([[2**512, 1], [1, 0]], dtype=object)
    plan = gm.plan(a, a, engine=engine)
    assert plan.scheme == "limbs"
    assert plan.bits == (512, 512)
    assert plan.products > 300
    assert "limbs of" in plan.explain()
    equal(plan.run(a, a), a @ a)


@settings(max_examples=30)
@given(data=st.data())
def test_any_small_matrices(mm: Matmul, data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(0, 3)) for _ in range(3))
    number = st.integers(-(2**700), 2**700) | st.integers(-(2**180), 2**180)
    drawn = []
    for shape in ((m, k), (k, n)):
        flat = data.draw(st.lists(number, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
        drawn.append(np.array([*flat, None], dtype=object)[:-1].reshape(shape))
    equal(mm(*drawn), drawn[0] @ drawn[1] if k else np.full((m, n), 0, dtype=object))
