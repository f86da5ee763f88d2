"""IEEE formats as integers: what the kernels have to know of a float type."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class FloatLayout:
    """A binary interchange format: stored fraction bits, exponent bits, and the integer type of the same size."""

    fraction_bits: int
    exponent_bits: int
    carrier: torch.dtype

    @property
    def least(self) -> int:
        """Exponent of the least subnormal number: 2 − 2^(exponent_bits − 1) − fraction_bits."""
        return 2 - (1 << (self.exponent_bits - 1)) - self.fraction_bits


LAYOUTS = {
    torch.float64: FloatLayout(52, 11, torch.int64),
    torch.float32: FloatLayout(23, 8, torch.int32),
    torch.float16: FloatLayout(10, 5, torch.int16),
    torch.bfloat16: FloatLayout(7, 8, torch.int16),
}


def layout_of(dtype: torch.dtype) -> FloatLayout:
    """The layout of `dtype`; TypeError where it is no binary float that the kernels read and write."""
    if dtype not in LAYOUTS:
        names = ", ".join(str(known) for known in LAYOUTS)
        raise TypeError(f"dtype = {dtype} has no float layout here; use one of {names}")
    return LAYOUTS[dtype]
