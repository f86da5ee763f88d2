"""Every row of the benchmarks, each in a process of its own, and the tables that are made of their records.

    python benchmarks/run.py [ROW …] [--size 2048] [--pairs 5] [--threads N] [--clock cpu] [--record FILE] [--tables]

Rows are the modules of benchmarks/rows; each is also a command, `python -m benchmarks.rows.int64_exact --help`. Peers
that are not installed are named as missing: `pip install -r benchmarks/peers.txt`. --tables writes the tables of
README.md and docs/benchmarks.md anew from all records.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = [
    "int8_exact",
    "int16_exact",
    "int32_exact",
    "int64_exact",
    "wrapped",
    "modulus_wide",
    "modulus_narrow",
    "float64_fast",
    "float64_fp64",
    "float64_exact",
    "float32_exact",
    "complex128",
    "double_double",
    "python_ints",
    "small_sizes",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--size")
    parser.add_argument("--pairs")
    parser.add_argument("--threads")
    parser.add_argument("--clock")
    parser.add_argument("--record", type=Path)
    parser.add_argument(
        "--tables", action="store_true", help="write the tables of README.md and docs/ from the records"
    )
    args = parser.parse_args()
    if unknown := set(args.rows) - set(ROWS):
        parser.error(f"unknown row {', '.join(sorted(unknown))}; choose from {', '.join(ROWS)}")
    passed = [
        word
        for name in ("size", "pairs", "threads", "clock")
        if (value := getattr(args, name)) is not None
        for word in (f"--{name}", value)
    ]
    if args.record is not None:
        passed += ["--record", str(args.record.resolve())]
    failed = []
    for row in args.rows:
        print(f"\n{row}, {time.strftime('%H:%M:%S')}", flush=True)
        # A process each: its own thread pools, no memory of the row before, and packages that do not bear each other.
        if subprocess.run([sys.executable, "-m", f"benchmarks.rows.{row}", *passed], cwd=ROOT, check=False).returncode:
            failed.append(row)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    elif args.tables:
        subprocess.run([sys.executable, "-m", "benchmarks.tables"], cwd=ROOT, check=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
