"""Memory: no leak on any path, references are returned, and a large product takes little memory beside its inputs."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from matmul.conftest import require

Matmul = Callable[..., Any]
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident size is read from Linux's /proc")

LEAK = """
import os, sys
import numpy as np, gemmulate as gm
engine, kind, count = *sys.argv[1:3], int(sys.argv[3])
rng = np.random.default_rng(101)
n = 64
f, i = rng.standard_normal((n, n)), rng.integers(-2**60, 2**60, (n, n))
wide = np.ldexp(f, rng.integers(-300, 300, (n, n)))
special = np.where(rng.random((n, n)) < 0.01, np.nan, f)
out = np.empty((n, n))
o = i[:8].astype(object)

def refused(*operands, **options):
    try:
        gm.matmul(*operands, engine=engine, **options)
    except (TypeError, ValueError, OverflowError):
        return
    raise AssertionError

calls = {
    "floats": lambda: (gm.matmul(f, f, engine=engine), gm.matmul(f[::-1].T, f, out=out, engine=engine)),
    "exact": lambda: gm.matmul(wide[:8], wide[:, :8], accuracy="exact", engine=engine),
    "special": lambda: gm.matmul(special, f, engine=engine),
    "wrap": lambda: gm.matmul(i, i, overflow="wrap", engine=engine),
    "object": lambda: (gm.matmul(i[:8], i[:, :8], overflow="object", engine=engine), gm.matmul(o, o.T, engine=engine)),
    "errors": lambda: (refused(i, i), refused(f, f[:3]), refused(f, f, out=np.empty((2, 2))), refused(f, o)),
}
pages = lambda: int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
for _ in range(count // 10):
    calls[kind]()
before = pages()
for _ in range(count):
    calls[kind]()
print(pages() - before)
"""


@linux
@pytest.mark.parametrize("kind", ["floats", "exact", "special", "wrap", "object", "errors"])
def test_repeated_calls_do_not_grow(engine: str, kind: str) -> None:
    """Losing one 64×64 float64 operand in each call would take 32 kB a call, 8 times the limit."""
    if engine not in ("native", "reference"):
        pytest.skip("memory is handled above the instruction sets")
    count = 800 if engine == "native" else 150
    run = subprocess.run(
        [sys.executable, "-c", LEAK, engine, kind, str(count)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) / count < 4096, f"{int(run.stdout) / count:.0f} bytes a call"


def test_references_are_returned(mm: Matmul) -> None:
    operands = [np.ones((5, 5)), np.ones((5, 5), dtype=np.int64), np.full((5, 5), 2**62), np.empty((5, 5))]
    a, i, big, out = operands
    counts = [sys.getrefcount(x) for x in operands]
    for _ in range(5):
        mm(a, a, out=out)
        mm(a.T, a[::-1], accuracy="exact")
        mm(i, i)
        mm(big, big, overflow="object")
        for bad in (lambda: mm(big, big), lambda: mm(a, a[:2]), lambda: mm(a, a, out=out[:2]), lambda: mm(a, None)):
            with suppress(gm.ResultOverflow, ValueError, TypeError):
                bad()
    assert [sys.getrefcount(x) for x in operands] == counts


def test_the_result_owns_its_memory(mm: Matmul) -> None:
    """It outlives its operands, and later calls do not write into it."""
    a = np.arange(10_000.0).reshape(100, 100)
    c = mm(a, a)
    kept = c.copy()
    del a
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((100, 100))
        mm(x, x)
    assert (c == kept).all()


PEAK = """
import resource, sys
import numpy as np, gemmulate as gm
n, kind = 2048, sys.argv[1]
rng = np.random.default_rng(102)
a, b = (rng.standard_normal((n, n)) if kind == "f8" else rng.integers(-2**60, 2**60, (n, n)) for _ in range(2))
gm.matmul(a[:64, :64], b[:64, :64], overflow="wrap")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
gm.matmul(a, b, accuracy=sys.argv[2], overflow="wrap")
print((peak() - before) / (a.nbytes + b.nbytes))
"""


@linux
@pytest.mark.parametrize(("kind", "accuracy"), [("f8", "fast"), ("f8", "fp64"), ("f8", "exact"), ("i8", "exact")])
def test_peak_memory_is_at_most_three_times_the_inputs(kind: str, accuracy: str) -> None:
    require("native")
    run = subprocess.run(
        [sys.executable, "-c", PEAK, kind, accuracy], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert float(run.stdout) <= 3


NO_ROOM = """
import resource
import numpy as np, gemmulate as gm
x = np.broadcast_to(np.int8(1), (1 << 20, 1))
resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
try:
    gm.matmul(x, x.T, engine="native")
except MemoryError as error:
    print(error)
"""


@linux
def test_a_result_that_no_memory_holds_is_numpys_error() -> None:
    """2^40 results of 8 bytes, beyond the address space that the process may have."""
    require("native")
    run = subprocess.run([sys.executable, "-c", NO_ROOM], capture_output=True, text=True, timeout=120, check=False)
    assert "Unable to allocate 8.00 TiB for an array with shape (1048576, 1048576)" in run.stdout, run.stderr[-2000:]
