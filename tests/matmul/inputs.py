"""Inputs for the contract tests: floats over chosen exponent ranges, extreme integers, and memory layouts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from matmul.oracles import Array, binary

INTEGER_DTYPES = [np.dtype(t) for t in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]


def floats(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    low: int,
    high: int,
    dtype: Any = np.float64,
    *,
    zeros: float = 0.0,
) -> Array:
    """Random signs, full significands and binary exponents uniform in [low, high]; a share `zeros` is ±0.

    Exponents below the normal range give subnormals.
    """
    fmt = binary(dtype)
    significand = rng.integers(1 << (fmt.p - 1), 1 << fmt.p, size=shape).astype(np.float64)
    x = np.ldexp(significand, rng.integers(low, high + 1, size=shape) - (fmt.p - 1))
    x = np.where(rng.random(shape) < zeros, 0.0, x)
    return np.asarray(np.where(rng.random(shape) < 0.5, -x, x).astype(dtype))


def limits(dtype: Any) -> tuple[int, int]:
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Uniform over the whole range of the dtype, with its extremes, 0, 1 and −1 mixed in."""
    dtype = np.dtype(dtype)
    low, high = limits(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.6
    x = rng.integers(low, high, size=shape, dtype=dtype, endpoint=True)
    special = rng.choice(np.array([low, high, 0, 1, high - 1], dtype=dtype), size=shape)
    return np.asarray(np.where(rng.random(shape) < 0.2, special, x))


def _unaligned(x: Array) -> Array:
    if x.dtype == object:
        return x.copy()
    buffer = np.zeros(x.nbytes + 1, dtype=np.uint8)
    y = buffer[1:].view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def _read_only(x: Array) -> Array:
    y = x.copy()
    y.flags.writeable = False
    return y


def _strided(row_step: int, column_step: int) -> Callable[[Array], Array]:
    def lay(x: Array) -> Array:
        steps = [1] * (x.ndim - 2) + [row_step, column_step][-x.ndim :]
        host = np.full([n * abs(s) for n, s in zip(x.shape, steps, strict=True)], 77).astype(x.dtype)
        y = host[tuple(slice(None, None, s) for s in steps)]
        assert y.shape == x.shape
        y[...] = x
        return y

    return lay


def _offset(x: Array) -> Array:
    """A view into the middle of a larger array, so that rows are padded."""
    host = np.full([n + 5 for n in x.shape], 77).astype(x.dtype)
    y = host[tuple(slice(2, 2 + n) for n in x.shape)]
    y[...] = x
    return y


def _axes_swapped(x: Array) -> Array:
    """The last two axes laid out transposed and the stack axes reversed (Fortran order for matrices)."""
    return np.asarray(x.T.copy(order="C").T)


# Name -> the same values in another memory layout.
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "c": lambda x: x.copy(order="C"),
    "fortran": _axes_swapped,
    "rows_reversed": _strided(-1, 1),
    "columns_reversed": _strided(1, -1),
    "both_reversed": _strided(-1, -1),
    "every_second_row": _strided(2, 1),
    "every_third_column": _strided(1, 3),
    "steps_-3_2": _strided(-3, 2),
    "padded_view": _offset,
    "byte_swapped": lambda x: x.astype(x.dtype.newbyteorder()) if x.dtype != object else x,
    "unaligned": _unaligned,
    "read_only": _read_only,
}
