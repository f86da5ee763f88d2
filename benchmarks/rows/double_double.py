"""Pairs of float64, some 107 bits, beside everything that Python offers at about that precision."""

from collections.abc import Iterator

import numpy as np

from benchmarks.agreement import pairs_within
from benchmarks.harness import Job, main
from benchmarks.operands import normal_pairs
from benchmarks.peers import flint_arb_mat, mpmath_matrix, quaddtype, xprec_ddouble


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    # xprec comes last: importing it changes numpy.finfo for everybody.
    peers = flint_arb_mat(106, 1024), mpmath_matrix(106, 64), quaddtype(256), xprec_ddouble(512)
    yield Job("double-double", normal_pairs(rng, n), normal_pairs(rng, n), peers, agree=pairs_within)


if __name__ == "__main__":
    main(__doc__, jobs)
