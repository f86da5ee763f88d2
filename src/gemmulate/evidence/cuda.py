"""CUDA callables, timed with events of torch or CuPy, optionally with the L2 cache flushed before each run.

Not run on a GPU: no figure of this project comes from here. The tests drive the same code with a simulated library.
"""

from collections.abc import Callable
from typing import Any, final

from gemmulate.engines.stopwatch import stopwatch
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
        self._clock = stopwatch(library)
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
