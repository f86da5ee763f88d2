"""Ways to residue products that are written by hand, and whether they have proven themselves on this machine.

"warpgroups" and "clusters" wait at barriers that they place themselves. A mistake there would hang the process or break
the device's context for good, and no handler catches either. So products take them only after `gemm_trial` has run
them in processes of their own, on this kind of device with this driver and software. What it found, good or bad, lies
in the user's cache; a product reads it and starts no trial.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import torch
import triton

from gemmulate.engines.triton.gemm_ways import Way, ways_of
from gemmulate.errors import FileError
from gemmulate.io.atomic import write_atomically

WRITTEN_BY_HAND: tuple[Way, ...] = ("warpgroups", "clusters")
SAME = "the same digits"  # what a trial says of a way that may be used
# Whose text decides what those kernels do and are given.
_SOURCES = ("warpgroup_gemm.py", "described_gemm.py", "residue_gemm.py", "chosen.py", "gemm_ways.py", "gemm_trial.py")
_DRIVER = Path("/proc/driver/nvidia/version")

_READ: dict[torch.device, dict[Way, str]] = {}


def hand_written_ways(device: torch.device) -> tuple[Way, ...]:
    """Those that a device has."""
    return tuple(way for way in ways_of(device) if way in WRITTEN_BY_HAND)


def usable_ways(device: torch.device) -> tuple[Way, ...]:
    """`ways_of` a device, without those written by hand that have not proven themselves there."""
    return tuple(way for way in ways_of(device) if way not in WRITTEN_BY_HAND or proofs(device).get(way) == SAME)


def proofs(device: torch.device) -> Mapping[Way, str]:
    """What trials found of the ways written by hand, `SAME` or what went wrong; those not tried are missing.

    From the user's cache, read once in a process. A file that cannot be read counts as none.
    """
    found = _READ.get(device)
    if found is None:
        found = _READ[device] = _from_disk(device)
    return found


def keep(device: torch.device, found: Mapping[Way, str]) -> None:
    """Add to `proofs`: in this process, and for later ones where the user's cache can be written."""
    merged = _READ[device] = {**proofs(device), **found}
    try:
        path, key = kept_at(device), key_of(device)
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            file.write(json.dumps({"key": key, "found": merged}, indent=1).encode())
    except (OSError, FileError, RuntimeError):  # RuntimeError: there is no home
        return


def forget() -> None:
    """Read anew from the user's cache."""
    _READ.clear()


def described(device: torch.device) -> str:
    """`proofs` in words."""
    ways = hand_written_ways(device)
    if not ways:
        return "no way is written by hand here"
    return "; ".join(f"{way}: {proofs(device).get(way, 'not tried, hence not used')}" for way in ways)


def key_of(device: torch.device) -> dict[str, str]:
    """What a proof holds for: a CUDA device, its driver, the software, and the kernels' text."""
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": str(properties.name),
        "capability": f"{properties.major}.{properties.minor}",
        "driver": _driver(),
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "triton": str(triton.__version__),
        "gemmulate": str(import_module("gemmulate").__version__),
        "sources": _sources(),
    }


def kept_at(device: torch.device) -> Path:
    """The file for a key, in $XDG_CACHE_HOME or ~/.cache. Raises RuntimeError where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "gemmulate"
    name = hashlib.sha256(json.dumps(key_of(device), sort_keys=True).encode()).hexdigest()[:16]
    return folder / f"residue-products-{name}.json"


def _from_disk(device: torch.device) -> dict[Way, str]:
    try:
        kept = json.loads(kept_at(device).read_bytes())
        if kept["key"] != key_of(device):
            return {}
        return {way: str(kept["found"][way]) for way in WRITTEN_BY_HAND if way in kept["found"]}
    except (OSError, RuntimeError, ValueError, TypeError, KeyError):
        return {}


@cache
def _sources() -> str:
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for name in _SOURCES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:16]


@cache
def _driver() -> str:
    try:
        found = re.search(r"\d+\.\d+(\.\d+)?", _DRIVER.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    return found[0] if found else "not readable"
