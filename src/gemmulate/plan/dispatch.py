"""From what `gm.plan` was given (data, a problem or a kernel; a device or none) to the candidates that are priced."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmulate.engines.residue_system import moduli_needed
from gemmulate.model.device import Device, load_device
from gemmulate.model.kernels import Kernel
from gemmulate.plan.candidates import PricedPlan
from gemmulate.plan.host import Work, host_record, plan_for_host, wide_bytes, work_of
from gemmulate.plan.pricing import Request, plan_for_device
from gemmulate.plan.problem import Problem
from gemmulate.schemes.floats import SMALL_PRODUCT

if TYPE_CHECKING:
    from gemmulate.plan.plan import Plan


def dispatch(
    a: Any, b: Any, device: str | Path | Device | None, options: dict[str, Any], composition: str, c_q: float | None
) -> PricedPlan:
    """The priced plan of a problem, a kernel, or two operands on a device (None: this machine)."""
    found = load_device("host" if device is None else device) if not isinstance(device, Device) else device
    work: Work | None = None
    if isinstance(a, Problem | Kernel):
        if b is not None:
            raise TypeError(f"b = {type(b).__name__} beside a {type(a).__name__}, which describes both; leave b out")
        problem: Problem | Kernel = a
    else:
        from gemmulate.plan.plan import plan

        if b is None:
            raise TypeError("b is missing: give two operands, a gm.Problem, or a kernel of gm.model")
        here = plan(a, b, **options)
        described = described_data(here)
        if described is None:
            raise TypeError(
                f"operands of dtypes {here.dtypes[:2]} are not priced; give real or complex floats or integers"
            )
        problem, work = described
    request = Request(problem, options["accuracy"], composition, c_q)
    if found.kind == "cpu" and found.engines:
        return plan_for_host(
            request, found, work=work, engine=options["engine"], threads=options["threads"], settings=options
        )
    for name in ("engine", "threads"):
        if options[name] is not None:
            raise ValueError(f"{name} = {options[name]!r} is for this machine, not for {found.name}; leave it out")
    return plan_for_device(request, found, overflow=options["overflow"])


def priced_here(found: Plan) -> PricedPlan | None:
    """The candidates on this machine for a plan made from data; None for types and shapes that are not priced."""
    described = described_data(found)
    if described is None:
        return None
    problem, work = described
    settings = {
        "accuracy": found.accuracy, "overflow": found.overflow, "engine": found.engine, "threads": found.threads,
    }  # fmt: skip
    return plan_for_host(
        Request(problem, found.accuracy, "published", None), host_record(), work=work,
        engine=None if found.engine == "native" else found.engine, threads=found.threads, settings=settings,
    )  # fmt: skip


def described_data(found: Plan) -> tuple[Problem, Work] | None:
    """The problem and the work that the data of a plan ask for: their own bits and moduli."""
    m, k, n = found.shape
    batch = math.prod(found.batch)
    if found.modulus is not None or found.plane_formats:
        return None
    if found.scheme in ("empty", "limbs") or "double-double" in found.dtypes or "object" in found.dtypes[:2]:
        return None
    kind, parts = found.dtypes[2], 1
    if kind.startswith("complex"):
        parts = 2
        k, batch = 2 * k, 2 * batch  # real and imaginary part: two products of twice the depth
    integer = np.dtype(found.dtypes[0]).kind in "biu" and np.dtype(found.dtypes[1]).kind in "biu"
    narrow = integer and all(np.dtype(name).itemsize == 1 for name in found.dtypes[:2])
    dtypes = (
        found.dtypes[:2] if integer else 2 * ("float32" if kind in ("float32", "float16", "bfloat16") else "float64",)
    )
    bits = None if narrow or found.scheme in ("long accumulator", "anchored") else found.bits
    problem = Problem(m, k, n, (dtypes[0], dtypes[1]), bits, batch)
    if integer:
        if found.scheme == "direct":
            return problem, Work(m, k, n, batch, "direct", 1)
        bound = 1 << (found.window_bits - 1)  # of a wide product no moduli are named
        wide = wide_bytes((dtypes[0], dtypes[1]), found.overflow, bound)
        return problem, Work(m, k, n, batch, "integers", len(found.moduli) or moduli_needed(bound) or 0, wide)
    if found.scheme == "anchored":
        work = work_of(problem, "exact")
        return problem, replace(work, anchored=math.inf)  # what the data asked for
    small = m * k * n <= SMALL_PRODUCT and found.scheme != "long accumulator"
    if small and isinstance(found.accuracy, str) and kind in ("float32", "float64", "complex64", "complex128"):
        return problem, Work(m, k, n, batch, "exact", len(found.moduli), anchored=math.inf)
    named = "fast" if not isinstance(found.accuracy, str) else {"fp32": "fp64"}.get(found.accuracy, found.accuracy)
    assessed = found.products // parts > len(found.moduli)
    # A product that keeps every bit needs no componentwise test: it costs what "fast" does.
    return problem, Work(m, k, n, batch, "fast" if named == "fp64" and not assessed else named, len(found.moduli))
