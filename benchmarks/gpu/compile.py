"""Which registers, spills and shared memory do the Triton kernels take, on GPUs that are not here?

Compiles every variant for every architecture, reads `ptxas -v` with the package's own reader, asks its own gates,
counts the machine instructions of surveys, `deconstruct`, `exact_dot` and the products' loops, and writes
docs/triton-kernels.md:

    python -m benchmarks.gpu.compile [--write]
"""

from __future__ import annotations

import argparse
import datetime
import platform
import re
import tempfile
from collections import Counter
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


def listing(sass: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The instructions, and first and last index of each loop: a branch backward, and where it goes."""
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
    return lines, [(start, end) for end, start in backward]


def instructions(sass: str) -> tuple[int, int]:
    """(before and after the loop, inside it) of a kernel with one loop or none."""
    lines, loops = listing(sass)
    if not loops:
        return next(i for i, text in enumerate(lines) if "EXIT" in text) + 1, 0
    start, end = loops[0]
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


def counted_products(capability: int) -> list[str]:
    """The innermost loop of each way to INT8 residue products."""
    rows = []
    for variant in ahead.variants(capability):
        if not variant.name.startswith(("residue_gemm int8", "described_gemm", "warpgroup_gemm")):
            continue
        lines, loops = listing(ahead.disassemble(ahead.compile_variant(variant, capability).cubin))
        bodies = [lines[start : end + 1] for start, end in loops]
        body = min((b for b in bodies if any(map(TENSOR.search, b))), key=len)
        units = Counter(re.sub(r"^@\S+\s+", "", text).split()[0] for text in body if TENSOR.search(text))
        loads = Counter(found[0] for text in body if (found := re.search(r"LDGSTS|UTMALDG", text)))
        left = [int(found[1], 16) for text in body if (found := re.search(r"WARPGROUP\.DEPBAR\.LE gsb0, (\S+)", text))]
        waits = str(max(left)) if left else "–"
        barriers = sum("BAR.SYNC" in text for text in body)
        cells = (
            *(variant.name, ahead.architecture_name(capability), _counts(units), str(len(body) - units.total())),
            *(_counts(loads) or "in warps of their own", str(barriers), waits),
        )
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items()))


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
    products = [line for capability in ahead.CAPABILITIES for line in counted_products(capability)]
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
        products="\n".join(products),
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
- `described_gemm`, `warpgroup_gemm`, `reduce_sums`: other ways to the digits of INT8 planes, which the engine chooses
  among by time (below): loads by TMA; on Hopper these and a product always in flight, in programs of one SM or of two,
  a cluster; cuBLAS's sums, reduced.
- `plane_sums`: the int32 sums of one BF16 or FP8 product, for what `triton-bf16` and `triton-fp8` multiply beside
  residues (magnitudes, bytes).
- `recombine`: CRT digits to exact integers in 32-bit limbs, one rounding to a float, or words; optionally which results
  the operands' roundings leave open ("certainty").
- `fused`: the last two in one kernel; a tile of C goes through all moduli in registers.
- `deconstruct_chosen`, `residue_gemm_chosen`, `recombine_chosen` (`chosen.py`, `recombine_chosen.py`): the same where
  bits and moduli are read on the device; `described_gemm_chosen`, `warpgroup_gemm_chosen`: the other ways' kernels with
  as many moduli as the device's memory says. Each of conversion and recombination comes in tiers, "to" so many bits or
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

## Loops of INT8 residue products, counted in SASS, not timed

Of one thread, or of the warps that start the tensor instructions, for one step of the depth. "In flight" are the groups
of tensor instructions that a wait leaves, on Hopper.

| kernel | architecture | tensor instructions | others | loads | barriers | in flight |
|---|---|---|---|---|---|---|
{products}

## Ways to residue products

Which way is the fastest nobody has measured. At its first large INT8 product (m n k of all moduli from 2^38 on) the
Triton engine measures on the device the ways that are usable there (`gemm_choice.py`): three moduli of 4096³, or less
where memory asks for it, the median of five. A way is compared first, bit by bit, with `residue_gemm` on three shapes,
and left out with a RuntimeWarning if it differs or raises. The choice holds for the process; smaller products, other
formats, planes that a way does not take and products in a CUDA graph before any was measured keep `residue_gemm`.
Results do not depend on it. `gemmulate model calibrate --device cuda` and the records of `benchmarks/gpu` name the ways
and their times ("residue_products").

Usable are `residue_gemm`, `described_gemm` and cuBLAS, whose loops Triton or NVIDIA wrote, and `warpgroup_gemm` only
after a trial. Its barriers are placed by hand: a mistake would hang the process, or break the device's context for
good, and neither can be caught. A trial (`gemm_trial.py`) runs it on five shapes, twenty times each, and compares the
digits with those of `residue_gemm`, in a process of its own that is killed with its process group after three minutes;
one trial for programs of one SM, one for those of two. No product starts a trial, which takes seconds to minutes and a
second context on the device. These commands do, at their start:

- `gemmulate model calibrate --device cuda`, where none was run before;
- `python -m benchmarks.gpu.ways` and with it `benchmarks/gpu/run.py` (`make bench-gpu`), always anew.

What a trial found is kept in $XDG_CACHE_HOME/gemmulate or ~/.cache/gemmulate, `residue-products-….json`, for later
processes, which read it and start nothing. It holds for the device's name and capability, the driver, the versions of
torch, CUDA, Triton and gemmulate, and the text of the kernels; with any of these changed there is no proof, and
`warpgroup_gemm` is not taken. A trial that hung, crashed or gave other digits is kept too, with the reason; one that
failed before it came to the kernel is not. The records show both ("residue_trials"). Where the folder cannot be written
the proof lasts for the process. An engine that is asked by name, `TritonEngine(…, way="warpgroups")`, needs none.

Products whose moduli are chosen on the device (`resident.py`: named grades on tensors of a device, and what CUDA graphs
hold of them) take the fastest of these ways but cuBLAS, whose launches the host has to count: the loop over tiles reads
where it ends. Their work is counted for 15 moduli. Digits by such a choice are compared too, in trials and before a way
is measured, but not timed. Nothing is measured while a graph is captured or torch reports waits for the device
(`torch.cuda.set_sync_debug_mode`). Programs are as many as all 49 planes would ask for; those without a tile end at
once, and `warpgroup_gemm` begins no load there that would arrive after its end.

Planes of floats from depth 512 on have rows that begin at multiples of 16 bytes, as TMA asks, whatever the depth; those
of integers and of shallower floats only where the depth is a multiple of 16. The others keep `residue_gemm`.

What paper says of them on Hopper, whose SM does 4,096 INT8 multiply-adds a clock, 1,024 clocks for a step of
128 × 256 × 128, and moves 128 bytes a clock to or from shared memory:

- Triton 3.9 waits for each `tl.dot` with int32 sums within the step (only float32 sums stay in flight:
  `WGMMAPipeline.cpp`, rule 2.1), so that barriers, the next load and the start of the pipeline, some 150 to 250
  clocks, come on top of each step of `residue_gemm` and `described_gemm`. `warpgroup_gemm`, written in Gluon, starts a
  step before it waits for the one before.
- Triton's widest INT8 instruction is 64 × 128 × 32, which reads 6 KiB of shared memory in 64 clocks; the loads write
  48 bytes a clock for tiles of 128 × 256, 64 for 128 × 128. Together 144 and 160 of 128 bytes: at most 0.89 and 0.80
  of the INT8 rate. The epilogue of a tile, some 1,000 instructions of 8 warps, takes 2,000 clocks, 3 % at k = 8192.
- From L2 tiles of 128 × 256 take 48 bytes a clock and SM at the full rate, 11 TB/s for 132 SMs at 1.75 GHz; those of
  128 × 128 take 64; two SMs that share one operand's loads 32 each, 7.4 TB/s. What L2 gives is not known here.
- So, of the INT8 rate at 8192³, if clocks hold and L2 allows it: `warpgroup_gemm` about 0.85, with two SMs a program
  rather than one where L2 does not; `residue_gemm` about 0.7; `described_gemm` about as much, since two programs share
  an SM and one works while the other waits, but tiles of 128 × 128 read more.
- cuBLAS may load less (its instructions can be 256 columns wide, its clusters share loads). Its sums cost four bytes
  written and read for an element and modulus; in panels of 32 MiB L2 may hold them. `torch._int_mm` asks cuBLASLt
  without a workspace, and was reported to get kernels of sm_80 so on sm_103 (PyTorch's issue 187094).
- Dropped on paper: tiles of 256 × 128 (spills 1,632 bytes with pointers), 64 × 256 (1.7 times the loads of an
  operation), steps of 256 (two buffers are all that fits, and Triton then loads nothing ahead), `warp_specialize` on
  Hopper (the compiler fails on this kernel), clusters for `tl.dot` (compiled without multicast). On sm_80 and sm_89
  other tiles of `residue_gemm` spill or gain nothing, so that cuBLAS is the only other way there.

`warpgroup_gemm` cannot run in Triton's interpreter. Its source runs in the tests as Python on stand-ins for Gluon's
operations, which let copies and products take effect as early and as late as the hardware may. Compiling it makes
nanobind print a note on leaked objects when the process ends; these are Triton's.

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
