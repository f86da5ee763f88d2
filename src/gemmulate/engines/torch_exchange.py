"""Arrays of another framework on a CUDA device as torch tensors of the same memory (DLPack).

Each side makes its stream wait for the other's when an array changes hands, so that products of torch's kernels lie
between the other framework's work on its stream as if it had launched them. That is enough for CuPy. JAX names a stream
of its own for what comes in, not the one on which it computes, so that the host has to wait for a product of its arrays
before their memory may be used again. Not run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

# What a framework raises that does not exchange an array: a type, a device or a version that the other does not know.
_REFUSALS = (BufferError, TypeError, ValueError, RuntimeError, AttributeError)


def sees_devices() -> bool:
    """Whether torch has a CUDA device to multiply on."""
    return torch.cuda.is_available()


def as_tensors(*arrays: Any) -> list[torch.Tensor] | None:
    """Tensors of the arrays' memory, or None where one of them cannot be exchanged.

    Torch has no negative strides: of an array with such, it ends the process rather than raise.
    """
    if any(step < 0 for x in arrays for step in getattr(x, "strides", ())):
        return None
    try:
        return [from_dlpack(x) for x in arrays]
    except _REFUSALS:
        return None


def given_back(tensor: torch.Tensor, from_dlpack: Callable[[Any], Any]) -> Any:
    """The tensor as `from_dlpack` of the other framework takes it: torch gives those of its current device alone."""
    with torch.cuda.device_of(tensor):  # type: ignore[no-untyped-call]
        return from_dlpack(tensor)


def wait_for(tensor: torch.Tensor) -> None:
    """Return when torch's current stream on the tensor's device has done its work."""
    if tensor.device.type == "cuda":
        torch.cuda.current_stream(tensor.device).synchronize()
