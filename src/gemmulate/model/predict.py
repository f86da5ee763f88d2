"""Predict the time of a kernel, native and emulated, with the range that the device's uncertain figures leave."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from gemmulate.model.checks import MAX_R, MIN_NUMBER, ModelError, check_choice, check_integer, check_number
from gemmulate.model.device import Device, Rates
from gemmulate.model.kernels import FLOAT64, Kernel
from gemmulate.model.schemes import (
    C_REC_FUSED,
    C_REC_STAGED,
    C_REQUANTISE,
    Constant,
    SchemeCost,
    default_c_q,
    scheme_cost,
)
from gemmulate.model.terms import COMPOSITIONS, Terms, t_dec, t_mem, t_mma, t_native, t_rec

Pipeline = Literal["fused", "staged"]
PIPELINES: Final[tuple[Pipeline, ...]] = ("fused", "staged")
MEASURED_SCHEME: Final = "residues-int8"  # what a device's own c_q and c_rec are of
_GIVEN: Final = "given"
INT32 = 4  # bytes of an accumulator that a staged pipeline writes and reads back


@dataclass(frozen=True)
class Method:
    """How a kernel is emulated: scheme, r, costs, pipeline and composition, all checked."""

    scheme: SchemeCost
    r: int
    c_q: Constant
    c_rec: Constant
    alpha: float
    residue_bytes: float  # of one prepared input
    composition: str
    pipeline: Pipeline
    uses: float  # products that share one conversion of the reusable operand; inf when precomputed


@dataclass(frozen=True)
class Prediction:
    """Predicted seconds and speed-up, with ranges (least, greatest) over the device's and the costs' spans."""

    device: str
    kernel: str
    size: str
    scheme: str
    r: int
    c_q: float
    c_rec: float
    alpha: float
    beta: float
    composition: str
    pipeline: str
    uses: float | None
    flop_per_input: float
    native_s: float
    native_bound: str
    emulated_s: float
    speedup: float
    terms: Mapping[str, float]
    stages: Mapping[str, float] | None
    bound: str
    native_range_s: tuple[float, float]
    emulated_range_s: tuple[float, float]
    speedup_range: tuple[float, float]
    uncertain: tuple[str, ...]
    sources: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The prediction as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class _Point:
    """One evaluation at definite rates."""

    native_s: float
    emulated_s: float
    terms: Mapping[str, float]
    stages: Mapping[str, float] | None
    bound: str


def method(
    scheme: str,
    *,
    r: int | None = None,
    c_q: float | None = None,
    c_rec: float | None = None,
    alpha: float | None = None,
    residue_bytes: float | None = None,
    composition: str = "published",
    pipeline: Pipeline = "fused",
    precomputed: bool = False,
    reuse: float = 1.0,
) -> Method:
    """A checked way to emulate.

    r: moduli (slices), 1 … 1024; the scheme's for FP64 if not given. c_q, c_rec: 32-bit integer operations for each
    input (output) and modulus, ≥ 0; sourced constants if not given. alpha: narrow operations for each FP64 operation.
    residue_bytes: of one prepared input. reuse ≥ 1: products that share one conversion of the reusable operand;
    precomputed: it was converted before, and only its residues are read.

    Raises:
        ModelError: an unknown name, or a number outside its range.

    >>> method("residues-fp8", r=12).alpha
    37.0
    """
    cost = scheme_cost(scheme)
    check_choice("composition", composition, COMPOSITIONS)
    check_choice("pipeline", pipeline, PIPELINES)
    moduli = cost.r_default if r is None else check_integer("r", r, MAX_R)
    if pipeline == "staged" and composition != "published":
        raise ModelError(f"composition {composition!r} is for the fused pipeline; stages always run one after another")
    uses = math.inf if precomputed else check_number("reuse", reuse, 1.0)
    if precomputed and reuse != 1:
        raise ModelError("precomputed means converted beforehand; give either it or reuse")
    staged = pipeline == "staged"
    return Method(
        scheme=cost,
        r=moduli,
        c_q=_constant("c_q", c_q, default_c_q(cost)),
        c_rec=_constant("c_rec", c_rec, C_REC_STAGED if staged else C_REC_FUSED),
        alpha=cost.products(moduli) if alpha is None else check_number("alpha", alpha, MIN_NUMBER),
        residue_bytes=(
            cost.bytes_per_r * moduli
            if residue_bytes is None
            else check_number("residue_bytes", residue_bytes, MIN_NUMBER)
        ),
        composition=composition,
        pipeline=pipeline,
        uses=uses,
    )


def predict(device: Device, kernel: Kernel, how: Method) -> Prediction:
    """Time and speed-up of `kernel` on `device`, emulated as `how` says, beside native FP64.

    Ranges hold every combination of the values that sources give for the device, and of the costs' spans. The model
    knows no launch overheads, caches, clocks under load or efficiency below peak unless the device's figures do.

    Raises:
        ModelError: the device lacks a rate that is needed.

    Source: arXiv 2606.06510 (three terms), arXiv 2610.10924 (T_dec).

    >>> from gemmulate.model import gemv, load_device
    >>> p = predict(load_device("b300"), gemv(16384, 16384), method("residues-fp8", r=12, c_q=6))
    >>> round(p.speedup, 2), p.bound
    (0.44, 'dec')
    """
    how = own_costs(device, how)
    check(device, kernel, how)
    nominal = device.nominal()
    at = evaluate(nominal, kernel, how, how.c_q.value, how.c_rec.value)
    points = [
        evaluate(rates, kernel, how, c_q, c_rec)
        for rates in _with_kinks(device.corners(relevant(device, kernel, how)), kernel)
        for c_q, c_rec in itertools.product({how.c_q.low, how.c_q.high}, {how.c_rec.low, how.c_rec.high})
    ]
    counted = how.composition != "three_term" and how.c_q.low < how.c_q.high
    names = [*relevant(device, kernel, how), *(["c_q"] if counted else [])]
    fp64 = native_rate(nominal, kernel)
    return Prediction(
        device=device.name,
        kernel=kernel.name,
        size=kernel.size,
        scheme=how.scheme.name,
        r=how.r,
        c_q=how.c_q.value,
        c_rec=how.c_rec.value,
        alpha=how.alpha,
        beta=_beta(kernel, how),
        composition="staged" if how.pipeline == "staged" else how.composition,
        pipeline=how.pipeline,
        uses=None if math.isinf(how.uses) else how.uses,
        flop_per_input=kernel.flop_per_input,
        native_s=at.native_s,
        native_bound="fp64" if kernel.flops / fp64 >= kernel.bytes / nominal.memory else "memory",
        emulated_s=at.emulated_s,
        speedup=at.native_s / at.emulated_s,
        terms=at.terms,
        stages=at.stages,
        bound=at.bound,
        native_range_s=_span(point.native_s for point in points),
        emulated_range_s=_span(point.emulated_s for point in points),
        speedup_range=_span(point.native_s / point.emulated_s for point in points),
        uncertain=tuple(names),
        sources={"alpha": how.scheme.source, "c_q": how.c_q.source, "c_rec": how.c_rec.source},
    )


def own_costs(device: Device, how: Method) -> Method:
    """The method with what conversion and reconstruction were measured to cost on the device, where none was given.

    Devices that `gemmulate model calibrate` measured bring c_q and c_rec of INT8 residues in the order in which their
    engine works; both are for that scheme alone, and c_rec holds the reduction that a staged pipeline counts apart.
    """
    if how.scheme.name != MEASURED_SCHEME or how.pipeline != "fused":
        return how
    return replace(how, c_q=_measured(device, "c_q", how.c_q), c_rec=_measured(device, "c_rec", how.c_rec))


def _measured(device: Device, key: str, otherwise: Constant) -> Constant:
    """A cost that the device's record brings, unless one was given."""
    if key not in device.si or otherwise.source == _GIVEN:
        return otherwise
    values = device.si[key]
    return Constant(values[0], min(values), max(values), device.figures[key][0].source)


def check(device: Device, kernel: Kernel, how: Method) -> None:
    """Refuse what the device or the kernel cannot answer."""
    rates = device.nominal()
    unit = how.scheme.unit
    if how.scheme.rate(rates) is None:
        raise ModelError(f"{device.name} has no {unit} rate, which {how.scheme.name} needs; choose another scheme")
    if rates.int32 is None and needs_integers(how):
        raise ModelError(
            f"{device.name} has no integer rate (int32, or sms with int32_lanes_per_sm and fp64_lanes_per_sm), which "
            "T_dec and T_rec need; give a .toml file with it, or composition three_term with c_rec = 0"
        )
    if not kernel.reusable and how.uses != 1:
        raise ModelError(f"{kernel.name} has no operand to convert beforehand: its input changes with every call")
    if how.pipeline == "staged" and kernel.name != "gemm":
        raise ModelError(f"the staged pipeline is for gemm, not {kernel.name}")


def needs_integers(how: Method) -> bool:
    """Whether T_dec or T_rec count, so that the integer rate matters."""
    return how.composition != "three_term" or how.c_rec.high > 0


def relevant(device: Device, kernel: Kernel, how: Method) -> tuple[str, ...]:
    """The device's uncertain quantities that this prediction depends on."""
    native = "fp64_tensor" if kernel.tensor and "fp64_tensor" in device.si else "fp64"
    used = {native, how.scheme.unit, "memory", "call_overhead", "emulation_overhead"}
    if needs_integers(how):
        used |= {"int32"} if "int32" in device.si else {"sms", "int32_lanes_per_sm", "clock"}
    return tuple(key for key in device.uncertain() if key in used)


def native_rate(rates: Rates, kernel: Kernel) -> float:
    """Native FLOP/s: the FP64 matrix unit's where the kernel can use it."""
    return rates.fp64_tensor or rates.fp64 if kernel.tensor else rates.fp64


def evaluate(rates: Rates, kernel: Kernel, how: Method, c_q: float, c_rec: float) -> _Point:
    """One evaluation at definite rates and costs."""
    native_s = rates.call_overhead + t_native(kernel.flops, kernel.bytes, native_rate(rates, kernel), rates.memory)
    # Without an integer rate only what needs none passes `check`; infinity gives T_dec and T_rec the value 0.
    int32 = math.inf if rates.int32 is None else rates.int32
    narrow = how.scheme.rate(rates)
    assert narrow is not None  # `check`
    # Converted per product: everything, or the rest and a share of the reusable operand.
    converted = kernel.other_inputs + kernel.reusable_inputs / how.uses
    mma = t_mma(how.alpha, kernel.flops, narrow)
    dec = t_dec(c_q, how.r, converted, int32)
    rec = t_rec(c_rec, how.r, kernel.outputs, int32)
    if how.pipeline == "staged":
        return _staged(rates, kernel, how, converted, native_s, mma, dec, rec, int32)
    terms = Terms(mma, t_mem(_beta(kernel, how), kernel.bytes, rates.memory), dec, rec)
    emulated_s = rates.call_overhead + rates.emulation_overhead + COMPOSITIONS[how.composition](terms)
    return _Point(native_s, emulated_s, asdict(terms), None, _bound(asdict(terms), how.composition))


def _staged(
    rates: Rates,
    kernel: Kernel,
    how: Method,
    converted: float,
    native_s: float,
    mma: float,
    dec: float,
    rec: float,
    int32: float,
) -> _Point:
    """Four passes over memory, one after another: convert, multiply, requantise, recombine."""
    # Products whose INT32 (or FP32) sums are written: as many as α.
    sums = how.alpha * kernel.outputs
    # Converting reads the input twice (row maxima, then scaling).
    traffic = {
        "convert": (2 * FLOAT64 + how.residue_bytes) * converted,
        "multiply": how.residue_bytes * kernel.inputs + INT32 * sums,
        "requantise": INT32 * sums + how.r * kernel.outputs,
        "recombine": (how.r + FLOAT64) * kernel.outputs,
    }
    requantise = t_dec(C_REQUANTISE, 1, sums, int32)
    compute = {"convert": dec, "multiply": mma, "requantise": requantise, "recombine": rec}
    stages = {name: max(compute[name], traffic[name] / rates.memory) for name in compute}
    terms = {
        "mma": mma,
        "mem": sum(traffic.values()) / rates.memory,
        "dec": dec,
        "rec": rec,
        "requantise": stages["requantise"],
    }
    return _Point(
        native_s,
        rates.call_overhead + rates.emulation_overhead + sum(stages.values()),
        terms,
        stages,
        max(stages, key=stages.__getitem__),
    )


def _beta(kernel: Kernel, how: Method) -> float:
    """β: emulated traffic over native traffic.

    Fused: 1. With residues kept, each product reads them instead of the values, and a share of the conversion's own
    traffic (values in, residues out) is added.
    """
    if how.uses == 1:
        return 1.0
    values = kernel.reusable_bytes / FLOAT64
    conversion = 0.0 if math.isinf(how.uses) else values * (FLOAT64 + how.residue_bytes) / how.uses
    return (values * how.residue_bytes + conversion + kernel.other_bytes) / kernel.bytes


def _bound(terms: Mapping[str, float], composition: str) -> str:
    counted = {key: value for key, value in terms.items() if composition != "three_term" or key != "dec"}
    return max(counted, key=counted.__getitem__)


def _with_kinks(corners: Iterable[Rates], kernel: Kernel) -> list[Rates]:
    """The corners, and the bandwidth between them at which the native kernel turns from memory- to compute-bound.

    Bandwidth is the one rate on both sides of the ratio. While native is memory-bound the speed-up never rises with
    it, afterwards it never falls, so its least value may lie there; every other rate moves it one way.
    """
    points = list(corners)
    low, high = _span(rates.memory for rates in points)
    kinks = [replace(rates, memory=kernel.bytes * native_rate(rates, kernel) / kernel.flops) for rates in points]
    return points + [rates for rates in kinks if low < rates.memory < high]


def _span(values: Iterable[float]) -> tuple[float, float]:
    seen = list(values)
    return min(seen), max(seen)


def _constant(name: str, value: float | None, default: Constant) -> Constant:
    if value is None:
        return default
    number = check_number(name, value)
    return Constant(number, number, number, _GIVEN)
