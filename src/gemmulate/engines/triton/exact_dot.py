"""Correctly rounded dot products of floats, one rounding of the exact sum, for the elements that no bound settles.

The product of two significands is an integer times 2^(27 q + s), 0 ≤ s < 27, counted from the least unit possible; q is
its class. The left significand, shifted by s, is cut into digits of 27 bits, and so is the right one: products of
digits are below 2^54 and are added as int64 to the limb that has their weight, 2^(27 (q + i)). The limbs of a window of
four classes stand in registers, each thread with its own, and a pass over the depth adds the terms of these classes.
The windows go upwards over the classes that occur; what lies below the next one leaves as digits, with their carries.
Of those the rounding needs the leading ones of the sum or, where it is negative, of its complement, and whether any
below is not zero.

The first window begins a class below the least one in the first block; where a lower one turns up, the pass counts for
nothing and starts anew from there. Operands of ordinary exponents take one pass.

Bounds: a limb receives less than 2^55 a term, so 128 terms of a thread stay below 2^62. Carried, the limbs of 256
threads sum to less than 2^35, the top ones to less than 2^44; 2^31 terms are 2^16 such sums, below 2^60. Not run on a
GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from gemmulate.engines.triton.floating import FloatLayout
from gemmulate.engines.triton.multiword import bit_length32, round_to_float
from gemmulate.engines.triton.survey import ALL_ONES

# Digits of 27 bits: two hold a significand of float64, three that shifted by up to 26.
MASK = tl.constexpr((1 << 27) - 1)
PAIR = tl.constexpr((1 << 54) - 1)
# Classes of a window.
WINDOW = tl.constexpr(4)
# Terms that a thread's limbs hold before their carries.
STEPS = tl.constexpr(128)
# Programs of a launch over masks: more than the largest GPUs hold at a time, and few enough to launch for nothing.
PROGRAMS = 4096
# Up to this depth all warps' common work, carries and rounding, is most of a dot product's: there are fewer warps.
SHALLOW = 256


@triton.jit
def split_digits(bits, FRACTION: tl.constexpr, EXPONENT: tl.constexpr):
    """Sign as 0 or −1, two unsigned digits of the significand, exponent from 1 on, whether zero, infinite or NaN."""
    largest: tl.constexpr = (1 << EXPONENT) - 1
    if FRACTION == 52:
        # 32 bits at a time: the compiler would do the same arithmetic in 64.
        top = (bits >> 32).to(tl.int32)
        word = bits.to(tl.uint32)
        biased = (top >> 20) & largest
        upper = tl.where(biased > 0, (top & 0xFFFFF) | 0x100000, top & 0xFFFFF)
        low = word & MASK
        high = (word >> 27) | (upper.to(tl.uint32) << 5)
    else:
        top = bits.to(tl.int32)
        biased = (top >> FRACTION) & largest
        fraction = top & ((1 << FRACTION) - 1)
        low = tl.where(biased > 0, fraction | (1 << FRACTION), fraction).to(tl.uint32)
        high = low & 0
    void = (biased == largest) | ((low | high) == 0)
    return top >> 31, low, high, tl.maximum(biased, 1), void


@triton.jit
def load_terms(
    a, b, first, depth, stride_a, stride_b, FRACTION: tl.constexpr, EXPONENT: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Of BLOCK_K terms: where inside, signs and digits of both factors, exponents of the units, classes."""
    k = first + tl.arange(0, BLOCK_K)
    inside = k < depth
    x = tl.load(a + k * stride_a, mask=inside, other=0)
    y = tl.load(b + k * stride_b, mask=inside, other=0)
    sign_x, low_x, high_x, exponent_x, void_x = split_digits(x, FRACTION, EXPONENT)
    sign_y, low_y, high_y, exponent_y, void_y = split_digits(y, FRACTION, EXPONENT)
    exponent = exponent_x + exponent_y - 2
    at = (exponent * 77673) >> 21  # exponent // 27 below 2^16
    # What counts as zero lies beyond every window.
    beyond: tl.constexpr = (2 << EXPONENT) // 27 + 8
    return (
        inside,
        (sign_x, low_x, high_x),
        (sign_y, low_y, high_y),
        exponent - at * 27,
        tl.where(void_x | void_y, beyond, at),
    )


@triton.jit
def left_digits(factor, shift, COUNT: tl.constexpr):
    """COUNT signed digits of ±(low + 2^27 high) 2^shift, shift < 27."""
    sign, low, high = factor
    up = shift.to(tl.uint32)
    down = 27 - up
    # Sign and magnitude in both factors: of two's complement numbers the compiler makes one wide multiplication.
    digits = ((((low << up) & MASK).to(tl.int32) ^ sign) - sign,)
    if COUNT == 2:
        digits = digits + (((low >> down).to(tl.int32) ^ sign) - sign,)
    else:
        digits = digits + (((((low >> down) | (high << up)) & MASK).to(tl.int32) ^ sign) - sign,)
        digits = digits + (((high >> down).to(tl.int32) ^ sign) - sign,)
    return digits


@triton.jit
def right_digits(factor, COUNT: tl.constexpr):
    """COUNT signed digits of ±(low + 2^27 high)."""
    sign, low, high = factor
    digits = ((low.to(tl.int32) ^ sign) - sign,)
    if COUNT == 2:
        digits = digits + ((high.to(tl.int32) ^ sign) - sign,)
    return digits


@triton.jit
def repeated(value, COUNT: tl.constexpr):
    """A tuple of the same."""
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (value,)
    return values


@triton.jit
def add_terms(limbs, left, right, place, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Add the products of digits, those of `left` moved up by `place` limbs; nothing outside 0 ≤ place < WINDOW."""
    out, moved = (), ()
    for i in tl.static_range(WINDOW + LEFT - 1):
        digit = tl.zeros(place.shape, tl.int32)
        for j in tl.static_range(LEFT):
            if i >= j and i - j < WINDOW:
                digit = tl.where(place == i - j, left[j], digit)
        moved = moved + (digit.to(tl.int64),)
    for i in tl.static_range(WINDOW + LEFT + RIGHT - 2):
        limb = limbs[i]
        for j in tl.static_range(RIGHT):
            if i >= j and i - j < WINDOW + LEFT - 1:
                limb += moved[i - j] * right[j].to(tl.int64)
        out = out + (limb,)
    return out


@triton.jit
def add_limbs(totals, limbs, COUNT: tl.constexpr):
    """Totals (COUNT + 1) plus the sums of all threads' limbs (COUNT), each carried first to less than 2^27."""
    carry = tl.zeros(limbs[0].shape, tl.int64)
    sums = ()
    for i in tl.static_range(COUNT):
        value = limbs[i] + carry
        carry = value >> 27
        sums = sums + (totals[i] + tl.sum(value & MASK, axis=0),)
    return sums + (totals[COUNT] + tl.sum(carry, axis=0),)


@triton.jit
def added_where(limbs, sums, valid, COUNT: tl.constexpr):
    """Limbs plus sums if these are valid."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (limbs[i] + tl.where(valid, sums[i], 0),)
    return out


@triton.jit
def without_lowest(limbs, COUNT: tl.constexpr):
    """Limbs moved down by one, with the carry of the lowest."""
    out = (limbs[1] + (limbs[0] >> 27),)
    for i in tl.static_range(2, COUNT):
        out = out + (limbs[i],)
    return out + (limbs[0] * 0,)


@triton.jit
def window_sums(
    a,
    b,
    depth,
    stride_a,
    stride_b,
    start,
    done,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Limbs (int64) of the terms of classes start … start + WINDOW − 1, and the least other class from `done` on."""
    beyond: tl.constexpr = (2 << EXPONENT) // 27 + 8
    count: tl.constexpr = WINDOW + LEFT + RIGHT - 2  # of limbs that receive products; one more takes the carry
    totals = repeated(depth * 0, count + 1)
    nearest = tl.full((BLOCK_K,), beyond, tl.uint32)
    blocks = (depth + (BLOCK_K - 1)) // BLOCK_K
    for segment in range(((blocks + (STEPS - 1)) // STEPS).to(tl.int32)):
        limbs = repeated(tl.zeros((BLOCK_K,), tl.int64), count)
        before = tl.cast(segment, tl.int64) * STEPS
        for step in range(tl.minimum(blocks - before, STEPS).to(tl.int32)):
            _inside, left, right, shift, at = load_terms(
                a, b, (before + step) * BLOCK_K, depth, stride_a, stride_b, FRACTION, EXPONENT, BLOCK_K
            )
            place = at - start
            # Unsigned, so that classes from before are large.
            other = (at - done).to(tl.uint32)
            nearest = tl.minimum(nearest, tl.where((place >= 0) & (place < WINDOW), beyond, other))
            limbs = add_terms(limbs, left_digits(left, shift, LEFT), right_digits(right, RIGHT), place, LEFT, RIGHT)
        totals = add_limbs(totals, limbs, count)
    return totals, tl.minimum(tl.min(nearest, axis=0).to(tl.int32) + done, beyond)


@triton.jit
def only_negative_zeros(
    a, b, depth, stride_a, stride_b, FRACTION: tl.constexpr, EXPONENT: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Whether the products, whose sum is 0, all have a minus sign: then all are −0. Not of none."""
    others = tl.zeros((BLOCK_K,), tl.int32)
    for block in range(((depth + (BLOCK_K - 1)) // BLOCK_K).to(tl.int32)):
        inside, left, right, _shift, _at = load_terms(
            a, b, tl.cast(block, tl.int64) * BLOCK_K, depth, stride_a, stride_b, FRACTION, EXPONENT, BLOCK_K
        )
        others = others | (inside & (left[0] == right[0])).to(tl.int32)
    return (tl.max(others, axis=0) == 0) & (depth > 0)


@triton.jit
def exact_dot(
    a,
    b,
    depth,
    stride_a,
    stride_b,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    OUT_FRACTION: tl.constexpr,
    OUT_EXPONENT: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Bits (int64) of the rounded dot product of the vectors at a and b."""
    LEFT: tl.constexpr = (FRACTION + 53) // 27
    RIGHT: tl.constexpr = (FRACTION + 27) // 27
    SIZE: tl.constexpr = WINDOW + LEFT + RIGHT - 1
    beyond: tl.constexpr = (2 << EXPONENT) // 27 + 8
    depth = tl.cast(depth, tl.int64)
    zero = depth * 0
    limbs = repeated(zero, SIZE)
    # The last four digits that left, in two words, whether one before them was not zero, and the last one's place.
    high, low, sticky, place = zero, zero, zero.to(tl.int32), zero.to(tl.int32)
    # The same before the last run of equal digits: zeros above a sum, or ones above a negative one, may be its end.
    run_high, run_low, run_sticky, run_place = high, low, sticky, place
    _inside, _left, _right, _shift, at = load_terms(a, b, zero, depth, stride_a, stride_b, FRACTION, EXPONENT, BLOCK_K)
    start = tl.minimum(tl.maximum(tl.min(at, axis=0) - 1, 0), beyond - 2 * WINDOW)
    done = start * 0
    while start < beyond:
        sums, following = window_sums(
            a, b, depth, stride_a, stride_b, start, done, FRACTION, EXPONENT, LEFT, RIGHT, BLOCK_K
        )
        valid = following > start
        limbs = added_where(limbs, sums, valid, SIZE)
        # At the end all limbs leave; two digits more, and the carry is the sign, 0 or −1.
        leaving = tl.where(following == beyond, SIZE + 2, following - start)
        for i in range(tl.where(valid, leaving, 0)):
            digit = limbs[0] & MASK
            limbs = without_lowest(limbs, SIZE)
            same = digit == (high >> 27)
            run_high, run_low = tl.where(same, run_high, high), tl.where(same, run_low, low)
            run_sticky, run_place = tl.where(same, run_sticky, sticky), tl.where(same, run_place, start + i - 1)
            sticky = sticky | (low & MASK).to(tl.int32)
            low = (low >> 27) | ((high & MASK) << 27)
            high = (high >> 27) | (digit << 27)
            place = start + i
        done = tl.where(valid, start + WINDOW, done)
        start = following
    negative = limbs[0] < 0
    # All digits above are those of the sign.
    run = (high >> 27) == tl.where(negative, MASK, 0)
    high, low, sticky = tl.where(run, run_high, high), tl.where(run, run_low, low), tl.where(run, run_sticky, sticky)
    place = tl.where(run, run_place, place)
    # The complement, and one in the last place of all, which passes through zeros only.
    rest = (PAIR - low) + (sticky == 0).to(tl.int64)
    high, low = tl.where(negative, (PAIR - high) + (rest >> 54), high), tl.where(negative, rest & PAIR, low)
    if high == 0:
        negative = only_negative_zeros(a, b, depth, stride_a, stride_b, FRACTION, EXPONENT, BLOCK_K)
    # 82 bits or more before the last one, which stands for all below it.
    words = low | (high << 54)
    lowest = words.to(tl.uint32) | (sticky != 0).to(tl.uint32)
    magnitude = (lowest, (words >> 32).to(tl.uint32), (high >> 10).to(tl.uint32), (high >> 42).to(tl.uint32))
    least: tl.constexpr = 2 - (1 << (EXPONENT - 1)) - FRACTION
    return round_to_float(magnitude, negative, (place - 3) * 27 + 2 * least, 4, OUT_FRACTION, OUT_EXPONENT)


@triton.jit
def exact_dots_kernel(
    a,
    b,
    at,
    out,
    depth,
    stride_a,
    stride_a_depth,
    stride_b,
    stride_b_depth,
    stride_m,
    stride_n,
    stride_count,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    OUT_FRACTION: tl.constexpr,
    OUT_EXPONENT: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The element of a row of `at`."""
    index = tl.program_id(0).to(tl.int64)
    i, j = tl.load(at + 2 * index), tl.load(at + 2 * index + 1)
    bits = exact_dot(
        a + i * stride_a,
        b + j * stride_b,
        depth,
        stride_a_depth,
        stride_b_depth,
        FRACTION,
        EXPONENT,
        OUT_FRACTION,
        OUT_EXPONENT,
        BLOCK_K,
    )
    tl.store(out + (i * stride_m + j * stride_n + index * stride_count), bits.to(out.dtype.element_ty))


@triton.jit(do_not_specialize=["m"])
def exact_dots_where_kernel(
    a,
    b,
    need,
    limit,
    open_,
    out,
    m,
    n,
    depth,
    stride_a,
    stride_a_depth,
    stride_b,
    stride_b_depth,
    stride_need_m,
    stride_need_n,
    stride_open_m,
    stride_open_n,
    stride_m,
    stride_n,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    OUT_FRACTION: tl.constexpr,
    OUT_EXPONENT: tl.constexpr,
    NEED: tl.constexpr,
    OPEN: tl.constexpr,
    SIDE: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Of every tile of SIDE × SIDE results that is this program's, the elements asked for, one after the other."""
    across, least = tl.cdiv(n, SIDE), tl.load(limit)
    row, column = tl.arange(0, SIDE), tl.arange(0, SIDE)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, SIDE) * across, tl.num_programs(0), disable_licm=True):
        top, left = tl.cast(tile // across, tl.int64) * SIDE, tl.cast(tile % across, tl.int64) * SIDE
        i, j = (top + row)[:, None], (left + column)[None, :]
        inside = (i < m) & (j < n)
        asked = inside & (least < 0)
        if NEED:
            needed = tl.load(need + (i * stride_need_m + j * stride_need_n), mask=inside, other=0)
            asked = asked | (inside & (needed.to(tl.int32) > least))
        if OPEN:
            open_here = tl.load(open_ + (i * stride_open_m + j * stride_open_n), mask=inside, other=0)
            asked = asked | (open_here != 0)
        # A bit for each: the tile in one register for each row.
        waiting = tl.sum(asked.to(tl.uint32) << column.to(tl.uint32)[None, :], axis=1)
        first = tl.min(tl.where(waiting != 0, row, SIDE), axis=0)
        while first < SIDE:
            bits = tl.sum(tl.where(row == first, waiting, 0), axis=0)
            lowest = bits & ((bits ^ ALL_ONES) + 1)
            waiting = tl.where(row == first, waiting ^ lowest, waiting)
            x, y = top + first, left + (bit_length32(lowest) - 1)
            value = exact_dot(
                a + x * stride_a,
                b + y * stride_b,
                depth,
                stride_a_depth,
                stride_b_depth,
                FRACTION,
                EXPONENT,
                OUT_FRACTION,
                OUT_EXPONENT,
                BLOCK_K,
            )
            tl.store(out + (x * stride_m + y * stride_n), value.to(out.dtype.element_ty))
            first = tl.min(tl.where(waiting != 0, row, SIDE), axis=0)


def block_shape(depth: int) -> tuple[int, int]:
    """Terms of a block, and warps."""
    return (64, 2) if depth <= SHALLOW else (256, 4)


def tile_side(m: int, n: int, on_host: bool) -> int:
    """Of the tiles of masks: 32, the bits of a register, or less where a GPU would have few programs."""
    if on_host:
        return 32  # the interpreter's programs come one after the other
    return next((side for side in (32, 8) if triton.cdiv(m, side) * triton.cdiv(n, side) >= PROGRAMS // 4), 1)


def _constants(depth: int, layout: FloatLayout, result: FloatLayout) -> dict[str, Any]:
    block_k, warps = block_shape(depth)
    fields = {"FRACTION": layout.fraction_bits, "EXPONENT": layout.exponent_bits}
    fields |= {"OUT_FRACTION": result.fraction_bits, "OUT_EXPONENT": result.exponent_bits}
    return fields | {"BLOCK_K": block_k, "num_warps": warps, "enable_fp_fusion": False}


def _dots_at(
    a: torch.Tensor,
    b: torch.Tensor,
    layout: FloatLayout,
    at: torch.Tensor,
    out: torch.Tensor,
    strides: tuple[int, ...],
    result: FloatLayout,
) -> None:
    if len(at) == 0:
        return
    depth = a.shape[1]
    exact_dots_kernel[(len(at),)](
        a, b, at.contiguous(), out, depth, *a.stride(), *b.stride(), *strides, **_constants(depth, layout, result)
    )


def exact_dots(
    a: torch.Tensor,
    b: torch.Tensor,
    layout: FloatLayout,
    at: torch.Tensor,
    out: torch.Tensor,
    result_layout: FloatLayout,
) -> None:
    """Write the elements at `at` (count, 2), int64, of the product of a (m, k) and b (n, k) to out (m, n).

    All are bit patterns, a and b of one layout and `out` of its own, any strides, k ≤ 2^31. Each element is the exact
    sum rounded once to nearest even; NaN and infinities count as 0, and a zero is +0 unless all k ≥ 1 products are −0.
    """
    _dots_at(a, b, layout, at, out, (*out.stride(), 0), result_layout)


def dot_values(
    a: torch.Tensor, b: torch.Tensor, layout: FloatLayout, at: torch.Tensor, result_layout: FloatLayout
) -> torch.Tensor:
    """The elements that `exact_dots` writes, (count,)."""
    values = torch.empty(len(at), dtype=result_layout.carrier, device=a.device)
    _dots_at(a, b, layout, at, values, (0, 0, 1), result_layout)
    return values


def exact_dots_where(
    a: torch.Tensor,
    b: torch.Tensor,
    layout: FloatLayout,
    need: torch.Tensor | None,
    limit: torch.Tensor,
    open_: torch.Tensor | None,
    out: torch.Tensor,
    result_layout: FloatLayout,
) -> None:
    """Write those elements of the product whose `need` (m, n), uint8, exceeds `limit` or whose `open_` is not 0.

    limit: one int32 on the device, read there; 255 asks for none by need, a negative one for all. open_: (m, n), int8
    or uint8. None asks for no element. The other arguments, and what is written, are those of `exact_dots`. Nothing
    waits for the device, and the launch depends on shapes and strides alone.
    """
    (m, n), depth = out.shape, a.shape[1]
    if out.numel() == 0:
        return
    side = tile_side(m, n, out.device.type != "cuda")
    exact_dots_where_kernel[(min(triton.cdiv(m, side) * triton.cdiv(n, side), PROGRAMS),)](
        a,
        b,
        limit if need is None else need,
        limit,
        limit if open_ is None else open_,
        out,
        m,
        n,
        depth,
        *a.stride(),
        *b.stride(),
        *((0, 0) if need is None else need.stride()),
        *((0, 0) if open_ is None else open_.stride()),
        *out.stride(),
        NEED=need is not None,
        OPEN=open_ is not None,
        SIDE=side,
        **_constants(depth, layout, result_layout),
    )
