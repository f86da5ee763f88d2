"""Torch tensors as the schemes read arrays: NumPy's dtypes, views and slices, the data where they are.

Only what schemes and plans ask of a matrix exists here; everything else is an engine's business, which takes
`tensor` out again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gemmulate.engines.base import Array, DeviceArray, dtype_name

_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def numpy_dtype(dtype: torch.dtype, whose: str = "a tensor") -> np.dtype[Any]:
    """NumPy's dtype of the same values; bfloat16 is that of ml_dtypes. TypeError where NumPy has none."""
    name = _NAMES.get(dtype)
    if name is None:
        raise TypeError(f"{whose} has dtype {dtype}, which has no exact product here; pass one of {', '.join(_DTYPES)}")
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"{whose} is bfloat16, which needs ml_dtypes: pip install ml_dtypes, or use float32") from None
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Torch's dtype of the same values."""
    return _DTYPES[dtype_name(np.dtype(dtype))]


class TorchArray(DeviceArray):
    """A tensor behind NumPy's names. Slices, `T`, `reshape` by dimensions of length 1 and `view` share its memory."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    @property
    def size(self) -> int:
        return self.tensor.numel()

    @property
    def dtype(self) -> np.dtype[Any]:
        return numpy_dtype(self.tensor.dtype)

    @property
    def itemsize(self) -> int:
        return self.tensor.element_size()

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def T(self) -> TorchArray:
        return TorchArray(self.tensor.permute(*reversed(range(self.ndim))))

    @property
    def real(self) -> TorchArray:
        return TorchArray(self.tensor.real)

    @property
    def imag(self) -> TorchArray:
        return TorchArray(self.tensor.imag)

    def __len__(self) -> int:
        return len(self.tensor)

    def __neg__(self) -> TorchArray:
        return TorchArray(-self.tensor)

    def __getitem__(self, key: Any) -> TorchArray:
        return TorchArray(self.tensor[self._index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, TorchArray):
            value = value.tensor
        elif isinstance(value, np.ndarray):
            value = as_tensor(value).to(self.tensor.device)
        self.tensor[self._index(key)] = value

    def _index(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return tuple(self._index(part) for part in key)
        return torch.from_numpy(key).to(self.tensor.device) if isinstance(key, np.ndarray) else key

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        host = to_numpy(self.tensor)
        return host if dtype is None else host.astype(dtype, copy=False)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions of arrays that the plans use (NEP 18)."""
        own = _FUNCTIONS.get(function)
        return NotImplemented if own is None else own(*args, **kwargs)

    def astype(self, dtype: Any, copy: bool = True) -> TorchArray:
        return TorchArray(self.tensor.to(torch_dtype(np.dtype(dtype)), copy=copy))

    def reshape(self, *shape: Any) -> TorchArray:
        return TorchArray(self.tensor.reshape(*shape))

    def view(self, dtype: Any) -> TorchArray:
        return TorchArray(self.tensor.view(torch_dtype(np.dtype(dtype))))

    def min(self) -> int:
        return self._extreme("min")

    def max(self, initial: int | None = None) -> int:
        return self._extreme("max") if initial is None or self.size else initial

    def _extreme(self, which: str) -> int:
        """Of integers. Torch has no reductions of unsigned types wider than a byte: those go to the host."""
        unsigned = self.tensor.dtype in (torch.uint16, torch.uint32, torch.uint64)
        return int(getattr(to_numpy(self.tensor) if unsigned else self.tensor, which)())


def _concatenate(parts: Sequence[TorchArray], axis: int = 0) -> TorchArray:
    return TorchArray(torch.cat([part.tensor for part in parts], dim=axis))


def _broadcast_to(x: TorchArray, shape: tuple[int, ...]) -> TorchArray:
    return TorchArray(x.tensor.expand(shape))


def _may_share_memory(x: Any, y: Any) -> bool:
    """Whether both lie in one storage or range of bytes: what DLPack brought has a storage for each tensor."""
    tensors = [z.tensor for z in (x, y) if isinstance(z, TorchArray)]
    if len(tensors) < 2:
        return False
    first, second = (t.untyped_storage() for t in tensors)
    starts = first.data_ptr(), second.data_ptr()
    return starts[0] == starts[1] or (
        starts[0] < starts[1] + second.nbytes() and starts[1] < starts[0] + first.nbytes()
    )


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.concatenate: _concatenate,
    np.broadcast_to: _broadcast_to,
    np.may_share_memory: _may_share_memory,
}


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The values outside any graph, with no conjugation or negation pending."""
    return tensor.detach().resolve_conj().resolve_neg()


def to_numpy(tensor: torch.Tensor) -> Array:
    """The values on the host: without a copy for a tensor of the CPU, whatever its strides."""
    host = plain(tensor).cpu()
    dtype = numpy_dtype(host.dtype)
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(dtype)
    return np.asarray(host.numpy())


def as_tensor(x: Array) -> torch.Tensor:
    """A NumPy array as a tensor of the CPU, without a copy where torch can read its memory."""
    if not x.dtype.isnative or not x.flags.writeable or any(s < 0 or s % x.itemsize for s in x.strides):
        x = np.array(x, dtype=x.dtype.newbyteorder("="))
    if dtype_name(x.dtype) == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def capturing() -> bool:
    """Whether torch's current stream on CUDA is recorded into a graph, where nothing may wait for the device."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())  # type: ignore[no-untyped-call]


def to_device(x: Array, device: torch.device) -> torch.Tensor:
    """A NumPy array as a tensor of the device; of the CPU's without a copy where torch can read its memory.

    RuntimeError within a CUDA graph's capture: the host's memory, which it would read anew, may be another's by then.
    """
    if device.type == "cuda" and capturing():
        raise RuntimeError(
            f"a table of this product is not on {device} yet and can't be copied there while a CUDA graph is captured; "
            "multiply operands of the same shapes and dtypes once before the capture"
        )
    return as_tensor(x).to(device)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], device: torch.device) -> TorchArray:
    """An uninitialised array on the device; MemoryError where it does not fit."""
    try:
        return TorchArray(torch.empty(shape, dtype=torch_dtype(dtype), device=device))
    except torch.cuda.OutOfMemoryError as error:
        size = math.prod(shape) * dtype.itemsize
        raise MemoryError(f"{size / 2**30:.1f} GiB do not fit {device}; split the operands, or free memory") from error
