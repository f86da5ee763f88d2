"""The source of Hopper's kernel on stand-ins for its operations: digits as Python's ints have them, whenever copies and
products take effect, and no wait without an end. What the compiler makes of it is in test_triton_compiled.py.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

import torch
from gluon_stand_ins import Descriptor, Device, Pointer

from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem
from gemmulate.engines.triton import warpgroup_gemm as module
from gemmulate.engines.triton.described_gemm import as_matrix, plane_rows
from gemmulate.engines.triton.residue_gemm import reduction_table

BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 8, 16, 16, 4
TIMES = [(copies, products) for copies in (True, False) for products in (True, False)]


def digits_by_source(
    kernel: Callable[..., Any],
    a: torch.Tensor,
    b: torch.Tensor,
    system: ResidueSystem,
    programs: int,
    ctas: int,
    times: tuple[bool, bool],
    chosen: int | None = None,
) -> Any:
    """Digits of all planes, or of as many as the device's memory says; 255 where none are written."""
    (moduli, m, depth), n = a.shape, b.shape[1]
    digits = np.full(moduli * m * n + 64, 255, dtype=np.uint8)
    table = reduction_table(system, torch.device("cpu")).numpy().reshape(-1)

    def described(x: torch.Tensor, block: int) -> Descriptor:
        shape, strides = as_matrix(x)
        return Descriptor(torch.as_strided(x, shape, strides).numpy(), (block, BLOCK_K))

    plane_tiles = -(-m // BLOCK_M) * -(-n // BLOCK_N)
    tiles = moduli * plane_tiles
    count = Pointer(np.array([0 if chosen is None else chosen], dtype=np.int32))
    tiles_given = tiles if chosen is None else plane_tiles
    helpers = [getattr(module, name).fn for name in ("place_of", "load_step")]
    for program in range(min(programs, tiles)):
        Device(program, min(programs, tiles), ctas, *times).run(
            kernel,
            helpers,
            *(described(a, BLOCK_M), described(b, BLOCK_N), Pointer(table), count, Pointer(digits)),
            *(m, n, depth, plane_rows(a), plane_rows(b), tiles_given, BLOCK_M, BLOCK_N, BLOCK_K, 8, STAGES, ctas),
            chosen is not None,
        )
    assert (digits[moduli * m * n :] == 255).all()
    return digits[: moduli * m * n].reshape(moduli, m, n)


def operands(moduli: int, m: int, n: int, depth: int, row: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng([m, n, depth])
    a, b = (torch.from_numpy(rng.integers(-128, 128, (moduli, v, row), dtype=np.int8))[..., :depth] for v in (m, n))
    a[:, 0], b[:, -1] = -128, -128
    return a, b


def expected(a: torch.Tensor, b: torch.Tensor, system: ResidueSystem) -> Any:
    sums = a.numpy().astype(object) @ b.numpy().astype(object).transpose(0, 2, 1)
    return sums % np.array(system.moduli, dtype=object)[:, None, None]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize(
    ("m", "n", "depth", "row", "moduli", "programs"),
    [
        (8, 16, 64, 64, 1, 1),  # one tile, as deep as there are buffers
        (8, 16, 33, 48, 2, 2),  # the least depth, and two tiles on two programs
        (33, 45, 77, 80, 3, 1),  # all tiles on one
        (33, 45, 128, 128, 3, 4),  # uneven shares
        (100, 20, 81, 96, 2, 5),  # more rows of tiles than a band
        (1, 1, 49, 64, 4, 3),
    ],
)
def test_digits(
    m: int, n: int, depth: int, row: int, moduli: int, programs: int, ctas: int, times: tuple[bool, bool]
) -> None:
    system = ResidueSystem(INT8_MODULI[:moduli])
    a, b = operands(moduli, m, n, depth, row)
    got = digits_by_source(module.warpgroup_gemm_kernel.fn, a, b, system, programs, ctas, times)
    assert (got == expected(a, b, system)).all()


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("chosen", [0, 1, 3, 4])
@pytest.mark.parametrize("programs", [1, 5, 64])
def test_digits_of_as_many_moduli_as_the_device_says(
    programs: int, chosen: int, ctas: int, times: tuple[bool, bool]
) -> None:
    """Programs are as many as all planes' tiles ask for; those left over copy nothing, and nothing else is written."""
    system = ResidueSystem(INT8_MODULI[:4])
    a, b = operands(4, 20, 37, 77, 80)
    got = digits_by_source(module.warpgroup_gemm_kernel.fn, a, b, system, programs, ctas, times, chosen)
    assert (got[:chosen] == expected(a, b, system)[:chosen]).all()
    assert (got[chosen:] == 255).all()


@pytest.mark.parametrize(
    ("old", "new", "ctas"),
    [
        ("gl.barrier()", "pass", 1),
        ("cluster.barrier(relaxed=True)", "gl.barrier()", 2),
        ("warpgroup_mma_wait(1, deps=(total,))", "warpgroup_mma_wait(2, deps=(total,))", 1),
        ("refilled = read", "refilled = (read + 1) % STAGES", 1),
        ("phase ^= 1", "phase ^= 0", 1),
        ("(ahead < whole) | (after < tiles)", "ahead < whole", 1),
        ("gl.where(over, ahead - whole, ahead)", "ahead", 1),
        ("mbarrier.wait(full.index(read), phase)", "pass", 1),
        ("there = first < tiles", "there = True", 1),
        ("tiles *= gl.load(count)", "pass", 1),
    ],
)
def test_stand_ins_notice_what_is_wrong(old: str, new: str, ctas: int) -> None:
    """A barrier left out, a wait too short, a buffer refilled too early: not all times give the digits any more."""
    source = textwrap.dedent(inspect.getsource(module.warpgroup_gemm_kernel.fn))
    tree = ast.parse(source.replace(old, new))
    assert source.count(old) == 1
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    names: dict[str, Any] = {"gl": __import__("types").SimpleNamespace(constexpr=None)}
    exec(compile(tree, "kernel", "exec", flags=__import__("__future__").annotations.compiler_flag), names)
    system = ResidueSystem(INT8_MODULI[:2])
    a, b = operands(2, 20, 40, 100, 112)

    def right(times: tuple[bool, bool]) -> bool:
        try:
            got = [
                digits_by_source(names["warpgroup_gemm_kernel"], a, b, system, 2, ctas, times, chosen)
                for chosen in (None, 2, 0)
            ]
        except AssertionError:
            return False
        return bool((np.stack(got[:2]) == expected(a, b, system)).all() and (got[2] == 255).all())

    assert not all(right(times) for times in TIMES)


def test_the_unchanged_source_passes_what_notices() -> None:
    system = ResidueSystem(INT8_MODULI[:2])
    a, b = operands(2, 20, 40, 100, 112)
    for times in TIMES:
        got = [
            digits_by_source(module.warpgroup_gemm_kernel.fn, a, b, system, 2, 1, times, chosen)
            for chosen in (None, 2, 0)
        ]
        assert (np.stack(got[:2]) == expected(a, b, system)).all()
        assert (got[2] == 255).all()


def test_planes_that_the_kernel_does_not_take() -> None:
    """Its prologue loads three steps of one tile."""
    a, b = operands(2, 3, 5, 257, 272)
    assert module.has_warpgroup_gemm(a, b)
    assert not module.has_warpgroup_gemm(a[..., :256], b[..., :256])
    with pytest.raises(ValueError, match="a depth in 257 … 65280; use residue_gemm"):
        module.warpgroup_gemm(a[..., :256], b[..., :256], ResidueSystem(INT8_MODULI[:2]))
    assert (module.STAGES - 2) * module.BLOCK_K < module.LEAST_DEPTH
