"""A measured device as the text of a device file, which `load_device` reads and `gm.plan` prices by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from gemmulate.model.device import Figure
from gemmulate.plan.device_calibration import DeviceCalibration

REHEARSAL: Final = "Rehearsal: torch's processor measured as if it were a device. Not run on a GPU."
_HOW: Final = ("least time", "median time")


def record_text(found: DeviceCalibration, command: str, date: str) -> str:
    """The device file: each figure with the command, the driver and the date as its source.

    Of two values the first is from the least times, the second from the median ones; of `int8` the third is what the
    engine's own products reach, their panels and padding included.
    """
    driver = found.facts.get("driver_version", f"torch {found.facts['torch']}")
    origin = f"{command}, driver {driver}, {date}" if found.on_gpu else f"{command}, {driver}, {date}, rehearsal"
    largest = int(found.phases["total"][-1][0])

    def measured(values: Sequence[float], unit: str, what: str) -> str:
        return _figures(
            Figure(value, unit, f"{origin}: {what}, {how}", "measured") for value, how in zip(values, _HOW, strict=True)
        )

    gemm = measured(found.fp64, "FLOP/s", f"torch's float64 product of {largest}")
    products = found.phases["products"][-1]
    within = 2.0 * found.moduli[largest] * largest**3 / products[2]
    int8 = [
        *(Figure(v, "OP/s", f"{origin}: INT8 product of {largest}, {how}", "measured")
          for v, how in zip(found.int8, _HOW, strict=True)),
        Figure(within, "OP/s", f"{origin}: the INT8 products of an fp64 product of {largest}, median time", "measured"),
    ]  # fmt: skip
    terms = {
        "c_q": ("conversion", "survey and both conversions"),
        "c_rec": ("reconstruction", "reduction, recombination and the componentwise test"),
    }
    overhead = [sum(fits[i].constant_s for fits in found.fits.values()) for i in (0, 1)]
    constants = measured(overhead, "s", "constants of both fits")
    lines = [
        f"name = {json.dumps(found.name)}",
        f'kind = "{"gpu" if found.on_gpu else "cpu"}"',
        f"notes = {json.dumps(_notes(found))}",
        *_fp64(found, gemm),
        f"memory = {measured(found.memory, 'B/s', 'copy, bytes read and written')}",
        f"int8 = {_figures(int8)}",
        f"int32 = {_figures([_int32(found, origin)])}",
        f"call_overhead = {measured(found.call_s, 's', 'float64 product of 8')}",
        *(f"{key} = {measured(found.cost(term), '1', _fit_of(found, term, what))}"
          for key, (term, what) in terms.items()),
        *([f"emulation_overhead = {constants}"] if min(overhead) > 1e-12 else []),
        "",
        "[calibration]",
        f"command = {json.dumps(command)}",
        f"date = {json.dumps(date)}",
        f"machine = {json.dumps(', '.join(f'{key} {value}' for key, value in found.facts.items()))}",
        "threads = 1",
        "",
        '# Phases of an "fp64" product of n × n Gaussian matrices: n, least and median seconds.',
        "[calibration.phases]",
        *(f"{name} = {json.dumps(points)}" for name, points in found.phases.items()),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _fp64(found: DeviceCalibration, gemm: str) -> list[str]:
    """The measured product is the matrix unit's, where the catalogue knows one; the vector rate is then its own."""
    known = found.catalogued
    if known is None or "fp64_tensor" not in known.figures:
        return [f"fp64 = {gemm}"]
    return [f"fp64 = {_figures(known.figures['fp64'])}", f"fp64_tensor = {gemm}"]


def _int32(found: DeviceCalibration, origin: str) -> Figure:
    known = found.known_int32
    if known is None:
        return Figure(found.int32, "OP/s", f"{origin}: conversion rate times c_q = 6; P_int is not known", "inferred")
    assert found.catalogued is not None
    return Figure(known, "OP/s", f"catalogue, {found.catalogued.name}: SMs, lanes and clock", "inferred")


def _fit_of(found: DeviceCalibration, term: str, what: str) -> str:
    sizes = ", ".join(f"{int(size)} (r = {found.moduli[int(size)]})" for size, _, _ in found.phases["total"])
    return f"{what} of an fp64 product, fitted over n = {sizes} within {found.fits[term][0].worst:.0%}"


def _notes(found: DeviceCalibration) -> str:
    engine = "c_q and c_rec are those of the torch engine, whose phases run one after another: composition serial."
    return engine if found.on_gpu else f"{REHEARSAL} {engine}"


def _figures(values: Iterable[Figure]) -> str:
    parts = [
        f'{{ value = {f.value:.6e}, unit = "{f.unit}", source = {json.dumps(f.source)}, status = "{f.status}" }}'
        for f in values
    ]
    return parts[0] if len(parts) == 1 else "[\n    " + ",\n    ".join(parts) + ",\n]"
