"""Whether the plan picks well on this machine: every candidate of a grid runs for real, and the chosen one is compared.

    python -m benchmarks.plan [--rounds 9] [--most 0.3] [--record benchmarks/results/FILE.jsonl]

Candidates are those that `gm.plan` prices for a problem on "host" and does not reject. Each round runs all of them in
turn, forwards and backwards, by processor time on one thread (other programs' slices do not count); the least time of
each counts. A candidate whose predicted time is above --most seconds is not run unless it is chosen. `regret` is
the chosen one's time over the least; `matmul` that of the call without any choice by the caller. NumPy's product runs
beside them, for scale.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import gemmulate as gm
from benchmarks.harness import machine

Run = Callable[[], Any]
SIZES = (4, 8, 16, 24, 32, 64, 128, 256, 512)


def problems() -> Iterator[tuple[str, Any, Any, str]]:
    """(name, a, b, accuracy): squares and skinny products, integers of four widths, floats in three grades."""
    rng = np.random.default_rng(20261130)
    shapes = [(n, n, n) for n in SIZES] + [(512, 512, 4), (4, 512, 512), (16, 4096, 16), (256, 16, 256)]
    for m, k, n in shapes:
        for bits, dtype in ((7, np.int8), (15, np.int16), (26, np.int64), (52, np.int64)):
            a, b = (rng.integers(-(2**bits), 2**bits, s).astype(dtype) for s in ((m, k), (k, n)))
            yield f"{np.dtype(dtype).name} of {bits} bits, {m}x{k}x{n}", a, b, "fp64"
        for accuracy in ("fast", "fp64", "exact"):
            a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
            yield f"float64 {accuracy}, {m}x{k}x{n}", a, b, accuracy


def seconds(run: Run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def measured(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Least processor seconds of each, over rounds that go forwards and backwards; short runs repeat within one."""
    repeats = {name: max(1, int(2e-3 / max(seconds(run), seconds(run), 1e-7))) for name, run in runs.items()}
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(rounds):
        for name in list(runs)[:: 1 if turn % 2 == 0 else -1]:
            run, count = runs[name], repeats[name]
            best[name] = min(best[name], seconds(lambda run=run, count=count: [run() for _ in range(count)]) / count)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--most", type=float, default=0.3)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    record = gm.model.load_device("host")
    facts = machine() | {"host": record.name, "calibrated": record.calibration and record.calibration.date}
    print(f"{facts['cpu']}, load {facts['load_before']:.1f}; record of {facts['calibrated']}")
    print(f"{'problem':<36} {'chosen':<44} {'predicted':>10} {'measured':>10} {'regret':>7} {'matmul':>7} {'best':<40}")
    rows = []
    for name, a, b, accuracy in problems():
        options: dict[str, Any] = {"accuracy": accuracy, "threads": 1, "overflow": "wrap"}
        plan = gm.plan(a, b, device="host", **options)
        runs: dict[str, Run] = {"matmul": lambda a=a, b=b, o=options: gm.matmul(a, b, **o)}
        for c in plan.candidates:
            if c.status == "rejected" or (c.time_s > args.most and c is not plan.chosen):
                continue
            if c.scheme == "long accumulator":
                continue  # `matmul` leaves it to data whose exponents spread
            call = lambda c=c, a=a, b=b, o=options: gm.matmul(a, b, engine=c.engine, **o)  # noqa: E731
            runs[c.name] = call
        floats = a.astype(np.float64), b.astype(np.float64)
        runs["numpy"] = lambda x=floats: x[0] @ x[1]
        with threadpool_limits(1, user_api="blas"):
            found = measured(runs, args.rounds)
        ours = {key: value for key, value in found.items() if key not in ("matmul", "numpy")}
        best = min(ours, key=ours.__getitem__)
        row = {
            "problem": name, "chosen": plan.chosen.name, "predicted_s": plan.chosen.time_s,
            "measured_s": ours[plan.chosen.name], "best": best, "regret": ours[plan.chosen.name] / ours[best],
            "matmul_regret": found["matmul"] / ours[best], "seconds": found,
        }  # fmt: skip
        rows.append(row)
        print(
            f"{name:<36} {row['chosen']:<44} {row['predicted_s']:>10.3g} {row['measured_s']:>10.3g} "
            f"{row['regret']:>7.3f} {row['matmul_regret']:>7.3f} {best:<40}", flush=True
        )  # fmt: skip
    for key in ("regret", "matmul_regret"):
        values = sorted(row[key] for row in rows)
        over = sum(value > 1.1 for value in values)
        middle = statistics.median(values)
        print(f"{key}: median {middle:.3f}, worst {values[-1]:.3f}, above 1.10: {over} of {len(values)}")
    ratios = [row["predicted_s"] / row["measured_s"] for row in rows]
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(f"predicted/measured of the chosen: median {middle:.2f}, {low:.2f} to {high:.2f}")
    if args.record:
        with args.record.open("a") as file:
            file.writelines(json.dumps(facts | row) + "\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
