"""IEEE formats as integers: what the kernels have to know of a float type."""

from __future__ import annotations

from typing import NamedTuple

import torch

from gemmulate.engines.rounding import FLOAT_FORMATS


class FloatLayout(NamedTuple):
    """A binary interchange format: stored fraction bits, exponent bits, and the integer type of the same size."""

    fraction_bits: int
    exponent_bits: int
    carrier: torch.dtype


_CARRIERS = {16: torch.int16, 32: torch.int32, 64: torch.int64}


def layout_of(name: str) -> FloatLayout:
    """The layout of float64, float32, float16 or bfloat16; TypeError for another name."""
    if name not in FLOAT_FORMATS:
        raise TypeError(f"dtype = {name} has no float layout here; use one of {', '.join(FLOAT_FORMATS)}")
    form = FLOAT_FORMATS[name]
    exponent_bits = (form.largest + 1).bit_length()  # largest = 2^(exponent_bits − 1) − 1
    return FloatLayout(form.digits - 1, exponent_bits, _CARRIERS[form.digits + exponent_bits])
