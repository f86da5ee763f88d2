"""Units of rates, traffic, time and counts, each with its factor to SI: a figure without a known unit is refused."""

from typing import Final

_PREFIX: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

# dimension -> spelling -> factor to the SI unit of that dimension (operations/s, bytes/s, seconds, one). Counts are of
# things, costs of 32-bit operations for each input or output and modulus, which may be fractions.
UNITS: Final[dict[str, dict[str, float]]] = {
    "flop_rate": {f"{p}FLOP/s": f for p, f in _PREFIX.items()},
    "op_rate": {f"{p}OP/s": f for p, f in _PREFIX.items()},
    "traffic": {f"{p}B/s": f for p, f in (_PREFIX | _BINARY).items()},
    "frequency": {f"{p}Hz": _PREFIX[p] for p in ("", "k", "M", "G")},
    "time": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "count": {"1": 1.0},
    "cost": {"1": 1.0},
}

# What hardware of this century can have: outside it a figure carries the wrong unit (8e12 "TB/s").
PLAUSIBLE: Final[dict[str, tuple[float, float]]] = {
    "flop_rate": (1e6, 1e20),
    "op_rate": (1e6, 1e20),
    "traffic": (1e6, 1e17),
    "frequency": (1e6, 1e11),
    "time": (1e-12, 1e3),
    "count": (1.0, 1e6),
    "cost": (1e-6, 1e6),
}


def to_si(value: float, unit: str, dimension: str) -> float:
    """A value in SI units of its dimension.

    Raises:
        ValueError: the unit is none of that dimension, or the value is no plausible one in it.

    >>> to_si(1.3, "TFLOP/s", "flop_rate")
    1300000000000.0
    """
    factors = UNITS[dimension]
    if unit not in factors:
        raise ValueError(f"unit {unit!r} is not one of {', '.join(factors)}")
    si = value * factors[unit]
    low, high = PLAUSIBLE[dimension]
    if not low <= si <= high:  # NaN fails too
        raise ValueError(f"{value:g} {unit} is outside {low:g} … {high:g} in base units; check value and unit")
    return si
