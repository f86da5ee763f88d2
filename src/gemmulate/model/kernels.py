"""What each kernel does: FLOPs, bytes, inputs to convert and outputs, for float64 operands and 32-bit indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from gemmulate.model.checks import ModelError, check_choice, check_integer, check_number

FLOAT64 = 8  # bytes
INDEX = 4  # bytes: column indices and row pointers of CSR and ELL

Convert = Literal["bytes", "values"]


@dataclass(frozen=True)
class Kernel:
    """Counts of one kernel call.

    `reusable_inputs` are those of the operand that stays the same from call to call (the matrix), which may be
    converted beforehand; `other_inputs` those of the rest. Bytes are the native kernel's, each read or written once.
    """

    name: str
    size: str
    flops: float
    reusable_inputs: float
    other_inputs: float
    outputs: float
    reusable_bytes: float  # of the values of the reusable operand
    other_bytes: float  # all other traffic: indices, vectors, results
    tensor: bool  # whether the native FP64 matrix unit applies
    reusable: bool = True

    @property
    def bytes(self) -> float:
        """Native traffic Q."""
        return self.reusable_bytes + self.other_bytes

    @property
    def inputs(self) -> float:
        """Inputs N_in that are converted when nothing is prepared."""
        return self.reusable_inputs + self.other_inputs

    @property
    def flop_per_input(self) -> float:
        """φ."""
        return self.flops / self.inputs


def gemm(m: int, n: int, k: int, *, batch: int = 1) -> Kernel:
    """Dense C = A·B, A m×k and B k×n, operands read and converted once: 2mnk FLOPs; `batch` such products.

    Skinny products are those with small n. The left operand counts as the reusable one.
    Source: Ozaki, Uchino and Imamura (2025) for "converted once per product".

    >>> gemm(4, 5, 6).flops
    240.0
    """
    m, n, k, batch = (check_integer(name, value) for name, value in (("m", m), ("n", n), ("k", k), ("batch", batch)))
    left, right, result = float(batch) * m * k, float(batch) * k * n, float(batch) * m * n
    return Kernel(
        name="gemm",
        size=f"{m}x{n}x{k}" + (f" batch {batch}" if batch > 1 else ""),
        flops=2.0 * result * k,
        reusable_inputs=left,
        other_inputs=right,
        outputs=result,
        reusable_bytes=FLOAT64 * left,
        other_bytes=FLOAT64 * (right + result),
        tensor=True,
    )


def gemv(m: int, n: int, *, rhs: int = 1) -> Kernel:
    """Y = A·X with A m×n and `rhs` right-hand sides: 2·rhs FLOPs for each element of A, which is streamed once.

    >>> gemv(100, 100, rhs=2).flop_per_input  # 4 but for the vectors
    3.9215686274509802
    """
    m, n, rhs = (check_integer(name, value) for name, value in (("m", m), ("n", n), ("rhs", rhs)))
    matrix, vectors = float(m) * n, float(rhs) * n
    return Kernel(
        name="gemv",
        size=f"{m}x{n} rhs {rhs}",
        flops=2.0 * matrix * rhs,
        reusable_inputs=matrix,
        other_inputs=vectors,
        outputs=float(rhs) * m,
        reusable_bytes=FLOAT64 * matrix,
        other_bytes=FLOAT64 * (vectors + float(rhs) * m),
        tensor=False,
    )


def spmv(
    nnz: int,
    *,
    rows: int | None = None,
    columns: int | None = None,
    layout: Literal["csr", "ell"] = "csr",
    padding: float = 1.0,
    convert: Convert = "bytes",
) -> Kernel:
    """Sparse y = A·x: 2 FLOPs and 12 bytes (value and column index) for each stored entry.

    Without `rows` only the stream of entries is counted, as the published figures do; with it row pointers (CSR) and
    both vectors (`columns` = rows if not given) count too. ELL stores and converts `padding` entries for each nonzero
    (at least 1) and no row pointers. `convert="bytes"` counts one converted input for every 8 bytes of entries, the
    published count; "values" counts the values alone, as an implementation would.

    >>> spmv(1000).flop_per_input  # 4/3
    1.3333333333333333
    """
    nnz = check_integer("nnz", nnz)
    check_choice("layout", layout, ("csr", "ell"))
    check_choice("convert", convert, ("bytes", "values"))
    padding = check_number("padding", padding, 1.0)
    if layout == "csr" and padding != 1:
        raise ModelError(f"padding = {padding:g} belongs to layout ell; csr stores no padding")
    entries = nnz * padding
    vectors = pointers = outputs = 0.0
    if rows is not None:
        rows = check_integer("rows", rows)
        vectors = float(check_integer("columns", rows if columns is None else columns))
        outputs = float(rows)
        pointers = INDEX * (rows + 1.0) if layout == "csr" else 0.0
    elif columns is not None:
        raise ModelError("columns needs rows; give both, or neither to count the stream of entries alone")
    return Kernel(
        name="spmv",
        size=f"nnz {nnz}" + (f" rows {rows}" if rows is not None else ""),
        flops=2.0 * nnz,
        reusable_inputs=entries * ((FLOAT64 + INDEX) / FLOAT64 if convert == "bytes" else 1.0),
        other_inputs=vectors,
        outputs=outputs,
        reusable_bytes=FLOAT64 * entries,
        other_bytes=INDEX * entries + pointers + FLOAT64 * (vectors + outputs),
        tensor=False,
    )


def stencil7(points: int) -> Kernel:
    """7-point stencil with constant coefficients on a grid of `points`: 8 FLOPs (2 multiplications, 6 additions).

    Each point is read once (neighbours come from caches), converted once and written once: 16 bytes.

    >>> stencil7(1000).flop_per_input
    8.0
    """
    points = check_integer("points", points)
    return Kernel(
        name="stencil7",
        size=f"{points} points",
        flops=8.0 * points,
        reusable_inputs=0.0,
        other_inputs=float(points),
        outputs=float(points),
        reusable_bytes=0.0,
        other_bytes=2.0 * FLOAT64 * points,
        tensor=False,
        reusable=False,
    )


KERNELS: Final[dict[str, Callable[..., Kernel]]] = {"gemm": gemm, "gemv": gemv, "spmv": spmv, "stencil7": stencil7}
