"""Shapes and memory layouts follow numpy.matmul: strides, byte orders, stacks, vectors, empty and read-only inputs."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matmul.checks import assert_bits
from matmul.inputs import INTEGER_DTYPES, LAYOUTS, floats, integers
from matmul.oracles import Array, correctly_rounded, int_matmul, stacked

Matmul = Callable[..., Any]
DTYPES = [*INTEGER_DTYPES, np.dtype("f4"), np.dtype("f8"), np.dtype(object)]


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Entries small enough that no product overflows."""
    if dtype.kind == "f":
        return floats(rng, shape, -9, 9, dtype, zeros=0.1)
    if dtype.kind == "O":
        return np.asarray(rng.integers(-(2**62), 2**62, shape).astype(object) << 30)
    x = integers(rng, shape, dtype)
    return x if dtype.itemsize < 4 else np.asarray(x >> (8 * dtype.itemsize - 20))


def exact(a: Array, b: Array) -> Array:
    """The result of two operands of one kind, "exact" for floats."""
    if a.dtype.kind == "f":
        return stacked(correctly_rounded, a, b)
    dtype = object if object in (a.dtype, b.dtype) else "u8" if a.dtype.kind == b.dtype.kind == "u" else "i8"
    return stacked(lambda x, y: int_matmul(x, y).astype(dtype), a, b)


def fingerprint(x: Array) -> tuple[Any, ...]:
    return x.shape, x.strides, x.dtype, x.flags.writeable, x.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_pair_of_layouts(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """Same bits for every layout of both operands, and neither is written to."""
    rng = np.random.default_rng(51)
    a, b = values(rng, (19, 37), dtype), values(rng, (37, 21), dtype)
    want = exact(a, b)
    for left, right in itertools.product(LAYOUTS, repeat=2):
        x, y = LAYOUTS[left](a), LAYOUTS[right](b)
        before = fingerprint(x), fingerprint(y)
        got = mm(x, y, accuracy="exact")
        assert got.dtype.isnative
        assert got.flags.writeable
        assert_bits(got, want)
        assert (fingerprint(x), fingerprint(y)) == before, f"an operand changed: {left}, {right}"


@pytest.mark.parametrize("accuracy", ["fast", "fp64"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_layouts_change_no_bit_of_any_grade(mm: Matmul, accuracy: str, dtype: str) -> None:
    rng = np.random.default_rng(52)
    a, b = floats(rng, (33, 70), -30, 30, dtype), floats(rng, (70, 34), -30, 30, dtype)
    want = mm(a, b, accuracy=accuracy)
    for left, right in itertools.product(LAYOUTS, repeat=2):
        assert_bits(mm(LAYOUTS[left](a), LAYOUTS[right](b), accuracy=accuracy), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_broadcast_zero_strides(mm: Matmul, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(53)
    row, column, one = values(rng, (1, 40), dtype), values(rng, (40, 1), dtype), values(rng, (1, 1), dtype)
    for a, b in (
        (np.broadcast_to(row, (30, 40)), values(rng, (40, 7), dtype)),
        (values(rng, (5, 40), dtype), np.broadcast_to(column, (40, 33))),
        (np.broadcast_to(one, (9, 40)), np.broadcast_to(column, (40, 33))),
        (np.broadcast_to(one, (20, 300)), np.broadcast_to(one, (300, 20))),
    ):
        assert_bits(mm(a, b, accuracy="exact"), exact(a, b))


def test_overlapping_windows(mm: Matmul) -> None:
    """A sliding window has overlapping rows: a Hankel matrix without its memory."""
    for dtype in ("i8", "f8", "i1"):
        signal = values(np.random.default_rng(54), (200,), np.dtype(dtype))
        hankel = np.lib.stride_tricks.sliding_window_view(signal, 60)
        right = values(np.random.default_rng(55), (60, 9), np.dtype(dtype))
        assert_bits(mm(hankel, right, accuracy="exact"), exact(hankel, right))


def test_an_operand_may_be_its_own_partner(mm: Matmul) -> None:
    for dtype in ("i8", "f8", "f4", "u1"):
        x = values(np.random.default_rng(56), (65, 65), np.dtype(dtype))
        for a, b in ((x, x), (x, x.T), (x.T, x), (x[:, ::-1], x[::-1])):
            assert_bits(mm(a, b, accuracy="exact"), exact(a, b))


SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((1,), (1,)),
    ((4, 2, 3), (3, 5)),
    ((2, 3), (4, 3, 5)),
    ((4, 2, 3), (4, 3, 5)),
    ((4, 1, 2, 3), (5, 3, 1)),
    ((1, 5, 2, 3), (4, 1, 3, 2)),
    ((3,), (4, 3, 2)),
    ((4, 2, 3), (3,)),
    ((2, 1, 4, 3), (3,)),
    ((0,), (0,)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((2, 3), (3, 0)),
    ((0, 0), (0, 0)),
    ((0, 2, 3), (3, 4)),
    ((0, 2, 3), (1, 3, 4)),
    ((2, 0, 2, 3), (3, 4)),
    ((3, 2, 0), (0, 4)),
    ((0,), (0, 3)),
    ((2, 0), (0,)),
    ((1, 1, 1, 1, 2, 3), (3, 1)),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shapes_are_numpys(mm: Matmul, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(57)
    for left, right in SHAPES:
        a, b = values(rng, left, dtype), values(rng, right, dtype)
        got = mm(a, b, accuracy="exact")
        assert np.shape(got) == np.shape(np.matmul(np.ones(left), np.ones(right))), (left, right)
        want = exact(a, b)
        if dtype.kind == "O" and want.ndim == 0:
            assert got == want[()]
        else:
            assert_bits(got, want)
        if want.ndim == 0:
            assert not isinstance(got, np.ndarray), "two vectors give a scalar, as in NumPy"


def test_empty_products_have_the_right_dtype(mm: Matmul) -> None:
    for overflow, dtype in (("raise", np.dtype("i8")), ("wrap", np.dtype("i2")), ("object", np.dtype(object))):
        for m, k, n in ((0, 3, 2), (2, 0, 3), (2, 3, 0), (0, 0, 0)):
            got = mm(np.ones((m, k), np.int16), np.ones((k, n), np.int16), overflow=overflow)
            assert_bits(got, np.full((m, n), 0).astype(dtype))


def test_many_small_matrices(mm: Matmul) -> None:
    rng = np.random.default_rng(58)
    a, b = rng.integers(-99, 99, (50, 6, 5)), rng.integers(-99, 99, (50, 5, 7))
    assert_bits(mm(a, b), a @ b)
    turned_a, turned_b = a.transpose(2, 0, 1), b.transpose(1, 2, 0)[:, :, :9]
    turned_b = turned_b[:, :6]  # 5 matrices of 50×6 and of 6×9, with no unit stride
    assert_bits(mm(turned_a, turned_b), turned_a @ turned_b)


@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_stacks_of_any_shape_and_layout(mm: Matmul, data: st.DataObject, seed: int) -> None:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(signature="(m?,k),(k,n?)->(m?,n?)", max_dims=2, max_side=4))
    left, right = (data.draw(st.sampled_from(sorted(LAYOUTS))) for _ in range(2))
    dtype = data.draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(seed)
    a, b = (values(rng, s, dtype) for s in shapes.input_shapes)
    want = exact(a, b)
    got = mm(LAYOUTS[left](a), LAYOUTS[right](b), accuracy="exact")
    assert np.shape(got) == shapes.result_shape == want.shape
    assert_bits(np.asarray(got, dtype=want.dtype), want)
