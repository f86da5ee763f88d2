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
        self.device = Device(0)
        self.made_on = Device.current

    @classmethod
    def of_memory(cls, values: Any) -> DeviceArray:
        """A view of that memory."""
        array = cls(values)
        array.values = values
        return array

    @property
    def shape(self) -> Any:
        return self.values.shape

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def strides(self) -> Any:
        return self.values.strides

    def copy(self) -> DeviceArray:
        copied = DeviceArray.of_memory(self.values.copy(order="C"))
        copied.device = Device(copied.made_on)
        return copied

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


def test_negative_strides_end_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch calls std::terminate for those, wherever the memory is."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    from gemmulate.engines import torch_exchange

    rng = np.random.default_rng(5)
    a, b = floats(rng, (5, 6), -300, 300), floats(rng, (6, 4), -300, 300)
    want = gm.matmul(a, b, accuracy="exact")
    out = np.zeros((5, 4))
    backwards = DeviceArray.of_memory(a[::-1].copy()[::-1])
    target = DeviceArray.of_memory(out[::-1, ::-1])
    backwards.device = target.device = Device(1)
    right = DeviceArray.of_memory(b[:, ::-1].copy()[:, ::-1])
    assert torch_exchange.as_tensors(backwards, right) is None
    RECEIVED.clear()
    assert_bits(gm.matmul(backwards, right, accuracy="exact").values, want)
    assert gm.matmul(backwards, right, accuracy="exact", out=target) is target
    assert len(RECEIVED) == 2  # torch's products, both of them
    assert_bits(np.ascontiguousarray(out[::-1, ::-1]), want)
    narrow = DeviceArray.of_memory(np.full((2, 2), 9, dtype=np.int8)[::-1])
    i = DeviceArray(np.arange(6).reshape(2, 3) * 10)
    with pytest.raises(gm.ResultOverflow):
        gm.matmul(i, DeviceArray(i.values.T), out=narrow)
    assert (narrow.values == 9).all()


def test_memory_that_came_twice_is_known_to_overlap() -> None:
    """Each tensor of DLPack has a storage of its own, beginning at its first element."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from gemmulate.engines.torch_array import TorchArray

    memory = np.zeros((9, 8))
    whole, upper, lower = (TorchArray(torch.from_dlpack(x)) for x in (memory, memory[:5], memory[5:]))
    shifted = TorchArray(torch.from_dlpack(memory[1:]))
    assert np.may_share_memory(upper, shifted)
    assert np.may_share_memory(shifted, upper)
    assert np.may_share_memory(whole, lower)
    assert not np.may_share_memory(upper, lower)


def test_results_are_given_away_on_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.Tensor.__dlpack__ raises for a device other than torch's current one."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    current: list[Any] = []

    class DeviceOf:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __enter__(self) -> None:
            current.append(self.tensor)

        def __exit__(self, *_: object) -> None:
            current.pop()

    monkeypatch.setattr(torch.cuda, "device_of", DeviceOf)
    taken: list[bool] = []

    def receive(tensor: Any) -> DeviceArray:
        taken.append(any(x is tensor for x in current))
        return from_dlpack(tensor)

    monkeypatch.setattr(sys.modules["cupy"], "from_dlpack", receive)
    x = DeviceArray(np.eye(3))
    assert_bits(gm.matmul(x, x).values, np.eye(3))
    assert taken == [True]
