"""Speed: medians of interleaved runs beside NumPy, and FLINT where it is installed."""

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gemmulate.cli.demo.machine import has_native_core
from gemmulate.cli.output import print_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.generic]

TITLE = "Measuring speed"
_SEED = 20261129
_ROUNDS = 5
# A competitor that has run for this long runs no more, so that a slow one gets fewer runs and the demo still ends.
_BUDGET_S = 4.0


class Contest(msgspec.Struct, frozen=True):
    """One product, timed for each competitor."""

    job: str
    n: int
    median_s: dict[str, float]
    runs: dict[str, int]
    same: bool
    """Whether gemmulate's result equals the peer's where both are exact, else whether it keeps its bound."""
    remark: str


def measure() -> list[Contest]:
    """Time the products; on NumPy's engine alone, smaller ones."""
    return contests(1024, 2048) if has_native_core() else contests(128, 128)


def contests(n: int, n_float: int) -> list[Contest]:
    """Time integer products of order n and float products of order n_float on random data."""
    import numpy as np

    rng = np.random.default_rng(_SEED)

    def pair(low: int, high: int, dtype: type) -> "tuple[Matrix, Matrix]":
        a, b = (rng.integers(low, high, (n, n), dtype=dtype, endpoint=True) for _ in range(2))
        return a, b

    x, y = (rng.standard_normal((n_float, n_float)) for _ in range(2))
    return [
        _integers("int8", pair(-128, 127, np.int8), "exact, in int64 like NumPy's here"),
        _integers("int64 of 27 bits", pair(-(2**26), 2**26, np.int64), "exact, overflow checked"),
        _wrapping("int64 wrapping", pair(-(2**63), 2**63 - 1, np.int64), "bit for bit NumPy's"),
        _floats("float64 fp64", x, y, "fp64", "same bits everywhere, bound proven"),
        _floats("float64 exact", x, y, "exact", "correctly rounded"),
    ]


def _integers(job: str, operands: "tuple[Matrix, Matrix]", remark: str) -> Contest:
    import numpy as np

    import gemmulate as gm

    a, b = operands
    calls: dict[str, Callable[[], Any]] = {
        "gemmulate": lambda: gm.matmul(a, b),
        "NumPy": lambda: np.matmul(a, b, dtype=np.int64),
    }
    calls |= _flint(a, b)
    medians, runs, results = _contest(calls)
    return Contest(job, len(a), medians, runs, np.array_equal(results["gemmulate"], results["NumPy"]), remark)


def _wrapping(job: str, operands: "tuple[Matrix, Matrix]", remark: str) -> Contest:
    import numpy as np

    import gemmulate as gm

    a, b = operands
    medians, runs, results = _contest(
        {"gemmulate": lambda: gm.matmul(a, b, overflow="wrap"), "NumPy": lambda: np.matmul(a, b)}
    )
    same = np.array_equal(results["gemmulate"], results["NumPy"])
    return Contest(job, len(a), medians, runs, same, remark)


def _floats(job: str, a: "Matrix", b: "Matrix", accuracy: Literal["fp64", "exact"], remark: str) -> Contest:
    import numpy as np

    import gemmulate as gm

    medians, runs, results = _contest(
        {"gemmulate": lambda: gm.matmul(a, b, accuracy=accuracy), "NumPy": lambda: np.matmul(a, b)}
    )
    # Both keep |C − AB| ≤ k·u·|A||B|, so they differ by twice that at most; magnitudes summed by NumPy err by k·u more.
    k, u = a.shape[-1], 2.0**-53
    bound = 2 * k * u * np.matmul(np.abs(a), np.abs(b)) * (1 + 2 * k * u)
    same = bool((np.abs(results["gemmulate"] - results["NumPy"]) <= bound).all())
    return Contest(job, len(a), medians, runs, same, remark)


def _flint(a: "Matrix", b: "Matrix") -> dict[str, Callable[[], Any]]:
    """FLINT's product of the same integers, all threads, without the conversion."""
    try:
        import flint
    except ImportError:
        return {}
    from gemmulate.cli.doctor import usable_threads

    flint.ctx.threads = usable_threads()
    left, right = flint.fmpz_mat(a.tolist()), flint.fmpz_mat(b.tolist())
    return {"FLINT": lambda: left * right}


def _contest(calls: dict[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, int], dict[str, Any]]:
    """Medians of interleaved runs, so that a disturbance meets all competitors, with their counts and results.

    The first run of each warms up; it counts only for a competitor too slow to run again.
    """
    results: dict[str, Any] = {}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 + _ROUNDS):
        for name, call in calls.items():
            if sum(times[name]) < _BUDGET_S:
                start = time.perf_counter()
                results[name] = call()
                times[name].append(time.perf_counter() - start)
    counted = {name: found[1:] or found for name, found in times.items()}
    medians = {name: statistics.median(found) for name, found in counted.items()}
    return medians, {name: len(found) for name, found in counted.items()}, results


def show(record: list[Contest]) -> None:
    """Print times and ratios."""
    rows = []
    for contest in record:
        ours = contest.median_s["gemmulate"]
        rows.append(
            [
                contest.job,
                f"{contest.n}³",
                f"{ours * 1e3:,.1f} ms",
                f"{contest.median_s['NumPy'] * 1e3:,.1f} ms",
                _ratio(contest.median_s["NumPy"] / ours),
                _ratio(contest.median_s["FLINT"] / ours) if "FLINT" in contest.median_s else "–",
                "/".join(map(str, contest.runs.values())),
                contest.remark if contest.same else "RESULTS DISAGREE",
            ]
        )
    print_table(
        ["product", "size", "gemmulate", "NumPy", "vs NumPy", "vs FLINT", "runs", "what one gets"],
        rows,
        title="4. Speed: medians of interleaved runs (ours/NumPy/FLINT) on random data; below 1× gemmulate is slower",
        right=[1, 2, 3, 4, 5, 6],
    )
    slower = [contest.job for contest in record if contest.median_s["NumPy"] < contest.median_s["gemmulate"]]
    if slower:
        print(f"For speed alone this does not pay on this machine: {', '.join(slower)}.")


def _ratio(value: float) -> str:
    return f"{value:.2g}×" if value < 0.1 else f"{value:.2f}×" if value < 10 else f"{value:,.0f}×"
