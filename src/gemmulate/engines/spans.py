"""Phases of a product: whoever measures them records spans, the code that does the work names them.

Spans nest; each is known by its path, for example "multiply/products", the INT8 products within the multiplication of
packed operands. Without a recorder a span costs a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final, final

from gemmulate.engines.stopwatch import Mark, Stopwatch

_recorder: ContextVar[Recorder | None] = ContextVar("gemmulate_spans", default=None)
_NONE: Final = nullcontext()

# What a float product consists of, in the order in which it runs; "multiply" holds "multiply/products".
SURVEY: Final = "survey"  # exponents and norms of both operands
ASSESS: Final = "assess"  # the componentwise test, its INT8 product included
CONVERT_A: Final = "convert a"
CONVERT_B: Final = "convert b"
MULTIPLY: Final = "multiply"  # INT8 products, reduction, recombination and rounding
PRODUCTS: Final = "products"
REPAIR: Final = "repair"  # elements by the long accumulator


@final
class Recorder:
    """Spans of the calls made within `recording`, on the thread that called."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._path: list[str] = []
        self._spans: list[tuple[str, Mark, Mark]] = []

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """The block as a span of this name within those that are open."""
        self._path.append(name)
        path, start = "/".join(self._path), self._watch.mark()
        try:
            yield
        finally:
            self._spans.append((path, start, self._watch.mark()))
            self._path.pop()

    def seconds(self) -> dict[str, float]:
        """Seconds by path, summed over all spans of one path, the spans within them included."""
        found: dict[str, float] = {}
        for path, start, end in self._spans:
            found[path] = found.get(path, 0.0) + self._watch.seconds(start, end)
        return found


@contextmanager
def recording(watch: Stopwatch) -> Iterator[Recorder]:
    """Within the block, products of this context are recorded by phases."""
    recorder = Recorder(watch)
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


def span(name: str) -> AbstractContextManager[None]:
    """The block as a span of this name, where somebody records."""
    recorder = _recorder.get()
    return _NONE if recorder is None else recorder.span(name)
