"""Engines triton-bf16 and triton-fp8: the bits of the native (or reference) engine, and no INT8 product on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from triton_inputs import bits, hostile

import gemmulate as gm
from gemmulate.engines.triton import engine as module

OTHER = "native" if next(r for r in gm.engines() if r.name == "native").available else "reference"
NAMES = ["triton-bf16", "triton-fp8"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("grade", ["fp64", "exact"])
def test_other_planes_give_the_same_bits(name: str, grade: Any) -> None:
    rng = np.random.default_rng(6)
    a, b = hostile(rng, np.float64, (7, 34)), hostile(rng, np.float64, (5, 34)).T
    a[5, 3], a[6, 4], b[2, 4] = np.nan, np.inf, -np.inf
    assert bits(gm.matmul(a, b, accuracy=grade, engine=name)) == bits(gm.matmul(a, b, accuracy=grade, engine=OTHER))


@pytest.mark.parametrize("name", NAMES)
def test_other_planes_multiply_integers_and_pairs(name: str) -> None:
    """Through residues, limbs of them, single bytes and pairs: none of it leaves the planes' format."""
    rng = np.random.default_rng(7)
    a, b = rng.integers(-(2**62), 2**62, (6, 9)), rng.integers(-(2**20), 2**20, (9, 11))
    exact = a.astype(object) @ b.astype(object)
    assert (gm.matmul(a.astype(object), b.astype(object), engine=name) == exact).all()
    assert (gm.matmul(a, b, overflow="wrap", engine=name) == a @ b).all()
    assert (gm.matmul(a, b, modulus=2**61 - 1, engine=name) == exact % (2**61 - 1)).all()
    i, j = a.astype(np.int8), b.astype(np.int8)
    assert (gm.matmul(i, j, engine=name) == i.astype(np.int64) @ j.astype(np.int64)).all()
    pairs = [gm.DoubleDouble(x, x * 2.0**-55) for x in (rng.standard_normal((4, 20)), rng.standard_normal((20, 3)))]
    got, want = gm.matmul(*pairs, engine=name), gm.matmul(*pairs, engine=OTHER)
    assert bits(got.hi) + bits(got.lo) == bits(want.hi) + bits(want.lo)


@pytest.mark.parametrize(("name", "plane_format"), [("triton-bf16", "bfloat16"), ("triton-fp8", "fp8_e4m3")])
def test_no_int8_product_is_left(name: str, plane_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither torch's nor a kernel on INT8 planes: such a device is slow at both."""
    formats = set()
    for kernel in ("residue_gemm", "plane_sums"):
        multiply = getattr(module, kernel)

        def run(a: Any, b: Any, last: Any, *, multiply: Any = multiply) -> Any:
            formats.add(last if isinstance(last, str) else str(a.dtype))
            return multiply(a, b, last)

        monkeypatch.setattr(module, kernel, run)
    monkeypatch.setattr(torch, "_int_mm", None)
    monkeypatch.setattr(module, "fused_floats", None)
    x = np.random.default_rng(8).standard_normal((70, 66))
    gm.matmul(x, x.T, engine=name)
    planes = {"bfloat16": "torch.bfloat16", "fp8_e4m3": "torch.float8_e4m3fn"}[plane_format]
    assert formats == {plane_format, planes}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 0, 2), (0, 4, 2), (2, 300, 1)])
def test_shapes_of_other_planes(name: str, shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(4)
    m, k, n = shape
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    assert bits(gm.matmul(a, b, engine=name)) == bits(gm.matmul(a, b, engine=OTHER))
