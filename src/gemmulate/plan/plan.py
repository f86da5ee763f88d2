"""A plan says which scheme, over which encoding and formats, an engine will run, why, and how exact the answer is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from gemmulate.engines import get_engine
from gemmulate.engines.base import Array, Engine
from gemmulate.engines.residue_system import moduli_needed
from gemmulate.formats.double_double import DoubleDouble
from gemmulate.model.device import Device
from gemmulate.model.kernels import Kernel
from gemmulate.plan.candidates import PricedPlan
from gemmulate.plan.dispatch import dispatch, priced_here
from gemmulate.plan.double_double import check_pair_options, describe_double_double
from gemmulate.plan.matmul import Accuracy, Overflow, check_options, complex_parts, integer_result, matmul
from gemmulate.plan.operands import Stack, as_operand, as_stack, common_kind, kernel_view
from gemmulate.plan.problem import Problem
from gemmulate.schemes.accuracy import Bits, Grade
from gemmulate.schemes.blocks import packed_bytes
from gemmulate.schemes.floats import choose_floats
from gemmulate.schemes.integers import choose_for_ranges, choose_integers, magnitude_bits

_EXACTNESS = {
    "fast": "|C − AB| ≤ 2u·k·max|row|·max|column|, proven from norms",
    "componentwise": "|C − AB| ≤ k·u·|A||B| for every element, proven",
    "exact": "correctly rounded",
}

_PAIR = "double-double"


def _exactness(grade: Grade | Bits) -> str:
    if isinstance(grade, Bits):
        n = grade.n
        return f"|C − AB| ≤ (2^{1 - n} + 2^{-2 * n})·k·max|row|·max|column| + u·|A'B'|, A' and B' of {n} bits"
    return _EXACTNESS[grade]


@dataclass(frozen=True)
class Plan:
    """What `matmul` will do with two operands. Plain data: `run` executes, `explain` tells, `to_json` exports."""

    shape: tuple[int, int, int]  # m, k, n
    batch: tuple[int, ...]
    dtypes: tuple[str, str, str]  # a, b, result
    accuracy: str | Bits
    overflow: str
    engine: str
    threads: int | None
    scheme: str  # "direct", "residues", "wide", "long accumulator", "limbs", "empty"
    formats: tuple[str, ...]
    moduli: tuple[int, ...]
    products: int  # INT8 matrix products, assessment included
    bits: tuple[int, int]  # kept of a and b
    window_bits: int  # |integer result| < 2^(window_bits − 1)
    repaired: int  # elements already known to need the long accumulator
    packed_bytes: int  # beyond inputs and output
    exactness: str
    reasons: tuple[tuple[str, str, str], ...]  # (step, choice, why)
    priced: PricedPlan | None = None  # the candidates on this machine; None for types that are not priced

    def run(self, a: Any, b: Any, *, out: Array | None = None) -> Any:
        """The product, with this plan's settings; bits are chosen anew for the data given."""
        accuracy: Any = self.accuracy
        overflow: Any = self.overflow
        return matmul(a, b, accuracy=accuracy, overflow=overflow, out=out, engine=self.engine, threads=self.threads)

    def to_json(self) -> str:
        """The plan as a JSON object."""
        record = asdict(self) | {"accuracy": str(self.accuracy)}
        record["priced"] = None if self.priced is None else json.loads(self.priced.to_json())
        return json.dumps(record)

    def explain(self) -> str:
        """The plan as a table: step, choice, why; below it the candidates with their prices, terms as bars."""
        head = ("step", "choice", "why")
        rows = [head, *self.reasons]
        width = [max(len(row[c]) for row in rows) for c in range(2)]
        lines = [f"{row[0]:<{width[0]}}  {row[1]:<{width[1]}}  {row[2]}".rstrip() for row in rows]
        lines.insert(1, "  ".join(("─" * width[0], "─" * width[1], "─" * max(len(row[2]) for row in rows))))
        return "\n".join(lines) + ("" if self.priced is None else "\n\n" + self.priced.explain())


@overload
def plan(
    a: Problem | Kernel,
    b: None = None,
    *,
    accuracy: Accuracy | Bits = "fp64",
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = None,
    device: str | Path | Device | None = None,
    composition: str = "published",
    c_q: float | None = None,
) -> PricedPlan: ...


@overload
def plan(
    a: Any,
    b: Any,
    *,
    accuracy: Accuracy | Bits = "fp64",
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = None,
    device: None = None,
    composition: str = "published",
    c_q: float | None = None,
) -> Plan: ...


@overload
def plan(
    a: Any,
    b: Any,
    *,
    accuracy: Accuracy | Bits = "fp64",
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = None,
    device: str | Path | Device,
    composition: str = "published",
    c_q: float | None = None,
) -> PricedPlan: ...


def plan(
    a: Any,
    b: Any = None,
    *,
    accuracy: Accuracy | Bits = "fp64",
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = None,
    device: str | Path | Device | None = None,
    composition: str = "published",
    c_q: float | None = None,
) -> Plan | PricedPlan:
    """Say what `matmul(a, b, …)` will run and why, from the data themselves (of a stack, its first product).

    Takes and raises what `matmul` does; costs the survey of the operands, no product.

    With a `gm.Problem` or a kernel of `gm.model` instead of data, or with a device (a catalogue name, a TOML file,
    "host"), the answer is a `PricedPlan`: every candidate (scheme, encoding, formats, engine, native FP64) priced by
    the four-term model with the ranges of the device's figures, or rejected with a named reason, and the cheapest
    chosen. `composition` and `c_q` are the model's (`gm.model.method`); on "host" the calibrated record counts
    instead. Raises ModelError for a device or composition that does not exist.

    >>> import gemmulate as gm
    >>> p = gm.plan(gm.Problem(4096, 4096, 4096), device="b300", c_q=6)
    >>> p.chosen.scheme, [c.reason for c in p.candidates if c.scheme == "slices"]
    ('residues', ['accuracy'])

    >>> import gemmulate as gm, numpy as np
    >>> p = gm.plan(np.ones((3, 4), dtype=np.int8), np.ones((4, 2), dtype=np.int8))
    >>> p.scheme, p.products, p.exactness
    ('direct', 1, 'exact integers')
    """
    grade = check_options(accuracy, None, overflow)
    if isinstance(a, Problem | Kernel) or device is not None:
        options = {"accuracy": accuracy, "overflow": overflow, "engine": engine, "threads": threads}
        return dispatch(a, b, device, options, composition, c_q)
    runner = get_engine(engine, threads)
    pair_facts: dict[str, Any] | None = None
    if isinstance(a, DoubleDouble) or isinstance(b, DoubleDouble):
        stack, pair_facts = describe_double_double(runner, a, b, check_pair_options(accuracy, None, None))
    else:
        left, right, kind = common_kind(as_operand(a, "a"), as_operand(b, "b"))
        stack = as_stack(left, right)
    facts: dict[str, Any] = {
        "shape": (stack.full_shape[-2], stack.depth, stack.full_shape[-1]),
        "batch": stack.batch,
        "accuracy": accuracy,
        "overflow": overflow,
        "engine": runner.name,
        "threads": threads,
    }
    if pair_facts is not None:
        names = [_PAIR if isinstance(x, DoubleDouble) else str(np.asarray(x).dtype) for x in (a, b)]
        return Plan(dtypes=(names[0], names[1], _PAIR), **facts, **pair_facts)
    if kind in ("float", "complex"):
        facts |= _describe_floats(runner, stack, grade)
    else:
        facts |= _describe_integers(runner, stack, kind, overflow)
    found = Plan(dtypes=(str(left.dtype), str(right.dtype), facts.pop("result")), **facts)
    return replace(found, priced=priced_here(found))


def _first(stack: Stack) -> tuple[Array, Array] | None:
    if stack.depth == 0 or 0 in stack.full_shape:
        return None
    index = (0,) * len(stack.batch)
    return kernel_view(stack.a[index]), kernel_view(stack.b[index].T)


_EMPTY = {
    "scheme": "empty",
    "formats": (),
    "moduli": (),
    "products": 0,
    "bits": (0, 0),
    "window_bits": 0,
    "repaired": 0,
    "packed_bytes": 0,
    "exactness": "exact",
    "reasons": (("scheme", "empty", "no terms or no elements: zeros of the result's shape"),),
}


def _describe_floats(engine: Engine, stack: Stack, grade: Grade | Bits) -> dict[str, Any]:
    result = str(stack.a.dtype.newbyteorder("="))
    pair = _first(stack)
    if pair is None:
        return _EMPTY | {"result": result}
    a, bt = pair
    parts = 1
    if a.dtype.kind == "c":
        parts = 2
        a, bt = next(complex_parts(a, bt))
    c = choose_floats(engine, a, bt, grade, None if parts == 2 else stack.a.dtype)
    (m, k), n = a.shape, bt.shape[0]
    exact = (c.left.exact_bits, c.right.exact_bits)
    reasons = [
        (
            "operands",
            f"{m}×{k} times {k}×{n}, {result}",
            f"{exact[0]} and {exact[1]} bits would keep all",
        ),
    ]
    if parts == 2:
        reasons.append(("complex", "2 real products of depth 2k", "real and imaginary part; the first is shown"))
    if c.inner is not None:
        reasons.append(("inner scaling", "powers of two along k", "evens out exponents of a's columns and b's rows"))
    special = int(c.left.scan.special.sum()), int(c.right.scan.special.sum())
    if any(special):
        reasons.append(("special values", f"{special[0]} rows, {special[1]} columns", "NaN or ∞: IEEE rules"))
    moduli = () if c.system is None else c.system.moduli
    if c.system is None:
        scheme, packed = "long accumulator", 0
        reasons.append(("scheme", scheme, "exponents spread too far for the residue systems: every element by itself"))
    else:
        scheme = "residues"
        packed = packed_bytes(m, n, k * c.products)
        asked = "as many as asked for" if isinstance(grade, Bits) else "as many as the grade needs for these data"
        kept = asked if c.rounds_operands else "all bits"
        reasons += [
            ("bits kept", f"{c.bits_left} and {c.bits_right}", kept),
            ("window", f"{c.bound.bit_length() + 1} bits", "largest |integer result|, by Cauchy–Schwarz, and its sign"),
            (
                "scheme",
                f"residues, {c.products} moduli",
                f"{moduli[0]} … {moduli[-1]}: product above the window",
            ),
            ("encoding", "one INT8 product each", "u8 × s8 residues, int32 sums reduced, CRT, one rounding"),
        ]
        if len(c.repair):
            reasons.append(("long accumulator", f"{len(c.repair)} elements", "their bound asks for many more bits"))
    assessed = grade == "componentwise" and c.rounds_operands
    if assessed:
        reasons.append(("assessment", "1 INT8 product", "magnitudes rounded down bound |A||B| from below"))
    reasons += _closing(engine, packed, _exactness(grade))
    return {
        "result": result,
        "scheme": scheme,
        "formats": ("int8", "uint8") if moduli else (),
        "moduli": moduli,
        "products": parts * (c.products + assessed),
        "bits": (c.bits_left, c.bits_right),
        "window_bits": c.bound.bit_length() + 1,
        "repaired": len(c.repair),
        "packed_bytes": packed,
        "exactness": _exactness(grade),
        "reasons": tuple(reasons),
    }


def _describe_integers(engine: Engine, stack: Stack, kind: str, overflow: str) -> dict[str, Any]:
    if kind == "object" or overflow == "object":
        result = "object"
    elif overflow == "wrap":
        result = str(np.result_type(stack.a.dtype, stack.b.dtype))
    else:
        result = str(integer_result(stack))
    pair = _first(stack)
    if pair is None:
        return _EMPTY | {"result": result}
    a, bt = pair
    (m, k), n = a.shape, bt.shape[0]
    if kind == "object":
        ranges = [(min(0, min(x.flat)), max(0, max(x.flat))) for x in (a, bt)]
        wide = k * max(map(abs, ranges[0])) * max(map(abs, ranges[1]))
        if moduli_needed(wide) is None:
            widths = tuple(magnitude_bits(*r) for r in ranges)
            limbs = (
                ("operands", f"{m}×{k} times {k}×{n}", f"Python ints of {widths[0]} and {widths[1]} bits"),
                ("scheme", "limbs, then residues", f"results of {wide.bit_length()} bits exceed one residue system"),
                *_closing(engine, 0, "exact integers"),
            )
            return _EMPTY | {
                "result": result,
                "scheme": "limbs",
                "bits": widths,
                "window_bits": wide.bit_length() + 1,
                "exactness": "exact integers",
                "formats": ("int8", "uint8"),
                "reasons": limbs,
            }
        c = choose_for_ranges(ranges[0], ranges[1], k)
    else:
        c = choose_integers(engine, a, bt)
    moduli = () if c.system is None else c.system.moduli
    reasons = [
        (
            "operands",
            f"{m}×{k} times {k}×{n}, {stack.a.dtype} and {stack.b.dtype}",
            f"values of {c.bits_left} and {c.bits_right} bits (measured)",
        ),
        ("window", f"{c.bound.bit_length() + 1} bits", "k · max|a| · max|b|, and its sign"),
    ]
    width = max(4, np.result_type(stack.a.dtype, stack.b.dtype).itemsize) if overflow == "wrap" else 8
    if (overflow == "wrap" and result != "bool" and c.products > engine.wrapped_cost(width)) or (
        c.wide and kind == "integer"
    ):
        scheme = "wide"
        why = "modulo is what is asked for" if overflow == "wrap" else "every result fits"
        how = f"{8 * width}-bit multiplications"
        reasons.append(("scheme", f"wide, {how}", f"{why}; {c.products} INT8 products cost more"))
    elif c.system is None:
        scheme = "direct"
        reasons.append(("scheme", "direct, 1 INT8 product", f"values span at most 255; zero points {c.zero_points}"))
    else:
        scheme = "residues"
        reasons.append(
            (
                "scheme",
                f"residues, {c.products} moduli",
                f"{moduli[0]} … {moduli[-1]}: product above the window",
            )
        )
    packed = packed_bytes(m, n, k * (width if scheme == "wide" else c.products))
    outcome = {
        "raise": "checked, ResultOverflow if one does not fit",
        "wrap": "wrapped as NumPy does",
        "object": "Python ints",
    }
    reasons.append(("result", result, outcome[overflow] if kind == "integer" else "Python ints"))
    reasons += _closing(engine, packed, "exact integers")
    return {
        "result": result,
        "scheme": scheme,
        "formats": (f"int{8 * width}",) if scheme == "wide" else ("int8", "uint8"),
        "moduli": () if scheme == "wide" else moduli,
        "products": 0 if scheme == "wide" else c.products,
        "bits": (c.bits_left, c.bits_right),
        "window_bits": c.bound.bit_length() + 1,
        "repaired": 0,
        "packed_bytes": packed,
        "exactness": "exact integers",
        "reasons": tuple(reasons),
    }


def _closing(engine: Engine, packed: int, exactness: str) -> list[tuple[str, str, str]]:
    why = "asked for, or the fastest here" if engine.name != "reference" else "NumPy and Python integers: slow"
    return [
        ("engine", engine.name, why),
        ("memory", f"{packed / 2**20:.1f} MiB", "packed residues beyond inputs and output"),
        ("exactness", exactness, "holds on every engine, bit for bit the same"),
    ]
