"""One row of the GPU benchmarks: every size and grade, native torch beside the emulated product.

    python -m benchmarks.gpu.rows dgemm [--device cuda] [--sizes 1024,8192] [--pairs 10] [--record FILE]

What a row of a size n is:

- dgemm, zgemm: n × n × n, float64 and complex128 (four real products);
- skinny: (16 or 64) × n × n, and n × n × (16 or 64);
- batched: 64 products of n/16, at least 8;
- gemv: n × n times a vector;
- spmv: 64 n rows of 32 entries in random columns, CSR by torch.sparse beside ELL by residues (`residue_kernels`);
- stencil7: a cube of n/16 points an edge, at least 8, elementwise beside residues.

Not run on a GPU.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import gemmulate as gm
from benchmarks.gpu import residue_kernels
from benchmarks.gpu.accuracy import gaussian
from benchmarks.gpu.run import SIZES, options
from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.torch_device import TorchDevice
from gemmulate.errors import GemmulateError
from gemmulate.schemes.blocks import RESIDENT_BYTES

GRADES = ("fast", "fp64", "exact")
THIN = (16, 64)
BATCH, WIDTH, ROWS_A_SIZE = 64, 32, 64
CENTRE, SIDE = -6.1, 1.3
MOST_MODULI = 22  # of an exact product of Gaussian data (67 bits)
# Arrays of int64 of one block that conversion and recombination hold at a time, digits and limbs counted: an upper
# estimate by reading the code, not measured.
TEMPORARIES = 48

Operands = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """One size of a row. `dense`: the operands are a and b of a product, whose accuracy and bits are checked."""

    row: str
    size: str
    n: int
    flops: float
    operands: Callable[[torch.Generator], Operands]
    native: Callable[..., torch.Tensor]
    emulated: Callable[..., torch.Tensor]  # (engine, grade, *operands)
    entries: tuple[int, int]  # of all inputs, of the result: float64
    packed: int  # bytes of residues that are there at a time
    grades: tuple[str, ...] = GRADES
    dense: bool = True

    def needed_bytes(self, block: int) -> int:
        """An upper estimate of the memory that both sides and the checks need on the device."""
        inputs, outputs = self.entries
        # Operands, those of wide exponents and one of their factors; results of both sides for each. Temporaries, and
        # int32 sums (128 MiB, padded).
        return 8 * (3 * inputs + 4 * outputs) + self.packed + TEMPORARIES * 8 * block + (1 << 28)


def _multiplied(engine: ArrayEngine, grade: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = gm.matmul(a, b, accuracy=grade, engine=engine)  # type: ignore[call-overload]
    return found


def product(row: str, n: int, m: int, k: int, columns: int, **changes: Any) -> Case:
    """A dense product (m, k) times (k, columns), `parts` 2 for complex numbers, `batch` of them."""
    batch, parts = changes.pop("batch", 0), changes.pop("parts", 1)
    dtype = torch.complex128 if parts == 2 else torch.float64
    lead = (batch,) if batch else ()
    count = max(batch, 1)
    per_vector = MOST_MODULI * k * parts

    def operands(generator: torch.Generator) -> Operands:
        return tuple(gaussian((*lead, *shape), generator, dtype) for shape in ((m, k), (k, columns)))

    return Case(
        row=row,
        size=f"{m}×{k}×{columns}" + (f", {batch} of them" if batch else ""),
        n=n,
        flops=2.0 * count * m * k * columns * parts * parts,
        operands=operands,
        native=torch.matmul,
        emulated=_multiplied,
        # Complex operands are copied side by side: twice the depth, twice over.
        entries=(
            count * (m * k + k * columns) * parts * (3 if parts == 2 else 1),
            count * m * columns * parts,
        ),
        packed=min((m + columns) * per_vector, RESIDENT_BYTES + 4096 * per_vector),
        **changes,
    )


def gemv(n: int) -> Case:
    def operands(generator: torch.Generator) -> Operands:
        return gaussian((n, n), generator), gaussian((n,), generator)

    whole = product("gemv", n, n, n, 1)
    return Case(
        "gemv", f"{n}×{n}", n, 2.0 * n * n, operands, torch.matmul, _multiplied, whole.entries, whole.packed
    )  # fmt: skip


def spmv(n: int) -> Case:
    rows = ROWS_A_SIZE * n

    def operands(generator: torch.Generator) -> Operands:
        at = generator.device
        # Different columns of each row, sorted: the steps between them add up to less than `rows`.
        steps = torch.randint(1, rows // WIDTH, (rows, WIDTH), device=at, generator=generator)
        columns = steps.cumsum(1) - 1
        values, x = gaussian((rows, WIDTH), generator), gaussian((rows,), generator)
        pointers = torch.arange(0, rows * WIDTH + 1, WIDTH, dtype=torch.int32, device=at)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            csr = torch.sparse_csr_tensor(
                *(pointers, columns.reshape(-1).int(), values.reshape(-1), (rows, rows)), check_invariants=True
            )
        return csr, values, columns, x

    def native(csr: torch.Tensor, values: torch.Tensor, columns: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return csr @ x

    def emulated(
        engine: ArrayEngine, grade: str, csr: torch.Tensor, values: torch.Tensor, columns: torch.Tensor, x: torch.Tensor
    ) -> torch.Tensor:
        return residue_kernels.spmv(engine, values, columns, x)

    r = len(residue_kernels.system_for(WIDTH).moduli)
    entries = rows * WIDTH
    return Case(
        row="spmv", size=f"{rows} rows, {entries} entries", n=n, flops=2.0 * entries, operands=operands, native=native,
        emulated=emulated, entries=(4 * entries + rows, rows), packed=r * (entries + rows),
        grades=("53 bits",), dense=False,
    )  # fmt: skip


def stencil7(n: int) -> Case:
    edge = max(n // 16, 8)

    def operands(generator: torch.Generator) -> Operands:
        return (gaussian((edge, edge, edge), generator),)

    def native(grid: torch.Tensor) -> torch.Tensor:
        return residue_kernels.weighted(grid, CENTRE, SIDE)

    def emulated(engine: ArrayEngine, grade: str, grid: torch.Tensor) -> torch.Tensor:
        return residue_kernels.stencil7(engine, grid, CENTRE, SIDE)

    r = len(residue_kernels.system_for(7).moduli)
    return Case(
        row="stencil7", size=f"{edge}×{edge}×{edge}", n=n, flops=8.0 * (edge - 2) ** 3, operands=operands,
        native=native, emulated=emulated, entries=(2 * edge**3, 3 * edge**3), packed=r * edge**3,
        grades=("53 bits",), dense=False,
    )  # fmt: skip


def cases(row: str, sizes: Iterable[int]) -> Iterator[Case]:
    """Every case of a row."""
    for n in sizes:
        if row == "dgemm":
            yield product(row, n, n, n, n)
        elif row == "zgemm":
            yield product(row, n, n, n, n, parts=2)
        elif row == "skinny":
            for thin in THIN:
                yield product(row, n, thin, n, n, grades=("fp64",))
                yield product(row, n, n, n, thin, grades=("fp64",))
        elif row == "batched":
            edge = max(n // 16, 8)
            yield product(row, n, edge, edge, edge, batch=BATCH, grades=("fp64",))
        else:
            yield {"gemv": gemv, "spmv": spmv, "stencil7": stencil7}[row](n)


def main() -> int:
    from benchmarks.gpu.measure import announce, measured
    from benchmarks.harness import append, machine

    parser = options(__doc__)
    args = parser.parse_args()
    try:
        sizes = [int(word) for word in args.sizes.split(",")] if args.sizes else list(SIZES)
        pairs, seed = int(args.pairs or 10), int(args.seed or 20261130)
        if min(sizes) < 1 or not 1 <= pairs <= 1000:
            raise ValueError("sizes start at 1, pairs are 1 … 1000")
        device = TorchDevice(args.device)
    except (ValueError, GemmulateError) as error:
        parser.error(str(error))
    wanted = args.grades.split(",") if args.grades else list(GRADES)
    if unknown := set(wanted) - set(GRADES):
        parser.error(f"unknown grade {', '.join(sorted(unknown))}; choose from {', '.join(GRADES)}")
    facts = machine() | device.facts()
    facts["host_engine"] = facts.pop("engine")  # a record's own is the device's
    announce(facts)
    with device.current():
        for row in args.rows:
            found = (
                record
                for case in cases(row, sizes)
                for record in measured(
                    device, case, [g for g in case.grades if not case.dense or g in wanted], pairs, seed
                )
            )
            append(args.record, facts, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
