"""Is a double-double product 50 times as fast as python-flint's arb_mat at 106 bits?

    python benchmarks/double_double.py [--sizes 512,1024] [--pairs 3] [--record benchmarks/results/FILE.jsonl]

Gaussian pairs of 107 bits; one thread on both sides, user CPU time, in turns. `limit` is what the INT8 products alone
would take: as many times as there are moduli, one INT8 product of packed operands of the same size, in the same run.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import flint
import numpy as np
from paired import append, line, paired, user_seconds

import gemmulate as gm
from gemmulate.engines import get_engine

PRECISION = 106


def as_arb(x: gm.DoubleDouble) -> Any:
    """The same numbers, exactly, as an arb_mat."""
    rows = zip(x.hi.tolist(), x.lo.tolist(), strict=True)
    return flint.arb_mat([[flint.arb(h) + flint.arb(low) for h, low in zip(*row, strict=True)] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="512,1024")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    rng = np.random.default_rng(20261130)
    flint.ctx.prec, flint.ctx.threads = PRECISION, 1
    records = []
    for n in map(int, args.sizes.split(",")):
        hi = rng.standard_normal((2, n, n))
        a, b = (gm.DoubleDouble(h, h * rng.uniform(-1, 1, (n, n)) * 2.0**-54) for h in hi)
        arb_a, arb_b = as_arb(a), as_arb(b)
        result = paired(lambda a=a, b=b: gm.matmul(a, b, threads=1), lambda x=arb_a, y=arb_b: x * y, args.pairs)
        print(line(f"double-double, n = {n}", result, 2 * n**3))
        x, out = rng.integers(-128, 128, (n, n), dtype=np.int8), np.empty((n, n), dtype=np.int32)
        engine = get_engine(None, 1)
        left, right = engine.pack_direct(True, x, -128), engine.pack_direct(False, x.T, 0)
        direct = min(user_seconds(lambda e=engine, p=(left, right, out): e.multiply_direct(*p)) for _ in range(5))
        moduli = len(gm.plan(a, b).moduli)
        print(f"  {moduli} moduli; limit {1e3 * moduli * direct:.1f} ms (int8 {2 * n**3 / direct / 1e9:.0f} Gop/s)")
        record = {"job": "double-double", "peer": "arb_mat", "size": n, "threads": 1, "moduli": moduli}
        records.append(record | {"int8_s": direct, "load": os.getloadavg()[0]} | result)
    append(args.record, records)


if __name__ == "__main__":
    main()
