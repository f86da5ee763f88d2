"""`gemmulate plan`: what a product would run, why, and how exact it would be."""

import cyclopts

from gemmulate.cli.matmul import Accuracy, Json, MaxGib, Overflow, read_pair
from gemmulate.cli.options import Count
from gemmulate.cli.output import examples

_EXAMPLES = examples(
    ("gemmulate plan A.npy B.npy", "the scheme, formats, moduli and engine that matmul would use, as a table"),
    ("gemmulate plan A.mtx.gz B.mtx.gz --accuracy exact --json", "the same for a correctly rounded product, as JSON"),
    ("gemmulate plan A.npy B.npy --formats fp4_e2m1", "products, planes and encodings that run it through FP4"),
    ("gemmulate plan A.npy B.npy --modulus 97", "the product of integers modulo 97"),
)


def register(app: cyclopts.App) -> None:
    """Add `plan` to the application."""
    app.command(plan, help_epilogue=_EXAMPLES)


def plan(
    a: str,
    b: str,
    /,
    *,
    accuracy: Accuracy = "fp64",
    overflow: Overflow = "raise",
    modulus: Count = None,
    formats: str | None = None,
    engine: str | None = None,
    max_gib: MaxGib = 4.0,
    as_json: Json = False,
) -> None:
    """Say what a product of two matrix files would run and why, without running it.

    Args:
        a: Left matrix file: .npy, .npz (FILE.npz:MEMBER), .mtx, .mtx.gz, .csv or .csv.gz.
        b: Right matrix file.
        accuracy: For floats: fast, fp64 (fp32 likewise), exact or double-double.
        overflow: For integers that do not fit the result's dtype: raise, wrap or object.
        modulus: Residues in [0, p) instead of the integer product, p in 2 … 2^63.
        formats: Run the products through the planes of these formats, e.g. fp4_e2m1 or fp4_e2m1,fp8_e4m3.
        engine: Engine by name, see `gemmulate doctor`; the fastest available one if not given.
    """
    import gemmulate as gm

    left, right = read_pair(a, b, max_gib, accuracy)
    grade = "fp64" if accuracy == "double-double" else accuracy
    chosen = gm.plan(left, right, accuracy=grade, modulus=modulus, overflow=overflow, engine=engine, formats=formats)
    print(chosen.to_json() if as_json else chosen.explain())
