"""Operands that try a float product, and its bits: for tests of Triton's engines on any planes."""

import sys
from typing import Any

import numpy as np
import pytest
import torch


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


def refuse_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of tensors come to the host for Triton's interpreter alone, not for our own code."""
    readers = (
        "item",
        "tolist",
        "numpy",
        "cpu",
        "nonzero",
        "__int__",
        "__float__",
        "__bool__",
        "__index__",
        "__array__",
    )
    for name in readers:
        read = getattr(torch.Tensor, name)

        def checked(self: Any, *arguments: Any, name: str = name, read: Any = read, **options: Any) -> Any:
            caller = str(sys._getframe(1).f_globals["__name__"])
            assert not caller.startswith("gemmulate"), f"{caller} reads a tensor by {name}"
            return read(self, *arguments, **options)

        monkeypatch.setattr(torch.Tensor, name, checked)
