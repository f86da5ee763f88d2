"""Progress of long products: whoever shows it sets a callback, engines call it from time to time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Callback = Callable[[int, int], None]

_callback: ContextVar[Callback | None] = ContextVar("gemmulate_progress", default=None)


@contextmanager
def reporting(callback: Callback) -> Iterator[None]:
    """Within the block, products of this context call `callback(done, total)` for each of their phases.

    The callback runs on the thread that called the product, at most about twenty times a second; an exception from
    it cancels the product and is passed on.
    """
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


def current() -> Callback | None:
    """The callback of this context, if any."""
    return _callback.get()
