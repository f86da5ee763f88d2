"""Gates: named conditions that reject a candidate, each pass, fail or unknown with its arithmetic."""

from typing import Final

import msgspec

from gemmulate.screen.compiled import CompiledFunction
from gemmulate.screen.latency import Projection
from gemmulate.screen.launch import Launch
from gemmulate.screen.residency import register_ceiling
from gemmulate.screen.spec import EVIDENCE, Candidate, Gate

PASS: Final = "pass"
FAIL: Final = "fail"
UNKNOWN: Final = "unknown"


class GateResult(msgspec.Struct, frozen=True):
    """`outcome` is pass, fail or unknown; `evidence` is what would settle an unknown."""

    name: str
    outcome: str
    text: str
    arithmetic: str
    evidence: str


def evaluate(
    gate: Gate, candidate: Candidate, launch: Launch, projection: Projection, compiled: CompiledFunction | None
) -> GateResult:
    """The outcome of one gate for one candidate."""
    if gate.kind == "mainloop":
        outcome, arithmetic = _mainloop(gate, projection)
    elif gate.kind == "residency":
        outcome, arithmetic = _residency(candidate, launch)
    elif gate.kind == "registers":
        outcome, arithmetic = _registers(gate, candidate, compiled)
    elif gate.kind == "spills":
        outcome, arithmetic = _spills(gate, compiled)
    else:
        outcome, arithmetic = _declared(gate, candidate)
    return GateResult(gate.name, outcome, gate.text, arithmetic, EVIDENCE[gate.evidence])


def dead_register_gate(gate: Gate, candidate: Candidate) -> str:
    """Why a register gate can never act, or "": its limit lies above what a block of this size can have."""
    if gate.kind != "registers" or gate.limit is None or candidate.threads is None:
        return ""
    threads = int(candidate.threads.one("thread"))
    limit, ceiling = gate.limit.one("register/thread"), register_ceiling(threads)
    if limit < ceiling:
        return ""
    return (
        f"gate {gate.name!r} can never act: a {threads}-thread block has at most {ceiling} registers per thread, "
        f"the gate asks for more than {limit:g}"
    )


def _mainloop(gate: Gate, projection: Projection) -> tuple[str, str]:
    assert gate.limit is not None
    limit = gate.limit.one("ms")
    if projection.feasible is None:
        return FAIL, "no part of the projected interval lies above the floors"
    low = projection.feasible[0]
    verdict = "<" if low < limit else "≥"
    return (PASS if low < limit else FAIL), f"feasible lower bound {low:.4g} ms {verdict} {limit:g} ms"


def _residency(candidate: Candidate, launch: Launch) -> tuple[str, str]:
    if launch.launchable is False:
        return FAIL, launch.text
    if candidate.ctas_per_sm is None or launch.occupancy is None or launch.launchable is None:
        return UNKNOWN, launch.text
    projected, found = int(candidate.ctas_per_sm.one("CTA")), launch.occupancy.ctas_per_sm
    limits = ", ".join(f"{name} {count}" for name, count in launch.occupancy.limits.items())
    text = f"projected {projected} CTA per SM, the limits admit {found} ({limits})"
    return (PASS if found >= projected else FAIL), text


def _registers(gate: Gate, candidate: Candidate, compiled: CompiledFunction | None) -> tuple[str, str]:
    assert gate.limit is not None
    limit = gate.limit.one("register/thread")
    dead = dead_register_gate(gate, candidate)
    if compiled is not None and compiled.registers is not None:
        sign = "≤" if compiled.registers <= limit else ">"
        text = f"compiled {compiled.registers} {sign} {limit:g} registers per thread"
        return (PASS if compiled.registers <= limit else FAIL), f"{text}; {dead}" if dead else text
    return UNKNOWN, dead or "not compiled"


def _spills(gate: Gate, compiled: CompiledFunction | None) -> tuple[str, str]:
    if compiled is None or compiled.spill_store_bytes is None or compiled.spill_load_bytes is None:
        return UNKNOWN, "not compiled" if compiled is None else f"{compiled.source} does not state spills"
    spilled = max(compiled.spill_store_bytes, compiled.spill_load_bytes)
    if gate.limit is None:
        return (PASS, "compiled 0 bytes") if spilled == 0 else (UNKNOWN, f"compiled {spilled} bytes; no limit given")
    limit = gate.limit.one("byte")
    sign = "≤" if spilled <= limit else ">"
    return (PASS if spilled <= limit else FAIL), f"compiled {spilled} bytes {sign} {limit:g} bytes"


def _declared(gate: Gate, candidate: Candidate) -> tuple[str, str]:
    if gate.evidence not in candidate.evidence:
        return UNKNOWN, "no evidence yet"
    holds = candidate.evidence[gate.evidence]
    return (PASS if holds else FAIL), candidate.evidence_source[gate.evidence]
