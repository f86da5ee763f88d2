"""From what a caller passes to matrices that a scheme takes: types, shapes, stacks, layouts."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gemmulate.engines.base import Array, DeviceArray, dtype_name
from gemmulate.engines.python_ints import int_bounds

Kind = Literal["integer", "object", "float", "complex"]

MAX_DEPTH = (1 << 31) - 1  # 32-bit counts of rounded entries; also 2^30 additions between two carries

MAX_ELEMENTS = 1 << 40  # 8 TiB of int64: beyond any machine that this runs on

_ACCEPTED = "bool, (u)int8 to (u)int64, Python ints, float16, bfloat16, float32, float64, complex64 and complex128"
# By name: bfloat16 is a dtype of ml_dtypes, known here only where a caller brings one.
_NARROW = ("float16", "bfloat16")
INEXACT = (*_NARROW, "float32", "float64", "complex64", "complex128")


def is_array_of(x: Any, module: str, name: str) -> bool:
    """Whether x is an instance of that class of a framework, which is not imported for that."""
    if type(x) is np.ndarray or x is None:
        return False
    framework = sys.modules.get(module)
    return framework is not None and isinstance(x, getattr(framework, name, ()))


def as_operand(x: Any, name: str) -> Array:
    """The argument as an array of an accepted type; TypeError or ValueError name the argument.

    Arrays of a device, behind NumPy's names (`engines/torch_array.py`), stay where they are.
    """
    if isinstance(x, DeviceArray):
        return _accepted(x, name)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose masked entries have no value; use {name}.filled(…)")
    if x is None or isinstance(x, (str, bytes, dict, set)):
        raise TypeError(f"{name} is a {type(x).__name__}, not a matrix; pass {_ACCEPTED}")
    try:
        array = np.asarray(x)
        if array.dtype.kind == "f" and not hasattr(x, "dtype"):
            # NumPy turns lists that mix large and negative Python ints into float64, which is not exact.
            objects = np.asarray(x, dtype=object)
            if objects.size and all(isinstance(v, (int, np.integer)) for v in objects.flat):
                array = objects
            elif any(isinstance(v, int) and int(float(v)) != v for v in objects.flat):
                raise TypeError(
                    f"{name} mixes floats with integers that float64 does not hold exactly; convert them yourself"
                )
    except ValueError as error:
        raise ValueError(f"{name} is not a matrix (rows of different lengths?): {error}") from None
    if array.dtype.kind == "O":
        array = _as_python_ints(array, name)
    return _accepted(array, name)


def _accepted(array: Any, name: str) -> Array:
    if array.dtype.kind not in "biuO" and dtype_name(array.dtype) not in INEXACT:
        way_out = "; DoubleDouble.from_longdouble keeps more than its bits" if array.dtype.char == "g" else ""
        raise TypeError(f"{name} has dtype {array.dtype}, which has no exact product here; pass {_ACCEPTED}{way_out}")
    if array.ndim == 0:
        raise ValueError(f"{name} is 0-dimensional; a product needs vectors, matrices or stacks (use * for scalars)")
    checked: Array = array  # or a DeviceArray in its place
    return checked


def _as_python_ints(array: Array, name: str) -> Array:
    if int_bounds(array) is not None:
        return array
    out = np.empty(array.shape, dtype=object)
    flat = out.reshape(-1)
    for i, v in enumerate(array.flat):
        if not isinstance(v, (int, np.integer, np.bool_)):
            raise TypeError(
                f"{name} holds a {type(v).__name__} ({v!r:.40}) in an object array; object arrays hold Python ints"
            )
        flat[i] = int(v)
    return out


def common_kind(a: Array, b: Array) -> tuple[Array, Array, Kind]:
    """Both operands in a common exact type, or TypeError."""
    kinds = {a.dtype.kind, b.dtype.kind}
    if kinds <= set("biuO"):
        if "O" in kinds:
            return _to_objects(a), _to_objects(b), "object"
        return a, b, "integer"
    if "O" in kinds:
        raise TypeError(
            f"a is {a.dtype} and b is {b.dtype}: floats and Python ints have no common exact type; convert one of them"
        )
    common = _common_float(a.dtype, b.dtype)
    return _to_float(a, common, "a"), _to_float(b, common, "b"), "complex" if common.kind == "c" else "float"


def _to_objects(x: Array) -> Array:
    return (x.view(np.uint8) if x.dtype == np.bool_ else x).astype(object, copy=False)


def _common_float(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy's common type; bfloat16 with integers as float16 (8 bits stay, 16 bits need float32), with it float32."""
    if a == b or "bfloat16" not in (dtype_name(a), dtype_name(b)):
        return np.result_type(a, b)
    narrow, other = (a, b) if dtype_name(a) == "bfloat16" else (b, a)
    if other.kind in "biu":
        common = np.result_type(np.float16, other)
        return narrow if common == np.float16 else common
    return np.result_type(np.float32, other)


def result_dtype(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The product's dtype. Integers: int64, or uint64 where no operand is signed and not both are bool."""
    kinds = {a.kind, b.kind}
    if kinds <= set("biu"):
        return np.dtype(np.uint64 if "u" in kinds and "i" not in kinds else np.int64)
    return _common_float(a, b)


def _to_float(x: Array, dtype: np.dtype[Any], name: str) -> Array:
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8 and x.size:
        limit = 1 << 53
        if not (-limit <= int(x.min()) and int(x.max()) <= limit):
            raise TypeError(
                f"{name} is {x.dtype} with values beyond 2^53, which {dtype} does not hold exactly; "
                "convert it yourself or pass integers on both sides"
            )
    if x.dtype == dtype:
        return x
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return x.astype(dtype)


@dataclass(frozen=True)
class Stack:
    """Two operands as stacks of matrices of common batch shape, by NumPy's rules for matmul."""

    a: Array  # (*batch, m, k)
    b: Array  # (*batch, k, n)
    shape: tuple[int, ...]  # of the result, vectors' dimensions dropped

    @property
    def batch(self) -> tuple[int, ...]:
        return self.a.shape[:-2]

    @property
    def full_shape(self) -> tuple[int, ...]:
        """(*batch, m, n)."""
        return (*self.batch, self.a.shape[-2], self.b.shape[-1])

    @property
    def depth(self) -> int:
        return int(self.a.shape[-1])


def as_stack(a: Array, b: Array) -> Stack:
    """Check shapes and broadcast; ValueError names both shapes."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    k = left.shape[-1]
    if k != right.shape[-2]:
        raise ValueError(
            f"a has shape {a.shape} and b has shape {b.shape}: a's last dimension ({k}) must equal b's "
            f"{'only' if b.ndim == 1 else 'second last'} one ({right.shape[-2]})"
        )
    if k > MAX_DEPTH:
        raise ValueError(f"k = {k} (a's last dimension) exceeds {MAX_DEPTH}; split k and add the products")
    if left.ndim == right.ndim == 2:
        shape = (left.shape[-2],) * (a.ndim == 2) + (right.shape[-1],) * (b.ndim == 2)
        if left.shape[0] * right.shape[1] <= MAX_ELEMENTS:
            return Stack(left, right, shape)
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise ValueError(
            f"a has shape {a.shape} and b has shape {b.shape}: the stacks {left.shape[:-2]} and "
            f"{right.shape[:-2]} do not broadcast"
        ) from None
    count = math.prod((*batch, left.shape[-2], right.shape[-1]))
    if count > MAX_ELEMENTS:
        raise ValueError(
            f"a has shape {a.shape} and b has shape {b.shape}: the product's {count} elements exceed {MAX_ELEMENTS}; "
            "compute it in blocks"
        )
    shape = batch
    shape += () if a.ndim == 1 else (left.shape[-2],)
    shape += () if b.ndim == 1 else (right.shape[-1],)
    return Stack(
        np.broadcast_to(left, (*batch, *left.shape[-2:])), np.broadcast_to(right, (*batch, *right.shape[-2:])), shape
    )


def kernel_view(x: Array) -> Array:
    """A matrix as the engines read it: native byte order, aligned, whole-element strides.

    bool becomes bytes, float16 and bfloat16 become float32, all exactly.
    """
    if dtype_name(x.dtype) in _NARROW:
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            return x.astype(np.float32)
    if not isinstance(x, np.ndarray):  # of a device: always aligned
        return x.view(np.uint8) if x.dtype == np.bool_ else x
    if x.dtype == np.bool_:
        x = x.view(np.uint8) if x.flags.aligned else x.astype(np.uint8)
    whole = all(s % x.itemsize == 0 for s in x.strides)
    if not x.dtype.isnative or not x.flags.aligned or not whole:
        x = np.array(x, dtype=x.dtype.newbyteorder("="), order="C")
    return x
