"""CUDA callables, timed with events of torch or CuPy, optionally with the L2 cache flushed before each run.

Not run on a GPU: no figure of this project comes from here. The tests drive the same code with a simulated library.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, final

from gemmulate.errors import EngineUnavailable
from gemmulate.evidence.outputs import fingerprint
from gemmulate.evidence.subjects import describe


@final
class CudaFunction:
    """A callable that enqueues CUDA work on the current stream; the time between two events around it.

    Not run on a GPU, only with a simulated library.
    flush_l2 overwrites a buffer of twice the L2 size before each call, outside the timed span. Raises
    EngineUnavailable when the library or a device is missing.
    """

    def __init__(
        self, name: str, function: Callable[[], Any], *, library: str = "torch", flush_l2: bool = False
    ) -> None:
        self.name = name
        self.description = describe(function)
        self.function = function
        self._result: Any = None
        self._clock = _clock(library)
        self._flush = self._clock.l2_flusher() if flush_l2 else None

    def run(self, repeats: int) -> float:
        total = 0.0
        for _ in range(repeats):
            if self._flush is not None:
                self._flush()
            seconds, self._result = self._clock.time(self.function)
            total += seconds
        return total

    def output(self) -> str | None:
        return fingerprint(self._result)

    def release(self) -> None:
        self._result = None


@final
class _TorchClock:
    def __init__(self, torch: ModuleType) -> None:
        if not torch.cuda.is_available():
            raise EngineUnavailable("timer 'torch' needs a CUDA device, and torch sees none")
        self.torch = torch

    def time(self, function: Callable[[], Any]) -> tuple[float, Any]:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda.synchronize()
        start.record()
        result = function()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3, result

    def l2_flusher(self) -> Callable[[], Any]:
        size = self.torch.cuda.get_device_properties(self.torch.cuda.current_device()).L2_cache_size
        buffer = self.torch.empty(2 * size, dtype=self.torch.uint8, device="cuda")
        return lambda: buffer.zero_()


@final
class _CupyClock:
    def __init__(self, cupy: ModuleType) -> None:
        if not cupy.cuda.is_available():
            raise EngineUnavailable("timer 'cupy' needs a CUDA device, and CuPy sees none")
        self.cupy = cupy

    def time(self, function: Callable[[], Any]) -> tuple[float, Any]:
        cuda = self.cupy.cuda
        start, end = cuda.Event(), cuda.Event()
        cuda.get_current_stream().synchronize()
        start.record()
        result = function()
        end.record()
        end.synchronize()
        return cuda.get_elapsed_time(start, end) * 1e-3, result

    def l2_flusher(self) -> Callable[[], Any]:
        size = self.cupy.cuda.Device().attributes["L2CacheSize"]
        buffer = self.cupy.empty(2 * size, dtype=self.cupy.uint8)
        return lambda: buffer.fill(0)


def _clock(library: str) -> _TorchClock | _CupyClock:
    try:
        module = import_module(library)
    except ImportError:
        raise EngineUnavailable(f"timer {library!r} needs {library}, which is not installed") from None
    return _TorchClock(module) if library == "torch" else _CupyClock(module)
