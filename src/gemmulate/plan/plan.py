"""A plan says which scheme, over which encoding and formats, an engine will run, why, and how exact the answer is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gemmulate.engines import get_engine
from gemmulate.engines.base import Array, Engine, dtype_name
from gemmulate.engines.python_ints import int_bounds
from gemmulate.engines.residue_system import moduli_needed
from gemmulate.formats.double_double import DoubleDouble
from gemmulate.model.device import Device
from gemmulate.model.kernels import Kernel
from gemmulate.plan.candidates import PricedPlan
from gemmulate.plan.dispatch import dispatch, priced_here
from gemmulate.plan.double_double import check_pair_options, describe_double_double
from gemmulate.plan.matmul import (
    Accuracy,
    Overflow,
    check_options,
    complex_parts,
    engine_for,
    matmul,
    read_operands,
)
from gemmulate.plan.operands import Kind, Stack, as_stack, kernel_view, result_dtype
from gemmulate.plan.problem import Problem
from gemmulate.plan.rows import closing_rows, digit_rows, residue_rows
from gemmulate.plan.tensors import host_array
from gemmulate.schemes.accuracy import Bits, Grade
from gemmulate.schemes.blocks import packed_bytes
from gemmulate.schemes.floats import FloatChoice, choose_floats, grade_of
from gemmulate.schemes.integers import IntegerChoice, choose_for_ranges, choose_integers, magnitude_bits
from gemmulate.schemes.modular import as_modulus, choose_modular
from gemmulate.schemes.python_ints import choose_limbs

if TYPE_CHECKING:
    from gemmulate.plan.planes import PlaneUse

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
    scheme: str  # "direct", "digits", "residues", "wide", "anchored", "long accumulator", "limbs", "empty"
    formats: tuple[str, ...]
    moduli: tuple[int, ...]
    products: int  # matrix products of the formats' values, INT8 assessment included
    bits: tuple[int, int]  # kept of a and b
    window_bits: int  # |integer result| < 2^(window_bits − 1)
    repaired: int  # elements already known to need the long accumulator
    packed_bytes: int  # beyond inputs and output
    exactness: str
    reasons: tuple[tuple[str, str, str], ...]  # (step, choice, why)
    modulus: int | None = None
    planes: tuple[int, int] = (0, 0)  # different matrices of narrow values that a and b become
    encodings: tuple[str, ...] = ()  # catalogue keys, where `plane_formats` are given
    plane_formats: tuple[str, ...] | None = None  # `formats` as asked for
    priced: PricedPlan | None = None  # the candidates on this machine; None for what is not priced

    def run(self, a: Any, b: Any, *, out: Array | tuple[Array, ...] | None = None) -> Any:
        """The product, with this plan's settings; bits are chosen anew for the data given."""
        accuracy: Any = self.accuracy
        overflow: Any = self.overflow
        return matmul(
            a,
            b,
            accuracy=accuracy,
            modulus=self.modulus,
            overflow=overflow,
            out=out,
            engine=self.engine,
            threads=self.threads,
            formats=self.plane_formats,
        )

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
    modulus: int | None = None,
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = None,
    formats: str | Sequence[str] | None = None,
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
    modulus: int | None = None,
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = None,
    formats: str | Sequence[str] | None = None,
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
    modulus: int | None = None,
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = None,
    formats: str | Sequence[str] | None = None,
    device: str | Path | Device,
    composition: str = "published",
    c_q: float | None = None,
) -> PricedPlan: ...


def plan(
    a: Any,
    b: Any = None,
    *,
    accuracy: Accuracy | Bits = "fp64",
    modulus: int | None = None,
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = None,
    formats: str | Sequence[str] | None = None,
    device: str | Path | Device | None = None,
    composition: str = "published",
    c_q: float | None = None,
) -> Plan | PricedPlan:
    """Say what `matmul(a, b, …)` will run and why, from the data themselves (of a stack, its first product).

    Takes and raises what `matmul` does; costs the survey of the operands, no product. With `formats` the encodings
    are those of the operands as a whole; blocks of a large product take these or fewer.

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
    >>> x = np.full((3, 4), -128, dtype=np.int8)
    >>> p = gm.plan(x, x.T, formats="fp4_e2m1")
    >>> p.products, p.encodings
    (6, ('int8.int8.fp4_e2m1',))
    """
    grade = check_options(accuracy, modulus, overflow)
    if isinstance(a, Problem | Kernel) or device is not None:
        if modulus is not None or formats is not None:
            raise ValueError("modulus and formats are not priced; leave them out, or give two operands and no device")
        options = {"accuracy": accuracy, "overflow": overflow, "engine": engine, "threads": threads}
        return dispatch(a, b, device, options, composition, c_q)
    runner = engine_for(engine, threads, formats)
    pair_facts: dict[str, Any] | None = None
    if isinstance(a, DoubleDouble) or isinstance(b, DoubleDouble):
        stack, pair_facts = describe_double_double(runner, a, b, check_pair_options(accuracy, modulus))
    else:
        left, right, kind = read_operands(host_array(a, "a"), host_array(b, "b"), modulus)
        stack = as_stack(left, right)
    facts: dict[str, Any] = {
        "shape": (stack.full_shape[-2], stack.depth, stack.full_shape[-1]),
        "batch": stack.batch,
        "accuracy": accuracy,
        "overflow": overflow,
        "engine": get_engine(engine, threads).name,
        "threads": threads,
        "modulus": None if modulus is None else as_modulus(modulus),
        "plane_formats": runner.formats or None,
    }
    if pair_facts is not None:
        names = [_PAIR if isinstance(x, DoubleDouble) else str(np.asarray(x).dtype) for x in (a, b)]
        return Plan(dtypes=(names[0], names[1], _PAIR), **facts, **pair_facts)
    if kind in ("float", "complex"):
        facts |= _describe_floats(runner, stack, grade)
    else:
        facts |= _describe_integers(runner, stack, kind, overflow, facts["modulus"])
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
    kind = a.dtype if parts == 2 else np.dtype(result)
    wanted = grade
    c, use = _partial_cover(engine, a, bt, kind) if grade == "fast" and parts == 1 else (None, None)
    if c is None:
        grade = grade_of(grade, a, bt, kind)
        c = choose_floats(engine, a, bt, grade, kind)
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
    if grade != wanted:
        reasons.append(("grade", "exact", "products this small are rounded correctly at every grade"))
    if c.anchored:
        scheme, packed = "anchored", packed_bytes(m, n, 8 * k)
        reasons.append(("scheme", "anchored sums", "correct rounding by FMA costs less here than by INT8 residues"))
        reasons.append(("long accumulator", "elements left open", "known after the product; residues if they are many"))
    elif c.system is None:
        scheme, packed = "long accumulator", 0
        reasons.append(("scheme", scheme, "exponents spread too far for the residue systems: every element by itself"))
    else:
        scheme = "residues"
        use = use or _planes_of_floats(engine, a, bt, c)
        packed = packed_bytes(m, n, k * c.products) if use is None else use.packed_bytes(m, k, n)
        asked = "as many as asked for" if isinstance(grade, Bits) else "as many as the grade needs for these data"
        kept = asked if c.rounds_operands else "all bits"
        reasons += [
            ("bits kept", f"{c.bits_left} and {c.bits_right}", kept),
            ("window", f"{c.bound.bit_length() + 1} bits", "largest |integer result|, by Cauchy–Schwarz, and its sign"),
        ]
        reasons += residue_rows(c.products, moduli) if use is None else use.rows()
        if len(c.repair):
            reasons.append(("long accumulator", f"{len(c.repair)} elements", "their bound asks for many more bits"))
    assessed = grade == "componentwise" and c.rounds_operands
    if assessed:
        reasons.append(("assessment", "1 INT8 product", "magnitudes rounded down bound |A||B| from below"))
    if use is not None and use.partial:
        reasons += closing_rows(engine, packed, _exactness(grade), "other bits than INT8 moduli give, the same bound")
    else:
        reasons += closing_rows(engine, packed, _exactness(grade))
    products = c.products if use is None else use.products
    facts = {
        "result": result,
        "scheme": scheme,
        "formats": ("int8", "uint8") if moduli else (dtype_name(a.dtype),) if c.anchored else (),
        "moduli": moduli,
        "planes": (len(moduli), len(moduli)),
        "products": parts * (products + assessed),
        "bits": (c.bits_left, c.bits_right),
        "window_bits": c.bound.bit_length() + 1,
        "repaired": len(c.repair),
        "packed_bytes": packed,
        "exactness": _exactness(grade),
        "reasons": tuple(reasons),
    }
    return facts if use is None else facts | use.facts()


def _partial_cover(
    engine: Engine, a: Array, bt: Array, result: np.dtype[Any]
) -> tuple[FloatChoice, PlaneUse] | tuple[None, None]:
    """The choice of the grade "fast" and its planes, where partial covers apply."""
    if not engine.formats:
        return None, None
    choice = choose_floats(engine, a, bt, "fast", result)
    use = _planes_of_floats(engine, a, bt, choice, partial=True)
    return (choice, use) if use is not None and use.partial else (None, None)


def _planes_of_floats(
    engine: Engine, a: Array, bt: Array, choice: FloatChoice, partial: bool = False
) -> PlaneUse | None:
    if not engine.formats:
        return None
    from gemmulate.plan.planes import planes_of_floats  # loads the catalogue of encodings

    return planes_of_floats(engine, a, bt, choice, partial)


def _describe_integers(engine: Engine, stack: Stack, kind: Kind, overflow: str, modulus: int | None) -> dict[str, Any]:
    if modulus is not None:
        result = "int64"
    elif kind == "object" or overflow == "object":
        result = "object"
    elif overflow == "wrap":
        result = str(np.result_type(stack.a.dtype, stack.b.dtype))
    else:
        result = str(result_dtype(stack.a.dtype, stack.b.dtype))
    pair = _first(stack)
    if pair is None:
        return _EMPTY | {"result": result}
    a, bt = pair
    (m, k), n = a.shape, bt.shape[0]
    if modulus is not None:
        a, bt, c = choose_modular(engine, a, bt, modulus)
    elif kind == "object":
        ranges = [int_bounds(x) or (0, 0) for x in (a, bt)]
        wide = k * max(map(abs, ranges[0])) * max(map(abs, ranges[1]))
        if moduli_needed(wide) is None or wide.bit_length() + 1 > engine.widest_bits:
            return _describe_limbs(engine, (m, k, n), ranges, wide)
        c = choose_for_ranges(ranges[0], ranges[1], k)
    else:
        c = choose_integers(engine, a, bt)
    as_they_are = modulus is not None and c.digits is None and a.itemsize == bt.itemsize == 1 and not engine.formats
    values = "measured" if modulus is None else "by type, as they are" if as_they_are else "reduced"
    reasons = [
        (
            "operands",
            f"{m}×{k} times {k}×{n}, {stack.a.dtype} and {stack.b.dtype}",
            f"values of {c.bits_left} and {c.bits_right} bits ({values})",
        ),
        ("window", f"{c.bound.bit_length() + 1} bits", "k · max|a| · max|b|, and its sign"),
    ]
    use = _planes_of_integers(engine, a, bt, c)
    moduli = () if c.system is None or c.digits is not None else c.system.moduli
    scheme = "digits" if c.digits is not None else "direct" if c.system is None else "residues"
    planes = c.products if c.digits is None else c.digits.planes
    packed = packed_bytes(m, n, k * planes)
    width = max(4, np.result_type(stack.a.dtype, stack.b.dtype).itemsize) if overflow == "wrap" else 8
    wrapped = overflow == "wrap" and kind == "integer" and result != "bool" and c.products > engine.wrapped_cost(width)
    if use is not None:
        packed = use.packed_bytes(m, k, n)
        reasons += use.rows()
    elif modulus is None and (wrapped or (c.wide and kind == "integer")):
        scheme, moduli, packed = "wide", (), packed_bytes(m, n, k * width)
        why = "modulo is what is asked for" if overflow == "wrap" else "every result fits"
        how = f"{8 * width}-bit multiplications"
        reasons.append(("scheme", f"wide, {how}", f"{why}; {c.products} INT8 products cost more"))
    elif c.digits is not None:
        reasons += digit_rows(c.digits)
    elif c.system is None:
        reasons.append(("scheme", "direct, 1 INT8 product", f"values span at most 255; zero points {c.zero_points}"))
    else:
        reasons += residue_rows(c.products, moduli)[:1]
    products = 0 if scheme == "wide" else c.products
    outcome = {
        "raise": "checked, ResultOverflow if one does not fit",
        "wrap": "wrapped as NumPy does",
        "object": "Python ints",
    }
    if modulus is not None:
        before = "" if as_they_are else "operands reduced before, "
        why = f"in [0, {modulus}): {before}each exact result once after"
        reasons.append(("result", f"{result} mod {modulus}", why))
    else:
        reasons.append(("result", result, outcome[overflow] if kind == "integer" else "Python ints"))
    exactness = "exact integers" if modulus is None else f"exact residues mod {modulus}"
    reasons += closing_rows(engine, packed, exactness)
    facts = {
        "result": result,
        "scheme": scheme,
        "formats": (f"int{8 * width}",) if scheme == "wide" else ("int8", "uint8"),
        "moduli": moduli,
        "planes": 2 * (planes if scheme != "wide" else 0,),
        "products": products if use is None else use.products,
        "bits": (c.bits_left, c.bits_right),
        "window_bits": c.bound.bit_length() + 1,
        "repaired": 0,
        "packed_bytes": packed,
        "exactness": exactness,
        "reasons": tuple(reasons),
    }
    return facts if use is None else facts | use.facts()


def _planes_of_integers(engine: Engine, a: Array, bt: Array, choice: IntegerChoice) -> PlaneUse | None:
    if not engine.formats:
        return None
    from gemmulate.plan.planes import planes_of_integers  # loads the catalogue of encodings

    return planes_of_integers(engine, a, bt, choice)


def _describe_limbs(
    engine: Engine, shape: tuple[int, int, int], ranges: list[tuple[int, int]], wide: int
) -> dict[str, Any]:
    """Python ints whose products exceed one residue system: limbs, and residues for every pair of them."""
    (m, k, n), widths = shape, (magnitude_bits(*ranges[0]), magnitude_bits(*ranges[1]))
    cut = choose_limbs(*widths, k, engine.widest_bits)
    moduli, (left, right) = cut.system.moduli, cut.limbs
    packed = packed_bytes(m, n, k * len(moduli) * max(cut.limbs))
    limbs = (
        ("operands", f"{m}×{k} times {k}×{n}", f"Python ints of {widths[0]} and {widths[1]} bits"),
        ("scheme", f"{left} and {right} limbs of {cut.limb_bits} bits", f"{wide.bit_length()} bits of result"),
        ("residues", f"{len(moduli)} moduli", f"{moduli[0]} … {moduli[-1]}: for every pair of limbs"),
        *closing_rows(engine, packed, "exact integers"),
    )
    return _EMPTY | {
        "result": "object",
        "scheme": "limbs",
        "moduli": moduli,
        "products": cut.products,
        "bits": widths,
        "window_bits": wide.bit_length() + 1,
        "packed_bytes": packed,
        "exactness": "exact integers",
        "formats": ("int8", "uint8"),
        "reasons": limbs,
    }
