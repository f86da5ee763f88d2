"""The terms of the time model, in seconds, and the ways to compose them; one function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


def t_mma(alpha: float, flops: float, narrow_ops_per_s: float) -> float:
    """T_mma = α·F / P_low: narrow multiplications (arXiv 2606.06510).

    >>> t_mma(37, 5e15, 5e15)
    37.0
    """
    return alpha * flops / narrow_ops_per_s


def t_mem(beta: float, native_bytes: float, bytes_per_s: float) -> float:
    """T_mem = β·Q / B: traffic, β = 1 when conversion is fused (arXiv 2606.06510)."""
    return beta * native_bytes / bytes_per_s


def t_dec(c_q: float, r: float, inputs: float, int_ops_per_s: float) -> float:
    """T_dec = c_q·r·N_in / P_int: every input scaled, rounded and reduced by r moduli (arXiv 2610.10924)."""
    return c_q * r * inputs / int_ops_per_s


def t_rec(c_rec: float, r: float, outputs: float, int_ops_per_s: float) -> float:
    """T_rec = c_rec·r·N_out / P_int: outputs put together from r residues (arXiv 2606.06510, its γ)."""
    return c_rec * r * outputs / int_ops_per_s


def t_native(flops: float, native_bytes: float, fp64_per_s: float, bytes_per_s: float) -> float:
    """T_nat = max(F / P_fp64, Q / B): the roofline (Williams, Waterman, Patterson 2009)."""
    return max(flops / fp64_per_s, native_bytes / bytes_per_s)


@dataclass(frozen=True)
class Terms:
    """The four terms of one prediction, in seconds."""

    mma: float
    mem: float
    dec: float
    rec: float


def published(t: Terms) -> float:
    """max(T_mma, T_mem, T_dec) + T_rec (arXiv 2610.10924)."""
    return max(t.mma, t.mem, t.dec) + t.rec


def three_term(t: Terms) -> float:
    """max(T_mma, T_mem) + T_rec: without the deconstruction, as first claimed (arXiv 2606.06510)."""
    return max(t.mma, t.mem) + t.rec


def shared_pipe(t: Terms) -> float:
    """max(T_mma, T_mem, T_dec + T_rec): deconstruction and reconstruction share the integer pipes."""
    return max(t.mma, t.mem, t.dec + t.rec)


def serial(t: Terms) -> float:
    """T_mma + T_mem + T_dec + T_rec: nothing overlaps."""
    return t.mma + t.mem + t.dec + t.rec


COMPOSITIONS: Final[dict[str, Callable[[Terms], float]]] = {
    "published": published,
    "three_term": three_term,
    "shared_pipe": shared_pipe,
    "serial": serial,
}
