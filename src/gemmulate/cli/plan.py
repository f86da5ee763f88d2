"""`gemmulate plan`: what a product would run, why, and how exact it would be."""

import cyclopts

from gemmulate.cli.matmul import Accuracy, Json, MaxGib, Overflow, read_pair
from gemmulate.cli.output import examples

_EXAMPLES = examples(
    ("gemmulate plan A.npy B.npy", "the scheme, formats, moduli and engine that matmul would use, as a table"),
    ("gemmulate plan A.mtx.gz B.mtx.gz --accuracy exact --json", "the same for a correctly rounded product, as JSON"),
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
        engine: Engine by name, see `gemmulate doctor`; the fastest available one if not given.
    """
    import gemmulate as gm

    left, right = read_pair(a, b, max_gib, accuracy)
    grade = "fp64" if accuracy == "double-double" else accuracy
    chosen = gm.plan(left, right, accuracy=grade, overflow=overflow, engine=engine)
    print(chosen.to_json() if as_json else chosen.explain())
