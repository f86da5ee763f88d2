"""Triton kernels of the residue scheme and the engine that runs them; importing them needs torch and triton.

`survey` measures operands, `deconstruct` takes them apart, `residue_gemm` multiplies residues, `recombine` puts results
together, `fused` does the last two at once. `gemm_ways` are other ways to `residue_gemm`'s digits, of which
`gemm_choice` takes the fastest. All work on integers, so that no order of sums, fused operation or flushed
subnormal can change a bit; but for one quotient in `survey`. None of them was run on a GPU: they are tested in Triton's
interpreter and compiled ahead of time (docs/triton-kernels.md).
"""
