"""Writes tests/data/occupancy/points.csv: random points per architecture with the vendor's verdict.

    python tests/screen/occupancy_points.py ORACLE

ORACLE is the program built from occupancy_oracle.cpp. The device limits are typed here from the CUDA C++ Programming
Guide, so that the table does not depend on the package it tests.
"""

import random
import subprocess
import sys
from pathlib import Path

POINTS = 400
# compute capability: warps per SM, shared KiB per SM, shared KiB per CTA, reserved bytes
DEVICES = {
    "7.5": (32, 64, 64, 0),
    "8.0": (64, 164, 163, 1024),
    "8.6": (48, 100, 99, 1024),
    "8.9": (48, 100, 99, 1024),
    "9.0": (64, 228, 227, 1024),
    "10.0": (64, 228, 227, 1024),
    "10.3": (64, 228, 227, 1024),
    "12.0": (48, 100, 99, 1024),
    "12.1": (48, 100, 99, 1024),
}
HEADER = (
    "arch,threads,registers,shared,barriers,ctas,limit_registers,limit_shared,limit_warps,limit_ctas,limit_barriers"
)


def main(oracle: str) -> None:
    rng = random.Random(20261129)
    points, lines = [], []
    for arch, (warps, per_sm, per_cta, reserved) in DEVICES.items():
        for _ in range(POINTS):
            threads, registers, barriers = rng.randint(1, 1024), rng.randint(1, 255), rng.randint(1, 16)
            shared = rng.choice((0, rng.randint(0, 16 * 1024), rng.randint(0, per_sm * 1024)))
            points.append(f"{arch},{threads},{registers},{shared},{barriers}")
            lines.append(
                f"{arch.replace('.', ' ')} {per_sm * 1024} {per_cta * 1024} {warps * 32} {reserved} "
                f"{registers} {threads} {shared} {barriers}"
            )
    answer = subprocess.run([oracle], input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    table = [f"{point},{line.replace(' ', ',')}" for point, line in zip(points, answer.splitlines(), strict=True)]
    target = Path(__file__).parents[1] / "data" / "occupancy" / "points.csv"
    target.write_text("\n".join([HEADER, *table]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
