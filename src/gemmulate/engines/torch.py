"""PyTorch as the array engine's library: INT8 products by torch._int_mm, all else by tensor operations.

CUDA needs m > 16 and k, n multiples of 8 of an INT8 product. Zeros fill up to 32 rows and multiples of 16, which reach
cuBLAS's fastest kernels and none of the sizes at which some devices have had none (PyTorch issues 169956, 178469). Not
run on a GPU: the shape rules are tested on the CPU. FP8 products are not used. On a processor whose _int_mm is not
exact, INT8 products run as float64 ones, some eight times slower (1,024³, AVX-512, one measurement). Sums of float64
that are exact in any order are asked of torch.matmul: leave cuBLAS's own emulation of FP64, which is off unless asked
for, off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.array_library import INT32_DEPTH, Library, ProductRules, Tensor
from gemmulate.engines.base import Engine
from gemmulate.engines.frameworks import framework_engine
from gemmulate.engines.torch_array import TorchArray, capturing, empty, to_device

# On the processor, PyTorch 2.13 reads beyond its operands where k = 1 and n > 1.
CPU_RULES = ProductRules(least_depth=2)
CUDA_RULES = ProductRules(least_rows=32, least_depth=16, multiple=16, depth=INT32_DEPTH // 16 * 16)
# Bytes: what the widest loads of a GPU ask for.
_ALIGNMENT = 16

Result = TypeVar("Result")

# Of the memory, while a product runs again that had too little: of its own thread alone, libraries are all threads'.
_SHARE: ContextVar[float] = ContextVar("share", default=1.0)

_DTYPES = {
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float64": torch.float64,
}


def _with_index(device: torch.device) -> torch.device:
    """A tensor says on which CUDA device it is, so that "cuda" would equal none: here it is the current one."""
    bare = device.type == "cuda" and device.index is None
    return torch.device("cuda", torch.cuda.current_device()) if bare else device


def device_name(device: torch.device) -> str:
    """What a CUDA device calls itself."""
    return str(torch.cuda.get_device_name(device))


def capability_of(device: torch.device) -> int | None:
    """Compute capability of a CUDA device, 90 for 9.0; None for the processor."""
    if device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@lru_cache(maxsize=1)
def _int_mm_is_exact() -> bool:
    """Whether torch._int_mm on this processor multiplies the extremes exactly, in shapes of several kernels.

    oneDNN's kernels for processors without VNNI add pairs of products in 16 bits, which saturates.
    """
    for m, k, n in ((1, 64, 7), (32, 256, 32), (130, 1000, 129)):
        a, b = (torch.full((v, k), -128, dtype=torch.int8) for v in (m, n))
        a[1::2] = 127
        b[1::3] = 127
        try:
            got = torch._int_mm(a, b.T)
        except (RuntimeError, AttributeError):
            return False
        want = k * a[:, :1].to(torch.int64) * b[:, 0].to(torch.int64)
        if not torch.equal(got.to(torch.int64), want):
            return False
    return True


class TorchLibrary(Library):
    """Tensors on one device. The number of threads is torch's (`torch.set_num_threads`), for all its callers."""

    xp = torch
    arrays = TorchArray

    def __init__(self, device: str = "cpu", rules: ProductRules | None = None) -> None:
        self.device = _with_index(torch.device(device))
        if self.device.type == "cuda" and capturing():
            raise RuntimeError(
                f"no product has run on {self.device} yet with this engine, and none can while a CUDA graph is "
                "captured; multiply once before the capture"
            )
        self._free = 0  # bytes, when last asked
        on_host = self.device.type == "cpu"
        # On a processor temporaries are to stay in its caches; a GPU wants work for all of its cores.
        # For each entry a GPU holds some 16 temporaries of 16 moduli, 8 bytes each: a quarter of what is free.
        self.block = 1 << 15 if on_host else max(1 << 15, min(1 << 23, self.memory() // 4 // 2048))
        self.panel = None if on_host else (4096, 4096)
        self.rules = rules or (CPU_RULES if on_host else CUDA_RULES)
        self._integer = not on_host or _int_mm_is_exact()

    def memory(self) -> int:
        if self.device.type != "cuda":
            return super().memory()
        if not capturing():
            # What torch keeps for later allocations is free, too.
            kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            self._free = int(torch.cuda.mem_get_info(self.device)[0]) + int(kept)
        return int(self._free * _SHARE.get())

    def temporary(self, most: int) -> int:
        """As memory was last asked for: once for a product."""
        free = int(self._free * _SHARE.get()) if self.device.type == "cuda" else self.memory()
        return min(most, free // 16)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> TorchArray:
        return empty(shape, dtype, self.device)

    def device_array(self, x: npt.NDArray[Any]) -> TorchArray:
        return self.wrap(to_device(x, self.device))

    def wrap(self, x: Tensor) -> TorchArray:
        return TorchArray(x)

    def load(self, x: npt.NDArray[Any] | TorchArray) -> Tensor:
        if isinstance(x, TorchArray):
            return x.tensor.to(self.device)
        return to_device(x, self.device)

    def to_numpy(self, x: Tensor) -> npt.NDArray[Any]:
        return np.asarray(x.cpu().numpy())

    def astype(self, x: Tensor, dtype: str) -> Tensor:
        return x.to(_DTYPES[dtype])

    def bitcast(self, x: Tensor, dtype: str) -> Tensor:
        return x.view(_DTYPES[dtype])

    def amax(self, x: Tensor, axis: int) -> Tensor:
        return torch.amax(x, dim=axis)

    def amin(self, x: Tensor, axis: int) -> Tensor:
        return torch.amin(x, dim=axis)

    def argwhere(self, x: Tensor) -> npt.NDArray[np.int64]:
        return self.to_numpy(torch.nonzero(x))

    def bincount(self, x: Tensor, bins: int) -> npt.NDArray[np.int64]:
        return self.to_numpy(torch.bincount(x.reshape(-1), minlength=bins))

    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        if self._integer:
            return torch._int_mm(self._aligned(a), self._aligned(b).T)
        return torch.matmul(a.to(torch.float64), b.to(torch.float64).T).to(torch.int64)

    def _aligned(self, x: Tensor) -> Tensor:
        """Contiguous, and on a device from an address that cuBLASLt's kernels take: a plane's may be none.

        torch lets cuBLASLt choose the kernel by its defaults, which take addresses for multiples of 256.
        """
        x = x.contiguous()
        return x.clone() if self.device.type != "cpu" and x.storage_offset() % _ALIGNMENT else x

    def pad(self, x: Tensor, rows: int, columns: int) -> Tensor:
        return torch.nn.functional.pad(x, (0, columns, 0, rows))


_SHARES = (1.0, 1 / 4, 1 / 16)


@contextmanager
def _planned_for(share: float) -> Iterator[None]:
    """Within it products of this thread are planned for a share of the memory that is free."""
    token = _SHARE.set(share)
    try:
        yield
    finally:
        _SHARE.reset(token)


def _lacks_memory(error: RuntimeError) -> bool:
    """Whether the device had no memory: for a tensor, or beside torch's allocator for code, stacks or cuBLAS.

    Triton and CUDA's lazy loading of torch's own kernels say "out of memory" in a RuntimeError.
    """
    text = str(error)
    return (
        isinstance(error, torch.OutOfMemoryError)
        or "CUDA error: out of memory" in text
        or "Triton Error [CUDA]: out of memory" in text
        or "CUBLAS_STATUS_ALLOC_FAILED" in text
    )


def in_memory(engine: Engine, product: Callable[[], Result]) -> Result:
    """The product; where the device runs out of memory, once more in smaller blocks. MemoryError where that fails too.

    What is free may lie in pieces, or another process may take it meanwhile. `product` may be called several times.
    """
    library = getattr(engine, "library", None)
    if not isinstance(library, TorchLibrary):
        return product()
    lacking = ""
    for share in _SHARES:
        try:
            with _planned_for(share):
                return product()
        except RuntimeError as error:
            if not _lacks_memory(error):
                raise
            lacking = str(error)
        except MemoryError:
            if not lacking:
                raise
            break  # not one block of the product fits that share
        if capturing():
            break
        # After the handler: the error's frames hold the tensors of the product that failed.
        torch.cuda.empty_cache()
    raise MemoryError(
        f"the product does not fit the memory of {library.device} beside what is there already; free some, "
        f'split the operands, or pass engine="native" ({lacking})'
    )


@lru_cache(maxsize=64)
def torch_engine(name: str, device: str) -> ArrayEngine:
    """The array engine on tensors of a torch device."""
    return ArrayEngine(name, TorchLibrary(device))


def on_device(engine: Engine, device: torch.device) -> Engine:
    """The engine for tensors of exactly this device, by its name's own maker; TypeError where it is for others."""
    library = getattr(engine, "library", None)
    if not isinstance(library, TorchLibrary) or library.device.type != device.type:
        kind = library.device.type if isinstance(library, TorchLibrary) else "other frameworks"
        raise TypeError(
            f"engine = {engine.name!r} takes tensors of {kind}, a is on {device}; move them, or leave engine out"
        )
    return engine if library.device == device else framework_engine(engine.name, str(device))
