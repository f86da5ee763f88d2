"""The screen: a design note in, a verdict per candidate with its reasons and the evidence still owed out."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gemmulate.quantity import Quantity
from gemmulate.screen.compiled import CompiledFunction
from gemmulate.screen.findings import Finding, find
from gemmulate.screen.gates import FAIL, UNKNOWN, GateResult, evaluate
from gemmulate.screen.latency import (
    CLOSE,
    FLOOR_SOURCES,
    Interval,
    Sensitivity,
    breakeven_handoff_ms,
    claimed_low_ms,
    floors_ms,
    lower_bounds_ms,
    project,
    recoverable_share,
    sensitivity,
)
from gemmulate.screen.launch import launch
from gemmulate.screen.measured import Measured
from gemmulate.screen.reconcile import Reconciled, reconcile, same_architecture
from gemmulate.screen.residency import Occupancy
from gemmulate.screen.scenarios import Ceiling, Scenario, ceilings, scenario_results
from gemmulate.screen.spec import EVIDENCE, Candidate, Spec, load_spec


class CandidateResult(msgspec.Struct, frozen=True):
    """One candidate: its interval in ms, launch check, gates, verdict.

    `verdict` is rejected, undecided or advanced; `state` is how far it has come: projected, compiled, correct,
    measured, advanced or rejected. `launchable` is None when paper cannot tell.
    """

    verdict: str
    state: str
    reasons: list[str]
    launchable: bool | None
    launch: str
    mainloop_ms: Interval
    complete_ms: Interval
    feasible_mainloop_ms: Interval | None
    corners_ms: dict[str, float]
    speedup: dict[str, Interval]
    lower_bounds_ms: dict[str, float]
    breakeven_handoff_ms: dict[str, Interval]
    sensitivity: list[Sensitivity]
    gates: list[GateResult]
    evidence_owed: dict[str, str]
    occupancy: Occupancy | None
    reconciled: list[Reconciled]


class ScreenResult(msgspec.Struct, frozen=True):
    """Everything a screen says; times in ms unless the name says seconds."""

    file: str
    title: str
    arch: str
    baseline_boundary: str
    boundaries: dict[str, Quantity]
    baseline_ms: float
    preparation_ms: float | None
    floors_ms: dict[str, float]
    floor_sources: dict[str, str]
    recoverable_share: float | None
    gate_limits_ms: dict[str, float]
    speedup_ceilings: dict[str, Ceiling]
    candidates: dict[str, CandidateResult]
    scenarios: list[Scenario]
    findings: list[Finding]


def screen(
    spec: Spec | str | Path,
    compiled: Mapping[str, CompiledFunction] | None = None,
    measured: Mapping[str, Measured] | None = None,
) -> ScreenResult:
    """Screen a design note, a Spec or the path of its TOML file.

    compiled maps candidate names to what the compiler said about their kernels, measured to paired comparisons with
    the baseline. Runs nothing and needs no GPU; all times come from the note's own figures. Raises SpecError for a spec
    that breaks a rule, ValueError for evidence about an unknown candidate.
    """
    if not isinstance(spec, Spec):
        spec = load_spec(spec)
    compiled, measured = compiled or {}, measured or {}
    for name in (*compiled, *measured):
        if name not in spec.candidates:
            raise ValueError(f"candidate {name!r} is unknown; {spec.file} has {', '.join(spec.candidates)}")
    results = {
        name: _candidate(spec, candidate, compiled.get(name), measured.get(name))
        for name, candidate in spec.candidates.items()
    }
    scenarios, limits = scenario_results(spec), ceilings(spec)
    floors = floors_ms(spec.baseline)
    return ScreenResult(
        file=spec.file,
        title=spec.title,
        arch=spec.arch,
        baseline_boundary=spec.baseline.boundary,
        boundaries=spec.boundaries,
        baseline_ms=spec.baseline.time.one("ms"),
        preparation_ms=_parts_ms(spec),
        floors_ms=floors,
        floor_sources={name: FLOOR_SOURCES[name] for name in floors},
        recoverable_share=recoverable_share(spec.baseline),
        gate_limits_ms=_gate_limits_ms(spec),
        speedup_ceilings=limits,
        candidates=results,
        scenarios=scenarios,
        findings=find(spec, results, scenarios, limits),
    )


def _parts_ms(spec: Spec) -> float | None:
    if spec.preparation is None or not spec.preparation.parts:
        return None
    return sum(part.one("ms") for part in spec.preparation.parts.values())


def _gate_limits_ms(spec: Spec) -> dict[str, float]:
    return {gate.name: gate.limit.one("ms") for gate in spec.gates if gate.kind == "mainloop" and gate.limit}


def _candidate(
    spec: Spec, candidate: Candidate, compiled: CompiledFunction | None, measured: Measured | None
) -> CandidateResult:
    if measured is not None and measured.outputs.equal and "bytes_equal" not in candidate.evidence:
        candidate = _with_equal_bytes(candidate)
    on_paper = launch(candidate, spec.arch)
    reported = compiled
    if compiled is not None and not same_architecture(compiled, spec.arch):
        compiled = None  # registers and spills of another architecture say nothing about this one
    start = on_paper if compiled is None else launch(candidate, spec.arch, compiled)
    projection = project(candidate, spec.baseline, spec.preparation)
    gates = [
        evaluate(gate, candidate, start, projection, compiled)
        for gate in spec.gates
        if candidate.name in gate.applies_to
    ]
    held = {name for name, holds in candidate.evidence.items() if holds}
    if compiled is not None:
        held.add("registers")
        held.add("resident_ctas")
        if compiled.spill_store_bytes is not None:
            held.add("spills")
    if measured is not None:
        held |= measured.held
    owed = {name: EVIDENCE[name] for name in spec.owed if name not in held}
    reasons = _rejections(candidate, start.launchable, start.text, projection.feasible is None, gates)
    if measured is not None and measured.verdict in ("slower", "same"):
        reasons.append(f"measured {measured.text}")
    verdict = "rejected" if reasons else "advanced"
    if not reasons and (owed or any(gate.outcome == UNKNOWN for gate in gates)):
        verdict = "undecided"
    state = verdict if verdict != "undecided" else _state(held)
    reasons += _projection_problems(candidate, spec, projection.mainloop)
    if measured is not None and measured.verdict in ("faster", "undecided"):
        reasons.append(f"measured {measured.text}")
    if verdict != "rejected":
        reasons += _open_questions(gates, owed)
    targets = {"baseline": spec.baseline.time.one("ms")} | _gate_limits_ms(spec)
    breakeven = {name: breakeven_handoff_ms(candidate, spec.baseline, target) for name, target in targets.items()}
    return CandidateResult(
        verdict=verdict,
        state=state,
        reasons=reasons,
        launchable=start.launchable,
        launch=start.text,
        mainloop_ms=projection.mainloop,
        complete_ms=projection.complete,
        feasible_mainloop_ms=projection.feasible,
        corners_ms=projection.corners,
        speedup=_speedups(spec, projection.mainloop, projection.complete),
        lower_bounds_ms=lower_bounds_ms(candidate, spec.baseline),
        breakeven_handoff_ms={name: ends for name, ends in breakeven.items() if ends is not None},
        sensitivity=sensitivity(candidate, spec.baseline),
        gates=gates,
        evidence_owed=owed,
        occupancy=start.occupancy,
        reconciled=[] if reported is None else reconcile(candidate, reported, spec.arch, on_paper, start),
    )


def _with_equal_bytes(candidate: Candidate) -> Candidate:
    """The candidate with the equality that its comparison saw: both sides gave the same bytes."""
    return msgspec.structs.replace(
        candidate,
        evidence=candidate.evidence | {"bytes_equal": True},
        evidence_source=candidate.evidence_source | {"bytes_equal": "equal outputs in the paired comparison"},
    )


def _speedups(spec: Spec, mainloop: Interval, complete: Interval) -> dict[str, Interval]:
    """The candidate's speed-up against each boundary: the main loop against its own, the complete time elsewhere."""
    result = {}
    for name, time in spec.boundaries.items():
        low, high = mainloop if name == spec.baseline.boundary else complete
        result[name] = (time.one("ms") / high, time.one("ms") / low)
    return result


def _rejections(
    candidate: Candidate, launchable: bool | None, launch_text: str, infeasible: bool, gates: list[GateResult]
) -> list[str]:
    reasons = []
    if launchable is False:
        reasons.append(f"cannot launch: {launch_text}")
    if infeasible:
        reasons.append("below the floor: the whole projected interval is faster than the work allows")
    reasons += [
        f"gate {gate.name!r} fails: {gate.arithmetic}"
        for gate in gates
        if gate.outcome == FAIL and gate.arithmetic != launch_text
    ]
    reasons += [f"evidence {name!r} is negative" for name, holds in candidate.evidence.items() if not holds]
    return reasons


def _projection_problems(candidate: Candidate, spec: Spec, mainloop: Interval) -> list[str]:
    """What is wrong with the promise itself; it has to be corrected, which does not reject the design."""
    reasons = []
    low = claimed_low_ms(candidate, mainloop)
    for name, floor in lower_bounds_ms(candidate, spec.baseline).items():
        if low < floor:
            reasons.append(f"projection too low: {low:g} ms lies below the {name} floor of {floor:.4g} ms")
        elif floor / low > CLOSE:
            reasons.append(f"projection close to a floor: {low:g} ms needs {floor / low:.1%} {name} utilisation")
    cap = recoverable_share(spec.baseline) if candidate.same_tensor_work else None
    if cap is not None and candidate.recovered is not None and candidate.recovered.to("1")[1] > cap:
        reasons.append(
            f"projection too high: recovers up to {candidate.recovered.to('1')[1]:.0%} of the no-eligible region, "
            f"{cap:.1%} can be"
        )
    return reasons


def _open_questions(gates: list[GateResult], owed: dict[str, str]) -> list[str]:
    unknown = [gate.name for gate in gates if gate.outcome == UNKNOWN]
    reasons = [f"gates unknown: {', '.join(unknown)}"] if unknown else []
    if owed:
        reasons.append(f"evidence owed: {', '.join(owed)}")
    return reasons or ["every gate passes and no evidence is owed"]


def _state(held: set[str]) -> str:
    """How far the evidence goes; each state needs the ones before it."""
    state = "projected"
    for reached, needed in (("compiled", "registers"), ("correct", "bytes_equal"), ("measured", "paired_runs")):
        if needed not in held:
            break
        state = reached
    return state
