"""Integers: walks on a graph overflow int64, and NumPy says nothing."""

from typing import TYPE_CHECKING, cast

import msgspec

from gemmulate.cli.output import print_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TITLE = "Counting walks in the karate club"
# A^24 is the first power with an entry beyond int64; in A^40 every entry is beyond.
_STEPS = (20, 24, 40)


class Power(msgspec.Struct, frozen=True):
    """One power of the adjacency matrix, as NumPy and as gemmulate compute it."""

    steps: int
    entries: int
    numpy_wrong: int
    numpy_smallest: int
    largest: int
    error: str
    """What gemmulate says when the result must fit int64; empty if it fits."""
    exact: bool
    """Whether gemmulate's Python ints equal those of schoolbook arithmetic."""


def measure() -> list[Power]:
    """Multiply the powers."""
    from gemmulate.data import path_of
    from gemmulate.io import read_matrix

    adjacency = cast("NDArray[np.int64]", read_matrix(path_of("karate")))
    return [_power(adjacency, steps) for steps in _STEPS]


def _power(adjacency: "NDArray[np.int64]", steps: int) -> Power:
    import numpy as np

    import gemmulate as gm

    half = np.linalg.matrix_power(adjacency, steps // 2)  # fits int64 for all steps here
    truth = _schoolbook(half.tolist())
    wrapped = np.matmul(half, half)
    error = ""
    try:
        gm.matmul(half, half)
    except gm.ResultOverflow as caught:
        error = str(caught)
    product = gm.matmul(half, half, overflow="object")
    return Power(
        steps=steps,
        entries=wrapped.size,
        numpy_wrong=sum(a != b for a, b in zip(wrapped.ravel().tolist(), truth, strict=True)),
        numpy_smallest=int(wrapped.min()),
        largest=max(truth),
        error=error,
        exact=product.ravel().tolist() == truth,
    )


def _schoolbook(matrix: list[list[int]]) -> list[int]:
    columns = list(zip(*matrix, strict=True))
    return [sum(x * y for x, y in zip(row, column, strict=True)) for row in matrix for column in columns]


def show(record: list[Power]) -> None:
    """Print a table and the error."""
    rows = [
        [
            f"A^{power.steps // 2} · A^{power.steps // 2} = A^{power.steps}",
            _short(power.largest),
            f"{power.numpy_wrong:,} of {power.entries:,}" if power.numpy_wrong else "none",
            f"{power.numpy_smallest:,}",
            ("error, then " if power.error else "") + ("exact" if power.exact else "WRONG"),
        ]
        for power in record
    ]
    print_table(
        ["product", "largest count", "NumPy wrong", "NumPy's smallest count", "gemmulate"],
        rows,
        title="1. Integers: walks in Zachary's karate club (34 people, 78 friendships); NumPy overflows silently",
        right=[1, 2, 3],
    )
    error = next((power.error for power in record if power.error), None)
    if error:
        print(f"the error: {error}")


def _short(count: int) -> str:
    digits = str(count)
    return f"{count:,}" if len(digits) <= 20 else f"{digits[:6]}…{digits[-6:]} ({len(digits)} digits)"
