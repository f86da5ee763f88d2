"""Operands of the benchmarks: random, never zeros, of stated widths."""

from __future__ import annotations

from typing import Any

import numpy as np

import gemmulate as gm

# The largest primes below 2^63, 2^31, 2^26, 2^16 and 2^8.
PRIMES = {63: 2**63 - 25, 31: 2**31 - 1, 26: 2**26 - 5, 16: 2**16 - 15, 8: 2**8 - 5}


def integers(rng: np.random.Generator, bits: int, n: int, dtype: Any = np.int64) -> Any:
    """n × n two's complement integers of `bits` bits, uniform."""
    return rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (n, n), dtype=np.int64).astype(dtype)


def fitting(rng: np.random.Generator, bits: int, n: int, dtype: Any = np.int64) -> tuple[Any, Any]:
    """Two n × n matrices with entries of `bits` bits, as wide as they are dense, whose product needs one bit more.

    Each is half wide and half a selection of signs, [W S] and [S; W]: every element of the product is the sum of one
    entry of either wide half, so that it fits although widths and depth alone would not prove it.
    """
    half = n // 2
    a, b = integers(rng, bits, n, dtype), integers(rng, bits, n, dtype)
    a[:, half:] = 0
    b[:half] = 0
    a[np.arange(n), rng.integers(half, n, n)] = rng.choice([-1, 1], n)
    if half:
        b[rng.integers(0, half, n), np.arange(n)] = rng.choice([-1, 1], n)
    return a, b


def residues(rng: np.random.Generator, modulus: int, n: int) -> Any:
    """n × n residues in [0, modulus) as int64."""
    return rng.integers(0, modulus, (n, n), dtype=np.int64)


def normal_pairs(rng: np.random.Generator, n: int) -> gm.DoubleDouble:
    """n × n Gaussian numbers of some 107 bits."""
    hi = rng.standard_normal((n, n))
    return gm.DoubleDouble(hi, hi * rng.uniform(-1, 1, (n, n)) * 2.0**-54)
