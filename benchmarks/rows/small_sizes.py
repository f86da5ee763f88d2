"""Small products, n = 4 … 64: microseconds of one call beyond NumPy's float64 product of the same size.

Blocks of calls of some milliseconds alternate between both sides; a block's time over its calls is one value.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import gemmulate as gm
from benchmarks.harness import CLOCKS, Call, OtherLoad, announce, append, choose_own_kernel, machine, options
from benchmarks.operands import PRIMES, integers, residues

SIZES = 4, 8, 16, 24, 32, 48, 64
BLOCK_S = 0.005


def cases(rng: np.random.Generator, n: int) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    x, y = rng.standard_normal((2, n, n))
    for grade in ("fast", "fp64", "exact"):
        yield f'float64 "{grade}"', x, y, {"accuracy": grade}
    yield 'float32 "fp32"', x.astype(np.float32), y.astype(np.float32), {}
    yield "int8 → int64", integers(rng, 8, n, np.int8), integers(rng, 8, n, np.int8), {}
    yield "int32 exact, 28-bit entries", integers(rng, 28, n, np.int32), integers(rng, 28, n, np.int32), {}
    yield "int64 exact, 26-bit entries", integers(rng, 26, n), integers(rng, 26, n), {}
    yield "int64 wrap", integers(rng, 64, n), integers(rng, 64, n), {"overflow": "wrap"}
    for bits in (8, 26, 31):
        p = PRIMES[bits]
        yield f"modulo p, {bits} bits", residues(rng, p, n), residues(rng, p, n), {"modulus": p}


def per_call_s(call: Call, calls: int, clock: str) -> float:
    start = CLOCKS[clock]()
    for _ in range(calls):
        call()
    return (CLOCKS[clock]() - start) / calls


def calls_in_block(call: Call) -> int:
    call()
    start = time.perf_counter()
    call()
    return max(1, round(BLOCK_S / (time.perf_counter() - start)))


def measure(name: str, ours: Call, theirs: Call, n: int, pairs: int, threads: int, clock: str) -> dict[str, Any]:
    counts = calls_in_block(ours), calls_in_block(theirs)
    load = OtherLoad()
    mine: list[float] = []
    others: list[float] = []
    for pair in range(pairs):
        sides = (mine, ours, counts[0]), (others, theirs, counts[1])
        for times, call, calls in sides[:: 1 if pair % 2 == 0 else -1]:
            times.append(per_call_s(call, calls, clock))
    return {
        "job": name,
        "peer": "NumPy float64",
        "size": n,
        "threads": threads,
        "clock": clock,
        "other_load": load(),
        "ours_call_s": mine,
        "peer_call_s": others,
        "overhead_s": sorted(a - b for a, b in zip(mine, others, strict=True)),
    }


def records(sizes: tuple[int, ...], pairs: int, threads: int, clock: str) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(20261129)
    for n in sizes:
        x, y = rng.standard_normal((2, n, n))
        for name, a, b, chosen in cases(rng, n):
            record = measure(
                f"small {name}",
                lambda a=a, b=b, o=chosen: gm.matmul(a, b, threads=threads, **o),
                lambda x=x, y=y: x @ y,
                n,
                pairs,
                threads,
                clock,
            )
            overhead = [1e6 * s for s in record["overhead_s"]]
            print(
                f"{record['job']:<44} {n:>5} {1e6 * statistics.median(record['ours_call_s']):>9.1f}  "
                f"{1e6 * statistics.median(record['peer_call_s']):>9.1f} {statistics.median(overhead):>9.1f}  "
                f"{overhead[0]:.1f} … {overhead[-1]:.1f}  {record['other_load']:.1f}",
                flush=True,
            )
            yield record


def main() -> None:
    parser = options(__doc__)
    parser.set_defaults(pairs=15)
    args = parser.parse_args()
    choose_own_kernel()
    sizes = tuple(n for n in SIZES if n <= args.size)
    with threadpool_limits(args.threads):
        facts = machine()
        announce(facts, args.threads, args.pairs, args.clock)
        print(f"{'job':<44} {'n':>5} {'µs':>9}  {'NumPy µs':>9} {'overhead':>9}  range, other load")
        append(args.record, facts, records(sizes, args.pairs, args.threads, args.clock))


if __name__ == "__main__":
    main()
