"""Ahead-of-time compilation of the kernels: PTX by Triton, `ptxas -v` and SASS by the tools in its wheel; no GPU.

Each variant is a kernel as a launch would specialise it: pointers, strides and depth divisible by 16, stride 1 along
the depth.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem, digits_for
from gemmulate.engines.triton import (
    choose,
    chosen,
    deconstruct,
    described_gemm,
    exact_dot,
    fused,
    library_gemm,
    recombine,
    recombine_chosen,
    residue_gemm,
    settle,
    survey,
)
from gemmulate.engines.triton.gemm_ways import has_gluon
from gemmulate.engines.triton.multiword import limb_count

# Compute capabilities: A100, H100 and H200, B200, RTX 50.
CAPABILITIES = (80, 90, 100, 120)


@dataclass(frozen=True)
class Variant:
    """A kernel with its constants and launch parameters; `arguments` are Triton's types, "" for a constant 1."""

    name: str
    kernel: Any
    arguments: dict[str, str]
    constants: dict[str, Any]
    warps: int
    stages: int = 3
    ctas: int = 1  # SMs of a program, with a block of threads each
    gluon: bool = False

    @property
    def threads(self) -> int:
        return 32 * self.warps


_GEMM_SIZES = {
    "m": "i32",
    "n": "i32",
    "depth": "i32",
    "stride_a": "i32",
    "stride_b": "i32",
    "low_a": "i32",
    "low_b": "i32",
    "plane_a": "i64",
    "plane_b": "i64",
}
_OPERAND = ("*i8", "*bf16", "*fp8e4nv")
_KIND_NAMES = ("int8", "bf16", "fp8")


_FLOATS = {"float64": ("*i64", 52, 11), "float32": ("*i32", 23, 8)}
_SURVEYS: dict[str, tuple[Any, dict[str, str]]] = {
    "scan": (survey.scan_kernel, {"top": "*i32", "negative_lsb": "*i32", "special": "*i32"}),
    "norms": (survey.norms_kernel, {"top": "*i32", "total": "*i64", "square": "*i64", "peak": "*i64"}),
    "magnitudes": (survey.magnitudes_kernel, {"top": "*i32", "plane": "*i8"}),
}


def _survey(name: str, dtype: str, columns: bool = False) -> Variant:
    kernel, own = _SURVEYS[name]
    carrier, fraction, exponent = _FLOATS[dtype]
    arguments = {"x": carrier, "inner": "*i32", **own, "vectors": "i32", "depth": "i32"}
    # Along a row, or for columns across the rows.
    strides = ("", "i32") if columns else ("i32", "")
    arguments |= dict(zip(("stride_vector", "stride_depth"), strides, strict=True))
    block, warps = survey.block_shape(1, 2) if columns else survey.block_shape(2, 1), 4
    if name == "magnitudes":
        block, warps = survey.MAGNITUDES_BLOCK, 8
    else:
        arguments |= {"gate": "*i32", "steps": "i32"}
    constants = {"FRACTION": fraction, "EXPONENT": exponent, "INNER": False, "BLOCK_V": block[0], "BLOCK_K": block[1]}
    constants |= {} if name == "magnitudes" else {"GATED": False}
    return Variant(f"{name} {dtype}" + (", columns" if columns else ""), kernel, arguments, constants, warps)


def _depths(dtype: str) -> Variant:
    carrier, fraction, exponent = _FLOATS[dtype]
    arguments = {"x": carrier, "inner": "*i32", "top": "*i32", "histogram": "*i64", "vectors": "i32", "depth": "i32"}
    arguments |= {"stride_vector": "i32", "stride_depth": ""}
    constants = {"FRACTION": fraction, "EXPONENT": exponent, "BLOCK_K": choose.BLOCK}
    return Variant(f"depths {dtype}", choose.depths_kernel, arguments, constants, 4)


def _choices() -> tuple[Variant, ...]:
    """One program each: their time is that of a chain of dependent instructions."""
    facts = {"top": "*i32", "negative_lsb": "*i32", "square": "*i64", "facts": "*i64", "vectors": "i32"}
    inner = {"top_a": "*i32", "top_b": "*i32", "inner": "*i32", "helps": "*i32", "depth": "i32"}
    arguments = dict.fromkeys(("facts_a", "facts_b", "limits", "asked", "depths_a", "depths_b"), "*i64")
    arguments |= {"choice": "*i32"}
    arguments |= dict.fromkeys(("m", "n", "k", "samples_a", "samples_b"), "i32")
    arguments |= dict.fromkeys(("digits", "least_bits", "dot_cost", "few"), "i32")
    return (
        Variant("facts", choose.facts_kernel, facts, {"BLOCK": choose.BLOCK}, 4),
        Variant("inner", choose.inner_kernel, inner, {"BLOCK": choose.BLOCK}, 4),
        *(
            Variant(f"choose {grade}", choose.choose_kernel, arguments, {"MOST": 200, "GRADE": i}, warps)
            for i, (grade, warps) in enumerate(choose.WARPS.items())
        ),
    )


def _assess() -> Variant:
    arguments = {"products": "*i32", "rows": "*i64", "columns": "*i64", "factors": "*fp64", "need": "*i8"}
    arguments |= {"histogram": "*i64", "m": "i32", "n": "i32", "stride_m": "i32", "stride_n": ""}
    constants = dict(zip(("ROWS", "BLOCK_N"), survey.ASSESS_BLOCK, strict=True))
    return Variant("assess", survey.assess_kernel, arguments, constants, 4)


def _settle(dtype: str) -> Variant:
    carrier, fraction, exponent = _FLOATS[dtype]
    arguments = {"a": carrier, "b": carrier, "special_a": "*i32", "special_b": "*i32", "out": carrier}
    arguments |= {"m": "i32", "n": "i32", "depth": "i32", "stride_a": "i32", "stride_a_depth": ""}
    # A right operand as it lies in memory, (depth, n): its columns are read across the rows.
    arguments |= {"stride_b": "", "stride_b_depth": "i32", "stride_m": "i32", "stride_n": ""}
    constants = {"FRACTION": fraction, "EXPONENT": exponent, "OUT_FRACTION": fraction, "OUT_EXPONENT": exponent}
    constants |= {"BLOCK_M": settle.BLOCK_M, "BLOCK_N": settle.BLOCK_N, "BLOCK_K": settle.BLOCK_K}
    return Variant(f"settle {dtype}", settle.settle_kernel, arguments, constants, 8, 1)


def _exact_dots(dtype: str, where: bool, depth: int) -> Variant:
    carrier, fraction, exponent = _FLOATS[dtype]
    arguments = {"a": carrier, "b": carrier}
    arguments |= {"need": "*u8", "limit": "*i32", "open_": "*i8"} if where else {"at": "*i64"}
    arguments |= {"out": carrier} | ({"m": "i32", "n": "i32"} if where else {})
    # A right operand as it lies in memory, (depth, n).
    arguments |= {"depth": "i32", "stride_a": "i32", "stride_a_depth": "", "stride_b": "", "stride_b_depth": "i32"}
    if where:
        arguments |= {"stride_need_m": "i32", "stride_need_n": "", "stride_open_m": "i32", "stride_open_n": ""}
    arguments |= {"stride_m": "i32", "stride_n": ""} | ({} if where else {"stride_count": "i32"})
    block, warps = exact_dot.block_shape(depth)
    constants = {"FRACTION": fraction, "EXPONENT": exponent, "OUT_FRACTION": fraction, "OUT_EXPONENT": exponent}
    constants |= ({"NEED": True, "OPEN": True, "SIDE": 32} if where else {}) | {"BLOCK_K": block}
    kernel = exact_dot.exact_dots_where_kernel if where else exact_dot.exact_dots_kernel
    name = ("exact_dots_where " if where else "exact_dots ") + dtype + ("" if warps == 4 else ", shallow")
    return Variant(name, kernel, arguments, constants, warps)


def _deconstruct(bits: int, dtype: str) -> Variant:
    digits = digits_for(bits)
    block_v, block_k = deconstruct.block_shape(digits)
    carrier, fraction, exponent = _FLOATS[dtype]
    arguments = {
        "x": carrier,
        "shift": "*i32",
        "inner": "*i32",
        "table": "*fp32",
        "planes": "*i8",
        "lost": "*i32",
        "vectors": "i32",
        "depth": "i32",
        "row": "i32",
        "stride_vector": "i32",
        "stride_depth": "",
        "count": "i32",
    }
    constants = {"FRACTION": fraction, "EXPONENT": exponent, "DIGITS": digits, "INNER": False, "COUNT": False}
    constants |= {"BLOCK_V": block_v, "BLOCK_K": block_k}
    return Variant(f"deconstruct {dtype}, {bits} bits", deconstruct.deconstruct_kernel, arguments, constants, 4)


def _gemm(kind: int, capability: int) -> Variant:
    block_m, block_n, block_k, warps, stages = residue_gemm.gemm_blocks(kind, capability)
    arguments = {"a": _OPERAND[kind], "b": _OPERAND[kind], "table": "*i32", "digits": "*u8", **_GEMM_SIZES}
    constants = {"KIND": kind, "EVEN": True, "SHALLOW": True, "BLOCK_M": block_m, "BLOCK_N": block_n}
    constants |= {"BLOCK_K": block_k, "GROUP": 8}
    name = f"residue_gemm {_KIND_NAMES[kind]}"
    kernel = residue_gemm.residue_gemm_kernel
    return Variant(name, kernel, arguments, constants, warps, stages)


def _plane_sums(kind: int, capability: int) -> Variant:
    product = _gemm(kind, capability)
    sizes = {name: of for name, of in _GEMM_SIZES.items() if not name.startswith("plane")}
    arguments = {"a": _OPERAND[kind], "b": _OPERAND[kind], "sums": "*i32", **sizes}
    constants = {name: value for name, value in product.constants.items() if name != "SHALLOW"}
    name, kernel = f"plane_sums {_KIND_NAMES[kind]}", residue_gemm.plane_sums_kernel
    return Variant(name, kernel, arguments, constants, product.warps, product.stages)


_DESCRIBED_SIZES = {**dict.fromkeys(("m", "n", "depth", "rows_a", "rows_b"), "i32"), "tiles": "i32"}


def _described_gemm(capability: int, chooses: bool = False) -> Variant:
    tile = described_gemm.described_tile(capability)
    assert tile is not None
    a, b = (f"tensordesc<i8[{vectors}, {tile.block_k}]>" for vectors in (tile.block_m, tile.block_n))
    arguments = {"a": a, "b": b, "table": "*i32", "count": "*i32", "digits": "*u8", **_DESCRIBED_SIZES}
    constants = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k, "GROUP": 8}
    constants |= {"SPECIALIZED": tile.specialized, "CHOSEN": chooses}
    kernel = described_gemm.described_gemm_kernel
    name = f"described_gemm{'_chosen' if chooses else ''} int8"
    return Variant(name, kernel, arguments, constants, tile.warps, tile.stages)


def _warpgroup_gemm(ctas: int, chooses: bool = False) -> Variant:
    from gemmulate.engines.triton import warpgroup_gemm as module  # Gluon is for these GPUs alone

    blocks, layouts = (ctas * module.BLOCK_M, module.BLOCK_N), module.operand_layouts(ctas)
    a, b = (f"tensordesc<i8[{v}, {module.BLOCK_K}],{layout!r}>" for v, layout in zip(blocks, layouts, strict=True))
    arguments = {"a": a, "b": b, "table": "*i32", "count": "*i32", "digits": "*u8", **_DESCRIBED_SIZES}
    constants = {"BLOCK_M": blocks[0], "BLOCK_N": module.BLOCK_N, "BLOCK_K": module.BLOCK_K, "GROUP": 8}
    constants |= {"STAGES": module.STAGES, "CTAS": ctas, "CHOSEN": chooses}
    name = f"warpgroup_gemm{'_chosen' if chooses else ''} int8" + (f", {ctas} SMs" if ctas > 1 else "")
    return Variant(name, module.warpgroup_gemm_kernel, arguments, constants, module.WARPS, ctas=ctas, gluon=True)


def _reduce_sums() -> Variant:
    arguments = {"sums": "*i32", "row": "*i32", "digits": "*u8", "count": "i64"}
    return Variant("reduce_sums", library_gemm.reduce_sums_kernel, arguments, {"BLOCK": library_gemm.BLOCK}, 4)


_ROUNDING = {
    "row_exponent": "*i32",
    "column_exponent": "*i32",
    "row_lost": "*i32",
    "column_lost": "*i32",
    "left_bits": "i32",
    "right_bits": "i32",
    "out": "*i64",
    "open_": "*i8",
}


def _recombine(moduli: int, check: bool) -> Variant:
    limbs = limb_count(ResidueSystem(INT8_MODULI[:moduli]))
    arguments = {"digits": "*u8", "table": "*i32", **_ROUNDING}
    arguments |= {"m": "i32", "n": "i32", "stride_m": "i32", "stride_n": "", "count": "i32"}
    constants = {"LIMBS": limbs, "FRACTION": 52, "EXPONENT": 11, "CHECK": check, "WIDE": limbs + 1}
    constants |= dict(zip(("BLOCK_M", "BLOCK_N"), recombine.block_shape(torch.device("cuda")), strict=True))
    name = f"recombine_floats, {moduli} moduli" + (", certainty" if check else "")
    return Variant(name, recombine.recombine_floats_kernel, arguments, constants, 4)


def _recombine_words(moduli: int) -> Variant:
    arguments = {"digits": "*u8", "table": "*i32", "out": "*i64", "longest": "*i32"}
    arguments |= {"m": "i32", "n": "i32", "stride_m": "i32", "stride_n": "", "count": "i32"}
    constants = {"LIMBS": limb_count(ResidueSystem(INT8_MODULI[:moduli])), "WORDS": 1}
    constants |= dict(zip(("BLOCK_M", "BLOCK_N"), recombine.block_shape(torch.device("cuda")), strict=True))
    return Variant(f"recombine_words, {moduli} moduli", recombine.recombine_words_kernel, arguments, constants, 4)


def _fused(moduli: int, capability: int) -> Variant:
    block_m, block_n, block_k, warps, stages = fused.fused_blocks(capability)
    arguments = {"a": "*i8", "b": "*i8", "reduction": "*i32", "table": "*i32", **_ROUNDING, **_GEMM_SIZES}
    arguments |= {"stride_m": "i32", "stride_n": ""}
    limbs = limb_count(ResidueSystem(INT8_MODULI[:moduli]))
    constants = {"KIND": 0, "EVEN": True, "SHALLOW": True, "COUNT": moduli, "LIMBS": limbs, "FRACTION": 52}
    constants |= {"EXPONENT": 11, "CHECK": False, "WIDE": limbs, "BLOCK_M": block_m, "BLOCK_N": block_n}
    constants |= {"BLOCK_K": block_k, "GROUP": 8, "PARTS": fused.column_parts(moduli)}
    name = f"fused_floats int8, {moduli} moduli"
    return Variant(name, fused.fused_floats_kernel, arguments, constants, warps, stages)


def _deconstruct_chosen(tier: int, dtype: str) -> Variant:
    digits, fewer = chosen.DIGIT_TIERS[tier], (0, *chosen.DIGIT_TIERS)[tier]
    today = _deconstruct(14 * digits - 1, dtype)
    arguments = {"x": today.arguments["x"], "top": "*i32", "inner": "*i32", "choice": "*i32"}
    arguments |= {name: of for name, of in today.arguments.items() if name not in ("x", "shift", "inner", "count")}
    arguments["left"] = "i32"
    constants = {name: value for name, value in today.constants.items() if name != "COUNT"} | {"FEWER": fewer}
    name = f"deconstruct_chosen {dtype}, to {14 * digits - 1} bits"
    return Variant(name, chosen.deconstruct_chosen_kernel, arguments, constants, today.warps)


def _gemm_chosen(capability: int) -> Variant:
    today = _gemm(0, capability)
    arguments = {"a": "*i8", "b": "*i8", "choice": "*i32", "table": "*i32", "digits": "*u8", **_GEMM_SIZES}
    kernel = chosen.residue_gemm_chosen_kernel
    return Variant("residue_gemm_chosen int8", kernel, arguments, today.constants, today.warps, today.stages)


def _recombine_chosen(tier: int, check: bool) -> Variant:
    fewer, held = ((recombine_chosen.NO_TIER, *recombine_chosen.tiers())[tier + i] for i in range(2))
    arguments = {"digits": "*u8", "table": "*i32", "choice": "*i32", "row_top": "*i32", "column_top": "*i32"}
    arguments |= {"row_lost": "*i32", "column_lost": "*i32", "out": "*i64", "open_": "*i8", "m": "i32", "n": "i32"}
    arguments |= {"stride_m": "i32", "stride_n": "", "open_m": "i32", "open_n": ""}
    constants = {"FEWER_MODULI": fewer.moduli, "FEWER_BITS": fewer.bits, "LAST_MODULI": held.moduli}
    constants |= {"LAST_BITS": held.bits, "LIMBS": held.limbs, "FRACTION": 52, "EXPONENT": 11, "CHECKED": check}
    constants |= {"WIDE": held.wide}
    constants |= dict(zip(("BLOCK_M", "BLOCK_N"), recombine.block_shape(torch.device("cuda")), strict=True))
    name = f"recombine_chosen, to {held.moduli} moduli" + (", certainty" if check else "")
    return Variant(name, recombine_chosen.recombine_chosen_kernel, arguments, constants, 4)


def variants(capability: int) -> tuple[Variant, ...]:
    """The kernels of a float64 product at 54 bits and 15 moduli, and their neighbours, as a device launches them."""
    kinds = range(3 if capability >= 90 else 2)  # E4M3 products begin with sm_89
    gluon = capability == 90 and has_gluon()
    return (
        *(_survey(name, dtype) for name in _SURVEYS for dtype in _FLOATS),
        *(_survey(name, "float64", columns=True) for name in _SURVEYS),
        _assess(),
        _depths("float64"),
        *_choices(),
        *(_settle(dtype) for dtype in _FLOATS),
        *(_exact_dots(dtype, where, 4096) for where in (False, True) for dtype in _FLOATS),
        *(_exact_dots("float64", where, exact_dot.SHALLOW) for where in (False, True)),
        _deconstruct(54, "float64"),
        _deconstruct(54, "float32"),
        _deconstruct(90, "float64"),
        *(_gemm(kind, capability) for kind in kinds),
        *((_described_gemm(capability),) if capability >= 90 else ()),
        *((_warpgroup_gemm(1), _warpgroup_gemm(2)) if gluon else ()),
        _reduce_sums(),
        *(_plane_sums(kind, capability) for kind in kinds if kind),  # of INT8 they are torch's
        _recombine(15, False),
        _recombine(15, True),
        _recombine(20, False),
        _recombine_words(18),
        _fused(15, capability),
        _fused(20, capability),
        *(_deconstruct_chosen(tier, "float64") for tier in range(len(chosen.DIGIT_TIERS))),
        _gemm_chosen(capability),
        *((_described_gemm(capability, True),) if capability >= 90 else ()),
        *((_warpgroup_gemm(1, True), _warpgroup_gemm(2, True)) if gluon else ()),
        *(_recombine_chosen(tier, check) for tier in range(2) for check in (False, True)),
        *(_recombine_chosen(tier, True) for tier in range(2, len(recombine_chosen.tiers()))),
    )


@dataclass(frozen=True)
class Compiled:
    """PTX, the log of `ptxas -v`, machine code, and what Triton says of shared memory (dynamic, in bytes)."""

    ptx: str
    log: str
    cubin: bytes
    shared: int


def compile_variant(variant: Variant, capability: int) -> Compiled:
    """Compile for a compute capability, 90 for sm_90a. Raises what Triton and ptxas raise."""
    signature = {name: kind or "constexpr" for name, kind in variant.arguments.items()}
    signature |= dict.fromkeys(variant.constants, "constexpr")
    names = list(variant.kernel.arg_names)
    ones = {name: 1 for name, kind in variant.arguments.items() if not kind}
    # Sizes m, n and counts are whatever they are; pointers, depth and strides are multiples of 16 bytes.
    free = {"m", "n", "k", "vectors", "count", "steps", "left_bits", "right_bits", "left", "samples_a", "samples_b"}
    free |= {"digits", "least_bits", "dot_cost", "few", "tiles", "rows_a", "rows_b"}
    free |= {parameter.name for parameter in variant.kernel.params if parameter.do_not_specialize}
    attributes = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, kind in variant.arguments.items()
        if kind.startswith("*") or (kind and name not in free and not kind.startswith("tensordesc"))
    }
    source = _source_of(variant.gluon)(variant.kernel, signature, {**ones, **variant.constants}, attributes)
    options = {"num_warps": variant.warps, "num_stages": variant.stages, "num_ctas": variant.ctas}
    options["enable_fp_fusion"] = False
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    ptx = compiled.asm["ptx"]
    return Compiled(ptx, _ptxas(ptx, capability), compiled.asm["cubin"], compiled.metadata.shared)


def _source_of(gluon: bool) -> Any:
    if not gluon:
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource  # Triton before 3.9 exports it nowhere else

    return GluonASTSource


def tool_versions() -> dict[str, str]:
    """Versions of Triton and of the assembler for each generation."""
    found = {"triton": triton.__version__}
    for name, tool in (
        ("ptxas below sm_90", triton.knobs.nvidia.ptxas),
        ("ptxas", triton.knobs.nvidia.ptxas_blackwell),
    ):
        found[name] = str(tool.version)
    return found


def architecture_name(capability: int) -> str:
    """sm_80, sm_90a, …: from Hopper on Triton compiles for the architecture alone."""
    return f"sm_{capability}{'a' if capability >= 90 else ''}"


def _ptxas(ptx: str, capability: int) -> str:
    tool = triton.knobs.nvidia.ptxas if capability < 90 else triton.knobs.nvidia.ptxas_blackwell
    with tempfile.TemporaryDirectory(prefix="gemmulate-") as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        command = [tool.path, "-v", f"-arch={architecture_name(capability)}", "--fmad=false", str(path)]
        done = subprocess.run(
            [*command, "-o", str(path.with_suffix(".cubin"))], capture_output=True, text=True, check=True, timeout=300
        )
    return done.stderr + done.stdout


def disassemble(cubin: bytes) -> str:
    """SASS of a cubin, by the disassembler in Triton's wheel."""
    with tempfile.TemporaryDirectory(prefix="gemmulate-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        tool = triton.knobs.nvidia.nvdisasm.path
        done = subprocess.run([tool, "-c", "-hex", str(path)], capture_output=True, text=True, check=True, timeout=300)
    return done.stdout
