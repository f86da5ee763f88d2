"""Candidates: every way known here to compute a product, priced by its terms or rejected with a named reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Status = Literal["chosen", "slower", "rejected"]

# The reasons for which a candidate is out, by name; the text beside it gives the numbers.
REASONS: Final[dict[str, str]] = {
    "no-unit": "the device has no unit for the format, or no known rate of one",
    "no-integer-rate": "the device's integer rate is not known, so taking operands apart cannot be priced",
    "accumulator": "the unit's accumulator is exact for shorter sums only",
    "window": "no set of moduli of the catalogue covers the window",
    "no-encoding": "the catalogue has no encoding of these ranges over the format",
    "too-wide": "the values do not fit one narrow product",
    "inexact": "the results would not be exact",
    "accuracy": "the bound is weaker than the accuracy asked for",
    "not-reproducible": "the bits would depend on library, threads and blocking",
    "other-bits": "which bits come out would depend on the machine's speeds",
    "missing-solver": "selecting moduli needs SciPy",
    "engine": "another engine was asked for",
    "unavailable": "the engine does not run on this machine",
    "not-calibrated": "the host's record has no rates of the engine",
    "not-run-here": "no kernel of this scheme exists for the problem",
}


@dataclass(frozen=True)
class Candidate:
    """One way: its parts, and either its price or the reason why it is out.

    `terms` are in seconds: mma, mem, dec, rec, and call on a host. `range_s` is least and greatest over the device's
    uncertain figures. A rejected candidate may carry a price, for comparison.
    """

    scheme: str  # "native", "direct", "residues", "wide", "anchored", "slices", "long accumulator"
    encoding: str
    formats: tuple[str, ...]
    engine: str | None  # None: none for that device
    products: float  # narrow products of the operands' size
    moduli: int
    status: Status
    reason: str | None = None  # a key of REASONS
    detail: str = ""
    time_s: float | None = None
    range_s: tuple[float, float] | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    bound: str | None = None  # the term that decides

    @property
    def name(self) -> str:
        """Scheme, and formats or engine."""
        parts = [self.scheme, *(["+".join(self.formats)] if self.formats and self.scheme != "native" else [])]
        return " ".join([*parts, *([f"on {self.engine}"] if self.engine else [])])


def rejected(
    scheme: str, encoding: str, formats: tuple[str, ...], reason: str, detail: str, *, engine: str | None = None
) -> Candidate:
    """A candidate that is out, without a price."""
    assert reason in REASONS
    return Candidate(scheme, encoding, formats, engine, 0, 0, "rejected", reason, detail)


@dataclass(frozen=True)
class PricedPlan:
    """The candidates for a problem on a device, fastest first, then the rejected ones; the first is chosen.

    Plain data. `explain` gives the table, `to_json` exports, `run` multiplies on this machine where the device is
    this one.
    """

    problem: str
    device: str
    accuracy: str
    composition: str
    bits: tuple[int, int] | None
    window_bits: int | None
    here: bool  # whether the device is this machine
    threads: int | None
    overflow: str
    candidates: tuple[Candidate, ...]
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def chosen(self) -> Candidate | None:
        """The fastest that is not rejected, or None where all are."""
        return next((c for c in self.candidates if c.status == "chosen"), None)

    @property
    def time_s(self) -> float | None:
        """Predicted seconds of the chosen candidate."""
        return None if self.chosen is None else self.chosen.time_s

    @property
    def speedup(self) -> float | None:
        """Predicted time of the native FP64 product over that of the chosen candidate; None where either is unknown."""
        native = next((c.time_s for c in self.candidates if c.scheme == "native" and c.time_s), None)
        return None if native is None or not self.time_s else native / self.time_s

    def run(self, a: Any, b: Any, **options: Any) -> Any:
        """The product of a and b by `gm.matmul` with this plan's accuracy, engine and threads.

        Raises EngineUnavailable where the plan is for another device: engines give the same bits, so `gm.matmul`
        here gives that device's result.
        """
        from gemmulate.errors import EngineUnavailable
        from gemmulate.plan.matmul import matmul

        if not self.here or self.chosen is None or self.chosen.engine is None:
            why = "no candidate is left" if self.chosen is None else f"it is for {self.device}"
            raise EngineUnavailable(f"this plan cannot run here: {why}; gm.matmul(a, b) multiplies on this machine")
        return matmul(a, b, **(dict(self.settings) | {"engine": self.chosen.engine} | options))

    def to_json(self) -> str:
        """The plan as a JSON object, candidates in order."""
        import json

        record = {key: value for key, value in asdict(self).items() if key != "settings"}
        record |= {"chosen": None if self.chosen is None else asdict(self.chosen), "speedup": self.speedup}
        return json.dumps(record, allow_nan=False)

    def explain(self) -> str:
        """The candidates as a table: time, the terms as bars, why the others are not chosen."""
        from gemmulate.plan.table import explain

        return explain(self)
