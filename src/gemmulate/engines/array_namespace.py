"""Modules with NumPy's functions as libraries of the array engine: NumPy itself, and bases of CuPy's and JAX's."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt

from gemmulate.blas import finite_matmul
from gemmulate.engines.array_library import Library, Tensor


class NamespaceLibrary(Library):
    """Arrays of a module `xp` whose functions, methods and dtypes are NumPy's; `int8_matmul` is left to subclasses."""

    def __init__(self, xp: Any, block: int = 1 << 17) -> None:
        self.xp = xp
        self.block = block

    def load(self, x: npt.NDArray[Any]) -> Tensor:
        return self.xp.asarray(x)

    def to_numpy(self, x: Tensor) -> npt.NDArray[Any]:
        return np.asarray(x)

    def astype(self, x: Tensor, dtype: str) -> Tensor:
        return x.astype(dtype, copy=False)

    def bitcast(self, x: Tensor, dtype: str) -> Tensor:
        return x.view(dtype)

    def amax(self, x: Tensor, axis: int) -> Tensor:
        return self.xp.amax(x, axis=axis)

    def amin(self, x: Tensor, axis: int) -> Tensor:
        return self.xp.amin(x, axis=axis)

    def argwhere(self, x: Tensor) -> npt.NDArray[np.int64]:
        return self.to_numpy(self.xp.argwhere(x))

    def bincount(self, x: Tensor, bins: int) -> npt.NDArray[np.int64]:
        return self.to_numpy(self.xp.bincount(x.reshape(-1), minlength=bins)).astype(np.int64, copy=False)

    def pad(self, x: Tensor, rows: int, columns: int) -> Tensor:
        return self.xp.pad(x, ((0, rows), (0, columns)))


@final
class NumpyLibrary(NamespaceLibrary):
    """NumPy alone: the array engine's kernels for arrays of the host."""

    def __init__(self) -> None:
        super().__init__(np)

    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """In float64, which holds every sum that the rules allow."""
        return finite_matmul(a.astype(np.float64), b.astype(np.float64).T).astype(np.int64)
