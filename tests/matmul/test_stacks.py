"""Stacks run side by side: the same bits, errors and interruptions as one after another."""

import signal
import subprocess
import sys
import threading
import time
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


def test_the_first_error_in_the_order_of_the_stack_is_raised() -> None:
    stack = as_stack(np.zeros((64, 50, 50)), np.zeros((50, 50)))
    later = threading.Event()

    def body(_: Any, index: tuple[int, ...]) -> int:
        if index[0] == 0:
            assert later.wait(20)  # a later product has failed before this one does
            raise ValueError("first")
        if index[0] == 8:
            later.set()
            raise ValueError("later")
        return index[0]

    with pytest.raises(ValueError, match="first"):
        stacks.each(get_engine("native", 2), stack, body)


def test_without_further_threads_the_caller_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    a = np.random.default_rng(5).standard_normal((64, 50, 50))
    want = gm.matmul(a, a, threads=1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert_bits(gm.matmul(a, a, threads=2), want)


@pytest.mark.parametrize("use", ["atexit.register(late)", "threading.Thread(target=late).start()"])
def test_stacks_while_the_interpreter_ends(use: str) -> None:
    """In exit handlers, and on threads that outlive the main one; also where nothing was multiplied before."""
    code = f"""
import atexit, threading, time
import numpy as np
import gemmulate as gm
a = np.ones((64, 50, 50))
def late():
    while threading.current_thread() is not threading.main_thread() and threading.main_thread().is_alive():
        time.sleep(0.01)
    time.sleep(0.1)
    print((gm.matmul(a, a, threads=2) == 50).all(), gm.matmul(a[0], a[0], threads=2)[0, 0])
{use}
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.split() == ["True", "50.0"], ran.stderr


def test_after_an_interruption_nothing_runs_any_more() -> None:
    stack = as_stack(np.zeros((64, 50, 50)), np.zeros((50, 50)))
    running: list[int] = []

    def body(_: Any, index: tuple[int, ...]) -> None:
        running.append(index[0])
        time.sleep(0.02)
        running.remove(index[0])

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                stacks.each(get_engine("native", 2), stack, body)
            assert running == []
    finally:
        signal.signal(signal.SIGALRM, before)
