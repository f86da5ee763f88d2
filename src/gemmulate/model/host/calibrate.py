"""Measure this host phase by phase, and keep the result as a device file that every command of the model takes."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from gemmulate.engines.base import Engine
from gemmulate.model.checks import ModelError
from gemmulate.model.device import load_device
from gemmulate.model.host.conditions import PASSES, processor_seconds
from gemmulate.model.host.phases import Points, phases, system_for

# c_q·r·N_in/P_int is what conversion takes: with c_q fixed at the published value, the measured rate gives P_int.
C_Q: Final = 6.0

Spread = Mapping[str, tuple[tuple[float, float, float], ...]]  # (size, least, median seconds)


def calibrate(
    engine: Engine, progress: Callable[[int, int], None] = lambda done, total: None, passes: int = PASSES
) -> Spread:
    """Every phase at its sizes, in passes over all of them, one thread: least time, and median of the passes' medians.

    A pass takes about 25 s.
    """
    return merged(
        [calibrate_once(engine, lambda done, total, first=p: progress(first * total + done, passes * total))  # type: ignore[misc]
         for p in range(passes)]
    )  # fmt: skip


def calibrate_once(engine: Engine, progress: Callable[[int, int], None] = lambda done, total: None) -> Spread:
    """One pass: least and median processor seconds of a few calls, operands and results in memory of their own."""
    todo = [(name, size, make) for name, (sizes, make) in phases(engine).items() for size in sizes]
    found: dict[str, list[tuple[float, float, float]]] = {}
    for done, (name, size, make) in enumerate(todo):
        progress(done, len(todo))
        found.setdefault(name, []).append((float(size), *processor_seconds(make(size))))
    return {name: tuple(points) for name, points in found.items()}


def merged(spreads: Sequence[Spread]) -> Spread:
    """Passes over the same phases and sizes as one."""
    return {
        name: tuple(
            (points[0][0], min(least for _, least, _ in points), statistics.median(median for _, _, median in points))
            for points in zip(*(spread[name] for spread in spreads), strict=True)
        )
        for name in spreads[0]
    }


def table_of(spread: Spread) -> dict[str, Points]:
    """The least seconds of each phase and size: what predictions use."""
    return {name: tuple((size, least) for size, least, _ in points) for name, points in spread.items()}


def device_file(spread: Spread, command: str) -> str:
    """The calibrated host as the text of a device file; the second value of each rate is from the median time."""

    def rate(phase: str, unit: str, work: Callable[[float], float], source: str) -> str:
        size, *seconds = spread[phase][-1]
        figures = ", ".join(
            f'{{ value = {work(size) / second:.6e}, unit = "{unit}", source = {json.dumps(source + how)}, '
            'status = "measured" }'
            for second, how in zip(seconds, (", least time", ", median time"), strict=True)
        )
        return f"[{figures}]"

    def r(n: float) -> int:
        return len(system_for(int(n)).moduli)

    lines = [
        f"name = {json.dumps('host: ' + _processor())}",
        'kind = "cpu"',
        f"fp64 = {rate('gemm_fp64', 'FLOP/s', lambda n: 2 * n**3, 'NumPy float64 product')}",
        f"memory = {rate('gemv_fp64', 'B/s', lambda n: 8 * n * n, 'matrix read by NumPy matrix-vector product')}",
        f"int8 = {rate('multiply', 'OP/s', lambda n: 2 * r(n) * n**3, 'INT8 products with recombination')}",
        f"int32 = {rate('deconstruct', 'OP/s', lambda n: C_Q * r(n) * n * n, 'conversion rate times c_q = 6')}",
        "",
        "[calibration]",
        f"command = {json.dumps(command)}",
        f"date = {json.dumps(datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'))}",
        f"machine = {json.dumps(f'{_processor()}, {os.cpu_count()} processors, {platform.system()}')}",
        "threads = 1",
        "",
        "# Size, least and median processor seconds.",
        "[calibration.phases]",
        *(f"{name} = {json.dumps(points)}" for name, points in spread.items()),
    ]
    return "\n".join(lines) + "\n"


def calibrated_table(path: str | Path) -> dict[str, Points]:
    """The phases of a device file that `calibrate` wrote.

    Raises:
        FileError: as `load_device`.
        ModelError: the file has no calibration, or not that of this version's phases.
    """
    device = load_device(Path(path))
    if device.calibration is None:
        raise ModelError(f"{path}: has no [calibration]; make one by `gemmulate model calibrate`")
    spread = device.calibration.phases
    for name in _PHASES:
        points = spread.get(name, [])
        sizes = [point[0] for point in points]
        if len(points) < 2 or sizes != sorted(set(sizes)) or not all(0 < x < 1e12 for point in points for x in point):
            raise ModelError(
                f"{path}: calibration.phases.{name}: needs two or more [size, least, median] of positive numbers, "
                "sizes rising; calibrate anew"
            )
    return table_of({name: tuple(spread[name]) for name in _PHASES})


_PHASES: Final = (
    "gemm_fp64", "gemv_fp64", "skinny_fp64_2", "skinny_fp64_8", "deconstruct", "multiply_panel", "multiply", "csr_4",
    "csr_32", "csr_moduli_4", "csr_moduli_32", "csr_copy", "to_integers", "recombine", "stencil7", "stencil7_moduli",
)  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
