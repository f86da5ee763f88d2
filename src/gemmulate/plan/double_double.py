"""`gm.matmul` of double-double operands: what is accepted, stacks, and the parts of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmulate.engines.base import Engine
from gemmulate.formats.double_double import DoubleDouble
from gemmulate.plan.operands import Stack, as_operand, as_stack, kernel_view
from gemmulate.schemes.blocks import packed_bytes
from gemmulate.schemes.double_double import PairChoice, choose_pairs, multiply_pairs


def as_double_double(x: Any, name: str) -> DoubleDouble:
    """The operand as pairs, exactly; TypeError for complex numbers and Python ints that pairs cannot hold."""
    if isinstance(x, DoubleDouble):
        if x.ndim == 0:
            raise ValueError(f"{name} is 0-dimensional; a product needs vectors, matrices or stacks")
        return x
    array = as_operand(x, name)
    if array.dtype.kind == "c":
        raise TypeError(f"{name} has dtype {array.dtype}: complex double-double products do not exist; pass real parts")
    if array.dtype.kind == "O":
        result = DoubleDouble.from_values(array)
        if not all(
            np.isfinite(h) and int(h) + int(low) == v
            for h, low, v in zip(result.hi.flat, result.lo.flat, array.flat, strict=True)
        ):
            raise TypeError(f"{name} holds Python ints beyond a pair's bits; DoubleDouble.from_values rounds them")
        return result
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        return DoubleDouble.from_values(array)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return DoubleDouble(array.astype(np.float64))


def check_pair_options(accuracy: Any, modulus: Any, out: Any) -> bool:
    """Whether the exact product is asked for; TypeError or ValueError for options that pairs do not have."""
    if modulus is not None:
        raise TypeError(f"modulus = {modulus} needs integer operands, one of a and b is a DoubleDouble; convert them")
    if out is not None:
        raise TypeError("out is not taken with DoubleDouble operands, whose arrays are read-only; use the result")
    if accuracy not in ("fp64", "exact"):
        raise ValueError(
            f'accuracy = {accuracy!s} does not exist for DoubleDouble operands; choose "fp64" (the default: 2^-104 of '
            '|A||B|) or "exact"'
        )
    return bool(accuracy == "exact")


def _choose(engine: Engine, stack: Stack, rest: Stack, index: tuple[int, ...], exact: bool) -> PairChoice:
    left = kernel_view(stack.a[index]), kernel_view(rest.a[index])
    right = kernel_view(stack.b[index].T), kernel_view(rest.b[index].T)
    return choose_pairs(engine, left, right, exact)


def multiply_double_double(engine: Engine, a: Any, b: Any, exact: bool) -> DoubleDouble:
    """The product of a and b, at least one of them a DoubleDouble, as a DoubleDouble of `numpy.matmul`'s shape."""
    left, right = as_double_double(a, "a"), as_double_double(b, "b")
    stack, rest = as_stack(left.hi, right.hi), as_stack(left.lo, right.lo)
    high, low = np.zeros(stack.full_shape), np.zeros(stack.full_shape)
    if stack.depth and high.size:
        for index in np.ndindex(*stack.batch):
            multiply_pairs(engine, _choose(engine, stack, rest, index, exact), high[index], low[index])
    return DoubleDouble(high.reshape(stack.shape), low.reshape(stack.shape))


def describe_double_double(engine: Engine, a: Any, b: Any, exact: bool) -> tuple[Stack, dict[str, Any]]:
    """The operands' stack and the fields of the plan of `multiply_double_double`, from the first product's data."""
    left, right = as_double_double(a, "a"), as_double_double(b, "b")
    stack, rest = as_stack(left.hi, right.hi), as_stack(left.lo, right.lo)
    exactness = "the exact value rounded to hi + lo" if exact else "|C − AB| ≤ 2^-104·|A||B| for every element, proven"
    m, k, n = stack.full_shape[-2], stack.depth, stack.full_shape[-1]
    facts: dict[str, Any] = {
        "scheme": "empty",
        "formats": (),
        "moduli": (),
        "products": 0,
        "bits": (0, 0),
        "window_bits": 0,
        "repaired": 0,
        "packed_bytes": 0,
        "exactness": exactness,
    }
    if not k or 0 in stack.full_shape:
        return stack, facts | {"reasons": (("scheme", "empty", "no terms or no elements: zeros"),)}
    c = _choose(engine, stack, rest, (0,) * len(stack.batch), exact)
    reasons = [("operands", f"{m}×{k} times {k}×{n}, double-double", "both parts in one integer")]
    if c.system is None:
        reasons.append(("scheme", "long accumulator", "exponents spread too far: every element by itself"))
        facts |= {"scheme": "long accumulator", "repaired": m * n}
    else:
        moduli, use = c.system.moduli, None
        if engine.formats:
            from gemmulate.plan.planes import planes_of_pairs  # loads the catalogue of encodings

            use = planes_of_pairs(engine, c)
        packed = packed_bytes(m, n, k * len(moduli)) if use is None else use.packed_bytes(m, k, n)
        reasons.append(("bits kept", f"{c.bits_left} and {c.bits_right}", "as many as the bound needs for these data"))
        why = f"{moduli[0]} … {moduli[-1]}: product above the window"
        reasons += [("scheme", f"residues, {len(moduli)} moduli", why)] if use is None else use.rows()
        reasons.append(("memory", f"{packed / 2**20:.1f} MiB", "packed residues beyond inputs and output"))
        if len(c.repair):
            reasons.append(("long accumulator", f"{len(c.repair)} elements", "their bound asks for many more bits"))
        facts |= {
            "scheme": "residues",
            "formats": ("int8", "uint8"),
            "moduli": moduli,
            "planes": (len(moduli), len(moduli)),
            "products": (len(moduli) if use is None else use.products) + (not exact),
            "bits": (c.bits_left, c.bits_right),
            "window_bits": c.bound.bit_length() + 1,
            "repaired": len(c.repair),
            "packed_bytes": packed,
        }
        facts |= {} if use is None else use.facts()
    reasons.append(("exactness", exactness, "holds on every engine, bit for bit the same"))
    return stack, facts | {"reasons": tuple(reasons)}
