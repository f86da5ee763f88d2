"""What a screen finds wrong in a note, each with its arithmetic."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from gemmulate.quantity import Quantity, Status
from gemmulate.screen.gates import dead_register_gate
from gemmulate.screen.latency import CLOSE, claimed_low_ms, floors_ms, recoverable_share
from gemmulate.screen.scenarios import Ceiling, Scenario
from gemmulate.screen.spec import Spec
from gemmulate.screen.toml_source import Figure

if TYPE_CHECKING:
    from gemmulate.screen.screening import CandidateResult


class Finding(msgspec.Struct, frozen=True):
    """`kind` is stable for scripts; `subject` is a candidate, a gate or the note."""

    kind: str
    subject: str
    text: str
    arithmetic: str


def find(
    spec: Spec, results: dict[str, "CandidateResult"], scenarios: list[Scenario], ceilings: dict[str, Ceiling]
) -> list[Finding]:
    """All findings, those that reject first."""
    return [
        *_launch(spec, results),
        *_floor(spec, results, scenarios, ceilings),
        *_share(spec),
        *_denominator(spec, results),
        *_spill_gates(spec),
        *_printed(spec, results, scenarios),
    ]


def _launch(spec: Spec, results: dict[str, "CandidateResult"]) -> list[Finding]:
    found = []
    for name, result in results.items():
        if result.launchable is False:
            found.append(Finding("cannot_launch", name, f"{name} cannot launch", result.launch))
        for gate in spec.gates:
            dead = dead_register_gate(gate, spec.candidates[name]) if name in gate.applies_to else ""
            if dead:
                found.append(Finding("dead_gate", gate.name, f"{name}: the gate is void", dead))
    return found


def _floor(
    spec: Spec, results: dict[str, "CandidateResult"], scenarios: list[Scenario], ceilings: dict[str, Ceiling]
) -> list[Finding]:
    floors = floors_ms(spec.baseline)
    if "tensor_pipe" not in floors or spec.baseline.tensor_active is None:
        return []
    floor, t0 = floors["tensor_pipe"], spec.baseline.time.one("ms")
    derivation = f"{t0:g} × {spec.baseline.tensor_active.one('1'):g} = {floor:.4g} ms"
    found = []
    for name, result in results.items():
        if not spec.candidates[name].same_tensor_work:
            continue
        low = claimed_low_ms(spec.candidates[name], result.mainloop_ms)
        if low < floor:
            text = f"{name}: {low:g} ms lies below the tensor-pipe floor of {floor:.4g} ms"
            found.append(Finding("below_floor", name, text, derivation))
        elif floor / low > CLOSE:
            text = f"{name}: {low:g} ms needs {floor / low:.1%} tensor utilisation"
            found.append(Finding("floor_close", name, text, f"{floor:.4g} / {low:g} = {floor / low:.3f}"))
    for ceiling in ceilings.values():
        text = f"speed-up within {ceiling.boundary!r} is at most {ceiling.speedup:.3f}×"
        found.append(Finding("speedup_ceiling", ceiling.boundary, text, ceiling.arithmetic))
    if spec.preparation is not None:
        added = spec.preparation.added.to("ms")[0]
        text = f"complete time is at least {floor + added:.3g} ms"
        found.append(Finding("complete_floor", "note", text, f"{floor:.4g} + {added:g} = {floor + added:.4g} ms"))
    out = [scenario for scenario in scenarios if scenario.reachable is False]
    if out and spec.scenarios is not None:
        names = ", ".join(f"{scenario.speedup:g}×" for scenario in out)
        arithmetic = ceilings[spec.scenarios.boundary].arithmetic
        found.append(
            Finding("unreachable", "scenarios", f"{names} cannot be reached with these tensor operations", arithmetic)
        )
    return found


def _share(spec: Spec) -> list[Finding]:
    cap = recoverable_share(spec.baseline)
    if cap is None or spec.baseline.tensor_active is None or spec.baseline.no_eligible is None:
        return []
    u, n = spec.baseline.tensor_active.one("1"), spec.baseline.no_eligible.one("1")
    arithmetic = f"(1 − {u:g}) / {n:g} = {cap:.3f}"
    found = []
    for name, candidate in spec.candidates.items():
        if candidate.recovered is None or not candidate.same_tensor_work:
            continue
        assumed = candidate.recovered.to("1")[1]
        if assumed > cap:
            text = f"{name} assumes that up to {assumed:.0%} of the no-eligible region is recovered; {cap:.1%} can be"
            found.append(Finding("share_exceeded", name, text, arithmetic))
    return found


def _denominator(spec: Spec, results: dict[str, "CandidateResult"]) -> list[Finding]:
    wider = [name for name in spec.boundaries if name != spec.baseline.boundary]
    if len(wider) < 2 or spec.preparation is None:
        return []
    found = []
    for name, result in results.items():
        ranges = [
            f"{result.speedup[boundary][0]:.2f}–{result.speedup[boundary][1]:.2f}× against "
            f"{spec.boundaries[boundary].one('ms'):g} ms ({boundary})"
            for boundary in wider
        ]
        low, high = result.complete_ms
        arithmetic = "; ".join(
            f"{spec.boundaries[boundary].one('ms'):g}/{high:.4g} … {spec.boundaries[boundary].one('ms'):g}/{low:.4g}"
            for boundary in wider
        )
        text = f"{name}: {' and '.join(ranges)}; a speed-up has to name its boundary"
        found.append(Finding("denominator", name, text, arithmetic))
    return found


def _spill_gates(spec: Spec) -> list[Finding]:
    spills = spec.baseline.spills
    found = []
    for gate in spec.gates:
        if gate.kind != "spills":
            continue
        if gate.limit is None:
            low, high = spills.to("byte") if spills is not None else (0.0, 0.0)
            seen = f"the baseline itself spills {low:g}–{high:g} bytes" if high else "no figure for the baseline"
            found.append(Finding("gate_without_number", gate.name, "a spill gate needs a number", seen))
        elif spills is not None and spills.to("byte")[1] > gate.limit.one("byte"):
            seen = f"baseline {spills.to('byte')[1]:g} bytes > limit {gate.limit.one('byte'):g} bytes"
            found.append(Finding("baseline_fails_gate", gate.name, "the baseline itself fails this gate", seen))
    return found


def _printed(spec: Spec, results: dict[str, "CandidateResult"], scenarios: list[Scenario]) -> list[Finding]:
    """Figures of the note that its own formula does not give, to the digits and in the unit that it prints."""
    found = []
    for name, result in results.items():
        candidate = spec.candidates[name]
        for label, printed, computed in (
            ("main loop", candidate.printed_mainloop, result.mainloop_ms),
            ("complete", candidate.printed_complete, result.complete_ms),
        ):
            for words, arithmetic in _misprints(printed, Quantity(computed, "ms", Status.PROJECTED, "")):
                found.append(Finding("printed_figure", name, f"{name}: {label} printed as {words}", arithmetic))
    cases = spec.scenarios.cases if spec.scenarios is not None else []
    for scenario, case in zip(scenarios, cases, strict=True):
        for words, arithmetic in _misprints(case.printed, Quantity(scenario.sampling_s, "s", Status.PROJECTED, "")):
            text = f"{scenario.speedup:g}×: printed as {words}"
            found.append(Finding("printed_figure", "scenarios", text, arithmetic))
    return found


def _misprints(printed: Quantity | None, computed: Quantity) -> Iterator[tuple[str, str]]:
    """(as printed, as recomputed) of the ends that are further apart than rounding, either way of a half, explains."""
    if printed is None:
        return
    # A single number is printed once; where the formula gives an interval it stands for both ends.
    for end, value in dict.fromkeys(zip(printed.ends, computed.to(printed.unit), strict=True)):
        decimals = end.decimals if isinstance(end, Figure) else 0
        if abs(value - end) > 0.5 * 10.0**-decimals * (1 + 1e-9):
            yield f"{end:.{decimals}f} {printed.unit}", f"recomputed {value:.{decimals + 2}f} {printed.unit}"
