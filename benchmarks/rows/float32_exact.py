"""float32 correctly rounded on Gaussian data, beside SGEMM and beside DGEMM of the same data, rounded once."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.agreement import within_bounds
from benchmarks.harness import Call, Job, Peer, main
from benchmarks.peers import numpy_matmul


def _dgemm(a: Any, b: Any, threads: int) -> Call:
    return lambda: (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    a, b = rng.standard_normal((2, n, n), dtype=np.float32)
    peers = numpy_matmul(np.float32, headline=True), Peer("NumPy DGEMM, rounded", _dgemm, headline=True)
    yield Job('float32 "exact"', a, b, peers, {"accuracy": "exact"}, agree=within_bounds)


if __name__ == "__main__":
    main(__doc__, jobs)
