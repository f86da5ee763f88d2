"""Does a projected candidate launch, and does it reach the residency it assumes?

Uniform kernels follow the occupancy rules. Role-weighted registers start uniform and are moved between whole groups of
four warps by setmaxnreg. A cluster needs a placement that no rule on paper can promise.
"""

import msgspec

from gemmulate.screen.architecture import MAX_REGISTERS_PER_THREAD, PARTITIONS, WARP_SIZE, architecture
from gemmulate.screen.compiled import CompiledFunction
from gemmulate.screen.residency import Occupancy, occupancy, register_ceiling, registers_per_warp
from gemmulate.screen.spec import Candidate


class Launch(msgspec.Struct, frozen=True):
    """`launchable` is None when paper cannot tell; `text` is the arithmetic or the reason."""

    launchable: bool | None
    occupancy: Occupancy | None
    text: str


def launch(candidate: Candidate, arch: str, compiled: CompiledFunction | None = None) -> Launch:
    """The launch check of a candidate at the upper end of its registers and shared memory.

    Compiled registers take the place of projected ones; shared memory is the larger of the projection, which counts
    dynamic memory, and the compiled static part. Raises ValueError when its figures lie outside what a block can have.
    """
    if candidate.threads is None or not arch:
        return Launch(None, None, "no block size or no GPU architecture given: occupancy does not apply")
    threads = int(candidate.threads.one("thread"))
    registers = launch_registers(candidate, threads)
    if compiled is not None and compiled.registers is not None:
        registers = compiled.registers
    if registers is None:
        return Launch(None, None, "no register count given")
    if registers > MAX_REGISTERS_PER_THREAD:
        return Launch(False, None, f"{registers} registers per thread exceed {MAX_REGISTERS_PER_THREAD}")
    shared = round(candidate.shared.to("byte")[1]) if candidate.shared is not None else 0
    if compiled is not None and compiled.shared_bytes is not None:
        shared = max(shared, compiled.shared_bytes)
    result = occupancy(arch, threads=threads, registers=registers, shared=shared)
    if not result.launchable:
        return Launch(False, result, _why_not(result))
    problem = _role_problem(candidate, arch, threads)
    if problem:
        return Launch(False, result, problem)
    if candidate.cluster and not candidate.cluster_verified:
        return Launch(
            None,
            result,
            "cluster residency is unverified: registers and shared memory would fit one SM "
            f"({result.arithmetic}), the placement of the pair has to be asked of the device "
            "(cudaOccupancyMaxActiveClusters)",
        )
    return Launch(True, result, result.arithmetic)


def launch_registers(candidate: Candidate, threads: int) -> int | None:
    """Registers per thread at launch: the uniform count, or the CTA's total spread over its threads in units of 8."""
    if candidate.registers is not None:
        return int(candidate.registers.one("register/thread"))
    if candidate.registers_per_cta is None:
        return None
    unit = registers_per_warp(1) // WARP_SIZE
    return -(-int(candidate.registers_per_cta.to("register")[1]) // (threads * unit)) * unit


def _why_not(result: Occupancy) -> str:
    if result.limits["registers"] == 0:
        return (
            f"{result.threads} threads × {result.registers} registers do not launch: {result.arithmetic}; "
            f"the compiler caps a {result.threads}-thread block at {register_ceiling(result.threads)}"
        )
    sm = architecture(result.arch)
    if result.limits["shared"] == 0:
        return f"{result.shared:,} bytes of shared memory exceed {sm.shared_per_cta:,} per CTA on {sm.name}"
    return f"{result.limiter} admit no CTA on {sm.name}"


def _role_problem(candidate: Candidate, arch: str, threads: int) -> str:
    if candidate.allocation != "role-weighted":
        return ""
    if not architecture(arch).setmaxnreg:
        return f"role-weighted registers need setmaxnreg, which {arch} lacks"
    if threads % (WARP_SIZE * PARTITIONS):
        return (
            f"role-weighted registers need whole groups of {PARTITIONS} warps; "
            f"{threads} threads are {threads / WARP_SIZE:g} warps"
        )
    return ""
