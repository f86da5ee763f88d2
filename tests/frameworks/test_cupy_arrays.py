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


class Device:
    """CuPy's device, the current one within `with`."""

    current = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        self.before, Device.current = Device.current, self.number

    def __exit__(self, *_: object) -> None:
        Device.current = self.before


class DeviceArray:
    """What an array of CuPy's gives to others: no implicit conversion."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype
        self.device = Device(0)
        self.made_on = Device.current

    def __array__(self, *arguments: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def get(self) -> Any:
        return self.values.copy()

    def __dlpack__(self, **options: Any) -> Any:
        if self.dtype == np.uint64:
            raise BufferError("a type that is not exchanged")
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()

    def __setitem__(self, key: Any, value: DeviceArray) -> None:
        assert (value.shape, value.dtype) == (self.shape, self.dtype)
        assert value.made_on == self.device.number == Device.current
        self.values[key] = value.values


RECEIVED: list[Any] = []


def from_dlpack(x: Any) -> DeviceArray:
    RECEIVED.append(x)
    return DeviceArray(np.from_dlpack(x))


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("cupy")
    module.__spec__ = ModuleSpec("cupy", None)
    module.ndarray, module.asarray = DeviceArray, DeviceArray
    module.from_dlpack = from_dlpack
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


def test_results_lie_on_the_device_of_the_operands() -> None:
    x, out = DeviceArray(np.eye(2)), DeviceArray(np.zeros((2, 2)))
    x.device = out.device = Device(1)
    assert gm.matmul(x, x, engine="reference").made_on == 1
    gm.matmul(x, x, out=out, engine="reference")
    assert (out.values == x.values).all()
    assert Device.current == 0


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


def test_torchs_engines_multiply_in_cupys_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    rng = np.random.default_rng(3)
    a, b = floats(rng, (3, 5, 6), -300, 300), floats(rng, (6, 4), -300, 300)
    want = gm.matmul(a, b, accuracy="exact")
    x, y, out = DeviceArray(a), DeviceArray(b), DeviceArray(np.zeros(want.shape))
    RECEIVED.clear()
    got = gm.matmul(x, y, accuracy="exact")  # torch's tensors are the processor's here
    assert isinstance(got, DeviceArray)
    assert_bits(got.values, want)
    assert gm.matmul(x, y, accuracy="exact", out=out) is out
    assert_bits(out.values, want)
    assert [type(t).__name__ for t in RECEIVED] == ["Tensor", "Tensor"]
    assert RECEIVED[1].data_ptr() == out.values.ctypes.data
    with pytest.raises(ValueError, match="must equal"):
        gm.matmul(y, y)


def test_what_torch_does_not_take_goes_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    unsigned = DeviceArray(np.arange(6, dtype=np.uint64))
    with pytest.raises(gm.EngineUnavailable, match="engine = 'cupy' cannot run here"):
        gm.matmul(unsigned, unsigned)
    i = DeviceArray(np.arange(6))
    with pytest.raises(gm.EngineUnavailable, match="engine = 'cupy' cannot run here"):
        gm.matmul(i, i, overflow="object")
    assert int(gm.matmul(i, i, engine="reference").values) == 55
