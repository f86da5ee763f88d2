"""The append-only store of measurements: one JSON object per line, never rewritten."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from gemmulate.errors import FileError
from gemmulate.io.atomic import check_target

# A record of 1,000 pairs has about 50 kB; a line past this is no record.
MAX_LINE_BYTES: Final = 16_000_000


class StoreError(FileError):
    """A store holds a line that is no record."""


def check(path: str | Path) -> None:
    """See that records can be appended to `path`; its folders are made, the file is not.

    Raises FileError or OSError saying why not.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    check_target(path)


def append(path: str | Path, record: Any) -> None:
    """Append `record` as one line, whole or not at all, after any writer that holds the file; folders are made.

    A last line cut short by a crash is closed first, so that it spoils no other. Raises OSError when the file cannot
    be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = msgspec.json.encode(record) + b"\n"
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line
        written = os.write(handle, line)
        if written != len(line):
            os.ftruncate(handle, size)
            raise OSError(f"{path}: only {written} of {len(line)} bytes could be written; free some space")
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: str | Path) -> Iterator[dict[str, Any]]:
    """The records in the order written; raises StoreError naming file and line for a line that is no JSON object."""
    with Path(path).open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise StoreError(f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes is no record")
            if not line.strip():
                continue
            try:
                record = msgspec.json.decode(line)
            except msgspec.DecodeError as error:
                raise StoreError(f"{path}:{number}: no JSON record ({error}); remove the line") from None
            if not isinstance(record, dict):
                raise StoreError(f"{path}:{number}: a record is a JSON object; remove the line")
            yield record
