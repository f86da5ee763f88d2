"""Ways to the CRT digits of two operands' residue planes: the same digits, at speeds that differ from device to device.

- "pointers": `residue_gemm`, which takes any planes of any format;
- "descriptors": `described_gemm`, loads by TMA (sm_90 and newer);
- "warpgroups": `warpgroup_gemm`, the same loads, with a product always in flight (Hopper);
- "clusters": the same, two SMs sharing one operand's loads;
- "library": `library_gemm`, cuBLAS and a reduction of its sums.

All but the first take INT8 planes alone, and only where `applies` says so. All but the last multiply as many moduli as
a choice in device memory says, too (`digits_chosen_by`). Every way is exact, so that no bit depends
on which one runs. `gemm_choice` chooses by time.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import torch
import triton

from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.torch import capability_of
from gemmulate.engines.triton.chosen import residue_gemm_chosen
from gemmulate.engines.triton.described_gemm import described_gemm, described_gemm_chosen, described_tile, describes
from gemmulate.engines.triton.library_gemm import has_library_gemm, library_gemm
from gemmulate.engines.triton.residue_gemm import residue_gemm

Way = Literal["pointers", "descriptors", "warpgroups", "clusters", "library"]
WAYS: tuple[Way, ...] = ("pointers", "descriptors", "warpgroups", "clusters", "library")
READ_A_CHOICE = WAYS[:-1]  # the launches of "library" are as many as the moduli, which the host has to know
_ON_HOPPER: dict[Way, int] = {"warpgroups": 1, "clusters": 2}  # SMs of a program
_GLUON_OF_3_9 = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 9)


def has_gluon() -> bool:
    """Whether Triton's Gluon has what Hopper's kernels are written in: 3.7 has no such loads, 3.8 no clusters.

    It compiles and is not interpreted.
    """
    return _GLUON_OF_3_9


def ways_of(device: torch.device) -> tuple[Way, ...]:
    """The ways that a device has, for some planes, in the order of `WAYS`. Triton's interpreter: all but Hopper's."""
    capability = capability_of(device)
    on_hopper = capability == 90 and has_gluon() and not triton.knobs.runtime.interpret
    has: dict[Way, bool] = dict.fromkeys(_ON_HOPPER, on_hopper)
    has["descriptors"] = described_tile(capability) is not None
    return tuple(way for way in WAYS if has.get(way, True))


def applies(way: Way, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether a way takes the planes a (moduli, m, depth) and b (moduli, n, depth), which `residue_gemm` takes.

    Raises ValueError for a way that there is not.
    """
    if way not in WAYS:
        raise ValueError(f"way = {way!r} is unknown; use one of {', '.join(WAYS)}")
    if way == "pointers":
        return True
    if way not in ways_of(a.device) or not a.dtype == b.dtype == torch.int8 or a.ndim != 3 or b.ndim != 3:
        return False
    if way == "library":
        return has_library_gemm(a, b)
    if way in _ON_HOPPER:
        return bool(_warpgroup_gemm().has_warpgroup_gemm(a, b))
    tile = described_tile(capability_of(a.device))
    return tile is not None and describes(a, b, tile.block_m, tile.block_n)


def digits_by(way: Way, a: torch.Tensor, b: torch.Tensor, system: ResidueSystem) -> torch.Tensor:
    """`residue_gemm(a, b, system)` by a way that applies; by "pointers" where it does not."""
    if way == "pointers" or not applies(way, a, b):
        return residue_gemm(a, b, system)
    if way == "library":
        return library_gemm(a, b, system)
    if way in _ON_HOPPER:
        digits: torch.Tensor = _warpgroup_gemm().warpgroup_gemm(a, b, system, _ON_HOPPER[way])
        return digits
    return described_gemm(a, b, system)


def digits_chosen_by(way: Way, a: torch.Tensor, b: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
    """`residue_gemm_chosen(a, b, choice)` by a way that applies and can; by "pointers" where it does not."""
    if way == "pointers" or way not in READ_A_CHOICE or not applies(way, a, b):
        return residue_gemm_chosen(a, b, choice)
    if way in _ON_HOPPER:
        digits: torch.Tensor = _warpgroup_gemm().warpgroup_gemm_chosen(a, b, choice, _ON_HOPPER[way])
        return digits
    return described_gemm_chosen(a, b, choice)


def _warpgroup_gemm() -> Any:
    """Gluon is imported for the devices that its kernel is for; it is Triton's experimental part."""
    return import_module("gemmulate.engines.triton.warpgroup_gemm")
