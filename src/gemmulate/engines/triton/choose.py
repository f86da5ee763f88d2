"""The choice of bits and moduli of a float product, made on the device from what the surveys left there.

It is that of `schemes.floats`, which the host makes for other engines: integers of up to 128 bits, and costs in float64
whose operations are the host's one by one, each rounded once. So the same t and the same number of moduli come out, and
with them the same bits of results. One program of 64 lanes, one for each number of moduli, chooses.

Not run on a GPU: the tests compare with the host's choice in Triton's interpreter.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl

from gemmulate.engines.resident import ChoiceRules
from gemmulate.engines.residue_system import largest_bounds
from gemmulate.engines.torch_array import to_device
from gemmulate.engines.triton.chosen import CHECK, FIELDS, LEFT_BITS, LIMIT, MODULI, NOTHING, RIGHT_BITS
from gemmulate.engines.triton.floating import FloatLayout
from gemmulate.engines.triton.multiword import bit_length32
from gemmulate.engines.triton.survey import load_entries, outer_bits

NO_LIMIT, EVERY = tl.constexpr(255), tl.constexpr(-1)  # of elements for the exact dot products
# Grades, as constants of the kernel.
FAST, COMPONENTWISE, EXACT = (tl.constexpr(i) for i in range(3))
_GRADES = {"fast": 0, "componentwise": 1, "exact": 2}
WARPS = {"fast": 16, "componentwise": 4, "exact": 4}  # 64² pairs of classes spill with four

BINS = 256  # of both histograms
CLASSES = 64
BLOCK = 1024
Facts = torch.Tensor  # (3,), int64: bits that keep every entry, the largest Σ q², the sum of all ⌊Σ q² 2^-16⌋


@triton.jit(do_not_specialize=["vectors"])
def facts_kernel(top, negative_lsb, square, facts, vectors, BLOCK: tl.constexpr):
    """One program over all vectors."""
    bits, largest = tl.full((BLOCK,), 1, tl.int32), tl.zeros((BLOCK,), tl.int64)
    total = tl.zeros((BLOCK,), tl.int64)
    for first in range(0, vectors, BLOCK):
        v = first + tl.arange(0, BLOCK)
        inside = v < vectors
        high = tl.load(top + v, mask=inside, other=NOTHING)
        low = tl.load(negative_lsb + v, mask=inside, other=0)
        bits = tl.maximum(bits, tl.where(high != NOTHING, high + low, 1))
        here = tl.load(square + v, mask=inside, other=0)
        largest = tl.maximum(largest, here)
        total += here >> 16
    tl.store(facts, tl.max(bits, axis=0).to(tl.int64))
    tl.store(facts + 1, tl.max(largest, axis=0))
    tl.store(facts + 2, tl.sum(total, axis=0))


@triton.jit
def inner_kernel(top_a, top_b, inner, helps, depth, BLOCK: tl.constexpr):
    """Half the difference of both operands' exponents at each k; 0 and `helps` = 0 where its range is below 8."""
    least, most = tl.full((BLOCK,), 1 << 30, tl.int32), tl.full((BLOCK,), -(1 << 30), tl.int32)
    for first in range(0, depth, BLOCK):
        k = first + tl.arange(0, BLOCK)
        a = tl.load(top_a + k, mask=k < depth, other=NOTHING)
        b = tl.load(top_b + k, mask=k < depth, other=NOTHING)
        both = (a != NOTHING) & (b != NOTHING)
        least = tl.minimum(least, tl.where(both, b - a, 1 << 30))
        most = tl.maximum(most, tl.where(both, b - a, -(1 << 30)))
    wide = tl.max(most, axis=0) - tl.min(least, axis=0) >= 8
    tl.store(helps, wide.to(tl.int32))
    for first in range(0, depth, BLOCK):
        k = first + tl.arange(0, BLOCK)
        a = tl.load(top_a + k, mask=k < depth, other=NOTHING)
        b = tl.load(top_b + k, mask=k < depth, other=NOTHING)
        both = (a != NOTHING) & (b != NOTHING)
        tl.store(inner + k, tl.where(both & wide, (b - a) >> 1, 0), mask=k < depth)


@triton.jit
def depths_kernel(
    x,
    inner,
    top,
    histogram,
    vectors,
    depth,
    stride_vector,
    stride_depth,
    FRACTION: tl.constexpr,
    EXPONENT: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """How many entries of a vector need d = top − lsb bits, d up to 255; a program for each vector."""
    v = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    upper = tl.load(top + v)[:, None]
    counts = tl.zeros((256,), tl.int32)
    for first in range(0, depth, BLOCK_K):
        k = (first + tl.arange(0, BLOCK_K)).to(tl.int64)
        _bits, significand, exponent = load_entries(
            x, inner, v, k, vectors, depth, stride_vector, stride_depth, FRACTION, EXPONENT, True
        )
        kept = significand != 0
        _length, zeros = outer_bits(tl.where(kept, significand, 1), FRACTION)
        bits = tl.minimum(tl.maximum(upper - exponent - zeros, 0), 255)
        counts += tl.histogram(tl.reshape(bits, (BLOCK_K,)), 256, mask=tl.reshape(kept, (BLOCK_K,)))
    tl.atomic_add(histogram + tl.arange(0, 256), counts.to(tl.int64), mask=counts > 0, sem="relaxed")


@triton.jit
def bit_length(x):
    """Bits of a uint64, 0 for 0, as int32."""
    high = (x >> 32).to(tl.uint32)
    return tl.where(high != 0, 32 + bit_length32(high), bit_length32(x.to(tl.uint32)))


@triton.jit
def root_of_product(x, y):
    """⌊√(x y)⌋ of int64 tensors, 0 ≤ x, y < 2^63, as uint64: bit after bit, squares compared in 128 bits."""
    left, right = x.to(tl.uint64, bitcast=True), y.to(tl.uint64, bitcast=True)
    high, low = tl.umulhi(left, right), left * right
    root = left ^ left
    for step in range(63):
        candidate = root | (tl.full(root.shape, 1, tl.uint64) << tl.cast(62 - step, tl.uint64))
        above, below = tl.umulhi(candidate, candidate), candidate * candidate
        root = tl.where((above < high) | ((above == high) & (below <= low)), candidate, root)
    return root


@triton.jit
def shifts_of(root, limits, lane):
    """Of `lane` + 1 moduli, the largest s for which they cover root · 2^s; `limits`: bit lengths, then top 64 bits.

    root 2^s ≤ limit, s the difference of their bit lengths, just where root is at most as many top bits of the limit.
    """
    inside = (lane >= 0) & (lane < 49)
    length = tl.load(limits + lane, mask=inside, other=0).to(tl.int32)
    top = tl.load(limits + 64 + lane, mask=inside, other=0).to(tl.uint64, bitcast=True)
    bits = bit_length(root)
    return length - bits - (root > (top >> (64 - bits).to(tl.uint64))).to(tl.int32)


@triton.jit
def kept_bits(shift, low, high):
    """The larger t with min(t, low) + min(t, high) ≤ shift + 30, low ≤ high the bits that keep all of an operand."""
    total = shift + 30
    between = tl.maximum(tl.where(total < 2 * low, total >> 1, total - low), 0)
    return tl.where(total >= low + high, high, between)


@triton.jit
def cheapest(cost, t, offered, dot_cost):
    """(cost, t) of the cheapest of the lanes, the larger t of equals; dot_cost and −1 where none costs less."""
    least = tl.min(tl.where(offered, cost, dot_cost), axis=0)
    best = tl.max(tl.where(offered & (cost == least), t, -1), axis=0)
    return tl.minimum(least, dot_cost), tl.where(least < dot_cost, best, -1)


@triton.jit
def entries_above(histogram, t):
    """How many entries of a histogram lie above each t, int64."""
    bins = tl.arange(0, 256)
    counts = tl.load(histogram + bins)
    return tl.sum(tl.where(bins[None, :] > t[:, None], counts[None, :], 0), axis=1)


@triton.jit
def power_of_two(exponent):
    """2^exponent as float64, −1022 ≤ exponent ≤ 1023."""
    return ((exponent + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)


@triton.jit
def fast_bits(classes_a, classes_b, k, digits):
    """`schemes.floats._fast_bits`: the least t with den 2^t ≥ num 2^(digits − 4) for all pairs of classes."""
    alpha = tl.arange(0, 64).to(tl.int64)
    sum_a, square_a = tl.load(classes_a + alpha)[:, None], tl.load(classes_a + 64 + alpha)[:, None]
    sum_b, square_b = tl.load(classes_b + alpha)[None, :], tl.load(classes_b + 64 + alpha)[None, :]
    total = sum_a + sum_b
    num = total + (total >> digits.to(tl.int64)) + 2
    square_a, square_b = tl.broadcast(square_a, square_b)
    root = root_of_product(square_a, square_b) + 1
    rounding = (root >> 18).to(tl.int64, bitcast=True) + 1
    den = tl.maximum(2 * tl.cast(k, tl.int64) * alpha[:, None] * alpha[None, :] - rounding, 1)
    apart = bit_length(num.to(tl.uint64, bitcast=True)) - bit_length(den.to(tl.uint64, bitcast=True))
    shifted = den << tl.maximum(apart, 0).to(tl.int64)
    short = shifted < (num << tl.maximum(-apart, 0).to(tl.int64))
    t = digits - 4 + apart + short.to(tl.int32)
    t = tl.where((sum_a > 0) & (sum_b > 0), t, 0)
    return tl.maximum(tl.max(tl.max(t, axis=1), axis=0), digits - 4)


# Sizes say nothing that the compiler could use: each shape would be compiled anew, for seconds.
_SIZES = ["m", "n", "k", "samples_a", "samples_b", "digits", "least_bits", "dot_cost", "few"]


@triton.jit(do_not_specialize=_SIZES)
def choose_kernel(
    facts_a,
    facts_b,
    limits,
    asked,
    depths_a,
    depths_b,
    choice,
    m,
    n,
    k,
    samples_a,
    samples_b,
    digits,
    least_bits,
    dot_cost,
    few,
    MOST: tl.constexpr,
    GRADE: tl.constexpr,
):
    """`schemes.floats.choose_kept_bits` and what follows from t; of "fast", `depths_…` are those of `fast_bits`."""
    lane = tl.arange(0, 64)
    exact_a, exact_b = tl.load(facts_a).to(tl.int32), tl.load(facts_b).to(tl.int32)
    low, high = tl.minimum(exact_a, exact_b), tl.maximum(exact_a, exact_b)
    zero = (lane * 0).to(tl.int64)
    root = root_of_product(zero + tl.load(facts_a + 1), zero + tl.load(facts_b + 1)) + 1
    shift = shifts_of(root, limits, lane)
    there = lane < 49
    dots = tl.cast(dot_cost, tl.float64)
    # As many moduli as keep every entry; 50 where none do.
    all_moduli = 1 + tl.sum((there & (shift < exact_a + exact_b - 30)).to(tl.int32), axis=0)
    all_moduli = tl.where(high <= MOST, all_moduli, 50)
    keeps_all = (all_moduli <= 49) & (k == 1)
    if GRADE != FAST:
        keeps_all = keeps_all | (all_moduli <= few)
    t = high
    limit = NO_LIMIT
    check = 0
    if GRADE == FAST:
        bits = tl.maximum(fast_bits(depths_a, depths_b, k, digits), least_bits)
        count = tl.sum(
            (there & (shift < tl.minimum(bits, exact_a) + tl.minimum(bits, exact_b) - 30)).to(tl.int32), axis=0
        )
        t = tl.where(keeps_all | (count >= 49) | (all_moduli <= count + 1), high, bits)
    else:
        kept = kept_bits(shift, low, high)
        before = tl.where(lane > 0, kept_bits(shifts_of(root, limits, lane - 1), low, high), -1)
        offered = there & (before < tl.minimum(high, MOST))
        moduli = (lane + 1).to(tl.float64)
        rounded_t = tl.minimum(kept, MOST)
        # Of correct rounding: elements whose rounding is expected to stay open.
        squares = tl.load(facts_a + 2).to(tl.float64) * 65536.0 / tl.cast(m, tl.int64).to(tl.float64)
        squares = squares * (tl.load(facts_b + 2).to(tl.float64) * 65536.0 / tl.cast(n, tl.int64).to(tl.float64))
        one = power_of_two(tl.cast(0, tl.int32))
        typical = tl.maximum(one, tl.sqrt(squares)) * power_of_two(tl.cast(-30, tl.int32))
        typical = typical / tl.sqrt(tl.cast(k, tl.int64).to(tl.float64))
        rounded = entries_above(depths_a, rounded_t).to(tl.float64) / tl.cast(samples_a, tl.int64).to(tl.float64)
        rounded += entries_above(depths_b, rounded_t).to(tl.float64) / tl.cast(samples_b, tl.int64).to(tl.float64)
        error = rounded * power_of_two(digits - rounded_t) / typical
        enough = kept >= tl.minimum(tl.maximum(tl.minimum(digits, low), 15), high)
        exact_cost, exact_t = cheapest(moduli + dots * tl.minimum(one, error), rounded_t, offered & enough, dots)
        if GRADE == EXACT:
            t = tl.where(keeps_all, high, exact_t)
            check = tl.where(keeps_all, 0, 1)
        else:
            elements = (tl.cast(m, tl.int64) * n).to(tl.float64)
            failing = entries_above(asked, rounded_t).to(tl.float64)
            enough = kept >= tl.minimum(tl.maximum(least_bits, 15), high)
            own_cost, own_t = cheapest(moduli + dots * failing / elements, rounded_t, offered & enough, dots)
            more = tl.max(entries_above(asked, own_t + lane * 0), axis=0) > 0
            rounds = ((own_t < 0) | more) & (exact_cost < own_cost) & (keeps_all == 0)
            t = tl.where(rounds, exact_t, tl.where(own_t >= high, high, own_t))
            t = tl.where(keeps_all, high, t)
            check = rounds.to(tl.int32)
            repairs = more & (keeps_all == 0) & (rounds == 0) & (own_t >= 0) & (own_t < high)
            limit = tl.where(repairs, own_t, NO_LIMIT)
    left, right = tl.minimum(t, exact_a), tl.minimum(t, exact_b)
    count = 1 + tl.sum((there & (shift < left + right - 30)).to(tl.int32), axis=0)
    none = (t < 0) | (count > 49)
    check = tl.where((left < exact_a) | (right < exact_b), check, 0)
    tl.store(choice + MODULI, tl.where(none, 0, count))
    tl.store(choice + LEFT_BITS, tl.where(none, 0, left))
    tl.store(choice + RIGHT_BITS, tl.where(none, 0, right))
    tl.store(choice + LIMIT, tl.where(none, EVERY, limit))
    tl.store(choice + CHECK, tl.where(none, 0, check))


@cache  # for good: CUDA graphs read it at every replay
def _limits(device: torch.device) -> torch.Tensor:
    """Bit lengths of the largest bounds that 1 … 49 moduli cover, and their top 64 bits, (2, 64), int64."""
    table = np.zeros((2, 64), dtype=np.uint64)
    for i, bound in enumerate(largest_bounds()):
        length = bound.bit_length()
        table[:, i] = length, bound >> length - 64 if length >= 64 else bound << 64 - length
    return to_device(table.view(np.int64), device)


def facts(scan: torch.Tensor, norms: torch.Tensor) -> Facts:
    """What a choice asks of an operand, from `survey.scan` and `survey.norms` of it."""
    found = torch.empty(3, dtype=torch.int64, device=scan.device)
    facts_kernel[(1,)](
        scan[0], scan[1], norms[1], found, scan.shape[1], BLOCK=BLOCK, num_warps=4, enable_fp_fusion=False
    )
    return found


def inner_exponents(top_a: torch.Tensor, top_b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`schemes.floats.choose_inner` of the exponents (depth,), int32, and (1,), int32: 1 where it is not 0."""
    inner, helps = torch.empty_like(top_a), torch.empty(1, dtype=torch.int32, device=top_a.device)
    inner_kernel[(1,)](top_a, top_b, inner, helps, top_a.shape[0], BLOCK=BLOCK, num_warps=4, enable_fp_fusion=False)
    return inner, helps


def depths(x: torch.Tensor, layout: FloatLayout, top: torch.Tensor, inner: torch.Tensor) -> torch.Tensor:
    """The histogram (256,), int64, of bits that keep an entry (`Engine.depths`); x, top, inner as in `survey`."""
    vectors, depth = x.shape
    found = torch.zeros(BINS, dtype=torch.int64, device=x.device)
    depths_kernel[(vectors,)](
        x,
        inner,
        top,
        found,
        vectors,
        depth,
        x.stride(0),
        x.stride(1),
        FRACTION=layout.fraction_bits,
        EXPONENT=layout.exponent_bits,
        BLOCK_K=BLOCK,
        num_warps=4,
        enable_fp_fusion=False,
    )
    return found


def classes(norms: torch.Tensor) -> torch.Tensor:
    """Of vectors by their largest q in 64ths: the largest Σ q and Σ q² of each class, (2, 64), int64; 0 of none."""
    total, square, peak = norms
    of = ((peak - 1).clamp(min=0) * CLASSES) >> 15
    alive = (peak > 1).to(torch.int64)
    found = torch.zeros((2, CLASSES), dtype=torch.int64, device=norms.device)
    values = torch.stack((total * alive, square * alive))
    return found.scatter_reduce(1, of.expand(2, -1), values, "amax")


def choose(
    facts_a: Facts,
    facts_b: Facts,
    asked: torch.Tensor | None,
    depths_a: torch.Tensor,
    depths_b: torch.Tensor,
    shape: tuple[int, int, int],
    rules: ChoiceRules,
) -> torch.Tensor:
    """The choice (8,), int32, of a product of shape (m, k, n): fields as above.

    asked (256,): how many elements ask for so many bits, of the componentwise grade; depths_… (256,): the sampled
    operands' histograms; of "fast" their `classes` (2, 64). All int64.
    """
    m, k, n = shape
    choice = torch.zeros(FIELDS, dtype=torch.int32, device=facts_a.device)
    choose_kernel[(1,)](
        facts_a,
        facts_b,
        _limits(facts_a.device),
        facts_a if asked is None else asked,
        depths_a,
        depths_b,
        choice,
        m,
        n,
        k,
        *rules.samples,
        rules.digits,
        rules.least_bits,
        rules.dot_cost,
        rules.few_moduli,
        MOST=rules.most_bits,
        GRADE=_GRADES[rules.grade],
        num_warps=WARPS[rules.grade],
        enable_fp_fusion=False,
    )
    return choice
