"""Products of CuPy arrays: the result is a CuPy array, with the bits of NumPy's route. Not run on a GPU.

Where torch sees the device, its engines multiply the arrays there, in CuPy's own memory (DLPack). Else operands go to
the host, where engines take and give arrays; the engine "cupy" has the residues and their products on the device.
Tested with a module that stands for CuPy.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import numpy as np

from gemmulate.engines.base import Engine
from gemmulate.errors import EngineUnavailable
from gemmulate.plan.operands import is_array_of

_TORCH_ENGINES = ("torch-cuda", "triton")


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
    if engine is None or (isinstance(engine, str) and engine.startswith(_TORCH_ENGINES)):
        done = _through_torch(a, b, out, engine, options)
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


def _through_torch(a: Any, b: Any, out: Any, engine: str | None, options: dict[str, Any]) -> Any:
    """The product by torch's engines of the device, or None where torch does not see it or knows a type not."""
    if find_spec("torch") is None or options["overflow"] == "object":
        return None
    from gemmulate.engines import torch_exchange
    from gemmulate.plan.tensors import multiply_tensors

    if not torch_exchange.sees_devices():
        return None
    tensors = torch_exchange.as_tensors(a, b, *(() if out is None else (out,)))
    if tensors is None:
        return None
    target = None if out is None else tensors[2]
    try:
        result = multiply_tensors(tensors[0], tensors[1], target, engine, **options)
    except EngineUnavailable:
        if engine is not None:
            raise
        return None
    # Of out as well: CuPy's stream is to wait for the product.
    exchanged = sys.modules["cupy"].from_dlpack(result)
    return exchanged if out is None else out
