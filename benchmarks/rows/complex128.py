"""complex128 by grade on Gaussian data, beside ZGEMM and python-flint. Rates count four real products (8 n³)."""

from collections.abc import Iterator

import numpy as np

from benchmarks.agreement import within_bounds
from benchmarks.harness import Job, main
from benchmarks.peers import flint_acb_mat, numpy_matmul


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    a, b = (rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)) for _ in range(2))
    zgemm = numpy_matmul(np.complex128, headline=True)
    for grade in ("fp64", "exact"):
        peers = (zgemm, flint_acb_mat(53, 512)) if grade == "exact" else (zgemm,)
        yield Job(f'complex128 "{grade}"', a, b, peers, {"accuracy": grade}, agree=within_bounds, multiplies=4)


if __name__ == "__main__":
    main(__doc__, jobs)
