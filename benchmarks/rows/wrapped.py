"""Products modulo 2^64 and 2^32, bit for bit what NumPy's integers give when they overflow."""

from collections.abc import Iterator

import numpy as np

from benchmarks.agreement import equal_modulo
from benchmarks.harness import Job, main
from benchmarks.operands import integers
from benchmarks.peers import flint_fmpz_mat, numpy_matmul, torch_matmul


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    a, b = integers(rng, 64, n), integers(rng, 64, n)
    wrap = {"overflow": "wrap"}
    yield Job("int64 wrap", a, b, (numpy_matmul(np.int64, 256, headline=True), torch_matmul("int64")), wrap)
    yield Job("int64 exact to 64-bit entries, wrapped", a, b, (flint_fmpz_mat(1024),), wrap, agree=equal_modulo(2**64))
    a, b = integers(rng, 32, n, np.int32), integers(rng, 32, n, np.int32)
    yield Job("int32 wrap", a, b, (numpy_matmul(np.int32, 512, headline=True), torch_matmul("int32")), wrap)


if __name__ == "__main__":
    main(__doc__, jobs)
