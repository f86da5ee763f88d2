"""Products modulo primes of 26, 16 and 8 bits, operands in [0, p). DGEMM and a remainder are exact up to 16."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Job, main
from benchmarks.operands import PRIMES, residues
from benchmarks.peers import fflas_ffpack, flint_nmod_mat, galois_field, numpy_dgemm_remainder

FFLAS_GOPS = {26: (32, 36), 16: (96, 105), 8: (220, 230)}


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    for bits in (26, 16, 8):
        p = PRIMES[bits]
        peers = [flint_nmod_mat(p, 2048), galois_field(p, 256)]
        if bits < 26:
            peers.append(numpy_dgemm_remainder(p))
        yield Job(
            f"modulus of {bits} bits",
            residues(rng, p, n),
            residues(rng, p, n),
            tuple(peers),
            {"modulus": p},
            published=(fflas_ffpack(*FFLAS_GOPS[bits]),),
        )


if __name__ == "__main__":
    main(__doc__, jobs)
