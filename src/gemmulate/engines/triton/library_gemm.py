"""Products of INT8 residue planes by cuBLAS (`torch._int_mm`), then a kernel that reduces the sums to digits.

int32 sums are four bytes where a digit is one, written and read once more. They are made for a panel of rows at a time,
as many as `SUMS` holds, so that a device with a large L2 cache finds them there; one buffer serves all panels and
moduli. Not run on a GPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.torch import CUDA_RULES
from gemmulate.engines.triton.residue_gemm import DEPTH, reduce, reduction_table

# int32 sums of a panel: 32 MiB, of the 50 MiB of L2 on H100 and H200. On paper, not measured.
SUMS = 1 << 23
BLOCK = 4096
_ALIGNMENT = 16  # bytes, of every matrix that cuBLAS is given


@triton.jit
def reduce_sums_kernel(sums, row, digits, count, BLOCK: tl.constexpr):
    """Digits of `count` sums |t| < 2^30 modulo one m; `row` as `reduce` takes it."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    digit = reduce(tl.load(sums + at, mask=inside, other=0), row)
    tl.store(digits + at, digit.to(tl.uint8), mask=inside)


def has_library_gemm(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether torch._int_mm takes every plane as it lies, by its rules on CUDA, and int32 holds the sums."""
    if not a.dtype == b.dtype == torch.int8 or not (a.numel() and b.numel()):
        return False
    (_, m, depth), n = a.shape, b.shape[1]
    least = depth >= CUDA_RULES.least_depth and m >= CUDA_RULES.least_rows
    if not least or depth % _ALIGNMENT or n % CUDA_RULES.multiple or depth > int(DEPTH.value):
        return False
    return all(
        x.stride(2) == 1 and x.stride(1) == depth and x.stride(0) % _ALIGNMENT == 0 and x.data_ptr() % _ALIGNMENT == 0
        for x in (a, b)
    )


def panel_rows(m: int, n: int) -> int:
    """Rows of a panel of sums: SUMS at most, but as many as the library's products have."""
    return min(m, max(CUDA_RULES.least_rows, SUMS // n // 256 * 256, min(256, SUMS // n)))


def library_gemm(a: torch.Tensor, b: torch.Tensor, system: ResidueSystem) -> torch.Tensor:
    """`residue_gemm` of INT8 planes that `has_library_gemm` allows: the same digits."""
    if not has_library_gemm(a, b):
        raise ValueError(
            f"planes of shapes {tuple(a.shape)} and {tuple(b.shape)}: torch._int_mm gets contiguous ones, m > 31, "
            "n and depth multiples of 16, up to 65280; use residue_gemm"
        )
    (moduli, m, _), n = a.shape, b.shape[1]
    digits = torch.empty((moduli, m, n), dtype=torch.uint8, device=a.device)
    table, rows = reduction_table(system, a.device), panel_rows(m, n)
    sums = torch.empty((rows, n), dtype=torch.int32, device=a.device)
    for modulus in range(moduli):
        for start in range(0, m, rows):
            # The last panel has as many rows as the others, some of them once more.
            part = slice(min(start, m - rows), min(start, m - rows) + rows)
            torch._int_mm(a[modulus, part], b[modulus].T, out=sums)
            reduce_sums_kernel[(triton.cdiv(sums.numel(), BLOCK),)](
                sums,
                table[modulus],
                digits[modulus, part],
                sums.numel(),
                BLOCK=BLOCK,
                num_warps=4,
                enable_fp_fusion=False,
            )
    return digits
