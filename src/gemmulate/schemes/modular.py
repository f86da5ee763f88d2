"""Products modulo p: operands reduced to the least magnitudes, residues, and one reduction of each exact result."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np

from gemmulate.engines.base import Array, Engine
from gemmulate.schemes.integers import IntegerChoice, choose_for_ranges, multiply_integers

LARGEST_MODULUS = 1 << 63


def as_modulus(modulus: Any) -> int:
    """The modulus as a Python int; TypeError or ValueError where it is none in 2 … 2^63."""
    if type(modulus) is not int and (isinstance(modulus, (bool, np.bool_)) or not isinstance(modulus, SupportsIndex)):
        raise TypeError(f"modulus = {modulus!r} is not an integer; give one in 2 … 2^63")
    p = operator.index(modulus)
    if not 2 <= p <= LARGEST_MODULUS:
        raise ValueError(f"modulus = {p} is not in 2 … 2^63; reduce an exact product of Python ints instead")
    return p


def reduce_operand(engine: Engine, x: Array, p: int) -> Array:
    """x mod p with the least magnitudes, |r| ≤ p/2, as an integer matrix: half the window for each operand."""
    if x.dtype == object:
        reduced = x % p
        return np.where(2 * reduced > p, reduced - p, reduced).astype(np.int64)
    low, high = engine.integer_range(x)
    if max(-low, high) <= p // 2:
        return x
    return engine.centred(x, p)


def choose_modular(engine: Engine, a: Array, bt: Array, p: int) -> tuple[Array, Array, IntegerChoice]:
    """Both operands reduced, and the cheapest exact product of what is left."""
    a, bt = reduce_operand(engine, a, p), reduce_operand(engine, bt, p)
    return a, bt, choose_for_ranges(engine.integer_range(a), engine.integer_range(bt), a.shape[1])


def multiply_modular(engine: Engine, a: Array, bt: Array, p: int, out: Array) -> None:
    """Write the product of a (m, k) and bt (n, k) mod p, in [0, p), to out (int64)."""
    a, bt, choice = choose_modular(engine, a, bt, p)
    multiply_integers(engine, a, bt, choice, out, p)
