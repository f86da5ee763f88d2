"""The equality gate: a redesign must give the baseline's P bytes and output bytes for every number of iterations.

Inputs are chosen so that each order of operations leaves a mark: maxima that rise in every tile, in none and at random,
a masked last tile, rows of zeros, and figures that saturate E4M3.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gemmulate.screen.attention import TILE, Inputs, Trace, attention

Kernel = Callable[[Inputs], Trace]
# The baseline treats the last two iterations apart: 1, 2 and 3 are each a case of their own.
ITERATIONS: Final = (1, 2, 3, 4, 11)
WIDTH: Final = 48
PATTERNS: Final = ("random", "rising", "falling", "peaked", "zero")


class Difference(msgspec.Struct, frozen=True):
    """The first value that differs in P, RO, the normalised output or the output; `expected` and `found` are bits."""

    where: str
    iterations: int
    pattern: str
    tile: int | None
    row: int
    column: int
    expected: int
    found: int

    @property
    def text(self) -> str:
        """One line for a report."""
        place = f"tile {self.tile}, " if self.tile is not None else ""
        return (
            f"{self.where} differs at {place}row {self.row}, column {self.column}: 0x{self.expected:02x} expected, "
            f"0x{self.found:02x} found ({self.pattern} scores, {self.iterations} iterations)"
        )


class Equality(msgspec.Struct, frozen=True):
    """Outcome of the gate: equal, or the first difference; `compared` counts the bytes looked at."""

    equal: bool
    compared: int
    difference: Difference | None


def make_inputs(
    iterations: int, pattern: str, *, seed: int = 0, rows: int = 32, depth: int = 64, keys: int = 0
) -> Inputs:
    """Inputs of one head with `iterations` tiles, the last one cut to a part unless `keys` says how many keys."""
    if pattern not in PATTERNS:
        raise ValueError(f"pattern = {pattern!r} is unknown; use one of {', '.join(PATTERNS)}")
    rng = np.random.default_rng([seed, iterations, PATTERNS.index(pattern)])
    keys = keys or iterations * TILE - 19
    q = rng.integers(-127, 128, (rows, depth), dtype=np.int8)
    k = rng.integers(-127, 128, (keys, depth), dtype=np.int8)
    tile = np.arange(keys) // TILE
    level = {
        "random": np.ones(keys),
        "rising": (tile + 1) / (tile[-1] + 1),
        "falling": (tile[-1] - tile + 1) / (tile[-1] + 1),
        "peaked": np.where(np.arange(keys) % TILE == 5, 1.0, 0.05),
        "zero": np.zeros(keys),
    }[pattern]
    k = np.rint(k * level[:, None]).astype(np.int8)
    v = rng.integers(0, 127, (keys, WIDTH), dtype=np.uint8) | (rng.integers(0, 2, (keys, WIDTH), dtype=np.uint8) << 7)
    v[:, 0] = 0
    return Inputs(
        q=q,
        k=k,
        v=v.astype(np.uint8),
        q_scale=np.float32(rng.uniform(0.005, 0.03)),
        k_scale=rng.uniform(0.005, 0.03, -(-keys // TILE)).astype(np.float32),
        v_scale=rng.uniform(0.001, 0.01, WIDTH).astype(np.float32),
    )


def check_equality(
    candidate: Kernel, *, iterations: Sequence[int] = ITERATIONS, seeds: int = 2, reference: Kernel = attention
) -> Equality:
    """Compare a kernel with the reference byte by byte on every iteration count, score pattern and seed.

    candidate maps Inputs to a Trace. Exact: bytes, no tolerance. Raises what the candidate raises, and ValueError when
    there is nothing to compare or the trace has other shapes or types; a kernel with other tiles has to show P in tiles
    of 64 keys.
    """
    if not iterations or min(iterations) < 1 or seeds < 1:
        raise ValueError(f"iterations = {tuple(iterations)}, seeds = {seeds}: give at least one of each, from 1 on")
    compared = 0
    for count in iterations:
        for pattern in PATTERNS:
            for seed in range(seeds):
                inputs = make_inputs(count, pattern, seed=seed)
                expected, found = reference(inputs), candidate(inputs)
                difference = _first_difference(expected, found, count, pattern)
                compared += sum(tile.nbytes for tile in expected.p) + expected.output.nbytes
                if difference is not None:
                    return Equality(False, compared, difference)
    return Equality(True, compared, None)


def _first_difference(expected: Trace, found: Trace, iterations: int, pattern: str) -> Difference | None:
    if len(expected.p) != len(found.p):
        raise ValueError(f"the trace has P of {len(found.p)} tiles, the reference of {len(expected.p)} of {TILE} keys")
    steps: list[tuple[str, int | None, NDArray[Any], NDArray[Any]]] = [
        ("P", tile, a, b) for tile, (a, b) in enumerate(zip(expected.p, found.p, strict=True))
    ]
    if expected.ro is not None and found.ro is not None:
        steps.append(("RO", None, expected.ro, found.ro))
    if expected.normal is not None and found.normal is not None:
        steps.append(("normalised output", None, expected.normal, found.normal))
    steps.append(("output", None, expected.output, found.output))
    # Another shape would be broadcast and another type compared by value: neither is equality of bytes.
    for where, number, a, b in steps:
        if not isinstance(b, np.ndarray) or a.shape != b.shape or a.dtype != b.dtype:
            place = where if number is None else f"{where} of tile {number}"
            shown = f"{b.dtype} {b.shape}" if isinstance(b, np.ndarray) else type(b).__name__
            raise ValueError(f"{place} is {shown} in the trace, {a.dtype} {a.shape} in the reference")
    for where, number, a, b in steps:
        bits = np.dtype(f"u{a.itemsize}")
        a, b = np.ascontiguousarray(a).view(bits), np.ascontiguousarray(b).view(bits)
        places = np.argwhere(a != b)
        if len(places):
            row, column = (int(index) for index in places[0])
            return Difference(where, iterations, pattern, number, row, column, int(a[row, column]), int(b[row, column]))
    return None
