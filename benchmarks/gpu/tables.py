"""Writes the tables of docs/benchmarks-gpu.md from the raw records, "not run" where there is none.

    python -m benchmarks.gpu.tables [--check]

Records are all lines of benchmarks/gpu/results/*.jsonl that were measured on a CUDA device: a rehearsal's are left out.
Of several records of one product on one device the newest counts. --check writes nothing and exits with 1 where a table
is not what the records give.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.gpu.questions import RESULTS, answers, on_gpu, read
from benchmarks.gpu.run import ROWS, SIZES
from benchmarks.tables import between, figure

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks-gpu.md"
ALL = ("fast", "fp64", "exact")
GRADES = {
    "dgemm": ALL,
    "zgemm": ALL,
    "skinny": ("fp64",),
    "batched": ("fp64",),
    "gemv": ALL,
    "spmv": ("53 bits",),
    "stencil7": ("53 bits",),
}
Record = dict[str, Any]


def chosen(records: Iterable[Record]) -> list[Record]:
    """The newest record of every product, engine, grade and device, in the order of rows and sizes."""
    newest: dict[tuple[str, ...], Record] = {}
    for r in sorted((r for r in on_gpu(records) if r["row"] in ROWS), key=lambda r: str(r["time"])):
        newest[r["device_name"], r["row"], r["size"], r.get("engine", ""), r.get("grade", "")] = r
    return sorted(newest.values(), key=lambda r: (r["device_name"], ROWS.index(r["row"]), r["n"]))


def asked(records: Iterable[Record]) -> list[str]:
    """The questions and their answers."""
    rows = ["| must hold on an H200 | answer | figure |", "|---|---|---|"]
    for a in answers(records):
        rows.append(f"| {a.question} | {a.answer} | {', '.join(p for p in (a.figure, a.device) if p)} |")
    return rows


def times(records: list[Record]) -> list[str]:
    """Native and emulated times of every row; a line that says "not run" for what has no record."""
    rows = [
        "| row | size | grade | engine | native ms | emulated ms | emulated TFLOP/s | speed-up (interval) | conversion "
        "| CPU's bits | device, date |",
        "|---" * 11 + "|",
    ]
    for row in ROWS:
        for r in (r for r in records if r["row"] == row):
            rows.append(_skipped(r) if r["status"] == "skipped" else _measured(r))
        for grade in GRADES[row]:
            if sizes := missing(records, row, grade):
                rows.append(f"| {row} | {sizes} | {grade} | " + "| not run " * 6 + "| |")
    return rows


def missing(records: list[Record], row: str, grade: str) -> str:
    """The sizes without a record, measured or skipped, in words; empty where there is none."""
    there = {r["n"] for r in records if r["row"] == row and r.get("grade", grade) == grade}
    lacking = [n for n in SIZES if n not in there]
    whole = lacking == list(SIZES)
    return f"{SIZES[0]} … {SIZES[-1]}" if whole else ", ".join(map(str, lacking))


def _start(r: Record) -> str:
    return f"| {r['row']} | {r['size']} | {r.get('grade', 'all')} | {r.get('engine', '')}"


def _skipped(r: Record) -> str:
    return f"{_start(r)} | skipped: {r['reason']} | | | | | | {r['device_name']}, {r['date']} |"


def _measured(r: Record) -> str:
    native, emulated = (statistics.median(r[key]) for key in ("native_s", "emulated_s"))
    interval = r["speedup_interval"]
    spread = f" ({figure(interval[0])} … {figure(interval[1])})" if interval else ""
    bits = {True: "yes", False: "**no**", None: ""}[r.get("cpu_bits")]
    share = f"{r['conversion_share']:.1%}" if "conversion_share" in r else ""
    return (
        f"{_start(r)} | {figure(1e3 * native)} | {figure(1e3 * emulated)} | {figure(1e-12 * r['flops'] / emulated)} "
        f"| **{figure(r['speedup'])}**{spread} | {share} | {bits} | {r['device_name']}, {r['date']} |"
    )


def phases(records: list[Record]) -> list[str]:
    """The phases of "fp64" products, in percent of the whole."""
    found = [r for r in records if r["status"] == "measured" and r["row"] == "dgemm" and r["grade"] == "fp64"]
    names = ("survey", "assess", "convert_a", "convert_b", "products", "recombine", "other")
    rows = ["| n | engine | " + " | ".join(names) + " | ms |", "|---" * (len(names) + 3) + "|"]
    for r in found:
        total = r["phases_s"]["total"]
        shares = " | ".join(f"{100 * r['phases_s'][name] / total:.1f}" for name in names)
        rows.append(f"| {r['n']} | {r['engine']} | {shares} | {figure(1e3 * total)} |")
    if sizes := missing(found, "dgemm", "fp64"):
        rows.append(f"| {sizes} | " + "| not run " * (len(names) + 1) + "|")
    return rows


def accuracy(records: list[Record]) -> list[str]:
    """Largest componentwise and relative errors, emulated and native, in units of u."""
    rows = ["| row | size | data | grade | engine | emulated: componentwise, relative | native |", "|---" * 7 + "|"]
    found = [r for r in records if r["status"] == "measured"]
    for r in found:
        for data, sides in r["errors"].items():
            cells = [
                f"{figure(sides[s]['componentwise'])}, {figure(sides[s]['relative'])}" for s in ("emulated", "native")
            ]
            rows.append(
                f"| {r['row']} | {r['size']} | {data} | {r['grade']} | {r['engine']} | {cells[0]} | {cells[1]} |"
            )
    for row in ROWS:
        for grade in GRADES[row]:
            if sizes := missing(found, row, grade):
                data = "gaussian, phi 0.5, 2, 4" if row == "dgemm" else "gaussian"
                rows.append(f"| {row} | {sizes} | {data} | {grade} | | not run | not run |")
    return rows


def pages(records: list[Record]) -> dict[str, list[str]]:
    """The parts of the page by the names of their markers."""
    best = chosen(records)
    return {
        "QUESTIONS": asked(records),
        "TIMES": times(best),
        "PHASES": phases(best),
        "ACCURACY": accuracy(best),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    old = new = PAGE.read_text(encoding="utf-8")
    for name, content in pages(read(sorted(RESULTS.glob("*.jsonl")))).items():
        new = between(new, name, content)
    if new != old:
        print(f"{PAGE.relative_to(ROOT)}: {'is not what the records give' if args.check else 'written'}")
        if not args.check:
            PAGE.write_text(new, encoding="utf-8")
    return 1 if new != old and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
