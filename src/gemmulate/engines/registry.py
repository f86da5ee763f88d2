"""Which engines exist, which run here, and why the others do not."""

from __future__ import annotations

import ctypes
import operator
import os
import sys
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import SupportsIndex

from gemmulate.engines import native
from gemmulate.engines.base import Engine, EngineRecord
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


def _torch_records() -> tuple[EngineRecord, EngineRecord]:
    """Torch on the processor and on CUDA. It is imported only where there is an NVIDIA driver to ask it about."""

    def records(
        reason: str, cuda: str, available: bool = False, on_cuda: bool = False
    ) -> tuple[EngineRecord, EngineRecord]:
        return (
            EngineRecord("torch", "cpu", ("int8",), available, reason),
            EngineRecord("torch-cuda", "cuda", ("int8",), on_cuda, cuda),
        )

    if find_spec("torch") is None:
        missing = "PyTorch is not installed; run `pip install torch`"
        return records(missing, missing)
    here = "PyTorch tensors on the processor: torch._int_mm"
    if not _has_nvidia_driver():
        return records(here, "no NVIDIA driver was found; install one, and a GPU it drives", True)
    try:
        torch = import_module("torch")
    except (ImportError, OSError) as error:
        broken = f"PyTorch cannot be imported ({error}); reinstall it"
        return records(broken, broken)
    if not torch.cuda.is_available():
        return records(here, "torch.cuda.is_available() is false; install a PyTorch built for this GPU's CUDA", True)
    return records(here, "PyTorch tensors on CUDA: torch._int_mm", True, True)


def _triton_record(cuda: EngineRecord) -> EngineRecord:
    """Triton where torch has CUDA; on the processor where its interpreter is asked for."""

    def record(device: str, reason: str, available: bool = False) -> EngineRecord:
        return EngineRecord("triton", device, ("int8",), available, reason)

    for module in ("torch", "triton"):
        if find_spec(module) is None:
            return record("cuda", f"{module} is not installed; run `pip install torch triton`")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return record("cpu", "Triton's kernels in its interpreter on the processor: for tests, slow", True)
    if not cuda.available:
        return record("cuda", f"{cuda.reason}; or set TRITON_INTERPRET=1 for the interpreter, slow")
    return record("cuda", "Triton's kernels on CUDA", True)


def _has_nvidia_driver() -> bool:
    """Whether the driver's library is there: found out in microseconds, where importing torch takes seconds."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def engines() -> tuple[EngineRecord, ...]:
    """All engines with their availability on this machine, the default one first.

    >>> import gemmulate as gm
    >>> [e.available for e in gm.engines() if e.name == "reference"]
    [True]
    """
    torch, cuda = _torch_records()
    return (*_own_engines(), torch, cuda, _triton_record(cuda), _jax_record(), _cupy_record())


def _jax_record() -> EngineRecord:
    """JAX on its default device. It is imported only where that may be another than the processor."""

    def record(device: str, available: bool, reason: str) -> EngineRecord:
        return EngineRecord("jax", device, ("int8",), available, reason)

    if find_spec("jax") is None:
        return record("cpu", False, "JAX is not installed; run `pip install jax`")
    device = "cpu"
    if _has_nvidia_driver() or find_spec("libtpu") is not None:
        try:
            device = import_module("jax").default_backend()
        except (ImportError, OSError, RuntimeError) as error:
            return record("cpu", False, f"JAX finds no device ({error}); reinstall it, or set JAX_PLATFORMS=cpu")
    if device == "cpu":
        return record(device, True, "INT8 products by JAX on the processor, all else NumPy: lax.dot_general")
    return record(device, True, "JAX arrays: lax.dot_general (not run on a GPU or TPU)")


def _cupy_record() -> EngineRecord:
    def record(available: bool, reason: str) -> EngineRecord:
        return EngineRecord("cupy", "cuda", ("int8",), available, reason)

    if find_spec("cupy") is None:
        return record(False, "CuPy is not installed; run `pip install cupy-cuda12x`, or the wheel of your CUDA")
    if not _has_nvidia_driver():
        return record(False, "no NVIDIA driver was found; install one, and a GPU it drives")
    try:
        count = import_module("cupy").cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy raises errors of its own for each missing library
        return record(False, f"CuPy finds no device ({error}); install the wheel of this driver's CUDA")
    if not count:
        return record(False, "CuPy finds no device; make one visible (CUDA_VISIBLE_DEVICES)")
    return record(True, "CuPy arrays: cublasGemmEx (not run on a GPU)")


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


def _thread_count(threads: int | None) -> int | None:
    if threads is None:
        return None
    if isinstance(threads, bool) or not isinstance(threads, SupportsIndex):
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
    count = _thread_count(threads)
    if isinstance(name, Engine):
        return name
    if name is not None and not isinstance(name, str):
        raise _unknown(name)
    return _engine(name, count)


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
    if name == "triton":
        made: Engine = import_module("gemmulate.engines.triton.engine").TritonEngine(name, records[name].device)
        return made
    if name.startswith("torch"):
        engine: Engine = import_module("gemmulate.engines.torch").torch_engine(name, records[name].device)
        return engine
    if name in ("jax", "cupy"):
        of_arrays: Engine = getattr(import_module(f"gemmulate.engines.{name}"), f"{name}_engine")(name)
        return of_arrays
    isa = best if name == "native" else name.removeprefix("native-")
    assert isa is not None
    return NativeEngine(name, isa, threads)
