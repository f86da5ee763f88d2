"""Float products whose bits and moduli are chosen on the device: "fast", "fp64" and "exact" without the host.

The choice is that of `floats`, made from the same norms and histograms by the engine's kernels, so the bits of results
are the same. What the host would decide by branches is launched in any case and leaves at once where it is not asked
for: packed operands have room for as many moduli as any choice takes. So a CUDA graph can hold the product, and nobody
waits for the device within it.
"""

from __future__ import annotations

from typing import Any

from gemmulate.engines import spans
from gemmulate.engines.base import Array, Engine, dtype_name
from gemmulate.engines.resident import ChoiceRules
from gemmulate.engines.rounding import FLOAT_FORMATS
from gemmulate.schemes.accuracy import Grade
from gemmulate.schemes.blocks import check_room, for_blocks, least_bytes
from gemmulate.schemes.floats import (
    EXACT_DOT_COST,
    FEW_MODULI,
    INNER_SCALING_BITS,
    MAX_BITS,
    componentwise_budget,
    least_truncation,
    sample_step,
    samples,
)


def takes_resident(engine: Engine, a: Array, bt: Array, out: Array) -> bool:
    """Whether a product of a (m, k) and bt (n, k) chooses on the device: wherever it can.

    Room for all moduli is three times what a product usually packs. Where a depth leaves no room for that, the host
    chooses; a CUDA graph cannot wait for it, and gets the MemoryError.
    """
    resident = engine.resident
    if resident is None or engine.arrays is None or not isinstance(out, engine.arrays) or 0 in (*a.shape, len(bt)):
        return False
    needed = least_bytes(len(a), len(bt), a.shape[1] * resident.moduli)
    return engine.capturing or needed <= engine.memory() // 2


def multiply_resident(engine: Engine, a: Array, bt: Array, grade: Grade, out: Array) -> None:
    """Write the product of a (m, k) and bt (n, k) to out (m, n), all on the device; k, m, n ≥ 1.

    The grade is for the type of `out`, as in `floats.choose_floats`.
    """
    resident = engine.resident
    assert resident is not None
    (m, k), n = a.shape, len(bt)
    if engine.capturing:
        # Before anything is launched: without room, no product before has compiled it all.
        check_room(engine, m, n, k * resident.moduli)
    digits = FLOAT_FORMATS[dtype_name(out.dtype)].digits
    with spans.span(spans.SURVEY):
        left, right = resident.survey(a), resident.survey(bt)
        inner: Any = None
        # The normwise bound means the operands' own maxima, which an inner scaling would change.
        if grade != "fast":
            left, right, inner = resident.scaled(a, bt, left, right, INNER_SCALING_BITS)
    rules = ChoiceRules(
        grade,
        digits,
        least_truncation(k),
        MAX_BITS,
        int(EXACT_DOT_COST),
        FEW_MODULI,
        (samples(m), samples(n)),
    )
    with spans.span(spans.ASSESS):
        asked = None
        if grade == "componentwise":
            asked = resident.assess(a, bt, left, right, inner, componentwise_budget(k, digits))
        choice = resident.choose(a, bt, left, right, inner, asked, (sample_step(m), sample_step(n)), rules)
    marks = resident.marks(m, n)

    def multiply(packed_left: Any, packed_right: Any, rows: slice, columns: slice) -> None:
        with spans.span(spans.MULTIPLY):
            resident.multiply(packed_left, packed_right, choice, out, marks, rows, columns)

    def pack_left(rows: slice) -> Any:
        with spans.span(spans.CONVERT_A):
            return resident.pack(True, a, left, inner, choice, rows)

    def pack_right(columns: slice) -> Any:
        with spans.span(spans.CONVERT_B):
            return resident.pack(False, bt, right, inner, choice, columns)

    for_blocks(engine, m, n, k * resident.moduli, pack_left, pack_right, multiply)
    with spans.span(spans.REPAIR):
        resident.exact_dots(a, bt, asked, marks, choice, out)
    engine.settle(a, bt, out)
