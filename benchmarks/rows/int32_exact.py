"""int32 operands, exact int64 results: dense 26-bit entries, and 32-bit entries whose results fit int64."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Job, main
from benchmarks.operands import fitting, integers
from benchmarks.peers import flint_fmpz_mat, numpy_matmul, torch_matmul


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    peers = numpy_matmul(np.int64, 256, headline=True), torch_matmul("int64"), flint_fmpz_mat(1024)
    a, b = integers(rng, 26, n, np.int32), integers(rng, 26, n, np.int32)
    yield Job("int32 exact, 26-bit entries", a, b, peers)
    yield Job("int32 exact, 32-bit entries that fit", *fitting(rng, 32, n, np.int32), peers)


if __name__ == "__main__":
    main(__doc__, jobs)
