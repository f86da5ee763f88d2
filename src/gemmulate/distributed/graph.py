"""The tasks of a product in blocks, as a graph that dask runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gemmulate.distributed import float_blocks, float_survey, integer_blocks
from gemmulate.distributed.float_survey import Chooser, Need, Verdict
from gemmulate.distributed.runner import Runner
from gemmulate.engines.base import Array
from gemmulate.engines.rounding import FLOAT_FORMATS
from gemmulate.plan.operands import as_operand, common_kind, kernel_view
from gemmulate.schemes.accuracy import Bits, Grade
from gemmulate.schemes.floats import grade_for

Node = Any  # a task's key, or a constant
Blocks = list[list[Node]]  # of one operand: [block of vectors][part of k]; of the result: [rows][columns]

# Parts that one task adds: it holds as many blocks of the result.
FAN_IN = 8


class Tasks:
    """A graph of tasks as dask reads it: key -> (function, arguments), where keys stand for results."""

    def __init__(self, token: str) -> None:
        self.token = token  # names one product of these operands with these options
        self.graph: dict[Any, Any] = {}

    def add(self, function: Callable[..., Any], *arguments: Any) -> Node:
        """A new task; arguments may be keys and lists of them."""
        named = function.func if isinstance(function, partial) else function
        label = getattr(named, "__name__", type(named).__name__).strip("_")
        key = (f"gemmulate-{label}-{self.token}", len(self.graph))
        self.graph[key] = (function, *arguments)
        return key

    def reduce(self, function: Callable[[list[Any]], Any], parts: Sequence[Node]) -> Node:
        """The sum of all parts by a tree of tasks, so that none has to hold more than FAN_IN."""
        parts = list(parts)
        while len(parts) > 1:
            parts = [self.add(function, parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
        return parts[0]


def integer_tasks(
    tasks: Tasks,
    runner: Runner,
    a: Array,
    b: Array,
    modulus: int | None,
    overflow: str,
    dtype: np.dtype[Any],
    offsets: list[list[int]],
) -> Blocks:
    """Blocks of the result from blocks a[i, p] and b[p, j]; offsets are the first row and column of each."""
    part: Callable[..., Any]
    add: Callable[[list[Any]], Any]
    if modulus is not None:
        part, add = partial(integer_blocks.modular_part, p=modulus), integer_blocks.AddModulo(modulus)
    elif overflow == "raise":
        part, add = integer_blocks.checked_part, integer_blocks.add_exact
    else:
        part, add = partial(integer_blocks.overflow_part, overflow=overflow), integer_blocks.add_arrays
    result: Blocks = []
    for i, row in enumerate(offsets[0]):
        result.append([])
        for j, column in enumerate(offsets[1]):
            total = tasks.reduce(add, [tasks.add(part, runner, a[i, p], b[p, j]) for p in range(a.shape[1])])
            checked = modulus is None and overflow == "raise"
            result[i].append(tasks.add(integer_blocks.checked_result, total, dtype, row, column) if checked else total)
    return result


def float_tasks(
    tasks: Tasks,
    runner: Runner,
    a: Array,
    b: Array,
    grade: Grade | Bits,
    types: tuple[np.dtype[Any], np.dtype[Any]],
    shape: tuple[int, int, int],
    accuracy: Any,
    offsets: list[list[int]],
) -> Blocks:
    """Blocks of the result from blocks a[i, p] and b[p, j] of floats; `shape` is (m, k, n) of the whole product."""
    from_types = np.zeros((1, 1), types[0]), np.zeros((1, 1), types[1])
    common = common_kind(*from_types)[0].dtype
    if a.shape[1] == 1 and (isinstance(grade, Bits) or grade == "exact"):
        # What each element is does not depend on others: gm.matmul of whole rows and columns.
        multiply = partial(_whole_product, accuracy=accuracy, dtype=common)
        return [[tasks.add(multiply, runner, a[i, 0], b[0, j]) for j in range(b.shape[1])] for i in range(a.shape[0])]

    def sides(parts: Sequence[tuple[str, str]]) -> tuple[Blocks, Blocks]:
        left = [
            [tasks.add(_left_block, a[i, p], common, part) for part, _ in parts for p in range(a.shape[1])]
            for i in range(a.shape[0])
        ]
        right = [
            [tasks.add(_right_block, b[p, j], common, part) for _, part in parts for p in range(b.shape[0])]
            for j in range(b.shape[1])
        ]
        return left, right

    m, k, n = shape
    if common.kind != "c":
        return _RealProduct(tasks, runner, *sides([("re", "re")]), common, (m, k, n), grade, offsets).blocks()
    real = np.empty(0, common).real.dtype
    # As in plan.matmul.complex_parts: each part of an element is one dot product of depth 2k.
    re = _RealProduct(
        tasks, runner, *sides([("re", "re"), ("-im", "im")]), real, (m, 2 * k, n), grade, offsets
    ).blocks()
    im = _RealProduct(tasks, runner, *sides([("re", "im"), ("im", "re")]), real, (m, 2 * k, n), grade, offsets).blocks()
    return [[tasks.add(_complex, x, y) for x, y in zip(*rows, strict=True)] for rows in zip(re, im, strict=True)]


def _whole_product(runner: Runner, a: Array, b: Array, *, accuracy: Any, dtype: np.dtype[Any]) -> Array:
    return runner.matmul(_converted(a, "a", dtype), _converted(b, "b", dtype), accuracy=accuracy)


def _converted(block: Array, name: str, dtype: np.dtype[Any]) -> Array:
    """The block in the product's type; TypeError where that does not hold its integers exactly."""
    x, other = as_operand(block, name), np.zeros((1, 1), dtype)
    return common_kind(x, other)[0] if name == "a" else common_kind(other, x)[1]


def _part(x: Array, part: str) -> Array:
    return x.real if part == "re" else x.imag if part == "im" else -x.imag


def _left_block(block: Array, dtype: np.dtype[Any], part: str) -> Array:
    return kernel_view(_part(_converted(block, "a", dtype), part))


def _right_block(block: Array, dtype: np.dtype[Any], part: str) -> Array:
    return kernel_view(_part(_converted(block, "b", dtype), part).T)


def _complex(real: Array, imag: Array) -> Array:
    out = np.empty(real.shape, dtype=np.result_type(real.dtype, np.complex64))
    out.real, out.imag = real, imag
    return out


class _RealProduct:
    """The tasks of one real product."""

    def __init__(
        self,
        tasks: Tasks,
        runner: Runner,
        left: Blocks,
        right: Blocks,
        result: np.dtype[Any],
        shape: tuple[int, int, int],
        grade: Grade | Bits,
        offsets: list[list[int]],
    ) -> None:
        self.tasks, self.offsets = tasks, offsets
        self.runner, self.left, self.right, self.result = runner, left, right, result
        self.m, self.k, self.n = shape
        self.grade = grade_for(grade, math.prod(shape), result)
        self.parts = range(len(left[0]))

    def blocks(self) -> Blocks:
        """The blocks of the result."""
        scans = [
            [
                self.tasks.reduce(
                    float_survey.merge_scans, [self.tasks.add(float_survey.scan_block, self.runner, x) for x in blocks]
                )
                for blocks in side
            ]
            for side in (self.left, self.right)
        ]
        if isinstance(self.grade, Bits) or self.grade == "exact":
            surveyed = [[self.tasks.add(float_survey.surveyed_by_scan, scan) for scan in side] for side in scans]
            verdict = (
                self.tasks.add(float_survey.bits_verdict, self.grade.n, self.k, *scans)
                if isinstance(self.grade, Bits)
                else Verdict(None)
            )
            return self._multiply(verdict, surveyed)
        return self._choose_and_multiply(self.grade, scans)

    def _choose_and_multiply(self, grade: Grade, scans: list[list[Node]]) -> Blocks:
        sides = (self.left, self.right)
        norms = [
            [
                self.tasks.reduce(
                    float_survey.merge_norms,
                    [self.tasks.add(float_survey.norms_block, self.runner, x, scan) for x in blocks],
                )
                for blocks, scan in zip(side, of_side, strict=True)
            ]
            for side, of_side in zip(sides, scans, strict=True)
        ]
        choose = Chooser(grade, self.k, FLOAT_FORMATS[self.result.name].digits)
        if grade == "fast":  # the normwise bound means the operands' own maxima: no scaling along k
            surveyed = [
                [self.tasks.add(float_survey.surveyed, False, *of_block) for of_block in zip(*of_side, strict=True)]
                for of_side in zip(scans, norms, strict=True)
            ]
            return self._multiply(self.tasks.add(choose, *surveyed), surveyed)
        surveyed, inner = self._scaled(scans, norms)
        first = self.tasks.add(choose, *surveyed)
        need = self._need(choose, first, surveyed, inner)
        histogram = self.tasks.reduce(
            float_survey.add_optional, [self.tasks.add(float_survey.need_histogram, x) for row in need for x in row]
        )
        second = self.tasks.add(choose.with_histogram, first, *surveyed, histogram)
        depths = [
            self.tasks.reduce(float_survey.add_optional, self._depths(second, side, surveyed[side], inner))
            for side in (0, 1)
        ]
        return self._multiply(
            self.tasks.add(choose.with_depths, second, *surveyed, histogram, *depths), surveyed, inner, need
        )

    def _scaled(self, scans: list[list[Node]], norms: list[list[Node]]) -> tuple[list[list[Node]], list[list[Node]]]:
        """Every block of vectors as the choice sees it, and for each side and part of k the scaling, or None."""
        sides = (self.left, self.right)
        spread = self.tasks.add(float_survey.exponents_spread, *scans)
        tops = [
            [
                self.tasks.reduce(
                    float_survey.largest_tops,
                    [
                        self.tasks.add(float_survey.depth_tops, self.runner, spread, blocks[p], scan)
                        for blocks, scan in zip(side, of_side, strict=True)
                    ],
                )
                for p in self.parts
            ]
            for side, of_side in zip(sides, scans, strict=True)
        ]
        proposed = self.tasks.add(float_survey.inner_exponents, *tops)

        def inner(exponents: Node) -> list[list[Node]]:
            return [
                [self.tasks.add(float_survey.inner_part, exponents, p, left) for p in self.parts]
                for left in (True, False)
            ]

        trial = inner(proposed)
        scaled_scans = [
            [
                self.tasks.reduce(
                    float_survey.merge_scaled_scans,
                    [
                        self.tasks.add(float_survey.scaled_scan, self.runner, x, of_part)
                        for x, of_part in zip(blocks, of_parts, strict=True)
                    ],
                )
                for blocks in side
            ]
            for side, of_parts in zip(sides, trial, strict=True)
        ]
        helps = self.tasks.add(float_survey.scaling_helps, *scans, *scaled_scans)
        used = inner(self.tasks.add(float_survey.inner_if, helps, proposed))
        scaled_norms = [
            [
                self.tasks.reduce(
                    float_survey.merge_scaled_norms,
                    [
                        self.tasks.add(float_survey.scaled_norms, self.runner, x, scan, of_part)
                        for x, of_part in zip(blocks, of_parts, strict=True)
                    ],
                )
                for blocks, scan in zip(side, of_side, strict=True)
            ]
            for side, of_side, of_parts in zip(sides, scaled_scans, used, strict=True)
        ]
        surveyed = [
            [self.tasks.add(float_survey.surveyed, helps, *of_block) for of_block in zip(*of_side, strict=True)]
            for of_side in zip(scans, norms, scaled_scans, scaled_norms, strict=True)
        ]
        return surveyed, used

    def _need(
        self, choose: Chooser, verdict: Node, surveyed: list[list[Node]], inner: list[list[Node]]
    ) -> list[list[Node]]:
        """The bits that each element needs, or None where the verdict stands without."""
        magnitudes = [
            [
                [
                    self.tasks.add(float_survey.magnitudes, verdict, left, blocks[p], block, of_parts[p])
                    for p in self.parts
                ]
                for blocks, block in zip(side, of_side, strict=True)
            ]
            for left, side, of_side, of_parts in zip(
                (True, False), (self.left, self.right), surveyed, inner, strict=True
            )
        ]
        need = Need(choose.budget)
        return [
            [
                self.tasks.add(
                    need,
                    self.tasks.reduce(
                        float_survey.add_optional,
                        [
                            self.tasks.add(float_survey.multiply_magnitudes, self.runner, p, q)
                            for p, q in zip(x, y, strict=True)
                        ],
                    ),
                    left,
                    right,
                )
                for y, right in zip(magnitudes[1], surveyed[1], strict=True)
            ]
            for x, left in zip(magnitudes[0], surveyed[0], strict=True)
        ]

    def _depths(self, verdict: Node, side: int, surveyed: list[Node], inner: list[list[Node]]) -> list[Node]:
        blocks, vectors = (self.left, self.m) if side == 0 else (self.right, self.n)
        return [
            self.tasks.add(
                float_survey.block_depths,
                self.runner,
                verdict,
                blocks[i][p],
                surveyed[i],
                inner[side][p],
                self.offsets[side][i],
                vectors,
            )
            for i in range(len(blocks))
            for p in self.parts
        ]

    def _multiply(
        self,
        verdict: Node,
        surveyed: list[list[Node]],
        inner: list[list[Node]] | None = None,
        need: list[list[Node]] | None = None,
    ) -> Blocks:
        multiply = float_blocks.MultiplyFloats(self.runner, self.k)
        rounding = float_blocks.RoundFloats(self.runner, self.k, self.result)
        result: Blocks = []
        for i, left in enumerate(surveyed[0]):
            result.append([])
            for j, right in enumerate(surveyed[1]):
                parts = [
                    self.tasks.add(
                        multiply,
                        verdict,
                        self.left[i][p],
                        self.right[j][p],
                        left,
                        right,
                        *((None, None) if inner is None else (inner[0][p], inner[1][p])),
                        None if need is None else need[i][j],
                    )
                    for p in self.parts
                ]
                result[i].append(
                    self.tasks.add(rounding, verdict, self.tasks.reduce(float_blocks.add_parts, parts), left, right)
                )
        return result
