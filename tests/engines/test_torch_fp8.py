"""INT8 products on FP8 planes: exact against Python integers, at the depth that each accumulator allows."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gemmulate as gm  # noqa: E402 - torch is optional
from gemmulate.engines import get_engine  # noqa: E402
from gemmulate.engines.array_engine import ArrayEngine  # noqa: E402
from gemmulate.engines.array_library import INT32_DEPTH  # noqa: E402
from gemmulate.engines.torch import on_device  # noqa: E402
from gemmulate.engines.torch_fp8 import Fp8Library, fp8_accumulator, fp8_depth  # noqa: E402


def test_depths_follow_from_the_accumulators() -> None:
    # Sums of products of at most 16 · 16 stay below 2^24, below 2^14 quanta; 131,064 is what int32 holds.
    assert fp8_depth("fp32") == 2**24 // 256
    assert fp8_depth("fp8_13bit") == 48
    assert (2**14 - 1) // 256 == 63
    assert fp8_depth("fp64") == INT32_DEPTH // 16 * 16


def test_accumulators_of_devices() -> None:
    """Ada and Hopper align to 13 fraction bits, Blackwell as wide as FP32; the processor sums in FP32."""
    found = {capability: fp8_accumulator(capability) for capability in (None, 89, 90, 100, 103, 120)}
    assert [c for c, name in found.items() if name == "fp8_13bit"] == [89, 90]
    assert set(found.values()) == {"fp8_13bit", "fp32"}


@pytest.mark.parametrize("accumulator", ["fp32", "fp8_13bit"])
@pytest.mark.parametrize("k", [1, 2, 15, 16, 17, 47, 48, 49, 300, 1031])
def test_products(accumulator: str, k: int) -> None:
    lib = Fp8Library("cpu", accumulator)
    rng = np.random.default_rng(k)
    x, y = (rng.integers(-128, 128, (rows, k), dtype=np.int8) for rows in (5, 7))
    x[0], y[0], x[1], y[1] = -128, -128, 127, -128
    got = lib.to_numpy(lib.int8_product(lib.load(x), lib.load(y)))
    want = [[sum(p * q for p, q in zip(u, v, strict=True)) for v in y.tolist()] for u in x.tolist()]
    assert got.tolist() == want


def test_on_another_device_the_planes_stay_fp8() -> None:
    """Only its device is another: "cpu:0" is not "cpu", as "cuda:0" is not "cuda"."""
    engine = on_device(get_engine("torch-fp8"), torch.device("cpu", 0))
    assert isinstance(engine, ArrayEngine)
    assert isinstance(engine.library, Fp8Library)
    assert engine.library.device == torch.device("cpu", 0)
    own = ArrayEngine("mine", Fp8Library())
    assert on_device(own, torch.device("cpu")) is own
    with pytest.raises(TypeError, match="engine = 'mine' is of its maker's own"):
        on_device(own, torch.device("cpu", 0))


def test_products_of_pytorch_2_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """There torch._scaled_mm returns a pair."""
    multiply = torch._scaled_mm
    monkeypatch.setattr(torch, "_scaled_mm", lambda *a, **k: (multiply(*a, **k), torch.zeros(())))
    x = np.arange(-64, 64, dtype=np.int8).reshape(4, 32)
    lib = Fp8Library()
    got = lib.to_numpy(lib.int8_product(lib.load(x), lib.load(x)))
    assert got.tolist() == (x.astype(int) @ x.astype(int).T).tolist()


def test_every_pair_of_bytes() -> None:
    lib = Fp8Library()
    x = np.arange(-128, 128, dtype=np.int8)[:, None]
    got = lib.to_numpy(lib.int8_product(lib.load(x), lib.load(x)))
    assert (got == x.astype(np.int64) * x.T.astype(np.int64)).all()


def test_beyond_the_depth_of_fp32() -> None:
    lib, k = Fp8Library(), 2**16 + 5
    x = np.full((2, k), -128, dtype=np.int8)
    assert lib.to_numpy(lib.int8_product(lib.load(x), lib.load(x))).tolist() == [[k * 128**2] * 2] * 2


@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact"])
def test_products_of_floats_have_the_native_bits(accuracy: str) -> None:
    rng = np.random.default_rng(8)
    x, y = (rng.standard_normal(s) * 2.0 ** rng.integers(-20, 20, s) for s in ((70, 90), (90, 65)))
    got = gm.matmul(x, y, accuracy=accuracy, engine="torch-fp8")
    assert np.array_equal(got.view(np.int64), gm.matmul(x, y, accuracy=accuracy).view(np.int64))
