"""Tables and figure of docs/encodings.md: designs per device, direct against residue encodings, windows, covers.

    python benchmarks/encodings.py            # prints Markdown, writes benchmarks/encodings.json and the figure

Product counts are exact; conversion times are this machine's (NumPy, one thread) and only their ratios matter.
"""

import gzip
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from gemmulate import encodings
from gemmulate.encodings import design, rates
from gemmulate.encodings.rates import of_device
from gemmulate.encodings.window import a_priori
from gemmulate.schemes.encoded import Digits, prepare
from gemmulate.schemes.partial import partial_design, round_to_cover

ROOT = Path(__file__).parents[1]
K = 16384


def devices() -> list[dict[str, Any]]:
    """Best design of each device and its cost against single formats (53 bits, K = 16,384)."""
    rows = []
    for name in rates.devices():
        for choice in (0, 1):
            table = of_device(name, choice)
            if choice and table.ops_per_s == of_device(name).ops_per_s:
                continue
            singles = {}
            for label, members in (("fp4", ["fp4_e2m1"]), ("fp8", ["fp8_e4m3"]), ("int8", ["int8"])):
                try:
                    singles[label] = design(device=table, formats=members).ops_per_s
                except (ValueError, LookupError):
                    singles[label] = None
            have = [n for n in ("fp4_e2m1", "fp8_e4m3", "int8") if n in table.ops_per_s]
            usable = [
                n
                for n, label in zip(("fp4_e2m1", "fp8_e4m3", "int8"), singles, strict=True)
                if n in have and singles[label]
            ]
            best = design(device=table, formats=usable)
            floats = [n for n in usable if n != "int8"]
            mixed = design(device=table, formats=floats) if floats else None
            rows.append(
                {
                    "device": table.device,
                    "rates": "second source" if choice else "first source",
                    "products": best.products_by_format,
                    "tera_per_s": best.ops_per_s / 1e12,
                    "speedup_over": {name: best.ops_per_s / s if s else None for name, s in singles.items()},
                    "fp4_fp8": {**mixed.products_by_format, "cost": float(mixed.cost)} if mixed else None,
                    "optimal": best.optimal,
                }
            )
    return rows


def crossover() -> list[dict[str, Any]]:
    """Products of direct and of residue encodings for INTn × INTn on FP4, K = 16,384."""
    rows = []
    catalogued = {
        (e.left.low, e.left.high): e.products
        for key in encodings.keys("fp4_e2m1")
        if not key.startswith("mod") and (e := encodings.get(key)).left == e.right
    }
    for n in range(2, 21):
        low, high = -(1 << (n - 1)), (1 << (n - 1)) - 1
        direct = [p for (a, b), p in catalogued.items() if a <= low and high <= b]
        # Balanced digits of radix 13 are in S: r limbs reach ±(13^r − 1)/2 with r² products.
        limbs = next(r for r in range(1, 9) if (13**r - 1) // 2 >= -low)
        direct.append(limbs**2)
        residue = design(bits=n - 1, k=K, formats="fp4_e2m1") if n > 1 else None
        rows.append({"bits": n, "direct": min(direct), "residues": residue.products if residue else 1})
    return rows


def matrices() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {"normal 256×256": rng.standard_normal((256, 256)), "uniform 256×256": rng.uniform(-1, 1, (256, 256))}
    for folder in (ROOT / "src/gemmulate/data", ROOT / "tests/data", ROOT / "shared/data/matrices"):
        for path in sorted(folder.glob("*.mtx.gz")):
            with gzip.open(path) as stream:
                matrix = scipy.io.mmread(stream)
            dense = np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix, dtype=float)[:400, :400]
            if path.stem[:-4] in ("bcsstk13", "cryg2500", "west0067") and dense.any():
                found.setdefault(path.name.removesuffix(".mtx.gz"), dense)
    return found


def partial() -> list[dict[str, Any]]:
    """Products, rounding errors in units of plain rounding's spacing, and conversion cost, for several freedoms."""
    rows = []
    for name, matrix in matrices().items():
        top = np.frexp(np.abs(matrix).max(axis=1))[1]
        # 53-bit integers; their fractional parts need more than float64 has, so entries get random tails below 2^-53
        # of their own, as results of computations have: the rounding is that of real numbers.
        rng = np.random.default_rng(1)
        for freedom in (0.0, 0.25, 0.54, 1.0, 2.6, 5.0):
            chosen = design(bits=53, k=K, formats="fp4_e2m1", freedom=freedom)
            spent = chosen.freedom_bits
            x = np.ldexp(matrix, (40 - top)[:, None])
            x = np.where(matrix == 0, 0.0, x + rng.uniform(-0.5, 0.5, x.shape))
            x = np.clip(x * 2.0**spent, -(2.0**50), 2.0**50)
            cover = partial_design(a_priori(53, K), ("fp4_e2m1",), freedom) if freedom else None
            prepare(Digits.of_integers(np.zeros((1, 1), dtype=np.int64)), chosen, True)  # builds the tables
            start = time.perf_counter()
            if cover is not None:
                rounded = round_to_cover(x, cover)
                values, errors, tried = rounded.values, rounded.errors, rounded.candidates / x.size
            else:
                values = np.rint(x).astype(np.int64)
                errors, tried = np.abs(x - np.rint(x)), 1.0
            middle = time.perf_counter()
            prepare(Digits.of_integers(values), chosen, True)
            end = time.perf_counter()
            used = errors[matrix != 0] / 2.0**spent
            rows.append(
                {
                    "matrix": name,
                    "freedom": freedom,
                    "spent": spent,
                    "products": chosen.products,
                    "moduli": len(chosen.moduli),
                    "mean": float(used.mean()),
                    "rms": float(np.sqrt((used**2).mean())),
                    "max": float(used.max()),
                    "candidates": tried,
                    "round_ns": (middle - start) / x.size * 1e9,
                    "planes_ns": (end - middle) / x.size * 1e9,
                }
            )
    return rows


def windows() -> list[dict[str, Any]]:
    """Products with the a-priori window and with one computed from the data."""
    rng = np.random.default_rng(2)
    rows = []
    for name, draw in (
        ("uniform", lambda s: rng.uniform(-1, 1, s)),
        ("normal", rng.standard_normal),
        ("lognormal, σ = 2", lambda s: rng.lognormal(0, 2, s)),
    ):
        a, b = draw((256, 4096)), draw((4096, 256))
        plain, data = design(bits=53, k=4096), design(bits=53, a=a, b=b)
        rows.append(
            {
                "data": name,
                "bits_saved": math.log2(plain.window) - math.log2(data.window),
                "a_priori": plain.products,
                "from_data": data.products,
            }
        )
    return rows


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    """The crossover as an SVG: two step-free lines with markers, axes and a legend."""
    width, height, left, bottom, top = 640, 400, 60, 50, 20
    most = max(max(r["direct"], r["residues"]) for r in rows)
    bits = [r["bits"] for r in rows]

    def x(b: float) -> float:
        return left + (b - bits[0]) / (bits[-1] - bits[0]) * (width - left - 20)

    def y(p: float) -> float:
        return height - bottom - p / (most + 2) * (height - bottom - top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for p in range(0, most + 3, 5):
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(p):.1f}" y2="{y(p):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y(p) + 4:.1f}" text-anchor="end">{p}</text>')
    for b in bits[::2]:
        parts.append(f'<text x="{x(b):.1f}" y="{height - bottom + 18}" text-anchor="middle">{b}</text>')
    for name, color, label in (("direct", "#c0392b", "direct"), ("residues", "#2471a3", "residues")):
        line = " ".join(f"{x(r['bits']):.1f},{y(r[name]):.1f}" for r in rows)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(r["bits"]):.1f}" cy="{y(r[name]):.1f}" r="3" fill="{color}"/>' for r in rows]
        at = 60 if name == "direct" else 80
        parts.append(f'<text x="{left + 20}" y="{at - 20}" fill="{color}">{label}</text>')
    parts.append(
        f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle">input width in bits (INTn × INTn)</text>'
    )
    parts.append(
        f'<text transform="translate(16,{height / 2}) rotate(-90)" text-anchor="middle">FP4 products, K = 16,384</text>'
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def table(rows: list[dict[str, Any]]) -> None:
    """A Markdown table of plain rows."""
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
        print("| " + " | ".join(cells) + " |")
    print()


def main() -> None:
    record = {"devices": devices(), "crossover": crossover(), "windows": windows(), "partial": partial()}
    for name, rows in record.items():
        print(f"## {name}\n")
        table(rows)
    (ROOT / "benchmarks" / "encodings.json").write_text(json.dumps(record, indent=1) + "\n")
    figure(record["crossover"], ROOT / "docs" / "figures" / "encodings_crossover.svg")


if __name__ == "__main__":
    main()
