"""Text as matrix files need it: blocks of numbered lines, and numbers parsed exactly or refused."""

import gzip
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from gemmulate.errors import FileError

# Large enough that per-block costs vanish, small enough that a block's tokens stay in tens of megabytes.
_BLOCK_BYTES = 1 << 20
# A line that does not end within this many bytes is not a matrix file's (the longest known hold thousands of columns).
_MAX_LINE_BYTES = 1 << 26

Lines = tuple[int, list[bytes]]

_Number = TypeVar("_Number", int, float)


class Source:
    """A file to read, with the position to blame: `name:line: what is wrong`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)

    def error(self, line: int | None, message: str) -> FileError:
        """The error to raise: it names the file, and the line if there is one."""
        place = self.name if line is None else f"{self.name}:{line}"
        return FileError(f"{place}: {message}")

    def open(self) -> BinaryIO:
        """The file's bytes, decompressed when its name ends in .gz."""
        if self.name.endswith(".gz"):
            return gzip.open(self.name, "rb")  # type: ignore[return-value]  # a BinaryIO in all that is used
        return open(self.name, "rb")

    def blocks(self, stream: BinaryIO) -> Iterator[Lines]:
        """Complete lines in blocks, each with the number of its first line; memory is bounded by a block."""
        number, rest = 1, b""
        while True:
            try:
                block = stream.read(_BLOCK_BYTES)
            except EOFError:
                raise self.error(None, "the compressed file ends too early: it is truncated; fetch it again") from None
            except (gzip.BadGzipFile, zlib.error) as error:
                raise self.error(None, f"is not an intact gzip file ({error})") from None
            if not block:
                break
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > _MAX_LINE_BYTES:
                raise self.error(
                    number + len(lines), f"the line is longer than {_MAX_LINE_BYTES} bytes: not a matrix file"
                )
            if lines:
                yield number, lines
                number += len(lines)
        if rest:
            yield number, [rest]


def shown(token: bytes) -> str:
    """A token as an error message quotes it: short, printable, on one line."""
    text = token if len(token) <= 40 else token[:37] + b"..."
    return repr(text.decode("ascii", "backslashreplace"))


def parse_int(token: bytes) -> int:
    """The integer a token spells in decimal.

    Raises:
        ValueError: with the reason in words.
    """
    digits = len(token)
    limit = sys.get_int_max_str_digits()
    if b"_" in token:
        raise ValueError(f"{shown(token)} is not an integer")
    try:
        return int(token)
    except ValueError:
        if limit and digits > limit:
            raise ValueError(
                f"the integer has {digits} digits and Python converts {limit} at most; "
                "set PYTHONINTMAXSTRDIGITS=0 in the environment to lift the limit"
            ) from None
        raise ValueError(f"{shown(token)} is not an integer") from None


def parse_float(token: bytes) -> float:
    """The float64 nearest to the decimal number a token spells (ties to even).

    Raises:
        ValueError: with the reason in words; a finite number beyond float64 is refused, never turned into inf.
    """
    try:
        if b"_" in token:
            raise ValueError
        value = float(token)
    except ValueError:
        hint = "; write the exponent with E, not D" if b"d" in token.lower() and token[:1] in b"+-.0123456789" else ""
        raise ValueError(f"{shown(token)} is not a number{hint}") from None
    if math.isinf(value) and b"n" not in token.lower():  # "inf" and "infinity" both have an n
        raise ValueError(f"{shown(token)} exceeds the range of float64")
    return value


def int_array(
    source: Source, numbers: Sequence[int] | NDArray[np.int64], tokens: Sequence[bytes]
) -> NDArray[np.generic]:
    """Tokens of the given lines as int64, or as Python ints in an object array when one does not fit."""
    values = _all(source, numbers, tokens, int, parse_int)
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return object_array(values)


def float_array(
    source: Source, numbers: Sequence[int] | NDArray[np.int64], tokens: Sequence[bytes]
) -> NDArray[np.float64]:
    """Tokens of the given lines as float64, each correctly rounded."""
    values = np.array(_all(source, numbers, tokens, float, parse_float), dtype=np.float64)
    for index in np.flatnonzero(np.isinf(values)).tolist():
        try:
            parse_float(tokens[index])
        except ValueError as error:
            raise source.error(int(numbers[index]), str(error)) from None
    return values


def object_array(values: Sequence[int]) -> NDArray[np.generic]:
    """Python ints in a one-dimensional object array."""
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


def _all(
    source: Source,
    numbers: Sequence[int] | NDArray[np.int64],
    tokens: Sequence[bytes],
    quick: Callable[[bytes], _Number],
    careful: Callable[[bytes], _Number],
) -> list[_Number]:
    # The built-in conversion does whole blocks; only when something is off are the tokens taken one by one.
    if b"_" not in b"".join(tokens):
        try:
            return list(map(quick, tokens))
        except ValueError:
            pass
    result = []
    for number, token in zip(numbers, tokens, strict=True):
        try:
            result.append(careful(token))
        except ValueError as error:
            raise source.error(int(number), str(error)) from None
    return result


def is_number(token: bytes) -> bool:
    """Whether a token spells an integer of any size or a decimal number."""
    try:
        parse_float(token)
    except ValueError:
        return token.lstrip(b"+-").isdigit()
    return True


def dense_rows(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """The two-dimensional array that text formats store: a vector as a column, a scalar as 1×1, bool as 0 and 1."""
    if array.dtype == np.bool_:
        array = array.astype(np.int8)
    elif array.dtype.kind == "f":
        array = array.astype(np.float64)  # exact, and its decimals read back as the same float64
    return array.reshape((-1, 1)) if array.ndim < 2 else array


def tokens_of(values: Sequence[float]) -> list[str]:
    """The shortest decimals that read back as the same ints or floats.

    Raises:
        FileError: an integer of more digits than Python converts.
    """
    try:
        return list(map(repr, values))
    except ValueError:
        bits = max(int(value).bit_length() for value in values)
        raise FileError(
            f"an integer of {bits} bits is too long to write: Python converts {sys.get_int_max_str_digits()} digits at "
            "most; set PYTHONINTMAXSTRDIGITS=0 in the environment to lift the limit"
        ) from None
