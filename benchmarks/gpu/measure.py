"""Measures one case of the GPU benchmarks: paired times, phases, accuracy, the CPU's bits; what does not fit is said.

Times are those of `gm.evidence.compare`: CUDA events around one call, in ABBA quads turned at random, with the interval
of the ratio. Phases are those of one emulated call, the median of three, by events too. Operands are on the device
before the clock starts; results stay there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

import gemmulate as gm
from benchmarks.gpu.accuracy import U, errors, same_bits, sampled, wide
from benchmarks.gpu.rows import CENTRE, SIDE, Case, Operands
from gemmulate import evidence
from gemmulate.engines import get_engine
from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.torch_device import TorchDevice
from gemmulate.plan.device_calibration import recorded

PHIS = (0.5, 2.0, 4.0)
FREE = 0.9  # of the free memory that a case may take
Record = dict[str, Any]


def announce(facts: dict[str, Any]) -> None:
    if "rehearsal" in facts:
        print(f"REHEARSAL on {facts['device_name']}: not run on a GPU")
    print(f"{facts['device_name']}, torch {facts['torch']}, driver {facts.get('driver_version', 'none')}")


def engines(device: TorchDevice) -> list[ArrayEngine]:
    """The torch engine of the device, and Triton's where it runs there."""
    found = [device.engine]
    for record in gm.engines():
        if record.name == "triton" and record.available and record.device == device.device.type:
            engine: Any = get_engine("triton")
            if engine.library.device == device.device:
                found.append(engine)
    return found


def measured(device: TorchDevice, case: Case, grades: Iterable[str], pairs: int, seed: int) -> Iterator[Record]:
    """A record for each engine and grade; one that says why not where the case does not fit."""
    base = {"kind": "gpu", "row": case.row, "size": case.size, "n": case.n, "flops": case.flops, "seed": seed}
    needed, free = case.needed_bytes(device.engine.library.block), device.free_bytes()
    if needed > FREE * free:
        reason = f"needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
        yield show(base | {"status": "skipped", "reason": reason})
        return
    try:
        operands = case.operands(torch.Generator(device.device).manual_seed(seed))
    except (torch.cuda.OutOfMemoryError, MemoryError) as error:
        yield show(base | {"status": "skipped", "reason": f"out of memory: {_first_line(error)}"})
        return
    for engine in engines(device):
        for grade in grades:
            which = base | {"engine": engine.name, "grade": grade}
            try:
                yield show(which | one(device, case, operands, engine, grade, pairs, seed))
            except (torch.cuda.OutOfMemoryError, MemoryError) as error:
                yield show(which | {"status": "skipped", "reason": f"out of memory: {_first_line(error)}"})


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def one(
    device: TorchDevice, case: Case, operands: Operands, engine: ArrayEngine, grade: str, pairs: int, seed: int
) -> Record:
    """What is measured of one engine at one grade."""

    def native() -> torch.Tensor:
        return case.native(*operands)

    def emulated() -> torch.Tensor:
        return case.emulated(engine, grade, *operands)

    found: Record = {"status": "measured"}
    if case.dense:
        a, b, c = _matrices(*operands, emulated())
        found["cpu_bits"] = same_bits(engine, a, b, grade, c)
        found["errors"] = {"gaussian": {"emulated": errors(a, b, c), "native": errors(a, b, _matrices(a, b, a @ b)[2])}}
        if case.row == "dgemm":
            for phi in PHIS:
                found["errors"][f"phi {phi:g}"] = _wide_errors(device, case, engine, grade, phi, seed)
        del c
        found |= phases(device, emulated)
    else:
        found["errors"] = {"gaussian": {"emulated": _sparse_errors(case, operands, emulated())}}
        found["errors"]["gaussian"]["native"] = _sparse_errors(case, operands, native())
    # Results are not fingerprinted: two sides that round differently are compared above, by their errors.
    timer = "torch" if device.on_gpu else "wall"
    compared = evidence.compare(_only(native), _only(emulated), pairs=pairs, seed=seed, timer=timer)
    ratio, interval = compared.ratio, compared.ratio_interval
    return found | {
        "native_s": compared.samples["a"],
        "emulated_s": compared.samples["b"],
        "speedup": None if ratio is None else 1 / ratio,
        "speedup_interval": None if interval is None else [1 / interval[1], 1 / interval[0]],
        "verdict": compared.verdict,
        "order": compared.order,
        "drift": compared.drift,
    }


def _only(call: Callable[[], torch.Tensor]) -> Callable[[], None]:
    def run() -> None:
        call()

    return run


def _matrices(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A product of two matrices: the last of a batch, a vector as a column."""
    if a.ndim == 3:
        return a[-1], b[-1], c[-1]
    return (a, b[:, None], c[:, None]) if b.ndim == 1 else (a, b, c)


def _wide_errors(
    device: TorchDevice, case: Case, engine: ArrayEngine, grade: str, phi: float, seed: int
) -> dict[str, dict[str, float]]:
    generator = torch.Generator(device.device).manual_seed(seed + 1)
    a, b = (wide((case.n, case.n), phi, generator) for _ in range(2))
    return {"emulated": errors(a, b, case.emulated(engine, grade, a, b)), "native": errors(a, b, case.native(a, b))}


def phases(device: TorchDevice, call: Callable[[], torch.Tensor]) -> Record:
    """Median seconds of every phase of three calls, and the share of the conversion, its survey included."""
    seen = list(recorded(device.watch, call, 0.0))
    middle = {name: statistics.median(s[name] for s in seen) for name in seen[0]}
    share = (middle["survey"] + middle["convert_a"] + middle["convert_b"]) / middle["total"]
    return {"phases_s": middle, "conversion_share": share}


def _sparse_errors(case: Case, operands: Operands, result: torch.Tensor) -> dict[str, float]:
    """`accuracy.errors` of some rows of a sparse product, or of some points of a stencil, each one dot product."""
    flat = result.reshape(-1)
    at = sampled(len(flat))
    left, right = _terms(case, operands, at)
    worst = {"componentwise": 0.0, "relative": 0.0}
    for x, y, got in zip(left, right, flat[torch.from_numpy(at).to(flat.device)].cpu().numpy(), strict=True):
        truth = float(gm.matmul(x, y, accuracy="exact"))
        for name, scale in (("componentwise", float(np.abs(x) @ np.abs(y))), ("relative", abs(truth))):
            worst[name] = max(worst[name], abs(float(got) - truth) / (U * scale) if scale else 0.0)
    return worst


def _terms(case: Case, operands: Operands, at: Any) -> tuple[Any, Any]:
    """The factors of the elements' terms: (count, terms) each."""
    index = torch.from_numpy(at)
    if case.row == "spmv":
        _, values, columns, x = operands
        index = index.to(values.device)
        return values[index].cpu().numpy(), x[columns[index]].cpu().numpy()
    (grid,) = operands
    inner = [n - 2 for n in grid.shape]
    places = np.stack(np.unravel_index(at, inner), axis=1) + 1
    steps = np.array([(0, 0, 0), (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)])
    near = torch.from_numpy((places[:, None] + steps).reshape(-1, 3)).to(grid.device)
    values = grid[near[:, 0], near[:, 1], near[:, 2]].reshape(len(at), 7).cpu().numpy()
    return np.tile([CENTRE, *[SIDE] * 6], (len(at), 1)), values


def show(record: Record) -> Record:
    """Print a record as one line, and return it."""
    start = f"{record['row']:<9} {record['size']:<30} {record.get('engine', ''):<11} {record.get('grade', ''):<8}"
    if record["status"] == "skipped":
        print(f"{start} skipped: {record['reason']}", flush=True)
        return record
    native, emulated = (statistics.median(record[key]) for key in ("native_s", "emulated_s"))
    worst = record["errors"]["gaussian"]["emulated"]["componentwise"]
    share = f", conversion {record['conversion_share']:.0%}" if "conversion_share" in record else ""
    bits = {True: ", the CPU's bits", False: ", NOT THE CPU'S BITS"}[record["cpu_bits"]] if "cpu_bits" in record else ""
    times = f"{1e3 * native:>10.4g} ms {1e3 * emulated:>10.4g} ms  × {native / emulated:.3g}"
    print(f"{start} {times}, {worst:.3g} u{share}{bits}", flush=True)
    return record
