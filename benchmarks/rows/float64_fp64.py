"""float64 at grade "fp64", the componentwise bound, on Gaussian data beside OpenBLAS."""

from collections.abc import Iterator

import numpy as np

from benchmarks.agreement import within_bounds
from benchmarks.harness import Job, main
from benchmarks.peers import numpy_matmul


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    a, b = rng.standard_normal((2, n, n))
    peers = (numpy_matmul(np.float64, headline=True),)
    yield Job('float64 "fp64"', a, b, peers, {"accuracy": "fp64"}, agree=within_bounds)


if __name__ == "__main__":
    main(__doc__, jobs)
