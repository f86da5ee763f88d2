"""Rows of a plan's table that several kinds of products share: step, choice, why."""

from __future__ import annotations

from gemmulate.engines.base import Engine
from gemmulate.engines.digit_system import DigitSystem

Rows = list[tuple[str, str, str]]


def residue_rows(products: int, moduli: tuple[int, ...]) -> Rows:
    """Of a product by residues."""
    return [
        ("scheme", f"residues, {products} moduli", f"{moduli[0]} … {moduli[-1]}: product above the window"),
        ("encoding", "one INT8 product each", "u8 × s8 residues, int32 sums reduced, CRT, one rounding"),
    ]


def digit_rows(system: DigitSystem) -> Rows:
    """Of a product modulo p by digits."""
    count, bits = system.digits, system.bits
    cut = f"{count} digit{'s' if count > 1 else ''} of {bits} bits"
    how = "one for each pair of digits" if bits == 8 else "one for each digit and each sum of two"
    return [
        (
            "scheme",
            f"digits, {system.products} INT8 product{'s' if system.products > 1 else ''}",
            f"p ≤ 2^{bits * count}: {cut}",
        ),
        ("encoding", how, "u8 × s8 digits, int32 sums weighted mod p, one reduction"),
    ]


def closing_rows(
    engine: Engine, packed: int, exactness: str, bits: str = "holds on every engine, bit for bit the same"
) -> Rows:
    """Engine, memory and exactness."""
    why = (
        "asked for, or the fastest here"
        if not engine.name.startswith("reference")
        else "NumPy and Python integers: slow"
    )
    return [
        ("engine", engine.name, why),
        ("memory", f"{packed / 2**20:.1f} MiB", "packed operands beyond inputs and output"),
        ("exactness", exactness, bits),
    ]
