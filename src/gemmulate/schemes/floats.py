"""Float products by residues: bits from the data and the grade, a bound proved before the product, one rounding.

Row i of A is scaled by 2^(t − top_i) and rounded to integers |a'| ≤ 2^t, columns of B likewise; A'B' is exact, and
one rounding gives the result (Ozaki scheme II; Uchino, Ozaki, Imamura 2025). The grades differ in how t is chosen:

- "fast": |C − AB| ≤ 2u k · max|row i| · max|column j|, from norms alone;
- "fp64"/"fp32": |C − AB| ≤ k u |A||B| for every element, u that of the result's type. With
  E_ij = 2^(t−1)(‖a_i‖₁ + ‖b_j‖₁) the truncation's bound and L_ij ≤ (|A||B|)_ij from one INT8 product of magnitudes
  rounded down, element (i, j) needs E ≤ τ u L. The budget τ = min(√k, k − 1) is tighter than the k − 1 that the grade
  allows: rounding errors are independent, so an error of the order of u |A||B| is what is then seen;
- Bits(n): t = n (schemes/accuracy.py);
- "exact": correct rounding. Entries not kept exactly give an interval around each element; where both its ends
  round to one value, that is the result.

Elements whose bound does not hold at the chosen t are computed by an exact long accumulator: correctly rounded,
so every grade covers them. t depends on the data and the grade alone, never on an engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gemmulate.engines import spans
from gemmulate.engines.base import NO_EXPONENT, Array, Engine, Int32, Norms, Operand, Scan, dtype_name
from gemmulate.engines.residue_system import ResidueSystem, largest_shifts, moduli_needed, residue_system
from gemmulate.engines.rounding import FLOAT_FORMATS
from gemmulate.schemes.accuracy import Bits, Grade
from gemmulate.schemes.anchored import ANCHORED_RESULTS, multiply_anchored, prefers_anchored, span
from gemmulate.schemes.blocks import for_blocks, halved, is_symmetric, mirror, panels
from gemmulate.schemes.special import fill_special

# What one element by the long accumulator costs, in residue products of the whole matrix per element:
# 4 to 5 ns for each term against 2 ps for one INT8 multiply-add (AVX512-VNNI, one core). It only steers cost.
EXACT_DOT_COST = 2500.0
# Bits beyond which an inner scaling is looked for: entries of Gaussian data need 53 + ~25 bits to be kept exactly.
INNER_SCALING_BITS = 80
# Residue products that are not worth an assessment: t = 50 takes about as many.
FEW_MODULI = 13
MAX_BITS = 200
DEPTH_SAMPLES = 256  # vectors whose entries' depths are counted
DEPTH_BINS = MAX_BITS + 56
# m · k · n up to which every grade rounds correctly: one call of anchored sums, below the cost of a choice of bits.
SMALL_PRODUCT = 64**3

Int64 = npt.NDArray[np.int64]
Depths = tuple[Int64, Int64]  # histograms of both operands' depths


@dataclass(frozen=True)
class Side:
    """What is known of one operand."""

    scan: Scan
    norms: Norms
    exact_bits: int  # bits that keep every entry exactly

    @property
    def largest_square(self) -> int:
        """max_i Σ q², q = ceil(|x| 2^(15 − top))."""
        return int(self.norms.square.max(initial=0))


@dataclass(frozen=True)
class FloatChoice:
    """How a float product will run."""

    grade: Grade | Bits
    left: Side
    right: Side
    inner: Int32 | None
    bits_left: int
    bits_right: int
    bound: int  # |A'B'| ≤ bound
    system: ResidueSystem | None  # None: the long accumulator for every element
    repair: npt.NDArray[np.int64]  # elements for the long accumulator, (count, 2)
    rounds_operands: bool
    anchored: bool = False  # anchored sums first; residues, chosen then, where those leave many elements open

    @property
    def products(self) -> int:
        """INT8 matrix products that it takes."""
        return 0 if self.system is None else len(self.system.moduli)


def _side(engine: Engine, x: Array, inner: Int32 | None, scan: Scan | None = None) -> Side:
    scan = engine.scan(x, inner) if scan is None else scan
    norms = engine.norms(x, scan.top, inner)
    return Side(scan, norms, span(scan))


def inner_scaling(engine: Engine, a: Array, bt: Array, scan_a: Scan, scan_b: Scan) -> Int32 | None:
    """Exponents e with A 2^e, 2^-e B more even along k, or None. Exact: only the order of magnitudes changes."""

    def tops(x: Array, scan: Scan) -> Int32:
        rows = np.where(scan.top == NO_EXPONENT, 0, -scan.top).astype(np.int32)
        return engine.scan(x.T, rows).top

    return choose_inner(tops(a, scan_a), tops(bt, scan_b))


def choose_inner(top_a: Int32, top_b: Int32) -> Int32 | None:
    """`inner_scaling` from the exponents of the largest entry of each step of k, vectors scaled to below one."""
    both = (top_a != NO_EXPONENT) & (top_b != NO_EXPONENT)
    if not both.any():
        return None
    difference = np.where(both, top_b.astype(np.int64) - top_a, 0)
    if int(np.ptp(difference[both])) < 8:
        return None
    return np.where(both, difference // 2, 0).astype(np.int32)


def survey(
    engine: Engine, a: Array, bt: Array, scan_a: Scan, scan_b: Scan, *, scale: bool = True
) -> tuple[Side, Side, Int32 | None]:
    """Measure both operands; with `scale`, under an inner scaling where the exponents along k spread and it helps."""
    left, right = _side(engine, a, None, scan_a), _side(engine, bt, None, scan_b)
    if scale and max(left.exact_bits, right.exact_bits) > INNER_SCALING_BITS:
        inner = inner_scaling(engine, a, bt, scan_a, scan_b)
        if inner is not None:
            scaled_left, scaled_right = _side(engine, a, inner), _side(engine, bt, (-inner).astype(np.int32))
            if scaled_left.exact_bits + scaled_right.exact_bits < left.exact_bits + right.exact_bits:
                return scaled_left, scaled_right, inner
    return left, right, None


def window(left: Side, right: Side, bits_left: int, bits_right: int) -> int:
    """Bound of |A'B'| by Cauchy–Schwarz, in integers rounded up: |a'| ≤ q 2^(bits − 15)."""
    root = math.isqrt(left.largest_square * right.largest_square) + 1
    shift = bits_left + bits_right - 30
    return root << shift if shift >= 0 else -(-root // (1 << -shift))


def _fast_bits(left: Side, right: Side, k: int, digits: int) -> int:
    """Least t with 2^(t−16) (S_i + S_j + 1) + 2^-digits |C'| ≤ 2^(1−digits) k max|a'_i| max|b'_j| for all i, j.

    With α = max|a_i| 2^-top and |C'| ≤ 2^(2t) R, R = ‖a_i‖ ‖b_j‖ in units of 2^top, the condition is
    2^t (2 k α_i β_j − R) ≥ 2^(digits−16) (S_i + S_j + 1). α is rounded down to 64ths, and of each such class the
    largest sums count.
    """

    (alpha, sum_a, square_a), (beta, sum_b, square_b) = _classes(left), _classes(right)
    # In float64 first, with room for the rounding of R to an integer: only pairs that may be the worst are worked out.
    sums = np.add.outer(sum_a.astype(np.float64), sum_b.astype(np.float64))
    num = sums + np.floor(sums * 2.0**-digits) + 2
    roots = np.multiply.outer(np.sqrt(square_a.astype(np.float64)), np.sqrt(square_b.astype(np.float64)))
    den = np.multiply.outer(2.0 * k * alpha, beta) - roots * 2.0**-18
    slack = 4 + roots * 2.0**-60
    worst = num / np.maximum(1, den + slack)
    near = np.argwhere(num / np.maximum(1, den - slack) >= worst.max(initial=0.0) * (1 - 2.0**-40))
    worst_num, worst_den = 1, 1
    for i, j in near.tolist():
        rounding = (math.isqrt(int(square_a[i]) * int(square_b[j])) + 1 >> 18) + 1  # 64² R, R in units of 2^-30
        # |C'| is at most the exact |AB| ≤ R and the truncation's bound, which therefore counts 1 + 2^-digits times.
        # The denominator is positive, since ‖a‖ ≤ α √k.
        total = int(sum_a[i]) + int(sum_b[j])
        exact_num = total + (total >> digits) + 2
        exact_den = max(1, 2 * k * int(alpha[i]) * int(beta[j]) - rounding)
        if exact_num * worst_den > worst_num * exact_den:
            worst_num, worst_den = exact_num, exact_den
    ratio = -(-(worst_num << 12 + digits - 16) // worst_den)
    return max((ratio - 1).bit_length(), least_truncation(k))


def least_truncation(k: int) -> int:
    """The least t at which a truncation's bound is looked at."""
    return 16 + k.bit_length()


def _classes(side: Side) -> tuple[Int64, npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Of vectors that are not zero, by their α in 64ths: α, and the largest sum and sum of squares of each."""
    alive = side.norms.peak > 1
    alpha, of = np.unique((side.norms.peak[alive].astype(np.int64) - 1) * 64 >> 15, return_inverse=True)
    sums, squares = np.zeros((2, len(alpha)), dtype=np.uint64)
    np.maximum.at(sums, of, side.norms.sum[alive])
    np.maximum.at(squares, of, side.norms.square[alive])
    return alpha, sums, squares


@dataclass(frozen=True)
class BitCost:
    """A number of bits t (None: the long accumulator for every element) and its cost in residue products."""

    cost: float
    t: int | None


def _cheapest(costs: list[tuple[float, int]]) -> BitCost:
    """The t of least cost, the larger one of equals; the long accumulator where that is cheaper."""
    cost, t = max(costs, key=lambda c: (-c[0], c[1]), default=(EXACT_DOT_COST, None))
    return BitCost(cost, t) if cost < EXACT_DOT_COST else BitCost(EXACT_DOT_COST, None)


def _mean_square(side: Side) -> float:
    """Mean of Σ q² over the vectors, without their last 16 bits, so that the sum fits 64 bits."""
    return float(int((side.norms.square >> np.uint64(16)).sum())) * 65536.0 / len(side.norms.square)


def _ladder(left: Side, right: Side, least: int) -> list[tuple[int, int]]:
    """(moduli, t) with the largest t ≥ least that each number of moduli covers: nothing in between is cheaper."""
    root = math.isqrt(left.largest_square * right.largest_square) + 1
    low, high = sorted((left.exact_bits, right.exact_bits))
    steps: list[tuple[int, int]] = []
    for count, shift in enumerate(largest_shifts(root), start=1):
        total = shift + 30  # bits_left + bits_right that fit
        # The larger t with min(t, low) + min(t, high) ≤ total; beyond `high` more bits keep nothing more.
        t = high if total >= low + high else max(total // 2 if total < 2 * low else total - low, 0)
        # Rounding to fewer than 15 bits may exceed the norms that the window is made of (|a'| ≤ q 2^(t − 15)).
        if t >= min(max(least, 15), high):
            steps.append((count, min(t, MAX_BITS)))
        if t >= min(high, MAX_BITS):
            break
    return steps


def componentwise_bits(left: Side, right: Side, hist: npt.NDArray[np.int64], least: int) -> BitCost:
    """t that balances residue products against elements left to the long accumulator."""
    total = float(hist.sum())
    failing = total - np.cumsum(hist)
    return _cheapest(
        [(count + EXACT_DOT_COST * float(failing[t]) / total, t) for count, t in _ladder(left, right, least)]
    )


def _exact_bits(left: Side, right: Side, depths: Depths, k: int, digits: int) -> BitCost:
    """t that balances residue products against elements whose rounding is expected to stay open."""
    # Entries that t bits do not keep, of each operand; integers until the end, so that no order of summation counts.
    deeper = [int(hist.sum()) - np.cumsum(hist) for hist in depths]
    # A typical |C'| 2^(−2t): the root mean square of products with random signs.
    typical = max(1.0, math.sqrt(_mean_square(left) * _mean_square(right))) * 2.0**-30 / math.sqrt(k)
    costs = []
    for count, t in _ladder(left, right, min(digits, left.exact_bits, right.exact_bits)):
        rounded = sum(float(d[t]) / samples(len(side.scan.top)) for d, side in zip(deeper, (left, right), strict=True))
        error = rounded * 2.0 ** (digits - t) / typical
        costs.append((count + EXACT_DOT_COST * min(1.0, error), t))
    return _cheapest(costs)


def sample_step(vectors: int) -> int:
    """The depths of every vector whose index is a multiple of this are counted."""
    return max(1, vectors // DEPTH_SAMPLES)


def samples(vectors: int) -> int:
    """How many vectors those are."""
    return -(-vectors // sample_step(vectors))


def sampled_depths(engine: Engine, x: Array, top: Int32, inner: Int32 | None, offset: int, vectors: int) -> Int64:
    """The histogram of depths over evenly spaced ones of `vectors` vectors, those in x from `offset` on."""
    step = sample_step(vectors)
    sample = slice(-offset % step, None, step)
    return engine.depths(x[sample], np.ascontiguousarray(top[sample]), inner, DEPTH_BINS)


_NONE = np.zeros((0, 2), dtype=np.int64)
NO_NORMS = Norms(*(np.zeros(0, dtype=np.uint64),) * 3)  # anchored sums measure their own


def grade_of(grade: Grade | Bits, a: Array, bt: Array, result: np.dtype[Any]) -> Grade | Bits:
    """The grade at which the product runs: small ones are rounded correctly, which satisfies every grade.

    It depends on shapes and types alone, so that every engine takes the same.
    """
    return grade_for(grade, a.shape[0] * a.shape[1] * bt.shape[0], result)


def grade_for(grade: Grade | Bits, work: int, result: np.dtype[Any]) -> Grade | Bits:
    """The same by m · k · n."""
    small = work <= SMALL_PRODUCT and dtype_name(result) in ANCHORED_RESULTS
    return "exact" if small and grade in ("fast", "componentwise") else grade


def choose_floats(
    engine: Engine,
    a: Array,
    bt: Array,
    grade: Grade | Bits,
    result: np.dtype[Any] | None = None,
    *,
    anchored: bool = True,
) -> FloatChoice:
    """Survey a (m, k) and bt (n, k), both float64 or both float32, and choose bits and moduli for the grade.

    `result` is the type that results are rounded to, and whose u the grade means: a's unless it is a narrower one.
    Without `anchored`, residues or the long accumulator.
    """
    k = a.shape[1]
    result = a.dtype if result is None else result
    if isinstance(grade, Bits):
        return _choose_bits(engine, a, bt, grade)
    with spans.span(spans.SURVEY):
        scans = engine.scan(a, None), engine.scan(bt, None)
    if anchored and grade == "exact" and prefers_anchored(engine, *scans, k, result):
        left, right = (Side(scan, NO_NORMS, span(scan)) for scan in scans)
        return FloatChoice(grade, left, right, None, 0, 0, 0, None, _NONE, False, anchored=True)
    # The normwise bound means the operands' own maxima, which an inner scaling would change.
    with spans.span(spans.SURVEY):
        left, right, inner = survey(engine, a, bt, *scans, scale=grade != "fast")
    right_inner = None if inner is None else (-inner).astype(np.int32)
    need = np.zeros((0, 0), dtype=np.uint8)

    def assess(budget: float) -> Int64:
        nonlocal need
        need = engine.empty((a.shape[0], bt.shape[0]), np.dtype(np.uint8))
        with spans.span(spans.ASSESS):
            return engine.assess(
                engine.pack_magnitudes(True, a, left.scan.top, inner),
                engine.pack_magnitudes(False, bt, right.scan.top, right_inner),
                left.norms.sum,
                right.norms.sum,
                budget,
                need,
            )

    def depths() -> Depths:
        with spans.span(spans.ASSESS):
            return (
                sampled_depths(engine, a, left.scan.top, inner, 0, len(a)),
                sampled_depths(engine, bt, right.scan.top, right_inner, 0, len(bt)),
            )

    digits = FLOAT_FORMATS[dtype_name(result)].digits
    grade, t, repairs = choose_kept_bits(grade, left, right, k, digits, assess, depths)
    if t is None:
        return FloatChoice(grade, left, right, inner, 0, 0, 0, None, _NONE, False)
    bits = min(t, left.exact_bits), min(t, right.exact_bits)
    bound = window(left, right, *bits)
    rounds = bits != (left.exact_bits, right.exact_bits)
    repair = engine.positions_above(need, t) if repairs else _NONE
    return FloatChoice(grade, left, right, inner, *bits, bound, residue_system(bound), repair, rounds)


def componentwise_budget(k: int, digits: int) -> float:
    """τ u: what the truncation may cost relative to |A||B|."""
    return min(math.sqrt(k), (k - 1) * (1 - 2.0**-20)) * 2.0**-digits


class KeptBits(NamedTuple):
    """The grade at which a product runs, its t (None: the long accumulator), and whether elements need more than t."""

    grade: Grade
    t: int | None
    repairs: bool


def choose_kept_bits(
    grade: Grade,
    left: Side,
    right: Side,
    k: int,
    digits: int,
    assess: Callable[[float], Int64],
    depths: Callable[[], Depths],
) -> KeptBits:
    """t for a grade from the norms of all vectors; `assess(budget)` and `depths()` are asked for where they count.

    `assess` gives the histogram of the bits that elements need, `depths` those of the operands' sampled depths.
    """
    exact = (left.exact_bits, right.exact_bits)
    exact_count = moduli_needed(window(left, right, *exact)) if max(exact) <= MAX_BITS else None
    # "fast" has no assessment to save: float32 takes 13 moduli to keep everything, 8 for its bound.
    if exact_count is not None and ((exact_count <= FEW_MODULI and grade != "fast") or k == 1):
        return KeptBits(grade, max(exact), False)
    if grade == "exact":
        return KeptBits(grade, _exact_bits(left, right, depths(), k, digits).t, False)
    if grade == "fast":
        t = _fast_bits(left, right, k, digits)
        count = moduli_needed(window(left, right, min(t, exact[0]), min(t, exact[1])))
        return KeptBits(grade, max(exact) if count is None or (exact_count or count + 1) <= count else t, False)
    hist = assess(componentwise_budget(k, digits))
    bits = componentwise_bits(left, right, hist, least_truncation(k))
    if bits.t is None or hist[bits.t + 1 :].any():
        # Where many elements would be repaired, correct rounding may be the cheaper way to keep the bound.
        rounded = _exact_bits(left, right, depths(), k, digits)
        if rounded.cost < bits.cost:
            return KeptBits("exact", rounded.t, False)
    if bits.t is None or bits.t >= max(exact):
        return KeptBits(grade, None if bits.t is None else max(exact), False)
    return KeptBits(grade, bits.t, bool(hist[bits.t + 1 :].any()))


def _choose_bits(engine: Engine, a: Array, bt: Array, grade: Bits) -> FloatChoice:
    left, right = _side(engine, a, None), _side(engine, bt, None)
    exact = left.exact_bits, right.exact_bits
    bits = min(grade.n, exact[0]), min(grade.n, exact[1])
    # Rounding to fewer than 15 bits may exceed what the norms say: |a'| ≤ 2^bits then bounds the product.
    bound = window(left, right, *bits) if min(bits) >= 15 else a.shape[1] << sum(bits)
    system = residue_system(bound)
    assert system is not None  # by MOST_BITS
    return FloatChoice(grade, left, right, None, *bits, bound, system, _NONE, bits != exact)


def multiply_floats(engine: Engine, a: Array, bt: Array, choice: FloatChoice, out: Array) -> None:
    """Write the product of a (m, k) and bt (n, k) to out (m, n), of the type that the choice was made for."""
    m, n = a.shape[0], bt.shape[0]
    if choice.anchored and not multiply_anchored(engine, a, bt, choice.left.scan, choice.right.scan, out):
        choice = choose_floats(engine, a, bt, choice.grade, out.dtype, anchored=False)
    if choice.anchored:
        pass
    elif choice.system is None:
        for rows in panels(m, max(1, (1 << 20) // max(1, n))):
            at = np.stack(np.meshgrid(np.arange(rows.start, rows.stop), np.arange(n), indexing="ij"), -1)
            engine.exact_dots(a, bt, np.ascontiguousarray(at.reshape(-1, 2), dtype=np.int64), out)
    else:
        _multiply_residues(engine, a, bt, choice, choice.system, out)
    fill_special(engine, a, bt, choice.left.scan.special, choice.right.scan.special, out)


def _multiply_residues(
    engine: Engine, a: Array, bt: Array, choice: FloatChoice, system: ResidueSystem, out: Array
) -> None:
    (m, k), n = a.shape, bt.shape[0]
    shift_a = operand_shifts(choice.left.scan, choice.bits_left)
    shift_b = operand_shifts(choice.right.scan, choice.bits_right)
    right_inner = None if choice.inner is None else (-choice.inner).astype(np.int32)
    check = choice.grade == "exact" and choice.rounds_operands
    system = halved(engine, system, m, k, n)
    symmetric = choice.inner is None and is_symmetric(a, bt, k * system.bytes_per_entry)
    uncertain: list[npt.NDArray[np.int64]] = []
    zeros = 0

    def multiply(left: Operand, right: Operand, rows: slice, columns: slice) -> None:
        nonlocal zeros
        with spans.span(spans.MULTIPLY):
            outcome = engine.multiply_floats(
                left,
                right,
                system,
                -shift_a[rows],
                -shift_b[columns],
                out[rows, columns],
                (choice.bits_left, choice.bits_right) if check else None,
            )
        zeros += outcome.zeros
        uncertain.append(outcome.uncertain + np.array([rows.start, columns.start], dtype=np.int64))

    def pack_left(rows: slice) -> Operand:
        with spans.span(spans.CONVERT_A):
            return engine.pack_floats(True, a[rows], shift_a[rows], choice.inner, system, choice.bits_left, check)

    def pack_right(columns: slice) -> Operand:
        with spans.span(spans.CONVERT_B):
            return engine.pack_floats(
                False, bt[columns], shift_b[columns], right_inner, system, choice.bits_right, check
            )

    for_blocks(engine, m, n, k * system.bytes_per_entry, pack_left, pack_right, multiply, symmetric=symmetric)
    repair = np.concatenate([choice.repair, *uncertain])
    if repair.size:
        with spans.span(spans.REPAIR):
            engine.exact_dots(a, bt, repair, out)
    if symmetric:
        mirror(out)
    if zeros:
        engine.fix_negative_zeros(a, bt, out)


def operand_shifts(scan: Scan, bits: int) -> Int32:
    """Exponents that scale each vector to |x| < 2^bits."""
    return np.where(scan.top == NO_EXPONENT, 0, bits - scan.top).astype(np.int32)
