"""SpMV and the 7-point stencil by INT8 residues on tensors: what of these kernels can run on narrow integers at all.

No matrix unit fits them: a row of a sparse matrix, or a point of a stencil, shares no operand with its neighbours. The
residues are multiplied and summed in int32 on the ordinary cores instead. A sparse matrix comes in ELL layout, so that
the entries of x that a row needs are gathered by one index for each modulus.

Each operand is scaled by one power of two to integers of 53 bits, so that sums of N products err by N · 2^-52 ·
max|a| · max|x| at most, as in `gemmulate.model.host.residues`; they are exact up to that and one rounding. Residues,
recombination and rounding are the torch engine's. Both operands are converted in every call. Not run on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from gemmulate.engines import array_crt as crt
from gemmulate.engines import array_floats as floats
from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.base import NO_EXPONENT
from gemmulate.engines.residue_system import ResidueSystem, residue_system
from gemmulate.engines.rounding import FLOAT_FORMATS
from gemmulate.engines.torch_array import TorchArray

BITS = 53
Planes = torch.Tensor  # int8 (moduli, vectors, depth)


def system_for(terms: int) -> ResidueSystem:
    """Moduli that cover sums of `terms` products of 53-bit integers."""
    system = residue_system(terms << (2 * BITS))
    assert system is not None
    return system


def converted(engine: ArrayEngine, x: torch.Tensor, system: ResidueSystem, *, left: bool) -> tuple[Planes, int]:
    """Residues of a matrix scaled by one power of two, and the exponent that undoes it."""
    source = TorchArray(x)
    scan = engine.scan(source, None)  # type: ignore[arg-type]
    top = int(scan.top.max(initial=NO_EXPONENT))
    shift = BITS - top if top != NO_EXPONENT else 0
    shifts = np.full(len(x), shift, dtype=np.int32)
    operand: Any = engine.pack_floats(left, source, shifts, None, system, BITS, False)  # type: ignore[arg-type]
    return operand.planes, -shift


def recombined(engine: ArrayEngine, sums: torch.Tensor, system: ResidueSystem, exponent: int) -> torch.Tensor:
    """The floats that sums (moduli, m, n), int32, of residues stand for."""
    lib, form = engine.library, FLOAT_FORMATS["float64"]
    limbs = crt.combine(lib, sums, system)
    exponents = torch.full((1, 1), exponent, dtype=torch.int64, device=sums.device)
    pattern: torch.Tensor = floats.round_limbs(lib, limbs, exponents, form).signed(lib, form)
    return pattern.view(torch.float64)


def spmv(engine: ArrayEngine, values: torch.Tensor, columns: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A x of an ELL matrix: values (rows, width), float64, columns (rows, width), int64, x (columns,)."""
    rows, width = values.shape
    system = system_for(width)
    left, exponent = converted(engine, values, system, left=True)
    right, other = converted(engine, x[None, :], system, left=False)
    out = torch.empty(rows, dtype=torch.float64, device=x.device)
    for part in _parts(rows, width, engine):
        sums = gathered(left[:, part], right[:, 0], columns[part])
        out[part] = recombined(engine, sums[:, :, None], system, exponent + other)[:, 0]
    return out


def gathered(values: Planes, x: Planes, columns: torch.Tensor) -> torch.Tensor:
    """Σ_j values[:, i, j] x[:, columns[i, j]] modulo 2^32 for each plane: int32, exact up to 2^16 entries a row."""
    return torch.stack(
        [(v.int() * plane[columns].int()).sum(1, dtype=torch.int32) for v, plane in zip(values, x, strict=True)]
    )


def stencil7(engine: ArrayEngine, grid: torch.Tensor, centre: float, side: float) -> torch.Tensor:
    """centre · u + side · (sum of six neighbours) on the inner points of a box, float64."""
    system = system_for(7)
    planes, exponent = converted(engine, grid.reshape(-1, grid.shape[2]), system, left=False)
    points = planes.reshape(len(system.moduli), *grid.shape)
    pair = torch.tensor([[centre, side]], dtype=torch.float64, device=grid.device)
    coefficients, other = converted(engine, pair, system, left=True)
    c = coefficients[:, 0].int()
    inner = [n - 2 for n in grid.shape]
    out = torch.empty(inner, dtype=torch.float64, device=grid.device)
    for part in _parts(inner[0], inner[1] * inner[2], engine):
        slab = points[:, part.start : part.stop + 2]
        sums = torch.stack([weighted(u.int(), *both) for u, both in zip(slab, c, strict=True)])
        flat = sums.reshape(len(system.moduli), part.stop - part.start, -1)
        out[part] = recombined(engine, flat, system, exponent + other).reshape(-1, *inner[1:])
    return out


def weighted(u: torch.Tensor, centre: Any, side: Any) -> torch.Tensor:
    """The stencil of one slab, in the type of u."""
    near = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1]
    near = near + u[1:-1, :-2, 1:-1] + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
    return near * side + u[1:-1, 1:-1, 1:-1] * centre


def _parts(vectors: int, depth: int, engine: ArrayEngine) -> Iterator[slice]:
    """Blocks of whole vectors whose temporaries stay as small as the engine's own."""
    step = max(1, engine.library.block // max(1, depth))
    return (slice(start, min(start + step, vectors)) for start in range(0, vectors, step))
