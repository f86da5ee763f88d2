"""Exact and reproducible products beside what people use today: one run, paired, raw records kept.

    python benchmarks/run.py [--size 2048] [--pairs 5] [--record benchmarks/results/FILE.jsonl]

Each row alternates ours and the peer's (ABBA), on random data that is not zeros, and prints the medians and the ratio
of the pairs with its range. Peers that are not installed are named as missing. NumPy runs without
OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE, which some environments set for old builds; the kernel it chose is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} & os.environ.keys():
    os.environ.pop("OPENBLAS_CORETYPE", None)
    os.environ.pop("OPENBLAS_L2_SIZE", None)
    os.execv(sys.executable, [sys.executable, *sys.argv])

import numpy as np
from threadpoolctl import threadpool_info

import gemmulate as gm

Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One comparison: job, peer, sizes (the peer may run a smaller product: rates are compared)."""

    job: str
    peer: str
    ours: Call
    theirs: Call | None  # None: not installed
    size: int
    peer_size: int


def seconds(call: Call) -> float:
    # OpenBLAS's and OpenMP's idle threads spin for a while after a product and would take a core from the next one.
    time.sleep(0.3)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(row: Row, pairs: int) -> dict[str, Any]:
    """Rates in Gop/s (2 n³ / time) and the ratio of each pair."""
    row.ours()
    ops, peer_ops = 2 * row.size**3 / 1e9, 2 * row.peer_size**3 / 1e9
    ours, theirs = [], []
    if row.theirs is not None:
        row.theirs()
    for pair in range(pairs):
        for who in ("ours", "theirs") if pair % 2 == 0 else ("theirs", "ours"):
            if who == "ours":
                ours.append(ops / seconds(row.ours))
            elif row.theirs is not None:
                theirs.append(peer_ops / seconds(row.theirs))
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=False))
    return {
        "job": row.job,
        "peer": row.peer,
        "size": row.size,
        "peer_size": row.peer_size,
        "gops": ours,
        "peer_gops": theirs,
        "ratios": ratios,
    }


def rows(n: int) -> Iterator[Row]:
    rng = np.random.default_rng(20261129)
    small = min(n, 256)

    def integers(bits: int, size: int) -> Any:
        return rng.integers(-(2**bits), 2**bits, (size, size), dtype=np.int64)

    a8, b8 = integers(7, n).astype(np.int8), integers(7, n).astype(np.int8)
    out32 = np.empty((n, n), dtype=np.int32)
    wide8 = a8[:1024, :1024].astype(np.int32), b8[:1024, :1024].astype(np.int32)
    yield Row(
        "int8 → int32",
        "NumPy int32",
        lambda: gm.matmul(a8, b8, out=out32),
        lambda: wide8[0] @ wide8[1],
        n,
        min(n, 1024),
    )
    try:
        import torch

        ta, tb = torch.from_numpy(a8), torch.from_numpy(b8)
        yield Row(
            "int8 → int32", "torch._int_mm", lambda: gm.matmul(a8, b8, out=out32), lambda: torch._int_mm(ta, tb), n, n
        )
    except ImportError:
        yield Row("int8 → int32", "torch._int_mm", lambda: gm.matmul(a8, b8, out=out32), None, n, n)

    a64, b64 = integers(63, n), integers(63, n)
    small64 = a64[:small, :small], b64[:small, :small]
    yield Row(
        "int64 wrap",
        "NumPy int64",
        lambda: gm.matmul(a64, b64, overflow="wrap"),
        lambda: small64[0] @ small64[1],
        n,
        small,
    )
    # Entries of 26 bits keep every result below 2^63: the checked product at the full width is the next row.
    a26, b26 = integers(25, n), integers(25, n)
    yield Row(
        "int64 exact, 26-bit entries",
        "NumPy int64",
        lambda: gm.matmul(a26, b26),
        lambda: small64[0] @ small64[1],
        n,
        small,
    )
    try:
        import flint

        # All 128 bits of every result are computed on both sides; ours keeps the low 64.
        flint.ctx.threads = len(os.sched_getaffinity(0))
        wide = min(n, 1024)
        fa, fb = (flint.fmpz_mat(x[:wide, :wide].tolist()) for x in (a64, b64))
        yield Row(
            "int64 exact to 64-bit entries, wrapped",
            "flint fmpz_mat",
            lambda: gm.matmul(a64, b64, overflow="wrap"),
            lambda: fa * fb,
            n,
            wide,
        )
    except ImportError:
        yield Row("int64 exact", "flint fmpz_mat", lambda: gm.matmul(a26, b26), None, n, small)

    af, bf = rng.standard_normal((n, n)), rng.standard_normal((n, n))
    for accuracy in ("fast", "fp64", "exact"):
        yield Row(
            f'float64 "{accuracy}"',
            "NumPy float64",
            lambda accuracy=accuracy: gm.matmul(af, bf, accuracy=accuracy),
            lambda: af @ bf,
            n,
            n,
        )
    long_a, long_b = af[:small, :small].astype(np.longdouble), bf[:small, :small].astype(np.longdouble)
    yield Row(
        'float64 "exact"',
        "NumPy longdouble",
        lambda: gm.matmul(af, bf, accuracy="exact"),
        lambda: long_a @ long_b,
        n,
        small,
    )


def cpu_model() -> str:
    """The processor's name as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def machine() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "engine": next(e.reason for e in gm.engines() if e.name == "native"),
        "blas": [
            f"{i['internal_api']} {i.get('architecture', '?')} {i['num_threads']} threads" for i in threadpool_info()
        ],
        "numpy": np.__version__,
        "gemmulate": gm.__version__,
        "command": " ".join(sys.argv),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    facts = machine()
    print(f"{facts['cpu']}, {facts['cpus']} CPUs, load {facts['load_before']:.1f}; {facts['engine']}")
    print(", ".join(facts["blas"]))
    print(f"{'job':<40} {'Gop/s':>9}  {'peer':<18} {'Gop/s':>9} {'ratio':>8}  range of {args.pairs} pairs")
    records = []
    for row in rows(args.size):
        result = measure(row, args.pairs)
        records.append(facts | result)
        mine = statistics.median(result["gops"])
        if row.theirs is None:
            print(f"{row.job:<40} {mine:>9.1f}  {row.peer:<18} not installed")
            continue
        ratios = result["ratios"]
        print(
            f"{row.job:<40} {mine:>9.1f}  {row.peer:<18} {statistics.median(result['peer_gops']):>9.2f} "
            f"{statistics.median(ratios):>8.3g}  {ratios[0]:.3g} … {ratios[-1]:.3g}"
        )
    if args.record:
        args.record.parent.mkdir(parents=True, exist_ok=True)
        with args.record.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)


if __name__ == "__main__":
    main()
