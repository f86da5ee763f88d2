"""The same bits on every engine, thread count, memory layout and run; blocks of a product are blocks of the whole."""

import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmulate as gm
from matmul.checks import assert_bits, bits_of
from matmul.inputs import INTEGER_DTYPES, LAYOUTS, floats, integers
from matmul.oracles import Array

FLOATS = [np.dtype("f4"), np.dtype("f8")]
ACCURACIES = ["fast", "fp64", "exact"]


def draw_operands(
    seed: int, shape: tuple[int, int, int], dtype: np.dtype[Any], spread: int, special: float
) -> tuple[Array, Array]:
    rng, (m, k, n) = np.random.default_rng(seed), shape
    if dtype.kind != "f":
        return integers(rng, (m, k), dtype), integers(rng, (k, n), dtype)
    spread = min(spread, 50) if dtype == "f4" else spread
    operands = []
    for s in ((m, k), (k, n)):
        x = floats(rng, s, -spread, spread, dtype, zeros=0.1)
        if special:
            chosen = rng.random(s) < special
            x[chosen] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e-40], dtype=dtype), chosen.sum())
        operands.append(x)
    return operands[0], operands[1]


@settings(max_examples=80)
@given(
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(0, 70), st.integers(0, 140), st.integers(0, 70)),
    dtype=st.sampled_from([*FLOATS, *FLOATS, *INTEGER_DTYPES]),
    spread=st.sampled_from([0, 2, 10, 40, 150, 450]),
    special=st.sampled_from([0.0, 0.0, 0.02]),
)
def test_engines_threads_and_layouts_agree(
    available_engines: list[str],
    data: st.DataObject,
    seed: int,
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    spread: int,
    special: float,
) -> None:
    a, b = draw_operands(seed, shape, dtype, spread, special)
    options: dict[str, Any] = {"accuracy": data.draw(st.sampled_from(ACCURACIES))}
    if dtype.kind != "f":
        options = {"overflow": data.draw(st.sampled_from(["wrap", "object"]))}
    want = gm.matmul(a, b, **options)
    for engine in available_engines:
        left, right = (LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))](x) for x in (a, b))
        threads = data.draw(st.sampled_from([None, 1, 2, 3, 4, 8]))
        assert_bits(gm.matmul(left, right, engine=engine, threads=threads, **options), want)


@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("spread", [1, 12, 45])
def test_one_to_eight_threads(engine: str, accuracy: str, dtype: np.dtype[Any], spread: int) -> None:
    sizes = [(1, 700, 1), (3, 40, 90)]
    if engine != "reference":
        sizes += [(3, 40, 300), (130, 65, 97)] + ([(257, 300, 259)] if engine == "native" else [])
    for shape in sizes:
        a, b = draw_operands(71, shape, dtype, spread, 0.0)
        want = gm.matmul(a, b, accuracy=accuracy, engine=engine, threads=1)
        for threads in range(2, 9):
            assert_bits(gm.matmul(a, b, accuracy=accuracy, engine=engine, threads=threads), want)
        assert_bits(gm.matmul(a, b, accuracy=accuracy, engine=engine), want)
        assert_bits(gm.matmul(a, b, accuracy=accuracy), want)


@pytest.mark.parametrize("overflow", ["wrap", "object"])
@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "u8", "?"])
def test_one_to_eight_threads_of_integers(engine: str, overflow: str, dtype: str) -> None:
    for shape in ((1, 700, 1), (3, 40, 90) if engine == "reference" else (130, 65, 197)):
        a, b = draw_operands(72, shape, np.dtype(dtype), 0, 0.0)
        want = gm.matmul(a, b, overflow=overflow, engine=engine, threads=1)
        for threads in range(2, 9):
            assert_bits(gm.matmul(a, b, overflow=overflow, engine=engine, threads=threads), want)
        assert_bits(gm.matmul(a, b, overflow=overflow), want)


def test_the_overflow_error_is_the_same_everywhere(available_engines: list[str]) -> None:
    """The bit length named is a property of the product, not of the block that was finished first."""
    rng = np.random.default_rng(73)
    a, b = integers(rng, (120, 90), "i8"), integers(rng, (90, 110), "i8")
    a[77] = b[:, 5] = -(2**63)
    seen = set()
    for engine, threads in itertools.product(available_engines, (1, 2, 5)):
        with pytest.raises(gm.ResultOverflow) as caught:
            gm.matmul(a, b, engine=engine, threads=threads)
        seen.add((caught.value.bits, str(caught.value)))
    assert len(seen) == 1


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype("i1"), np.dtype("i8")], ids=str)
def test_blocks_of_rows_and_columns(engine: str, dtype: np.dtype[Any]) -> None:
    """Exact grades: C[rows, columns] = A[rows]·B[:, columns] bit for bit, and k may be split for wrapped integers."""
    m, k, n = (100, 90, 110) if engine == "native" else (40, 50, 45)
    a, b = draw_operands(74, (m, k, n), dtype, 40, 0.001 if dtype.kind == "f" else 0.0)
    options: dict[str, Any] = {"accuracy": "exact"} if dtype.kind == "f" else {"overflow": "wrap"}
    whole = gm.matmul(a, b, engine=engine, **options)
    for rows, columns in itertools.product((1, 7, 32, 33, m), (1, 16, 31, n)):
        for i, j in ((0, 0), (m - rows, n - columns), ((m - rows) // 2, (n - columns) // 3)):
            block = gm.matmul(a[i : i + rows], b[:, j : j + columns], engine=engine, **options)
            assert_bits(block, whole[i : i + rows, j : j + columns])
    if dtype.kind == "i":
        with np.errstate(over="ignore"):
            halves = [gm.matmul(a[:, s], b[s], engine=engine, **options) for s in (slice(0, 17), slice(17, None))]
            assert_bits(halves[0] + halves[1], whole)


def test_transposes(engine: str) -> None:
    """(AB)^T = B^T·A^T: the order of the operands is no part of an exact result."""
    for dtype in (*FLOATS, np.dtype("i8")):
        a, b = draw_operands(75, (35, 50, 40), dtype, 30, 0.0)
        options: dict[str, Any] = {"accuracy": "exact"} if dtype.kind == "f" else {"overflow": "wrap"}
        assert_bits(gm.matmul(b.T, a.T, engine=engine, **options), gm.matmul(a, b, engine=engine, **options).T)


def test_permutations_of_the_sum(engine: str) -> None:
    """Exact results and proven ones do not depend on the order of summation."""
    rng = np.random.default_rng(76)
    for dtype in FLOATS:
        a, b = draw_operands(77, (20, 130, 20), dtype, 20, 0.0)
        order = rng.permutation(130)
        for accuracy in ("fast", "exact"):
            want = gm.matmul(a, b, accuracy=accuracy, engine=engine)
            assert_bits(gm.matmul(a[:, order], b[order], accuracy=accuracy, engine=engine), want)


RUN = """
import hashlib, sys
import numpy as np, gemmulate as gm
rng = np.random.default_rng(78)
digest = hashlib.sha256()
for scale in (0, 30, 200):
    a = np.ldexp(rng.standard_normal((90, 120)), rng.integers(-scale, scale + 1, (90, 120)))
    b = np.ldexp(rng.standard_normal((120, 80)), rng.integers(-scale, scale + 1, (120, 80)))
    for accuracy in ("fast", "fp64", "exact"):
        digest.update(gm.matmul(a, b, accuracy=accuracy).tobytes())
        digest.update(gm.matmul(a.astype("f4"), b.astype("f4"), accuracy=accuracy).tobytes())
    digest.update(gm.matmul(a.view(np.int64), b.view(np.int64), overflow="wrap").tobytes())
print(digest.hexdigest())
"""


def test_two_runs_in_different_surroundings() -> None:
    """Fresh processes with other thread settings and hash seeds."""
    digests = set()
    for extra in (
        {},
        {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1"},
        {"OMP_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "1"},
    ):
        run = subprocess.run(
            [sys.executable, "-W", "ignore::RuntimeWarning", "-c", RUN],
            env={**os.environ, **extra}, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        digests.add(run.stdout)
    assert len(digests) == 1


def test_repeated_calls(engine: str) -> None:
    for dtype, accuracy in itertools.product(FLOATS, ACCURACIES):
        a, b = draw_operands(79, (64, 100, 70), dtype, 15, 0.01)
        want = bits_of(gm.matmul(a, b, accuracy=accuracy, engine=engine)).copy()
        for _ in range(5):
            assert (bits_of(gm.matmul(a, b, accuracy=accuracy, engine=engine)) == want).all()
