"""What has to hold on an H200, asked of the records: yes, no or not run.

    python -m benchmarks.gpu.questions [FILE …] [--from-byte N]

Without files, of benchmarks/gpu/results/*.jsonl. Records of a rehearsal on a processor answer nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmulate.evidence import store

RESULTS = Path(__file__).parent / "results"
SIZE = 8192
LEAST_FP64, LEAST_EXACT, MOST_CONVERSION = 1.5, 1.0, 0.12
Record = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """yes, no or not run; and the figure that says so."""

    question: str
    answer: str
    figure: str = ""
    device: str = ""


def read(paths: Iterable[Path], from_byte: int = 0) -> list[Record]:
    """The records of GPU benchmarks; of a single file those behind a byte."""
    found: list[Record] = []
    for path in paths:
        for record in store.read(path) if path.exists() and path.stat().st_size > from_byte else ():
            found.append(record)
    return [r for r in found if r.get("kind") == "gpu"]


def on_gpu(records: Iterable[Record]) -> list[Record]:
    """Records measured on a CUDA device: a rehearsal's are none."""
    return [r for r in records if str(r.get("device", "")).startswith("cuda")]


def answers(records: Iterable[Record]) -> list[Answer]:
    """Every question with its answer, from the records of an H200 where there are any, else from those of other GPUs.

    Of several records of one product and engine the last counts.
    """
    measured = [r for r in on_gpu(records) if r["status"] == "measured"]
    measured = [r for r in measured if "H200" in r["device_name"]] or measured
    newest = {(r["device_name"], r["row"], r["size"], r["engine"], r["grade"]): r for r in measured}
    asked = [r for r in newest.values() if r["row"] == "dgemm" and r["n"] == SIZE]
    dense = [r for r in newest.values() if "cpu_bits" in r]
    return [
        _fastest(f'"fp64" at {SIZE}³ at least {LEAST_FP64:g} times cuBLAS DGEMM', asked, "fp64", LEAST_FP64),
        _conversion(asked),
        _fastest(f'"exact" at {SIZE}³ at least {LEAST_EXACT:g} times cuBLAS DGEMM', asked, "exact", LEAST_EXACT),
        _bits(dense),
        _graphs([r for r in newest.values() if r["row"] == "graph"]),
    ]


def _best(asked: list[Record], grade: str) -> Record | None:
    found = [r for r in asked if r["grade"] == grade and r["speedup"] is not None]
    return max(found, key=lambda r: float(r["speedup"]), default=None)


def _fastest(question: str, asked: list[Record], grade: str, least: float) -> Answer:
    best = _best(asked, grade)
    if best is None:
        return Answer(question, "not run")
    return Answer(question, _yes(best["speedup"] >= least), f"{best['speedup']:.3g}, {best['engine']}", _device(best))


def _conversion(asked: list[Record]) -> Answer:
    """Of the engine that is fastest."""
    question = f'conversion, survey included, at most {MOST_CONVERSION:.0%} of the time of "fp64" at {SIZE}³'
    best = _best(asked, "fp64")
    if best is None:
        return Answer(question, "not run")
    share = best["conversion_share"]
    return Answer(question, _yes(share <= MOST_CONVERSION), f"{share:.1%}, {best['engine']}", _device(best))


def _bits(dense: list[Record]) -> Answer:
    question = "the bits of the CPU in every dense product that was run"
    if not dense:
        return Answer(question, "not run")
    equal = sum(bool(r["cpu_bits"]) for r in dense)
    return Answer(question, _yes(equal == len(dense)), f"{equal} of {len(dense)}", _device(dense[0]))


def _graphs(found: list[Record]) -> Answer:
    question = "no wait of the host in a product with gm.Bits(54), and its CUDA graph replays with the CPU's bits"
    if not found:
        return Answer(question, "not run")
    held = sum(not r["waits"] and bool(r["replay_bits"]) for r in found)
    return Answer(question, _yes(held == len(found)), f"{held} of {len(found)}", _device(found[0]))


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _device(record: Record) -> str:
    name = str(record["device_name"])
    return name if "H200" in name else f"{name}, not an H200"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--from-byte", type=int, default=0, help="of the file: what was there before a run")
    args = parser.parse_args()
    records = read(args.files or sorted(RESULTS.glob("*.jsonl")), args.from_byte)
    print("Must hold on an H200:")
    for a in answers(records):
        detail = ", ".join(part for part in (a.figure, a.device) if part)
        print(f"  {a.answer:<8} {a.question}" + (f" ({detail})" if detail else ""))
    if records and not on_gpu(records):
        print("  These records are a rehearsal on a processor, which answers none of them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
