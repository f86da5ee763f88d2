"""NumPy's npy and npz files, never unpickled, sizes checked before memory is asked for."""

import math
import os
import tokenize
import zipfile
import zlib
from typing import IO, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gemmulate.io.text import Source

_UNPICKLED = "object arrays are pickled Python and are never loaded; save Python ints as Matrix Market or CSV instead"
# A matrix's header is about a hundred bytes; NumPy itself pads to 64.
_MAX_HEADER_BYTES = 10_000


def read_npy(path: str | os.PathLike[str]) -> NDArray[np.generic]:
    """The array of an npy file.

    Raises:
        FileError: not an npy file, truncated, or an object or structured array.
    """
    source = Source(path)
    with open(path, "rb") as stream:
        return _read_stream(source, stream, os.fstat(stream.fileno()).st_size, None)


def read_npz(path: str | os.PathLike[str], member: str | None, *, max_bytes: int) -> NDArray[np.generic]:
    """One member of an npz archive: the named one, or the only one.

    Raises:
        FileError: not an npz archive, several members and none named, no such member, a member that unpacks to
            more than `max_bytes`, or whatever `read_npy` refuses.
    """
    source = Source(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist() if not info.is_dir()}
            name = _choose(source, list(members), member)
            info = members[name]
            if info.file_size > max_bytes:
                raise source.error(
                    None,
                    f"the member {name!r} unpacks to {info.file_size:.3g} bytes, above the limit of {max_bytes:.3g}; "
                    "raise max_bytes (--max-gib) if that is meant",
                )
            with archive.open(info) as stream:
                return _read_stream(source, stream, info.file_size, name)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise source.error(None, f"is not an intact npz archive ({error})") from None
    except (NotImplementedError, RuntimeError) as error:  # a compression or encryption that zipfile does not have
        raise source.error(None, f"cannot be unpacked ({error})") from None


def write_npy(stream: BinaryIO, array: NDArray[np.generic]) -> None:
    """Write `array` as an npy file; object arrays are refused before by `check_output`."""
    np.lib.format.write_array(stream, array, allow_pickle=False)


def _choose(source: Source, names: list[str], member: str | None) -> str:
    listed = ", ".join(sorted(names)[:10]) + (", …" if len(names) > 10 else "")
    if not names:
        raise source.error(None, "the archive is empty")
    if member is None:
        if len(names) > 1:
            raise source.error(
                None, f"the archive has {len(names)} members; name one as {source.name}:MEMBER out of {listed}"
            )
        return names[0]
    name = member.removesuffix(".npy")
    if name not in names:
        raise source.error(None, f"the archive has no member {member!r}; it has {listed}")
    return name


def _read_stream(source: Source, stream: IO[bytes], size: int, member: str | None) -> NDArray[np.generic]:
    what = "the file" if member is None else f"the member {member!r}"
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream, _MAX_HEADER_BYTES)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream, _MAX_HEADER_BYTES)
        else:  # 3.0 differs in field names only, which a matrix has none of
            raise source.error(
                None, f"{what} has npy version {version[0]}.{version[1]}, which stores structured arrays"
            )
    except (ValueError, SyntaxError, TypeError, tokenize.TokenError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise source.error(None, f"{what} is not a readable npy file ({reason})") from None
    if dtype.hasobject:
        raise source.error(None, f"{what} holds an array of Python objects: {_UNPICKLED}")
    if dtype.names is not None or dtype.subdtype is not None:
        raise source.error(None, f"{what} holds a structured array ({dtype}), not a matrix")
    count = math.prod(shape)
    wanted, found = count * dtype.itemsize, size - stream.tell()
    if min(shape, default=0) < 0 or wanted > found:
        raise source.error(
            None, f"{what} is truncated: shape {shape} of {dtype} takes {wanted} bytes and {found} are there"
        )
    data = bytearray(wanted)
    view, filled = memoryview(data), 0
    while filled < wanted:
        chunk = stream.read(min(wanted - filled, 1 << 24))
        if not chunk:
            raise source.error(None, f"{what} is truncated: it ends after {filled} of {wanted} bytes")
        view[filled : filled + len(chunk)] = chunk
        filled += len(chunk)
    array = np.frombuffer(data, dtype=dtype, count=count) if count else np.empty(0, dtype)
    array = array.reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)
