"""Contract: the GPU benchmarks run as a whole, records hold what tables and questions need, and nothing is claimed of a
GPU that was not measured on one.

A rehearsal on torch's processor at small sizes. Not run on a GPU. Nothing here asserts speed.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmulate as gm

torch = pytest.importorskip("torch")
pytest.importorskip("threadpoolctl")
pytest.importorskip("gemmulate._native", reason="the truth is computed by the native engine")

from gemmulate.engines.torch_device import TorchDevice  # noqa: E402 - imports torch

ROOT = Path(__file__).parents[1]
U = Fraction(1, 2**53)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of benchmarks/gpu by name."""
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"benchmarks.gpu.{name}")


@pytest.fixture
def device() -> Iterator[TorchDevice]:
    found = TorchDevice("cpu")
    with found.current():
        yield found


def run(*arguments: str, script: str = "benchmarks/gpu/run.py") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *script.split(), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_command_rehearses(tmp_path: Path) -> None:
    """Two rows through the one command: records, one line each, questions that a processor does not answer."""
    file = tmp_path / "records.jsonl"
    options = ["--device", "cpu", "--sizes", "72", "--pairs", "2", "--grades", "fp64", "--record"]
    done = run("dgemm", "stencil7", *options, str(file))
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [(r["row"], r["n"], r["status"]) for r in records] == [
        ("dgemm", 72, "measured"),
        ("stencil7", 72, "measured"),
    ]
    for r in records:
        assert r["kind"] == "gpu"
        assert r["device"] == "cpu"
        assert "not run on a GPU" in r["rehearsal"]
        assert len(r["native_s"]) == len(r["emulated_s"]) == 2
        assert len(r["order"]) == 4
        assert {"cpu", "torch", "numpy", "gemmulate", "date", "time", "seed", "command"} <= set(r)
    dgemm = records[0]
    assert dgemm["cpu_bits"] is True
    assert set(dgemm["errors"]) == {"gaussian", "phi 0.5", "phi 2", "phi 4"}
    phases = dict(dgemm["phases_s"])
    total = phases.pop("total")
    assert 0 < sum(phases[name] for name in ("survey", "convert_a", "convert_b")) < total
    assert dgemm["conversion_share"] < 1
    assert done.stdout.count("REHEARSAL") == 2
    assert done.stdout.count("  not run  ") == 5
    assert "answers none of them" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_one_clear_error() -> None:
    done = run("dgemm", "gemv", "--sizes", "72")
    assert done.returncode == 2
    assert done.stderr.count("sees no CUDA device") == 1
    assert '"cpu"' in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("no_row",), "no_row"),
        (("dgemm", "--device", "cpu", "--grades", "fp64,best"), "best"),
        (("dgemm", "--device", "cpu", "--sizes", "0"), "sizes"),
        (("dgemm", "--device", "cpu", "--pairs", "many"), "many"),
        (("dgemm", "--device", "mps"), "mps"),
    ],
)
def test_refusals(arguments: tuple[str, ...], part: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert part in done.stderr


def test_the_page_is_what_the_records_give() -> None:
    done = run("--check", script="-m benchmarks.gpu.tables")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run `python -m benchmarks.gpu.tables`"


@pytest.mark.parametrize("row", ["dgemm", "zgemm", "skinny", "batched", "gemv", "spmv", "stencil7"])
def test_every_row_computes_what_it_says(load: Any, device: TorchDevice, row: str) -> None:
    """Results lie within the bounds of both sides; emulated dense ones are the CPU's bits."""
    rows, accuracy, measure = load("rows"), load("accuracy"), load("measure")
    within = importlib.import_module("benchmarks.agreement").within_bounds
    for case in rows.cases(row, [80]):
        operands = case.operands(torch.Generator(device.device).manual_seed(3))
        native = case.native(*operands)
        for grade in case.grades:
            emulated = case.emulated(device.engine, grade, *operands)
            assert emulated.shape == native.shape
            if case.dense:
                a, b, c = measure._matrices(*operands, emulated)
                theirs = measure._matrices(*operands, native)[2]
                assert within(c.numpy(), theirs.numpy(), a.numpy(), b.numpy()), (case.size, grade)
                assert accuracy.same_bits(device.engine, a, b, grade, c), (case.size, grade)
            else:
                at = accuracy.sampled(emulated.numel())
                left, right = measure._terms(case, operands, at)
                sums_close(emulated.reshape(-1)[at], left, right)
                # A term takes part in a product and at most as many additions as there are terms; the truth is rounded.
                assert measure._sparse_errors(case, operands, native)["componentwise"] <= left.shape[1] + 2


def test_rows_of_all_sizes(load: Any) -> None:
    """Every row exists, and what a size means."""
    rows = load("rows")
    assert set(load("run").ROWS) == set(load("tables").GRADES)
    (dgemm,) = rows.cases("dgemm", [1024])
    assert dgemm.flops == 2.0 * 1024**3
    (zgemm,) = rows.cases("zgemm", [1024])
    assert zgemm.flops == 8.0 * 1024**3
    assert [c.size for c in rows.cases("skinny", [512])] == ["16×512×512", "512×512×16", "64×512×512", "512×512×64"]
    (batched,) = rows.cases("batched", [1024])
    assert (batched.size, batched.flops) == ("64×64×64, 64 of them", 64 * 2.0 * 64**3)
    for row in load("run").ROWS:
        for case in rows.cases(row, [64]):
            assert set(case.grades) == set(load("tables").GRADES[row])


def test_a_case_that_does_not_fit_is_skipped_and_says_so(
    load: Any, device: TorchDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, measure = load("rows"), load("measure")
    (case,) = rows.cases("dgemm", [1 << 20])
    monkeypatch.setattr(TorchDevice, "free_bytes", lambda self: 80 << 30)
    (record,) = measure.measured(device, case, ["fp64"], 2, 1)
    assert record["status"] == "skipped"
    assert "80.0 GiB are free" in record["reason"]
    (case,) = rows.cases("dgemm", [72])

    def out_of_memory(*operands: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate\nmuch")

    full = type(case)(**{**vars(case), "emulated": out_of_memory})
    (record,) = measure.measured(device, full, ["fp64"], 2, 1)
    assert (record["status"], record["grade"]) == ("skipped", "fp64")
    assert record["reason"] == "out of memory: CUDA out of memory. Tried to allocate"


@pytest.mark.parametrize("grade", ["fast", "fp64", "exact"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_sampled_bits(
    load: Any, device: TorchDevice, monkeypatch: pytest.MonkeyPatch, grade: str, dtype: torch.dtype
) -> None:
    """Sampled elements alone tell equal bits from others, at wide exponents too, where single elements are repaired."""
    accuracy = load("accuracy")
    monkeypatch.setattr(accuracy, "WHOLE", 0)
    generator = torch.Generator().manual_seed(5)
    a, b = (accuracy.gaussian(shape, generator, dtype) for shape in ((70, 90), (90, 75)))
    a *= torch.pow(2.0, torch.randint(-40, 40, a.shape, generator=generator))
    b[:, 3] *= 2.0**200
    c = gm.matmul(a, b, accuracy=grade, engine="torch")
    assert np.array_equal(c.numpy().view(np.int64), gm.matmul(a.numpy(), b.numpy(), accuracy=grade).view(np.int64))
    assert accuracy.same_bits(device.engine, a, b, grade, c)
    for i, j in ((0, 0), (69, 74)):
        off = c.clone()
        off[i, j] *= 1 + 2.0**-52
        assert not accuracy.same_bits(device.engine, a, b, grade, off)


def test_errors_are_those_of_fractions(load: Any) -> None:
    """Against exact rational sums; only the truth's own rounding, half a unit of the result, lies between."""
    accuracy = load("accuracy")
    a, b = (accuracy.wide((9, 9), 2.0, torch.Generator().manual_seed(s)) for s in (1, 2))
    c = a @ b * (1 + 2.0**-48)
    found = accuracy.errors(a, b, c)
    worst = {"componentwise": Fraction(0), "relative": Fraction(0)}
    for i in range(9):
        for j in range(9):
            terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True)]
            difference = abs(Fraction(float(c[i, j])) - sum(terms))
            worst["componentwise"] = max(worst["componentwise"], difference / (U * sum(map(abs, terms))))
            worst["relative"] = max(worst["relative"], difference / (U * abs(sum(terms))))
    for name, exact in worst.items():
        assert abs(Fraction(found[name]) - exact) <= 1 + exact * Fraction(1, 2**40), name
    exact_product = gm.matmul(a, b, accuracy="exact")
    assert accuracy.errors(a, b, exact_product) == {"componentwise": 0.0, "relative": 0.0}


def test_elements_without_terms_must_be_met_exactly(load: Any) -> None:
    accuracy = load("accuracy")
    a, b, c = torch.zeros(3, 4, dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64), torch.zeros(3, 3)
    assert accuracy.errors(a, b, c.double())["componentwise"] == 0
    assert accuracy.errors(a, b, c.double() + 1e-300)["componentwise"] == float("inf")


def test_wide_data_are_wide(load: Any) -> None:
    """|x| = |rand − 1/2| exp(φ randn): the logarithm's standard deviation is φ but for the uniform factor's 1."""
    accuracy = load("accuracy")
    for phi in (0.5, 2.0, 4.0):
        x = accuracy.wide((200, 200), phi, torch.Generator().manual_seed(1)).abs().log()
        # 40,000 values: six standard errors of a variance estimate are below 10 %.
        assert float(x.var()) == pytest.approx(phi**2 + 1, rel=0.1)


def sums_close(found: torch.Tensor, left: Any, right: Any) -> None:
    """Within N · 2^-52 · max|a| · max|x| of exact sums, and one rounding."""
    terms = left.shape[1]
    scale = Fraction(float(np.abs(left).max())) * Fraction(float(np.abs(right).max()))
    for got, x, y in zip(found.reshape(-1).tolist(), left, right, strict=True):
        exact = sum((Fraction(float(p)) * Fraction(float(q)) for p, q in zip(x, y, strict=True)), Fraction(0))
        assert abs(Fraction(got) - exact) <= terms * scale / 2**52 + abs(exact) / 2**52


@pytest.mark.parametrize("spread", [0, 300])
def test_spmv_by_residues(load: Any, device: TorchDevice, spread: int) -> None:
    kernels, generator = load("residue_kernels"), torch.Generator().manual_seed(7)
    powers = torch.randint(-spread, spread + 1, (50, 11), generator=generator)
    values = torch.randn(50, 11, dtype=torch.float64, generator=generator) * torch.pow(2.0, powers.double())
    columns, x = torch.randint(0, 40, (50, 11), generator=generator), torch.randn(40, dtype=torch.float64)
    for block in (16, 1 << 17):
        device.engine.library.block, kept = block, device.engine.library.block
        try:
            found = kernels.spmv(device.engine, values, columns, x)
        finally:
            device.engine.library.block = kept
        sums_close(found, values.numpy(), x.numpy()[columns.numpy()])
    assert not kernels.spmv(device.engine, values * 0, columns, x).any()
    # Integers of 53 bits: nothing is rounded, where float64 sums lose the 1.
    big = torch.tensor([[2.0**52 - 1, -(2.0**52) + 1, 1.0]], dtype=torch.float64)
    ones = torch.ones(3, dtype=torch.float64)
    assert kernels.spmv(device.engine, big, torch.arange(3)[None], ones).tolist() == [1.0]


def test_stencil_by_residues(load: Any, device: TorchDevice) -> None:
    kernels, measure, rows = load("residue_kernels"), load("measure"), load("rows")
    grid = torch.randn(5, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    found = kernels.stencil7(device.engine, grid, rows.CENTRE, rows.SIDE)
    (case,) = rows.cases("stencil7", [64])
    left, right = measure._terms(case, (grid,), np.arange(3 * 4 * 5))
    sums_close(found, left, right)


def measured(**changes: Any) -> dict[str, Any]:
    """A record as a GPU would leave it, made up."""
    phases = {"survey": 1.0, "assess": 1.0, "convert_a": 1.0, "convert_b": 1.0, "products": 30.0, "recombine": 5.0}
    both = {side: {"componentwise": 1.0, "relative": 2.0} for side in ("emulated", "native")}
    return {
        "kind": "gpu", "row": "dgemm", "size": "8192×8192×8192", "n": 8192, "flops": 1e12, "status": "measured",
        "engine": "torch-cuda", "grade": "fp64", "device": "cuda:0", "device_name": "NVIDIA H200", "time": "2026-01-02",
        "date": "2026-01-02", "cpu_bits": True, "conversion_share": 0.1, "speedup": 1.6, "speedup_interval": [1.5, 1.7],
        "native_s": [0.02], "emulated_s": [0.0125], "errors": {"gaussian": both},
        "phases_s": phases | {"other": 1.0, "total": 40.0},
    } | changes  # fmt: skip


def answers(load: Any, *records: dict[str, Any]) -> list[str]:
    return [a.answer for a in load("questions").answers(records)]


def test_questions(load: Any) -> None:
    """yes, no and not run; the newest record counts, an H200's before others, a processor's never."""
    none = ["not run"] * 5
    assert answers(load) == none
    assert answers(load, measured(device="cpu")) == none
    assert answers(load, measured()) == ["yes", "yes", "not run", "yes", "not run"]
    exact = measured(grade="exact", speedup=1.0)
    assert answers(load, measured(), exact) == ["yes"] * 4 + ["not run"]
    assert answers(load, measured(speedup=1.49), exact | {"speedup": 0.99})[:4] == ["no", "yes", "no", "yes"]
    assert answers(load, measured(conversion_share=0.121))[1] == "no"
    assert answers(load, measured(cpu_bits=False))[3] == "no"
    assert answers(load, measured(), measured(row="gemv", cpu_bits=False))[3] == "no"
    assert answers(load, measured(speedup=1.0), measured(speedup=2.0))[0] == "yes"
    assert answers(load, measured(speedup=2.0), measured(speedup=1.0))[0] == "no"
    assert answers(load, measured(n=4096, size="4096×4096×4096"))[:3] == ["not run"] * 3
    other = measured(device_name="NVIDIA A100", speedup=9.0)
    assert answers(load, measured(speedup=1.0), other)[0] == "no"
    (first, *_) = load("questions").answers([other])
    assert (first.answer, first.device) == ("yes", "NVIDIA A100, not an H200")
    skipped = {"kind": "gpu", "row": "dgemm", "n": 8192, "status": "skipped", "device": "cuda:0"}
    assert answers(load, skipped) == none
    graph = {"row": "graph", "size": "256", "n": 256, "grade": "Bits(54)", "waits": "", "replay_bits": True}
    graph = {name: measured()[name] for name in ("kind", "status", "device", "device_name", "engine")} | graph
    assert answers(load, graph) == ["not run"] * 4 + ["yes"]
    for wrong in ({"waits": "called a synchronizing CUDA operation"}, {"replay_bits": False}):
        assert answers(load, graph, graph | wrong | {"engine": "triton"})[4] == "no"
    assert load("tables").chosen([graph]) == []
    # The faster engine's conversion counts.
    triton = measured(engine="triton", speedup=1.8, conversion_share=0.2)
    assert answers(load, measured(), triton)[:2] == ["yes", "no"]


def test_a_captured_product(load: Any, device: TorchDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bits are compared on other operands than those it was captured for; a processor replays by the product."""
    capture, calls = load("capture"), []

    class Graph:
        def __init__(self, product: Any, right: bool) -> None:
            self.product, self.right = product, right

        def replay(self) -> None:
            calls.append(self.right)
            if self.right:
                self.product()

    monkeypatch.setattr(capture, "waits", lambda product: "")
    for right in (True, False):
        monkeypatch.setattr(capture, "captured", lambda product, right=right: Graph(product, right))
        found = capture.one(device.engine, 40, 2, 3)
        assert (found["waits"], found["replay_bits"]) == ("", right)
        assert len(found["product_s"]) == len(found["replay_s"]) == 2
    x = capture.hostile(40, torch.Generator().manual_seed(3))
    assert x.isnan().any()
    assert x.isinf().any()
    assert (x == 5e-324).any()
    done = run("--device", "cpu", script="-m benchmarks.gpu.capture")
    assert (done.returncode, done.stdout) == (0, "graphs: not run, a processor has none\n")


def test_tables(load: Any) -> None:
    """A line for each record and for what has none; records of a processor are no records."""
    tables = load("tables")
    empty = tables.pages([measured(device="cpu")])
    assert empty == tables.pages([])
    assert all("NVIDIA" not in line for lines in empty.values() for line in lines)
    assert sum("not run" in line for line in empty["TIMES"]) == 13
    old, new = measured(speedup=1.0, time="2026-01-01"), measured()
    skipped = {
        "kind": "gpu", "row": "dgemm", "size": "16384×16384×16384", "n": 16384, "status": "skipped",
        "time": "2026-01-02", "reason": "needs about 90.0 GiB, 80.0 GiB are free", "device": "cuda:0",
        "device_name": "NVIDIA H200", "date": "2026-01-02",
    }  # fmt: skip
    pages = tables.pages([new, old, skipped])
    lines = [line for line in pages["TIMES"] if line.startswith("| dgemm")]
    assert lines[0].startswith(
        "| dgemm | 8192×8192×8192 | fp64 | torch-cuda | 20.0 | 12.5 | 80.0 | **1.60** (1.50 … 1.70) "
    )
    assert "skipped: needs about 90.0 GiB" in lines[1]
    rest = next(line for line in lines if "not run" in line and "| fp64 |" in line)
    assert rest.startswith("| dgemm | 1024, 2048, 4096 | fp64 |")
    assert len({line.count("|") for line in pages["TIMES"]}) == 1
    assert "| 8192 | torch-cuda | 2.5 | 2.5 | 2.5 | 2.5 | 75.0 | 12.5 | 2.5 | 40,000 |" in pages["PHASES"]
    assert any(
        line.startswith("| dgemm | 8192×8192×8192 | gaussian | fp64 | torch-cuda | 1.00, 2.00")
        for line in pages["ACCURACY"]
    )
