"""Projected against compiled: registers, spills, shared memory and occupancy of one candidate side by side."""

import msgspec

from gemmulate.screen.architecture import architecture
from gemmulate.screen.compiled import CompiledFunction
from gemmulate.screen.launch import Launch, launch_registers
from gemmulate.screen.spec import Candidate


class Reconciled(msgspec.Struct, frozen=True):
    """One item: what was projected, what the compiler gave, and whether the projection holds (None: cannot tell)."""

    item: str
    projected: str
    compiled: str
    holds: bool | None


def same_architecture(compiled: CompiledFunction, arch: str) -> bool:
    """Whether a kernel was compiled for the architecture screened; True when either is unknown."""
    if not compiled.arch or not arch:
        return True
    try:
        return architecture(compiled.arch).name == arch
    except ValueError:
        return False


def reconcile(
    candidate: Candidate, compiled: CompiledFunction, arch: str, on_paper: Launch, as_compiled: Launch
) -> list[Reconciled]:
    """Rows for registers, spills, static shared memory and resident CTAs; one for an architecture that differs."""
    rows = []
    if not same_architecture(compiled, arch):
        rows.append(Reconciled("architecture", arch, compiled.arch, False))
    threads = None if candidate.threads is None else int(candidate.threads.one("thread"))
    projected = None if threads is None else launch_registers(candidate, threads)
    if compiled.registers is not None:
        rows.append(_row("registers per thread", projected, compiled.registers))
    spilled = [bytes_ for bytes_ in (compiled.spill_store_bytes, compiled.spill_load_bytes) if bytes_ is not None]
    if spilled:
        rows.append(_row("spill bytes", 0, max(spilled)))
    else:
        stack = f"not stated; stack {compiled.stack_bytes} bytes"
        rows.append(Reconciled("spill bytes", "0", stack, None if compiled.stack_bytes else True))
    if compiled.shared_bytes is not None:
        shared = None if candidate.shared is None else round(candidate.shared.to("byte")[1])
        rows.append(_row("static shared bytes", shared, compiled.shared_bytes))
    if on_paper.occupancy is not None and as_compiled.occupancy is not None:
        before, after = on_paper.occupancy.ctas_per_sm, as_compiled.occupancy.ctas_per_sm
        rows.append(Reconciled("resident CTAs per SM", str(before), str(after), after >= before))
    return rows


def _row(item: str, projected: int | None, compiled: int) -> Reconciled:
    text = "not given" if projected is None else str(projected)
    return Reconciled(item, text, str(compiled), None if projected is None else compiled <= projected)
