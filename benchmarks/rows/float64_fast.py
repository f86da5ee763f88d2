"""float64 at grade "fast" on Gaussian data beside OpenBLAS: what emulation costs where FP64 units exist."""

from collections.abc import Iterator

import numpy as np

from benchmarks.agreement import within_bounds
from benchmarks.harness import Job, main
from benchmarks.peers import numpy_matmul


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    a, b = rng.standard_normal((2, n, n))
    peers = (numpy_matmul(np.float64, headline=True),)
    yield Job('float64 "fast"', a, b, peers, {"accuracy": "fast"}, agree=within_bounds)


if __name__ == "__main__":
    main(__doc__, jobs)
