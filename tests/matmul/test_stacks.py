"""Stacks run side by side: the same bits, errors and interruptions as one after another."""

import threading
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate.engines import get_engine
from gemmulate.plan import stacks
from gemmulate.plan.operands import as_stack

from .checks import assert_bits


def test_bits_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(81)
    floats = rng.standard_normal((40, 50, 60)), rng.standard_normal((60, 45))
    integers = rng.integers(-(2**40), 2**40, (30, 50, 60)), rng.integers(-(2**20), 2**20, (30, 60, 55))
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        (*floats, {}),
        (*floats, {"accuracy": "exact"}),
        (floats[0].astype("c16"), floats[1] * 1j, {}),
        (*integers, {"overflow": "object"}),
        (*integers, {"overflow": "wrap"}),
        (*integers, {"modulus": 10**9 + 7}),
        (integers[0] % 100, integers[1] % 100, {}),
        (np.swapaxes(floats[0], 0, 2), floats[0][:20].reshape(1, 40, 1500), {"accuracy": "fast"}),
    ]
    for a, b, options in cases:
        want = gm.matmul(a, b, threads=1, **options)
        assert_bits(gm.matmul(a, b, threads=3, **options), want)
        out = np.empty_like(want)
        gm.matmul(a, b, threads=2, out=out, **options)
        assert_bits(out, want)


def test_small_products_are_shared_and_errors_come_through() -> None:
    engine = get_engine("native", 2)
    stack = as_stack(np.zeros((64, 50, 50)), np.zeros((50, 50)))
    seen: set[int] = set()
    barrier = threading.Barrier(2, timeout=20)

    def body(alone: Any, index: tuple[int, ...]) -> int:
        assert alone.threads == 1
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            barrier.wait()  # passes only if two threads are inside at once
        return index[0]

    assert stacks.each(engine, stack, body) == list(range(64))
    assert len(seen) == 2
    done: list[int] = []

    def failing(_: Any, index: tuple[int, ...]) -> None:
        done.append(index[0])
        if index[0] == 9:
            raise ValueError("nine")

    with pytest.raises(ValueError, match="nine"):
        stacks.each(engine, stack, failing)
    assert len(done) < 64


def test_overflow_in_a_stack_is_reported_and_out_is_unchanged() -> None:
    a = np.full((60, 50, 50), 2**20)
    a[37] = 2**62
    out = np.full((60, 50, 50), 5)
    with pytest.raises(gm.ResultOverflow):
        gm.matmul(a, np.full((50, 50), 2**20), out=out, threads=2)
    assert (out == 5).all()
