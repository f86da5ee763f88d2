"""The kernels compile ahead of time for GPUs that are not here: registers and spills as the compiler states them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import gemmulate as gm
from gemmulate.screen.compiled import read_compiled

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from gemmulate.engines.triton import ahead
from gemmulate.engines.triton.gemm_ways import has_gluon


def variant_of(kernel: str, capability: int) -> ahead.Variant:
    found = next((v for v in ahead.variants(capability) if v.name == kernel), None)
    if found is None and kernel.startswith("warpgroup_gemm"):
        pytest.skip(f"{kernel} is written in the Gluon of Triton 3.9, this is {ahead.triton.__version__}")
    assert found is not None, kernel
    return found


@pytest.mark.parametrize("capability", [90, 120])
@pytest.mark.parametrize(
    "kernel",
    [
        "deconstruct float64, 54 bits",
        "residue_gemm int8",
        "residue_gemm fp8",
        "described_gemm int8",
        "reduce_sums",
        "plane_sums fp8",
        "recombine_floats, 15 moduli",
        "settle float64",
        "choose fast",
        "choose componentwise",
        "depths float64",
        "deconstruct_chosen float64, to 55 bits",
        "residue_gemm_chosen int8",
        "described_gemm_chosen int8",
        "recombine_chosen, to 16 moduli",
        "recombine_chosen, to 49 moduli, certainty",
        "exact_dots float64",
        "exact_dots_where float64",
        "exact_dots_where float64, shallow",
    ],
)
def test_registers_without_spills(capability: int, kernel: str, tmp_path: Path) -> None:
    variant = variant_of(kernel, capability)
    try:
        compiled = ahead.compile_variant(variant, capability)
    except FileNotFoundError as error:
        pytest.skip(f"Triton's wheel has no assembler on this platform: {error}")
    log = tmp_path / "ptxas.log"
    log.write_text(compiled.log)
    if kernel.startswith("exact_dots_where") and not has_gluon():
        pytest.skip(f"Triton {ahead.triton.__version__} spills some ten registers where 3.9 does not")
    (function,) = read_compiled(log)
    assert function.arch == ahead.architecture_name(capability)
    assert function.registers is not None
    assert 0 < function.registers <= 255
    assert (function.spill_store_bytes, function.spill_load_bytes, function.stack_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("kernel", "size"),
    [
        ("deconstruct float64, 54 bits", "vectors"),
        ("deconstruct float64, 90 bits", "depth"),
        ("deconstruct float64, 54 bits", "row"),
        ("deconstruct_chosen float64, to 55 bits", "row"),
        ("residue_gemm int8", "m"),
        ("described_gemm int8", "n"),
        ("warpgroup_gemm int8", "n"),
        ("warpgroup_gemm int8, 2 SMs", "n"),
        ("recombine_floats, 15 moduli", "m"),
        ("recombine_floats, 15 moduli, certainty", "left_bits"),
        ("recombine_floats, 15 moduli, certainty", "right_bits"),
        ("recombine_words, 18 moduli", "m"),
        ("fused_floats int8, 15 moduli", "m"),
        ("settle float64", "depth"),
        ("deconstruct_chosen float64, to 55 bits", "depth"),
        ("residue_gemm_chosen int8", "m"),
        ("described_gemm_chosen int8", "n"),
        ("warpgroup_gemm_chosen int8", "n"),
        ("warpgroup_gemm_chosen int8, 2 SMs", "n"),
        ("recombine_chosen, to 16 moduli, certainty", "n"),
        ("exact_dots float64", "depth"),
        ("exact_dots_where float64", "depth"),
    ],
)
def test_a_size_of_one(kernel: str, size: str) -> None:
    """A launch makes a constant of every integer argument that is 1: the kernels have to compile with it."""
    variant = variant_of(kernel, 90)
    with_one = replace(variant, arguments=variant.arguments | {size: ""})
    try:
        assert ".visible .entry" in ahead.compile_variant(with_one, 90).ptx
    except FileNotFoundError as error:
        pytest.skip(f"Triton's wheel has no assembler on this platform: {error}")


@pytest.mark.parametrize("side", [1, 8])
def test_smaller_tiles_of_masks(side: int) -> None:
    """Few results have programs of their own; a tile of one result has vectors of length 1."""
    variant = next(v for v in ahead.variants(90) if v.name == "exact_dots_where float64")
    for ones in ({}, {"m": "", "n": ""}):
        small = replace(variant, constants=variant.constants | {"SIDE": side}, arguments=variant.arguments | ones)
        assert ahead.compile_variant(small, 90).cubin


def test_heights_of_panels_and_what_a_choice_reads_compile_nothing_anew() -> None:
    """Free memory decides on heights: a CUDA graph's capture may meet others than the product before it."""
    fixed = {
        "assess": {"m"},
        "exact_dots_where float64": {"m"},
        "recombine_chosen, to 16 moduli": {"m"},
        "deconstruct_chosen float64, to 55 bits": {"vectors", "left"},
        "facts": {"vectors"},
        "described_gemm_chosen int8": {"m", "depth", "rows_a", "rows_b", "tiles"},
        "warpgroup_gemm_chosen int8": {"m", "depth", "rows_a", "rows_b", "tiles"},
        "choose fast": {"m", "n", "k", "samples_a", "samples_b", "digits", "least_bits", "dot_cost", "few"},
    }
    found = {v.name: {p.name for p in v.kernel.params if p.do_not_specialize} for v in ahead.variants(90)}
    if not has_gluon():
        del fixed["warpgroup_gemm_chosen int8"]
    assert {name: found[name] for name in fixed} == fixed


def test_products_by_descriptors_do_not_spill_on_datacentre_blackwell() -> None:
    for name in ("described_gemm int8", "described_gemm_chosen int8"):
        variant = next(v for v in ahead.variants(100) if v.name == name)
        try:
            log = ahead.compile_variant(variant, 100).log
        except FileNotFoundError as error:
            pytest.skip(f"Triton's wheel has no assembler on this platform: {error}")
        assert ", 0 bytes spill stores" in log, name


def test_the_products_use_the_tensor_units() -> None:
    """wgmma on Hopper, tcgen05 on datacentre Blackwell, m16n8k32 elsewhere."""
    for capability, kernel, instruction in (
        (90, "int8", "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8"),
        (80, "int8", "m16n8k32.row.col"),
        (90, "fp8", "k32.f32.e4m3.e4m3"),
        (100, "bf16", "tcgen05.mma.cta_group::1.kind::f16"),
        (100, "fp8", "tcgen05.mma.cta_group::1.kind::f8f6f4"),
        (120, "fp8", "m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    ):
        variant = next(v for v in ahead.variants(capability) if v.name == f"residue_gemm {kernel}")
        assert instruction in ahead.compile_variant(variant, capability).ptx, (capability, kernel)


def test_hopper_keeps_a_product_in_flight() -> None:
    """What warpgroup_gemm is for; if tl.dot does so for int32 sums one day, it is not needed any more."""
    in_flight = {"warpgroup_gemm int8": True, "described_gemm int8": False, "residue_gemm int8": False}
    in_flight |= {"warpgroup_gemm int8, 2 SMs": True, "warpgroup_gemm_chosen int8": True}
    in_flight |= {"warpgroup_gemm_chosen int8, 2 SMs": True, "described_gemm_chosen int8": False}
    found = [variant_of(name, 90) for name in in_flight]
    assert len(found) == len(in_flight)
    for variant in found:
        compiled = ahead.compile_variant(variant, 90)
        assert ("wgmma.wait_group.sync.aligned 1" in compiled.ptx) == in_flight[variant.name], variant.name
        assert ("cp.async.bulk.tensor.2d" in compiled.ptx) == (variant.name != "residue_gemm int8"), variant.name
        assert ("multicast::cluster" in compiled.ptx) == variant.name.endswith("2 SMs"), variant.name
        assert ", 0 bytes spill stores" in compiled.log


@pytest.mark.parametrize(
    "kernel",
    [
        "deconstruct float64, 54 bits",
        "recombine_floats, 15 moduli",
        "scan float64",
        "norms float64",
        "assess",
        "settle float64",
        "deconstruct_chosen float64, to 97 bits",
        "residue_gemm_chosen int8",
        "recombine_chosen, to 24 moduli, certainty",
        "exact_dots_where float64",
        "depths float64",
        "facts",
        "choose fast",
        "choose componentwise",
        "choose exact",
    ],
)
def test_sizes_of_one_are_constants(kernel: str) -> None:
    """Triton compiles a kernel anew for an argument of 1, which is then no tensor."""
    variant = variant_of(kernel, 90)
    ones = {name: "" for name in ("vectors", "m", "n", "k", "samples_a", "steps") if name in variant.arguments}
    assert ahead.compile_variant(replace(variant, arguments=variant.arguments | ones), 90).cubin


def test_without_a_gpu_the_engine_says_what_to_do() -> None:
    record = next(r for r in gm.engines() if r.name == "triton")
    if not record.available:
        assert "TRITON_INTERPRET=1" in record.reason
