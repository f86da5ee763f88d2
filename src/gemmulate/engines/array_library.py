"""What the array engine needs of a framework: a few array operations, and INT8 products with int32 sums.

`ArrayEngine` writes its kernels once, against `Library`. The operations that frameworks call by one name and in one
way come from the framework's own module, `xp` (torch, jax.numpy, cupy); the others are the methods that are abstract
here. Arrays are immutable to the engine: it never writes into one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmulate.engines.base import host_memory

Tensor = Any  # an array of the framework, on the library's device

# |Σ| ≤ k 128² < 2^31: the deepest sum of INT8 products that an int32 accumulator holds, as a multiple of 8.
INT32_DEPTH = (2**31 - 1) // (128 * 128) // 8 * 8


@dataclass(frozen=True)
class ProductRules:
    """What shapes a device's INT8 product takes: (m, k) times (k, n), and the depth that its accumulator sums exactly.

    m at least `least_rows`, k in `least_depth` … `depth`; k, n and `depth` multiples of `multiple`.
    """

    least_rows: int = 1
    least_depth: int = 1
    multiple: int = 1
    depth: int = INT32_DEPTH

    def __post_init__(self) -> None:
        if not self.least_depth <= self.depth <= INT32_DEPTH or self.depth < 1 or self.depth % self.multiple:
            raise ValueError(
                f"depth = {self.depth} is not a multiple of {self.multiple} in {max(self.least_depth, 1)} … "
                f"{INT32_DEPTH}; choose one that int32 sums hold"
            )


class Library(ABC):
    """An array framework on one device.

    dtypes go by NumPy's names. Shifts of int64 are arithmetic and its sums and products wrap modulo 2^64, as in every
    such framework; float64 operations are those of IEEE 754 wherever both operands and the result are normal numbers.
    """

    xp: Any  # where, stack, concatenate, floor, clip, maximum, sum and matmul, called as in NumPy
    block: int  # elements of a matrix that are worked on at a time
    rules = ProductRules()

    @abstractmethod
    def load(self, x: npt.NDArray[Any]) -> Tensor:
        """A NumPy array of int8, uint8, int16, int32, int64 or float64, any strides; shared where possible."""

    # Arrays of the device that callers hold, behind NumPy's names; by default there are none beside NumPy's.

    arrays: type | None = None
    panel: tuple[int, int] | None = None  # rows and columns of a block of a result

    def memory(self) -> int:
        """Bytes of the device."""
        return host_memory()

    def temporary(self, most: int) -> int:
        """Bytes that temporaries of one kind may take: `most`, and less where memory is little."""
        return min(most, self.memory() // 16)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An uninitialised array that results are written to."""
        return np.empty(shape, dtype=dtype)

    def wrap(self, x: Tensor) -> Any:
        """A tensor as the device's arrays that callers hold."""
        raise NotImplementedError("arrays of this library are NumPy's to callers")

    def host_array(self, x: Any) -> npt.NDArray[Any]:
        """A caller's array as a NumPy array."""
        return np.asarray(x)

    def device_array(self, x: npt.NDArray[Any]) -> Any:
        """A NumPy array as `empty` makes them."""
        return x

    @abstractmethod
    def to_numpy(self, x: Tensor) -> npt.NDArray[Any]:
        """The array in the host's memory."""

    @abstractmethod
    def astype(self, x: Tensor, dtype: str) -> Tensor:
        """Converted to int8, int32, int64 or float64; integers that do not fit wrap."""

    @abstractmethod
    def bitcast(self, x: Tensor, dtype: str) -> Tensor:
        """The same bits as another type of the same size."""

    @abstractmethod
    def amax(self, x: Tensor, axis: int) -> Tensor:
        """The largest entries along an axis, which has at least one."""

    @abstractmethod
    def amin(self, x: Tensor, axis: int) -> Tensor:
        """The least entries along an axis, which has at least one."""

    @abstractmethod
    def argwhere(self, x: Tensor) -> npt.NDArray[np.int64]:
        """Indices of the true entries, (count, dimensions), in lexical order."""

    @abstractmethod
    def bincount(self, x: Tensor, bins: int) -> npt.NDArray[np.int64]:
        """How often 0 … bins − 1 occur among integers of that range, of any shape."""

    @abstractmethod
    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """a (m, k) bᵀ for b (n, k), int8 in a shape that `rules` allow: int32 or int64, exact."""

    @abstractmethod
    def pad(self, x: Tensor, rows: int, columns: int) -> Tensor:
        """The matrix with so many rows and columns of zeros after its own."""

    def int8_product(self, a: Tensor, b: Tensor) -> Tensor:
        """a (m, k) bᵀ for b (n, k), int8 of any shape, exact: int32, or int64 beyond the accumulator's depth."""
        (m, k), n, rules = a.shape, b.shape[0], self.rules
        rows, columns = max(rules.least_rows - m, 0), -n % rules.multiple
        deep = max(rules.least_depth - (k % rules.depth or min(k, rules.depth)), 0)  # of the last part
        deep += -(k + deep) % rules.multiple
        if rows or deep:
            a = self.pad(a, rows, deep)
        if columns or deep:
            b = self.pad(b, columns, deep)
        if k <= rules.depth:
            sums = self.int8_matmul(a, b)
        else:
            sums = self.astype(self.int8_matmul(a[:, : rules.depth], b[:, : rules.depth]), "int64")
            for start in range(rules.depth, k, rules.depth):
                part = slice(start, start + rules.depth)
                sums = sums + self.astype(self.int8_matmul(a[:, part], b[:, part]), "int64")
        return sums[:m, :n] if rows or columns else sums

    # What the engine calls, in the engine's words.

    def where(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.xp.where(condition, x, y)

    def clip(self, x: Tensor, low: int, high: int) -> Tensor:
        return self.xp.clip(x, low, high)

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        return self.xp.maximum(x, y)

    def floor(self, x: Tensor) -> Tensor:
        return self.xp.floor(x)

    def stack(self, x: Sequence[Tensor]) -> Tensor:
        return self.xp.stack(list(x))

    def concatenate(self, x: Sequence[Tensor], axis: int) -> Tensor:
        return x[0] if len(x) == 1 else self.xp.concatenate(list(x), axis=axis)

    def sum(self, x: Tensor, axis: int) -> Tensor:
        """Sums of int64 along an axis."""
        return self.xp.sum(x, axis=axis)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """A float64 product. The engine asks for it only where every partial sum, of any order, is exact."""
        return self.xp.matmul(a, b)
