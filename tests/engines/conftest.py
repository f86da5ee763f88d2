"""Every test of this folder runs on every engine that is available here."""

from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate.engines import Engine, get_engine
from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.cupy import CupyLibrary


class CupyOnNumpy(CupyLibrary):
    """CuPy's library with NumPy in CuPy's place, and the product that cuBLAS has to compute."""

    def __init__(self) -> None:
        super().__init__(np, 1 << 14)

    def gemm(self, a: Any, b: Any, out: Any, m: int, k: int, n: int) -> None:
        assert a.flags.c_contiguous
        assert b.flags.c_contiguous
        assert (a.dtype, b.dtype, out.dtype) == (np.int8, np.int8, np.int32)
        assert m >= self.rules.least_rows
        assert k % self.rules.multiple == n % self.rules.multiple == 0
        assert 0 < k <= self.rules.depth
        out[...] = a.astype(np.float64) @ b.astype(np.float64).T


ON_NUMPY = ArrayEngine("cupy on NumPy", CupyOnNumpy())


@pytest.fixture(params=[*(r.name for r in gm.engines()), ON_NUMPY.name])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == ON_NUMPY.name:
        return ON_NUMPY
    record = {r.name: r for r in gm.engines()}[request.param]
    if not record.available:
        pytest.skip(record.reason)
    return get_engine(record.name, 2)
