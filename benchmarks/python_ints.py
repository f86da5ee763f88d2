"""Are products of Python ints faster than python-flint's fmpz_mat, conversion of lists included and left out?

    python benchmarks/python_ints.py [--sizes 64,256] [--bits 64,128,256,512,1024] [--pairs 3] [--record FILE.jsonl]

Uniform entries of both signs; one thread on both sides, user CPU time, in turns. "lists": from lists of lists of Python
ints and back to them (flint: fmpz_mat(list), product, tolist, int of each). "objects": ours from object arrays to an
object array, as NumPy users have them, against flint with conversion. "product": against flint's product alone, of
matrices that are already converted; ours still converts.
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path

import flint
import numpy as np
from paired import append, line, paired

import gemmulate as gm

Rows = list[list[int]]


def flint_lists(a: Rows, b: Rows) -> Rows:
    product = flint.fmpz_mat(a) * flint.fmpz_mat(b)
    return [[int(v) for v in row] for row in product.tolist()]


def our_lists(a: Rows, b: Rows) -> Rows:
    rows: Rows = gm.matmul(np.array(a, dtype=object), np.array(b, dtype=object), threads=1).tolist()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="64,256")
    parser.add_argument("--bits", default="64,128,256,512,1024")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    flint.ctx.threads = 1
    rng = random.Random(20261130)
    records = []
    for n in map(int, args.sizes.split(",")):
        for bits in map(int, args.bits.split(",")):
            a, b = ([[rng.randint(-(2**bits), 2**bits) for _ in range(n)] for _ in range(n)] for _ in range(2))
            x, y = np.array(a, dtype=object), np.array(b, dtype=object)
            p, q = flint.fmpz_mat(a), flint.fmpz_mat(b)
            if our_lists(a, b) != flint_lists(a, b):
                raise AssertionError(f"n = {n}, {bits} bits: the products differ")
            cases = {
                "lists": (lambda a=a, b=b: our_lists(a, b), lambda a=a, b=b: flint_lists(a, b)),
                "objects": (lambda x=x, y=y: gm.matmul(x, y, threads=1), lambda a=a, b=b: flint_lists(a, b)),
                "product": (lambda x=x, y=y: gm.matmul(x, y, threads=1), lambda p=p, q=q: p * q),
            }
            for case, (ours, theirs) in cases.items():
                result = paired(ours, theirs, args.pairs)
                print(line(f"n = {n}, {bits} bits, {case}", result, 2 * n**3), flush=True)
                record = {"job": f"Python ints, {case}", "peer": "fmpz_mat", "size": n, "bits": bits, "threads": 1}
                records.append(record | {"load": os.getloadavg()[0]} | result)
    append(args.record, records)


if __name__ == "__main__":
    main()
