"""Triton kernels of the residue scheme and the engine that runs them; importing them needs torch and triton.

`deconstruct` takes operands apart, `residue_gemm` multiplies residues, `recombine` puts results together, `fused` does
the last two at once. All four work on integers, so that no order of sums, fused operation or flushed subnormal can
change a bit. None of them was run on a GPU: they are tested in Triton's interpreter and compiled ahead of time
(docs/triton-kernels.md).
"""
