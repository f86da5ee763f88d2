"""What the first lines of a Matrix Market file declare.

Source: R. F. Boisvert, R. Pozo, K. A. Remington, The Matrix Market Exchange Formats: Initial Design, NISTIR 5935, 1996.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

from gemmulate.io.text import Lines, Source, parse_int, shown

Layout = Literal["coordinate", "array"]
Field = Literal["real", "integer", "complex", "pattern"]
Symmetry = Literal["general", "symmetric", "skew-symmetric", "hermitian"]

_LAYOUTS = ("coordinate", "array")
_FIELDS = ("real", "integer", "complex", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")


# No array is longer; larger sizes would only overflow further on.
_MAX_SIZE = 1 << 48


@dataclass(frozen=True, slots=True)
class Header:
    """What the first lines of a Matrix Market file declare."""

    layout: Layout
    field: Field
    symmetry: Symmetry
    rows: int
    columns: int
    stored: int
    """Entries that the file must hold."""


def read_header(source: Source, blocks: Iterator[Lines]) -> tuple[Header, Lines]:
    """The declarations of a file and the lines of their block that come after them.

    Raises:
        FileError: a header or size line that the format does not have, or none.
    """
    banner: tuple[Layout, Field, Symmetry] | None = None
    number = 0
    for first, lines in blocks:
        for number, line in enumerate(lines, first):
            if banner is None:
                banner = _parse_banner(source, line)
            elif line.strip() and not line.lstrip().startswith(b"%"):
                return _parse_size(source, number, line, *banner), (number + 1, lines[number + 1 - first :])
    raise source.error(number or None, "the file ends before its size line")


def _parse_banner(source: Source, line: bytes) -> tuple[Layout, Field, Symmetry]:
    words = line.decode("ascii", "backslashreplace").lower().split()
    if not words or words[0] != "%%matrixmarket":
        raise source.error(1, f"begins with {shown(line.strip())}, not %%MatrixMarket: not a Matrix Market file")
    if len(words) != 5:
        raise source.error(1, "the header must read %%MatrixMarket matrix LAYOUT FIELD SYMMETRY")
    _, kind, layout, field, symmetry = words
    for what, word, known in (
        ("object", kind, ("matrix",)),
        ("layout", layout, _LAYOUTS),
        ("field", field, _FIELDS),
        ("symmetry", symmetry, _SYMMETRIES),
    ):
        if word not in known:
            raise source.error(1, f"the header's {what} is {shown(word.encode())}; known: {', '.join(known)}")
    if field == "pattern" and (layout == "array" or symmetry not in ("general", "symmetric")):
        raise source.error(1, f"the header combines pattern with {layout} {symmetry}, which the format does not have")
    if symmetry == "hermitian" and field != "complex":
        raise source.error(1, f"the header says hermitian and {field}; a hermitian matrix is complex")
    return cast(Layout, layout), cast(Field, field), cast(Symmetry, symmetry)


def _parse_size(source: Source, number: int, line: bytes, layout: Layout, field: Field, symmetry: Symmetry) -> Header:
    tokens = line.split()
    wanted = 3 if layout == "coordinate" else 2
    names = "rows, columns and entries" if layout == "coordinate" else "rows and columns"
    if len(tokens) != wanted:
        raise source.error(number, f"the size line of a {layout} file holds {names}, not {len(tokens)} numbers")
    try:
        sizes = [parse_int(token) for token in tokens]
    except ValueError as error:
        raise source.error(number, f"the size line: {error}") from None
    if min(sizes) < 0:
        raise source.error(number, f"the size line holds a negative number: {min(sizes)}")
    if max(sizes) > _MAX_SIZE:
        raise source.error(number, f"the size line holds {shown(str(max(sizes)).encode())}, more than any memory")
    rows, columns = sizes[:2]
    if symmetry != "general" and rows != columns:
        raise source.error(number, f"a {symmetry} matrix is square; the size line says {rows}×{columns}")
    most = rows * columns
    if symmetry == "skew-symmetric":
        most = rows * (rows - 1) // 2
    elif symmetry != "general":
        most = rows * (rows + 1) // 2
    stored = sizes[2] if layout == "coordinate" else most
    if stored > most:
        raise source.error(
            number, f"the size line declares {stored} entries where a {rows}×{columns} {symmetry} has {most}"
        )
    return Header(layout, field, symmetry, rows, columns, stored)
