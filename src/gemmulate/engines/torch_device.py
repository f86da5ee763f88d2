"""A device as torch sees it: what it is, its clock, and what it reaches in FP64 and INT8 products and in copies.

Not run on a GPU: the tests measure torch's processor as if it were a device.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, final

import torch

from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.stopwatch import HostStopwatch, Stopwatch, TorchStopwatch
from gemmulate.engines.torch import TorchLibrary, torch_engine
from gemmulate.errors import EngineUnavailable

Run = Callable[[], object]

_SMI: Final = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu")


@final
class TorchDevice:
    """One device: "cuda", "cuda:1", or "cpu" for a rehearsal.

    Raises ValueError for another name, EngineUnavailable where the device is not there.
    """

    def __init__(self, name: str) -> None:
        self.device = _parsed(name)
        self.on_gpu = self.device.type == "cuda"
        self.watch: Stopwatch = TorchStopwatch() if self.on_gpu else HostStopwatch()

    @property
    def name(self) -> str:
        """What the device calls itself."""
        return str(torch.cuda.get_device_name(self.device)) if self.on_gpu else f"torch on {_processor()}"

    @property
    def engine(self) -> ArrayEngine:
        """The torch engine that multiplies on it."""
        return torch_engine("torch-cuda" if self.on_gpu else "torch", str(self.device))

    def free_bytes(self) -> int:
        """Memory that is free on it."""
        return TorchLibrary(str(self.device)).memory()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Torch's current device and stream are this one's within the block; a processor has one thread there."""
        if self.on_gpu:
            with torch.cuda.device(self.device):
                yield
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def facts(self) -> dict[str, str]:
        """Name, driver, clocks and versions: all text, "not readable" where nvidia-smi does not tell."""
        found = {"device": str(self.device), "device_name": self.name, "torch": torch.__version__}
        if not self.on_gpu:
            return found | {"rehearsal": "torch's processor, one thread: not run on a GPU"}
        properties = torch.cuda.get_device_properties(self.device)
        found |= {
            "cuda": str(torch.version.cuda),
            "capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": str(properties.total_memory),
            "multiprocessors": str(properties.multi_processor_count),
            "residue_products": self._residue_products(),
            "residue_trials": self._residue_trials(),
        }
        return found | _nvidia_smi(f"GPU-{properties.uuid}")

    def try_residue_products(self, anew: bool = False) -> dict[str, str]:
        """Try the ways to residue products that are written by hand, in processes with a time limit of minutes each.

        What they find is kept: the ways that gave the right digits are among those that the Triton engine measures from
        then on. Those that were tried before are not tried again, but with `anew`. {} where this device has none.
        """
        if not self.on_gpu or find_spec("triton") is None:
            return {}
        found: dict[str, str] = import_module("gemmulate.engines.triton.gemm_trial").prove(self.device, anew)
        import_module("gemmulate.engines.triton.gemm_choice").forget()
        return found

    def _residue_trials(self) -> str:
        """What was found by `try_residue_products`, now or before."""
        if find_spec("triton") is None:
            return "Triton is not installed"
        try:
            return str(import_module("gemmulate.engines.triton.gemm_proofs").described(self.device))
        except Exception as error:  # as below
            return f"not known: {error}".partition("\n")[0]

    def _residue_products(self) -> str:
        """The ways to residue products on this GPU and their times, which the Triton engine chooses by."""
        if find_spec("triton") is None:
            return "Triton is not installed"
        try:
            choice = import_module("gemmulate.engines.triton.gemm_choice")
            with torch.cuda.device(self.device):
                return str(choice.measured_ways(self.device) or "not measured: too little free memory")
        except Exception as error:  # whatever compilers and drivers raise: the other facts stand without
            return f"not measured: {error}".partition("\n")[0]

    def gemm_fp64(self, n: int) -> Run:
        """torch's float64 product of n × n matrices: cuBLAS DGEMM on CUDA."""
        a, b = self._normal(n, n), self._normal(n, n)
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)

    def gemm_int8(self, n: int) -> Run:
        """The INT8 product with int32 sums of n × n matrices as the torch engine takes it."""
        a, b = (
            torch.randint(-128, 128, (n, n), dtype=torch.int8, device=self.device, generator=self._seeded(seed))
            for seed in (1, 2)
        )
        library = TorchLibrary(str(self.device))
        return lambda: library.int8_product(a, b)

    def copy(self, size_bytes: int) -> Run:
        """A copy of so many bytes: as many read and as many written."""
        source = torch.ones(size_bytes // 8, dtype=torch.float64, device=self.device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def normal_pair(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Two n × n Gaussian matrices of float64, always the same ones."""
        return self._normal(n, n, 1), self._normal(n, n, 2)

    def _normal(self, m: int, n: int, seed: int = 1) -> torch.Tensor:
        return torch.randn((m, n), dtype=torch.float64, device=self.device, generator=self._seeded(seed))

    def _seeded(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)


def _parsed(name: str) -> torch.device:
    way = 'give "cuda", "cuda:1" …, or "cpu" for a rehearsal on the processor'
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device = {name!r} is not a device of torch; {way}") from None
    if device.type == "cpu":
        return torch.device("cpu")  # without an index
    if device.type != "cuda":
        raise ValueError(f"device = {name!r} is not measured: there are no clock and no engine for it; {way}")
    if not torch.cuda.is_available():
        raise EngineUnavailable(
            f"device = {name!r}: torch {torch.__version__} sees no CUDA device; install a driver and a torch built for "
            'CUDA, or give "cpu" for a rehearsal on the processor'
        )
    index, count = device.index or 0, torch.cuda.device_count()
    if index >= count:
        raise ValueError(f"device = {name!r}: there are {count} CUDA devices; give cuda:0 … cuda:{count - 1}")
    return torch.device("cuda", index)


def _nvidia_smi(identity: str) -> dict[str, str]:
    unknown = dict.fromkeys(_SMI, "not readable")
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return unknown
    command = [tool, f"--query-gpu={','.join(_SMI)}", "--format=csv,noheader", "-i", identity]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return unknown
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")] if done.stdout.strip() else []
    return dict(zip(_SMI, values, strict=True)) if len(values) == len(_SMI) else unknown


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
