"""float64 correctly rounded on Gaussian data, beside OpenBLAS and longdouble, which are not."""

from collections.abc import Iterator

import numpy as np

from benchmarks.agreement import within_bounds
from benchmarks.harness import Job, main
from benchmarks.peers import numpy_matmul


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    a, b = rng.standard_normal((2, n, n))
    peers = (
        numpy_matmul(np.float64, headline=True),
        numpy_matmul(np.longdouble, 256, name="NumPy longdouble", headline=True),
    )
    yield Job('float64 "exact"', a, b, peers, {"accuracy": "exact"}, agree=within_bounds)


if __name__ == "__main__":
    main(__doc__, jobs)
