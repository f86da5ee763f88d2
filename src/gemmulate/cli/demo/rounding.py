"""Floats: how far NumPy's products are from the correctly rounded ones, and ours, checked with fractions."""

import math
import time
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, cast

import msgspec

from gemmulate.cli.demo.machine import has_native_core
from gemmulate.cli.output import print_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

TITLE = "Squaring real matrices to the last bit"
_MATRICES = ("bcsstk13", "cryg2500", "zenios", "olm1000")
_SMALL_MATRICES = ("west0067",)
# Elements recomputed with fractions: where NumPy is worst, and others at random.
_WORST, _RANDOM = 100, 400


class Error(msgspec.Struct, frozen=True):
    """How a product differs from the correctly rounded one."""

    elements: int
    """Elements that are not the correctly rounded value."""
    noise: int
    """Of these, elements that are not 0 where the exact value is."""
    worst_ulp: float
    """Largest distance in units in the last place of the correctly rounded value, where that is not 0."""
    time_s: float


class Square(msgspec.Struct, frozen=True):
    """A·A for one matrix."""

    matrix: str
    n: int
    span_bits: int
    """log2 of largest over smallest nonzero magnitude, rounded up."""
    numpy: Error
    exact_time_s: float
    checked: int
    """Elements of the result of accuracy="exact" that were recomputed with fractions."""
    correct: int
    """How many of these equal the exact value, correctly rounded."""


def measure() -> list[Square]:
    """Square the matrices."""
    from gemmulate.data import path_of
    from gemmulate.io import read_matrix

    names = _MATRICES if has_native_core() else _SMALL_MATRICES
    return [square(name, cast("Matrix", read_matrix(path_of(name)))) for name in names]


def square(name: str, a: "Matrix") -> Square:
    """Multiply one matrix by itself in every way."""
    import numpy as np

    import gemmulate as gm

    exact, exact_s = _timed(lambda: gm.matmul(a, a, accuracy="exact"))
    plain, plain_s = _timed(lambda: np.matmul(a, a))
    places = _places(exact, plain)
    magnitudes = np.abs(a[a != 0])
    return Square(
        matrix=name,
        n=len(a),
        span_bits=math.ceil(math.log2(float(magnitudes.max()) / float(magnitudes.min()))),
        numpy=_error(plain, exact, plain_s),
        exact_time_s=exact_s,
        checked=len(places),
        correct=sum(float(exact[i, j]) == float(_dot(a[i], a[:, j])) for i, j in places),
    )


def _timed(call: "Callable[[], Matrix]") -> "tuple[Matrix, float]":
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _distance(found: "Matrix", exact: "Matrix") -> "Matrix":
    import numpy as np

    unit = np.where(exact == 0, np.inf, np.spacing(np.abs(exact)))
    return np.abs(found - exact) / unit


def _error(found: "Matrix", exact: "Matrix", seconds: float) -> Error:
    different = found != exact
    return Error(
        elements=int(different.sum()),
        noise=int((different & (exact == 0)).sum()),
        worst_ulp=float(_distance(found, exact).max()),
        time_s=seconds,
    )


def _places(exact: "Matrix", plain: "Matrix") -> list[tuple[int, int]]:
    """Indices to check: where NumPy is farthest off, where it has noise for 0, and nonzero elements at random."""
    import numpy as np

    random = np.random.default_rng(20261129).permutation(np.flatnonzero(exact))[:_RANDOM]
    worst = np.argsort(_distance(plain, exact), axis=None)[-_WORST:]
    noise = np.flatnonzero((exact == 0) & (plain != 0))[:_WORST]
    chosen = np.unique(np.concatenate([random, worst, noise]))
    return [(int(index) // len(exact), int(index) % len(exact)) for index in chosen]


def _dot(row: "Matrix", column: "Matrix") -> Fraction:
    pairs = ((x, y) for x, y in zip(row.tolist(), column.tolist(), strict=True) if x and y)
    return sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(0))


def show(record: list[Square]) -> None:
    """Print one row for each matrix."""
    rows = [
        [
            square.matrix,
            f"{square.n}²",
            f"2^{square.span_bits}",
            f"{square.numpy.elements:,}",
            f"{square.numpy.worst_ulp:.3g}",
            f"{square.numpy.noise:,}",
            f"{square.correct} of {square.checked}",
            f"{square.numpy.time_s:.2f} / {square.exact_time_s:.2f}",
        ]
        for square in record
    ]
    print_table(
        ["A · A for", "size", "range", "NumPy misrounds", "worst, ulp", "not 0 but should", "ours right", "seconds"],
        rows,
        title="2. Floats: elements that are not the correctly rounded value of the exact dot product",
        right=[1, 2, 3, 4, 5, 6, 7],
    )
    print('"ours right": elements of accuracy="exact" recomputed with fractions, NumPy\'s worst ones among them.')
    print("seconds: NumPy / exact, one run each.")
