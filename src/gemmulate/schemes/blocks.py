"""Blocks of a product: one operand stays packed, the other passes by in panels, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gemmulate.engines.base import Operand

# Widths of a passing panel: whole tiles of the native engine (96 rows, 128 columns), and few enough bytes
# (512 · k · r) that the panel stays in a shared last-level cache while the other operand streams past it.
PANEL_ROWS = 576
PANEL_COLUMNS = 512
# Bytes of packed residues that may be resident at once; wider products pack the resident side in several turns.
RESIDENT_BYTES = 1 << 30

Pack = Callable[[slice], Operand]


def panels(size: int, width: int) -> Iterator[slice]:
    """Slices of `width` over range(size)."""
    for start in range(0, size, width):
        yield slice(start, min(size, start + width))


def for_blocks(
    m: int,
    n: int,
    bytes_per_vector: int,
    pack_left: Pack,
    pack_right: Pack,
    multiply: Callable[[Operand, Operand, slice, slice], None],
) -> None:
    """Call multiply(left, right, rows, columns) for blocks that cover the m × n product.

    The smaller side is packed as a whole (or in turns of RESIDENT_BYTES), the other in panels.
    """
    resident = max(96, RESIDENT_BYTES // max(1, bytes_per_vector) // 96 * 96)
    if m <= n:
        for rows in panels(m, resident):
            left = pack_left(rows)
            for columns in panels(n, PANEL_COLUMNS):
                multiply(left, pack_right(columns), rows, columns)
    else:
        for columns in panels(n, resident):
            right = pack_right(columns)
            for rows in panels(m, PANEL_ROWS):
                multiply(pack_left(rows), right, rows, columns)


def packed_bytes(m: int, n: int, bytes_per_vector: int) -> int:
    """Packed residues that `for_blocks` holds at once, in bytes."""
    resident = max(96, RESIDENT_BYTES // max(1, bytes_per_vector) // 96 * 96)
    small, panel = (m, min(n, PANEL_COLUMNS)) if m <= n else (n, min(m, PANEL_ROWS))
    return (min(small, resident) + panel) * bytes_per_vector
