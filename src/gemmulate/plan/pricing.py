"""Candidates on a device of the catalogue, priced by the four-term model with the ranges of the device's figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Final

import numpy as np

from gemmulate.encodings import Catalogue, UnknownEncoding, WindowTooLarge, design
from gemmulate.encodings.rates import Rates as FormatRates
from gemmulate.formats import get as get_format
from gemmulate.model.checks import ModelError
from gemmulate.model.device import Device, Rates
from gemmulate.model.kernels import Kernel
from gemmulate.model.predict import Method, method, native_rate, predict
from gemmulate.model.schemes import SCHEMES
from gemmulate.model.terms import t_native
from gemmulate.plan.candidates import Candidate, PricedPlan, rejected
from gemmulate.plan.problem import Problem
from gemmulate.schemes.accuracy import Bits

# Format -> the scheme of the model whose unit multiplies it.
_FORMATS: Final[dict[str, str]] = {
    "int8": "residues-int8", "fp8_e4m3": "residues-fp8", "fp4_e2m1": "residues-fp4",
}  # fmt: skip
_UNIT_FORMATS: Final = {"int8": "int8", "fp8": "fp8_e4m3", "fp4": "fp4_e2m1"}
_FP64_BITS: Final = 53


@dataclass(frozen=True)
class Request:
    """What is asked for: a problem or a kernel, the accuracy, and how the terms combine."""

    problem: Problem | Kernel
    accuracy: str | Bits
    composition: str
    c_q: float | None

    @property
    def kernel(self) -> Kernel:
        """The model's counts."""
        return self.problem.kernel() if isinstance(self.problem, Problem) else self.problem

    @property
    def label(self) -> str:
        """The accuracy as tables name it."""
        return "exact integers" if self.integer else str(self.accuracy)

    @property
    def integer(self) -> bool:
        """Whether the operands are integers."""
        return isinstance(self.problem, Problem) and self.problem.integer


def plan_for_device(request: Request, device: Device, *, overflow: str = "raise") -> PricedPlan:
    """All candidates on a device, cheapest first. None of them runs here; the bits are those of any engine.

    Raises ModelError for an unknown composition or a c_q outside its range.
    """
    method("residues-int8", composition=request.composition, c_q=request.c_q)  # refuses bad numbers before the work
    found = list(_candidates(request, device))
    problem = request.problem
    sized = problem if isinstance(problem, Problem) else None
    return PricedPlan(
        problem=str(sized) if sized else f"{request.kernel.name} {request.kernel.size}",
        device=device.name,
        accuracy=request.label,
        composition=f"composition {request.composition}",
        bits=sized.kept(request.accuracy) if sized else None,
        window_bits=sized.window(request.accuracy).bit_length() + 1 if sized else None,
        here=False,
        threads=None,
        overflow=overflow,
        candidates=ranked(found),
    )


def ranked(found: list[Candidate]) -> tuple[Candidate, ...]:
    """The priced candidates by time, the first of them chosen, then the rejected ones."""
    priced = sorted((c for c in found if c.status != "rejected"), key=lambda c: c.time_s or 0.0)
    first = [replace(c, status="chosen" if index == 0 else "slower") for index, c in enumerate(priced)]
    return (*first, *(c for c in found if c.status == "rejected"))


def _candidates(request: Request, device: Device) -> Iterator[Candidate]:
    yield _native(request, device)
    if request.integer:
        for name in _FORMATS:
            yield _direct(request, device, name)
    owned = [name for name in _FORMATS if SCHEMES[_FORMATS[name]].rate(device.nominal()) is not None]
    for name in _FORMATS:
        if name not in owned:
            detail = f"{device.name} has no {SCHEMES[_FORMATS[name]].unit} rate"
            yield rejected("residues", "one set of moduli", (name,), "no-unit", detail)
            continue
        yield _residues(request, device, (name,))
    if len(owned) > 1 and isinstance(request.problem, Problem):
        mixed = _residues(request, device, tuple(owned))
        if mixed.status != "rejected" and len(mixed.formats) > 1:  # else it repeats one of the above
            yield mixed
    yield _slices(request, device)


def _native(request: Request, device: Device) -> Candidate:
    """FP64 units: conventional accuracy, exact for integers whose window fits 53 bits."""
    kernel, nominal = request.kernel, device.nominal()

    def seconds(rates: Rates) -> float:
        return rates.call_overhead + t_native(kernel.flops, kernel.bytes, native_rate(rates, kernel), rates.memory)

    arithmetic, traffic = kernel.flops / native_rate(nominal, kernel), kernel.bytes / nominal.memory
    uncertain = tuple(key for key in device.uncertain() if key in ("fp64", "fp64_tensor", "memory", "call_overhead"))
    seen = [seconds(rates) for rates in device.corners(uncertain)]
    base = Candidate(
        "native", "FP64 units", ("fp64",), None, 1, 0, "slower", time_s=seconds(nominal),
        range_s=(min(seen), max(seen)), terms={"mma": arithmetic, "mem": traffic, "dec": 0.0, "rec": 0.0},
        bound="mma" if arithmetic >= traffic else "mem",
    )  # fmt: skip
    return judged_native(base, request)


def judged_native(base: Candidate, request: Request) -> Candidate:
    """The FP64 product accepted, or rejected because it is not as exact as was asked for."""
    if request.integer:
        assert isinstance(request.problem, Problem)
        bits = request.problem.window(request.accuracy).bit_length()
        if bits > _FP64_BITS:
            detail = f"sums of {bits} bits exceed the {_FP64_BITS} of FP64"
            return replace(base, status="rejected", reason="inexact", detail=detail)
        return replace(base, detail="exact: every sum fits 53 bits")
    if request.accuracy == "exact":
        detail = "every addition rounds; exact means one rounding"
        return replace(base, status="rejected", reason="accuracy", detail=detail)
    if isinstance(request.accuracy, Bits) and request.accuracy.n > _FP64_BITS:
        detail = f"{request.accuracy.n} bits were asked for, FP64 has {_FP64_BITS}"
        return replace(base, status="rejected", reason="accuracy", detail=detail)
    return replace(base, detail="conventional bound; bits vary with the library")


def _direct(request: Request, device: Device, format_name: str) -> Candidate:
    """One encoding of whole integers: a single narrow product, or the few planes of the catalogue."""
    problem, scheme = request.problem, SCHEMES[_FORMATS[format_name]]
    assert isinstance(problem, Problem)
    if scheme.rate(device.nominal()) is None:
        return rejected("direct", "–", (format_name,), "no-unit", f"{device.name} has no {scheme.unit} rate")
    widths = problem.kept(request.accuracy)
    if format_name == "int8":
        products, key, depth = 1, "one INT8 product", (1 << 31) // (255 * 128)
        if max(widths) > 7 + (problem.bits is None and _bytes(problem)):
            detail = f"values of {widths[0]} and {widths[1]} bits; INT8 holds 7 and a sign, or 8 beside a zero point"
            return rejected("direct", key, (format_name,), "too-wide", detail)
    else:
        key = f"{_range(problem, 0)}.{_range(problem, 1)}.{format_name}"
        try:
            encoding = Catalogue().get(key)
        except (UnknownEncoding, ValueError):
            return rejected("direct", key, (format_name,), "no-encoding", f"the catalogue has no {key}")
        accumulator = _rates(device).accumulator(format_name)
        products, depth = encoding.products, encoding.max_depth(accumulator)
        if depth < 1:
            return rejected("direct", key, (format_name,), "accumulator", f"no sum is exact in {accumulator}")
    how = method(
        scheme.name, r=1, alpha=products, residue_bytes=products * get_format(format_name).bits / 8,
        c_q=request.c_q, composition=request.composition,
    )  # fmt: skip
    detail = "" if problem.k <= depth else f"k is cut every {depth} terms, where the accumulator stops being exact"
    return replace(
        priced(request, device, how), scheme="direct", encoding=key, formats=(format_name,), products=products,
        moduli=0, detail=detail,
    )  # fmt: skip


def _residues(request: Request, device: Device, names: tuple[str, ...]) -> Candidate:
    """The cheapest set of moduli of the catalogue over one format, or over all that the device has."""
    problem = request.problem
    if isinstance(problem, Kernel):
        how = method(_FORMATS[names[0]], c_q=request.c_q, composition=request.composition)
        return priced(request, device, how)
    try:
        found = design(k=problem.k, window=2 * problem.window(request.accuracy), device=_rates(device), formats=names)
    except ImportError as error:
        return rejected("residues", "–", names, "missing-solver", str(error))
    except WindowTooLarge as error:
        return rejected("residues", "–", names, "window", f"the moduli reach {error.reach_bits:.0f} bits")
    except UnknownEncoding as error:
        return rejected("residues", "–", names, "accumulator", str(error).split(";")[0])
    counts = found.products_by_format
    # α in operations of the unit that `method` prices: products of other formats count by their rates.
    unit = max(counts, key=counts.__getitem__)
    rates = found.rates
    alpha = float(sum(n * rates.of(unit) / rates.of(name) for name, n in counts.items()))
    how = method(
        _FORMATS[unit], r=len(found.moduli), alpha=alpha, c_q=request.c_q, composition=request.composition,
        residue_bytes=sum(n * get_format(name).bits / 8 for name, n in counts.items()),
    )  # fmt: skip
    proof = "cheapest of the catalogue" if found.optimal else f"within {float(found.cost / found.bound) - 1:.1%}"
    return replace(
        priced(request, device, how), formats=tuple(counts), products=found.products,
        encoding=f"{len(found.moduli)} moduli up to {max(found.moduli)}, {proof}",
    )  # fmt: skip


def _slices(request: Request, device: Device) -> Candidate:
    """Slices of 8 bits, those products alone that reach the result's leading bits: a normwise bound."""
    if request.integer:
        return rejected("slices", "8-bit slices", ("int8",), "inexact", "the products of low slices are dropped")
    if isinstance(request.problem, Problem) and request.accuracy not in ("fast",) and not _is_bits(request):
        detail = f'slices bound the error by row and column norms; "{request.accuracy}" asks for more'
        return rejected("slices", "8-bit slices", ("int8",), "accuracy", detail)
    if device.nominal().int8 is None:
        return rejected("slices", "8-bit slices", ("int8",), "no-unit", f"{device.name} has no int8 rate")
    count = None
    if isinstance(request.problem, Problem):
        count = ceil((max(request.problem.kept(request.accuracy)) + 1) / 8)
    how = method("slices-int8", r=count, c_q=request.c_q, composition=request.composition)
    return replace(priced(request, device, how), encoding=f"{how.r} slices of 8 bits", detail="normwise bound")


def _is_bits(request: Request) -> bool:
    return isinstance(request.accuracy, Bits)


def priced(request: Request, device: Device, how: Method) -> Candidate:
    """An emulated candidate with its price, or rejected where the device lacks a rate."""
    scheme = "slices" if how.scheme.quadratic else "residues"
    formats = (_UNIT_FORMATS[how.scheme.unit],)
    try:
        found = predict(device, request.kernel, how)
    except ModelError as error:
        reason = "no-unit" if how.scheme.rate(device.nominal()) is None else "no-integer-rate"
        return rejected(scheme, "–", formats, reason, str(error).split(", which")[0])
    return Candidate(
        scheme, f"{how.r} moduli", formats, None, how.alpha, how.r, "slower", time_s=found.emulated_s,
        range_s=found.emulated_range_s, terms=dict(found.terms), bound=found.bound,
    )  # fmt: skip


def _rates(device: Device) -> FormatRates:
    """The device's nominal rates by format, as designs are priced: also of a device that is not in the catalogue."""
    nominal = device.nominal()
    known = {name: SCHEMES[scheme].rate(nominal) for name, scheme in _FORMATS.items()}
    accumulators = {"fp8_e4m3": device.fp8_accumulator} if device.fp8_accumulator else {}
    return FormatRates(device.name, {name: Fraction(rate) for name, rate in known.items() if rate}, accumulators)


def _range(problem: Problem, side: int) -> str:
    """The catalogue's name of an operand's range: its dtype's, or −2^bits … 2^bits where bits are given."""
    if problem.bits is not None:
        return f"pm{1 << problem.bits[side]}"
    found = np.dtype(problem.dtypes[side])
    return "uint1" if found.kind == "b" else found.name


def _bytes(problem: Problem) -> bool:
    """Whether both dtypes span 256 values at most, which a zero point brings into INT8."""
    return all(np.dtype(name).itemsize == 1 for name in problem.dtypes)
