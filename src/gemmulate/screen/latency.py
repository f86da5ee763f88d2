"""What a candidate's promises come to in time: intervals, floors, recoverable share, break-even and sensitivity.

Letters: T0 time of the baseline's main loop, N its no-eligible share, U its tensor-active share, f the share of the
no-eligible region that a candidate recovers, h the handoff it pays. T(f, h) = T0·(1 − N·f) + h. Times in ms.
"""

from typing import Final

import msgspec

from gemmulate.screen.spec import Baseline, Candidate, Floor, Preparation

Interval = tuple[float, float]

# A projection that needs more than this share of a limiting rate is called out: sustained kernels stay below it.
CLOSE: Final = 0.95

# How a floor's share of the baseline's time is stated.
FLOOR_SOURCES: Final = {
    "tensor_pipe": "T0 × tensor-active share: the same tensor instructions at the same clock",
    "issue_slots": "T0 × (1 − no-eligible share): the same instructions, one per scheduler and cycle",
    "memory": "T0 × memory throughput share: the same traffic",
}


class Sensitivity(msgspec.Struct, frozen=True):
    """One input moved over its interval with the others at their middle; swing = |high − low| in ms."""

    input: str
    low: float
    high: float
    unit: str
    time_at_low_ms: float
    time_at_high_ms: float
    swing_ms: float


class Projection(msgspec.Struct, frozen=True):
    """A candidate's times in ms.

    `mainloop` pairs best with best and worst with worst, as the note does; `corners` holds all four pairs. `feasible`
    is what is left when f is cut at the recoverable share and the time at the floors; None when nothing is.
    """

    mainloop: Interval
    complete: Interval
    corners: dict[str, float]
    feasible: Interval | None


def mainloop_ms(t0: float, n: float, f: float, h: float) -> float:
    """T(f, h) in ms.

    >>> round(mainloop_ms(237.089, 0.6353, 0.42, 6.0), 2)
    179.83
    """
    return t0 * (1 - n * f) + h


def floors_ms(baseline: Baseline) -> dict[str, float]:
    """Times in ms that no rearrangement of the same work can pass, from the baseline's utilisations."""
    t0 = baseline.time.one("ms")
    floors = {}
    if baseline.tensor_active is not None:
        floors["tensor_pipe"] = t0 * baseline.tensor_active.one("1")
    if baseline.no_eligible is not None:
        floors["issue_slots"] = t0 * (1 - baseline.no_eligible.one("1"))
    if baseline.memory_active is not None:
        floors["memory"] = t0 * baseline.memory_active.one("1")
    return floors


def own_floors_ms(floors: dict[str, Floor]) -> dict[str, float]:
    """work / rate of a candidate's own floors, in ms."""
    result = {}
    for name, floor in floors.items():
        unit = "byte" if floor.work.dimension == "bytes" else "op"
        result[name] = floor.work.one(unit) / floor.rate.one(f"{unit}/s") * 1e3
    return result


def recoverable_share(baseline: Baseline) -> float | None:
    """Largest share of the no-eligible region that can be recovered: (1 − U)/N, at most 1.

    The tensor pipe is busy during part of the no-eligible cycles; only cycles in which it idles can be saved while
    the tensor work stays the same.
    """
    if baseline.tensor_active is None or baseline.no_eligible is None:
        return None
    n = baseline.no_eligible.one("1")
    return min(1.0, (1 - baseline.tensor_active.one("1")) / n) if n else None


def project(candidate: Candidate, baseline: Baseline, preparation: Preparation | None) -> Projection:
    """The candidate's interval in ms, its corners, and the part of it that the floors leave."""
    if candidate.time is not None:
        low, high = candidate.time.to("ms")
        corners: dict[str, float] = {}
        clipped = (low, high)
    else:
        low, high, corners, clipped = _from_recovery(candidate, baseline)
    if low <= 0:
        raise ValueError(f"candidate {candidate.name}: what it recovers leaves no time at all; lower it")
    floor = max(lower_bounds_ms(candidate, baseline).values(), default=0.0)
    added = preparation.added.to("ms") if preparation is not None else (0.0, 0.0)
    feasible = (max(clipped[0], floor), clipped[1]) if clipped[1] >= floor else None
    return Projection((low, high), (low + added[0], high + added[1]), corners, feasible)


def lower_bounds_ms(candidate: Candidate, baseline: Baseline) -> dict[str, float]:
    """The floors that hold for this candidate: its own, and the baseline's when it does the same tensor work."""
    own = own_floors_ms(candidate.floors)
    if not candidate.same_tensor_work:
        return own
    tensor = {name: time for name, time in floors_ms(baseline).items() if name == "tensor_pipe"}
    return {**tensor, **own}


def claimed_low_ms(candidate: Candidate, mainloop: Interval) -> float:
    """The lower end that the note claims: the printed figure where there is one."""
    return mainloop[0] if candidate.printed_mainloop is None else float(candidate.printed_mainloop.to("ms")[0])


def _from_recovery(candidate: Candidate, baseline: Baseline) -> tuple[float, float, dict[str, float], Interval]:
    t0, n, (f_min, f_max), (h_min, h_max) = _inputs(candidate, baseline)
    corners = {
        "f_max_h_min": mainloop_ms(t0, n, f_max, h_min),
        "f_max_h_max": mainloop_ms(t0, n, f_max, h_max),
        "f_min_h_min": mainloop_ms(t0, n, f_min, h_min),
        "f_min_h_max": mainloop_ms(t0, n, f_min, h_max),
    }
    cap = recoverable_share(baseline) if candidate.same_tensor_work else None
    cut = 1.0 if cap is None else cap
    clipped = (mainloop_ms(t0, n, min(f_max, cut), h_min), mainloop_ms(t0, n, min(f_min, cut), h_max))
    return corners["f_max_h_min"], corners["f_min_h_max"], corners, clipped


def _inputs(candidate: Candidate, baseline: Baseline) -> tuple[float, float, Interval, Interval]:
    if candidate.recovered is None or candidate.handoff is None or baseline.no_eligible is None:
        raise ValueError(f"candidate {candidate.name}: recovered and handoff need the baseline's no_eligible share")
    return (
        baseline.time.one("ms"),
        baseline.no_eligible.one("1"),
        candidate.recovered.to("1"),
        candidate.handoff.to("ms"),
    )


def breakeven_handoff_ms(candidate: Candidate, baseline: Baseline, target_ms: float) -> Interval | None:
    """Handoff in ms at which the candidate only equals `target_ms`, for the smallest and the largest f.

    A handoff at or above the second figure kills the candidate whatever it recovers. None for a candidate whose time
    is given directly.
    """
    if candidate.recovered is None:
        return None
    t0, n, (f_min, f_max), _ = _inputs(candidate, baseline)
    return target_ms - mainloop_ms(t0, n, f_min, 0.0), target_ms - mainloop_ms(t0, n, f_max, 0.0)


def sensitivity(candidate: Candidate, baseline: Baseline) -> list[Sensitivity]:
    """Each input over its interval, largest swing first; N and T0, single figures, are moved by ±1 % of themselves."""
    if candidate.recovered is None:
        return []
    t0, n, f, h = _inputs(candidate, baseline)
    middle = {"baseline time": t0, "no_eligible": n, "recovered": sum(f) / 2, "handoff": sum(h) / 2}
    moved = {
        "recovered": (f, "1"),
        "handoff": (h, "ms"),
        "no_eligible": ((n * 0.99, n * 1.01), "1"),
        "baseline time": ((t0 * 0.99, t0 * 1.01), "ms"),
    }
    rows = []
    for name, ((low, high), unit) in moved.items():
        # The keys of `middle` stand in the order of mainloop_ms's arguments.
        at_low, at_high = (mainloop_ms(*(middle | {name: value}).values()) for value in (low, high))
        rows.append(Sensitivity(name, low, high, unit, at_low, at_high, abs(at_high - at_low)))
    return sorted(rows, key=lambda row: -row.swing_ms)
