"""Every row of the GPU benchmarks, each in a process of its own: native torch beside the emulated product, one table.

    python benchmarks/gpu/run.py [ROW …] [--device cuda] [--sizes 1024,8192] [--pairs 10] [--record FILE] [--tables]

Without rows all of them run. --record appends raw records, JSON lines; --tables writes docs/benchmarks-gpu.md anew
from benchmarks/gpu/results/*.jsonl. At the end the questions that have to be answered "yes" on an H200 are printed,
each with yes, no or "not run". `--device cpu` is a rehearsal: the same code on torch's processor at small sizes; its
records enter no table and answer no question. Not run on a GPU so far.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = ["dgemm", "zgemm", "skinny", "batched", "gemv", "spmv", "stencil7"]
SIZES = (1024, 2048, 4096, 8192, 16384)
PASSED = ("sizes", "pairs", "grades", "seed")


def options(description: str | None) -> argparse.ArgumentParser:
    """The arguments that this command and a row share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, …; cpu for a rehearsal")
    parser.add_argument("--sizes", help=f"of the dense products; {','.join(map(str, SIZES))} if not given")
    parser.add_argument("--pairs", help="paired runs of each comparison")
    parser.add_argument("--grades", help="fast,fp64,exact if not given")
    parser.add_argument("--seed", help="of the operands")
    parser.add_argument("--record", type=Path, help="append raw records, JSON lines, to this file")
    return parser


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--tables", action="store_true", help="write docs/benchmarks-gpu.md from the records")
    args = parser.parse_args()
    if unknown := set(args.rows) - set(ROWS):
        parser.error(f"unknown row {', '.join(sorted(unknown))}; choose from {', '.join(ROWS)}")
    if find_spec("torch") is None:
        parser.error("torch is not installed; pip install torch")
    passed = [word for name in PASSED if (value := getattr(args, name)) for word in (f"--{name}", value)]
    failed: list[str] = []  # rows without records
    wrong: list[str] = []  # answers that are no: they are on record, too
    with tempfile.TemporaryDirectory(prefix="gemmulate-") as folder:
        record = args.record.resolve() if args.record else Path(folder) / "records.jsonl"
        before = record.stat().st_size if record.exists() else 0
        # Before the rows, which then take whatever ways have proven themselves.
        if args.device != "cpu" and find_spec("triton") is not None:
            ways = [sys.executable, "-m", "benchmarks.gpu.ways", "--device", args.device]
            status = subprocess.run(ways, cwd=ROOT, check=False).returncode
            if status == 2:
                return 2
            if status:
                wrong.append("ways")
        for row in args.rows:
            print(f"\n{row}, {time.strftime('%H:%M:%S')}", flush=True)
            command = [sys.executable, "-m", "benchmarks.gpu.rows", row, "--device", args.device, *passed]
            # A process each: its own memory of the device, and an error in one row leaves the others.
            status = subprocess.run([*command, "--record", str(record)], cwd=ROOT, check=False).returncode
            if status == 2:  # the arguments, or no such device: every row would say the same
                return 2
            if status:
                failed.append(row)
        print(flush=True)
        graphs = [sys.executable, "-m", "benchmarks.gpu.capture", "--device", args.device, "--record", str(record)]
        if subprocess.run(graphs, cwd=ROOT, check=False).returncode:
            wrong.append("graphs")
        ask = [sys.executable, "-m", "benchmarks.gpu.questions", str(record), "--from-byte", str(before)]
        subprocess.run(ask, cwd=ROOT, check=True)
    if args.tables and not failed:
        subprocess.run([sys.executable, "-m", "benchmarks.gpu.tables"], cwd=ROOT, check=True)
    if failed or wrong:
        print(f"failed: {', '.join([*failed, *wrong])}", file=sys.stderr)
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
