"""Engines over array frameworks: which run here, why the others do not, and how they are made.

A framework is imported only to make its engine, or where there is a device that only it can be asked about.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

from gemmulate.engines.base import Engine, EngineRecord


def framework_records() -> tuple[EngineRecord, ...]:
    """The engines over frameworks with their availability on this machine."""
    on_cpu, on_cuda = _torch_records()
    narrow = (_fp8(on_cpu), _fp8(on_cuda), _fp4(on_cpu), _fp4(on_cuda))
    return (on_cpu, on_cuda, *narrow, *_triton_records(on_cuda), _jax_record(), _cupy_record())


def framework_engine(name: str, device: str) -> Engine:
    """The available engine of that name, on the device of its record or another one of that kind."""
    if name not in _MAKERS:
        raise TypeError(f"engine = {name!r} is of its maker's own and for one device; make it for {device} as well")
    module, maker = _MAKERS[name]
    make = getattr(import_module(f"gemmulate.engines.{module}"), maker)
    engine: Engine = make(name, device) if module.startswith(("torch", "triton")) else make(name)
    return engine


# Module and function, called with the engine's name; those of torch with a device as well.
_MAKERS = {
    "torch": ("torch", "torch_engine"),
    "torch-cuda": ("torch", "torch_engine"),
    "torch-fp8": ("torch_fp8", "fp8_engine"),
    "torch-cuda-fp8": ("torch_fp8", "fp8_engine"),
    "torch-fp4": ("torch_fp4", "fp4_engine"),
    "torch-cuda-fp4": ("torch_fp4", "fp4_engine"),
    "triton": ("triton.engine", "triton_engine"),
    "triton-bf16": ("triton.engine", "triton_engine"),
    "triton-fp8": ("triton.engine", "triton_engine"),
    "jax": ("jax", "jax_engine"),
    "cupy": ("cupy", "cupy_engine"),
}


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


def _triton_records(cuda: EngineRecord) -> tuple[EngineRecord, ...]:
    """Triton where torch has CUDA, on the processor where its interpreter is asked for; by formats of the planes."""

    def records(device: str, reason: str, available: bool = False) -> tuple[EngineRecord, ...]:
        return (
            EngineRecord("triton", device, ("int8",), available, reason),
            EngineRecord("triton-bf16", device, ("bf16",), available, reason),
            _with_fp8_units(EngineRecord("triton-fp8", device, ("fp8_e4m3",), available, reason)),
        )

    for module in ("torch", "triton"):
        if find_spec(module) is None:
            return records("cuda", f"{module} is not installed; run `pip install torch triton`")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return records("cpu", "Triton's kernels in its interpreter on the processor: for tests, slow", True)
    if not cuda.available:
        return records("cuda", f"{cuda.reason}; or set TRITON_INTERPRET=1 for the interpreter, slow")
    return records("cuda", "Triton's kernels on CUDA", True)


def _with_fp8_units(record: EngineRecord) -> EngineRecord:
    """The record, unavailable where the GPU has no FP8 units."""
    if record.device != "cuda" or not record.available:
        return record
    major, minor = import_module("torch").cuda.get_device_capability()
    if (major, minor) >= (8, 9):
        return record
    reason = f"this GPU (compute capability {major}.{minor}) has no FP8 units, those from 8.9 on have"
    return replace(record, available=False, reason=reason)


def _fp8(torch: EngineRecord) -> EngineRecord:
    """The engine beside torch's own whose products run on FP8 planes."""
    reason = torch.reason.replace("torch._int_mm", "torch._scaled_mm on FP8 planes")
    return _with_fp8_units(EngineRecord(f"{torch.name}-fp8", torch.device, ("fp8_e4m3",), torch.available, reason))


def _fp4(torch: EngineRecord) -> EngineRecord:
    """The engine beside torch's own whose products run on FP4 planes."""
    name, reason, available = f"{torch.name}-fp4", torch.reason, torch.available
    if torch.device == "cpu":
        reason = reason.replace("torch._int_mm", "a stand-in for products of FP4 planes, for tests")
    elif available:
        module = import_module("torch")
        major, minor = module.cuda.get_device_capability()
        reason = reason.replace("torch._int_mm", "torch._scaled_mm on FP4 planes (NVFP4)")
        if major not in (10, 12):
            reason = f"this GPU (compute capability {major}.{minor}) has no FP4 units, those of 10.x and 12.x have"
            available = False
        elif not hasattr(module, "float4_e2m1fn_x2"):
            reason = f"PyTorch {module.__version__} has no FP4 products; install 2.8 or newer"
            available = False
    return EngineRecord(name, torch.device, ("fp4_e2m1",), available, reason)


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
    if device == "tpu":
        # Patterns of float64 are what the array engine works on; XLA has none of them there (JAX issue 21108).
        return record(
            device, False, "XLA cannot read the bits of float64 on a TPU; leave engine out: the host multiplies"
        )
    return record(device, True, "JAX arrays: lax.dot_general (not run on a GPU)")


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


def _has_nvidia_driver() -> bool:
    """Whether the driver's library is there: found out in microseconds, where importing torch takes seconds."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
