"""`out` takes the result: its shape and dtype are checked, its layout is free, and it may overlap the inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from matmul.checks import assert_bits, result_or_refusal
from matmul.inputs import LAYOUTS, floats, integers
from matmul.oracles import Array, correctly_rounded, int_matmul, stacked

Matmul = Callable[..., Any]


def operands(dtype: Any, m: int = 9, k: int = 12, n: int = 7, seed: int = 61) -> tuple[Array, Array, Array]:
    """Two operands and their exact result."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        a, b = floats(rng, (m, k), -9, 9, dtype), floats(rng, (k, n), -9, 9, dtype)
        return a, b, correctly_rounded(a, b)
    low = 0 if np.dtype(dtype).kind == "u" else -100
    a, b = rng.integers(low, 100, (m, k)).astype(dtype), rng.integers(low, 100, (k, n)).astype(dtype)
    return a, b, int_matmul(a, b).astype("u8" if low == 0 else "i8")


@pytest.mark.parametrize("layout", [n for n in LAYOUTS if n != "read_only"])
@pytest.mark.parametrize("dtype", ["i1", "i8", "u4", "f4", "f8"])
def test_any_layout_of_out(mm: Matmul, layout: str, dtype: str) -> None:
    a, b, want = operands(dtype)
    out = LAYOUTS[layout](np.full_like(want, 55))
    assert mm(a, b, out=out, accuracy="exact") is out
    assert_bits(out.astype(want.dtype), want)


def test_padding_around_out_is_not_written(mm: Matmul) -> None:
    for dtype in ("i8", "f8"):
        a, b, want = operands(dtype, 33, 20, 35)
        host = np.full((70, 80), 55, dtype=want.dtype)
        for view in (np.s_[2:35, 3:38], np.s_[2:68:2, 3:38], np.s_[68:2:-2, 79:9:-2]):
            host[...] = 55
            mm(a, b, out=host[view], accuracy="exact")
            assert_bits(host[view], want)
            host[view] = 55
            assert (host == 55).all()


def test_vectors_and_stacks(mm: Matmul) -> None:
    rng = np.random.default_rng(62)
    for left, right in (
        ((3,), (3, 2)),
        ((4, 3), (3,)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((3,), (3,)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
    ):
        a, b = rng.integers(-9, 9, left), rng.integers(-9, 9, right)
        want = np.asarray(stacked(lambda x, y: int_matmul(x, y).astype("i8"), a, b))
        out = np.full(want.shape, 55)
        got = mm(a, b, out=out)
        assert got is out
        assert_bits(out, want)


@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact"])
@pytest.mark.parametrize("n", [5, 40, 150])
def test_out_may_overlap_the_inputs(mm: Matmul, accuracy: str, n: int) -> None:
    """As if the inputs had been read in full before the first write."""
    for dtype in ("f8", "i8"):
        a, b, _ = operands(dtype, n, n, n)
        want = mm(a, b, accuracy=accuracy)
        for place in range(6):
            host = np.zeros((n + 1, 2 * n), dtype=dtype)
            x, y = host[:n, :n], host[:n, n:]
            x[...], y[...] = a, b
            out = (x, y, host[1:, :n], host[1:, 1 : n + 1], x.T, host[:n, n // 2 : n // 2 + n])[place]
            assert mm(x, y, out=out, accuracy=accuracy) is out
            assert_bits(out.copy(), want)
        square = a.copy()
        mm(square, square, out=square, accuracy=accuracy)
        assert_bits(square, mm(a, a, accuracy=accuracy))


def test_out_overlapping_a_broadcast_stack(mm: Matmul) -> None:
    rng = np.random.default_rng(63)
    stack = rng.integers(-9, 9, (4, 6, 6))
    right = stack[2]
    want = stack.copy() @ right.copy()
    mm(stack, right, out=stack)
    assert_bits(stack, want)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "u1", "u2", "u4", "u8", "i8"])
def test_out_of_another_integer_dtype(mm: Matmul, dtype: str) -> None:
    """The result is exact in out's dtype, or ResultOverflow when it does not fit there."""
    a, b = np.array([[3, 4], [5, 0]], dtype=np.int16), np.array([[2, 1], [7, 9]], dtype=np.int16)
    out = np.zeros((2, 2), dtype=dtype)
    assert mm(a, b, out=out) is out
    assert_bits(out, np.array([[34, 39], [10, 5]], dtype=dtype))
    if dtype not in ("i8", "u8"):
        bits = np.iinfo(dtype).bits - (dtype[0] == "i")
        large = np.array([[1, 2 ** (bits - 1)]], dtype=np.int64)
        with pytest.raises(gm.ResultOverflow):
            mm(large, np.array([[0], [2]], dtype=np.int64), out=np.zeros((1, 1), dtype=dtype))
        edge = np.zeros((1, 1), dtype=dtype)
        mm(large, np.array([[-1], [2]], dtype=np.int64), out=edge)
        assert_bits(edge, np.array([[np.iinfo(dtype).max]], dtype=dtype))
    if dtype[0] == "u":
        with pytest.raises(gm.ResultOverflow):
            mm(-a, b, out=np.zeros((2, 2), dtype=dtype))


def test_an_overflowing_result_leaves_out_as_it_was(mm: Matmul) -> None:
    out = np.full((40, 40), 55)
    big = np.full((40, 40), 2**40)
    big[:39] = 1
    with pytest.raises(gm.ResultOverflow):
        mm(big, np.full((40, 40), 2**40), out=out)
    assert (out == 55).all()


@pytest.mark.parametrize("source", ["i1", "i4", "i8", "u2", "u8", "?"])
def test_wrapping_into_out_is_numpys(mm: Matmul, source: str) -> None:
    """Wherever NumPy writes a product into an integer out, the bits are the same."""
    rng = np.random.default_rng(64)
    a, b = integers(rng, (6, 40), source), integers(rng, (40, 5), source)
    for target in ("i1", "i2", "i4", "i8", "u1", "u4", "u8"):
        want, got = np.zeros((6, 5), dtype=target), np.zeros((6, 5), dtype=target)
        with np.errstate(all="ignore"):
            _, refused = result_or_refusal(lambda w=want: np.matmul(a, b, out=w), TypeError)
        if refused is None:
            mm(a, b, out=got, overflow="wrap")
            assert_bits(got, want)


def test_out_of_python_ints(mm: Matmul) -> None:
    a = np.array([[2**62, 2**62]])
    out = np.full((1, 1), None, dtype=object)
    assert mm(a, a.T, overflow="object", out=out) is out
    assert out[0, 0] == 2**125
    assert type(out[0, 0]) is int


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (np.zeros((9, 8)), ValueError),
        (np.zeros((9, 7, 1)), ValueError),
        (np.zeros(63), ValueError),
        (np.zeros(()), ValueError),
        (LAYOUTS["read_only"](np.zeros((9, 7))), ValueError),
        ([[0.0] * 7] * 9, TypeError),
        (5.0, TypeError),
        ("result", TypeError),
        (np.zeros((9, 7), dtype="U5"), TypeError),
        (np.zeros((9, 7), dtype="M8[s]"), TypeError),
        (np.zeros((9, 7), dtype=np.int64), TypeError),
        (np.zeros((9, 7), dtype=bool), TypeError),
    ],
    ids=lambda v: (
        getattr(v, "__name__", None) or f"{type(v).__name__}-{getattr(v, 'shape', '')}-{getattr(v, 'dtype', '')}"
    ),
)
def test_wrong_out_is_named(mm: Matmul, out: Any, error: type[Exception]) -> None:
    a, b, _ = operands("f8")
    with pytest.raises(error, match=r"\bout\b"):
        mm(a, b, out=out)


@pytest.mark.parametrize(("source", "target"), [("f8", "f4"), ("f4", "f8"), ("i8", "f8"), ("i2", "f8"), ("i8", "?")])
def test_out_of_another_kind_is_exact_or_refused(mm: Matmul, source: str, target: str) -> None:
    """Nothing is rounded twice: the exact result rounded once, to out's dtype or to a narrower one that out holds, or
    an error that names out."""
    a, b, want = operands(source)
    out = np.zeros(want.shape, dtype=target)
    _, refused = result_or_refusal(lambda: mm(a, b, out=out, accuracy="exact"), TypeError, ValueError)
    if refused is not None:
        assert "out" in refused
        assert not out.any()
        return
    assert target != "?"
    if (source, target) == ("f4", "f8") and (out == want).all():
        return
    assert_bits(out, correctly_rounded(a, b, target))


def test_out_as_numpy_takes_it() -> None:
    a, b = np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])
    for give in (lambda out: gm.matmul(a, b, out), lambda out: gm.matmul(a, b, out=(out,))):
        out = np.zeros((2, 2), dtype=np.int64)
        assert give(out) is out
        assert out.tolist() == [[19, 22], [43, 50]]
