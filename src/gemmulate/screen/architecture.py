"""Per-SM limits of NVIDIA architectures, as the occupancy rules need them.

Source: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability", and cuda_occupancy.h of
CUDA 13.5.
"""

import re
from typing import Final

import msgspec

WARP_SIZE: Final = 32
MAX_THREADS_PER_CTA: Final = 1024
MAX_REGISTERS_PER_THREAD: Final = 255
REGISTERS_PER_SM: Final = 65536
PARTITIONS: Final = 4
# Registers are handed to a warp in units of 256, eight per thread.
REGISTER_UNIT: Final = 256
NAMED_BARRIERS_PER_CTA: Final = 16
KIB: Final = 1024


class Architecture(msgspec.Struct, frozen=True):
    """Limits of one compute capability; shared sizes in bytes."""

    name: str
    max_warps: int
    max_ctas: int
    shared_per_sm: int
    shared_per_cta: int
    # 0: named barriers do not bound residency (before Hopper).
    barriers_per_sm: int
    reserved_shared: int = KIB
    shared_unit: int = 128
    # setmaxnreg moves registers between warps of one CTA; PTX ISA 8.0 (sm_90a), 8.6 (sm_100a, sm_120a), 8.7 (sm_121a).
    setmaxnreg: str = ""


def _arch(name: str, warps: int, ctas: int, shared_kib: int, barriers: int, setmaxnreg: str = "") -> Architecture:
    # The largest CTA may ask for all shared memory but the 1 KiB that the system keeps.
    return Architecture(name, warps, ctas, shared_kib * KIB, (shared_kib - 1) * KIB, barriers, setmaxnreg=setmaxnreg)


ARCHITECTURES: Final[dict[str, Architecture]] = {
    arch.name: arch
    for arch in (
        # Turing reserves nothing and allots 256 bytes at a time.
        Architecture("7.5", 32, 16, 64 * KIB, 64 * KIB, 0, reserved_shared=0, shared_unit=256),
        _arch("8.0", 64, 32, 164, 0),
        _arch("8.6", 48, 16, 100, 0),
        _arch("8.9", 48, 24, 100, 0),
        _arch("9.0", 64, 32, 228, 64, "sm_90a"),
        _arch("10.0", 64, 32, 228, 64, "sm_100a"),
        # The calculator of CUDA 13.0 to 13.2 gives 10.3 the 64 named barriers of 10.0; from 13.3 on it gives 32.
        _arch("10.3", 64, 32, 228, 32, "sm_103a"),
        _arch("12.0", 48, 24, 100, 24, "sm_120a or sm_120f"),
        _arch("12.1", 48, 24, 100, 24, "sm_121a"),
    )
}

_NAME = re.compile(r"(?:sm_?|compute_?)?(\d{1,2})\.?(\d)[af]?")


def architecture(name: str) -> Architecture:
    """The limits of `name`: "9.0", "90", "sm_90" or "sm_90a".

    Raises ValueError for an architecture that the table lacks, TypeError for a number: 12.10 is 12.1.

    >>> architecture("sm_120a").max_warps
    48
    """
    if not isinstance(name, str):
        raise TypeError(f"arch = {name!r} is no text; give it as '9.0' or 'sm_90a'")
    match = _NAME.fullmatch(name.strip().lower())
    key = f"{match[1]}.{match[2]}" if match else ""
    if key not in ARCHITECTURES:
        raise ValueError(f"arch = {name!r} is not in the table; use one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[key]
