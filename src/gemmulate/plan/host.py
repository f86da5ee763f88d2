"""Candidates on this machine: every engine and every scheme that gives the bits asked for, priced by the host's record.

On a CPU nothing overlaps: a product takes its call, then survey and deconstruction, the products, reconstruction, one
after another; memory traffic is a floor. Times are those of one thread divided by the threads, calls aside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from gemmulate.engines import engines, get_engine, native
from gemmulate.engines.residue_system import moduli_needed
from gemmulate.errors import FileError
from gemmulate.model.device import Device, EngineRates, default_host, load_device
from gemmulate.plan.candidates import Candidate, PricedPlan, rejected
from gemmulate.plan.pricing import Request, judged_native, ranked
from gemmulate.plan.problem import Problem
from gemmulate.schemes.accuracy import Bits
from gemmulate.schemes.floats import SMALL_PRODUCT

# Register tiles (rows, columns) of each instruction set, in native/isa_*.cpp: part of a tile costs as much as a whole.
TILES: Final = {
    "native-scalar": (4, 8),
    "native-avx2": (2, 16),
    "native-avxvnni": (6, 16),
    "native-avx512vnni": (12, 32),
    "reference": (1, 1),
}
# A call of NumPy's product, which goes straight to the BLAS.
_BLAS_CALL_S: Final = 1e-6
_FORMATS: Final = ("int8", "uint8")
# `wrapped_cost` counts residue products with their conversion and reconstruction: 1.5 bare ones each at n = 1024
# (engines/native.py); `mma` is what a bare one takes.
_BARE: Final = 1.5
# Relative difference of two prices below which they are a tie: five calibrations on one busy machine spread by 3 to 7 %
# in each term, and a tie must cost less than the 10 % that a choice may be off.
RESOLUTION: Final = 0.05


@dataclass(frozen=True)
class Work:
    """A product as engines see it: what is known of it before it runs."""

    m: int
    k: int
    n: int
    batch: int
    way: str  # key of EngineRates.call
    moduli: int  # 1 for a direct product, 0 where no system covers the window
    wide: int = 0  # bytes of integers modulo whose range the product may be taken instead; 0 where it may not
    anchored: float = 0.0  # INT8 products above which anchored sums are taken instead; 0 where they may not

    @property
    def inputs(self) -> int:
        """Entries of both operands."""
        return self.batch * self.k * (self.m + self.n)

    @property
    def outputs(self) -> int:
        """Entries of the result."""
        return self.batch * self.m * self.n


@lru_cache(maxsize=1)
def host_record() -> Device:
    """This host's record for the choices that `matmul` makes itself: the shipped one where the user's is damaged.

    The choices touch time alone, never bits; `gm.plan(device="host")` and `gemmulate doctor` report a damaged file.
    """
    try:
        found = load_device("host")
    except (FileError, OSError, RuntimeError):
        found = default_host()
    return found if found.engines else default_host()


def residue_terms(
    rates: EngineRates, work: Work, bytes_per_s: float, threads: int = 1, tile: tuple[int, int] = (1, 1)
) -> dict[str, float]:
    """Seconds of a direct or residue product, by term, on an engine of this register tile."""
    floats = work.way not in ("direct", "integers")
    survey = rates.survey if floats else rates.range if work.way == "integers" else 0.0
    rows, columns = _whole(work.m, tile[0]), _whole(work.n, tile[1])
    products, packed = work.batch * rows * columns * work.k, work.batch * (rows + columns) * work.k
    assessed = work.way == "fp64"
    return {
        "mma": rates.mma * products * (work.moduli + assessed) / threads,
        "mem": 8 * (work.inputs + work.outputs) / bytes_per_s,
        "dec": (survey * work.inputs + rates.dec * (work.moduli + assessed) * packed) / threads,
        "rec": (rates.rec * work.moduli + rates.assess * assessed) * work.outputs / threads,
        "call": rates.call[work.way] * work.batch,
    }


def own_terms(
    rates: EngineRates, work: Work, bytes_per_s: float, cost: float, threads: int = 1, tile: tuple[int, int] = (1, 1)
) -> dict[str, float]:
    """Seconds of a product in the engine's own wide multiplications, as long as `cost` INT8 products, by term."""
    products = work.batch * _whole(work.m, tile[0]) * _whole(work.n, tile[1]) * work.k
    return {
        "mma": rates.mma * products * cost * _BARE / threads,
        "mem": 8 * (work.inputs + work.outputs) / bytes_per_s,
        "dec": (rates.range if work.wide else rates.survey) * work.inputs / threads,
        "rec": 0.0,
        "call": rates.call["integers" if work.wide else "long"] * work.batch,
    }


def long_terms(rates: EngineRates, work: Work, bytes_per_s: float, threads: int = 1) -> dict[str, float]:
    """Seconds of the long accumulator for every element, by term: its additions count as products."""
    return {
        "mma": rates.dot * work.outputs * work.k / threads,
        "mem": 8 * (work.inputs + work.outputs) / bytes_per_s,
        "dec": 0.0,
        "rec": 0.0,
        "call": rates.call["long"] * work.batch,
    }


def total(terms: dict[str, float]) -> float:
    """Seconds of all terms one after another; traffic counts where it takes longer."""
    return terms["call"] + max(terms["mma"] + terms["dec"] + terms["rec"], terms["mem"])


def plan_for_host(
    request: Request,
    record: Device,
    *,
    work: Work | None,
    engine: str | None,
    threads: int | None,
    settings: Mapping[str, Any],
    here: bool = True,
) -> PricedPlan:
    """All candidates on this machine. `work` says what data asked for; without it the problem's own bits count."""
    problem, overflow = request.problem, str(settings.get("overflow", "raise"))
    found = list(_candidates(request, record, work, engine, threads, overflow))
    sized = isinstance(problem, Problem)
    return PricedPlan(
        problem=str(problem) if sized else f"{request.kernel.name} {request.kernel.size}",
        device=record.name,
        accuracy=request.label,
        composition="calls, deconstruction, products and reconstruction one after another",
        bits=problem.kept(request.accuracy) if isinstance(problem, Problem) else None,
        window_bits=problem.window(request.accuracy).bit_length() + 1 if isinstance(problem, Problem) else None,
        here=here,
        threads=threads,
        overflow=overflow,
        candidates=_ranked(found),
        settings=settings,
    )


def _candidates(
    request: Request, record: Device, work: Work | None, engine: str | None, threads: int | None, overflow: str
) -> Iterator[Candidate]:
    yield _native(request, record, thread_count(threads))
    if not isinstance(request.problem, Problem):
        yield rejected(
            "residues", "–", ("int8",), "not-run-here", f"engines multiply matrices, not {request.kernel.name}"
        )
        return
    work = work or work_of(request.problem, request.accuracy, overflow)
    asked = _instruction_set(engine)
    long = not request.integer and (work.way == "exact" or not work.moduli)
    if not long and not request.integer:
        detail = f'"{request.accuracy}" takes bits from data and grade alone, so that every machine gives the same'
        yield rejected("long accumulator", "4096-bit sums", (), "other-bits", detail)
    for entry in engines():
        if entry.name == "native":
            continue  # another name of the best instruction set, which is listed
        scheme = "direct" if work.way == "direct" else "residues"
        encoding = "one INT8 product" if scheme == "direct" else f"{work.moduli} INT8 moduli"
        rates = record.engines.get(entry.name)
        reason = None
        if not entry.available:
            reason = "unavailable", entry.reason
        elif asked not in (None, entry.name):
            reason = "engine", f"engine = {engine!r} was asked for"
        elif rates is None:
            reason = "not-calibrated", f"{record.name} has no rates of it; run `gemmulate model calibrate`"
        if reason is not None or rates is None:
            assert reason is not None
            yield rejected(scheme, encoding, _FORMATS, *reason, engine=entry.name)
            continue
        count = 1 if entry.name == "reference" else thread_count(threads)
        bandwidth = record.nominal().memory
        runner = get_engine(entry.name, 1)
        wide = runner.wrapped_cost(work.wide) if work.wide else math.inf
        # The rules of `matmul`, which runs these instead of residues.
        if (work.moduli or math.inf) > wide:
            terms = own_terms(rates, work, bandwidth, wide, count, TILES[entry.name])
            size = f"int{8 * work.wide}"
            yield _candidate("wide", f"{8 * work.wide}-bit multiplications", (size,), entry.name, 0, terms)
        elif work.anchored > runner.anchored_cost():
            terms = own_terms(rates, work, bandwidth, runner.anchored_cost(), count)
            yield _candidate("anchored", "sums of about 100 bits by FMA", ("fp64",), entry.name, 0, terms)
        elif work.moduli:
            terms = residue_terms(rates, work, bandwidth, count, TILES[entry.name])
            yield _candidate(scheme, encoding, _FORMATS, entry.name, work.moduli, terms)
        else:
            detail = "no INT8 residue system covers the window"
            yield rejected(scheme, encoding, _FORMATS, "window", detail, engine=entry.name)
        if long:
            terms = long_terms(rates, work, bandwidth, count)
            yield _candidate("long accumulator", "4096-bit sums", (), entry.name, 0, terms)


def _candidate(
    scheme: str, encoding: str, formats: tuple[str, ...], engine: str, products: int, terms: dict[str, float]
) -> Candidate:
    moduli = products if scheme == "residues" else 0
    bound = max(terms, key=terms.__getitem__)
    return Candidate(
        scheme, encoding, formats, engine, products, moduli, "slower", time_s=total(terms), terms=terms, bound=bound
    )


def _ranked(found: list[Candidate]) -> tuple[Candidate, ...]:
    """As `ranked`, but among candidates that the record cannot tell apart the default engine's is chosen."""
    order = ranked(found)
    priced = [c for c in order if c.status != "rejected" and c.time_s is not None]
    default = _native_name()
    near = [c for c in priced if c.engine == default and c.time_s <= (1 + RESOLUTION) * priced[0].time_s]  # type: ignore[operator]
    if not near or near[0] is priced[0]:
        return order
    rest = [c for c in order if c is not near[0]]
    return (replace(near[0], status="chosen"), replace(rest[0], status="slower", detail="a tie"), *rest[1:])


def work_of(problem: Problem, accuracy: str | Bits, overflow: str = "raise") -> Work:
    """What a problem without data asks of an engine."""
    sizes = problem.m, problem.k, problem.n, problem.batch
    if problem.integer:
        narrow = problem.bits is None and all(np.dtype(name).itemsize == 1 for name in problem.dtypes)
        if narrow or max(problem.kept(accuracy)) <= 6:  # values span at most 255
            return Work(*sizes, "direct", 1)
        window = problem.window(accuracy)
        return Work(*sizes, "integers", moduli_needed(window) or 0, wide_bytes(problem.dtypes, overflow, window))
    way = "fast" if isinstance(accuracy, Bits) else {"fp32": "fp64"}.get(accuracy, accuracy)
    moduli = moduli_needed(problem.window(accuracy)) or 0
    anchored = 0.0
    if not isinstance(accuracy, Bits):
        small = problem.m * problem.k * problem.n <= SMALL_PRODUCT  # rounded correctly in every grade
        anchored = math.inf if small else moduli if accuracy == "exact" else 0.0
        way = "exact" if small else way
    return Work(*sizes, way, moduli, anchored=anchored)


def wide_bytes(dtypes: tuple[str, str], overflow: str, window: int) -> int:
    """Bytes of integers modulo whose range a product may be taken: all that wraps, and what stays below 2^63; or 0."""
    if overflow == "wrap":
        common = np.result_type(*dtypes)
        return 0 if common.kind == "b" else max(4, common.itemsize)
    return 8 if window < 1 << 63 else 0


def thread_count(threads: int | None) -> int:
    """Threads that the native engine takes."""
    core = native.load()
    return threads if threads is not None else int(core.default_threads()) if core is not None else 1


def _native(request: Request, record: Device, threads: int) -> Candidate:
    """NumPy's FP64 product: priced for comparison; it is no engine."""
    kernel, rates = request.kernel, record.nominal()
    arithmetic, traffic = kernel.flops / rates.fp64 / threads, kernel.bytes / rates.memory
    terms = {"mma": arithmetic, "mem": traffic, "dec": 0.0, "rec": 0.0, "call": _BLAS_CALL_S}
    base = Candidate(
        "native", "FP64 units", ("fp64",), None, 1, 0, "slower", time_s=_BLAS_CALL_S + max(arithmetic, traffic),
        terms=terms, bound="mma" if arithmetic >= traffic else "mem",
    )  # fmt: skip
    judged = judged_native(base, request)
    if judged.status == "rejected" or not isinstance(request.problem, Problem):
        return judged
    if request.integer:
        detail = "NumPy's BLAS is no engine: threads= and Ctrl-C do not reach it"
        return replace(judged, status="rejected", reason="not-run-here", detail=detail)
    detail = "NumPy's BLAS: bits vary with library, threads and blocking"
    return replace(judged, status="rejected", reason="not-reproducible", detail=detail)


def _instruction_set(engine: str | None) -> str | None:
    """The engine asked for by the name that the record has; ValueError or EngineUnavailable as `get_engine`."""
    if engine is None:
        return None
    get_engine(engine)
    return _native_name() if engine == "native" else engine


@lru_cache(maxsize=1)
def _native_name() -> str | None:
    """The instruction set that "native" stands for."""
    found = [e.name for e in engines() if e.name.startswith("native-") and e.available]
    return found[-1] if found else None


def _whole(size: int, tile: int) -> int:
    return -(-size // tile) * tile


__all__ = ["Work", "host_record", "plan_for_host", "residue_terms", "work_of"]
