"""Stacks of small matrices: their products run side by side, one thread for each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    alone, stop = engine.alone(), threading.Event()

    def run(part: list[Index]) -> list[Result]:
        results = []
        for index in part:
            if stop.is_set():
                break
            results.append(body(alone, index))
        return results

    size = -(-len(indices) // (4 * workers))
    with ThreadPoolExecutor(workers) as pool:
        parts = [pool.submit(run, indices[i : i + size]) for i in range(0, len(indices), size)]
        try:
            return [result for part in parts for result in part.result()]
        finally:
            stop.set()  # after an error or an interruption
            pool.shutdown(wait=True, cancel_futures=True)
