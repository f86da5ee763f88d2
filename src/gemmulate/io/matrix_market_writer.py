"""Writing Matrix Market files that read back as the same values, bit for bit."""

from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from gemmulate.io.text import dense_rows, tokens_of

# Three numbers to a stored entry against one: coordinate is the shorter file below a third.
_COORDINATE_BELOW = 1 / 3


def write_matrix_market(stream: BinaryIO, array: NDArray[np.generic]) -> None:
    """Write a matrix as `general` Matrix Market, in coordinates when fewer than a third of its entries are stored.

    bool and all integers (Python ints included) are written as `integer`, floats as `real`, complex as `complex`;
    a vector is written as a column. Every value reads back bit for bit as int64, Python int, float64 or complex128;
    −0 counts as an entry to store.
    """
    matrix = dense_rows(array)
    rows, columns = matrix.shape
    field = {"c": "complex", "f": "real"}.get(matrix.dtype.kind, "integer")
    stored = _stored(matrix)
    count = int(np.count_nonzero(stored))
    if count < matrix.size * _COORDINATE_BELOW:
        stream.write(f"%%MatrixMarket matrix coordinate {field} general\n{rows} {columns} {count}\n".encode())
        for column in range(columns):
            where = np.flatnonzero(stored[:, column])
            entries = _entries(matrix[where, column])
            lines = (f"{i} {column + 1} {entry}\n" for i, entry in zip((where + 1).tolist(), entries, strict=True))
            stream.write("".join(lines).encode())
    else:
        stream.write(f"%%MatrixMarket matrix array {field} general\n{rows} {columns}\n".encode())
        for column in range(columns):
            stream.write("".join(f"{entry}\n" for entry in _entries(matrix[:, column])).encode())


def _stored(matrix: NDArray[np.generic]) -> NDArray[np.bool_]:
    stored = cast("NDArray[np.bool_]", matrix != 0)
    if matrix.dtype.kind == "f":
        return stored | np.signbit(cast("NDArray[np.float64]", matrix))
    if matrix.dtype.kind == "c":
        parts = cast("NDArray[np.complex128]", matrix)
        return stored | np.signbit(parts.real) | np.signbit(parts.imag)
    return stored.astype(np.bool_)


def _entries(column: NDArray[np.generic]) -> list[str]:
    if column.dtype.kind != "c":
        return tokens_of(column.tolist())
    parts = cast("NDArray[np.complex128]", column)
    return list(map(" ".join, zip(tokens_of(parts.real.tolist()), tokens_of(parts.imag.tolist()), strict=True)))
