"""Numbers that say what they are: value, unit, status, source, boundary and clock regime.

A projection must never be read as a measurement, so the status travels with the number.
"""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec


class Status(StrEnum):
    """How a number came to be."""

    MEASURED = "measured"
    COMPILED = "compiled"
    ASSUMED = "assumed"
    PROJECTED = "projected"
    TARGET = "target"


# Unit -> (dimension, factor to the dimension's base unit). Profiler units are decimal: Kbyte = 1000 B.
UNITS: Final[dict[str, tuple[str, float]]] = {
    "s": ("time", 1.0),
    "ms": ("time", 1e-3),
    "us": ("time", 1e-6),
    "ns": ("time", 1e-9),
    "1": ("ratio", 1.0),
    "%": ("ratio", 1e-2),
    "x": ("ratio", 1.0),
    "byte": ("bytes", 1.0),
    "Kbyte": ("bytes", 1e3),
    "Mbyte": ("bytes", 1e6),
    "Gbyte": ("bytes", 1e9),
    "KiB": ("bytes", 1024.0),
    "MiB": ("bytes", 1024.0**2),
    "GiB": ("bytes", 1024.0**3),
    "thread": ("threads", 1.0),
    "warp": ("warps", 1.0),
    "CTA": ("ctas", 1.0),
    "register/thread": ("registers per thread", 1.0),
    "register": ("registers", 1.0),
    "Kregister": ("registers", 1024.0),
    "iteration": ("count", 1.0),
    "kernel": ("count", 1.0),
    "op": ("operations", 1.0),
    "Gop": ("operations", 1e9),
    "Top": ("operations", 1e12),
    "op/s": ("operations per second", 1.0),
    "Gop/s": ("operations per second", 1e9),
    "Top/s": ("operations per second", 1e12),
    "byte/s": ("bytes per second", 1.0),
    "Gbyte/s": ("bytes per second", 1e9),
}


def units_of(dimension: str) -> list[str]:
    """The units that measure `dimension`, in table order.

    >>> units_of("time")
    ['s', 'ms', 'us', 'ns']
    """
    return [unit for unit, (kind, _) in UNITS.items() if kind == dimension]


class Quantity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number or a closed interval with its unit and where it comes from.

    `value` is a float, or (low, high) for an interval; both ends finite. `boundary` names what the number covers
    (for a time: which work lies inside), `clock` the clock regime it was taken under. Raises ValueError when the
    value is not finite, the interval is reversed, or the unit is unknown.

    >>> Quantity((22.0, 35.0), "%", Status.PROJECTED, "design note").to("1")
    (0.22, 0.35)
    """

    value: float | tuple[float, float]
    unit: str
    status: Status
    source: str
    boundary: str = ""
    clock: str = ""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r} is unknown; use one of {', '.join(UNITS)}")
        if not all(math.isfinite(end) for end in self.ends):
            raise ValueError(f"value {self.value!r} is not finite; give a number")
        if self.ends[0] > self.ends[1]:
            raise ValueError(f"interval {list(self.ends)} is reversed; give [low, high]")

    @property
    def ends(self) -> tuple[float, float]:
        """(low, high); a single number is both."""
        return self.value if isinstance(self.value, tuple) else (self.value, self.value)

    @property
    def dimension(self) -> str:
        """What the unit measures."""
        return UNITS[self.unit][0]

    def to(self, unit: str) -> tuple[float, float]:
        """(low, high) in another unit of the same dimension; raises ValueError for a unit of another one."""
        dimension, factor = UNITS[unit]
        if dimension != self.dimension:
            raise ValueError(f"{self.unit!r} measures {self.dimension}, {unit!r} measures {dimension}")
        scale = UNITS[self.unit][1]
        # Dividing by the inverse factor keeps decimal figures decimal: 22 % is 0.22, not 0.22000000000000003.
        low, high = (end if scale == factor else _scaled(end, scale, factor) for end in self.ends)
        return low, high

    def one(self, unit: str) -> float:
        """The single number in `unit`; raises ValueError for an interval."""
        low, high = self.to(unit)
        if low != high:
            raise ValueError(f"[{low}, {high}] {unit} is an interval; a single number is needed")
        return low


def _scaled(value: float, scale: float, factor: float) -> float:
    ratio = scale / factor
    return value * ratio if ratio >= 1 else value / (factor / scale)


def only_measured(quantities: Iterable[Quantity]) -> list[Quantity]:
    """The quantities as a list when all are measured or compiled; raises ValueError naming the first that is not."""
    result = list(quantities)
    for quantity in result:
        if quantity.status not in (Status.MEASURED, Status.COMPILED):
            raise ValueError(
                f"{quantity.value} {quantity.unit} from {quantity.source!r} is {quantity.status}; "
                "a table of results holds measured or compiled numbers only"
            )
    return result
