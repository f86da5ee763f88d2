"""Products modulo primes of 63 and 31 bits, operands in [0, p)."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Job, main
from benchmarks.operands import PRIMES, residues
from benchmarks.peers import fflas_ffpack, flint_nmod_mat, galois_field

# Largest n of galois: beyond 32 bits it computes with Python integers.
GALOIS = {63: 128, 31: 256}
FFLAS_GOPS = {63: (3.6, 4.8), 31: (9, 11)}


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    for bits in (63, 31):
        p = PRIMES[bits]
        yield Job(
            f"modulus of {bits} bits",
            residues(rng, p, n),
            residues(rng, p, n),
            (flint_nmod_mat(p, 2048), galois_field(p, GALOIS[bits])),
            {"modulus": p},
            published=(fflas_ffpack(*FFLAS_GOPS[bits]),),
        )


if __name__ == "__main__":
    main(__doc__, jobs)
