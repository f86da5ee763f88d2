"""Contract: benchmarks measure what they say and refuse results that differ; tables are what the records give."""

import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of benchmarks/ by name."""
    monkeypatch.syspath_prepend(ROOT)

    def load(name: str) -> ModuleType:
        import importlib

        return importlib.import_module(f"benchmarks.{name}")

    return load


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def test_every_row_is_run(benchmarks: Any) -> None:
    files = {path.stem for path in (ROOT / "benchmarks" / "rows").glob("*.py")}
    assert sorted(benchmarks("run").ROWS) == sorted(files)


def test_the_tables_are_what_the_records_give() -> None:
    done = run("benchmarks.tables", "--check")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run `python -m benchmarks.tables`"


def test_a_row_records_times_and_rates(tmp_path: Path) -> None:
    """Rates and ratios follow from the recorded times; one record for each peer that is installed."""
    file = tmp_path / "records.jsonl"
    done = run("benchmarks.rows.wrapped", "--size", "30", "--pairs", "2", "--threads", "1", "--record", str(file))
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert {("int64 wrap", "NumPy int64"), ("int32 wrap", "NumPy int32")} <= {(r["job"], r["peer"]) for r in records}
    assert len(records) + done.stdout.count("not installed") == 5
    for r in records:
        assert r["size"] == r["peer_size"] == 30
        assert len(r["ratios"]) == len(r["ours_elapsed_s"]) == len(r["peer_elapsed_s"]) == 2
        for gops, seconds in zip(r["gops"], r["ours_elapsed_s"], strict=True):
            assert math.isclose(gops * seconds, 2 * 30**3 / 1e9)
        quotients = sorted(t / o for o, t in zip(r["ours_elapsed_s"], r["peer_elapsed_s"], strict=True))
        assert np.allclose(quotients, r["ratios"], rtol=1e-12)


def test_results_that_differ_are_not_measured(benchmarks: Any) -> None:
    harness = benchmarks("harness")
    a = np.arange(16).reshape(4, 4)
    right = harness.Peer("right", lambda a, b, threads: lambda: a @ b)
    wrong = harness.Peer("wrong", lambda a, b, threads: lambda: a @ b + (np.arange(16).reshape(4, 4) == 7))
    job = harness.Job("product", a, a, (right, wrong))
    assert harness.measure(job, right, 1, 1, "elapsed")["peer_size"] == 4
    with pytest.raises(AssertionError, match="product beside wrong, n = 4"):
        harness.measure(job, wrong, 1, 1, "elapsed")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_float_results_agree_within_bounds_only(benchmarks: Any, dtype: Any) -> None:
    within = benchmarks("agreement").within_bounds
    a, b = np.random.default_rng(5).standard_normal((2, 20, 20)).astype(dtype)
    c = a @ b
    off = c.copy()
    off[3, 4] += 20 * 20 * np.finfo(dtype).eps * np.abs(a).max() * np.abs(b).max() * 4
    assert within(c, c, a, b)
    assert not within(c, off, a, b)


def test_operands_that_fit(benchmarks: Any) -> None:
    """Entries are as wide as they say and no element of the product overflows."""
    a, b = benchmarks("operands").fitting(np.random.default_rng(6), 62, 40)
    exact = a.astype(object) @ b.astype(object)
    assert max(abs(v) for v in exact.ravel()) < 2**63
    assert min(np.abs(a).max(), np.abs(b).max()) > 2**60


def test_primes(benchmarks: Any) -> None:
    """The largest below each power of two, by python-flint's proof of primality."""
    flint = pytest.importorskip("flint")
    for bits, p in benchmarks("operands").PRIMES.items():
        primes = [q for q in range(p, 2**bits) if flint.fmpz(q).is_prime()]
        assert primes == [p]


def test_cliffs(benchmarks: Any) -> None:
    """Dearer than the next smaller size, or than the next larger one where that is close; falling costs are none."""
    cliffs = benchmarks("scaling").cliffs
    assert cliffs({256: 9.0, 512: 5.0, 1000: 4.0, 1024: 4.5, 2048: 4.4}) == []
    found = cliffs({1000: 4.0, 1023: 6.0, 1024: 4.0, 1025: 5.0, 3000: 6.0})
    assert [(n, other) for n, other, _ in found] == [(1023, 1000), (1023, 1024), (1025, 1024), (3000, 1025)]
    assert [round(excess, 12) for _, _, excess in found] == [0.5, 0.5, 0.25, 0.2]


def test_which_record_counts(benchmarks: Any) -> None:
    """The larger product, then the quieter machine, then the newer record."""
    tables = benchmarks("tables")
    base = {"job": "j", "peer": "p", "gops": [1.0], "size": 2048, "other_load": 0.1, "time": "2026-01-02"}
    smaller, busy = base | {"size": 64, "time": "2026-01-09"}, base | {"other_load": 1.5, "time": "2026-01-08"}
    newer = base | {"time": "2026-01-03"}
    for records in ([base, smaller, busy], [busy, smaller, base]):
        assert list(tables.chosen(records).values()) == [base]
    assert list(tables.chosen([newer, base]).values()) == [newer]


def test_rounding_of_figures(benchmarks: Any) -> None:
    figure = benchmarks("tables").figure
    assert [figure(x) for x in (1551.2, 123.4, 12.34, 0.2694, 0.0, 9.996)] == [
        "1,550", "123", "12.3", "0.269", "0", "10.0",
    ]  # fmt: skip
