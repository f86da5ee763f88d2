"""Contract of CuPy arrays: the bits of NumPy's route as CuPy arrays. A module with NumPy's arrays stands for CuPy.

Not run on a GPU.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from matmul.checks import assert_bits
from matmul.inputs import floats


class DeviceArray:
    """What an array of CuPy's gives to others: no implicit conversion."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __array__(self, *arguments: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def get(self) -> Any:
        return self.values.copy()

    def set(self, values: Any) -> None:
        assert (values.shape, values.dtype) == (self.shape, self.dtype)
        self.values[...] = values


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("cupy")
    module.__spec__ = ModuleSpec("cupy", None)
    module.ndarray, module.asarray = DeviceArray, DeviceArray
    monkeypatch.setitem(sys.modules, "cupy", module)


def test_arrays_come_back_as_cupys() -> None:
    rng = np.random.default_rng(1)
    a, b = floats(rng, (3, 5, 6), -300, 300), floats(rng, (6, 4), -300, 300)
    got = gm.matmul(DeviceArray(a), DeviceArray(b), accuracy="exact", engine="native-scalar")
    assert isinstance(got, DeviceArray)
    assert_bits(got.values, gm.matmul(a, b, accuracy="exact"))
    i = np.arange(6)
    dot = gm.matmul(DeviceArray(i), DeviceArray(i), engine="reference")
    assert isinstance(dot, DeviceArray)
    assert (dot.shape, int(dot.values)) == ((), 55)
    assert gm.matmul(DeviceArray(i), DeviceArray(i), overflow="object", engine="reference") == 55


def test_out_is_written_or_unchanged() -> None:
    i = DeviceArray(np.arange(6).reshape(2, 3))
    out = DeviceArray(np.full((2, 2), 9, dtype=np.int8))
    t = DeviceArray(i.values.T)
    assert gm.matmul(i, t, out=out, engine="reference") is out
    assert (out.values == [[5, 14], [14, 50]]).all()
    with pytest.raises(gm.ResultOverflow):
        gm.matmul(i, DeviceArray(t.values * 10), out=out, engine="reference")
    assert (out.values == [[5, 14], [14, 50]]).all()


def test_mixed_operands_are_errors_and_the_default_engine_is_cupy() -> None:
    x = DeviceArray(np.eye(2))
    for a, b in ((x, np.eye(2)), (np.eye(2), x)):
        with pytest.raises(TypeError, match=r"is a ndarray, the other arguments are CuPy arrays"):
            gm.matmul(a, b)
    with pytest.raises(gm.EngineUnavailable, match="engine = 'cupy' cannot run here"):
        gm.matmul(x, x)
