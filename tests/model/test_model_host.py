"""Contract: residue kernels are right to their bound, calibration survives its file, and validation reports real runs.

Nothing here asserts speed: which errors the model has on a machine is what `gemmulate model validate` prints.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmulate.cli import main
from gemmulate.engines import get_engine
from gemmulate.errors import FileError
from gemmulate.model import ModelError, load_device
from gemmulate.model.device import default_host
from gemmulate.model.host import phases, residues
from gemmulate.model.host.calibrate import C_Q, calibrated_table, device_file, merged, table_of
from gemmulate.model.host.conditions import one_thread, processor_seconds
from gemmulate.model.host.validate import Trial, compared, trials, validate

pytest.importorskip("gemmulate._native", reason="the host is measured on the native engine")
scipy_sparse = pytest.importorskip("scipy.sparse")


def close(value: float, exact: Fraction, terms: int, scale: float) -> bool:
    """Within terms · 2^-52 · max|a|·max|x|, and the final sum's few roundings relative to the value."""
    return abs(Fraction(float(value)) - exact) <= terms * Fraction(scale) / 2**52 + abs(exact) / 2**50


@pytest.mark.parametrize("spread", [0, 40])
def test_spmv_by_residues(spread: int) -> None:
    rng = np.random.default_rng(spread)
    matrix = scipy_sparse.random(60, 50, 0.3, format="csr", random_state=1)
    matrix.data = rng.standard_normal(matrix.nnz) * 2.0 ** rng.integers(-spread, spread + 1, matrix.nnz)
    x = rng.standard_normal(50)
    scale = float(np.abs(matrix.data).max() * np.abs(x).max())
    found = residues.spmv(matrix, x, residues.system_for(50))
    for i in range(60):
        row = slice(matrix.indptr[i], matrix.indptr[i + 1])
        pairs = zip(matrix.data[row], matrix.indices[row], strict=True)
        exact = sum((Fraction(float(v)) * Fraction(float(x[j])) for v, j in pairs), Fraction(0))
        assert close(found[i], exact, row.stop - row.start, scale), i


def test_spmv_cancels_exactly() -> None:
    # Integers: nothing is rounded, so (a, −a, 1)·1 is exactly 1 though float64 loses it.
    matrix = scipy_sparse.csr_matrix(np.array([[2.0**52 - 1, -(2.0**52) + 1, 1.0], [0, 0, 0]]))
    found = residues.spmv(matrix, np.ones(3), residues.system_for(3))
    assert found.tolist() == [1.0, 0.0]


def test_stencil_by_residues() -> None:
    grid = np.random.default_rng(3).standard_normal((6, 7, 8))
    found = residues.stencil7(grid, -6.1, 1.3, residues.system_for(7))
    scale = 6.1 * float(np.abs(grid).max())
    g = [[[Fraction(float(v)) for v in line] for line in plane] for plane in grid]
    for i in range(1, 5):
        for j in range(1, 6):
            for k in range(1, 7):
                near = (
                    g[i + 1][j][k] + g[i - 1][j][k] + g[i][j + 1][k] + g[i][j - 1][k] + g[i][j][k + 1] + g[i][j][k - 1]
                )
                exact = Fraction(1.3) * near + Fraction(-6.1) * g[i][j][k]
                assert close(found[i - 1, j - 1, k - 1], exact, 7, scale)
    assert not residues.stencil7(np.zeros((3, 3, 3)), 1.0, 1.0, residues.system_for(7)).any()


def test_seconds_between_points() -> None:
    points = ((10.0, 1.0), (100.0, 1.0), (1000.0, 10.0))
    assert phases.seconds_at(points, 1) == 1.0
    assert phases.seconds_at(points, 31.0) == pytest.approx(1.0)
    assert phases.seconds_at(points, 200.0) == pytest.approx(2.0)
    assert phases.seconds_at(points, 1e4) == pytest.approx(100.0)
    assert phases.seconds_at(points, 0) == 0.0


@pytest.fixture(scope="module")
def spread() -> dict[str, tuple[tuple[float, float, float], ...]]:
    """Every phase run for real, once, at its two smallest sizes."""
    with one_thread() as engine:
        return {
            name: tuple((float(n), *processor_seconds(make(n), least=1, budget_s=0)) for n in sizes[:2])
            for name, (sizes, make) in phases.phases(engine).items()
        }


Spread = dict[str, tuple[tuple[float, float, float], ...]]


def test_calibration_survives_its_file(spread: Spread, tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    path.write_text(device_file(spread, "made by a test"))
    assert calibrated_table(path) == table_of(spread)
    device = load_device(path)
    size, least, _ = spread["gemm_fp64"][-1]
    assert device.si["fp64"][0] == pytest.approx(2 * size**3 / least, rel=1e-6)
    # What the calibrated int32 rate predicts for converting n² inputs is what was measured.
    size, least, _ = spread["deconstruct"][-1]
    r = len(phases.system_for(int(size)).moduli)
    assert device.si["int32"][0] == pytest.approx(C_Q * r * size * size / least, rel=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("[calibration.phases]", "[calibration.faces]", FileError),
        ("threads = 1", 'threads = "one"', FileError),
        ("\nrecombine = [[", "\nrecombine = [[-", ModelError),
        ("\nrecombine = [", "\nrecombine = [[9e11, 1, 1], ", ModelError),
        ("\nrecombine = ", "\nrecombined = ", ModelError),
        ("\nrecombine = [[", "\nrecombine = [[nan, 1.0, 1.0], [", ModelError),
    ],
)
def test_bad_calibrations(spread: Spread, tmp_path: Path, old: str, new: str, error: type[Exception]) -> None:
    path = tmp_path / "host.toml"
    text = device_file(spread, "made by a test")
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(error, match=r"host\.toml"):
        calibrated_table(path)
    with pytest.raises(ModelError, match="no \\[calibration\\]"):
        calibrated_table(Path(str(phases.__file__)).parents[1] / "devices" / "b300.toml")


def test_validation_of_small_kernels(
    spread: Spread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smallest trial of each kernel, run for real through the command; its summary follows from its rows."""
    with one_thread() as engine:
        grid = {trial.kernel: trial for trial in reversed(trials(engine))}
    assert set(grid) == {"gemm", "gemv", "spmv", "stencil7"}
    monkeypatch.setattr("gemmulate.model.host.validate.trials", lambda engine: list(grid.values()))
    path = tmp_path / "host.toml"
    path.write_text(device_file(spread, "made by a test"))
    with pytest.raises(SystemExit) as stop:
        main(["model", "validate", "--calibration", str(path), "--passes", "1", "--json"])
    assert stop.value.code == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {row["method"] for row in record["rows"]} == {"native", "emulated"}
    assert len(record["rows"]) == 2 * len(grid)
    errors = sorted(abs(row["predicted_s"] / row["measured_s"] - 1) for row in record["rows"])
    assert record["worst_error"] == pytest.approx(errors[-1])
    assert record["median_error"] == pytest.approx((errors[3] + errors[4]) / 2)
    assert len(record["published"]) == 17


def test_calibration_of_the_host_is_found_by_plans(
    spread: Spread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without -o the record becomes device "host", engines' rates included."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("gemmulate.model.host.calibrate.calibrate", lambda engine, progress, passes: spread)
    monkeypatch.setattr("gemmulate.plan.calibration.measure_engines", lambda progress: default_host().engines)
    with pytest.raises(SystemExit) as stop:
        main(["model", "calibrate", "--json"])
    assert stop.value.code == 0
    record = json.loads(capsys.readouterr().out)
    assert record["output"] == str(tmp_path / "gemmulate" / "host.toml")
    assert load_device("host") == load_device(record["output"])
    assert set(record["engines"]) == set(load_device("host").engines)
    assert load_device("host").calibration != default_host().calibration


def test_the_wrong_side_is_named() -> None:
    for predicted, measured, wrong in (
        ((2.0, 1.0), (1.0, 10.0), ["made of nothing"]),
        ((1.0, 2.0), (1.0, 10.0), []),
        ((2.0, 1.0), (1.0, 1.05), []),  # as fast as native: neither side
    ):
        assert compared({}, trials_of(predicted), [measured])["wrong_side"] == wrong


def test_errors_of_predictions() -> None:
    record = compared({}, trials_of((2.0, 3.0)), [(4.0, 2.0)])
    assert [row["ratio"] for row in record["rows"]] == [0.5, 1.5]
    assert (record["median_error"], record["worst_error"]) == (0.5, 0.5)


def test_least_of_the_passes_counts() -> None:
    one = {"gemm": ((10.0, 2.0, 5.0), (20.0, 9.0, 9.0))}, {"gemm": ((10.0, 3.0, 3.5), (20.0, 8.0, 11.0))}
    assert merged([*one, one[0]]) == {"gemm": ((10.0, 2.0, 5.0), (20.0, 8.0, 9.0))}


def test_calibration_and_validation_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    told: list[tuple[int, int]] = []

    def made(n: int) -> Callable[[], object]:
        events.append(f"phase {n}")
        return lambda: None

    def runs() -> tuple[Callable[[], object], Callable[[], object]]:
        events.append("trial")
        return (lambda: None), (lambda: None)

    monkeypatch.setattr("gemmulate.model.host.calibrate.phases", lambda engine: {"made": ((3, 5), made)})
    monkeypatch.setattr("gemmulate.model.host.validate.phases", lambda engine: {"made": ((3, 5), made)})
    grid = [Trial("made", "4", lambda t: t["made"][0][1], lambda t: t["made"][1][1], runs)]
    record = validate(get_engine("native", 1), grid, None, lambda done, total: told.append((done, total)), passes=2)
    assert events == ["phase 3", "phase 5", "trial"] * 2
    assert told == [(done, 6) for done in range(6)]
    assert [row["size"] for row in record["rows"]] == ["4", "4"]
    events.clear()
    validate(get_engine("native", 1), grid, {"made": ((3.0, 1.0), (5.0, 2.0))}, passes=2)
    assert events == ["trial"] * 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what glibc's allocator does with large blocks")
def test_the_allocator_keeps_large_blocks() -> None:
    """In a process of its own: pages touched for the first time by ten temporaries of 8 MB, before and after."""
    program = (
        "import resource, numpy as np\n"
        "from gemmulate.model.host.conditions import settle_allocator\n"
        "x = np.ones(1 << 20)\n"
        "def pages():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(10): x + 1.0\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "settle_allocator()\n"
        "x + 1.0\n"
        "assert pages() < 100, pages()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def trials_of(predicted: tuple[float, float]) -> list[Trial]:
    def nothing() -> None:
        pass

    return [
        Trial("made", "of nothing", lambda t: predicted[0], lambda t: predicted[1], lambda: (nothing, nothing)),
    ]


def test_refusals_of_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, part in (
        (["calibrate", "-o", str(tmp_path / "host.json")], ".toml"),
        (["calibrate", "-o", str(tmp_path / "no" / "host.toml")], "does not exist"),
        (["validate", "--calibration", str(tmp_path / "none.toml")], "No such file"),
        (["validate", "--json", "--csv"], "exclude"),
        (["validate", "--passes", "0"], "--passes 0"),
        (["calibrate", "--passes", "-1"], "--passes -1"),
        (["calibrate", "--device", "cpu", "--passes", "2"], "--passes 2"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["model", *arguments])
        out, err = capsys.readouterr()
        assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
        assert part in err
    assert not list(tmp_path.iterdir())
