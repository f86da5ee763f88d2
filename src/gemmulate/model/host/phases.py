"""The phases that host kernels consist of: each can be run at any size, is calibrated at some, and predicted at others.

A phase's seconds at other sizes come from a straight line between calibrated sizes in logarithms of both: overheads
show at small sizes, caches in the middle; beyond the largest the last line goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from gemmulate.engines.base import Engine
from gemmulate.engines.residue_system import ResidueSystem, residue_system
from gemmulate.model.host import residues

Run = Callable[[], object]
Points = tuple[tuple[float, float], ...]  # (size, seconds)

# A right panel is this wide on the widest kernels (6x32): fewer columns cost as much.
PANEL: Final = 32
BITS: Final = 51
# Kernels modulo one modulus after another are timed this many at once, with the rows of digits that they write, as
# they run: the least time of one modulus alone is less than a share of the least time of all, for it is the luckiest.
MODULI: Final = 6
# OpenBLAS multiplies without packing up to m·n·k = 100^3 (its dgemm_small_kernel_permit for AVX512): measured at
# n·n·2, 64 GB/s at n = 700 and 17 GB/s at n = 720.
SMALL_PRODUCT: Final = 100**3
_SEED: Final = 7


def system_for(depth: int) -> ResidueSystem:
    """Moduli for operands of 51 bits and sums of `depth` products."""
    system = residue_system(depth << (2 * BITS))
    assert system is not None
    return system


def prepare(engine: Engine, x: Any, system: ResidueSystem, *, left: bool) -> tuple[Any, Any]:
    """Scan, scale and take residues of one operand: (prepared, exponents). The deconstruction, T_dec."""
    top = engine.scan(x, None).top
    shift = (BITS - top).astype(np.int32)
    return engine.pack_floats(left, x, shift, None, system, BITS, False), -shift


def multiply(engine: Engine, left: tuple[Any, Any], right: tuple[Any, Any], system: ResidueSystem, out: Any) -> None:
    """Multiply prepared operands and put the result together: T_mma and T_rec."""
    engine.multiply_floats(left[0], right[0], system, left[1], right[1], out, None)


def seconds_at(points: Points, size: float) -> float:
    """Seconds of a phase at a size, from its calibrated points (at least two, sizes rising).

    >>> seconds_at(((10.0, 1.0), (1000.0, 100.0)), 100.0)  # proportional
    10.0
    """
    if size <= 0:
        return 0.0
    if size <= points[0][0]:
        return points[0][1]  # overhead: never less than at the smallest size, so a little too much
    after = next((index for index, point in enumerate(points) if point[0] >= size), len(points) - 1)
    low, high = points[after - 1], points[after]
    slope = math.log(high[1] / low[1]) / math.log(high[0] / low[0])
    return float(low[1] * (size / low[0]) ** slope)


def phases(engine: Engine) -> Mapping[str, tuple[tuple[int, ...], Callable[[int], Run]]]:
    """Every phase: sizes to calibrate it at, and a function that makes a run of one size."""
    rng = np.random.default_rng(_SEED)
    normal = rng.standard_normal

    def gemm(n: int) -> Run:
        a, b = normal((n, n)), normal((n, n))
        out = np.empty((n, n))
        return lambda: np.matmul(a, b, out=out)

    def gemv(n: int) -> Run:
        a, x = normal((n, n)), normal(n)
        return lambda: a @ x

    def skinny(columns: int) -> Callable[[int], Run]:
        def made(n: int) -> Run:
            a, x = normal((n, n)), normal((n, columns))
            return lambda: a @ x

        return made

    def deconstruct(n: int) -> Run:
        a, system = normal((n, n)), system_for(n)
        return lambda: prepare(engine, a, system, left=True)

    def emulated(columns: int | None, depth: int | None) -> Callable[[int], Run]:
        def made(n: int) -> Run:
            k = depth or n
            a, b, system = normal((n, k)), normal((columns or n, k)), system_for(n)
            left, right = prepare(engine, a, system, left=True), prepare(engine, b, system, left=False)
            out = np.empty((n, columns or n))
            return lambda: multiply(engine, left, right, system, out)

        return made

    def csr(each: int) -> Callable[[int], Run]:
        def made(n: int) -> Run:
            matrix, x = random_csr(n // each, each), normal(n // each)
            return lambda: matrix @ x

        return made

    def scaled(n: int) -> Run:
        x = normal(n)
        return lambda: residues.to_integers(x)

    def csr_moduli(each: int) -> Callable[[int], Run]:
        def made(n: int) -> Run:
            matrix, system = random_csr(n // each, each), residues.system_for(each)
            values, vector = residues.to_integers(matrix.data), residues.to_integers(normal(n // each))

            def run() -> None:
                digits = np.empty((MODULI, n // each))
                for index in range(MODULI):
                    digits[index] = residues.spmv_modulo(matrix, values, vector, system, index)

            return run

        return made

    def csr_copy(n: int) -> Run:
        return random_csr(n // 32, 32).copy  # type: ignore[no-any-return]

    def stencil_moduli(n: int) -> Run:
        points, system = residues.to_integers(normal((n + 2, n + 2, n + 2))), residues.system_for(7)
        coefficients = residues.to_integers(np.array([-6.0, 1.0]))

        def run() -> None:
            digits = np.empty((MODULI, n**3))
            for index in range(MODULI):
                digits[index] = residues.stencil7_modulo(points, coefficients, system, index).ravel()

        return run

    def recombined(n: int) -> Run:
        system = residues.system_for(64)
        digits = np.rint(normal((len(system.moduli), n)) * 40)
        return lambda: residues.recombine(digits, system, 0)

    def stencil(n: int) -> Run:
        grid = normal((n + 2, n + 2, n + 2))
        return lambda: residues.apply7(grid, -6.0, 1.0)

    vectors = (300, 3000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 12_000_000)
    entries = (3200, 10_000, 32_000, 128_000, 320_000, 640_000, 1_280_000, 2_000_000, 3_200_000, 12_800_000)
    # From 88 to 104 the three arrays of a stencil leave a last cache of 32 MB: the time of a point doubles.
    cubes = (8, 16, 32, 40, 64, 88, 104, 128)
    edges = (120, 250, 500, 1000, 1500, 2000, 4000)  # no powers of two: their strides meet in few cache sets
    # The bandwidth of one stream falls by half where a matrix leaves the last cache (16 MB at 1,414): more sizes there,
    # for a line over the whole step was 25 % off within it.
    streamed = tuple(sorted({*edges, 1250, 1330, 1440, 1600, 1750}))

    def with_switch(columns: int) -> tuple[int, ...]:
        """The edges, and a size on either side of that at which the BLAS takes another kernel: a jump, no slope."""
        switch = math.isqrt(SMALL_PRODUCT // columns)
        return tuple(sorted({*streamed, switch - 3, switch + 3}))

    return {
        "gemm_fp64": ((120, 250, 500, 900), gemm),
        "gemv_fp64": (streamed, gemv),
        "skinny_fp64_2": (with_switch(2), skinny(2)),
        "skinny_fp64_8": (with_switch(8), skinny(8)),
        "deconstruct": (edges, deconstruct),
        "multiply_panel": (edges, emulated(PANEL, None)),
        "multiply": ((120, 250, 500, 900), emulated(None, None)),
        "csr_4": (entries, csr(4)),
        "csr_32": (entries, csr(32)),
        "csr_moduli_4": (entries, csr_moduli(4)),
        "csr_moduli_32": (entries, csr_moduli(32)),
        "csr_copy": (entries, csr_copy),
        "to_integers": (vectors, scaled),
        "recombine": (vectors[:-2], recombined),
        "stencil7": (cubes, stencil),
        "stencil7_moduli": (cubes, stencil_moduli),
    }


def random_csr(rows: int, each: int) -> Any:
    """A square CSR matrix with `each` normal entries in every row, in random columns, sorted."""
    import scipy.sparse

    rng = np.random.default_rng(_SEED)
    columns = np.sort(rng.integers(0, rows, (rows, each)), axis=1).ravel().astype(np.int32)
    pointers = np.arange(0, rows * each + 1, each, dtype=np.int32)
    return scipy.sparse.csr_matrix((rng.standard_normal(rows * each), columns, pointers), shape=(rows, rows))
