"""int64 operands, exact results with overflow checked: 26-bit entries, 62-bit entries whose results fit, and 64-bit
entries with results as Python ints. NumPy's and torch's products are exact only where the results fit."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Job, main
from benchmarks.operands import fitting, integers
from benchmarks.peers import flint_fmpz_mat, numpy_matmul, torch_matmul


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    peers = numpy_matmul(np.int64, 256, headline=True), torch_matmul("int64"), flint_fmpz_mat(1024)
    a, b = integers(rng, 26, n), integers(rng, 26, n)
    yield Job("int64 exact, 26-bit entries", a, b, peers)
    yield Job("int64 exact, 62-bit entries that fit", *fitting(rng, 62, n), peers)
    a, b = integers(rng, 64, n), integers(rng, 64, n)
    whole = flint_fmpz_mat(1024), flint_fmpz_mat(1024, converting=True, name="flint fmpz_mat, converted")
    yield Job("int64 exact, 64-bit entries → Python ints", a, b, whole, {"overflow": "object"})


if __name__ == "__main__":
    main(__doc__, jobs)
