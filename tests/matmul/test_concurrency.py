"""Threads, signals and forks: concurrent calls are right, Ctrl-C ends a long product within a second, a forked child
can multiply, and other Python threads run meanwhile. Everything runs in subprocesses that a time limit ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate.engines import native
from matmul.checks import assert_bits
from matmul.inputs import floats, integers

linux = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and fork")


def run_script(script: str, *arguments: str, timeout: float = 120) -> str:
    run = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert run.returncode == 0, f"exit {run.returncode}\n{run.stdout}\n{run.stderr[-3000:]}"
    return run.stdout


def test_concurrent_calls_give_the_right_bits(engine: str) -> None:
    """Different shapes, dtypes and grades at once, each with inner threads of its own."""
    rng, jobs = np.random.default_rng(81), []
    for i in range(12):
        m, k, n = (int(v) for v in rng.integers(20, 120, 3))
        if i % 3 == 0:
            a, b, options = integers(rng, (m, k), "i8"), integers(rng, (k, n), "i8"), {"overflow": "wrap"}
        else:
            a, b = floats(rng, (m, k), -20, 20), floats(rng, (k, n), -20, 20)
            options = {"accuracy": ("fp64", "exact")[i % 2]}
        jobs.append((a, b, options))
    want = [gm.matmul(a, b, engine=engine, threads=1, **options) for a, b, options in jobs]

    def call(i: int) -> tuple[int, Any]:
        a, b, options = jobs[i % len(jobs)]
        return i % len(jobs), gm.matmul(a, b, engine=engine, threads=1 + i % 3, **options)

    with ThreadPoolExecutor(6) as pool:
        for i, got in pool.map(call, range(5 * len(jobs))):
            assert_bits(got, want[i])


def _gaussian(rng: np.random.Generator, n: int) -> Any:
    return rng.standard_normal((n, n))


def _wide(rng: np.random.Generator, n: int) -> Any:
    """Spread so far that elements go to the long accumulator."""
    return np.ldexp(rng.standard_normal((n, n)), rng.integers(-300, 300, (n, n)))


def _int64(rng: np.random.Generator, n: int) -> Any:
    return rng.integers(-(2**63), 2**63 - 1, (n, n))


def _python_ints(rng: np.random.Generator, n: int) -> Any:
    return _int64(rng, n).astype(object) ** 5


# Large enough that every phase is worth several threads (native/parallel.hpp, useful_threads).
TEAMS: dict[str, tuple[Callable[[np.random.Generator, int], Any], int, dict[str, Any]]] = {
    "int8": (lambda rng, n: rng.integers(-128, 128, (n, n)).astype(np.int8), 900, {}),
    "int64 wrap": (_int64, 400, {"overflow": "wrap"}),
    "int64 object": (_int64, 250, {"overflow": "object"}),
    "modulus": (_int64, 250, {"modulus": 2**63 - 25}),
    "Python ints": (_python_ints, 120, {}),
    "fast": (_gaussian, 300, {"accuracy": "fast"}),
    "fp64": (_gaussian, 300, {"accuracy": "fp64"}),
    "exact": (_gaussian, 300, {"accuracy": "exact"}),
    "exact, wide": (_wide, 150, {"accuracy": "exact"}),
    "float32": (lambda rng, n: _gaussian(rng, n).astype(np.float32), 400, {"accuracy": "exact"}),
    "complex": (lambda rng, n: _gaussian(rng, n) + 1j * _gaussian(rng, n), 200, {}),
    "stack": (lambda rng, n: rng.standard_normal((40, n, n)), 50, {}),
    "strided": (lambda rng, n: _gaussian(rng, 2 * n)[::2, ::2], 300, {}),
}


@pytest.mark.parametrize("kind", TEAMS)
def test_a_team_of_threads_gives_the_bits_of_one(kind: str) -> None:
    """Every kind of product, and of a matrix with its transpose, by four threads."""
    if not next(r for r in gm.engines() if r.name == "native").available:
        pytest.skip("native does not run here")
    make, n, options = TEAMS[kind]
    rng = np.random.default_rng(86)
    a, b = make(rng, n), make(rng, n)
    for right in (b, np.swapaxes(a, -1, -2)):
        want = gm.matmul(a, right, engine="native", threads=1, **options)
        assert_bits(gm.matmul(a, right, engine="native", threads=4, **options), want)


@pytest.mark.parametrize("kind", ["modulus", "int64 object", "fp64"])
def test_a_team_of_threads_gives_the_bits_of_one_with_halved_operands(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Strassen's algorithm, from a smaller size on than where it pays, against the plain product."""
    if not next(r for r in gm.engines() if r.name == "native").available:
        pytest.skip("native does not run here")
    make, n, options = TEAMS[kind]
    rng = np.random.default_rng(88)
    a, b = make(rng, n), make(rng, n)
    want = gm.matmul(a, b, engine="native", threads=1, **options)
    for name in list(native._HALVING_SIZE):
        monkeypatch.setitem(native._HALVING_SIZE, name, 64)
    assert_bits(gm.matmul(a, b, engine="native", threads=4, **options), want)


def test_a_team_of_threads_multiplies_pairs() -> None:
    if not next(r for r in gm.engines() if r.name == "native").available:
        pytest.skip("native does not run here")
    rng = np.random.default_rng(87)
    a, b = (gm.DoubleDouble(_gaussian(rng, 200), 2.0**-60 * _gaussian(rng, 200)) for _ in range(2))
    want, got = (gm.matmul(a, b, engine="native", threads=threads) for threads in (1, 4))
    assert_bits(got.hi, want.hi)
    assert_bits(got.lo, want.lo)


def test_concurrent_calls_share_an_operand(engine: str) -> None:
    rng = np.random.default_rng(82)
    a = floats(rng, (60, 80), -10, 10)
    blocks = [floats(rng, (80, 50), -10, 10) for _ in range(8)]
    want = [gm.matmul(a, b, engine=engine) for b in blocks]
    outs = [np.empty((60, 50)) for _ in blocks]
    threads = [
        threading.Thread(target=gm.matmul, args=(a, b), kwargs={"out": out, "engine": engine})
        for b, out in zip(blocks, outs, strict=True)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for out, w in zip(outs, want, strict=True):
        assert_bits(out, w)


def test_an_error_in_one_thread_does_not_touch_another(engine: str) -> None:
    small = np.arange(4000).reshape(50, 80)
    big = np.full((50, 80), 2**62)
    want = small @ small.T

    def call(i: int) -> bool:
        if i % 2:
            with pytest.raises(gm.ResultOverflow):
                gm.matmul(big, big.T, engine=engine)
            return True
        return bool((gm.matmul(small, small.T, engine=engine) == want).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(40)))


INTERRUPTED = """
import signal, sys, time
import numpy as np, gemmulate as gm
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits "ignore"
engine, kind, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = np.random.default_rng(83)
if kind == "integers":
    a = rng.integers(-2**60, 2**60, (n, n))
    call = lambda: gm.matmul(a, a, overflow="wrap", engine=engine)
elif kind == "object":
    a = rng.integers(-2**60, 2**60, (n, n))
    call = lambda: gm.matmul(a, a, overflow="object", engine=engine)
elif kind == "stack":
    a = rng.standard_normal((n, 64, 64))
    call = lambda: gm.matmul(a, a, accuracy="exact", engine=engine)
else:
    a = np.ldexp(rng.standard_normal((n, n)), rng.integers(-150, 150, (n, n)) if kind == "wide" else 0)
    call = lambda: gm.matmul(a, a, accuracy="exact", engine=engine)
small = a[..., :2, :2]
gm.matmul(small, small, engine=engine, accuracy="exact", overflow="wrap")
print("started", flush=True)
try:
    while True:
        call()
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
x = np.arange(900).reshape(30, 30)
assert (gm.matmul(x, x, engine=engine) == x @ x).all()
y = np.arange(9.0).reshape(3, 3)
assert (gm.matmul(y, y, engine=engine, accuracy="exact") == [[15, 18, 21], [42, 54, 66], [69, 90, 111]]).all()
print("fine")
"""


@linux
@pytest.mark.parametrize(
    ("engine_name", "kind", "n"),
    [
        ("native", "integers", 5000),
        ("native", "object", 2500),
        ("native", "floats", 4500),
        ("native", "wide", 900),
        ("native", "stack", 4000),
        ("reference", "integers", 1200),
        ("reference", "floats", 1200),
        ("reference", "wide", 500),
    ],
)
def test_ctrl_c_ends_a_long_product_within_a_second(engine_name: str, kind: str, n: int) -> None:
    """Calls far longer than a second, repeated; interrupted early or late in one. Best of three, as CPUs are shared."""
    if not next(r for r in gm.engines() if r.name == engine_name).available:
        pytest.skip(f"{engine_name} does not run here")
    latencies: list[float] = []
    for delay in (0.4, 1.1, 1.7):
        with subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, engine_name, kind, str(n)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "started\n", process.communicate()[1]
                time.sleep(delay)
                sent = time.monotonic()
                os.kill(process.pid, signal.SIGINT)
                output, errors = process.communicate(timeout=60)
            finally:
                process.kill()
            assert process.returncode == 0, errors[-2000:]
            stopped, verdict = output.split()
            assert verdict == "fine"
            latencies.append(float(stopped) - sent)
        if latencies[-1] <= 1:
            return
    pytest.fail(f"KeyboardInterrupt came after {latencies} s")


FORKED = """
import multiprocessing, os, sys
import numpy as np, gemmulate as gm
engine = sys.argv[1]
rng = np.random.default_rng(84)
a, b = rng.standard_normal((300, 300)), rng.standard_normal((300, 300))
c = gm.matmul(a, b, engine=engine, threads=2)  # starts the parent's thread pool
i = rng.integers(-2**20, 2**20, (300, 300))
d = gm.matmul(i, i, engine=engine, threads=2)

def child(threads):
    return ((gm.matmul(a, b, engine=engine, threads=threads) == c).all()
            and (gm.matmul(i, i, engine=engine, threads=threads) == d).all())

with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(pool.map(child, [1, 2, None, 3]))
assert (gm.matmul(a, b, engine=engine, threads=2) == c).all()
print("fine")
"""


@linux
def test_a_forked_child_can_multiply(engine: str) -> None:
    if engine not in ("native", "reference"):
        pytest.skip("the thread pool is shared by the instruction sets")
    assert run_script(FORKED, engine, timeout=60) == "fine\n"


TICKING = """
import sys, threading, time
import numpy as np, gemmulate as gm
engine, n = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(85)
a = rng.integers(-2**60, 2**60, (n, n)) if sys.argv[3] == "i8" else rng.standard_normal((n, n))
ticks, done = [], threading.Event()

def tick():
    while not done.is_set():
        ticks.append(time.monotonic())
        time.sleep(0.002)

thread = threading.Thread(target=tick)
thread.start()
start = time.monotonic()
while time.monotonic() - start < 1:
    begun = time.monotonic()
    gm.matmul(a, a, overflow="wrap", accuracy="exact", engine=engine, threads=1)
    ended = time.monotonic()
done.set()
thread.join()
inside = [t for t in ticks if begun < t < ended]
print(len(inside), ended - begun)
"""


@pytest.mark.parametrize("dtype", ["i8", "f8"])
def test_other_python_threads_run_meanwhile(engine: str, dtype: str) -> None:
    """A thread that wakes every 2 ms gets through during one call; with the GIL held it would not run once."""
    if engine not in ("native", "native-scalar", "reference"):
        pytest.skip("the GIL is released in one place")
    sizes = {"native": (2000, 1500), "native-scalar": (800, 400), "reference": (600, 300)}[engine]
    n = sizes[dtype == "f8"]
    inside, seconds = (float(v) for v in run_script(TICKING, engine, str(n), dtype).split())
    assert seconds > 0.05, "the call is too short to tell"
    assert inside >= max(3, seconds / 0.05), f"{inside:.0f} ticks in {seconds:.2f} s"
