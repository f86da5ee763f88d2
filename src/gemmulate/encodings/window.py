"""Windows: how large an exact sum of products can become, a priori and for given matrices."""

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
# Unit roundoff of float64; every bound below is multiplied by (1 + 2^-20), which covers (k + 8)·u for k <= 2^31.
_LARGEST_K = 1 << 31


def check_bits(bits: int) -> int:
    """bits as an integer in 1 … 2,000, ValueError otherwise."""
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer) or not 1 <= bits <= 2000:
        raise ValueError(f"bits = {bits!r}: the significand bits of each operand are an integer in 1 … 2000")
    return int(bits)


def check_k(k: int) -> int:
    """k as an integer in 1 … 2^31, ValueError otherwise."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= _LARGEST_K:
        raise ValueError(f"k = {k!r}: the inner dimension is an integer in 1 … 2^31; split k beyond")
    return int(k)


def a_priori(bits: int, k: int) -> int:
    """2·k·2^(2·bits): the product of the moduli must exceed it whatever k pairs of |a|, |b| ≤ 2^bits are.

    >>> a_priori(53, 16384).bit_length() - 1
    121
    """
    return 2 * check_k(k) << 2 * check_bits(bits)


def of_matrices(a: Array, b: Array, bits: int) -> int:
    """2·max_ij Σ_p |a'_ip|·|b'_pj| bounded above for a (m, k), b (k, n) scaled to `bits`-bit integers.

    Rows of a float a and columns of a float b are scaled by powers of two so that their largest magnitude is below
    2^bits, and rounded; integers stay as they are. The bound is the smaller of Cauchy–Schwarz and one product of
    magnitudes rounded up to 20 bits, both rounded outward, and never above `a_priori` for floats. Invariant under
    scaling floats by powers of two. Raises ValueError for NaN, infinities, shapes and dtypes.

    >>> of_matrices(np.ones((2, 4)), np.ones((4, 3)), 8) >= 2 * 4 * 128 * 128
    True
    """
    bits = check_bits(bits)
    left, right = np.asarray(a), np.asarray(b)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ValueError(f"a has shape {left.shape} and b {right.shape}: give (m, k) and (k, n)")
    k = left.shape[1]
    if 0 in (left.shape[0], k, right.shape[1]):
        return a_priori(bits, max(k, 1))
    rows, unit_left = _magnitudes(left, bits)
    columns, unit_right = _magnitudes(right.T, bits)
    norms = [np.sqrt((x * x).sum(axis=1)) for x in (rows, columns)]
    cauchy = float(norms[0].max()) * float(norms[1].max())
    # Magnitudes in [0, 1] rounded up to multiples of 2^-20: sums of k products stay below 2^53 units for k <= 2^13,
    # and float64 rounding beyond is covered by the outward factor.
    product = float((np.ceil(rows * 2.0**20) @ np.ceil(columns.T * 2.0**20)).max()) * 2.0**-40
    mantissa, exponent = math.frexp(min(cauchy, product) * (1 + 2.0**-20))
    shift = unit_left + unit_right + exponent - 53
    units = math.ceil(mantissa * 2.0**53)
    whole = units << shift if shift >= 0 else -(-units >> -shift)
    if left.dtype.kind != "f" and right.dtype.kind != "f":
        return int(2 * whole + 1)
    # Rounding an operand moves each magnitude by at most half a unit.
    bound = 2 * (whole + k * ((1 << unit_left) + (1 << unit_right) + 1))
    return int(min(2 * k << unit_left + unit_right, bound))


def _magnitudes(x: Array, bits: int) -> tuple[Array, int]:
    """|x| as float64 in [0, 1] in units of 2^-u, and u: bits for rows of floats, one common exponent for integers."""
    if x.dtype.kind not in "fiub":
        raise ValueError(f"dtype {x.dtype}: windows are computed for real float and integer matrices")
    if x.dtype.kind != "f":
        # |int| may not fit its own dtype; float64 rounds it, which the outward factor covers.
        values = np.abs(x.astype(np.float64))
        unit = max(0, int(np.frexp(values.max())[1]))
        return np.ldexp(values, -unit), unit
    values = np.abs(x.astype(np.float64))
    if not np.isfinite(values).all():
        raise ValueError("a NaN or an infinity in the matrix: windows are computed for finite numbers")
    _, exponents = np.frexp(values.max(axis=1))
    # Twice a half shift: one shift by up to 1074 + 1024 would overflow float64's own range.
    half = -exponents // 2
    return np.asarray(np.ldexp(np.ldexp(values, half[:, None]), (-exponents - half)[:, None])), bits
