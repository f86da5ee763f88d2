"""Operands that try a float product, and its bits: for tests of Triton's engines on any planes."""

from typing import Any

import numpy as np


def bits(x: Any) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def hostile(rng: np.random.Generator, dtype: Any, shape: tuple[int, int]) -> Any:
    info = np.finfo(dtype)
    x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 30, shape)).astype(dtype)
    x[0, 1::2], x[1, : shape[1] // 2] = -x[0, ::2][: shape[1] // 2], 0.0
    x[1, 0], x[2, 0] = -0.0, info.smallest_subnormal
    x[3] *= dtype(info.smallest_normal)
    x[4] = dtype(info.max) / 4
    return x
