"""Comma-separated matrices: integers of any size, or decimals rounded to float64."""

import os
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from gemmulate.io.text import Source, dense_rows, float_array, int_array, is_number, tokens_of

_SEPARATORS = (b",", b";", b"\t")
_BOM = b"\xef\xbb\xbf"  # what spreadsheets put before UTF-8


def read_csv(path: str | os.PathLike[str], *, max_bytes: int) -> NDArray[np.generic]:
    """A text file of one matrix row per line as a two-dimensional array.

    The separator is a comma, or a semicolon or tab when the first row has no comma, or blanks when it has none of
    these. All integers: int64, or an object array of Python ints when one does not fit; otherwise float64, correctly
    rounded. Blank lines and lines that begin with # are passed over.

    Raises:
        FileError: a row with another number of values, a value that is no number, an empty file, or more than
            `max_bytes` bytes as an array.
    """
    source = Source(path)
    separator: bytes | None = None
    width = first_row = count = 0
    parts: list[NDArray[np.generic]] = []
    minus_zeros: list[NDArray[np.intp]] = []
    with source.open() as stream:
        for first, lines in source.blocks(stream):
            tokens: list[bytes] = []
            owners: list[int] = []
            for number, raw in enumerate(lines, first):
                line = raw.removeprefix(_BOM) if number == 1 else raw
                line = line.strip(b" \r")  # not tabs: two at the end are an empty value
                if not line.strip() or line.startswith(b"#"):
                    continue
                if not width:
                    separator = next((sep for sep in _SEPARATORS if sep in line), None)
                row = [token.strip() for token in line.split(separator)]
                if not width:
                    width, first_row = len(row), number
                    if not any(map(is_number, row)):
                        raise source.error(number, "holds no numbers; put # before a heading, or remove it")
                if len(row) != width:
                    raise source.error(number, f"holds {len(row)} values where line {first_row} has {width}")
                if b"" in row:
                    raise source.error(number, f"the value in column {row.index(b'') + 1} is empty")
                tokens += row
                owners += [number] * width
            if not tokens:
                continue
            count += len(tokens)
            if count * 8 > max_bytes:
                limit = f"{max_bytes:.3g} bytes as a matrix"
                raise source.error(None, f"holds more than {limit}; raise max_bytes (--max-gib) if that is meant")
            integral = b"".join(tokens).translate(None, b"+-").isdigit()
            parts.append(int_array(source, owners, tokens) if integral else float_array(source, owners, tokens))
            zeros = np.flatnonzero(parts[-1] == 0) if integral else np.empty(0, np.intp)
            minus_zeros.append(np.array([i for i in zeros if tokens[i].startswith(b"-")], dtype=np.intp))
    if not width:
        raise source.error(None, "the file holds no values")
    if any(part.dtype == np.float64 for part in parts):
        parts = [_as_float(source, part, where) for part, where in zip(parts, minus_zeros, strict=True)]
    elif any(part.dtype == object for part in parts):
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts).reshape((-1, width))


def write_csv(stream: BinaryIO, array: NDArray[np.generic]) -> None:
    """Write a matrix with one row per line; a vector is written as a column.

    Reading it again gives the same values bit for bit (as float64, int64 or Python ints).
    """
    for row in dense_rows(array):
        stream.write((",".join(tokens_of(row.tolist())) + "\n").encode())


def _as_float(source: Source, part: NDArray[np.generic], minus_zero: NDArray[np.intp]) -> NDArray[np.generic]:
    # An integer rounds to the float64 that its decimal does; only the sign of "-0" has to be put back.
    try:
        result = part.astype(np.float64)
    except OverflowError:
        raise source.error(None, "mixes decimals with an integer that exceeds the range of float64") from None
    result[minus_zero] = -0.0
    return result
