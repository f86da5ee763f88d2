"""Products modulo p: entries reduced while they are packed, digits or residues, and one reduction of each result."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, SupportsIndex

import numpy as np

from gemmulate.engines.base import Array, Engine
from gemmulate.schemes.integers import IntegerChoice, choose_for_ranges, dtype_range, multiply_integers

LARGEST_MODULUS = 1 << 63


def as_modulus(modulus: Any) -> int:
    """The modulus as a Python int; TypeError or ValueError where it is none in 2 … 2^63."""
    if type(modulus) is not int and (isinstance(modulus, (bool, np.bool_)) or not isinstance(modulus, SupportsIndex)):
        raise TypeError(f"modulus = {modulus!r} is not an integer; give one in 2 … 2^63")
    p = operator.index(modulus)
    if not 2 <= p <= LARGEST_MODULUS:
        raise ValueError(f"modulus = {p} is not in 2 … 2^63; reduce an exact product of Python ints instead")
    return p


def reduce_objects(x: Array, p: int) -> Array:
    """Python ints mod p with the least magnitudes, |r| ≤ p/2, as int64."""
    reduced = x % p
    return np.where(2 * reduced > p, reduced - p, reduced).astype(np.int64)


def choose_modular(engine: Engine, a: Array, bt: Array, p: int) -> tuple[Array, Array, IntegerChoice]:
    """Both operands as they are to be packed, and the cheapest exact product of them modulo p.

    Entries may be far from reduced; `choice.modulus` tells the engine to reduce them while it packs them.
    """
    a, bt = (reduce_objects(x, p) if x.dtype == object else x for x in (a, bt))
    k, widest = a.shape[1], (-(p // 2), p // 2)
    digits = engine.digits(p)

    def choose(left: tuple[int, int], right: tuple[int, int]) -> IntegerChoice:
        choice = choose_for_ranges(left, right, k)
        # Of as many products those of digits cost less: cutting digits is cheaper than taking residues.
        return replace(choice, digits=digits) if digits is not None and digits.products <= choice.products else choice

    if not engine.formats:  # planes of narrow formats are the fewer, the less the values span
        if a.itemsize == bt.itemsize == 1:  # one product of the bytes as they are, whatever p
            return a, bt, choose_for_ranges(dtype_range(a), dtype_range(bt), k)
        whole = replace(choose(widest, widest), modulus=p)
        # The values of one vector of each side bound from below what all of them need: mostly that settles it without
        # a survey of the rest.
        if (
            whole.products == 1
            or choose(_sample_range(engine, a, p), _sample_range(engine, bt, p)).products >= whole.products
        ):
            return a, bt, whole
    (a, left), (bt, right) = _narrowed(engine, a, p), _narrowed(engine, bt, p)
    return a, bt, choose(left, right)


def _sample_range(engine: Engine, x: Array, p: int) -> tuple[int, int]:
    """The range of one row of x after reduction."""
    middle = len(x) // 2
    return engine.integer_range(engine.centred(x[middle : middle + 1], p))


def _narrowed(engine: Engine, x: Array, p: int) -> tuple[Array, tuple[int, int]]:
    """x mod p with the least magnitudes, |r| ≤ p/2, and its range."""
    low, high = engine.integer_range(x)
    if max(-low, high) > p // 2:
        x = engine.centred(x, p)
        low, high = engine.integer_range(x)
    return x, (low, high)


def multiply_modular(engine: Engine, a: Array, bt: Array, p: int, out: Array) -> None:
    """Write the product of a (m, k) and bt (n, k) mod p, in [0, p), to out (int64)."""
    a, bt, choice = choose_modular(engine, a, bt, p)
    multiply_integers(engine, a, bt, choice, out, p)
