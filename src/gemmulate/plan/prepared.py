"""Operands that are multiplied many times: their surveys and packed forms are kept between products."""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from typing import Any, SupportsIndex

import numpy as np

from gemmulate.engines.base import Array, Engine
from gemmulate.formats.double_double import DoubleDouble
from gemmulate.plan.operands import as_operand
from gemmulate.plan.tensors import host_array

# Engine methods whose result depends on one operand and settings, and where the operand stands among the arguments.
_KEPT = {
    "scan": 0,
    "norms": 0,
    "depths": 0,
    "integer_range": 0,
    "pack_floats": 1,
    "pack_integers": 1,
    "pack_reduced": 1,
    "pack_digits": 1,
    "pack_direct": 1,
    "pack_magnitudes": 1,
    "pack_anchored": 1,
    "pack_wrapped": 1,
}


class Prepared:
    """A matrix or stack whose surveys and packed residues are kept, for products with many others.

    Made by `gm.prepare`; `gm.matmul` and `gm.plan` take it in place of either operand, and `p @ b` multiplies it. It
    holds a read-only copy of the values, so later changes to the original are not seen. The bits of every product are
    those of the original. What is kept depends on the other operand as well (bits, moduli, side): products alike
    share it. Complex, bfloat16 and float16 matrices are taken but nothing is kept of them.
    """

    # NumPy leaves `array @ prepared` to __rmatmul__.
    __array_ufunc__ = None

    def __init__(self, array: Array, max_bytes: int) -> None:
        self._array = array
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[Any, ...], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """Its number of dimensions."""
        return self._array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type."""
        return self._array.dtype

    @property
    def nbytes(self) -> int:
        """What is held now: the values and everything kept of them, in bytes."""
        with self._lock:
            return int(self._array.nbytes) + sum(size for _, size in self._kept.values())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if dtype is not None and np.dtype(dtype) != self._array.dtype:
            if copy is False:
                raise ValueError(f"copy = False, but {self.dtype} becomes {np.dtype(dtype)} only by a copy; omit it")
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def __matmul__(self, other: Any) -> Any:
        from gemmulate.plan.matmul import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        from gemmulate.plan.matmul import matmul

        return matmul(other, self)

    def __repr__(self) -> str:
        return f"<gemmulate.Prepared of shape {self.shape}, {self.dtype}, {self.nbytes / 2**20:.1f} MiB>"

    def remembering(self, engine: Engine) -> Engine:
        """The engine, which takes from here what it has computed of this operand before."""
        remembered: Any = _Remembering(engine, self)
        return remembered  # type: ignore[no-any-return]

    def _recall(self, key: tuple[Any, ...]) -> Any:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return None if found is None else found[0]

    def _keep(self, key: tuple[Any, ...], value: Any) -> None:
        size = value.nbytes if hasattr(value, "nbytes") else sum(getattr(part, "nbytes", 8) for part in value)
        with self._lock:
            self._kept[key] = value, int(size)
            while len(self._kept) > 1 and sum(s for _, s in self._kept.values()) > self._max_bytes:
                self._kept.popitem(last=False)

    def _holds(self, x: Any) -> bool:
        """Whether x is a view of the values, which nobody else can write."""
        low = self._array.__array_interface__["data"][0]
        return isinstance(x, np.ndarray) and low <= x.__array_interface__["data"][0] < low + max(1, self._array.nbytes)


class _Remembering:
    """An engine whose calls on views of a prepared operand are made once."""

    def __init__(self, engine: Engine, prepared: Prepared) -> None:
        self._engine = engine
        self._prepared = prepared

    def alone(self) -> Any:
        return _Remembering(self._engine.alone(), self._prepared)

    def __getattr__(self, name: str) -> Any:
        method, place = getattr(self._engine, name), _KEPT.get(name)
        if place is None:
            return method
        prepared, engine_name = self._prepared, self._engine.name

        def call(*arguments: Any) -> Any:
            x = arguments[place]
            if not prepared._holds(x):
                return method(*arguments)
            rest = arguments[:place] + arguments[place + 1 :]
            where = x.__array_interface__["data"][0], x.shape, x.strides, x.dtype.str
            key = (name, engine_name, where, *(_frozen(argument) for argument in rest))
            value = prepared._recall(key)
            if value is None:
                value = method(*arguments)
                prepared._keep(key, value)
            return value

        return call


def _frozen(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.dtype.str, argument.shape, argument.tobytes()
    return argument


def prepare(a: Any, *, max_bytes: SupportsIndex = 1 << 30) -> Prepared:
    """Keep what products need of `a` (any operand that `gm.matmul` takes but DoubleDouble) between products.

    The first product with an operand of a kind surveys and packs `a`; later ones with like settings reuse both.
    `max_bytes` bounds what is kept beside the values: the oldest goes first, the last used stays. Products from
    several threads may share it. Of a torch tensor the values are copied to the host; it then multiplies NumPy arrays.
    Raises TypeError or ValueError as `gm.matmul` does.

    >>> import gemmulate as gm, numpy as np
    >>> weights = gm.prepare(np.arange(6).reshape(2, 3))
    >>> [(weights @ np.full(3, v)).tolist() for v in (1, 2)]
    [[3, 12], [6, 24]]
    """
    if isinstance(a, Prepared):
        return a
    if isinstance(a, DoubleDouble):
        raise TypeError("a is a DoubleDouble, of which nothing can be kept; pass it to gm.matmul as it is")
    integral = isinstance(max_bytes, SupportsIndex) and not isinstance(max_bytes, (bool, np.bool_))
    if not integral or (limit := operator.index(max_bytes)) < 0:
        raise ValueError(f"max_bytes = {max_bytes!r} is not a number of bytes ≥ 0; 2**30 keeps up to 1 GiB")
    array = np.array(as_operand(host_array(a, "a"), "a"), copy=True, order="K")
    array.flags.writeable = False
    return Prepared(array, limit)
