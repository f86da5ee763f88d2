"""Text evidence from other tools, read line by line in bounded memory, with errors that name file and line.

Windows shells write UTF-16 with a byte-order mark; everything else is taken as UTF-8.
"""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gemmulate.errors import FileError

# The longest line of real evidence is a wide profiler row of about 100 kB.
MAX_LINE: Final = 1_000_000
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class EvidenceError(FileError):
    """A file of evidence cannot be read as what it should be."""


def plain(text: str) -> str:
    """A name from such a file as a terminal may show it: what would steer the terminal is escaped.

    >>> plain("kernel\\x1b[31m")
    'kernel\\\\x1b[31m'
    """
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a text file, each with its line end if it has one.

    Raises EvidenceError for an empty file, binary content and lines of more than a million characters; OSError when
    the file cannot be read.
    """
    with Path(path).open("rb") as file:
        head = file.read(4096)
    if not head:
        raise EvidenceError(f"{path}: is empty")
    encoding = next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")
    if encoding == "utf-8" and b"\0" in head:
        raise EvidenceError(f"{path}: is binary, not text; give the tool's text output")
    with Path(path).open(encoding=encoding, errors="replace", newline="") as text:
        number = 0
        while line := text.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise EvidenceError(f"{path}:{number}: a line of more than {MAX_LINE:,} characters is no evidence")
            if "\0" in line:
                raise EvidenceError(f"{path}:{number}: holds a NUL character; the file is binary or damaged")
            yield line
