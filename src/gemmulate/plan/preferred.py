"""Which engines are tried for tensors of a CUDA device, and in which order, by what its units make of a product."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gemmulate.model.device import catalogue_key, load_device
from gemmulate.model.schemes import SCHEMES

_MODULI: Final = SCHEMES["residues-int8"].r_default
# Engine, unit, and how many products of that unit's time a float64 product takes. BF16 has no rate in the catalogue: on
# NVIDIA's data sheets it is half of FP8's. FP8: three products for one of INT8 (`engines.torch_fp8`).
_COSTS: Final = {
    "triton": ("int8", _MODULI),
    "triton-bf16": ("fp8", 2 * _MODULI),
    "triton-fp8": ("fp8", 3 * _MODULI),
    "torch-cuda": ("int8", _MODULI),
    "torch-cuda-fp8": ("fp8", 3 * _MODULI),
    "torch-cuda-fp4": ("fp4", SCHEMES["residues-fp4"].products(SCHEMES["residues-fp4"].r_default)),
}


@lru_cache(maxsize=64)
def preferred_engines(name: str) -> tuple[str, ...]:
    """Engines for the device that calls itself `name`, by its rates in the catalogue.

    Triton's come before torch's, whose conversions take many passes; among either the one whose products take least
    time, and none that takes longer than INT8. A device without rates: INT8.

    >>> preferred_engines("NVIDIA H200"), preferred_engines("NVIDIA B300 SXM6 AC")[0]
    (('triton', 'torch-cuda'), 'triton-bf16')
    """
    key = catalogue_key(name)
    rates = load_device(key).nominal() if key else None
    if rates is None or not rates.int8:
        return "triton", "torch-cuda"

    def time(engine: str) -> float:
        unit, products = _COSTS[engine]
        rate: float | None = getattr(rates, unit)
        return products / rate if rate else float("inf")

    worth = [engine for engine in _COSTS if time(engine) <= time("triton")]
    return tuple(sorted(worth, key=lambda engine: (not engine.startswith("triton"), time(engine))))
