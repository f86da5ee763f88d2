"""Blocks of a product: one operand stays packed, the other passes by in panels, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from gemmulate.engines.base import Array, Engine
from gemmulate.engines.residue_system import ResidueSystem

# Widths of a passing panel: whole tiles of the native engine (96 rows, 128 columns), and few enough bytes
# (512 · k · r) that the panel stays in a shared last-level cache while the other operand streams past it.
PANEL_ROWS = 576
PANEL_COLUMNS = 512
# Blocks of a symmetric product: whole tiles, and few of them on the diagonal (58 % of the work at n = 2048).
SYMMETRIC_PANEL = 384
# Bytes of packed residues that may be resident at once on a processor; wider products pack that side in several turns.
RESIDENT_BYTES = 1 << 30

Packed = TypeVar("Packed")


def panels(size: int, width: int) -> Iterator[slice]:
    """Slices of `width` over range(size)."""
    for start in range(0, size, width):
        yield slice(start, min(size, start + width))


def halved(engine: Engine, system: ResidueSystem, m: int, k: int, n: int) -> ResidueSystem:
    """The system as the engine multiplies fastest: by one level of Strassen's algorithm where that pays.

    Seven products of half the size for eight, and residues of their sums: no bit of a result changes.
    """
    return replace(system, halved=True) if min(m, k, n) >= engine.halving_size else system


def for_blocks(
    engine: Engine,
    m: int,
    n: int,
    bytes_per_vector: int,
    pack_left: Callable[[slice], Packed],
    pack_right: Callable[[slice], Packed],
    multiply: Callable[[Packed, Packed, slice, slice], None],
    *,
    symmetric: bool = False,
) -> None:
    """Call multiply(left, right, rows, columns) for blocks that cover the m × n product.

    The smaller side is packed as a whole (or in turns that take at most a quarter of the engine's memory, and
    RESIDENT_BYTES of a processor's), the other in panels, likewise bounded. Of a symmetric product the blocks cover the
    diagonal and what lies above it: `mirror` gives the rest.
    """
    memory, widths = check_room(engine, m, n, bytes_per_vector), engine.panel or (PANEL_ROWS, PANEL_COLUMNS)
    resident = _resident(bytes_per_vector, _budget(engine, memory))
    panel_rows, panel_columns = (min(width, resident) for width in widths)
    if symmetric:
        held = [(rows, pack_left(rows)) for rows in panels(m, SYMMETRIC_PANEL)]
        for columns in panels(n, SYMMETRIC_PANEL):
            right = pack_right(columns)
            for rows, packed in held:
                if rows.start < columns.stop:
                    multiply(packed, right, rows, columns)
    elif m <= n:
        for rows in panels(m, resident):
            left = pack_left(rows)
            for columns in panels(n, panel_columns):
                multiply(left, pack_right(columns), rows, columns)
    else:
        for columns in panels(n, resident):
            right = pack_right(columns)
            for rows in panels(m, panel_rows):
                multiply(pack_left(rows), right, rows, columns)


def check_room(engine: Engine, m: int, n: int, bytes_per_vector: int) -> int:
    """The engine's memory; MemoryError where not even the least blocks of `for_blocks` fit half of it."""
    memory, needed = engine.memory(), least_bytes(m, n, bytes_per_vector)
    if needed > memory // 2:
        raise MemoryError(
            f"the packed residues of this depth (a's last dimension) take {needed / 2**30:.2g} GiB, "
            f"engine {engine.name} has {memory / 2**30:.2g} GiB; split k and add the products"
        )
    return memory


def _budget(engine: Engine, memory: int) -> int:
    """Bytes of packed residues of the side that stays. A device's memory has nothing better to hold meanwhile."""
    return min(RESIDENT_BYTES, memory // 4) if engine.panel is None else memory // 4


def least_bytes(m: int, n: int, bytes_per_vector: int) -> int:
    """Packed residues that `for_blocks` cannot do without: whole tiles of both sides."""
    return packed_bytes(min(m, 96), min(n, 96), bytes_per_vector)


def is_symmetric(a: Array, bt: Array, bytes_per_vector: int) -> bool:
    """Whether both operands are one NumPy matrix (a Aᵀ), large enough for half of it to pay, and packed at once."""
    return (
        isinstance(a, np.ndarray)
        and isinstance(bt, np.ndarray)
        and a.shape[0] >= 2 * SYMMETRIC_PANEL
        and a.shape == bt.shape
        and a.strides == bt.strides
        and a.dtype == bt.dtype
        and a.__array_interface__["data"][0] == bt.__array_interface__["data"][0]
        and a.shape[0] * bytes_per_vector <= RESIDENT_BYTES
    )


def mirror(out: Array) -> None:
    """Copy what lies above the diagonal blocks of a symmetric product to below them."""
    for columns in panels(len(out), SYMMETRIC_PANEL):
        out[columns, : columns.start] = out[: columns.start, columns].T


def _resident(bytes_per_vector: int, budget: int = RESIDENT_BYTES) -> int:
    """Vectors of the resident side that are packed at once: whole tiles of 96."""
    return max(96, budget // max(1, bytes_per_vector) // 96 * 96)


def packed_bytes(m: int, n: int, bytes_per_vector: int) -> int:
    """Packed residues that `for_blocks` holds at once, in bytes."""
    resident = _resident(bytes_per_vector)
    small, panel = (m, min(n, PANEL_COLUMNS)) if m <= n else (n, min(m, PANEL_ROWS))
    # Panels are padded to whole register tiles, 32 vectors at most.
    return (max(32, min(small, resident)) + max(32, panel)) * bytes_per_vector
