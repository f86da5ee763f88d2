"""`gm.matmul` of double-double operands: what is accepted, stacks, and the parts of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmulate.engines.base import Array, Engine
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


def check_pair_options(accuracy: Any, modulus: Any) -> bool:
    """Whether the exact product is asked for; TypeError or ValueError for options that pairs do not have."""
    if modulus is not None:
        raise TypeError(f"modulus = {modulus} needs integer operands, one of a and b is a DoubleDouble; convert them")
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


def _check_out(out: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    if not isinstance(out, tuple) or len(out) != 2 or not all(isinstance(part, np.ndarray) for part in out):
        raise TypeError(
            f"out is a {type(out).__name__}; the result of DoubleDouble operands goes to a tuple (hi, lo) of two "
            "float64 arrays"
        )
    for name, part in zip(("out[0]", "out[1]"), out, strict=True):
        if part.dtype.newbyteorder("=") != np.float64:
            raise TypeError(f"{name} has dtype {part.dtype}; the parts of a DoubleDouble are float64")
        if part.shape != shape:
            raise ValueError(f"{name} has shape {part.shape}, the product has shape {shape}")
        if not part.flags.writeable:
            raise ValueError(f"{name} is read-only; pass a writable array")
    if np.may_share_memory(*out):
        raise ValueError("out[0] and out[1] share memory; pass two separate arrays")
    return out


def _writable(part: Array, stack: Stack, rest: Stack) -> bool:
    """Whether kernels can write the array while they read the operands."""
    whole = part.flags.aligned and part.dtype.isnative and all(s % part.itemsize == 0 for s in part.strides)
    return whole and not any(np.may_share_memory(part, x) for x in (stack.a, stack.b, rest.a, rest.b))


def multiply_double_double(
    engine: Engine, a: Any, b: Any, exact: bool, out: Array | tuple[Array, ...] | None
) -> DoubleDouble | tuple[Array, Array]:
    """The product of a and b, at least one of them a DoubleDouble, as a DoubleDouble of `numpy.matmul`'s shape.

    With `out`, two writable float64 arrays of that shape receive both parts and are returned.
    """
    left, right = as_double_double(a, "a"), as_double_double(b, "b")
    stack, rest = as_stack(left.hi, right.hi), as_stack(left.lo, right.lo)
    parts = None if out is None else _check_out(out, stack.shape)
    if parts is not None and all(_writable(part, stack, rest) for part in parts):
        high, low = (part.reshape(stack.full_shape) for part in parts)  # new dimensions of length 1 at most: views
        if not stack.depth:
            high[...], low[...] = 0.0, 0.0
    else:
        high, low = np.zeros(stack.full_shape), np.zeros(stack.full_shape)
    if stack.depth and high.size:
        for index in np.ndindex(*stack.batch):
            multiply_pairs(engine, _choose(engine, stack, rest, index, exact), high[index], low[index])
    if parts is None:
        return DoubleDouble.of_normalised(high.reshape(stack.shape), low.reshape(stack.shape))
    for part, value in zip(parts, (high, low), strict=True):
        if not np.may_share_memory(part, value):
            part[...] = value.reshape(stack.shape)
    return parts


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
    if c.inner is not None:
        reasons.append(("inner scaling", "A 2^e, 2^-e B", "evens the exponents along k; exact"))
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
            "products": (len(moduli) if use is None else use.products) + c.assessed,
            "bits": (c.bits_left, c.bits_right),
            "window_bits": c.bound.bit_length() + 1,
            "repaired": len(c.repair),
            "packed_bytes": packed,
        }
        facts |= {} if use is None else use.facts()
    reasons.append(("exactness", exactness, "holds on every engine, bit for bit the same"))
    return stack, facts | {"reasons": tuple(reasons)}
