"""What both ways to a product share, bits chosen by the host (`engine`) or on the device (`resident`): the device that
kernels are launched on, the rows of a result that are worked on at a time, and the assessment in such panels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gemmulate.engines import spans
from gemmulate.engines.array_library import Library
from gemmulate.engines.triton import survey

# Bytes of the int32 sums of magnitudes of a panel of rows.
SUMS = 1 << 29
# Panels of more rows than this end where tiles do: no kernel's are higher.
TILE = 256


def on_its_device(kernels: Callable[..., Any]) -> Callable[..., Any]:
    """Triton launches on torch's current device, whatever the tensors' is: `current()` makes both one for the call."""

    @functools.wraps(kernels)
    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        with self.current():
            return kernels(self, *arguments, **options)

    return run


def panel_height(library: Library, most: int, row_bytes: int, m: int) -> int:
    """Rows of a panel whose temporaries take `row_bytes` each, `most` bytes in all and less where memory is little."""
    rows = max(1, library.temporary(most) // max(1, row_bytes))
    return rows - rows % TILE if TILE < rows < m else rows


def assessed(
    library: Library,
    left: torch.Tensor,
    right: torch.Tensor,
    rows: torch.Tensor,
    columns: torch.Tensor,
    budget: float,
    histogram: torch.Tensor,
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Panels of rows of `survey.assess_bits` of the product of magnitudes left (m, k) and right (n, k), int8."""
    m, n = len(left), len(right)
    step = panel_height(library, SUMS, 4 * n, m)
    for start in range(0, m if n else 0, step):
        part = slice(start, min(start + step, m))
        with spans.span(spans.PRODUCTS):
            sums = library.int8_product(left[part], right)
        yield part, survey.assess_bits(sums, rows[part], columns, budget, histogram)
