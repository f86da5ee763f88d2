"""Does the cost of a product follow n³, or are there sizes at which it jumps?

    python -m benchmarks.scaling [--min-n 255] [--max-n 8192] [--kinds fast,int64] [--passes 3]
        [--record FILE] [--with FILE] [--figure F] [--page]

Times every kind at sizes from 255 to 8192: odd ones, powers of two, their neighbours. Cost is the time per
multiply-add, time / n³; every pass goes through all sizes, so that a slow minute of the machine does not fall on one of
them, and the least of the passes counts. A cliff is a cost more than 15 % above that of a neighbouring size: the next
smaller one, or the next larger one where both lie within 15 % of each other (from smaller sizes far away the cost
falls for a good reason). --page writes figure and tables into docs/.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import gemmulate as gm
from benchmarks.harness import CLOCKS, PAUSE_S, OtherLoad, announce, append, choose_own_kernel, cpus, machine
from benchmarks.operands import PRIMES, integers, normal_pairs, residues
from benchmarks.tables import PAGE, ROOT, between, machine_name
from gemmulate.report.svg import BLUE, GREY, LEFT, ORANGE, RIGHT, WIDTH, Axis, dot, figure, left_axis, line, text

SIZES = (
    *(255, 256, 257, 320, 384, 500, 511, 512, 513, 640, 777, 1000, 1023, 1024, 1025, 1280, 1536, 1999),
    *(2047, 2048, 2049, 2500, 3000, 3500, 4095, 4096, 4097, 5000, 6000, 7000, 8191, 8192),
)
CLIFF = 0.15
NEIGHBOURS = 1.15  # two sizes this close should cost the same per multiply-add, whichever is larger
FIGURE = ROOT / "docs" / "figures" / "scaling.svg"


@dataclass(frozen=True)
class Kind:
    name: str
    operands: Callable[[np.random.Generator, int], tuple[Any, Any]]
    options: Mapping[str, Any]
    largest: int = 8192


def _integers(bits: int, dtype: Any) -> Callable[[np.random.Generator, int], tuple[Any, Any]]:
    return lambda rng, n: (integers(rng, bits, n, dtype), integers(rng, bits, n, dtype))


def _residues(bits: int) -> Callable[[np.random.Generator, int], tuple[Any, Any]]:
    return lambda rng, n: (residues(rng, PRIMES[bits], n), residues(rng, PRIMES[bits], n))


def _floats(dtype: Any) -> Callable[[np.random.Generator, int], tuple[Any, Any]]:
    return lambda rng, n: tuple(rng.standard_normal((n, n)).astype(dtype) for _ in range(2))


def _complex(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    a, b = (rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)) for _ in range(2))
    return a, b


def _pairs(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    return normal_pairs(rng, n), normal_pairs(rng, n)


def _python_ints(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    a, b = (integers(rng, 64, n).astype(object) * 2**64 + integers(rng, 64, n).astype(object) for _ in range(2))
    return a, b


# Largest sizes keep one product of each kind within about a minute.
KINDS = {
    "int8": Kind("int8 → int64", _integers(8, np.int8), {}),
    "int16": Kind("int16 exact", _integers(16, np.int16), {}),
    "int32": Kind("int32 exact, 26-bit entries", _integers(26, np.int32), {}),
    "int64": Kind("int64 exact, 26-bit entries", _integers(26, np.int64), {}),
    "int64_wrap": Kind("int64 wrap", _integers(64, np.int64), {"overflow": "wrap"}),
    "int32_wrap": Kind("int32 wrap", _integers(32, np.int32), {"overflow": "wrap"}),
    "modulus_63": Kind("modulus of 63 bits", _residues(63), {"modulus": PRIMES[63]}),
    "modulus_31": Kind("modulus of 31 bits", _residues(31), {"modulus": PRIMES[31]}),
    "modulus_8": Kind("modulus of 8 bits", _residues(8), {"modulus": PRIMES[8]}),
    "fast": Kind('float64 "fast"', _floats(np.float64), {"accuracy": "fast"}),
    "fp64": Kind('float64 "fp64"', _floats(np.float64), {"accuracy": "fp64"}),
    "exact": Kind('float64 "exact"', _floats(np.float64), {"accuracy": "exact"}),
    "float32": Kind('float32 "exact"', _floats(np.float32), {"accuracy": "exact"}),
    "complex128": Kind('complex128 "fp64"', _complex, {"accuracy": "fp64"}, 4097),
    "double_double": Kind("double-double", _pairs, {}, 4097),
    "python_ints": Kind("Python ints of 128 bits", _python_ints, {}, 1025),
}


def measure(kind: Kind, sizes: list[int], passes: int, threads: int, clock: str) -> dict[str, Any]:
    """Times of every pass at every size; one more product at the smallest size starts the threads."""
    rng = np.random.default_rng(20261130)
    times: dict[int, list[float]] = {n: [] for n in sizes}
    load = OtherLoad()
    for number in range(passes):
        # Backwards every other time: what warms up or slows down during a pass falls on both ends.
        for n in sizes[:: 1 if number % 2 == 0 else -1]:
            a, b = kind.operands(rng, n)
            if n < 1024 or number == 0:  # first calls fill caches of plans and tables
                small = min(n, sizes[0])
                gm.matmul(a[:small, :small], b[:small, :small], threads=threads, **kind.options)
            repeats = 3 if n <= 1100 else 1
            for _ in range(repeats):
                time.sleep(PAUSE_S / 3)
                start = CLOCKS[clock]()
                gm.matmul(a, b, threads=threads, **kind.options)
                times[n].append(CLOCKS[clock]() - start)
    return {
        "scaling": kind.name,
        "threads": threads,
        "clock": clock,
        "other_load": load(),
        "sizes": sizes,
        "times_s": [times[n] for n in sizes],
    }


def costs_ps(record: Mapping[str, Any]) -> dict[int, float]:
    """Picoseconds per multiply-add at each size, least of the passes."""
    return {n: 1e12 * min(times) / n**3 for n, times in zip(record["sizes"], record["times_s"], strict=True)}


def cliffs(costs: Mapping[int, float]) -> list[tuple[int, int, float]]:
    """(size, neighbour, excess) where the cost at size is more than CLIFF above that of its neighbour."""
    found = []
    sizes = sorted(costs)
    for smaller, larger in pairwise(sizes):
        if costs[larger] > (1 + CLIFF) * costs[smaller]:
            found.append((larger, smaller, costs[larger] / costs[smaller] - 1))
        elif larger <= NEIGHBOURS * smaller and costs[smaller] > (1 + CLIFF) * costs[larger]:
            found.append((smaller, larger, costs[smaller] / costs[larger] - 1))
    return found


def draw(records: list[dict[str, Any]]) -> str:
    """One strip for each kind: cost over size (logarithmic), sizes with a cliff in another colour."""
    strip, gap = 90, 44
    parts: list[str] = []
    largest = max(max(r["sizes"]) for r in records)
    x = Axis(np.log2(min(min(r["sizes"]) for r in records)), np.log2(largest), LEFT, WIDTH - RIGHT)
    for index, record in enumerate(records):
        costs = costs_ps(record)
        steep = {n for n, _, _ in cliffs(costs)}
        top = 24 + index * (strip + gap)
        y = Axis(0, 1.1 * max(costs.values()), top + strip, top)
        parts += left_axis(y, LEFT, f"{record['scaling']}: ps per multiply-add")
        points = [(x(np.log2(n)), y(cost)) for n, cost in costs.items()]
        for (x1, y1), (x2, y2) in pairwise(points):
            parts.append(line(x1, y1, x2, y2, stroke=BLUE))
        for n, (px, py) in zip(costs, points, strict=True):
            parts.append(dot(px, py, fill=ORANGE if n in steep else BLUE, radius=4 if n in steep else 2.5))
        for n in (256, 512, 1024, 2048, 4096, 8192):
            if n <= largest:
                px = x(np.log2(n))
                parts += [line(px, top, px, top + strip, stroke=GREY, dash="1 4", width=0.5)]
                parts.append(text(px, top + strip + 14, str(n), anchor="middle"))
    height = 24 + len(records) * (strip + gap)
    return figure(height, "Time per multiply-add by size n; orange: more than 15 % above a neighbouring size", parts)


def table(records: list[dict[str, Any]]) -> list[str]:
    """Cost at a few sizes, and every cliff."""
    shown = [n for n in (256, 512, 1024, 2048, 4096, 8192) if any(n in r["sizes"] for r in records)]
    rows = ["| kind, ps per multiply-add | " + " | ".join(map(str, shown)) + " |", "|---" * (len(shown) + 1) + "|"]
    found = []
    for record in records:
        costs = costs_ps(record)
        rows.append(
            f"| {record['scaling']} | " + " | ".join(f"{costs[n]:.3g}" if n in costs else "" for n in shown) + " |"
        )
        found += [(record["scaling"], *cliff) for cliff in cliffs(costs)]
    if not found:
        return [*rows, "", "No size costs more than 15 % above a neighbouring one."]
    return [
        *rows,
        "",
        "| kind | n | beside n | costs more by |",
        "|---|---|---|---|",
        *(f"| {kind} | {n} | {other} | {100 * excess:.0f} % |" for kind, n, other, excess in found),
    ]


def measured(kinds: list[Kind], args: argparse.Namespace, into: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for kind in kinds:
        sizes = [n for n in SIZES if args.min_n <= n <= min(args.max_n, kind.largest)]
        if not sizes:
            continue
        record = measure(kind, sizes, args.passes, args.threads, args.clock)
        costs = costs_ps(record)
        print(f"{kind.name}, other load {record['other_load']:.1f}")
        print("  " + "  ".join(f"{n}: {cost:.3g}" for n, cost in costs.items()))
        for n, other, excess in cliffs(costs):
            print(f"  cliff: {n} costs {100 * excess:.0f} % more than {other}", flush=True)
        into.append(record)
        yield record


def with_earlier(found: list[dict[str, Any]], file: Path, here: str) -> list[dict[str, Any]]:
    """The records with the times, and the sizes, of earlier ones of the same kind, machine, threads and clock."""
    earlier = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    merged = []
    for record in found:
        times: dict[int, list[float]] = {}
        same = [
            r
            for r in earlier
            if machine_name(r) == here and all(r[key] == record[key] for key in ("scaling", "threads", "clock"))
        ]
        for r in (record, *same):
            for n, seconds in zip(r["sizes"], r["times_s"], strict=True):
                times.setdefault(n, []).extend(seconds)
        load = max(r["other_load"] for r in (record, *same))
        sizes = sorted(times)
        merged.append(record | {"sizes": sizes, "times_s": [times[n] for n in sizes], "other_load": load})
    return merged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--min-n", type=int, default=SIZES[0])
    parser.add_argument("--max-n", type=int, default=SIZES[-1])
    parser.add_argument("--kinds", default=",".join(KINDS), help="names, with commas between")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=cpus())
    parser.add_argument("--clock", choices=CLOCKS, default="elapsed")
    parser.add_argument("--record", type=Path, help="append raw records, JSON lines, to this file")
    parser.add_argument(
        "--with", dest="earlier", type=Path, help="times of these records, same machine, threads and clock, count too"
    )
    parser.add_argument("--figure", type=Path, help="write the SVG figure here")
    parser.add_argument("--page", action="store_true", help="write figure and tables into docs/")
    args = parser.parse_args()
    choose_own_kernel()
    names = args.kinds.split(",")
    if unknown := set(names) - set(KINDS):
        parser.error(f"unknown kind {', '.join(sorted(unknown))}; choose from {', '.join(KINDS)}")
    if args.max_n < max(SIZES[0], args.min_n) or args.passes < 1:
        parser.error(f"--max-n is at least {SIZES[0]} and --min-n, --passes at least 1")
    found: list[dict[str, Any]] = []
    with threadpool_limits(args.threads):
        facts = machine()
        announce(facts, args.threads, args.passes, args.clock)
        append(args.record, facts, measured([KINDS[name] for name in names], args, found))
    if args.earlier:
        found = with_earlier(found, args.earlier, machine_name(facts))
    print("\n".join(table(found)))
    svg = draw(found)
    for path in {args.figure, FIGURE if args.page else None} - {None}:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg + "\n", encoding="utf-8")
    if args.page:
        load = max(r["other_load"] for r in found)
        conditions = (
            f"{machine_name(facts)}, {facts['date']}, least of {args.passes} passes up to n = {args.max_n:,}"
            f"{' and of one run over all sizes' if args.earlier else ''}, other load up to {load:.1f}."
        )
        picture = f"![Time per multiply-add by size]({os.path.relpath(FIGURE, PAGE.parent)})"
        text_now = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(between(text_now, "SCALING", [picture, "", *table(found), "", conditions]), encoding="utf-8")


if __name__ == "__main__":
    main()
