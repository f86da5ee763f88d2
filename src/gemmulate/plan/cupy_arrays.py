"""Products of CuPy arrays: the result is a CuPy array, with the bits of NumPy's route. Not run on a GPU.

Where torch sees the device, its engines multiply the arrays there, in CuPy's own memory (DLPack). Else operands go to
the host, where engines take and give arrays; the engine "cupy" has the residues and their products on the device.
Tested with a module that stands for CuPy.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gemmulate.engines.base import Engine
from gemmulate.plan.exchanged import multiply_exchanged, takes_exchange
from gemmulate.plan.operands import is_array_of


def is_cupy_array(x: Any) -> bool:
    """Whether x is a CuPy array; CuPy itself is not imported for that."""
    return is_array_of(x, "cupy", "ndarray")


def multiply_cupy(a: Any, b: Any, out: Any, engine: str | Engine | None, **options: Any) -> Any:
    """`matmul(a, b, …)` of CuPy arrays; by the engine "cupy" unless another one is named."""
    from gemmulate.plan.matmul import matmul

    for name, x in (("a", a), ("b", b), ("out", out)):
        if not is_cupy_array(x) and (name != "out" or x is not None):
            raise TypeError(
                f"{name} is a {type(x).__name__}, the other arguments are CuPy arrays: pass CuPy arrays alone "
                "(cupy.asarray) or NumPy arrays alone (array.get())"
            )
    if takes_exchange(engine, options):
        x, y, written = (v if v is None else _forwards(v) for v in (a, b, out))
        done = multiply_exchanged(x, y, written, engine, sys.modules["cupy"].from_dlpack, **options)
        if done is not None and written is not out:
            with out.device:
                out[...] = written
            return out
        if done is not None:
            return done
    target = None if out is None else np.empty(out.shape, dtype=out.dtype)
    result = matmul(a.get(), b.get(), out=target, engine="cupy" if engine is None else engine, **options)
    # CuPy has no Python ints: those stay in a NumPy array, or are one.
    if out is None and (isinstance(result, int) or result.dtype == object):
        return result
    with (a if out is None else out).device:  # otherwise CuPy's current one
        if out is None:
            return sys.modules["cupy"].asarray(result)
        out[...] = sys.modules["cupy"].asarray(target)  # of any strides
        return out


def _forwards(x: Any) -> Any:
    """The array itself, or its copy where a stride is negative, which torch does not have."""
    if all(step >= 0 for step in x.strides):
        return x
    with x.device:  # otherwise CuPy's current one
        return x.copy()
