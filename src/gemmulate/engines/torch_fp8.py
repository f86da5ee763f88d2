"""INT8 products by FP8 units, for devices whose INT8 is slow: torch._scaled_mm on float8_e4m3fn with unit scales.

x = 16 h + l with |h|, |l| ≤ 8, and s = h + l: all integers that E4M3 holds (|v| ≤ 16 exactly). Three products give

    x y = 256 h h' + 16 (s s' − h h' − l l') + l l'      (Karatsuba and Ofman 1962)

Every partial sum is an integer of at most 256 · depth: exact to the depth of the accumulator. Run on the CPU, whose
sums are FP32. Not run on a GPU. The units of Hopper and Ada keep 13 fraction bits when they align FP8 products, those
of Blackwell 25, enough for FP32 sums below 2^24 (Xie, Wang, Yang, Yang 2025, "MMA-Sim", arXiv 2511.10909, and its
source; for Hopper also DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.array_library import INT32_DEPTH, ProductRules, Tensor
from gemmulate.engines.torch import TorchLibrary, capability_of
from gemmulate.engines.torch_array import to_device
from gemmulate.formats import accumulator as accumulator_called
from gemmulate.formats.alphabet import Alphabet

# torch._scaled_mm on CUDA takes depths and columns that are multiples of 16.
_MULTIPLE = 16
_PLANES = Alphabet(tuple(range(-16, 17)))  # of h, l and s


def fp8_depth(accumulator: str) -> int:
    """The largest multiple of 16 to which sums of the planes' products are exact in `accumulator` (gm.formats)."""
    deepest = min(accumulator_called(accumulator).max_depth(_PLANES, _PLANES), INT32_DEPTH)
    return deepest // _MULTIPLE * _MULTIPLE


def fp8_accumulator(capability: int | None) -> str:
    """What a device sums FP8 products in, by compute capability (90 for 9.0; None: the processor)."""
    return "fp32" if capability is None or capability >= 100 else "fp8_13bit"


class Fp8Library(TorchLibrary):
    """Tensors on one device; INT8 products as three products of FP8 planes."""

    def __init__(self, device: str = "cpu", accumulator: str | None = None) -> None:
        name = accumulator or fp8_accumulator(capability_of(torch.device(device)))
        super().__init__(device, ProductRules(least_depth=_MULTIPLE, multiple=_MULTIPLE, depth=fp8_depth(name)))
        self._one = to_device(np.ones((), dtype=np.float32), self.device)

    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        (high_a, low_a), (high_b, low_b) = high_and_low(a), high_and_low(b)
        high, low = self._multiply(high_a, high_b), self._multiply(low_a, low_b)
        cross = self._multiply(high_a + low_a, high_b + low_b) - high - low
        return 256 * high + 16 * cross + low

    def _multiply(self, x: Tensor, y: Tensor) -> Tensor:
        planes = [v.to(torch.float8_e4m3fn).contiguous() for v in (x, y)]
        sums = torch._scaled_mm(
            planes[0], planes[1].T, scale_a=self._one, scale_b=self._one, out_dtype=torch.float32, use_fast_accum=False
        )
        if isinstance(sums, tuple):  # PyTorch 2.4 gives the largest magnitude as well
            sums = sums[0]
        return sums.to(torch.int32)


def high_and_low(x: Tensor) -> tuple[Tensor, Tensor]:
    """h and l in [−8, 8] with x = 16 h + l."""
    wide = x.to(torch.int16)
    high = (wide + 8) >> 4
    return high.to(torch.int8), (wide - 16 * high).to(torch.int8)


@lru_cache(maxsize=64)
def fp8_engine(name: str, device: str) -> ArrayEngine:
    """The array engine whose products run on FP8 planes."""
    return ArrayEngine(name, Fp8Library(device))
