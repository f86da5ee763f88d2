"""PyTorch as the array engine's library: INT8 products by torch._int_mm, all else by tensor operations.

CUDA needs m > 16 and k, n multiples of 8 of an INT8 product; zeros fill what is missing. Not run on a GPU: the shape
rules are tested on the CPU. FP8 products are not used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.array_library import Library, ProductRules, Tensor

# On the processor, PyTorch 2.13 reads beyond its operands where k = 1 and n > 1.
CPU_RULES = ProductRules(least_depth=2)
CUDA_RULES = ProductRules(least_rows=17, least_depth=8, multiple=8)

_DTYPES = {
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float64": torch.float64,
}


@lru_cache(maxsize=1)
def _int_mm_is_exact() -> bool:
    """Whether torch._int_mm on this processor multiplies the extremes exactly.

    Kernels for processors without VNNI may add pairs of products in 16 bits, which saturates.
    """
    depth, sizes = 256, (-128, 127)
    a = torch.tensor(sizes, dtype=torch.int8).repeat_interleave(16)[:, None].repeat(1, depth)
    try:
        got = torch._int_mm(a, a.T)
    except (RuntimeError, AttributeError):
        return False
    wide = a[:, :1].to(torch.int64)
    return bool((got.to(torch.int64) == depth * wide * wide.T).all())


class TorchLibrary(Library):
    """Tensors on one device. The number of threads is torch's (`torch.set_num_threads`), for all its callers."""

    xp = torch

    def __init__(self, device: str = "cpu", rules: ProductRules | None = None) -> None:
        self.device = torch.device(device)
        on_host = self.device.type == "cpu"
        # On a processor temporaries are to stay in its caches; a GPU wants work for all of its cores.
        self.block = 1 << 17 if on_host else 1 << 23
        self.rules = rules or (CPU_RULES if on_host else CUDA_RULES)
        self._integer = not on_host or _int_mm_is_exact()

    def load(self, x: npt.NDArray[Any]) -> Tensor:
        # Torch shares memory that may be written and whose strides are not negative.
        if not x.flags.writeable or any(s < 0 or s % x.itemsize for s in x.strides):
            x = x.copy()
        return torch.from_numpy(x).to(self.device)

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
            return torch._int_mm(a.contiguous(), b.contiguous().T)
        return torch.matmul(a.to(torch.float64), b.to(torch.float64).T).to(torch.int64)

    def pad(self, x: Tensor, rows: int, columns: int) -> Tensor:
        return torch.nn.functional.pad(x, (0, columns, 0, rows))


def torch_engine(name: str, device: str) -> ArrayEngine:
    """The array engine on tensors of a torch device."""
    return ArrayEngine(name, TorchLibrary(device))
