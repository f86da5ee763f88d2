"""Entries modulo p with the least magnitudes, against Python integers."""

import numpy as np
import pytest

from gemmulate.engines import Engine

MODULI = [2, 3, 4, 97, 2**8, 2**31 - 1, 2**31, 2**32 - 5, 2**32, 2**61 - 1, 3 * 2**61, 2**63 - 25, 2**63 - 1, 2**63]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("p", MODULI)
def test_centred(engine: Engine, dtype: str, p: int) -> None:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(p % 1000)
    edges = [info.min, info.max, 0, 1, *(v for v in (p, p - 1, p // 2, p // 2 + 1, 2 * p - 1, -p, -(p // 2)))]
    x = rng.integers(info.min, info.max, (15, 140), dtype=dtype, endpoint=True)
    inside = [v for v in edges if info.min <= v <= info.max]
    x[3, : len(inside)] = inside
    for view in (x, x.T, x[::-2, 1::3]):
        got = engine.centred(view, p)
        assert got.dtype.kind == "i"
        assert got.shape == view.shape
        for value, r in zip(view.ravel().tolist(), got.ravel().tolist(), strict=True):
            assert (value - r) % p == 0
            assert 2 * abs(r) <= p
