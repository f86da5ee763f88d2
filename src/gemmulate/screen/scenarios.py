"""Scenario arithmetic: what a faster part does to the whole, and whether the part can be that fast."""

import msgspec

from gemmulate.screen.latency import floors_ms
from gemmulate.screen.spec import Scenarios, Spec


class Scenario(msgspec.Struct, frozen=True):
    """`sampling_s` = total − part + part/speedup; `reachable` is None when no floor is known."""

    speedup: float
    sampling_s: float
    reachable: bool | None
    against_original: float | None
    printed_s: float | None


class Ceiling(msgspec.Struct, frozen=True):
    """The largest speed-up that the floor admits within one boundary, with its arithmetic."""

    boundary: str
    speedup: float
    arithmetic: str


def whole_s(scenarios: Scenarios, speedup: float) -> float:
    """Amdahl (1967): the whole in seconds when the part runs `speedup` times as fast."""
    total, part = scenarios.total.one("s"), scenarios.part.one("s")
    return total - part + part / speedup


def ceilings(spec: Spec) -> dict[str, Ceiling]:
    """The largest speed-up within each boundary; empty without a tensor floor.

    Within the main loop it is T0 over the floor. Within a wider boundary the preparation's lower end is added to the
    floor, because every candidate pays it.
    """
    floor = floors_ms(spec.baseline).get("tensor_pipe")
    if floor is None:
        return {}
    result = {}
    for name, time in spec.boundaries.items():
        added = 0.0
        if name != spec.baseline.boundary and spec.preparation is not None:
            added = spec.preparation.added.to("ms")[0]
        speedup = time.one("ms") / (floor + added)
        below = f"({floor:.4g} + {added:g})" if added else f"{floor:.4g}"
        result[name] = Ceiling(name, speedup, f"{time.one('ms'):g} / {below} = {speedup:.3f}")
    return result


def scenario_results(spec: Spec) -> list[Scenario]:
    """Every case of the note with its total in seconds and whether the floors admit it."""
    if spec.scenarios is None:
        return []
    ceiling = ceilings(spec).get(spec.scenarios.boundary)
    results = []
    for case in spec.scenarios.cases:
        speedup = case.speedup.one("x")
        seconds = whole_s(spec.scenarios, speedup)
        original = spec.scenarios.original
        results.append(
            Scenario(
                speedup=speedup,
                sampling_s=seconds,
                reachable=None if ceiling is None else speedup <= ceiling.speedup,
                against_original=None if original is None else original.one("s") / seconds,
                printed_s=None if case.printed is None else float(case.printed.one("s")),
            )
        )
    return results
