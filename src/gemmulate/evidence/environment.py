"""Where a measurement was taken: what is needed to judge it, without names of machines or users."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from gemmulate import __version__


def environment() -> dict[str, str]:
    """Date, processor, clock regime, load and versions of this machine."""
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "logical_cpus": str(os.cpu_count()),
        "usable_cpus": str(len(os.sched_getaffinity(0))),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not readable",
        "load_average": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gemmulate": __version__,
    }
    threads = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name in os.environ}
    return found | threads


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return ""
