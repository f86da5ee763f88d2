"""Products of another framework's arrays by torch's engines, in the memory where they are. Not run on a GPU.

Of frameworks that have no engine of their own on a device, or a slower one: where torch is installed and sees the
device, arrays change hands by DLPack (`engines/torch_exchange.py`), and operands are not copied.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from gemmulate.engines.base import Engine
from gemmulate.errors import EngineUnavailable

_TORCH_ENGINES = ("torch-cuda", "triton")


def takes_exchange(engine: str | Engine | None, options: dict[str, Any]) -> bool:
    """Whether torch's engines are to multiply: by default, or by their names. Python ints are the host's."""
    named = isinstance(engine, str) and engine.startswith(_TORCH_ENGINES)
    return (engine is None or named) and options["overflow"] != "object" and find_spec("torch") is not None


def multiply_exchanged(
    a: Any, b: Any, out: Any, engine: Any, from_dlpack: Callable[[Any], Any], *, wait: bool = False, **options: Any
) -> Any:
    """The product, as `from_dlpack` of the framework makes its arrays; `out`, written, where that is given.

    wait: the host waits for the product, for frameworks whose stream does not. None where torch sees no device or an
    array is none that it takes, and where none of its engines runs and none was named.
    """
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
    if wait:
        torch_exchange.wait_for(result)
    # Of out as well: its framework's stream is to wait for the product.
    exchanged = torch_exchange.given_back(result, from_dlpack)
    return exchanged if out is None else out
