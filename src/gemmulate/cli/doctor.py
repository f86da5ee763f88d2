"""`gemmulate doctor`: what this machine can run, and why not where it cannot."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import cyclopts

from gemmulate.cli.matmul import Json
from gemmulate.cli.output import examples, print_json, print_table

_EXAMPLES = examples(
    ("gemmulate doctor", "what runs here, and the reason where something does not"),
    ("gemmulate doctor --json > machine.json", "the same for a bug report or a program"),
)

# What the engines, their peers or their tests can use of the processor, in the kernel's spelling.
_CPU_FLAGS = (
    "sse4_2", "avx", "avx2", "fma", "avx_vnni", "avx_vnni_int8", "avx_ifma", "avx512f", "avx512bw", "avx512dq",
    "avx512vl", "avx512ifma", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    "asimd", "asimddp", "i8mm", "sve",
)  # fmt: skip
_PACKAGES = ("numpy", "msgspec", "cyclopts", "rich", "scipy", "python-flint", "threadpoolctl", "torch", "jax", "dask")
_ENVIRONMENT = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_NUM_THREADS")


def register(app: cyclopts.App) -> None:
    """Add `doctor` to the application."""
    app.command(doctor, help_epilogue=_EXAMPLES)


def doctor(*, as_json: Json = False) -> None:
    """List engines (with the reason where one is missing), processor features, NumPy's BLAS, versions and threads."""
    record = examined()
    if as_json:
        print_json(record)
        return
    rows = [
        [
            engine["name"],
            "yes" if engine["available"] else "no",
            engine["device"],
            ", ".join(engine["formats"]),
            engine["reason"],
        ]
        for engine in record["engines"]
    ]
    print_table(["engine", "available", "device", "formats", "reason"], rows, title="Engines")
    print()
    machine, blas = record["machine"], record["blas"]
    facts = [
        ["processor", machine["processor"]],
        ["features", " ".join(machine["features"]) or "unknown"],
        ["threads", f"{machine['threads']} usable of {machine['processors']} processors"],
        ["memory", f"{machine['memory_bytes'] / 2**30:.1f} GiB" if machine["memory_bytes"] else "unknown"],
        ["BLAS of NumPy", " ".join(f"{key} {value}" for key, value in blas.items())],
        ["environment", " ".join(f"{key}={value}" for key, value in record["environment"].items()) or "nothing set"],
        ["system", machine["system"]],
        ["versions", ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version)],
        ["not installed", ", ".join(name for name, version in record["versions"].items() if not version) or "–"],
    ]
    print_table(["what", "found"], facts, title="Machine")


def examined() -> dict[str, Any]:
    """All that `doctor` finds, as JSON values."""
    import gemmulate as gm

    return {
        "engines": [
            {
                "name": engine.name,
                "device": engine.device,
                "formats": list(engine.formats),
                "available": engine.available,
                "reason": engine.reason,
            }
            for engine in gm.engines()
        ],
        "machine": {
            "processor": _cpuinfo("model name") or platform.processor() or "unknown",
            "features": [flag for flag in _CPU_FLAGS if flag in (_cpuinfo("flags") or _cpuinfo("Features")).split()],
            "processors": os.cpu_count(),
            "threads": usable_threads(),
            "memory_bytes": _memory_bytes(),
            "system": platform.platform(),
        },
        "blas": _blas(),
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        "versions": {
            "gemmulate": gm.__version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in _PACKAGES},
        },
    }


def usable_threads() -> int:
    """Processors that this process may use; a container or taskset may leave fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == key), "")


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _blas() -> dict[str, str]:
    """The BLAS that NumPy multiplies floats with, and the kernel that it chose for this processor."""
    import numpy as np

    build = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index,call-overload,unused-ignore]
    found = {"name": str(build.get("name", "unknown")), "version": str(build.get("version", "unknown"))}
    try:
        import threadpoolctl
    except ImportError:
        return found | {"kernel": "unknown (threadpoolctl is not installed)"}
    for pool in threadpoolctl.threadpool_info():
        if pool.get("user_api") == "blas" and "numpy" in pool.get("filepath", ""):
            return found | {"kernel": str(pool.get("architecture", "unknown")), "threads": str(pool["num_threads"])}
    return found | {"kernel": "unknown"}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
