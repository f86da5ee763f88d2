"""Occupancy: does a block launch, how many fit on an SM, and which resource says no more.

Registers belong to the four sub-partitions of an SM. At launch the hardware checks registers per warp times the warps
rounded up to four against the whole file, so ten warps pay for twelve.
"""

import operator
from typing import Final

import msgspec

from gemmulate.screen.architecture import (
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_CTA,
    NAMED_BARRIERS_PER_CTA,
    PARTITIONS,
    REGISTER_UNIT,
    REGISTERS_PER_SM,
    WARP_SIZE,
    Architecture,
    architecture,
)

# Order in which a tie is named: what a kernel's author can change first.
LIMITS: Final = ("registers", "shared", "warps", "ctas", "barriers")


class Occupancy(msgspec.Struct, frozen=True):
    """Resident CTAs per SM and what bounds them.

    `limits` maps each resource to the CTAs it admits, `limiter` names the smallest (`limiters` all that tie),
    `max_registers` is the largest register count per thread with which a block of this size launches, whatever the
    shared memory. `arithmetic` spells out the launch check.
    """

    arch: str
    threads: int
    registers: int
    shared: int
    ctas_per_sm: int
    limiter: str
    max_registers: int
    launchable: bool
    warps_per_cta: int
    registers_per_warp: int
    allocated_shared: int
    limits: dict[str, int]
    limiters: list[str]
    resident_warps: int
    theoretical_occupancy: float
    arithmetic: str


def occupancy(
    arch: str, *, threads: int, registers: int, shared: int = 0, barriers: int = 1, carveout: int | None = None
) -> Occupancy:
    """Occupancy of a kernel on one SM.

    threads per block (1…1024), registers per thread (1…255), shared: static + dynamic bytes per block without the
    system's reserve, barriers: named barriers per block (0…16), carveout: bytes of shared memory configured on the
    SM (default: all of it). Exact integer rules, no hardware needed. Raises ValueError outside these ranges and
    TypeError for what is no integer. Source:
    CUDA C++ Programming Guide 13.0 and cuda_occupancy.h 13.5. Says nothing about clusters.

    >>> occupancy("9.0", threads=320, registers=176).ctas_per_sm
    0
    >>> occupancy("9.0", threads=320, registers=176).max_registers
    168
    """
    sm = architecture(arch)
    threads, registers = _whole("threads", threads), _whole("registers", registers)
    shared, barriers = _whole("shared", shared), _whole("barriers", barriers)
    carveout = None if carveout is None else _whole("carveout", carveout)
    _in_range("threads", threads, 1, MAX_THREADS_PER_CTA, "per block")
    _in_range("registers", registers, 1, MAX_REGISTERS_PER_THREAD, "per thread")
    _in_range("barriers", barriers, 0, NAMED_BARRIERS_PER_CTA, "per block")
    if shared < 0:
        raise ValueError(f"shared = {shared} bytes per block is negative; give 0 or more")
    sm_shared = sm.shared_per_sm if carveout is None else carveout
    _in_range("carveout", sm_shared, 0, sm.shared_per_sm, f"bytes per SM on {sm.name}")

    warps = -(-threads // WARP_SIZE)
    per_warp = registers_per_warp(registers)
    assumed = per_warp * _round_up(warps, PARTITIONS)
    allocated = _round_up(shared + sm.reserved_shared, sm.shared_unit)
    by_registers = 0
    if assumed <= REGISTERS_PER_SM:
        by_registers = REGISTERS_PER_SM // PARTITIONS // per_warp * PARTITIONS // warps
    limits = {
        "registers": by_registers,
        "shared": _by_shared(sm, shared, allocated, sm_shared),
        "warps": sm.max_warps // warps,
        "barriers": sm.barriers_per_sm // barriers if barriers and sm.barriers_per_sm else sm.max_ctas,
        "ctas": sm.max_ctas,
    }
    ctas = min(limits.values())
    limiters = [name for name in LIMITS if limits[name] == ctas]
    sign = "≤" if assumed <= REGISTERS_PER_SM else ">"
    return Occupancy(
        arch=sm.name,
        threads=threads,
        registers=registers,
        shared=shared,
        ctas_per_sm=ctas,
        limiter=limiters[0],
        max_registers=register_ceiling(threads),
        launchable=ctas > 0,
        warps_per_cta=warps,
        registers_per_warp=per_warp,
        allocated_shared=allocated,
        limits=limits,
        limiters=limiters,
        resident_warps=ctas * warps,
        theoretical_occupancy=ctas * warps / sm.max_warps,
        arithmetic=(
            f"ceil(32·{registers}/{REGISTER_UNIT})·{REGISTER_UNIT} = {per_warp:,} registers per warp × "
            f"{_round_up(warps, PARTITIONS)} warps ({warps} rounded up to a multiple of {PARTITIONS}) = {assumed:,} "
            f"{sign} {REGISTERS_PER_SM:,}"
        ),
    )


def registers_per_warp(registers: int) -> int:
    """Registers that a warp of threads with `registers` each takes from the file: a multiple of 256.

    >>> registers_per_warp(176)
    5632
    """
    return _round_up(WARP_SIZE * registers, REGISTER_UNIT)


def register_ceiling(threads: int) -> int:
    """The largest register count per thread with which a block of `threads` (1…1024) launches.

    >>> [register_ceiling(threads) for threads in (256, 320, 512, 640, 768, 896, 1024)]
    [255, 168, 128, 96, 80, 72, 64]
    """
    warps = _round_up(-(-threads // WARP_SIZE), PARTITIONS)
    per_warp = REGISTERS_PER_SM // warps // REGISTER_UNIT * REGISTER_UNIT
    return min(MAX_REGISTERS_PER_THREAD, per_warp // WARP_SIZE)


def _by_shared(sm: Architecture, shared: int, allocated: int, sm_shared: int) -> int:
    if shared > sm.shared_per_cta:
        return 0
    return sm_shared // allocated if allocated else sm.max_ctas


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _whole(name: str, value: int) -> int:
    """NumPy's integers count as integers; 320.5 threads would only give half a warp."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r} is no integer; give a whole number") from None


def _in_range(name: str, value: int, low: int, high: int, what: str) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} = {value} {what} is outside {low}…{high}; give a value in that range")
