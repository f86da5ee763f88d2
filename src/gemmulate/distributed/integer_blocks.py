"""Integer products in blocks: what one task computes of two blocks, how parts over k add up, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmulate.distributed.exact_sum import ExactSum, of_int64, words_for
from gemmulate.distributed.runner import Runner
from gemmulate.engines.base import Array
from gemmulate.errors import ResultOverflow
from gemmulate.plan.operands import as_operand, kernel_view
from gemmulate.schemes.blocks import for_blocks, halved
from gemmulate.schemes.integers import choose_integers, multiply_integers


def checked_part(runner: Runner, a: Array, b: Array) -> ExactSum:
    """The exact product of two integer blocks."""
    engine = runner.engine
    x, y = kernel_view(as_operand(a, "a")), kernel_view(as_operand(b, "b").T)
    choice = choose_integers(engine, x, y)
    (m, k), n = x.shape, y.shape[0]
    if choice.bound < 1 << 63:
        out = np.empty((m, n), dtype=np.int64)
        multiply_integers(engine, x, y, choice, out)
        return of_int64(out, choice.bound)
    assert choice.system is not None  # bytes give less than 2^63 at every depth
    system = halved(engine, choice.system, m, k, n)
    words = np.empty((m, n, words_for(choice.bound)), dtype=np.uint64)

    def multiply(left: Any, right: Any, rows: slice, columns: slice) -> None:
        block = np.empty((rows.stop - rows.start, columns.stop - columns.start, words.shape[2]), dtype=np.uint64)
        engine.multiply_words(left, right, system, block)
        words[rows, columns] = block

    for_blocks(
        engine,
        m,
        n,
        k * system.bytes_per_entry,
        lambda rows: engine.pack_integers(True, x[rows], system, choice.bits_left),
        lambda columns: engine.pack_integers(False, y[columns], system, choice.bits_right),
        multiply,
    )
    return ExactSum(choice.bound, words)


def add_exact(parts: list[ExactSum]) -> ExactSum:
    total = parts[0]
    for part in parts[1:]:
        total = total.plus(part, total.bound + part.bound)
    return total


def checked_result(total: ExactSum, dtype: np.dtype[Any], row: int, column: int) -> Array:
    """The sums as int64 or uint64; ResultOverflow names the block's first element (row, column)."""
    result, bits = total.low_bits(dtype)
    if bits:
        m, n = result.shape
        raise ResultOverflow(
            f"a result in rows {row}…{row + m - 1}, columns {column}…{column + n - 1} needs {bits} bits (sign "
            f'included) and does not fit {dtype}; pass overflow="object" for Python ints or overflow="wrap" for '
            "NumPy's wrapped values",
            bits=bits,
        )
    return result


def modular_part(runner: Runner, a: Array, b: Array, p: int) -> Array:
    return runner.matmul(a, b, modulus=p)


@dataclass(frozen=True)
class AddModulo:
    """Adds residues in [0, p), p ≤ 2^63."""

    p: int

    def __call__(self, parts: list[Array]) -> Array:
        total = parts[0].astype(np.uint64)  # two residues below 2^63 add up to less than 2^64
        p = np.uint64(self.p)
        for part in parts[1:]:
            total = total + part.astype(np.uint64)
            total = np.where(total >= p, total - p, total)
        return total.astype(np.int64)


def overflow_part(runner: Runner, a: Array, b: Array, overflow: str) -> Array:
    return runner.matmul(a, b, overflow=overflow)


def add_arrays(parts: list[Array]) -> Array:
    """Python ints exactly, fixed widths modulo 2^w, bools by their logical sum."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
