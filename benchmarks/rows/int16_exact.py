"""int16 operands, exact results. DGEMM of converted matrices is exact, too, at this width: the peer to beat."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Job, main
from benchmarks.operands import integers
from benchmarks.peers import flint_fmpz_mat, numpy_dgemm_exact, numpy_matmul, torch_matmul


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    a, b = integers(rng, 16, n, np.int16), integers(rng, 16, n, np.int16)
    peers = numpy_matmul(np.int64, 256, headline=True), numpy_dgemm_exact(16), torch_matmul("int64")
    yield Job("int16 exact", a, b, (*peers, flint_fmpz_mat(1024)))


if __name__ == "__main__":
    main(__doc__, jobs)
