"""Python ints of 64 to 1024 bits beside python-flint's fmpz_mat.

"lists": from lists of lists of Python ints and back to them on both sides. "objects": ours from object arrays to an
object array, as NumPy users have them, against flint with conversion. "product": against flint's product alone, of
matrices that are already converted; ours still converts.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import gemmulate as gm
from benchmarks.harness import Call, Job, main
from benchmarks.peers import flint_fmpz_mat

LARGEST = 256
BITS = 64, 128, 256, 512, 1024


def uniform(rng: np.random.Generator, bits: int, n: int) -> Any:
    """n × n Python ints of `bits` bits and both signs, as an object array."""
    size = bits // 8
    raw = rng.bytes(size * n * n)
    values = [int.from_bytes(raw[i : i + size], signed=True) for i in range(0, len(raw), size)]
    return np.array(values, dtype=object).reshape(n, n)


def lists(a: Any, b: Any, threads: int) -> Call:
    x, y = a.tolist(), b.tolist()
    return lambda: gm.matmul(np.array(x, dtype=object), np.array(y, dtype=object), threads=threads).tolist()


def jobs(n: int, rng: np.random.Generator) -> Iterator[Job]:
    n = min(n, LARGEST)
    converting = flint_fmpz_mat(LARGEST, converting=True, name="flint fmpz_mat, converted")
    product = flint_fmpz_mat(LARGEST)
    for bits in BITS:
        a, b = uniform(rng, bits, n), uniform(rng, bits, n)
        yield Job(f"Python ints of {bits} bits, lists", a, b, (converting,), build=lists)
        yield Job(f"Python ints of {bits} bits, objects", a, b, (converting,))
        yield Job(f"Python ints of {bits} bits, product", a, b, (product,))


if __name__ == "__main__":
    main(__doc__, jobs)
