"""Stacks of small matrices: their products run side by side, one thread for each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from gemmulate.engines.base import Engine
from gemmulate.plan.operands import Stack

# m · k · n of one product: larger ones keep all threads busy by themselves (256³ takes some milliseconds).
LARGEST_SHARED = 1 << 24
# Of the whole stack: below about 0.3 ms of work, starting threads costs more than they bring.
LEAST_SHARED = 1 << 22

Index = tuple[int, ...]
Result = TypeVar("Result")


def each(engine: Engine, stack: Stack, body: Callable[[Engine, Index], Result]) -> list[Result]:
    """body(engine, index) for every product of the stack, in order; side by side where the products are small.

    `body` then gets the engine on one thread, and runs on several threads of Python: it writes to its own part alone.
    The first error in the order of the stack is raised; products that have not begun are dropped.
    """
    indices = list(np.ndindex(*stack.batch))
    m, n = stack.full_shape[-2:]
    work = m * n * stack.depth
    workers = min(engine.threads, len(indices))
    if workers < 2 or work > LARGEST_SHARED or work * len(indices) < LEAST_SHARED:
        return [body(engine, index) for index in indices]
    return _side_by_side(engine.alone(), indices, workers, body)


def _side_by_side(
    alone: Engine, indices: list[Index], workers: int, body: Callable[[Engine, Index], Result]
) -> list[Result]:
    """`each` on threads of its own: those of concurrent.futures refuse work once the interpreter's main thread ends."""
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    size, count = -(-len(indices) // (4 * workers)), len(indices)
    starts, end = iter(range(0, count, size)), count  # products from `end` on are dropped
    lock = threading.Lock()

    def work() -> None:
        nonlocal end
        while True:
            with lock:
                start = next(starts, count)
            for i in range(start, min(start + size, count)):
                if i >= end:
                    break
                try:
                    results[i] = body(alone, indices[i])
                except BaseException as error:  # raised again by the calling thread
                    with lock:
                        errors[i], end = error, min(end, i)
            if start >= end:
                return

    threads: list[threading.Thread] = []
    try:
        for _ in range(workers):
            thread = threading.Thread(target=work)
            try:
                thread.start()
            except RuntimeError:  # no more threads: the system's limit, or the interpreter is about to end
                break
            threads.append(thread)
        if not threads:
            work()
        for thread in threads:
            thread.join()
    finally:
        end = 0 if len(results) < count else end  # an interruption: nothing more begins
        for thread in threads:
            thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[i] for i in range(count)]
