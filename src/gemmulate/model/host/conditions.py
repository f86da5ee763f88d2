"""How this host is measured: one thread, memory that comes the same way every time, least times of some passes."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from gemmulate.engines import get_engine
from gemmulate.engines.base import Engine
from gemmulate.model.checks import ModelError

# Passes over all sizes, some tens of seconds apart: on a shared machine the last cache is at times another's, and the
# least times of two runs only compare if both had a quiet moment.
PASSES: Final = 3
# glibc maps blocks above a threshold anew, page by page at first touch, and raises the threshold to the size of each
# mapped block that is freed, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD).
_LARGEST_HEAP_BLOCK: Final = 31 << 20


@contextlib.contextmanager
def one_thread() -> Iterator[Engine]:
    """The native engine and NumPy's BLAS on one thread each, and an allocator that has seen large blocks.

    Raises:
        ModelError: SciPy or threadpoolctl is missing.
        EngineUnavailable: there is no native engine.
    """
    try:
        import scipy.sparse  # noqa: F401
        import threadpoolctl
    except ImportError as error:
        raise ModelError(f"{error.name} is needed to measure this host; install scipy and threadpoolctl") from None
    engine = get_engine("native", 1)
    settle_allocator()
    with threadpoolctl.threadpool_limits(1):
        yield engine


def settle_allocator() -> None:
    """Have later blocks below 32 MiB come from the heap, whatever the process freed before.

    Temporaries of NumPy's expressions were mapped at every call in a fresh process, and not in one that had freed a
    large array: a stencil of 88³ took 9.8 or 4.1 ns a point (Zen 4, 2026-11-30), so that a calibration said little
    of another process. Elsewhere than on glibc it does nothing.
    """
    np.empty(_LARGEST_HEAP_BLOCK, dtype=np.uint8)


def processor_seconds(run: Callable[[], object], *, least: int = 3, budget_s: float = 0.1) -> tuple[float, float]:
    """(least, median) processor time of a few calls after a first one; other programs' slices do not count."""
    run()
    seen: list[float] = []
    end = time.perf_counter() + budget_s
    while len(seen) < least or (time.perf_counter() < end and len(seen) < 1000):
        start = time.process_time()
        run()
        seen.append(max(time.process_time() - start, 1e-9))
    return min(seen), statistics.median(seen)
