"""What a float product has to know of the whole operands before it chooses bits, measured block by block.

Bits depend on the data and the grade alone (schemes/floats.py): on exponents and norms of whole rows and columns, on a
scaling along k where exponents spread, and at "fp64" on the bits that each element needs. Every one of these is a
maximum, a minimum or a sum of integers over blocks, so that no chunking changes it. Blocks come as (vectors, depth).

The graph of tasks is made before any data are read. What only some data need is a task for all: it returns None where
the choice does not ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gemmulate.distributed.runner import Runner
from gemmulate.engines.base import NO_EXPONENT, Array, Int32, Norms, Scan
from gemmulate.engines.reference import needed_bits, scaled
from gemmulate.engines.residue_system import residue_system
from gemmulate.schemes.accuracy import Grade
from gemmulate.schemes.anchored import span
from gemmulate.schemes.floats import (
    INNER_SCALING_BITS,
    NO_NORMS,
    Int64,
    KeptBits,
    Side,
    choose_inner,
    choose_kept_bits,
    componentwise_budget,
    sampled_depths,
    window,
)
from gemmulate.schemes.integers import choose_for_ranges, multiply_integers

Measured = TypeVar("Measured")


class _NotMeasured(Exception):
    pass


@dataclass(frozen=True)
class Surveyed:
    """One block of vectors over all of k: plain exponents, and the side as the choice of bits sees it."""

    scan: Scan
    side: Side


@dataclass(frozen=True)
class BlockBits:
    """How the residues of every block are made. `bound` holds for every partial sum over k."""

    left: int
    right: int
    bound: int
    repairs: bool  # elements that need more than `t` are computed from all bits
    t: int


@dataclass(frozen=True)
class Verdict:
    """What the survey decided: bits for all blocks, or None: every element from all its bits, correctly rounded."""

    bits: BlockBits | None


def scan_block(runner: Runner, x: Array, inner: Int32 | None = None) -> Scan:
    return runner.engine.scan(x, inner)


def merge_scans(parts: Sequence[Scan]) -> Scan:
    """Of the same vectors, over parts of k."""
    top, lsb, special = (np.stack(field) for field in zip(*parts, strict=True))
    return Scan(top.max(axis=0), lsb.min(axis=0), special.max(axis=0))


def join_scans(blocks: Sequence[Scan]) -> Scan:
    """Of all blocks of vectors."""
    return Scan(*(np.concatenate(field) for field in zip(*blocks, strict=True)))


def exponents_spread(left: Sequence[Scan], right: Sequence[Scan]) -> bool:
    """Whether a scaling along k is looked for."""
    return max(span(join_scans(left)), span(join_scans(right))) > INNER_SCALING_BITS


def norms_block(runner: Runner, x: Array, scan: Scan, inner: Int32 | None = None) -> Norms:
    return runner.engine.norms(x, scan.top, inner)


def merge_norms(parts: Sequence[Norms]) -> Norms:
    total, square, peak = (np.stack(field) for field in zip(*parts, strict=True))
    return Norms(total.sum(axis=0), square.sum(axis=0), peak.max(axis=0))


def depth_tops(runner: Runner, spread: bool, x: Array, scan: Scan) -> Int32 | None:
    """For each step of k the exponent of its largest entry, every vector scaled to below one."""
    if not spread:
        return None
    rows = np.where(scan.top == NO_EXPONENT, 0, -scan.top).astype(np.int32)
    return runner.engine.scan(x.T, rows).top


def largest_tops(blocks: Sequence[Int32 | None]) -> Int32 | None:
    found = [top for top in blocks if top is not None]
    return np.max(np.stack(found), axis=0) if found else None


def inner_exponents(left: Sequence[Int32 | None], right: Sequence[Int32 | None]) -> list[Int32] | None:
    """The exponents of a scaling along k, one array for each part of k; None where it would not help."""
    tops = [[top for top in side if top is not None] for side in (left, right)]
    if not tops[0]:
        return None
    inner = choose_inner(np.concatenate(tops[0]), np.concatenate(tops[1]))
    if inner is None:
        return None
    return np.split(inner, np.cumsum([len(top) for top in tops[0]])[:-1])


def inner_part(inner: list[Int32] | None, part: int, left: bool) -> Int32 | None:
    """The exponents by which one part of an operand is scaled."""
    return None if inner is None else inner[part] if left else (-inner[part]).astype(np.int32)


def scaled_scan(runner: Runner, x: Array, inner: Int32 | None) -> Scan | None:
    return None if inner is None else runner.engine.scan(x, inner)


def merge_scaled_scans(parts: Sequence[Scan | None]) -> Scan | None:
    found = [part for part in parts if part is not None]
    return merge_scans(found) if found else None


def scaled_norms(runner: Runner, x: Array, scan: Scan | None, inner: Int32 | None) -> Norms | None:
    return None if scan is None else runner.engine.norms(x, scan.top, inner)


def merge_scaled_norms(parts: Sequence[Norms | None]) -> Norms | None:
    found = [part for part in parts if part is not None]
    return merge_norms(found) if found else None


def scaling_helps(
    left: Sequence[Scan], right: Sequence[Scan], scaled_left: Sequence[Scan | None], scaled_right: Sequence[Scan | None]
) -> bool:
    """Whether the scaled operands need fewer bits to be kept exactly."""

    def bits(sides: tuple[Sequence[Scan], Sequence[Scan]]) -> int:
        return sum(span(join_scans(side)) for side in sides)

    found = tuple([scan for scan in side if scan is not None] for side in (scaled_left, scaled_right))
    return bool(found[0]) and bits((found[0], found[1])) < bits((left, right))


def inner_if(helps: bool, inner: list[Int32] | None) -> list[Int32] | None:
    return inner if helps else None


def surveyed(
    helps: bool, scan: Scan, norms: Norms, scaled_scan: Scan | None = None, scaled_norms: Norms | None = None
) -> Surveyed:
    """One block of vectors, scaled where that helps."""
    if helps:
        assert scaled_scan is not None
        assert scaled_norms is not None
        return Surveyed(scan, Side(scaled_scan, scaled_norms, span(scaled_scan)))
    return Surveyed(scan, Side(scan, norms, span(scan)))


def _join(blocks: Sequence[Surveyed]) -> Side:
    scan = join_scans([block.side.scan for block in blocks])
    norms = Norms(*(np.concatenate(field) for field in zip(*(block.side.norms for block in blocks), strict=True)))
    return Side(scan, norms, span(scan))


@dataclass(frozen=True)
class Chooser:
    """The choice of bits from as much as has been measured so far."""

    grade: Grade
    depth: int
    digits: int

    @property
    def budget(self) -> float:
        return componentwise_budget(self.depth, self.digits)

    def __call__(
        self,
        left: Sequence[Surveyed],
        right: Sequence[Surveyed],
        hist: Int64 | None = None,
        depths: tuple[Int64, Int64] | None = None,
    ) -> Verdict | None:
        """The verdict, or None where it needs a histogram that was not measured."""
        whole = _join(left), _join(right)

        def assess(budget: float) -> Int64:
            return _measured(hist)

        def sampled() -> tuple[Int64, Int64]:
            return _measured(depths)

        try:
            kept = choose_kept_bits(self.grade, *whole, self.depth, self.digits, assess, sampled)
        except _NotMeasured:
            return None
        if kept.t is None or kept.grade == "exact":
            return Verdict(None)
        return _verdict(kept, kept.t, *whole)

    def with_histogram(
        self, verdict: Verdict | None, left: Sequence[Surveyed], right: Sequence[Surveyed], hist: Int64 | None
    ) -> Verdict | None:
        return self(left, right, hist) if verdict is None else verdict

    def with_depths(
        self,
        verdict: Verdict | None,
        left: Sequence[Surveyed],
        right: Sequence[Surveyed],
        hist: Int64 | None,
        *depths: Int64 | None,
    ) -> Verdict:
        if verdict is not None:
            return verdict
        assert depths[0] is not None
        assert depths[1] is not None
        found = self(left, right, hist, (depths[0], depths[1]))
        assert found is not None
        return found


def surveyed_by_scan(scan: Scan) -> Surveyed:
    """One block of vectors where norms do not count."""
    return Surveyed(scan, Side(scan, NO_NORMS, span(scan)))


def bits_verdict(n: int, depth: int, left: Sequence[Scan], right: Sequence[Scan]) -> Verdict:
    """n bits of each operand."""
    exact = span(join_scans(left)), span(join_scans(right))
    bits = min(n, exact[0]), min(n, exact[1])
    return Verdict(None if bits == exact else BlockBits(*bits, depth << sum(bits), False, n))


def _verdict(kept: KeptBits, t: int, left: Side, right: Side) -> Verdict:
    exact = left.exact_bits, right.exact_bits
    bits = min(t, exact[0]), min(t, exact[1])
    bound = window(left, right, *bits)
    if bits == exact or residue_system(bound) is None:
        return Verdict(None)
    return Verdict(BlockBits(*bits, bound, kept.repairs, t))


def _measured(value: Measured | None) -> Measured:
    if value is None:
        raise _NotMeasured
    return value


def magnitudes(verdict: Verdict | None, left: bool, x: Array, block: Surveyed, inner: Int32 | None) -> Array | None:
    """floor(|x| 2^(7 − top)) as bytes, where the choice asks for the bits that elements need."""
    if verdict is not None:
        return None
    shift = (7 - block.side.scan.top).astype(np.int32)
    return np.floor(np.abs(scaled(x, shift, inner))).astype(np.uint8 if left else np.int8)


def multiply_magnitudes(runner: Runner, x: Array | None, y: Array | None) -> Int64 | None:
    if x is None or y is None:
        return None
    out = np.empty((x.shape[0], y.shape[0]), dtype=np.int64)
    multiply_integers(runner.engine, x, y, choose_for_ranges((0, 127), (0, 127), x.shape[1]), out)
    return out


def add_optional(parts: Sequence[Int64 | None]) -> Int64 | None:
    found = [part for part in parts if part is not None]
    return np.sum(np.stack(found), axis=0) if found else None


@dataclass(frozen=True)
class Need:
    """The bits that the elements of one block of the result need."""

    budget: float

    def __call__(self, products: Int64 | None, left: Surveyed, right: Surveyed) -> npt.NDArray[np.uint8] | None:
        if products is None:
            return None
        sums = left.side.norms.sum, right.side.norms.sum
        return needed_bits(products.astype(np.float64), *sums, self.budget)


def need_histogram(need: npt.NDArray[np.uint8] | None) -> Int64 | None:
    return None if need is None else np.bincount(need.ravel(), minlength=256).astype(np.int64)


def block_depths(
    runner: Runner,
    verdict: Verdict | None,
    x: Array,
    block: Surveyed,
    inner: Int32 | None,
    offset: int,
    vectors: int,
) -> Int64 | None:
    """The depths of the sampled vectors in one block, where the choice asks for them."""
    if verdict is not None:
        return None
    return sampled_depths(runner.engine, x, block.side.scan.top, inner, offset, vectors)
