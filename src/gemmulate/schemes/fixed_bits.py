"""Bits(n) of matrices on a device, with nothing read by the host: what runs follows from shapes and types alone.

The bits are those of `floats`: n of each operand are kept there too, or as many fewer as hold every entry, which gives
the same integers times powers of two. The window is the widest that n bits allow, |A'B'| ≤ k 2^(2n), in place of one
from norms, and costs a modulus at most for most data; exponents stay on the device; NaN, infinities and signs of zeros
are decided for all elements there, whether or not there are any. So a CUDA graph can hold the product.
"""

from __future__ import annotations

from gemmulate.engines import spans
from gemmulate.engines.base import Array, Engine, Operand
from gemmulate.engines.residue_system import ResidueSystem, residue_system
from gemmulate.schemes.blocks import for_blocks


def fixed_system(depth: int, bits: int) -> ResidueSystem:
    """The moduli for sums of so many products of integers |x| ≤ 2^bits."""
    system = residue_system(depth << 2 * bits)
    assert system is not None  # by MOST_BITS
    return system


def multiply_fixed_bits(engine: Engine, a: Array, bt: Array, bits: int, out: Array) -> None:
    """Write the product of a (m, k) and bt (n, k), `bits` of each kept, to out (m, n), all of them on the device."""
    (m, k), n = a.shape, bt.shape[0]
    system = fixed_system(k, bits)
    with spans.span(spans.SURVEY):
        shift_a, shift_b = engine.device_shifts(a, bits), engine.device_shifts(bt, bits)

    def multiply(left: Operand, right: Operand, rows: slice, columns: slice) -> None:
        with spans.span(spans.MULTIPLY):
            engine.multiply_floats(left, right, system, -shift_a[rows], -shift_b[columns], out[rows, columns], None)

    def pack_left(rows: slice) -> Operand:
        with spans.span(spans.CONVERT_A):
            return engine.pack_floats(True, a[rows], shift_a[rows], None, system, bits, False)

    def pack_right(columns: slice) -> Operand:
        with spans.span(spans.CONVERT_B):
            return engine.pack_floats(False, bt[columns], shift_b[columns], None, system, bits, False)

    for_blocks(engine, m, n, k * system.bytes_per_entry, pack_left, pack_right, multiply)
    engine.settle(a, bt, out)
