"""Matrix files by name: the suffix says the format."""

import os
import re
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from gemmulate.errors import FileError
from gemmulate.io.atomic import check_target, write_atomically

READABLE = (".npy", ".npz", ".mtx", ".mtx.gz", ".csv", ".csv.gz")
WRITABLE = (".npy", ".mtx", ".mtx.gz", ".csv")

# Dense bytes that a small file may unpack to before one has to say that it is meant: 4 GiB holds float64 of 23170².
DEFAULT_MAX_BYTES = 4 << 30

_MAGIC = (
    (b"\x93NUMPY", ".npy"),
    (b"PK\x03\x04", ".npz"),
    (b"%%MatrixMarket", ".mtx"),
    (b"\x1f\x8b", ".mtx.gz"),
)


def read_matrix(path: str | os.PathLike[str], *, max_bytes: int = DEFAULT_MAX_BYTES) -> NDArray[np.generic]:
    """The array of a matrix file: npy, npz (`file.npz:member` or the only member), mtx, mtx.gz, csv or csv.gz.

    Text gives int64, an object array of Python ints when an integer does not fit, float64 (correctly rounded) or
    complex128; npy and npz give what they hold, in native byte order. Nothing is unpickled.

    Args:
        path: The file; its suffix says the format.
        max_bytes: What a sparse, compressed or textual file may take as a dense array.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: not a matrix, with the line and the rule.

    >>> from gemmulate.data import path_of
    >>> read_matrix(path_of("karate")).shape
    (34, 34)
    """
    name = os.fspath(path)
    file, member = _split_member(name)
    suffix = _suffix(file, READABLE, "read")
    if os.path.exists(file) and not os.path.isfile(file):  # reading a pipe twice would wait for ever
        raise FileError(f"{file}: is a {'directory' if os.path.isdir(file) else 'device or pipe'}, not a matrix file")
    _check_content(file, suffix)
    try:
        match suffix:
            case ".npy":
                from gemmulate.io.npy import read_npy

                return read_npy(file)
            case ".npz":
                from gemmulate.io.npy import read_npz

                return read_npz(file, member, max_bytes=max_bytes)
            case ".mtx" | ".mtx.gz":
                from gemmulate.io.matrix_market import read_matrix_market

                return read_matrix_market(file, max_bytes=max_bytes)
            case _:
                from gemmulate.io.csv import read_csv

                return read_csv(file, max_bytes=max_bytes)
    except MemoryError:
        raise FileError(f"{name}: does not fit into this machine's memory") from None


def check_output(path: str | os.PathLike[str]) -> Path:
    """The file that `write_matrix` would replace or create; raises as it would, before any work is done.

    Raises:
        FileError: a suffix that is not written, or a place that cannot be written.
    """
    _suffix(os.fspath(path), WRITABLE, "write")
    return check_target(path)


def write_matrix(path: str | os.PathLike[str], array: NDArray[np.generic]) -> None:
    """Write an array as npy, mtx, mtx.gz or csv, whole or not at all.

    Text formats hold matrices: a vector is written as a column, stacks are refused. Python ints of any size go to
    text only, since npy would have to pickle them.

    Raises:
        FileError: a format that cannot hold the array, or a place that cannot be written.

    >>> write_matrix("/tmp/gemmulate-doctest.mtx", np.array([[2**70, 1]], dtype=object))
    >>> read_matrix("/tmp/gemmulate-doctest.mtx").tolist()
    [[1180591620717411303424, 1]]
    >>> os.remove("/tmp/gemmulate-doctest.mtx")
    """
    name = os.fspath(path)
    suffix = _suffix(name, WRITABLE, "write")
    _check_holds(name, suffix, array)
    try:
        with write_atomically(name) as stream:
            _write(stream, suffix, array)
    except OSError as error:  # a full disk, most often
        raise FileError(f"{name}: cannot be written: {error.strerror or error}") from error


def _write(stream: BinaryIO, suffix: str, array: NDArray[np.generic]) -> None:
    if suffix == ".npy":
        from gemmulate.io.npy import write_npy

        write_npy(stream, array)
    elif suffix == ".csv":
        from gemmulate.io.csv import write_csv

        write_csv(stream, array)
    elif suffix == ".mtx":
        from gemmulate.io.matrix_market_writer import write_matrix_market

        write_matrix_market(stream, array)
    else:
        import gzip

        from gemmulate.io.matrix_market_writer import write_matrix_market

        # No name and no time in the header: the same matrix gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed:
            write_matrix_market(cast(BinaryIO, packed), array)


def _split_member(name: str) -> tuple[str, str | None]:
    match = re.fullmatch(r"(.+\.npz):(.+)", name, re.DOTALL | re.IGNORECASE)
    if match is None or os.path.exists(name):
        return name, None
    return match[1], match[2]


def _suffix(name: str, known: tuple[str, ...], verb: str) -> str:
    lower = name.lower()
    for suffix in sorted(known, key=len, reverse=True):
        if lower.endswith(suffix):
            return suffix
    found = Path(name).suffix
    problem = f"cannot {verb} {found} files" if found else "has no suffix"
    raise FileError(f"{name or repr(name)}: {problem}; the suffix must be one of {', '.join(known)}")


def _check_content(file: str, suffix: str) -> None:
    """Refuse a file whose first bytes are those of another format than its name says."""
    with open(file, "rb") as stream:
        start = stream.read(16)
    if not start:
        raise FileError(f"{file}: the file is empty")
    gzipped = suffix.endswith(".gz")
    for magic, actual in _MAGIC:
        if start.startswith(magic) and actual != suffix and not (gzipped and actual == ".mtx.gz"):
            shown = "gzip" if actual == ".mtx.gz" else actual[1:]
            raise FileError(f"{file}: is named {suffix} but holds {shown} data; rename it to end in {actual}")


def _check_holds(name: str, suffix: str, array: NDArray[np.generic]) -> None:
    kind = array.dtype.kind
    if suffix == ".npy":
        if kind == "O":
            raise FileError(f"{name}: npy cannot hold Python ints without pickling; write .mtx or .csv instead")
        return
    if array.ndim > 2:
        raise FileError(f"{name}: {suffix} holds matrices, not a stack of shape {array.shape}; write .npy instead")
    if suffix == ".csv" and array.size == 0:
        raise FileError(f"{name}: csv cannot hold the empty shape {array.shape}; write .mtx or .npy instead")
    if kind == "O" and not all(type(value) is int for value in array.ravel().tolist()):
        raise FileError(f"{name}: an object array can be written only if every element is a Python int")
    if kind not in "biufcO" or (suffix == ".csv" and kind == "c"):
        raise FileError(f"{name}: {suffix} cannot hold {array.dtype}; write .npy instead")
    if kind in "fc" and array.dtype.itemsize > (16 if kind == "c" else 8):
        raise FileError(f"{name}: {suffix} holds float64 at most, not {array.dtype}; write .npy instead")
