"""Which engines exist, which run here, and why the others do not."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import SupportsIndex

from gemmulate.engines import native
from gemmulate.engines.base import Engine, EngineRecord
from gemmulate.engines.frameworks import framework_engine, framework_records
from gemmulate.engines.native import NativeEngine
from gemmulate.engines.reference import ReferenceEngine
from gemmulate.errors import EngineUnavailable

_NOT_BUILT = (
    "the native core was not built (GEMMULATE_NO_NATIVE or no compiler at installation); "
    "install a C++20 compiler and reinstall"
)
_INSTRUCTION_SETS = ("scalar", "avx2", "avxvnni", "avx512vnni")
_DESCRIPTIONS = {
    "scalar": "plain C++, any processor",
    "avx2": "AVX2 and FMA, VPMADDWD",
    "avxvnni": "AVX-VNNI, 256-bit VPDPBUSD",
    "avx512vnni": "AVX512-VNNI, 512-bit VPDPBUSD",
}


def _best_isa() -> str | None:
    available = [isa for isa, supported in native.instruction_sets().items() if supported]
    return available[-1] if available else None


def engines() -> tuple[EngineRecord, ...]:
    """All engines with their availability on this machine, the default one first.

    >>> import gemmulate as gm
    >>> [e.available for e in gm.engines() if e.name == "reference"]
    [True]
    """
    return (*_own_engines(), *framework_records())


def _own_engines() -> tuple[EngineRecord, ...]:
    """The engines that need no framework."""
    best = _best_isa()
    records = [
        EngineRecord("native", "cpu", ("int8", "uint8"), best is not None, _DESCRIPTIONS[best] if best else _NOT_BUILT)
    ]
    built = native.instruction_sets()
    for isa in _INSTRUCTION_SETS:
        if not built:
            reason = _NOT_BUILT
        elif isa not in built:
            reason = f"not compiled for this architecture ({_DESCRIPTIONS[isa]})"
        elif not built[isa]:
            reason = f"this processor lacks it ({_DESCRIPTIONS[isa]})"
        else:
            reason = _DESCRIPTIONS[isa]
        records.append(EngineRecord(f"native-{isa}", "cpu", ("int8", "uint8"), built.get(isa, False), reason))
    records.append(EngineRecord("reference", "cpu", ("int8", "uint8"), True, "NumPy and Python integers: exact, slow"))
    return tuple(records)


# More threads than this are taken for a mistake: OpenMP would try to start them all.
_MAX_THREADS = 4096


def thread_count(threads: int | None) -> int | None:
    """The number itself; TypeError or ValueError where it is none of threads."""
    if threads is None:
        return None
    if type(threads) is not int and (isinstance(threads, bool) or not isinstance(threads, SupportsIndex)):
        raise TypeError(f"threads = {threads!r} is not an integer; give a positive number or None")
    count = operator.index(threads)
    if not 1 <= count <= _MAX_THREADS:
        raise ValueError(f"threads = {count} is not in 1 … {_MAX_THREADS}; give a number in it or None for the default")
    return count


def get_engine(name: str | Engine | None = None, threads: int | None = None) -> Engine:
    """The engine called `name` (default: native where built, else reference) on `threads` threads.

    An engine in place of the name is returned as it is. Raises ValueError for an unknown name, EngineUnavailable for
    one that cannot run here.
    """
    count = thread_count(threads)
    if name is None or isinstance(name, str):
        return _engine(name, count)
    if isinstance(name, Engine):
        return name
    raise _unknown(name)


def _unknown(name: object) -> ValueError:
    return ValueError(f"engine = {name!r} is unknown; choose one of {', '.join(record.name for record in engines())}")


@lru_cache(maxsize=64)  # engines hold no state but their settings
def _engine(name: str | None, threads: int | None) -> Engine:
    best = _best_isa()
    if name is None:
        name = "reference" if best is None else "native"
    records = {record.name: record for record in _own_engines()}
    if name not in records:
        records = {record.name: record for record in engines()}
    if name not in records:
        raise _unknown(name)
    if not records[name].available:
        raise EngineUnavailable(f"engine = {name!r} cannot run here: {records[name].reason}")
    if name == "reference":
        return ReferenceEngine()
    if not name.startswith("native"):
        return framework_engine(name, records[name].device)
    isa = best if name == "native" else name.removeprefix("native-")
    assert isa is not None
    return NativeEngine(name, isa, threads)
