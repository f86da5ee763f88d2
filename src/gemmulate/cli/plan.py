"""`gemmulate plan`: what a product would run, why, how exact it would be, and what it would cost on a device."""

from typing import Annotated

import cyclopts
from cyclopts import Parameter

from gemmulate.cli.matmul import Accuracy, Json, MaxGib, Overflow, read_pair
from gemmulate.cli.options import Count
from gemmulate.cli.output import examples

_EXAMPLES = examples(
    ("gemmulate plan A.npy B.npy", "the scheme, formats, moduli and engine that matmul would use, as a table"),
    ("gemmulate plan A.mtx.gz B.mtx.gz --accuracy exact --json", "the same for a correctly rounded product, as JSON"),
    ("gemmulate plan A.npy B.npy --formats fp4_e2m1", "products, planes and encodings that run it through FP4"),
    ("gemmulate plan A.npy B.npy --modulus 97", "the product of integers modulo 97"),
    ("gemmulate plan A.npy B.npy --device b300", "what the same data would cost on a device, candidate by candidate"),
    ("gemmulate plan --m 4096 --n 4096 --k 4096 --device rtx5090", "the same before there are data"),
    ("gemmulate plan --m 512 --n 512 --k 512 --dtype int32 --bits 20", "integers of 20 bits on this machine"),
)


def register(app: cyclopts.App) -> None:
    """Add `plan` to the application."""
    app.command(plan, help_epilogue=_EXAMPLES)


def plan(
    a: str | None = None,
    b: str | None = None,
    /,
    *,
    accuracy: Accuracy = "fp64",
    overflow: Overflow = "raise",
    modulus: Count = None,
    formats: str | None = None,
    engine: str | None = None,
    device: Annotated[str | None, Parameter(help="A catalogue name, a .toml file, or host.")] = None,
    c_q: float | None = None,
    m: Count = None,
    n: Count = None,
    k: Count = None,
    dtype: str | None = None,
    bits: Count = None,
    max_gib: MaxGib = 4.0,
    as_json: Json = False,
) -> None:
    """Say what a product of two matrix files, or of sizes alone, would run and why, without running it.

    With --device, or sizes instead of files, every candidate is priced by the time model or rejected with a named
    reason: schemes, encodings, formats, engines and native FP64.

    Args:
        a: Left matrix file: .npy, .npz (FILE.npz:MEMBER), .mtx, .mtx.gz, .csv or .csv.gz.
        b: Right matrix file.
        accuracy: For floats: fast, fp64 (fp32 likewise), exact or double-double.
        overflow: For integers that do not fit the result's dtype: raise, wrap or object.
        modulus: Residues in [0, p) instead of the integer product, p in 2 … 2^63.
        formats: Run the products through the planes of these formats, e.g. fp4_e2m1 or fp4_e2m1,fp8_e4m3.
        engine: Engine by name, see `gemmulate doctor`; the fastest available one if not given.
        c_q: 32-bit integer operations to convert one input to one modulus on the device; a range if not given.
        m: Rows, instead of files.
        n: Columns of the result.
        k: Inner dimension.
        dtype: Of both operands, float64 if not given.
        bits: Bits of both operands that count; if not given, the dtype's or those of Gaussian entries.
    """
    import gemmulate as gm
    from gemmulate.cli.app import CommandError

    pairs = accuracy == "double-double"
    grade = "fp64" if pairs else accuracy
    sizes = {"m": m, "n": n, "k": k}
    options = {"accuracy": grade, "overflow": overflow, "engine": engine}
    if a is not None or any(size is None for size in sizes.values()):
        given = [f"--{name}" for name, value in (sizes | {"dtype": dtype, "bits": bits}).items() if value is not None]
        if a is None:
            raise CommandError("give two matrix files, or --m, --n and --k")
        if b is None:
            raise CommandError(f"the right matrix is missing beside {a}")
        if given:
            raise CommandError(f"{given[0]} describes a product without files; leave it out, or the files")
        if device is not None and pairs:
            raise CommandError("double-double products are not priced on a device; leave --device out")
        if device is not None and (modulus is not None or formats is not None):
            raise CommandError("--modulus and --formats are not priced on a device; leave them or --device out")
        left, right = read_pair(a, b, max_gib, accuracy)
        if device is None:
            if c_q is not None:
                raise CommandError("--c-q prices a device's conversions; give --device with it")
            chosen = gm.plan(left, right, modulus=modulus, formats=formats, **options)  # type: ignore[call-overload]
        else:
            chosen = gm.plan(left, right, device=device, c_q=c_q, **options)  # type: ignore[call-overload]
    else:
        if modulus is not None or formats is not None or pairs:
            raise CommandError("--modulus, --formats and double-double accuracy need two matrix files")
        assert m is not None
        assert n is not None
        assert k is not None
        name = dtype or "float64"
        problem = gm.Problem(m, k, n, (name, name), None if bits is None else (bits, bits))
        chosen = gm.plan(problem, device=device, c_q=c_q, **options)  # type: ignore[call-overload]
    print(chosen.to_json() if as_json else chosen.explain())
