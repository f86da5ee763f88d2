"""Engine triton through `gm.matmul`: the bits of the native (or reference) engine, whatever floats and integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from triton_inputs import bits, hostile, refuse_reads

import gemmulate as gm
from gemmulate.engines import get_engine
from gemmulate.engines.torch import on_device
from gemmulate.engines.triton import engine as module
from gemmulate.engines.triton import resident
from gemmulate.engines.triton.engine import TritonEngine
from gemmulate.plan import trusted

OTHER = "native" if next(r for r in gm.engines() if r.name == "native").available else "reference"


@pytest.mark.parametrize("grade", ["fast", "fp64", "exact"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("fused", [True, False])
def test_floats(grade: Any, dtype: Any, fused: bool) -> None:
    rng = np.random.default_rng(3)
    engine = TritonEngine("triton", "cpu", fused=fused)
    a, b = hostile(rng, dtype, (7, 34)), hostile(rng, dtype, (5, 34)).T
    a[5, 3], a[6, 4], b[2, 4] = np.nan, np.inf, -np.inf
    assert bits(gm.matmul(a, b, accuracy=grade, engine=engine)) == bits(gm.matmul(a, b, accuracy=grade, engine=OTHER))
    x, y = a[::-2, ::3], b[::3, ::-1]
    assert bits(gm.matmul(x, y, accuracy=grade, engine=engine)) == bits(gm.matmul(x, y, accuracy=grade, engine=OTHER))


@pytest.mark.parametrize(("dtype", "n"), [(np.float64, 54), (np.float32, 11)])
@pytest.mark.parametrize("fused", [True, False])
def test_fixed_bits_of_tensors(dtype: Any, n: int, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read by the host; NaN, infinities and signs of zeros are decided by the kernel."""
    rng, engine = np.random.default_rng(7), TritonEngine("triton", "cpu", fused=fused)
    a, b = hostile(rng, dtype, (70, 34)), hostile(rng, dtype, (9, 34)).T
    a[5, 3], a[6, 4:7], a[8, 2], b[2, 4], b[3, 6] = np.nan, np.inf, -np.inf, -np.inf, 0.0
    a[9], a[10], b[:, 7] = 0.0, -0.0, -np.abs(b[:, 7])
    want = gm.matmul(a, b, accuracy=gm.Bits(n), engine=OTHER)
    whole = torch.zeros(140, 12, dtype=torch.from_numpy(want).dtype)
    out = whole[::2, 1:10]
    with monkeypatch.context() as patch:
        refuse_reads(patch)
        with pytest.raises(AssertionError, match=r"gemmulate.* reads a tensor"):
            gm.matmul(torch.from_numpy(a), torch.from_numpy(b), accuracy="fast", engine="torch")
        gm.matmul(torch.from_numpy(a), torch.from_numpy(b), accuracy=gm.Bits(n), out=out, engine=engine)
    assert bits(out) == bits(want)
    assert np.isnan(want).any()
    assert (np.signbit(want) & (want == 0)).any()
    assert not whole[1::2].any()
    assert not whole[:, [0, 10, 11]].any()


def test_on_another_device_it_stays_triton() -> None:
    """Only its device is another: "cpu:0" is not "cpu", as "cuda:0" is not "cuda"."""
    engine = on_device(get_engine("triton"), torch.device("cpu", 0))
    assert isinstance(engine, TritonEngine)
    assert engine.library.device == torch.device("cpu", 0)
    assert engine is on_device(get_engine("triton"), torch.device("cpu", 0))  # prepared operands are those of one


def test_the_first_trial_runs_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = set()
    of_engine = ("deconstruct", "fused_floats", "fused_words", "residue_gemm", "recombine_floats", "recombine_words")
    of_resident = ("deconstruct_chosen", "digits_chosen_by", "recombine_chosen", "exact_dots_where")
    for where, names in ((module, (*of_engine, "settle")), (resident, of_resident)):
        for name in names:
            kernel = getattr(where, name)

            def run(*arguments: Any, name: str = name, kernel: Any = kernel, **options: Any) -> Any:
                ran.add(name)
                return kernel(*arguments, **options)

            monkeypatch.setattr(where, name, run)
    kinds = ("float64 Bits(54)", "float64 fast", "deep float64 Bits(54)", "int64", "deep int64")
    some = [trial for trial in trusted._trials() if trial[0] in kinds]  # the others take the interpreter long
    assert len(some) == len(kinds)
    monkeypatch.setattr(trusted, "_trials", lambda: iter(some))
    trusted.trusted_engine.cache_clear()
    assert trusted.trusted_engine("cpu", ("triton",)) == "triton"
    trusted.trusted_engine.cache_clear()
    assert len(ran) == 11


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 0, 2), (0, 4, 2), (2, 300, 1)])
def test_shapes(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(4)
    m, k, n = shape
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    assert bits(gm.matmul(a, b, engine="triton")) == bits(gm.matmul(a, b, engine=OTHER))


def test_integers() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-(2**62), 2**62, (6, 9)), rng.integers(-(2**20), 2**20, (9, 11))
    exact = a.astype(object) @ b.astype(object)
    assert (gm.matmul(a.astype(object), b.astype(object), engine="triton") == exact).all()
    wrapped = gm.matmul(a, b, overflow="wrap", engine="triton")
    assert (wrapped == a @ b).all()
    p = 2**61 - 1
    assert (gm.matmul(a, b, modulus=p, engine="triton") == exact % p).all()


def test_availability_names_the_way_out() -> None:
    for name, formats in (("triton", ("int8",)), ("triton-bf16", ("bf16",)), ("triton-fp8", ("fp8_e4m3",))):
        record = next(r for r in gm.engines() if r.name == name)
        assert record.available
        assert (record.device, record.formats) == ("cpu", formats)
        assert "interpreter" in record.reason
