"""CuPy as the array engine's library: INT8 products by cuBLAS, all else by CuPy's arrays. Not run on a GPU.

cuBLAS multiplies INT8 with INT32 sums where leading dimensions, m and k of its column-major product are multiples of 4;
multiples of 16 reach its fastest kernels (cuBLAS manual, "Tensor Core usage"; `cublasGemmEx` with CUBLAS_COMPUTE_32I).
Zeros fill what is missing. All but that call is tested with NumPy in CuPy's place.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.array_library import INT32_DEPTH, ProductRules, Tensor
from gemmulate.engines.array_namespace import NamespaceLibrary

RULES = ProductRules(least_rows=16, least_depth=16, multiple=16, depth=INT32_DEPTH // 16 * 16)

# Values of the enumerations cudaDataType (library_types.h), cublasComputeType_t, cublasGemmAlgo_t (cublas_api.h).
_CUDA_R_8I, _CUDA_R_32I = 3, 10
_COMPUTE_32I = 72
_GEMM_DEFAULT = -1
_HOST_POINTERS = 0


class CupyLibrary(NamespaceLibrary):
    """Arrays on CuPy's current device; `xp` is CuPy, or a module that stands for it."""

    rules = RULES

    def __init__(self, xp: Any, block: int = 1 << 23) -> None:
        super().__init__(xp, block)

    def to_numpy(self, x: Tensor) -> npt.NDArray[Any]:
        return np.asarray(x if isinstance(x, (np.ndarray, np.generic)) else self.xp.asnumpy(x))

    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        (m, k), n = a.shape, b.shape[0]
        out = self.xp.empty((m, n), dtype=np.int32)
        self.gemm(self.xp.ascontiguousarray(a), self.xp.ascontiguousarray(b), out, m, k, n)
        return out

    def gemm(self, a: Tensor, b: Tensor, out: Tensor, m: int, k: int, n: int) -> None:
        """Write a (m, k) bᵀ for b (n, k) to out; contiguous by rows, which cuBLAS reads as columns: outᵀ = b aᵀ."""
        cublas, one, zero = self.xp.cuda.cublas, np.ones(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
        handle = self.xp.cuda.device.get_cublas_handle()
        pointers = cublas.getPointerMode(handle)
        cublas.setPointerMode(handle, _HOST_POINTERS)
        try:
            cublas.gemmEx(
                handle,
                cublas.CUBLAS_OP_T,
                cublas.CUBLAS_OP_N,
                *(n, m, k),
                one.ctypes.data,
                *(b.data.ptr, _CUDA_R_8I, k),
                *(a.data.ptr, _CUDA_R_8I, k),
                zero.ctypes.data,
                *(out.data.ptr, _CUDA_R_32I, n),
                _COMPUTE_32I,
                _GEMM_DEFAULT,
            )
        finally:
            cublas.setPointerMode(handle, pointers)


def cupy_engine(name: str) -> ArrayEngine:
    """The array engine on CuPy's current device."""
    return ArrayEngine(name, CupyLibrary(import_module("cupy")))
