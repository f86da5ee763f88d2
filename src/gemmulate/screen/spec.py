"""The design note as data: baseline, candidates, gates, scenarios and boundaries of one screening.

Every number is a `Quantity`. The baseline and the boundaries are measured; what a candidate promises is projected.
"""

from pathlib import Path
from typing import Any, Final

import msgspec

from gemmulate.quantity import Quantity, Status
from gemmulate.screen.architecture import MAX_REGISTERS_PER_THREAD, MAX_THREADS_PER_CTA, architecture
from gemmulate.screen.toml_source import Section, TomlSource

SCHEMA: Final = 1
MEASURED: Final = (Status.MEASURED, Status.COMPILED)
CLAIMED: Final = (Status.PROJECTED, Status.ASSUMED, Status.TARGET, Status.COMPILED)
ALLOCATIONS: Final = ("uniform", "role-weighted")

_TOP_LEVEL: Final = frozenset(
    [
        "schema",
        "title",
        "device",
        "defaults",
        "boundaries",
        "baseline",
        "preparation",
        "candidates",
        "gates",
        "scenarios",
        "evidence",
    ]
)

# Gate kinds -> dimension of their limit (None: no limit), and whether a limit must be given.
GATE_KINDS: Final[dict[str, tuple[str | None, bool]]] = {
    "spills": ("bytes", False),
    "mainloop": ("time", True),
    "residency": (None, False),
    "registers": ("registers per thread", True),
    "declared": (None, False),
}

# What a candidate owes before it can advance, and how to come by it.
EVIDENCE: Final[dict[str, str]] = {
    "paired_runs": "alternating AB/BA runs with one resident model: gemmulate compare",
    "percentiles": "p10, p50, p90, p95 of those runs",
    "registers": "registers per thread: gemmulate compiled",
    "spills": "spill bytes: gemmulate compiled",
    "resident_ctas": "occupancy and resident CTAs: gemmulate occupancy, gemmulate profile",
    "eligible": "eligible and no-eligible cycles: gemmulate profile",
    "tensor_active": "INT8 and FP8 tensor utilisation: gemmulate profile",
    "instruction_mix": "executed instructions by pipe: gemmulate profile",
    "shared_conflicts": "shared traffic and bank conflicts: gemmulate profile",
    "l2": "L2 requests and hit rate: gemmulate profile",
    "off_chip": "off-chip bytes: gemmulate profile",
    "synchronisation": "barrier and membar stalls: gemmulate profile",
    "kernel_count": "number of kernels per call: gemmulate profile",
    "bytes_equal": "byte equality of P and of the output: gemmulate.screen.attention",
    "roles_concurrent": "QK and PV issue in the same cycles: gemmulate profile, or the SASS",
    "bounded_synchronisation": "p95 of a run with the slowest role delayed",
    "no_global_scores": "no N×N tensor in global memory: allocation trace",
}
DEFAULT_OWED: Final = tuple(name for name in EVIDENCE if name not in ("bounded_synchronisation", "no_global_scores"))


class Baseline(msgspec.Struct, frozen=True):
    """The kernel to beat; utilisations are shares of its time."""

    boundary: str
    time: Quantity
    threads: Quantity | None = None
    registers: Quantity | None = None
    shared: Quantity | None = None
    ctas_per_sm: Quantity | None = None
    no_eligible: Quantity | None = None
    tensor_active: Quantity | None = None
    memory_active: Quantity | None = None
    l2_hit: Quantity | None = None
    spills: Quantity | None = None
    grid: Quantity | None = None
    iterations: Quantity | None = None


class Preparation(msgspec.Struct, frozen=True):
    """Work outside the main loop: measured parts, and the interval added to every main-loop time."""

    parts: dict[str, Quantity]
    added: Quantity


class Floor(msgspec.Struct, frozen=True):
    """A bound on time from work that has to be done at a rate that cannot be passed."""

    work: Quantity
    rate: Quantity


class Candidate(msgspec.Struct, frozen=True):
    """A kernel that does not exist yet, and what it promises.

    Its time follows from `recovered` (share of the no-eligible region) and `handoff`, or is given as `time`.
    `printed_*` are the figures of the note, to be compared with the recomputed ones.
    """

    name: str
    text: str = ""
    threads: Quantity | None = None
    registers: Quantity | None = None
    registers_per_cta: Quantity | None = None
    allocation: str = "uniform"
    shared: Quantity | None = None
    ctas_per_sm: Quantity | None = None
    cluster: bool = False
    cluster_verified: bool = False
    recovered: Quantity | None = None
    handoff: Quantity | None = None
    time: Quantity | None = None
    printed_mainloop: Quantity | None = None
    printed_complete: Quantity | None = None
    same_tensor_work: bool = True
    floors: dict[str, Floor] = {}
    evidence: dict[str, bool] = {}
    evidence_source: dict[str, str] = {}


class Gate(msgspec.Struct, frozen=True):
    """A condition that rejects a candidate; `evidence` names what settles it."""

    name: str
    kind: str
    text: str
    limit: Quantity | None
    applies_to: list[str]
    evidence: str


class ScenarioCase(msgspec.Struct, frozen=True):
    """One speed-up of the part under design; `printed` is the note's figure for the total."""

    speedup: Quantity
    printed: Quantity | None


class Scenarios(msgspec.Struct, frozen=True):
    """Amdahl's arithmetic on a larger whole: total − part + part/speed-up, against an `original` total."""

    total: Quantity
    part: Quantity
    boundary: str
    cases: list[ScenarioCase]
    original: Quantity | None


class Spec(msgspec.Struct, frozen=True):
    """A whole screening."""

    file: str
    title: str
    arch: str
    boundaries: dict[str, Quantity]
    baseline: Baseline
    preparation: Preparation | None
    candidates: dict[str, Candidate]
    gates: list[Gate]
    scenarios: Scenarios | None
    owed: list[str]


def load_spec(path: str | Path) -> Spec:
    """Read and check a screening spec (TOML, schema 1; see docs/screening.md).

    Raises SpecError naming file, line and key for text that is no TOML, an unknown key, a missing unit or source, a
    number that is not finite or out of range, or a projection where a measurement must stand; OSError when the file
    cannot be read.
    """
    root = TomlSource(path).root()
    root.only(_TOP_LEVEL)
    if root.integer("schema") != SCHEMA:
        raise root.error("schema", f"schema {root.integer('schema')} is unknown; this version reads schema {SCHEMA}")
    defaults = root.section("defaults", required=False)
    defaults.only(("source", "clock", "boundary"))
    root.defaults = {key: defaults.text(key) for key in defaults.table}
    boundaries_section = root.section("boundaries")
    boundaries = {
        name: boundaries_section.quantity(name, "time", statuses=MEASURED) for name in boundaries_section.table
    }
    names = list(root.sections("candidates", required=True))
    if not names:
        raise root.error("candidates", "no candidate; give at least one [candidates.NAME]")
    baseline = _baseline(root.section("baseline"), boundaries)
    for part in root.sections("candidates").values():
        if "recovered" in part and baseline.no_eligible is None:
            raise part.error("recovered", "needs the baseline's no_eligible share; give it under [baseline]")
    return Spec(
        file=str(path),
        title=root.text("title"),
        arch=_arch(root),
        boundaries=boundaries,
        baseline=baseline,
        preparation=_preparation(root.section("preparation")) if "preparation" in root else None,
        candidates={name: _candidate(name, part) for name, part in root.sections("candidates").items()},
        gates=_gates(root, names),
        scenarios=_scenarios(root.section("scenarios"), boundaries) if "scenarios" in root else None,
        owed=_owed(root),
    )


def _arch(root: Section) -> str:
    device = root.section("device", required=False)
    device.only(("arch", "name"))
    name = device.text("arch", default="")
    if name:
        try:
            return architecture(name).name
        except ValueError as error:
            raise device.error("arch", str(error)) from None
    return ""


def _owed(root: Section) -> list[str]:
    section = root.section("evidence", required=False)
    section.only(("owed",))
    for name in section.strings("owed"):
        if name not in EVIDENCE:
            raise section.error("owed", f"evidence {name!r} is unknown; use one of {', '.join(EVIDENCE)}")
    return section.strings("owed") if "owed" in section else list(DEFAULT_OWED)


def _baseline(section: Section, boundaries: dict[str, Quantity]) -> Baseline:
    section.only(Baseline.__struct_fields__)
    boundary = section.text("boundary", choices=boundaries)

    def whole(key: str, dimension: str) -> Quantity | None:
        return section.maybe(key, dimension, whole=True, statuses=MEASURED)

    def share(key: str) -> Quantity | None:
        return section.maybe(key, "ratio", statuses=MEASURED, positive=key == "tensor_active")

    time = section.quantity("time", "time", statuses=MEASURED)
    if time.one("s") != boundaries[boundary].one("s"):
        raise section.error(
            "time", f"{time.value:g} {time.unit} is not the time of boundary {boundary!r}; give one figure"
        )
    return Baseline(
        boundary=boundary,
        time=time,
        threads=whole("threads", "threads"),
        registers=whole("registers", "registers per thread"),
        shared=section.maybe("shared", "bytes", positive=False, statuses=MEASURED),
        ctas_per_sm=whole("ctas_per_sm", "ctas"),
        no_eligible=share("no_eligible"),
        tensor_active=share("tensor_active"),
        memory_active=share("memory_active"),
        l2_hit=share("l2_hit"),
        spills=section.maybe("spills", "bytes", interval=True, positive=False, statuses=MEASURED),
        grid=whole("grid", "ctas"),
        iterations=whole("iterations", "count"),
    )


def _preparation(section: Section) -> Preparation:
    section.only(("parts", "added"))
    parts = section.section("parts")
    return Preparation(
        parts={name: parts.quantity(name, "time", positive=False, statuses=MEASURED) for name in parts.table},
        added=section.quantity("added", "time", interval=True, positive=False),
    )


def _candidate(name: str, section: Section) -> Candidate:
    section.only([field for field in Candidate.__struct_fields__ if field not in ("name", "evidence_source")])
    claims: dict[str, Any] = {"statuses": CLAIMED}
    floors = {}
    for floor, part in section.sections("floors").items():
        part.only(("work", "rate"))
        floors[floor] = _floor(part)
    evidence, sources = _evidence(section)
    candidate = Candidate(
        name=name,
        text=section.text("text", default=""),
        threads=section.maybe("threads", "threads", whole=True, most=MAX_THREADS_PER_CTA, **claims),
        registers=section.maybe(
            "registers", "registers per thread", whole=True, most=MAX_REGISTERS_PER_THREAD, **claims
        ),
        registers_per_cta=section.maybe("registers_per_cta", "registers", interval=True, **claims),
        allocation=section.text("allocation", default="uniform", choices=ALLOCATIONS),
        shared=section.maybe("shared", "bytes", interval=True, positive=False, **claims),
        ctas_per_sm=section.maybe("ctas_per_sm", "ctas", whole=True, **claims),
        cluster=section.flag("cluster", False),
        cluster_verified=section.flag("cluster_verified", False),
        recovered=section.maybe("recovered", "ratio", interval=True, positive=False, **claims),
        handoff=section.maybe("handoff", "time", interval=True, positive=False, **claims),
        time=section.maybe("time", "time", interval=True, **claims),
        printed_mainloop=section.maybe("printed_mainloop", "time", interval=True, as_written=True, **claims),
        printed_complete=section.maybe("printed_complete", "time", interval=True, as_written=True, **claims),
        same_tensor_work=section.flag("same_tensor_work", True),
        floors=floors,
        evidence=evidence,
        evidence_source=sources,
    )
    if (candidate.time is None) == (candidate.recovered is None):
        raise section.error("", "give either time, or recovered with handoff: the projection to be screened")
    if (candidate.recovered is None) != (candidate.handoff is None):
        raise section.error("", "recovered and handoff go together; give both")
    return candidate


def _floor(part: Section) -> Floor:
    work_unit = part.section("work").text("unit")
    dimension = "bytes" if work_unit.lower().endswith(("byte", "ib")) else "operations"
    return Floor(
        work=part.quantity("work", dimension),
        rate=part.quantity("rate", f"{dimension} per second"),
    )


def _evidence(section: Section) -> tuple[dict[str, bool], dict[str, str]]:
    found: dict[str, bool] = {}
    sources: dict[str, str] = {}
    for name, part in section.sections("evidence").items():
        if name not in EVIDENCE:
            raise section.source.error(
                (*section.path, "evidence", name), f"evidence is unknown; use one of {', '.join(EVIDENCE)}"
            )
        part.only(("holds", "status", "source"))
        if "holds" not in part:
            raise part.error("", "key 'holds' is missing; give true or false")
        part.text("status", choices=[str(status) for status in MEASURED])
        found[name] = part.flag("holds", False)
        sources[name] = part.text("source")
    return found, sources


def _gates(root: Section, candidates: list[str]) -> list[Gate]:
    gates: list[Gate] = []
    for part in root.array("gates"):
        gate = _gate(part, candidates)
        if not gate.name or gate.name in (other.name for other in gates):
            raise part.error("name", f"{gate.name!r} is empty or taken; give every gate a name of its own")
        gates.append(gate)
    return gates


def _gate(section: Section, candidates: list[str]) -> Gate:
    section.only(("name", "kind", "text", "limit", "applies_to", "evidence"))
    kind = section.text("kind", choices=GATE_KINDS)
    dimension, needs_limit = GATE_KINDS[kind]
    if needs_limit and "limit" not in section:
        raise section.error("", f"a {kind} gate needs a number; give limit")
    if dimension is None and "limit" in section:
        raise section.error("limit", f"a {kind} gate has no limit; remove it")
    for name in section.strings("applies_to"):
        if name not in candidates:
            raise section.error("applies_to", f"candidate {name!r} is unknown; use one of {', '.join(candidates)}")
    evidence = {"spills": "spills", "mainloop": "paired_runs", "residency": "resident_ctas", "registers": "registers"}
    return Gate(
        name=section.text("name"),
        kind=kind,
        text=section.text("text"),
        limit=section.quantity("limit", dimension, positive=False) if dimension and "limit" in section else None,
        applies_to=section.strings("applies_to") or candidates,
        evidence=section.text("evidence", choices=EVIDENCE) if kind == "declared" else evidence[kind],
    )


def _scenarios(section: Section, boundaries: dict[str, Quantity]) -> Scenarios:
    section.only(("total", "part", "boundary", "original", "cases"))
    cases = []
    for part in section.array("cases"):
        part.only(("speedup", "printed"))
        cases.append(ScenarioCase(part.quantity("speedup", "ratio"), part.maybe("printed", "time", as_written=True)))
    total = section.quantity("total", "time", statuses=MEASURED)
    part_time = section.quantity("part", "time", statuses=MEASURED)
    if part_time.one("s") > total.one("s"):
        raise section.error("part", f"{part_time.value:g} {part_time.unit} exceeds the total it is a part of")
    return Scenarios(
        total=total,
        part=part_time,
        boundary=section.text("boundary", choices=boundaries),
        cases=cases,
        original=section.maybe("original", "time", statuses=MEASURED),
    )
