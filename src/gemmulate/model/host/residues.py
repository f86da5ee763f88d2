"""Residue kernels without matrix shape, by NumPy and SciPy: sparse matrix-vector product and 7-point stencil.

Operands are scaled by one power of two to integers of 53 bits, taken apart modulo r moduli, multiplied modulo each,
and put together by the CRT: everything is an exact float64 integer up to one rounding at the end, so the error is that
of the scaling: normwise, at most N·2^-52·max|a|·max|x| for N products in a sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmulate.blas import finite_matmul
from gemmulate.engines.residue_system import LIMB_BITS, ResidueSystem, residue_system, symmetric

Floats = npt.NDArray[np.float64]

BITS = 53
_SPLIT = 27  # hi and lo parts of 27 bits: a part times a residue stays far below 2^53


@dataclass(frozen=True)
class Integers:
    """x = integers · 2^exponent, |integers| ≤ 2^53."""

    high: Floats
    low: Floats
    exponent: int


def system_for(terms: int) -> ResidueSystem:
    """Moduli that cover sums of `terms` products of 53-bit integers."""
    system = residue_system(terms << (2 * BITS))
    assert system is not None  # 2^53 terms still fit: the moduli below 257 cover over 300 bits
    return system


def to_integers(x: Floats) -> Integers:
    """Scale by a power of two and round to integers of 53 bits, in two parts."""
    largest = float(np.abs(x).max(initial=0.0))
    exponent = (math.frexp(largest)[1] if largest else 0) - BITS
    scaled = np.rint(np.ldexp(x, -exponent))
    high = np.rint(scaled * 2.0**-_SPLIT)
    return Integers(high, scaled - high * 2.0**_SPLIT, exponent)


def residue(x: Integers, system: ResidueSystem, index: int, *, left: bool) -> Floats:
    """Symmetric residues mod m_index, on the left times the CRT's inverse; |·| ≤ 129: float quotients may miss."""
    m = system.moduli[index]
    weight = system.inverses[index] if left else 1
    value = x.high * symmetric((weight << _SPLIT) % m, m)
    value += x.low * symmetric(weight, m)
    return reduce(value, m)


def reduce(value: Floats, m: int) -> Floats:
    """Subtract the nearest multiple of m, in place."""
    value -= np.rint(value * (1.0 / m)) * m
    return value


def recombine(digits: Floats, system: ResidueSystem, exponent: int) -> Floats:
    """Σ_l digits_l·P/m_l mod P, symmetric, times 2^exponent; digits of shape (r, N), |·| ≤ 129."""
    quotient = np.rint(finite_matmul(1.0 / np.array(system.moduli, dtype=np.float64), digits))
    # Exact: 15 · 2^8 · 2^40 < 2^53.
    limbs = finite_matmul(system.weights, digits) - np.outer(system.product_limbs, quotient)
    total = np.zeros(digits.shape[1])
    for power in reversed(range(len(limbs))):
        total += np.ldexp(limbs[power], LIMB_BITS * power)
    return np.ldexp(total, exponent)


def spmv(matrix: Any, x: Floats, system: ResidueSystem) -> Floats:
    """CSR matrix times vector by residues: r sparse products of small integers."""
    values, vector = to_integers(matrix.data), to_integers(x)
    plane = matrix.copy()
    digits = np.empty((len(system.moduli), matrix.shape[0]))
    for index in range(len(system.moduli)):
        digits[index] = spmv_modulo(plane, values, vector, system, index)
    return recombine(digits, system, values.exponent + vector.exponent)


def spmv_modulo(plane: Any, values: Integers, vector: Integers, system: ResidueSystem, index: int) -> Floats:
    """One modulus of `spmv`: both operands taken apart, one sparse product (in `plane`'s pattern), one reduction."""
    plane.data = residue(values, system, index, left=True)
    return reduce(plane @ residue(vector, system, index, left=False), system.moduli[index])


def stencil7_modulo(points: Integers, coefficients: Integers, system: ResidueSystem, index: int) -> Floats:
    """One modulus of `stencil7`."""
    c = residue(coefficients, system, index, left=True)
    return reduce(apply7(residue(points, system, index, left=False), c[0], c[1]), system.moduli[index])


def stencil7(grid: Floats, centre: float, side: float, system: ResidueSystem) -> Floats:
    """centre·u + side·(sum of six neighbours) on the inner points of a cube, by residues."""
    coefficients, points = to_integers(np.array([centre, side])), to_integers(grid)
    digits = np.empty((len(system.moduli), math.prod(n - 2 for n in grid.shape)))
    for index in range(len(system.moduli)):
        digits[index] = stencil7_modulo(points, coefficients, system, index).ravel()
    return recombine(digits, system, coefficients.exponent + points.exponent).reshape([n - 2 for n in grid.shape])


def apply7(u: Floats, centre: float, side: float) -> Floats:
    """The stencil in float64: 2 multiplications and 6 additions a point."""
    total = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1]
    total += u[1:-1, 2:, 1:-1]
    total += u[1:-1, :-2, 1:-1]
    total += u[1:-1, 1:-1, 2:]
    total += u[1:-1, 1:-1, :-2]
    total *= side
    total += centre * u[1:-1, 1:-1, 1:-1]
    return total
