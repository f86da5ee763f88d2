"""Writes the tables of README.md and docs/benchmarks.md from the raw records, so that anybody can write them again.

    python -m benchmarks.tables [--check] [--machine TEXT]

Records are all lines of benchmarks/results/*.jsonl that rows of the benchmarks wrote, of one machine: the newest
record's, or the one whose name holds TEXT. Of several records of one comparison the largest product counts, then one
during which other processes took no more than a fifth of a processor, then the newest. --check writes nothing and
exits with 1 where a table is not what the records give.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
QUIET = 0.2  # processors kept busy by others
Record = dict[str, Any]


def read(folder: Path) -> list[Record]:
    """All records of rows, oldest file first: other scripts keep theirs beside them."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]
    return [r for r in map(json.loads, lines) if "gops" in r or "overhead_s" in r]


def machine_name(record: Record) -> str:
    return f"{record['cpu']}, {record['cpus']} CPUs, {record['engine'].split(',')[0]}"


def other_load(record: Record) -> float:
    """Processors that others kept busy; the first records have only the load average before the run, with one process
    of their own in it."""
    if "other_load" in record:
        return float(record["other_load"])
    return max(0.0, record["load_before"] - 1)


def moment(record: Record) -> str:
    return str(record.get("time") or record["date"])


def chosen(records: Iterable[Record]) -> dict[tuple[str, str, int], Record]:
    """One record for every job, peer and (small sizes only) size, in the order in which they first came."""
    best: dict[tuple[str, str, int], Record] = {}
    for record in records:
        key = record["job"], record["peer"], record["size"] if "overhead_s" in record else 0
        if key not in best or rank(record) >= rank(best[key]):
            best[key] = record
    return best


def rank(record: Record) -> tuple[int, bool, str]:
    return record["size"], other_load(record) <= QUIET, moment(record)


def figure(x: float) -> str:
    """Three significant digits, thousands apart."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    rounded = float(f"{x:.2e}")
    return f"{rounded:,.{max(2 - math.floor(math.log10(abs(rounded))), 0)}f}"


def ratio_of(record: Record) -> str:
    if "published_gops" in record:
        low, high = (statistics.median(record["gops"]) / g for g in reversed(record["published_gops"]))
        return f"{figure(low)} … {figure(high)} of the published rate"
    ratios = record["ratios"]
    return f"**{figure(statistics.median(ratios))}** ({figure(ratios[0])} … {figure(ratios[-1])})"


def peer_of(record: Record) -> str:
    """The peer, and what was different about its side."""
    if "published_gops" in record:
        return f"{record['peer']}, published, {record['threads']} thread"
    smaller = record["peer_size"] != record["size"]
    return f"{record['peer']}, n = {record['peer_size']}" if smaller else str(record["peer"])


def peer_rate(record: Record) -> str:
    rates = record.get("published_gops")
    return " … ".join(f"{g:g}" for g in rates) if rates else figure(statistics.median(record["peer_gops"]))


def summary(records: Iterable[Record]) -> list[str]:
    """The README's table: every job beside the peers that matter most for it."""
    rows = ["| job | n | Gop/s | beside | Gop/s | ratio (range of pairs) |", "|---|---|---|---|---|---|"]
    for r in records:
        if "gops" in r and r.get("headline", True):
            mine = figure(statistics.median(r["gops"]))
            rows.append(f"| {r['job']} | {r['size']} | {mine} | {peer_of(r)} | {peer_rate(r)} | {ratio_of(r)} |")
    return rows


def everything(records: list[Record]) -> list[str]:
    """All comparisons, with the conditions of each, and what part of its limit a product of residues reaches."""
    int8 = [r for r in records if r["job"] == "int8 → int32"]
    limits = {(r["size"], threads_of(r)): statistics.median(r["gops"]) for r in int8}
    rows = [
        "| job | n | threads | products | Gop/s | of the limit | beside | Gop/s | ratio (range) | other load | date |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in records:
        if "gops" not in r:
            continue
        products, mine = r.get("products"), statistics.median(r["gops"])
        limit = limits.get((r["size"], threads_of(r)))
        share = f"{100 * mine * products / limit:.0f} %" if products and limit else ""
        load = f"{r['other_load']:.1f}" if "other_load" in r else "not measured"
        rows.append(
            f"| {r['job']} | {r['size']} | {threads_of(r)} | {products or ''} | {figure(mine)} | {share} "
            f"| {peer_of(r)} | {peer_rate(r)} | {ratio_of(r)} | {load}{clock_of(r)} | {r['date']} |"
        )
    return rows


def threads_of(record: Record) -> int:
    return int(record.get("threads", record["cpus"]))


def clock_of(record: Record) -> str:
    return ", processor time" if record.get("clock") == "cpu" else ""


def small(records: Iterable[Record]) -> list[str]:
    """Microseconds beyond NumPy's float64 product, job by size."""
    found = [r for r in records if "overhead_s" in r]
    if not found:
        return ["No record yet."]
    sizes = sorted({r["size"] for r in found})
    rows = ["| job | " + " | ".join(f"n = {n}" for n in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    for job in dict.fromkeys(r["job"] for r in found):
        by_size = {r["size"]: r for r in found if r["job"] == job}
        cells = [f"{1e6 * statistics.median(by_size[n]['overhead_s']):.1f}" if n in by_size else "" for n in sizes]
        rows.append(f"| {job.removeprefix('small ')} | " + " | ".join(cells) + " |")
    return rows


def origin(records: list[Record]) -> str:
    """Where and when, in one sentence under a table."""
    if not records:
        return "No record yet."
    dates = sorted({r["date"] for r in records})
    busy = sum(other_load(r) > QUIET for r in records)
    loaded = f"; {busy} of {len(records)} comparisons beside other work" if busy else ""
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"Medians of pairs in turns in one run, {machine_name(records[0])}, {days}{loaded}."


def between(text: str, name: str, content: list[str]) -> str:
    """The text with what stands between the markers of `name` replaced."""
    begin, end = f"<!-- {name}: generated, begin -->", f"<!-- {name}: end -->"
    head, found, rest = text.partition(begin)
    _, also, tail = rest.partition(end)
    if not found or not also:
        raise ValueError(f"the markers of {name} are missing: {begin} … {end}")
    return "\n".join([head + begin, *content, end]) + tail


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--machine", default="", metavar="TEXT")
    args = parser.parse_args()
    records = [r for r in read(RESULTS) if args.machine in machine_name(r)]
    if records:
        newest = machine_name(max(records, key=moment))
        records = [r for r in records if machine_name(r) == newest]
    best = list(chosen(records).values())
    headline = [r for r in best if "gops" in r and r.get("headline", True)]
    tables = {
        README: {"SUMMARY": [*summary(best), "", origin(headline)]},
        PAGE: {"COMPARISONS": [*everything(best), "", origin(best)], "SMALL": small(best)},
    }
    stale = []
    for path, parts in tables.items():
        old = new = path.read_text(encoding="utf-8")
        for name, content in parts.items():
            new = between(new, name, content)
        if new != old:
            stale.append(path.relative_to(ROOT))
            if not args.check:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{path}: {'is not what the records give' if args.check else 'written'}")
    return 1 if stale and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
