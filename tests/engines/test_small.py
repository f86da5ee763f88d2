"""Small integer products in one call, on every engine that has them: against Python integers, with the worst values."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from gemmulate.engines import Engine, get_engine

Array = np.ndarray
TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SHAPES = [(1, 1, 1), (4, 4, 4), (3, 7, 5), (5, 1, 17), (1, 33, 2), (9, 16, 32), (13, 31, 33), (2, 300, 3), (20, 8, 64)]
MODULI = (2, 3, 97, 255, 256, 65_537, 2**26 - 5, 2**31 - 1, 2**32, 2**40 + 15, 2**50 - 27, 2**61 - 1, 2**62, 2**63)


@pytest.fixture
def fast(engine: Engine) -> Engine:
    one = np.ones((1, 1), dtype=np.int64)
    if not engine.exact_integer_product(one, one, one.copy()):
        pytest.skip(f"{engine.name} has no such call")
    return engine


def exact(a: Array, bt: Array) -> Array:
    return a.astype(object) @ bt.astype(object).T


def fill(rng: np.random.Generator, dtype: str, size: tuple[int, int], bits: int) -> Array:
    """Integers of up to `bits` bits, sign included, that the dtype holds."""
    info = np.iinfo(dtype)
    low, high = max(int(info.min), -(1 << bits - 1)), min(int(info.max), (1 << bits) - 1)
    return rng.integers(low, high, size, dtype=dtype, endpoint=True)


def layouts(x: Array) -> Iterator[Array]:
    """The same matrix in C order, in Fortran order, and with a negative stride beside a wide one."""
    yield np.ascontiguousarray(x)
    yield np.asfortranarray(x)
    wide = np.full((2 * x.shape[0], 3 * x.shape[1]), 99, dtype=x.dtype)[::-2, 1::3]
    wide[...] = x
    yield wide


def holds(dtype: str, values: Array) -> bool:
    info = np.iinfo(dtype)
    return bool(all(info.min <= v <= info.max for v in values.flat))


@pytest.mark.parametrize(("left", "right"), list(itertools.product(TYPES, repeat=2)))
def test_exact_results_or_no_answer(fast: Engine, left: str, right: str) -> None:
    rng = np.random.default_rng(len(left) + 10 * len(right))
    out_type = "uint64" if left[0] == right[0] == "u" else "int64"
    for (m, k, n), bits in itertools.product(SHAPES, (4, 15, 16, 28, 31, 40, 64)):
        a, bt = fill(rng, left, (m, k), bits), fill(rng, right, (n, k), bits)
        want = exact(a, bt)
        out = np.empty((m, n), dtype=out_type)
        if fast.exact_integer_product(a, bt, out):
            assert (out.astype(object) == want).all()
        else:  # results of fewer bits are always known to fit
            assert 2 * bits + k.bit_length() > 62
        low = np.empty((m, n), dtype=left)
        assert fast.exact_integer_product(a, bt, low, wrap=True)
        assert (low.astype(object) == (want & 2**64 - 1).astype(np.uint64).astype(left).astype(object)).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_extremes(fast: Engine, dtype: str) -> None:
    info = np.iinfo(dtype)
    for k in (1, 2, 3, 8, 31, 64):
        for x, y in itertools.product((info.min, info.min + 1, 0, 1, info.max - 1, info.max), repeat=2):
            a, bt = np.full((3, k), x, dtype=dtype), np.full((5, k), y, dtype=dtype)
            bt[1] = info.max - bt[1]
            want = exact(a, bt)
            out_type = "uint64" if dtype[0] == "u" else "int64"
            out = np.empty((3, 5), dtype=out_type)
            if fast.exact_integer_product(a, bt, out):
                assert (out.astype(object) == want).all()
            wrapped = np.empty((3, 5), dtype="uint64")
            assert fast.exact_integer_product(a, bt, wrapped, wrap=True)
            assert (wrapped.astype(object) == want % 2**64).all()


def test_an_overflow_is_never_taken_for_a_result(fast: Engine) -> None:
    """One element at the edge of the type, or beyond it, among small ones."""
    for edge, limit in ((2**63 - 1, "int64"), (-(2**63), "int64"), (2**64 - 1, "uint64")):
        for beyond in (0, 1, 2**32, 2**63, 2**64, 2**65):
            # Row 1 of a times row 0 of bt is that value, cut at bit 40.
            value = edge + (beyond if edge > 0 else -beyond)
            parts = [value >> 40, value & 2**40 - 1]
            a = np.array([[1, 2, 3], [parts[0], parts[1], 0]], dtype=limit)
            bt = np.array([[2**40, 1, 0], [1, 1, 1]], dtype=limit)
            want = exact(a, bt)
            out = np.empty((2, 2), dtype=limit)
            if fast.exact_integer_product(a, bt, out):
                assert (out.astype(object) == want).all()
            assert beyond == 0 or not fast.exact_integer_product(a, bt, out)


@pytest.mark.parametrize("p", MODULI)
def test_residues(fast: Engine, p: int) -> None:
    rng = np.random.default_rng(p % 1000)
    answered = 0
    for (m, k, n), (left, right) in itertools.product(SHAPES, [("int64", "int64"), ("uint64", "int8"), ("int32",) * 2]):
        a, bt = fill(rng, left, (m, k), 64), fill(rng, right, (n, k), 64)
        reduced = [(x.astype(object) % p).astype(np.uint64) for x in (a, bt)]
        edges = [rng.choice(np.array([p - 1, (p // 2 + 1) % p, p // 2], dtype=np.uint64), x.shape) for x in reduced]
        for x, y in ((a, bt), reduced, edges, [e.astype(np.int64) for e in edges]):
            out = np.empty((m, n), dtype=np.int64)
            if fast.exact_integer_product(x, y, out, modulus=p):
                answered += 1
                assert (out.astype(object) == exact(x, y) % p).all()
    assert answered or p > 2**50


def test_layouts(fast: Engine) -> None:
    rng = np.random.default_rng(5)
    for dtype in ("int8", "int16", "int32", "int64", "uint64"):
        a, bt = fill(rng, dtype, (11, 19), 20), fill(rng, dtype, (17, 19), 20)
        want = exact(a, bt)
        whole = np.full((3 * 17, 2 * 11), 7, dtype="uint64" if dtype == "uint64" else "int64")
        for x, y in itertools.product(layouts(a), layouts(bt)):
            for out in (np.empty((11, 17), dtype=whole.dtype), whole[::3, ::-2].T):
                assert fast.exact_integer_product(x, y, out)
                assert (out.astype(object) == want).all()
            whole[::3, ::-2] = 7
            assert (whole == 7).all()  # nothing beside it was written


def test_large_matrices_are_left_alone(fast: Engine) -> None:
    a = np.ones((300, 300), dtype=np.int8)
    assert not fast.exact_integer_product(a, a, np.empty((300, 300), dtype=np.int64))


def test_wrong_arguments(fast: Engine) -> None:
    a, out = np.ones((2, 2), dtype=np.int64), np.empty((2, 2), dtype=np.int64)
    for b, target, modulus, wrap in (
        (np.ones((2, 3), dtype=np.int64), out, None, False),
        (a, out[:1], None, False),
        (a, out.astype(np.int32), None, False),
        (a.astype(float), out, None, False),
        (a, out.astype(float), None, True),
        (a, out.astype(np.uint64), 7, False),
        (a, out, 1, False),
        (a, out, 2**63 + 1, False),
    ):
        with pytest.raises((TypeError, ValueError)):
            fast.exact_integer_product(a, b, target, modulus, wrap)


def test_engines_without_it_say_so() -> None:
    one = np.ones((1, 1), dtype=np.int64)
    assert not get_engine("reference").exact_integer_product(one, one, one.copy())
