"""int8 operands, exact results: into int32 as NumPy's and torch's own products of narrow integers, and into int64."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Job, main
from benchmarks.operands import integers
from benchmarks.peers import numpy_matmul, torch_int_mm


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    a, b = integers(rng, 8, n, np.int8), integers(rng, 8, n, np.int8)
    peers = numpy_matmul(np.int32, 1024, headline=True), torch_int_mm()
    yield Job("int8 → int32", a, b, peers, out=np.int32)
    yield Job("int8 → int64", a, b, (numpy_matmul(np.int64, 256),))


if __name__ == "__main__":
    main(__doc__, jobs)
