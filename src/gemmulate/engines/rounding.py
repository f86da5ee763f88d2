"""One rounding of an exact binary rational to an IEEE format, in Python integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Significand bits and the exponent of the least subnormal.
_IEEE = {np.dtype(np.float64): (53, -1074), np.dtype(np.float32): (24, -149)}


def round_to_float(value: int, exponent: int, dtype: np.dtype[Any]) -> float:
    """value · 2^exponent rounded to nearest even in `dtype`, subnormal results and overflow to ±inf as IEEE 754."""
    digits, least = _IEEE[np.dtype(dtype)]
    mag = abs(value)
    shift = max(mag.bit_length() - digits, least - exponent)
    if shift > 0:
        half = 1 << (shift - 1)
        rest = mag & (2 * half - 1)
        mag >>= shift
        mag += rest > half or (rest == half and mag & 1)
        exponent += shift
    largest = (2**digits - 1) << (1024 - 53 if digits == 53 else 128 - 24)
    if mag and (mag.bit_length() + exponent > 1100 or (exponent > 0 and mag << exponent > largest)):
        result = math.inf
    else:
        result = math.ldexp(mag, exponent)
    return -result if value < 0 else result
