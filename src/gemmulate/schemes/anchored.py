"""Correctly rounded float products by the engine's own FMA, where that costs less than residues.

Anchored sums (native/anchored.hpp) carry about 100 bits relative to ‖a_i‖ ‖b_j‖: enough to round nearly every element
of ordinary data correctly, with a proof for each. The others go to the exact long accumulator; where they would be
many (heavy cancellation, entries of very different size), the product is left to the residues. Both ways give the
one correctly rounded result.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gemmulate.engines.base import NO_EXPONENT, Array, Engine, Operand, Scan, dtype_name
from gemmulate.engines.residue_system import moduli_needed
from gemmulate.schemes.blocks import for_blocks, is_symmetric, mirror

MAX_SPAN = 400  # bits that the entries of one vector may span (native/anchored.hpp)
# An element by the long accumulator takes about 4.5 ns for each term, an anchored sum 0.06 ns: repairing one element
# in 256 costs less than a third of the product.
OPEN_SHARE = 256


ANCHORED_RESULTS = ("float64", "float32")


class _TooManyOpen(Exception):
    pass


def span(scan: Scan) -> int:
    """Bits that keep every entry of every vector exactly."""
    nonzero = scan.top != NO_EXPONENT
    return int((scan.top.astype(np.int64) - scan.lsb)[nonzero].max(initial=1))


def prefers_anchored(engine: Engine, scan_a: Scan, scan_b: Scan, k: int, result: np.dtype[np.generic]) -> bool:
    """Whether anchored sums are possible, and cheaper than the residues of entries kept exactly."""
    if dtype_name(result) not in ANCHORED_RESULTS or k == 1:
        return False
    left, right = span(scan_a), span(scan_b)
    if max(left, right) > MAX_SPAN:
        return False
    moduli = moduli_needed(k << (left + right))
    return engine.anchored_cost() < (np.inf if moduli is None else moduli)


def multiply_anchored(engine: Engine, a: Array, bt: Array, scan_a: Scan, scan_b: Scan, out: Array) -> bool:
    """Write the correctly rounded product of a (m, k) and bt (n, k) to out; False, with out unspecified, if many
    elements stay open. Nonfinite entries count as zero."""
    (m, k), n = a.shape, bt.shape[0]
    limit = m * n // OPEN_SHARE + 64
    uncertain: list[npt.NDArray[np.int64]] = []
    zeros = 0

    def multiply(left: Operand, right: Operand, rows: slice, columns: slice) -> None:
        nonlocal zeros, limit
        outcome = engine.multiply_anchored(left, right, out[rows, columns], limit)
        if not outcome.complete:
            raise _TooManyOpen
        zeros += outcome.zeros
        limit -= len(outcome.uncertain)
        uncertain.append(outcome.uncertain + np.array([rows.start, columns.start], dtype=np.int64))

    symmetric = is_symmetric(a, bt, 8 * k)
    try:
        for_blocks(
            engine,
            m,
            n,
            8 * k,
            lambda rows: engine.pack_anchored(True, a[rows], scan_a.top[rows], scan_a.lsb[rows]),
            lambda columns: engine.pack_anchored(False, bt[columns], scan_b.top[columns], scan_b.lsb[columns]),
            multiply,
            symmetric=symmetric,
        )
    except _TooManyOpen:
        return False
    engine.exact_dots(a, bt, np.concatenate(uncertain), out)
    if symmetric:
        mirror(out)
    if zeros:
        engine.fix_negative_zeros(a, bt, out)
    return True
