"""Time on a device: marks in its stream of work, by events of torch or CuPy, and on the processor by its clock.

The CUDA stopwatches were not run on a GPU, only with a simulated library. Which library is named is imported when a
stopwatch is made.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any, final

from gemmulate.errors import EngineUnavailable

Mark = Any


class Stopwatch(ABC):
    """Seconds between two marks, each set when the work enqueued before it is done."""

    @abstractmethod
    def mark(self) -> Mark:
        """A mark behind the work of this thread so far; does not wait for it."""

    @abstractmethod
    def seconds(self, start: Mark, end: Mark) -> float:
        """Seconds between two marks; waits for the second."""

    @abstractmethod
    def wait(self) -> None:
        """Return when all work is done."""

    @abstractmethod
    def l2_flusher(self) -> Callable[[], Any]:
        """A function that overwrites a buffer of twice the size of the L2 cache."""

    def time(self, function: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds of one call that begins on an idle device, and its result."""
        self.wait()
        start = self.mark()
        result = function()
        return self.seconds(start, self.mark()), result


@final
class HostStopwatch(Stopwatch):
    """The processor's monotonic clock: its work is done when a call returns."""

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def wait(self) -> None:
        return None

    def l2_flusher(self) -> Callable[[], Any]:
        raise ValueError("the caches of a processor are not flushed; leave the flush out, or time on a CUDA device")


@final
class TorchStopwatch(Stopwatch):
    """Events of torch on the current stream of the current device. Not run on a GPU."""

    def __init__(self) -> None:
        self.torch = _library("torch")
        if not self.torch.cuda.is_available():
            raise EngineUnavailable("timer 'torch' needs a CUDA device, and torch sees none")

    def mark(self) -> Mark:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Mark, end: Mark) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def l2_flusher(self) -> Callable[[], Any]:
        size = self.torch.cuda.get_device_properties(self.torch.cuda.current_device()).L2_cache_size
        buffer = self.torch.empty(2 * size, dtype=self.torch.uint8, device="cuda")
        return lambda: buffer.zero_()


@final
class CupyStopwatch(Stopwatch):
    """Events of CuPy on the current stream. Not run on a GPU."""

    def __init__(self) -> None:
        self.cupy = _library("cupy")
        if not self.cupy.cuda.is_available():
            raise EngineUnavailable("timer 'cupy' needs a CUDA device, and CuPy sees none")

    def mark(self) -> Mark:
        event = self.cupy.cuda.Event()
        event.record()
        return event

    def seconds(self, start: Mark, end: Mark) -> float:
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def wait(self) -> None:
        self.cupy.cuda.get_current_stream().synchronize()

    def l2_flusher(self) -> Callable[[], Any]:
        size = self.cupy.cuda.Device().attributes["L2CacheSize"]
        buffer = self.cupy.empty(2 * size, dtype=self.cupy.uint8)
        return lambda: buffer.fill(0)


def stopwatch(library: str) -> Stopwatch:
    """The stopwatch of "torch", "cupy" or "host"; EngineUnavailable where the library or a CUDA device is missing."""
    if library == "host":
        return HostStopwatch()
    return TorchStopwatch() if library == "torch" else CupyStopwatch()


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise EngineUnavailable(f"timer {name!r} needs {name}, which is not installed") from None
