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
    following, end, running = 0, count, 0  # products from `end` on are dropped
    changed = threading.Condition()

    def work() -> None:
        nonlocal following, end, running
        while True:
            with changed:
                start = following
                if start >= end:
                    return
                following, running = start + size, running + 1
            for i in range(start, min(start + size, count)):
                if i >= end:
                    break
                try:
                    results[i] = body(alone, indices[i])
                except BaseException as error:  # raised again by the calling thread
                    with changed:
                        errors[i], end = error, min(end, i)
            with changed:
                running -= 1
                changed.notify_all()

    try:
        for started in range(workers):
            try:
                threading.Thread(target=work).start()
            except RuntimeError:  # no more threads: the system's limit, or the interpreter is about to end
                if not started:
                    work()
                break
        with changed:
            changed.wait_for(lambda: following >= end and not running)
    except BaseException:  # an interruption: nothing more begins. (An interrupted Thread.join forgets its thread.)
        with changed:
            end = 0
            changed.wait_for(lambda: not running)
        raise
    if errors:
        raise errors[min(errors)]
    return [results[i] for i in range(count)]
