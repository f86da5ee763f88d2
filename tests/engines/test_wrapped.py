"""Products modulo 2^32 and 2^64, against Python integers."""

import numpy as np
import pytest

from gemmulate.engines import Engine
from gemmulate.schemes.wrapped import multiply_wrapped

UNSIGNED = {4: "uint32", 8: "uint64"}


def expected(a: np.ndarray, bt: np.ndarray, itemsize: int) -> np.ndarray:
    """Python integers, reduced at the end."""
    exact = a.astype(object) @ bt.astype(object).T
    return (exact % (1 << 8 * itemsize)).astype(UNSIGNED[itemsize])


@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (1, 300, 33), (13, 255, 17), (5, 256, 129), (98, 257, 3), (25, 513, 40), (12, 16, 32)]
)
@pytest.mark.parametrize("out_type", ["int64", "uint64", "int32", "uint32"])
def test_wrapped_products(engine: Engine, m: int, k: int, n: int, out_type: str) -> None:
    rng = np.random.default_rng(m * k + n)
    for left, right in (("int64", "uint64"), ("int32", "int32"), ("uint8", "int16")):
        a, bt = (
            rng.integers(np.iinfo(t).min, np.iinfo(t).max, size, dtype=t, endpoint=True)
            for t, size in ((left, (m, k)), (right, (n, k)))
        )
        whole = np.full((2 * m, 3 * n), 77, dtype=out_type)
        out = whole[::2, ::3]  # written where it lies, and nothing beside it
        bits = multiply_wrapped(engine, a, bt, out)
        want = expected(a, bt, out.dtype.itemsize).view(out_type)
        assert (out == want).all()
        assert bits == max(int(v if v >= 0 else ~v).bit_length() + 1 for v in want.flat)
        out[...] = 77
        assert (whole == 77).all()


def test_extremes_and_strides(engine: Engine) -> None:
    low = np.full((9, 700), -(2**63))
    odd = np.full((4, 700), 2**63 - 1)
    for a, bt in ((low, odd), (odd, odd), (low, low), (odd[:, ::-2], low[:, 1::2])):
        out = np.empty((a.shape[0], bt.shape[0]), dtype=np.int64)
        multiply_wrapped(engine, a, bt, out)
        assert (out.view(np.uint64) == expected(a, bt, 8)).all()


def test_a_result_of_two_to_the_63_is_negative(engine: Engine) -> None:
    out = np.empty((1, 1), dtype=np.int64)
    assert multiply_wrapped(engine, np.array([[2**62]]), np.array([[2]]), out) == 64
    assert out[0, 0] == -(2**63)
    assert multiply_wrapped(engine, np.array([[0]]), np.array([[5]]), out) == 1
