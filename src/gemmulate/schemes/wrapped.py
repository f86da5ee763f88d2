"""Integer products modulo 2^32 and 2^64 (NumPy's wrapped results) by the engine's own wide multiplications.

Exact modulo 2^(8 itemsize), whatever the entries: no widths, no residues. Where few moduli hold the exact result
(schemes/integers.py), those are faster.
"""

from __future__ import annotations

from gemmulate.engines.base import Array, Engine, Operand
from gemmulate.schemes.blocks import for_blocks, is_symmetric, mirror


def multiply_wrapped(engine: Engine, a: Array, bt: Array, out: Array) -> int:
    """Write the product of a (m, k) and bt (n, k), integers, modulo 2^(8 itemsize) of out (m, n; 4 or 8 bytes).

    Returns the largest bit length of what was written, its sign included.
    """
    itemsize, bits = out.dtype.itemsize, 1

    def multiply(left: Operand, right: Operand, rows: slice, columns: slice) -> None:
        nonlocal bits
        bits = max(bits, engine.multiply_wrapped(left, right, out[rows, columns]))

    symmetric = is_symmetric(a, bt, a.shape[1] * itemsize)
    for_blocks(
        engine,
        a.shape[0],
        bt.shape[0],
        a.shape[1] * itemsize,
        lambda rows: engine.pack_wrapped(True, a[rows], itemsize),
        lambda columns: engine.pack_wrapped(False, bt[columns], itemsize),
        multiply,
        symmetric=symmetric,
    )
    if symmetric:
        mirror(out)
    return bits
