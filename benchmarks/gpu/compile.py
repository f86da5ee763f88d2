"""Which registers, spills and shared memory do the Triton kernels take, on GPUs that are not here?

Compiles every variant for every architecture, reads `ptxas -v` with the package's own reader, asks its own gates,
counts the machine instructions of surveys, `deconstruct` and `exact_dot`, and writes docs/triton-kernels.md:

    python -m benchmarks.gpu.compile [--write]
"""

from __future__ import annotations

import argparse
import datetime
import platform
import re
import tempfile
from pathlib import Path

from gemmulate.engines.triton import ahead
from gemmulate.quantity import Quantity, Status
from gemmulate.screen.compiled import CompiledFunction, read_compiled
from gemmulate.screen.gates import evaluate
from gemmulate.screen.latency import Projection
from gemmulate.screen.launch import Launch, launch
from gemmulate.screen.spec import Candidate, Gate

PAGE = Path(__file__).parents[2] / "docs" / "triton-kernels.md"
TENSOR = re.compile(r"\b([IHQ]GMMA|[IHQ]MMA|UTC[IHQ]MMA)\b")
NO_TIME = Projection((0.0, 0.0), (0.0, 0.0), {}, None)  # neither gate looks at times
GATES = (
    Gate("no spills", "spills", "spills", Quantity(0, "byte", Status.TARGET, "docs"), [], "spills"),
    Gate("launches", "residency", "a block fits an SM", None, [], "resident_ctas"),
)


def read(compiled: ahead.Compiled) -> CompiledFunction:
    with tempfile.TemporaryDirectory(prefix="gemmulate-") as folder:
        log = Path(folder) / "ptxas.log"
        log.write_text(compiled.log)
        (function,) = [one for one in read_compiled(log) if one.registers is not None]
    return function


def screened(variant: ahead.Variant, function: CompiledFunction, shared: int) -> tuple[Launch, list[str]]:
    """The launch check, and the gates that do not pass."""

    def quantity(value: int, unit: str) -> Quantity:
        return Quantity(value, unit, Status.COMPILED, "ptxas -v; Triton's metadata")

    candidate = Candidate(
        variant.name,
        threads=quantity(variant.threads, "thread"),
        registers=quantity(function.registers or 0, "register/thread"),
        shared=quantity(shared, "byte"),
        ctas_per_sm=quantity(1, "CTA"),
    )
    found = launch(candidate, function.arch, function)
    results = [evaluate(gate, candidate, found, NO_TIME, function) for gate in GATES]
    return found, [f"{r.name}: {r.arithmetic}" for r in results if r.outcome != "pass"]


def instructions(sass: str) -> tuple[int, int]:
    """(before and after the loop, inside it) of a kernel with one loop or none."""
    lines: list[str] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(lines)
        elif found := re.match(r"\s*/\*[0-9a-f]{4,5}\*/\s+(.*?);", line):
            lines.append(found[1])
    backward = [
        (i, labels[target[1]])
        for i, text in enumerate(lines)
        if (target := re.search(r"BRA.*`\((\.L_x_\d+)\)", text)) and labels[target[1]] < i
    ]
    if not backward:
        return next(i for i, text in enumerate(lines) if "EXIT" in text) + 1, 0
    end, start = backward[0]
    exits = next(i for i in range(end, len(lines)) if "EXIT" in lines[i])
    return exits + 1 - (end + 1 - start), end + 1 - start


def counted(capability: int) -> list[str]:
    """Instructions of an entry at 15 moduli, a row for each kind of `deconstruct`."""
    rows = []
    for variant in ahead.variants(capability):
        if not variant.name.startswith("deconstruct "):
            continue
        entries = variant.constants["BLOCK_V"] * variant.constants["BLOCK_K"] / variant.threads
        sass = ahead.disassemble(ahead.compile_variant(variant, capability).cubin)
        once, each = (n / entries for n in instructions(sass))
        whole = once + 15 * each
        figures = (f"{once:.1f}", f"{each:.2f}", f"{whole:.0f}", f"{whole / 15:.1f}")
        rows.append("| " + " | ".join((variant.name, ahead.architecture_name(capability), *figures)) + " |")
    return rows


def counted_surveys(capability: int) -> list[str]:
    """Instructions of an entry in each survey."""
    rows = []
    for variant in ahead.variants(capability):
        if not variant.name.startswith(("scan", "norms", "magnitudes")):
            continue
        entries = variant.constants["BLOCK_V"] * variant.constants["BLOCK_K"] / variant.threads
        once, each = instructions(ahead.disassemble(ahead.compile_variant(variant, capability).cubin))
        figure = f"{(each or once) / entries:.1f}"
        rows.append("| " + " | ".join((variant.name, ahead.architecture_name(capability), figure)) + " |")
    return rows


def counted_dots(capability: int) -> list[str]:
    """Instructions of a term in each kernel of exact dot products, whose first loop is that over the terms."""
    rows = []
    for variant in ahead.variants(capability):
        if not variant.name.startswith("exact_dots"):
            continue
        terms = variant.constants["BLOCK_K"] / variant.threads
        _, each = instructions(ahead.disassemble(ahead.compile_variant(variant, capability).cubin))
        rows.append(
            "| " + " | ".join((variant.name, ahead.architecture_name(capability), f"{each / terms:.0f}")) + " |"
        )
    return rows


def row(variant: ahead.Variant, capability: int) -> str:
    compiled = ahead.compile_variant(variant, capability)
    function, sass = read(compiled), ahead.disassemble(compiled.cubin)
    shared = max(compiled.shared, function.shared_bytes or 0)
    found, failed = screened(variant, function, shared)
    units = ", ".join(sorted(set(TENSOR.findall(sass)))) or "–"
    constants = variant.constants
    tile = "×".join(str(constants[f"BLOCK_{letter}"]) for letter in "VMNK" if f"BLOCK_{letter}" in constants)
    spills = max(function.spill_store_bytes or 0, function.spill_load_bytes or 0)
    ctas = "–" if found.occupancy is None else f"{found.occupancy.ctas_per_sm} ({found.occupancy.limiter})"
    cells = (variant.name, function.arch, tile, str(variant.warps), str(function.registers), str(spills), f"{shared:,}")
    return "| " + " | ".join((*cells, ctas, units, "; ".join(failed) or "pass")) + " |"


def page() -> str:
    versions = ahead.tool_versions()
    table = [row(variant, capability) for capability in ahead.CAPABILITIES for variant in ahead.variants(capability)]
    counts = [line for capability in (90, 100) for line in counted(capability)]
    surveys = [line for capability in (90, 100) for line in counted_surveys(capability)]
    dots = [line for capability in (90, 100) for line in counted_dots(capability)]
    return TEXT.format(
        date=datetime.date.today().isoformat(),
        python=platform.python_version(),
        triton=versions["triton"],
        old=versions["ptxas below sm_90"],
        new=versions["ptxas"],
        header="| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER),
        table="\n".join(table),
        counts="\n".join(counts),
        surveys="\n".join(surveys),
        dots="\n".join(dots),
    )


HEADER = (
    *("kernel", "architecture", "tile", "warps", "registers", "spilled bytes", "shared bytes"),
    *("blocks per SM (limit)", "tensor instructions", "gates"),
)

TEXT = """# Triton kernels: what the compiler says

None of these kernels was run on a GPU. Their bits are tested in Triton's interpreter
(`tests/engines/triton_kernels`); what stands here was compiled ahead of time and counted, not timed. Written by
`python -m benchmarks.gpu.compile --write` on {date}: Triton {triton}, ptxas {old} for sm_80 and {new} from sm_90 on,
both in Triton's wheel, Python {python}.

- `scan`, `norms`, `magnitudes` (`survey.py`): exponents, integer norms and INT8 magnitudes of a float matrix, each in
  one read; "columns" are read across the rows of a matrix in memory. `assess`: the bits that each element asks for,
  and their histogram, from the INT8 product of magnitudes.
- `deconstruct`: one read of a float matrix, all residues out; scaling by powers of two, rounding to nearest even.
- `residue_gemm`: INT8, BF16 or FP8 products of residue planes, reduced in the epilogue to CRT digits, a byte each.
- `plane_sums`: the int32 sums of one BF16 or FP8 product, for what `triton-bf16` and `triton-fp8` multiply beside
  residues (magnitudes, bytes).
- `recombine`: CRT digits to exact integers in 32-bit limbs, one rounding to a float, or words; optionally which results
  the operands' roundings leave open ("certainty").
- `fused`: the last two in one kernel; a tile of C goes through all moduli in registers.
- `deconstruct_chosen`, `residue_gemm_chosen`, `recombine_chosen` (`chosen.py`, `recombine_chosen.py`): the same where
  bits and moduli are read on the device. Each of conversion and recombination comes in tiers, "to" so many bits or
  moduli, of which one works and the others leave at once. INT8 only.
- `settle`: results that NaN, infinities or signs of zeros decide, from four INT8 products of a tile; a tile without any
  is read and left.
- `exact_dot`: elements that no bound settles, each the exact sum of its products rounded once; a list of them
  ("exact_dots"), or those that masks in device memory ask for ("exact_dots_where"). "shallow" is for depths up to 256.

Registers, spills and static shared memory are what `ptxas -v` states, read by `gemmulate.screen.compiled`; the dynamic
shared memory is what Triton asks for at launch. Blocks per SM and the gates (no spills; a block launches) are
`gemmulate.screen`'s. Products are compiled for any m and n, strides and depths divisible by 16, depths up to 65,280.

{header}
{table}

## Instructions of `deconstruct`, counted in SASS, not timed

Machine instructions of one thread over the entries that it works on: once for each entry (load, scaling, rounding,
digits, all that stands outside the loop over the moduli), and for each entry and modulus (multiply-adds with the
digits, reduction, packing, store). c_q is the whole at 15 moduli, over 15.

| kernel | architecture | once | each modulus | at 15 moduli | c_q |
|---|---|---|---|---|---|
{counts}

## Instructions of surveys, counted in SASS, not timed

Of one thread for each entry, in the loop over the depth; `magnitudes` has none, and all of it counts.

| kernel | architecture | each entry |
|---|---|---|
{surveys}

## Instructions of exact dot products, counted in SASS, not timed

Of one thread for each term, in the loop over the depth, in one pass; exponents that spread over more than a window of
108 bits take a pass for each window that holds any. What an element takes beside its terms (the first window, sums
across threads, carries, rounding) is about a thousand instructions of every thread: as much as 1,200 terms in 128
threads.

| kernel | architecture | each term |
|---|---|---|
{dots}

## Choices on paper

- Fused or not: a result of the fused kernel keeps a register for each four moduli besides its accumulator, so that
  tiles of 64 × 64 are what 255 registers hold without spills. They load an operand byte for each 32 multiplications,
  the plain product's tiles of 128 × 256 for each 85. The engine therefore fuses only to depth 200 and up to 20 moduli
  (the estimate stands in `engine.py`) and else holds the digits of a panel of rows, at most 512 MiB.
- INT8 tiles of 128 × 128 with eight warps spill 128 bytes on sm_90a, 128 × 256 do not; on sm_80 and sm_120a it is the
  other way round.
- FP8 needs three products for one of INT8 (240 h h' + 16 s s' − 15 l l'), each summed from zero over one block of the
  depth and joined in FP32: 32 steps on Hopper and Ada, whose FP8 sums are exact below 2^14 in steps of 256; on
  Blackwell, whose sums are FP32's, whatever holds without spills. The widths were measured by others ("MMA-Sim", arXiv
  2511.10909; DeepSeek-V3, arXiv 2412.19437, section 3.3.2), not checked on a GPU here. It pays where INT8 runs at less
  than a third of its rate.
- BF16 is one product, at half of FP8's rate on NVIDIA's data sheets: where INT8 is slow it comes before FP8
  (`plan/preferred.py`).
- The interpreter of Triton 3.9 multiplies the bits of bfloat16 as integers; there the kernel converts them first.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/triton-kernels.md instead of printing it")
    write, text = parser.parse_args().write, page()
    if write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
