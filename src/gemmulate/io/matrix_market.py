"""Reading Matrix Market files: every layout, field and symmetry of the format, and nothing outside it.

Source: R. F. Boisvert, R. Pozo, K. A. Remington, The Matrix Market Exchange Formats: Initial Design, NISTIR 5935, 1996.
"""

import math
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gemmulate.io.matrix_market_header import Field, Header, Symmetry, read_header
from gemmulate.io.text import Lines, Source, float_array, int_array, shown

# Values on a line, after the two indices that `coordinate` has.
_VALUES = {"real": 1, "integer": 1, "complex": 2, "pattern": 0}

_Columns = tuple[NDArray[np.int64], Sequence[Sequence[bytes]]]


def read_matrix_market(path: str | os.PathLike[str], *, max_bytes: int) -> NDArray[np.generic]:
    """A Matrix Market file as a dense two-dimensional array.

    `real` gives float64, `complex` complex128, `pattern` int64 ones; `integer` gives int64, or an object array of
    Python ints when one value does not fit. Decimal values are rounded to nearest, ties to even.

    Raises:
        FileError: whatever departs from the format, with its line; an entry given twice (the format does not
            say whether to add or to replace); a dense matrix of more than `max_bytes` bytes.
    """
    source = Source(path)
    with source.open() as stream:
        blocks = source.blocks(stream)
        header, rest = read_header(source, blocks)
        itemsize = 16 if header.field == "complex" else 8
        dense = header.rows * header.columns * itemsize
        if dense > max_bytes:
            raise source.error(
                None,
                f"declares {header.rows}×{header.columns} elements, {dense:.3g} bytes as dense, above the limit of "
                f"{max_bytes:.3g}; raise max_bytes (--max-gib) if that is meant",
            )
        if header.layout == "array":
            return _read_array(source, header, rest, blocks)
        return _read_coordinate(source, header, rest, blocks)


def _columns(
    source: Source, rest: Lines, blocks: Iterator[Lines], width: int, stored: int, what: str
) -> Iterator[_Columns]:
    """The body's columns with their line numbers, after checking each line's width and the declared count of lines."""
    count, last = 0, 0
    for first, lines in chain([rest], blocks):
        numbers, columns = _split(source, first, lines, width, what)
        if not numbers.size:
            continue
        if count + numbers.size > stored:
            line = int(numbers[stored - count])
            raise source.error(line, f"one entry more than the {stored} that the size line declares")
        count, last = count + numbers.size, int(numbers[-1])
        yield numbers, columns
    if count < stored:
        raise source.error(
            last or None, f"the file ends after {count} of the {stored} entries that its size line declares"
        )


def _split(source: Source, first: int, lines: list[bytes], width: int, what: str) -> _Columns:
    """The columns of the lines that hold data; blank lines and comments are passed over."""
    numbers = np.arange(first, first + len(lines))
    if width == 1:
        # One number a line and nothing else: no need to take lines apart.
        tokens = list(map(bytes.strip, lines))
        joined = b"".join(tokens)
        if all(tokens) and len(joined.split()) == 1 and b"%" not in joined:
            return numbers, [tokens]
    rows = [line.split() for line in lines]
    kept = [bool(row) and not row[0].startswith(b"%") for row in rows]
    if not all(kept):
        numbers = numbers[np.array(kept, dtype=bool)]
        rows = [row for row, keep in zip(rows, kept, strict=True) if keep]
    if not set(map(len, rows)) <= {width}:
        index = next(index for index, row in enumerate(rows) if len(row) != width)
        raise source.error(int(numbers[index]), f"holds {len(rows[index])} numbers where {what} has {width}")
    return numbers, list(zip(*rows, strict=True))


def _values(
    source: Source, field: Field, numbers: NDArray[np.int64], columns: Sequence[Sequence[bytes]]
) -> NDArray[np.generic]:
    if field == "pattern":
        return np.ones(len(numbers), dtype=np.int64)
    if field == "integer":
        return int_array(source, numbers, columns[0])
    real = float_array(source, numbers, columns[0])
    if field == "real":
        return real
    result = np.empty(len(real), dtype=np.complex128)  # not real + 1j·imag, which turns inf into nan
    result.real, result.imag = real, float_array(source, numbers, columns[1])
    return result


def _joined(parts: list[NDArray[np.generic]], field: Field) -> NDArray[np.generic]:
    if not parts:
        return np.empty(0, dtype={"real": np.float64, "complex": np.complex128}.get(field, np.int64))
    if any(part.dtype == object for part in parts):
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)


def _mirrored(values: NDArray[np.generic], symmetry: Symmetry) -> NDArray[np.generic]:
    if symmetry == "hermitian":
        return cast("NDArray[np.generic]", np.conjugate(cast("NDArray[np.complex128]", values)))
    if symmetry == "skew-symmetric":
        return cast("NDArray[np.generic]", -cast("NDArray[np.float64]", values))
    return values


def _widened(values: NDArray[np.generic], symmetry: Symmetry) -> NDArray[np.generic]:
    # −(−2^63) does not fit int64.
    if symmetry == "skew-symmetric" and values.dtype == np.int64 and (values == np.iinfo(np.int64).min).any():
        return values.astype(object)
    return values


def _read_array(source: Source, header: Header, rest: Lines, blocks: Iterator[Lines]) -> NDArray[np.generic]:
    width = _VALUES[header.field]
    lines: list[NDArray[np.int64]] = []
    parts: list[NDArray[np.generic]] = []
    for numbers, columns in _columns(source, rest, blocks, width, header.stored, f"an array {header.field} file"):
        parts.append(_values(source, header.field, numbers, columns))
        lines.append(numbers)
    values = _widened(_joined(parts, header.field), header.symmetry)
    if header.symmetry == "general":
        return np.ascontiguousarray(values.reshape((header.columns, header.rows)).T)
    # The lower triangle, column by column: the upper triangle's index pairs row by row, with their roles exchanged.
    skip = 1 if header.symmetry == "skew-symmetric" else 0
    column, row = np.triu_indices(header.rows, skip)
    if header.symmetry == "hermitian":
        _check_real_diagonal(source, np.concatenate([*lines, np.empty(0, np.int64)]), row == column, values)
    result = np.zeros((header.rows, header.columns), dtype=values.dtype)
    result[column, row] = _mirrored(values, header.symmetry)
    result[row, column] = values
    return result


def _read_coordinate(source: Source, header: Header, rest: Lines, blocks: Iterator[Lines]) -> NDArray[np.generic]:
    width = 2 + _VALUES[header.field]
    lines: list[NDArray[np.int64]] = []
    places: list[NDArray[np.int64]] = []
    parts: list[NDArray[np.generic]] = []
    for numbers, columns in _columns(source, rest, blocks, width, header.stored, f"a coordinate {header.field} file"):
        row = _indices(source, numbers, columns[0], header.rows, "row")
        column = _indices(source, numbers, columns[1], header.columns, "column")
        _check_triangle(source, numbers, row, column, header.symmetry)
        places.append(row * header.columns + column)
        parts.append(_values(source, header.field, numbers, columns[2:]))
        lines.append(numbers)
    values = _widened(_joined(parts, header.field), header.symmetry)
    result = np.zeros((header.rows, header.columns), dtype=values.dtype)
    if not places:
        return result
    place, number = np.concatenate(places), np.concatenate(lines)
    _check_distinct(source, number, place, header.columns)
    row, column = np.divmod(place, header.columns)
    if header.symmetry == "hermitian":
        _check_real_diagonal(source, number, row == column, values)
    if header.symmetry != "general":
        result[column, row] = _mirrored(values, header.symmetry)
    result[row, column] = values
    return result


def _indices(
    source: Source, numbers: NDArray[np.int64], tokens: Sequence[bytes], size: int, what: str
) -> NDArray[np.int64]:
    values = int_array(source, numbers, tokens)
    wrong = np.flatnonzero((values < 1) | (values > size))  # type: ignore[operator]  # int64 or Python ints
    if wrong.size:
        index = int(wrong[0])
        raise source.error(int(numbers[index]), f"the {what} index {shown(tokens[index])[1:-1]} is outside 1…{size}")
    return values.astype(np.int64) - 1


def _check_triangle(
    source: Source, numbers: NDArray[np.int64], row: NDArray[np.int64], column: NDArray[np.int64], symmetry: Symmetry
) -> None:
    if symmetry == "general":
        return
    skew = symmetry == "skew-symmetric"
    wrong = np.flatnonzero(row <= column if skew else row < column)
    if wrong.size:
        index = int(wrong[0])
        raise source.error(
            int(numbers[index]),
            f"the entry ({row[index] + 1}, {column[index] + 1}) is not {'strictly ' if skew else ''}in the lower "
            f"triangle, all that a {symmetry} file stores",
        )


def _check_distinct(source: Source, numbers: NDArray[np.int64], place: NDArray[np.int64], columns: int) -> None:
    order = np.argsort(place, kind="stable")
    repeated = np.flatnonzero(place[order][1:] == place[order][:-1])
    if repeated.size:
        first, second = min(((int(order[i]), int(order[i + 1])) for i in repeated), key=lambda pair: pair[1])
        row, column = divmod(int(place[first]), columns)
        raise source.error(
            int(numbers[second]),
            f"the entry ({row + 1}, {column + 1}) was given in line {numbers[first]} already, and the format does not "
            "say whether to add or to replace; merge the two",
        )


def _check_real_diagonal(
    source: Source, numbers: NDArray[np.int64], diagonal: NDArray[np.bool_], values: NDArray[np.generic]
) -> None:
    imaginary = cast("NDArray[np.complex128]", values).imag
    wrong = np.flatnonzero(diagonal & ~(imaginary == 0.0))
    if wrong.size:
        value = float(imaginary[wrong[0]])
        part = value if math.isfinite(value) else str(value)
        raise source.error(
            int(numbers[wrong[0]]), f"a hermitian matrix has a real diagonal; the imaginary part is {part}"
        )
