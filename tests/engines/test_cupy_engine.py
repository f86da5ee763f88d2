"""CuPy's one call of cuBLAS, on the column-major product of cuBLAS's manual; all else runs in the contract suite.

Nothing here was run on a GPU: a module with NumPy's arrays stands for CuPy, and reads operands through their pointers.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate.engines.cupy import RULES, CupyLibrary


class DeviceArray(np.ndarray):
    """An array with CuPy's `data.ptr`."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


def columns(pointer: int, kind: type, rows: int, count: int, leading: int) -> Any:
    """A column-major matrix (rows, count) in memory."""
    buffer = (kind * (leading * count)).from_address(pointer)
    return np.frombuffer(buffer, dtype=np.dtype(kind)).reshape(count, leading)[:, :rows].T


class Cublas:
    """cublasGemmEx with CUBLAS_COMPUTE_32I, its rules for INT8, and its pointer mode."""

    CUBLAS_OP_N, CUBLAS_OP_T = 0, 1

    def __init__(self) -> None:
        self.mode, self.calls = 1, 0

    def getPointerMode(self, handle: int) -> int:
        return self.mode

    def setPointerMode(self, handle: int, mode: int) -> None:
        self.mode = mode

    def gemmEx(self, *arguments: Any) -> None:
        handle, op_a, op_b, m, n, k, alpha, *rest = arguments
        a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, algorithm = rest
        assert (handle, self.mode) == (7, 0)
        assert (type_a, type_b, type_c, compute, algorithm) == (3, 3, 10, 72, -1)
        assert all(v % 4 == 0 for v in (a, b, c, lda, ldb, ldc, m, k))
        assert ctypes.c_int32.from_address(alpha).value == 1
        assert ctypes.c_int32.from_address(beta).value == 0
        left = columns(a, ctypes.c_int8, *((m, k) if op_a == 0 else (k, m)), lda)
        right = columns(b, ctypes.c_int8, *((k, n) if op_b == 0 else (n, k)), ldb)
        left, right = left if op_a == 0 else left.T, right if op_b == 0 else right.T
        columns(c, ctypes.c_int32, m, n, ldc)[...] = left.astype(np.int32) @ right.astype(np.int32)
        self.calls += 1


class Module:
    """NumPy under CuPy's names."""

    def __init__(self) -> None:
        self.cublas = Cublas()
        self.cuda = SimpleNamespace(cublas=self.cublas, device=SimpleNamespace(get_cublas_handle=lambda: 7))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any) -> Any:
        return np.empty(shape, dtype).view(DeviceArray)

    def ascontiguousarray(self, x: Any) -> Any:
        return np.ascontiguousarray(x).view(DeviceArray)


@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 16, 16), (17, 33, 50), (3, RULES.depth + 5, 2)])
def test_the_call_of_cublas(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b = rng.integers(-128, 128, (m, k), dtype=np.int8), rng.integers(-128, 128, (n, k), dtype=np.int8)
    a[0], b[0] = -128, -128
    module = Module()
    got = CupyLibrary(module).int8_product(a, b)
    assert (np.asarray(got) == a.astype(np.int64) @ b.astype(np.int64).T).all()
    assert module.cublas.calls == -(-k // RULES.depth)
    assert module.cublas.mode == 1  # the caller's


def test_why_it_does_not_run_here() -> None:
    record = next(r for r in gm.engines() if r.name == "cupy")
    if record.available:
        pytest.skip("there is a GPU")
    assert "install" in record.reason
    with pytest.raises(gm.EngineUnavailable, match="engine = 'cupy' cannot run here"):
        gm.matmul([[1]], [[1]], engine="cupy")
