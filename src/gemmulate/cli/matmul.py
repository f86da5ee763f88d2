"""`gemmulate matmul`: multiply two matrix files."""

import contextlib
import hashlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter

from gemmulate.cli.options import Count
from gemmulate.cli.output import dimensions, examples, print_json, progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EXAMPLES = examples(
    (
        "gemmulate matmul A.npy B.npy -o C.npy",
        "integers exact (overflow is an error), floats as good as NumPy's by proof",
    ),
    ("gemmulate matmul A.mtx.gz B.mtx.gz -o C.mtx --accuracy exact", "every element correctly rounded"),
    ("gemmulate matmul A.csv B.csv -o C.csv --overflow object", "integers of any size"),
    ("gemmulate matmul pair.npz:left pair.npz:right -o C.npy", "two members of one archive"),
    ("gemmulate matmul A.npy B.npy --json", "nothing written: shapes, seconds and a SHA-256 of the result's elements"),
)

# Spelled out: the types of gemmulate.plan would load NumPy for `--help`.
Accuracy = Literal["fast", "fp64", "fp32", "exact"]
Overflow = Literal["raise", "wrap", "object"]
Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON on standard output.")]
MaxGib = Annotated[
    float,
    Parameter(help="Dense GiB that a sparse, compressed or text file may unpack to; guards against absurd headers."),
]


def register(app: cyclopts.App) -> None:
    """Add `matmul` to the application."""
    app.command(matmul, help_epilogue=_EXAMPLES)


def matmul(
    a: str,
    b: str,
    /,
    *,
    output: Annotated[str | None, Parameter(name=["--output", "-o"])] = None,
    accuracy: Accuracy = "fp64",
    overflow: Overflow = "raise",
    modulus: Count = None,
    formats: str | None = None,
    engine: str | None = None,
    threads: Count = None,
    max_gib: MaxGib = 4.0,
    as_json: Json = False,
) -> None:
    """Multiply two matrix files, exactly for integers and to the accuracy asked for floats.

    A and B may be .npy, .npz (FILE.npz:MEMBER, or the only member), .mtx, .mtx.gz, .csv or .csv.gz; nothing is ever
    unpickled. C may be .npy, .mtx, .mtx.gz or .csv: it appears when it is complete, or not at all. Shapes follow
    numpy.matmul, stacks and vectors included; text formats store a vector as a column.

    Args:
        a: Left matrix file.
        b: Right matrix file.
        output: File to write; without it the result is printed, shortened if it is large.
        accuracy: For floats: fast (normwise bound), fp64 or fp32 (componentwise, as good as a conventional product in
            the inputs' precision), exact (correctly rounded).
        overflow: For integers that do not fit the result's dtype: raise an error, wrap like NumPy, or object (Python
            ints).
        modulus: Residues in [0, p) instead of the integer product, p in 2 … 2^63.
        formats: Run the exact products through the planes of these formats, e.g. fp4_e2m1 or fp4_e2m1,fp8_e4m3: the
            same bits, slower; for floats with accuracy fast other bits within the same bound.
        engine: Engine by name, see `gemmulate doctor`; the fastest available one if not given.
        threads: Threads to use; all available ones if not given. The result's bits do not depend on it.
    """
    import gemmulate as gm
    from gemmulate.io import check_output, write_matrix

    if output is not None:
        check_output(output)  # before hours of work, not after
    left, right = read_pair(a, b, max_gib)
    start = time.perf_counter()
    with reporting_product():
        result = gm.matmul(
            left,
            right,
            accuracy=accuracy,
            modulus=modulus,
            overflow=overflow,
            engine=engine,
            threads=threads,
            formats=formats,
        )
    seconds = time.perf_counter() - start
    import numpy as np

    product = np.asarray(result)
    if output is not None:
        write_matrix(output, product)
    record = {
        "a": _described(a, left),
        "b": _described(b, right),
        "result": {"shape": list(product.shape), "dtype": str(product.dtype), "sha256": _digest(product)},
        "accuracy": accuracy,
        "overflow": overflow,
        "modulus": modulus,
        "formats": formats,
        "engine": engine,
        "threads": threads,
        "time_s": seconds,
        "output": output,
    }
    if as_json:
        print_json(record)
        return
    if output is None:
        print(product)
    place = f", written to {output}" if output is not None else ""
    print(
        f"{dimensions(left.shape)} {left.dtype} times {dimensions(right.shape)} {right.dtype} gives "
        f"{dimensions(product.shape)} {product.dtype} in {seconds:.3g} s{place}"
    )


def read_pair(a: str, b: str, max_gib: float) -> "tuple[NDArray[np.generic], NDArray[np.generic]]":
    """The two matrices of a product; a file that is named twice is read once."""
    from gemmulate.cli.app import CommandError
    from gemmulate.io import read_matrix

    if not 0 < max_gib < 1 << 20:
        raise CommandError(f"--max-gib {max_gib:g} is not a size; give GiB, more than 0")
    limit = int(max_gib * 2**30)
    left = read_matrix(a, max_bytes=limit)
    return left, left if a == b else read_matrix(b, max_bytes=limit)


@contextlib.contextmanager
def reporting_product() -> Iterator[None]:
    """Show a progress bar for the product in the block, on a terminal only."""
    from gemmulate.engines.progress import reporting

    with progress("multiplying") as report, reporting(report):
        yield


def _described(path: str, array: "NDArray[np.generic]") -> dict[str, Any]:
    return {"path": path, "shape": list(array.shape), "dtype": str(array.dtype)}


def _digest(array: "NDArray[np.generic]") -> str:
    """SHA-256 of the elements in C order: their little-endian bytes, or lines of hexadecimal digits for Python ints."""
    import numpy as np

    if array.dtype == object:
        return hashlib.sha256("\n".join(format(value, "x") for value in array.ravel().tolist()).encode()).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).data).hexdigest()
