"""Operands of the array engine, and the way between the caller's arrays and the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gemmulate.engines.array_library import Library, Tensor
from gemmulate.engines.base import Array, Engine
from gemmulate.engines.native import NativeEngine, instruction_sets
from gemmulate.engines.reference import ReferenceEngine


@dataclass(frozen=True)
class ArrayOperand:
    """Planes of residues or bytes on the device, int8 (planes, vectors, depth)."""

    library: Library
    planes: Tensor
    zero_point: int = 0
    inexact: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        count, vectors, depth = self.planes.shape
        return int(count * vectors * depth)

    @property
    def rounded(self) -> int:
        return int(self.inexact.sum())


@lru_cache(maxsize=1)
def host_engine() -> Engine:
    """The engine for the few elements that are computed on the host."""
    best = [isa for isa, supported in instruction_sets().items() if supported]
    return NativeEngine("native", best[-1], None) if best else ReferenceEngine()


# Only these four functions know where the caller's operands and results lie: in NumPy arrays, or in the device's.


def load(lib: Library, x: Array) -> Tensor:
    """A matrix of the caller on the device as signed integers (or uint8): floats and uint64 by their bits."""
    if x.dtype.kind == "u" and x.dtype.itemsize < 8:
        return lib.load(x if x.dtype.itemsize == 1 else x.astype(np.int32 if x.dtype.itemsize == 2 else np.int64))
    return lib.load(x.view(f"i{x.dtype.itemsize}"))


def store(lib: Library, out: Array, value: Tensor) -> None:
    """Write integers, or bit patterns of floats, to the caller's array."""
    patterns = out.view(f"i{out.dtype.itemsize}")
    patterns[...] = lib.to_numpy(value) if isinstance(out, np.ndarray) else value


def fetch(lib: Library, x: Array, vectors: npt.NDArray[np.int64]) -> Array:
    """Some vectors of the caller's matrix in the host's memory."""
    return lib.host_array(x[vectors])


def store_at(lib: Library, out: Array, at: npt.NDArray[np.int64], values: Array) -> None:
    """Write single elements of the caller's matrix."""
    out[at[:, 0], at[:, 1]] = values if isinstance(out, np.ndarray) else lib.device_array(values)
