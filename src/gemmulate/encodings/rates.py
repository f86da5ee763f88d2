"""Rates: what one product of each format costs, on a device of the catalogue or by width alone."""

import re
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from typing import Any

from gemmulate import formats

# Format -> the unit that multiplies it. FP6 runs at the FP8 rate on the devices listed, unsigned at the signed rate.
_UNIT = {
    "fp4_e2m1": "fp4",
    "fp6_e2m3": "fp8",
    "fp6_e3m2": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "int4": "int4",
    "int8": "int8",
    "uint8": "int8",
}


@dataclass(frozen=True)
class Rates:
    """Operations per second of each format (ratios alone when `device` is None), and each format's accumulator."""

    device: str | None
    ops_per_s: dict[str, Fraction]
    accumulators: dict[str, str] = field(default_factory=dict)

    def of(self, format_name: str) -> Fraction:
        """The rate of a format; ValueError when the device has no such unit."""
        if format_name not in self.ops_per_s:
            have = ", ".join(self.ops_per_s)
            owner = self.device or "the table of widths"
            raise ValueError(f"{owner} has no rate for {format_name}: choose from {have}")
        return self.ops_per_s[format_name]

    def accumulator(self, format_name: str) -> str:
        return self.accumulators.get(format_name, formats.get(format_name).accumulator)


def by_width() -> Rates:
    """Without a device: a unit of half the width has twice the rate (FP4 and INT4 2, wider ones 1)."""
    return Rates(None, {name: Fraction(2 if name in ("fp4_e2m1", "int4") else 1) for name in _UNIT})


_TERA = {"TOP/s": 10**12, "TFLOP/s": 10**12, "POP/s": 10**15, "PFLOP/s": 10**15}


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    """The device catalogue's files, which the time model reads too: data alone, so that no layer above is imported."""
    folder = resources.files("gemmulate").joinpath("model", "devices")
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda file: file.name):
        if entry.name.endswith(".toml"):
            found[entry.name.removesuffix(".toml")] = tomllib.loads(entry.read_text(encoding="utf-8"))
    return found


def _values(record: dict[str, Any], unit: str) -> list[Fraction]:
    """Operations per second of a unit, one value for each source; empty where the device has none."""
    figures = record.get(unit, [])
    listed = figures if isinstance(figures, list) else [figures]
    return [Fraction(str(figure["value"])) * _TERA[figure["unit"]] for figure in listed]


def devices() -> list[str]:
    """Names of the devices with rates."""
    return list(_table())


def of_device(name: str, choice: int = 0) -> Rates:
    """The rates of a device ("b300", "RTX 5090", …); `choice` 1 takes the second source where two disagree."""
    plain = re.sub(r"[^a-z0-9]", "", str(name).lower())
    plain = plain.removesuffix("sxm")
    table = _table()
    if plain not in table:
        near = get_close_matches(plain, table, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown device {name!r}: choose from {', '.join(table)}{hint}")
    record = table[plain]
    rates: dict[str, Fraction] = {}
    for format_name, unit in _UNIT.items():
        values = _values(record, unit)
        if values:
            rates[format_name] = values[min(choice, len(values) - 1)]
    accumulator = record.get("fp8_accumulator")
    sums = {n: str(accumulator) for n in rates if _UNIT[n] == "fp8"} if accumulator else {}
    return Rates(str(record["name"]), rates, sums)
