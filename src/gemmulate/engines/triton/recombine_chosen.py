"""Recombination of CRT digits whose bits and moduli lie on the device (`chosen`)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from gemmulate.engines.residue_system import _system
from gemmulate.engines.torch_array import to_device
from gemmulate.engines.triton.chosen import CHECK, LEFT_BITS, MODULI, MOST_MODULI, NOTHING, RIGHT_BITS, programs_for
from gemmulate.engines.triton.floating import FloatLayout
from gemmulate.engines.triton.multiword import crt_rows, limb_count
from gemmulate.engines.triton.recombine import block_shape, gather_digits, store_rounded


class Tier(NamedTuple):
    """What one compiled recombination holds: r ≤ moduli in limbs, with a check in wide limbs if the bits are few."""

    moduli: int
    limbs: int
    wide: int

    @property
    def bits(self) -> int:
        """Bits up to which 2 x ± bound fits the wide limbs, bound < 2^(33 + bits) (`recombine.wide_limbs`)."""
        return 32 * self.wide - 2 - 33


NO_TIER = Tier(0, 0, 0)


def _tier(moduli: int) -> Tier:
    system = _system(moduli)
    return Tier(moduli, limb_count(system), -(-(system.product.bit_length() + 3) // 32))


@cache
def tiers() -> tuple[Tier, ...]:
    """4, 6, 8 and 11 limbs. A choice takes the first that holds its moduli and, with a check, its bits."""
    return tuple(_tier(moduli) for moduli in (16, 24, 33, MOST_MODULI))


@triton.jit
def holds(count, bits, MODULI_HELD: tl.constexpr, BITS_HELD: tl.constexpr, CHECKED: tl.constexpr):
    """Whether a tier of the recombination holds `count` moduli and, with a check, the bits."""
    held = count <= MODULI_HELD
    if CHECKED:
        held = held & (bits <= BITS_HELD)
    return held


@triton.jit
def scaled(top, at, inside, bits):
    """The exponents of the vectors `at`: top − bits, 0 of those without one."""
    largest = tl.load(top + at, mask=inside, other=NOTHING)
    return tl.where(largest == NOTHING, 0, largest - bits)


@triton.jit(do_not_specialize=["m"])  # as in `chosen`: divisibility changes no instruction
def recombine_chosen_kernel(
    digits,
    table,
    choice,
    row_top,
    column_top,
    row_lost,
    column_lost,
    out,
    open_,
    m,
    n,
    stride_m,
    stride_n,
    open_m,
    open_n,
    FEWER_MODULI: tl.constexpr,
    FEWER_BITS: tl.constexpr,
    LAST_MODULI: tl.constexpr,
    LAST_BITS: tl.constexpr,
    LIMBS: tl.constexpr,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    CHECKED: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Tiles of results where this tier holds the choice and the tier before does not, and the check is as compiled."""
    count, left_bits, right_bits = tl.load(choice + MODULI), tl.load(choice + LEFT_BITS), tl.load(choice + RIGHT_BITS)
    bits = tl.maximum(left_bits, right_bits)
    mine = holds(count, bits, LAST_MODULI, LAST_BITS, CHECKED)
    mine = mine & (holds(count, bits, FEWER_MODULI, FEWER_BITS, CHECKED) == 0) & (count > 0)
    mine = mine & ((tl.load(choice + CHECK) != 0) == CHECKED)
    rows = table + (count * (count + 1) // 2 - 1) * (LIMBS + 2)  # after those of 1, 2, …, r − 1 moduli, one more each
    across = tl.cdiv(n, BLOCK_N)
    tiles = tl.where(mine, tl.cdiv(m, BLOCK_M) * across, 0)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), disable_licm=True):
        i = (tile // across) * BLOCK_M + tl.arange(0, BLOCK_M)
        j = (tile % across) * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = (i < m)[:, None] & (j < n)[None, :]
        flat = i.to(tl.int64)[:, None] * n + j[None, :]
        exponent = scaled(row_top, i, i < m, left_bits)[:, None] + scaled(column_top, j, j < n, right_bits)[None, :]
        store_rounded(
            gather_digits(digits, rows, flat, inside, tl.cast(m, tl.int64) * n, count, LIMBS),
            exponent,
            i,
            j,
            row_lost,
            column_lost,
            left_bits,
            right_bits,
            out,
            open_,
            i.to(tl.int64)[:, None] * stride_m + j.to(tl.int64)[None, :] * stride_n,
            inside,
            i < m,
            j < n,
            i.to(tl.int64)[:, None] * open_m + j.to(tl.int64)[None, :] * open_n,
            LIMBS,
            FRACTION,
            EXPONENT,
            CHECKED,
            WIDE,
        )


@cache  # for good: CUDA graphs read it at every replay
def _crt_tables(moduli: int, limbs: int, device: torch.device) -> torch.Tensor:
    """`crt_rows` of the first r moduli for r = 1, 2, …, `moduli`, one after the other, int32."""
    rows: npt.NDArray[np.uint32] = np.concatenate(
        [np.array(crt_rows(_system(r), limbs), dtype=np.uint32) for r in range(1, moduli + 1)]
    )
    return to_device(rows.view(np.int32), device)


def recombine_chosen(
    digits: torch.Tensor,
    choice: torch.Tensor,
    top_a: torch.Tensor,
    top_b: torch.Tensor,
    lost_a: torch.Tensor,
    lost_b: torch.Tensor,
    out: torch.Tensor,
    layout: FloatLayout,
    open_: torch.Tensor,
) -> None:
    """Write x 2^(top_a − left bits + top_b − right bits), rounded once, to `out` (m, n), for the choice's moduli.

    digits: (49, m, n), uint8, contiguous, the first r as `recombine.recombine_floats` takes them; top_a, lost_a (m,)
    and top_b, lost_b (n,), int32, as `deconstruct_chosen` takes and gives them; out: bit patterns of that layout, any
    strides. With CHECK `open_` (m, n), int8, any strides, becomes 1 where a result may differ from the correctly
    rounded product and 0 elsewhere; else it stays as it is. With r = 0 nothing is written.
    """
    _, m, n = digits.shape
    if out.numel() == 0:
        return
    block_m, block_n = block_shape(digits.device)
    programs = programs_for(digits.device, triton.cdiv(m, block_m) * triton.cdiv(n, block_n))
    for fewer, tier in zip((NO_TIER, *tiers()), tiers(), strict=False):
        for checked in (False, True):
            recombine_chosen_kernel[(programs,)](
                digits,
                _crt_tables(tier.moduli, tier.limbs, digits.device),
                choice,
                top_a,
                top_b,
                lost_a,
                lost_b,
                out,
                open_,
                m,
                n,
                out.stride(0),
                out.stride(1),
                open_.stride(0),
                open_.stride(1),
                FEWER_MODULI=fewer.moduli,
                FEWER_BITS=fewer.bits,
                LAST_MODULI=tier.moduli,
                LAST_BITS=tier.bits,
                LIMBS=tier.limbs,
                FRACTION=layout.fraction_bits,
                EXPONENT=layout.exponent_bits,
                CHECKED=checked,
                WIDE=tier.wide,
                BLOCK_M=block_m,
                BLOCK_N=block_n,
                num_warps=4,
                enable_fp_fusion=False,
            )
