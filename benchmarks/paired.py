"""Paired user CPU times of two calls: for a machine shared with other work, where elapsed time says little."""

from __future__ import annotations

import json
import os
import resource
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from run import machine

Call = Callable[[], Any]


def user_seconds(call: Call) -> float:
    """User CPU time of this process, all its threads, during the call."""
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - start


def paired(ours: Call, theirs: Call, pairs: int) -> dict[str, Any]:
    """Times of both in turns (ABBA) after one call of ours, and the sorted ratios theirs/ours of the pairs."""
    ours()
    times: dict[str, list[float]] = {"ours_s": [], "theirs_s": []}
    for pair in range(pairs):
        for name, call in (("ours_s", ours), ("theirs_s", theirs))[:: 1 if pair % 2 == 0 else -1]:
            times[name].append(user_seconds(call))
    ratios = sorted(b / a for a, b in zip(times["ours_s"], times["theirs_s"], strict=True))
    return times | {"ratios": ratios}


def line(job: str, result: dict[str, Any], operations: float) -> str:
    """Median times, rates and ratio with its range, for one row of a table."""
    ours, theirs = (statistics.median(result[name]) for name in ("ours_s", "theirs_s"))
    ratios = result["ratios"]
    return (
        f"{job:<34} {1e3 * ours:>9.1f} ms {operations / ours / 1e9:>7.2f} Gop/s  {1e3 * theirs:>9.1f} ms "
        f"{operations / theirs / 1e9:>6.2f} Gop/s  {statistics.median(ratios):>6.1f}x  "
        f"{ratios[0]:.1f} … {ratios[-1]:.1f}  load {os.getloadavg()[0]:.1f}"
    )


def append(path: Path | None, records: list[dict[str, Any]]) -> None:
    """Add the raw records, each with the machine's facts, as lines of JSON."""
    if path is None:
        return
    facts = machine()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(facts | record) + "\n" for record in records)
