"""Export for kernel writers: JSON, NPZ and a C header with look-up tables, coefficients and depth limits."""

import io
import json
from typing import Any

import numpy as np

from gemmulate.encodings.describe import identity
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.limbs import Ints

KINDS = ("json", "npz", "c-header")


def tables(encoding: Encoding) -> dict[str, Ints]:
    """Look-up tables of both sides: `values_*` (n,), `planes_*` (products, n) integers, `codes_*` bit patterns."""
    result: dict[str, Ints] = {}
    for side in ("left", "right"):
        values, _ = encoding.limbs(side)
        planes = encoding.planes(side)
        code = {int(v): encoding.format.code(int(v)) for v in np.unique(planes)}
        result[f"values_{side}"] = values
        result[f"planes_{side}"] = planes
        result[f"codes_{side}"] = np.vectorize(code.__getitem__, otypes=[np.int64])(planes)
    return result


def to_json(encoding: Encoding) -> str:
    """The entry with its look-up tables as JSON text."""
    body: dict[str, Any] = {**encoding.to_dict(), "tables": {n: t.tolist() for n, t in tables(encoding).items()}}
    return json.dumps(body)


def to_npz(encoding: Encoding) -> bytes:
    """The look-up tables, coefficients and forms as the bytes of an .npz file."""
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        key=np.array(encoding.key),
        modulus=np.array(encoding.modulus or 0),
        divisor=np.array(encoding.divisor),
        max_depth=np.array(encoding.max_depth()),
        coefficients=np.array(encoding.coefficients),
        weights_left=np.array(encoding.weights_left),
        weights_right=np.array(encoding.weights_right),
        forms_left=np.array(encoding.planes_left),
        forms_right=np.array(encoding.planes_right),
        **tables(encoding),  # type: ignore[arg-type]
    )
    return stream.getvalue()


def _rows(name: str, kind: str, table: Ints) -> str:
    body = ",\n".join("    {" + ", ".join(map(str, row)) + "}" for row in table.tolist())
    return f"GEMMULATE_TABLE {kind} {name}[{table.shape[0]}][{table.shape[1]}] = {{\n{body}\n}};"


def to_c_header(encoding: Encoding) -> str:
    """A C/C++/CUDA header: tables indexed by value, coefficients, depth limits and a scalar reference product.

    Tables are `static const`, the function `static inline`; for CUDA's constant memory define GEMMULATE_TABLE as
    `__constant__` and GEMMULATE_FUNCTION as `__device__` before including the header.
    """
    e, t = encoding, tables(encoding)
    prefix = "".join(c if c.isalnum() else "_" for c in e.key)
    macro = prefix.upper()
    kind = "int8_t" if max(int(np.abs(t[f"planes_{s}"]).max()) for s in ("left", "right")) <= 127 else "int16_t"
    index = {}
    lookups = []
    for side in ("left", "right"):
        values = t[f"values_{side}"]
        first = int(values[0])
        if int(values[-1]) - first + 1 == len(values):
            index[side] = f"{side} - ({first})"
        else:
            table = np.full(e.modulus or 0, -1, dtype=np.int64)
            table[values] = np.arange(len(values))
            lookups.append(
                f"GEMMULATE_TABLE int16_t {prefix}_index_{side}[{len(table)}] = {{{', '.join(map(str, table))}}};"
            )
            index[side] = f"{prefix}_index_{side}[{side}]"
    depths = "\n".join(f"#define {macro}_MAX_DEPTH_{n.upper()} {d}LL" for n, d in e.depth_limits.items())
    coefficients = ", ".join(f"{c}LL" for c in e.coefficients)
    if lookups:
        domain = f"the {e.left.size} residues modulo {e.modulus} whose entry in an index table, their column, is not -1"
    else:
        ends = ((int(t[f"values_{s}"][0]), int(t[f"values_{s}"][-1])) for s in ("left", "right"))
        domain = ", ".join(f"{low} <= {x} <= {high}" for x, (low, high) in zip("xy", ends, strict=True))
        domain += f" modulo {e.modulus}" if e.modulus else ""
    reduce = (
        f"sum %= {e.modulus}; return sum < 0 ? sum + {e.modulus} : sum;" if e.modulus else f"return sum / {e.divisor};"
    )
    note = identity(e).translate(str.maketrans("·−≡", "*-="))
    nl = "\n"
    return f"""/* {e.key}: {e.products} products of {e.format.name}, {e.status}.
 * {note}
 * Domain: {domain}. Row t of a planes table holds P_t (or Q_t) for each value, in increasing order from the first;
 * codes are the {e.format.bits}-bit patterns of {e.format.name} for the same integers times 2^{e.format.unit_exponent}.
 * Written by gemmulate. */
#ifndef GEMMULATE_{macro}_H
#define GEMMULATE_{macro}_H
#include <stdint.h>
#ifndef GEMMULATE_TABLE
#define GEMMULATE_TABLE static const
#endif
#ifndef GEMMULATE_FUNCTION
#define GEMMULATE_FUNCTION static inline
#endif
#define {macro}_PRODUCTS {e.products}
#define {macro}_MODULUS {e.modulus or 0}
#define {macro}_DIVISOR {e.divisor}
#define {macro}_LEFT_FIRST {int(t["values_left"][0])}
#define {macro}_LEFT_COUNT {len(t["values_left"])}
#define {macro}_RIGHT_FIRST {int(t["values_right"][0])}
#define {macro}_RIGHT_COUNT {len(t["values_right"])}
#define {macro}_MAX_DEPTH {e.max_depth()}LL
{depths}
GEMMULATE_TABLE int64_t {prefix}_coefficients[{e.products}] = {{{coefficients}}};
{_rows(f"{prefix}_planes_left", kind, t["planes_left"])}
{_rows(f"{prefix}_planes_right", kind, t["planes_right"])}
{_rows(f"{prefix}_codes_left", "uint16_t" if e.format.bits > 8 else "uint8_t", t["codes_left"])}
{_rows(f"{prefix}_codes_right", "uint16_t" if e.format.bits > 8 else "uint8_t", t["codes_right"])}
{nl.join(lookups)}
/* The exact product of two values of the domain, from narrow products: a reference for kernels. */
GEMMULATE_FUNCTION int64_t {prefix}_product(int64_t left, int64_t right) {{
    int64_t sum = 0;
    for (int t = 0; t < {e.products}; ++t)
        sum += {prefix}_coefficients[t] * {prefix}_planes_left[t][{index["left"]}] *
               {prefix}_planes_right[t][{index["right"]}];
    {reduce}
}}
#endif
"""


def export(encoding: Encoding, kind: str) -> bytes:
    """The bytes of one export, kind "json", "npz" or "c-header"; ValueError for another."""
    if kind == "json":
        return to_json(encoding).encode() + b"\n"
    if kind == "npz":
        return to_npz(encoding)
    if kind == "c-header":
        return to_c_header(encoding).encode()
    raise ValueError(f"unknown export {kind!r}: choose from {', '.join(KINDS)}")
