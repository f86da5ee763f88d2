"""NumPy's float products of finite numbers, as the library uses them: for integers that floats hold, and for bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def finite_matmul(a: npt.NDArray[Any], b: npt.NDArray[Any], out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """np.matmul of finite floats (m, k) and (k, n), without a warning of an invalid operation.

    BLAS kernels may also multiply what lies in registers beyond the edge of a matrix. The results are right, but the
    processor's flag stays set, and NumPy reports "invalid value encountered in matmul" for finite operands, once in
    many thousand calls (OpenBLAS issue 1924, 2018; NumPy issue 24067, 2023).
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(np.matmul(a, b, out=out))
