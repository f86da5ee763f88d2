"""Small products of plain matrices: one call of the engine in place of a plan, whose parts would take longer.

The bits, types and errors are those of the general way, which every product takes that this one leaves: other operands
than two NumPy matrices of one kind, `out`, engines without such calls, and results that may not fit.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from gemmulate.engines.base import Array, Engine
from gemmulate.schemes.accuracy import Bits, Grade
from gemmulate.schemes.floats import SMALL_PRODUCT
from gemmulate.schemes.modular import as_modulus

LARGEST = SMALL_PRODUCT  # of m · k · n

_INT64, _UINT64, _BOOL = np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.bool_)
_INTEGERS = [_BOOL, *map(np.dtype, "bhilqBHILQ")]


class _Kind(NamedTuple):
    """What is known of two dtypes."""

    integers: bool
    exact: np.dtype[Any]  # of the exact result
    wrapped: np.dtype[Any] | None  # of NumPy's; None: there is none, or not one by truncation


def _integer_kind(a: np.dtype[Any], b: np.dtype[Any]) -> _Kind:
    wrapped = np.result_type(a, b)
    unsigned = "u" in (a.kind, b.kind) and "i" not in (a.kind, b.kind)
    return _Kind(True, _UINT64 if unsigned else _INT64, wrapped if wrapped.kind in "iu" else None)


# By native dtypes: those of another byte order equal none of them.
_KINDS = {(a, b): _integer_kind(a, b) for a, b in product(_INTEGERS, repeat=2)}
_KINDS.update({(t, t): _Kind(False, t, None) for t in (np.dtype(np.float64), np.dtype(np.float32))})


def multiply_small(
    engine: Engine, a: Any, b: Any, grade: Grade | Bits, modulus: int | None, overflow: str
) -> Array | None:
    """The product `gm.matmul(a, b, …)` of checked options, or None where it takes the general way."""
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    dtypes = a.dtype, b.dtype
    kind = _KINDS.get(dtypes)
    if kind is None or a.ndim != 2 or b.ndim != 2:
        return None
    (m, k), (depth, n) = a.shape, b.shape
    if k != depth or not 0 < m * k * n <= LARGEST or not (a.flags.aligned and b.flags.aligned):
        return None
    if not kind.integers:
        if modulus is not None or isinstance(grade, Bits):
            return None
        result = np.empty((m, n), kind.exact)
        return result if engine.exact_product(a, b.T, result) else None
    if _BOOL in dtypes:
        a, b = (x.view(np.uint8) if x.dtype == _BOOL else x for x in (a, b))
    if modulus is not None:
        result = np.empty((m, n), _INT64)
        return result if engine.exact_integer_product(a, b.T, result, modulus=as_modulus(modulus)) else None
    if overflow == "raise":
        result = np.empty((m, n), kind.exact)
        return result if engine.exact_integer_product(a, b.T, result) else None
    if overflow == "wrap" and kind.wrapped is not None:
        result = np.empty((m, n), kind.wrapped)
        return result if engine.exact_integer_product(a, b.T, result, wrap=True) else None
    return None
