"""Run kernels for real, native and emulated, and hold predictions from calibrated phases against the measurements."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmulate.engines.base import Engine
from gemmulate.model.host import residues
from gemmulate.model.host.calibrate import Spread, calibrate_once, merged, table_of
from gemmulate.model.host.conditions import PASSES, processor_seconds
from gemmulate.model.host.phases import (
    MODULI,
    Points,
    Run,
    multiply,
    phases,
    prepare,
    random_csr,
    seconds_at,
    system_for,
)

Table = Mapping[str, Points]


@dataclass(frozen=True)
class Trial:
    """A kernel of one size: its predictions from a table of phases, and functions that make the runs."""

    kernel: str
    size: str
    native: Callable[[Table], float]
    emulated: Callable[[Table], float]
    runs: Callable[[], tuple[Run, Run]]  # native, emulated


def validate(
    engine: Engine,
    grid: Sequence[Trial],
    table: Table | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    passes: int = PASSES,
) -> dict[str, Any]:
    """Predicted beside measured processor seconds for every trial, and the errors in short.

    Without a table of phases each pass over the grid follows a pass of calibration: both sides of the comparison then
    come from the same minutes. `median_error` and `worst_error` are of |predicted/measured − 1|; `wrong_side` names
    the trials whose measured speed-up is outside 0.9 to 1.1 and on the other side of 1 from the predicted one.
    """
    spreads: list[Spread] = []
    seen: list[list[tuple[float, float]]] = []
    steps = len(grid) + (0 if table else sum(len(sizes) for sizes, _ in phases(engine).values()))
    for number in range(passes):
        first = number * steps
        if table is None:
            spreads.append(calibrate_once(engine, lambda done, _, first=first: progress(first + done, passes * steps)))  # type: ignore[misc]
        seen.append([])
        for count, trial in enumerate(grid, first + steps - len(grid)):
            progress(count, passes * steps)
            native, emulated = trial.runs()
            seen[-1].append((processor_seconds(native)[0], processor_seconds(emulated)[0]))
    least = [(min(n for n, _ in times), min(e for _, e in times)) for times in zip(*seen, strict=True)]
    return compared(table_of(merged(spreads)) if table is None else table, grid, least)


def compared(table: Table, grid: Sequence[Trial], measured: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The record of `validate`, from measured (native, emulated) seconds of each trial."""
    rows: list[dict[str, Any]] = []
    speedups: list[dict[str, Any]] = []
    for trial, times in zip(grid, measured, strict=True):
        predicted = trial.native(table), trial.emulated(table)
        for method, guess, truth in zip(("native", "emulated"), predicted, times, strict=True):
            rows.append(
                {
                    "kernel": trial.kernel, "size": trial.size, "method": method, "predicted_s": guess,
                    "measured_s": truth, "ratio": guess / truth,
                }
            )  # fmt: skip
        speedups.append(
            {
                "kernel": trial.kernel, "size": trial.size, "predicted": predicted[0] / predicted[1],
                "measured": times[0] / times[1],
            }
        )  # fmt: skip
    errors = [abs(row["ratio"] - 1) for row in rows]
    wrong = [
        f"{s['kernel']} {s['size']}"
        for s in speedups
        if not 0.9 <= s["measured"] <= 1.1 and (s["measured"] > 1) != (s["predicted"] > 1)
    ]
    return {
        "rows": rows,
        "speedups": speedups,
        "median_error": statistics.median(errors),
        "worst_error": max(errors),
        "wrong_side": wrong,
    }


def trials(engine: Engine) -> list[Trial]:
    """The grid: none of its sizes is one that phases are calibrated at."""
    return [
        *(_gemm(engine, n) for n in (192, 384, 640)),
        *(_gemv(engine, n, rhs) for n in (700, 1400, 2800) for rhs in (1, 2, 8)),
        *(_sparse(name, _stored(name)) for name in ("zenios", "bcsstk13", "cryg2500")),
        *(_sparse(f"random {rows}x{each}", random_csr(rows, each))
          for rows, each in ((10_000, 10), (150_000, 10), (500_000, 20))),
        *(_stencil(n) for n in (24, 48, 96)),
    ]  # fmt: skip


def _gemm(engine: Engine, n: int) -> Trial:
    def runs() -> tuple[Run, Run]:
        rng = np.random.default_rng(n)
        a, b, out = rng.standard_normal((n, n)), rng.standard_normal((n, n)), np.empty((n, n))
        return (lambda: np.matmul(a, b, out=out)), _emulated(engine, a, b.T, out)

    return Trial(
        "gemm",
        f"{n}x{n}x{n}",
        lambda t: seconds_at(t["gemm_fp64"], n),
        lambda t: 2 * seconds_at(t["deconstruct"], n) + seconds_at(t["multiply"], n),
        runs,
    )


def _gemv(engine: Engine, n: int, rhs: int) -> Trial:
    def runs() -> tuple[Run, Run]:
        rng = np.random.default_rng(n)
        a, x, out = rng.standard_normal((n, n)), rng.standard_normal((n, rhs)), np.empty((n, rhs))
        return (lambda: a @ x), _emulated(engine, a, x.T, out)

    name = "gemv_fp64" if rhs == 1 else f"skinny_fp64_{rhs}"
    return Trial(
        "gemv",
        f"{n}x{n} rhs {rhs}",
        lambda t: seconds_at(t[name], n),
        lambda t: (1 + rhs / n) * seconds_at(t["deconstruct"], n) + seconds_at(t["multiply_panel"], n),
        runs,
    )


def _emulated(engine: Engine, a: Any, bt: Any, out: Any) -> Run:
    """One emulated product from float64 to float64: both operands taken apart anew, as a caller would have it."""
    system = system_for(a.shape[1])

    def run() -> None:
        multiply(engine, prepare(engine, a, system, left=True), prepare(engine, bt, system, left=False), system, out)

    return run


def _sparse(name: str, matrix: Any) -> Trial:
    rows, columns = (int(size) for size in matrix.shape)
    nnz = int(matrix.nnz)
    system = residues.system_for(int(np.diff(matrix.indptr).max()))
    r = len(system.moduli)

    # Rows cost as some entries do, so seconds are linear in rows at one nnz: between 1/32 and 1/4 rows an entry.
    weight = min(max((rows / max(nnz, 1) - 1 / 32) / (1 / 4 - 1 / 32), 0.0), 4.0)

    def between(t: Table, phase: str) -> float:
        return (1 - weight) * seconds_at(t[f"{phase}_32"], nnz) + weight * seconds_at(t[f"{phase}_4"], nnz)

    def emulated(t: Table) -> float:
        scaled = seconds_at(t["to_integers"], nnz) + seconds_at(t["to_integers"], columns)
        moduli = r / MODULI * between(t, "csr_moduli")
        return scaled + seconds_at(t["csr_copy"], nnz) + moduli + seconds_at(t["recombine"], rows)

    def runs() -> tuple[Run, Run]:
        x = np.random.default_rng(nnz).standard_normal(columns)
        return (lambda: matrix @ x), (lambda: residues.spmv(matrix, x, system))

    return Trial("spmv", f"{name} nnz {nnz}", lambda t: between(t, "csr"), emulated, runs)


def _stored(name: str) -> Any:
    import scipy.io
    import scipy.sparse

    from gemmulate.data import path_of

    return scipy.sparse.csr_matrix(scipy.io.mmread(str(path_of(name)))).astype(np.float64)


def _stencil(n: int) -> Trial:
    system = residues.system_for(7)
    r, points = len(system.moduli), (n + 2) ** 3

    def emulated(t: Table) -> float:
        scaled = seconds_at(t["to_integers"], points)
        return scaled + r / MODULI * seconds_at(t["stencil7_moduli"], n) + seconds_at(t["recombine"], n**3)

    def runs() -> tuple[Run, Run]:
        grid = np.random.default_rng(n).standard_normal((n + 2, n + 2, n + 2))
        return (lambda: residues.apply7(grid, -6.0, 1.0)), (lambda: residues.stencil7(grid, -6.0, 1.0, system))

    return Trial("stencil7", f"{n}^3", lambda t: seconds_at(t["stencil7"], n), emulated, runs)
