"""Devices: one TOML file each, every number with value, unit, source and status; both values where sources disagree."""

from __future__ import annotations

import itertools
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from gemmulate.errors import FileError
from gemmulate.model.checks import ModelError
from gemmulate.model.units import to_si


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One number of a device: value in `unit`, where it comes from, and how it was had."""

    value: float
    unit: str
    source: str
    status: Literal["datasheet", "measured", "inferred"]


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a host or device was measured, and its phases: name -> (size, least, median seconds), sizes rising."""

    command: str
    date: str
    machine: str
    threads: int
    phases: dict[str, list[tuple[float, float, float]]]


class EngineRates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an engine takes on one thread of a host, in seconds: the terms of the model as a planner uses them.

    `call`: a product of 1×1 matrices, by way: direct, integers, fast, fp64, exact, long (accumulator). `range` and
    `survey`: finding the range (exponents and norms) of one integer (float) input. `dec`: one input and modulus.
    `mma`: one narrow multiply-add. `rec`: one output and modulus. `assess`: one output of the componentwise test
    beside its product. `dot`: one term of the long accumulator.
    """

    call: dict[str, float]
    range: float
    survey: float
    dec: float
    mma: float
    rec: float
    assess: float
    dot: float


WAYS: Final = ("direct", "integers", "fast", "fp64", "exact", "long")
_SECONDS: Final = ("range", "survey", "dec", "mma", "rec", "assess", "dot")

_Figures = Figure | list[Figure]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device file, exactly."""

    name: str
    fp64: _Figures
    memory: _Figures
    vendor: str = ""
    kind: Literal["gpu", "cpu"] = "gpu"
    notes: str = ""
    fp64_tensor: _Figures | None = None
    fp32: _Figures | None = None
    int8: _Figures | None = None
    fp8: _Figures | None = None
    fp8_fp16_accumulate: _Figures | None = None
    fp4: _Figures | None = None
    int32: _Figures | None = None
    sms: _Figures | None = None
    int32_lanes_per_sm: _Figures | None = None
    int32_add_lanes_per_sm: _Figures | None = None
    fp64_lanes_per_sm: _Figures | None = None
    clock: _Figures | None = None
    call_overhead: _Figures | None = None
    emulation_overhead: _Figures | None = None
    c_q: _Figures | None = None
    c_rec: _Figures | None = None
    fp8_accumulator: str = ""
    calibration: Calibration | None = None
    engines: dict[str, EngineRates] = {}


# Quantity -> dimension of its unit. Lanes and SMs are counts; `int32` is the SIMT (or SIMD) integer rate. `c_q` and
# `c_rec` are what this project's own kernels took on the device, in operations at that rate; `emulation_overhead` what
# one of its products takes beside them, whatever its size.
DIMENSIONS: Final[dict[str, str]] = {
    "fp64": "flop_rate",
    "fp64_tensor": "flop_rate",
    "fp32": "flop_rate",
    "int8": "op_rate",
    "fp8": "flop_rate",
    "fp8_fp16_accumulate": "flop_rate",
    "fp4": "flop_rate",
    "int32": "op_rate",
    "memory": "traffic",
    "sms": "count",
    "int32_lanes_per_sm": "count",
    "int32_add_lanes_per_sm": "count",
    "fp64_lanes_per_sm": "count",
    "clock": "frequency",
    "call_overhead": "time",
    "emulation_overhead": "time",
    "c_q": "cost",
    "c_rec": "cost",
}


@dataclass(frozen=True)
class Rates:
    """The rates that one evaluation of the model uses, in operations/s and bytes/s; None where none is known."""

    fp64: float
    memory: float
    fp64_tensor: float | None = None
    int8: float | None = None
    fp8: float | None = None
    fp4: float | None = None
    int32: float | None = None
    call_overhead: float = 0.0
    emulation_overhead: float = 0.0


@dataclass(frozen=True)
class Device:
    """A device of the catalogue or of a user's file.

    `figures` maps each quantity to its published values, the nominal one first; `si` holds the same in SI units.
    """

    key: str
    name: str
    vendor: str
    kind: str
    notes: str
    figures: Mapping[str, tuple[Figure, ...]]
    si: Mapping[str, tuple[float, ...]]
    calibration: Calibration | None = None
    fp8_accumulator: str = ""  # what FP8 products are summed in, where it is narrower than the format's usual one
    engines: Mapping[str, EngineRates] = field(default_factory=dict)

    def nominal(self) -> Rates:
        """The rates at the first value of every quantity."""
        return self.at({})

    def span(self, quantity: str) -> tuple[float, float]:
        """Least and greatest published value of a quantity, in SI units."""
        return min(self.si[quantity]), max(self.si[quantity])

    def uncertain(self) -> tuple[str, ...]:
        """The quantities for which sources disagree."""
        return tuple(key for key, values in self.si.items() if len(set(values)) > 1)

    def corners(self, quantities: tuple[str, ...] | None = None) -> Iterator[Rates]:
        """The rates at every combination of least and greatest value of the given (or all uncertain) quantities."""
        varied = self.uncertain() if quantities is None else quantities
        for ends in itertools.product(*(sorted({*self.span(key)}) for key in varied)):
            yield self.at(dict(zip(varied, ends, strict=True)))

    def at(self, changes: Mapping[str, float]) -> Rates:
        """The rates with some quantities changed, in SI units, and the others nominal."""
        chosen = {key: values[0] for key, values in self.si.items()} | dict(changes)
        known = {field.name: chosen[field.name] for field in fields(Rates) if field.name in chosen}
        if "int32" not in known and "sms" in chosen and "int32_lanes_per_sm" in chosen:
            clock = chosen.get("clock") or self._clock()
            if clock is not None:
                known["int32"] = chosen["sms"] * chosen["int32_lanes_per_sm"] * clock
        return Rates(**known)

    def _clock(self) -> float | None:
        # f = P_fp64 / (2 · SMs · FP64 lanes), from nominal values: data sheets quote 2 FLOP for each FMA lane
        # and cycle. So P_int = P_fp64 · int lanes / (2 · FP64 lanes) at the nominal point (arXiv 2610.10924, solved).
        if "sms" not in self.si or "fp64_lanes_per_sm" not in self.si:
            return None
        return self.si["fp64"][0] / (2 * self.si["sms"][0] * self.si["fp64_lanes_per_sm"][0])


def device_names() -> tuple[str, ...]:
    """Names of the catalogue's devices.

    >>> "b300" in device_names()
    True
    """
    folder = files("gemmulate.model") / "devices"
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def host_file() -> Path:
    """Where `gemmulate model calibrate` keeps this host's record: $XDG_CONFIG_HOME, or ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "gemmulate" / "host.toml"


def catalogue_key(name: str) -> str | None:
    """The catalogue's name of a device that calls itself `name`, e.g. "NVIDIA H200 NVL"; None where it has none."""
    words = "".join(c for c in name.lower() if c.isalnum())
    found = [key for key in device_names() if key in words]
    return max(found, key=len, default=None)


def calibrated_file(name: str) -> Path:
    """Where `gemmulate model calibrate --device cuda` keeps the record of a device that calls itself `name`.

    >>> calibrated_file("NVIDIA H200 NVL").name
    'nvidia-h200-nvl.toml'
    """
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split()
    return host_file().with_name("-".join(words) + ".toml")


def default_host() -> Device:
    """The record of a host that was not calibrated: one that was measured and is shipped."""
    return _read(Path(str(files("gemmulate.model.host") / "default.toml")))


def load_device(device: str | Path) -> Device:
    """A device by its catalogue name (case and blanks aside) or from a TOML file, read strictly.

    "host" is this machine: as `gemmulate model calibrate` measured it, before that the record shipped.

    Raises:
        ModelError: no device of that name.
        FileError: the file cannot be read, or a key in it is wrong; the message names file and key.

    >>> load_device("b300").nominal().fp64
    1300000000000.0
    """
    text = str(device)
    if isinstance(device, Path) or text.endswith(".toml") or "/" in text:
        return _read(Path(text))
    key = text.lower().replace(" ", "").replace("-", "").replace("_", "")
    if key == "host":
        return _read(path) if (path := host_file()).exists() else default_host()
    names = device_names()
    if key not in names:
        raise ModelError(f"device {text!r} is not one of {', '.join(names)}, host; give one of these or a .toml file")
    return _catalogued(key)


@lru_cache
def _catalogued(key: str) -> Device:
    return _read(Path(str(files("gemmulate.model") / "devices" / f"{key}.toml")))


def _read(path: Path) -> Device:
    try:
        status = path.stat()
        # A pipe or a device such as /dev/zero would be waited for, or read without end.
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path}: not a regular file")
        if status.st_size > 1 << 20:
            raise FileError(f"{path}: larger than 1 MiB, so it is no device file")
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
        record = msgspec.convert(tree, _Record)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise FileError(f"{path}: not a device file: nested too deeply") from None
    except msgspec.ValidationError as error:
        raise FileError(f"{path}: {_plain(str(error))}") from None
    if not record.name.strip():
        raise FileError(f"{path}: name: is empty")
    figures: dict[str, tuple[Figure, ...]] = {}
    si: dict[str, tuple[float, ...]] = {}
    for key, dimension in DIMENSIONS.items():
        given: Any = getattr(record, key)
        if given is None:
            continue
        values = tuple(given) if isinstance(given, list) else (given,)
        if not values:
            raise FileError(f"{path}: {key}: an empty list; give at least one value")
        figures[key], si[key] = values, tuple(_checked(path, key, value, dimension) for value in values)
    for engine, rates in record.engines.items():
        for key, value in [*rates.call.items(), *((f, getattr(rates, f)) for f in _SECONDS)]:
            if not 0 < value < 1e3:
                raise FileError(
                    f"{path}: engines.{engine}: {key} = {value:g} is not in 0 … 1000 seconds; calibrate anew"
                )
        missing = [way for way in WAYS if way not in rates.call]
        if missing:
            raise FileError(f"{path}: engines.{engine}.call: lacks {', '.join(missing)}; calibrate anew")
    return Device(
        path.stem, record.name, record.vendor, record.kind, record.notes, figures, si, record.calibration,
        record.fp8_accumulator, record.engines,
    )  # fmt: skip


def _checked(path: Path, key: str, figure: Figure, dimension: str) -> float:
    if not figure.source.strip():
        raise FileError(f"{path}: {key}.source: is empty; say where the number comes from")
    try:
        return to_si(figure.value, figure.unit, dimension)
    except ValueError as error:
        raise FileError(f"{path}: {key}: {error}") from None


def _plain(message: str) -> str:
    """Turn `… - at `$.fp64.value`` around: the key first, as in every other error."""
    reason, _, place = message.partition(" - at ")
    key = place.strip("`").removeprefix("$").lstrip(".")
    return f"{key}: {reason}" if key and key != "..." else reason
