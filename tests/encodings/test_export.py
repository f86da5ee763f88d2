"""Exports prove the identity outside gemmulate: a C program under g++ (and nvcc where present), NPZ and JSON tables.

Oracle: the C program multiplies all pairs of the domain from the header's tables alone.
"""

import io
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gemmulate import encodings, formats
from gemmulate.encodings.export import KINDS, export

KEYS = [
    "int8.int8.fp4_e2m1",
    "int4.int8.fp4_e2m1",
    "mod139.fp4_e2m1",
    "mod97c95.fp4_e2m1",
    "mod256.int8",
    "mod49.fp8_e4m3",
    "mod255.uint8",
]

# What careful projects compile with; a header is compiled with its user's flags.
STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wold-style-cast", "-Werror"]

PROGRAM = r"""
#include <stdio.h>
#include "encoding.h"
static long long wrong_pairs(void) {{
    long long wrong = 0;
    for (long long x = {low_x}; x <= {high_x}; ++x)
        for (long long y = {low_y}; y <= {high_y}; ++y) {{
            if ({skip}) continue;
            long long got = {prefix}_product(x, y);
            long long m = {macro}_MODULUS;
            if (m ? (x * y - got) % m != 0 : got != x * y) ++wrong;
        }}
    return wrong;
}}
int main(void) {{
    printf("%lld %lld\n", wrong_pairs(), {macro}_MAX_DEPTH);
    return 0;
}}
"""


def program(key: str) -> str:
    e = encodings.get(key)
    prefix = "".join(c if c.isalnum() else "_" for c in key)
    low_x, high_x = (0, e.modulus - 1) if e.modulus else (e.left.low, e.left.high)
    low_y, high_y = (0, e.modulus - 1) if e.modulus else (e.right.low, e.right.high)
    skip = f"{prefix}_index_left[x] < 0 || {prefix}_index_right[y] < 0" if e.left.partial else "0"
    return PROGRAM.format(
        low_x=low_x, high_x=high_x, low_y=low_y, high_y=high_y, skip=skip, prefix=prefix, macro=prefix.upper()
    )


def compile_and_run(tmp_path: Path, key: str, compiler: list[str], source: str) -> str:
    (tmp_path / "encoding.h").write_bytes(export(encodings.get(key), "c-header"))
    (tmp_path / source).write_text(program(key))
    subprocess.run([*compiler, source, "-o", "check"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    return subprocess.run([tmp_path / "check"], check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_the_header_proves_the_identity_under_gxx(tmp_path: Path, key: str, standard: str) -> None:
    out = compile_and_run(tmp_path, key, ["g++", f"-std={standard}", *STRICT], "check.cpp")
    assert out.split() == ["0", str(encodings.get(key).max_depth())]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_header_is_c99(tmp_path: Path) -> None:
    command = ["gcc", "-std=c99", "-pedantic", "-Wall", "-Werror", "-Wno-unused-const-variable", "-Wno-unused-variable"]
    assert compile_and_run(tmp_path, "int4.int8.fp4_e2m1", command, "check.c").startswith("0 ")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_header_compiles_under_nvcc(tmp_path: Path) -> None:
    assert compile_and_run(tmp_path, "int8.int8.fp4_e2m1", ["nvcc"], "check.cu").startswith("0 ")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_tables_compile_into_constant_memory(tmp_path: Path) -> None:
    (tmp_path / "encoding.h").write_bytes(export(encodings.get("mod139.fp4_e2m1"), "c-header"))
    (tmp_path / "kernel.cu").write_text(
        '#define GEMMULATE_TABLE __constant__\n#define GEMMULATE_FUNCTION __device__\n#include "encoding.h"\n'
        "__global__ void product(const int *x, const int *y, long long *out) {\n"
        "    out[threadIdx.x] = mod139_fp4_e2m1_product(x[threadIdx.x], y[threadIdx.x]);\n}\n"
    )
    subprocess.run(["nvcc", "-c", "kernel.cu"], cwd=tmp_path, check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize("key", KEYS)
def test_the_tables_satisfy_the_identity(key: str) -> None:
    e = encodings.get(key)
    archive = np.load(io.BytesIO(export(e, "npz")))
    text = json.loads(export(e, "json"))
    sums = np.einsum("t,ti,tj->ij", archive["coefficients"], archive["planes_left"], archive["planes_right"])
    error = sums - int(archive["divisor"]) * np.multiply.outer(archive["values_left"], archive["values_right"])
    assert not (error % e.modulus if e.modulus else error).any()
    assert text["planes_left"] == [list(row) for row in e.planes_left]
    assert text["tables"] == {n: archive[n].tolist() for n in text["tables"]}
    fmt = formats.get(e.format.name)
    decoded = np.vectorize(fmt.decode)(archive["codes_left"])
    assert (decoded == archive["planes_left"] * 2.0**fmt.unit_exponent).all()


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="c-header"):
        export(encodings.get("mod13.fp4_e2m1"), "fortran")
    assert KINDS == ("json", "npz", "c-header")


def test_the_header_states_its_domain() -> None:
    def comment(key: str) -> str:
        return export(encodings.get(key), "c-header").decode().split("*/")[0]

    assert "-8 <= x <= 7, -128 <= y <= 127" in comment("int4.int8.fp4_e2m1")
    assert "0 <= x <= 138, 0 <= y <= 138 modulo 139" in comment("mod139.fp4_e2m1")
    assert "the 95 residues modulo 97 whose entry" in comment("mod97c95.fp4_e2m1")
