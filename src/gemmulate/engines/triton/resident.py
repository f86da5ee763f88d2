"""Float products whose bits and moduli are chosen on the device, in Triton's kernels: nothing is read by the host.

`choose` makes the choice, `chosen` carries it out: each of its kernels is launched for every range of bits and moduli,
and leaves at once where the choice lies in another. Not run on a GPU: the tests run the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, final

import torch

from gemmulate.engines import spans
from gemmulate.engines.array_library import Library, Tensor
from gemmulate.engines.array_operand import load
from gemmulate.engines.base import NO_EXPONENT, Array, dtype_name
from gemmulate.engines.resident import ChoiceRules, ResidentFloats
from gemmulate.engines.residue_system import INT8_MODULI
from gemmulate.engines.triton import choose, survey
from gemmulate.engines.triton.chosen import LIMIT, deconstruct_chosen
from gemmulate.engines.triton.exact_dot import exact_dots_where
from gemmulate.engines.triton.floating import FloatLayout, layout_of
from gemmulate.engines.triton.gemm_choice import way_for_a_choice
from gemmulate.engines.triton.gemm_ways import Way, digits_chosen_by
from gemmulate.engines.triton.panels import assessed, on_its_device, panel_height
from gemmulate.engines.triton.recombine_chosen import recombine_chosen

# Bytes of the CRT digits of a panel of rows: of 49 moduli where some 15 are written, so that panels are no shorter.
_DIGITS = 1 << 31


class Side(NamedTuple):
    """What is known of one operand, as `survey` and `choose` have it."""

    scan: torch.Tensor
    norms: torch.Tensor
    facts: choose.Facts


class Asked(NamedTuple):
    """Bits that each element asks for, int8 modulo 256 (m, n), and their histogram (256,), int64."""

    need: torch.Tensor
    histogram: torch.Tensor


class Packed(NamedTuple):
    """Planes (49, vectors, depth), int8, entries rounded and exponents (vectors,), int32."""

    planes: torch.Tensor
    lost: torch.Tensor
    top: torch.Tensor


@final
class TritonResident(ResidentFloats):
    """INT8 planes; `current` makes a device torch's current one; `way` to the digits, by time if None."""

    moduli = len(INT8_MODULI)

    def __init__(
        self, library: Library, current: Callable[[], AbstractContextManager[Any]], way: Way | None = None
    ) -> None:
        self._library = library
        self._way = way
        self.current = current

    def _floats(self, x: Array) -> tuple[Tensor, FloatLayout]:
        return load(self._library, x), layout_of(dtype_name(x.dtype))

    def _side(self, x: Array, inner: torch.Tensor | None, gate: torch.Tensor | None) -> Side:
        pattern, layout = self._floats(x)
        scan = survey.scan(pattern, layout, inner, gate)
        norms = survey.norms(pattern, layout, scan[0], inner, gate)
        return Side(scan, norms, choose.facts(scan, norms))

    @on_its_device
    def survey(self, x: Array) -> Side:
        return self._side(x, None, None)

    @on_its_device
    def scaled(self, a: Array, bt: Array, left: Side, right: Side, limit: int) -> tuple[Side, Side, torch.Tensor]:
        spread = (torch.maximum(left.facts[:1], right.facts[:1]) > limit).to(torch.int32)
        tops = []
        for x, side in ((a, left), (bt, right)):
            pattern, layout = self._floats(x)
            to_one = -side.scan[0] * (side.scan[0] != NO_EXPONENT)
            tops.append(survey.scan(pattern.T, layout, to_one, spread)[0])
        inner, helps = choose.inner_exponents(*tops)
        scaled = self._side(a, inner, helps), self._side(bt, -inner, helps)
        better = (helps != 0) & (scaled[0].facts[:1] + scaled[1].facts[:1] < left.facts[:1] + right.facts[:1])
        chosen = [
            Side(*(torch.where(better, new, old) for new, old in zip(with_inner, without, strict=True)))
            for with_inner, without in zip(scaled, (left, right), strict=True)
        ]
        return chosen[0], chosen[1], inner * better

    @on_its_device
    def assess(self, a: Array, bt: Array, left: Side, right: Side, inner: torch.Tensor, budget: float) -> Asked:
        (x, layout), (y, _) = self._floats(a), self._floats(bt)
        plane = survey.magnitudes(x, layout, left.scan[0], inner)
        other = survey.magnitudes(y, layout, right.scan[0], -inner)
        need = torch.empty((len(plane), len(other)), dtype=torch.int8, device=x.device)
        histogram = torch.zeros(choose.BINS, dtype=torch.int64, device=x.device)
        for rows, bits in assessed(self._library, plane, other, left.norms[0], right.norms[0], budget, histogram):
            need[rows] = bits
        return Asked(need, histogram)

    @on_its_device
    def choose(
        self,
        a: Array,
        bt: Array,
        left: Side,
        right: Side,
        inner: torch.Tensor,
        asked: Asked | None,
        steps: tuple[int, int],
        rules: ChoiceRules,
    ) -> torch.Tensor:
        if rules.grade == "fast":
            known = [choose.classes(left.norms), choose.classes(right.norms)]
        else:
            known = []
            for x, side, step, along in ((a, left, steps[0], inner), (bt, right, steps[1], -inner)):
                pattern, layout = self._floats(x)
                known.append(choose.depths(pattern[::step], layout, side.scan[0, ::step].contiguous(), along))
        shape = a.shape[0], a.shape[1], bt.shape[0]
        return choose.choose(
            left.facts, right.facts, None if asked is None else asked.histogram, known[0], known[1], shape, rules
        )

    @on_its_device
    def marks(self, m: int, n: int) -> torch.Tensor:
        return torch.zeros((m, n), dtype=torch.int8, device=self._library.device)  # type: ignore[attr-defined]

    @on_its_device
    def pack(
        self, is_left: bool, x: Array, side: Side, inner: torch.Tensor | None, choice: torch.Tensor, vectors: slice
    ) -> Packed:
        pattern, layout = self._floats(x)
        along = None if inner is None else inner if is_left else -inner
        top = side.scan[0, vectors]
        planes, lost = deconstruct_chosen(pattern[vectors], layout, top, along, choice, is_left)
        return Packed(planes, lost, top)

    @on_its_device
    def multiply(
        self,
        left: Packed,
        right: Packed,
        choice: torch.Tensor,
        out: Array,
        marks: torch.Tensor,
        rows: slice,
        columns: slice,
    ) -> None:
        target, layout = load(self._library, out), layout_of(dtype_name(out.dtype))
        first, height = rows.start, rows.stop - rows.start
        step = panel_height(self._library, _DIGITS, self.moduli * (columns.stop - columns.start), height)
        for start in range(0, height, step):
            part = slice(start, min(start + step, height))
            here = slice(first + part.start, first + part.stop)
            with spans.span(spans.PRODUCTS):
                planes = left.planes[:, part]
                way = self._way or way_for_a_choice(planes, right.planes)
                digits = digits_chosen_by(way, planes, right.planes, choice)
            recombine_chosen(
                digits,
                choice,
                left.top[part],
                right.top,
                left.lost[part],
                right.lost,
                target[here, columns],
                layout,
                marks[here, columns],
            )

    @on_its_device
    def exact_dots(
        self, a: Array, bt: Array, asked: Asked | None, marks: torch.Tensor, choice: torch.Tensor, out: Array
    ) -> None:
        (x, layout), (y, _) = self._floats(a), self._floats(bt)
        need = None if asked is None else asked.need.view(torch.uint8)
        limit = choice[int(LIMIT.value) : int(LIMIT.value) + 1]
        target, result = load(self._library, out), layout_of(dtype_name(out.dtype))
        exact_dots_where(x, y, layout, need, limit, marks, target, result)
