"""Contract: residue kernels are right to their bound, calibration survives its file, and validation reports real runs.

Nothing here asserts speed: which errors the model has on a machine is what `gemmulate model validate` prints.
"""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmulate.cli import main
from gemmulate.errors import FileError
from gemmulate.model import ModelError, load_device
from gemmulate.model.device import default_host
from gemmulate.model.host import phases, residues
from gemmulate.model.host.calibrate import C_Q, calibrated_table, device_file, table_of
from gemmulate.model.host.validate import one_thread, trials, validate

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
            name: tuple((float(n), *phases.processor_seconds(make(n), least=1, budget_s=0)) for n in sizes[:2])
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
        main(["model", "validate", "--calibration", str(path), "--json"])
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
    monkeypatch.setattr("gemmulate.model.host.calibrate.calibrate", lambda engine, progress: spread)
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
    grid = trials_of(lambda: sum(range(2000)), lambda: sum(range(20_000)), predicted=(2.0, 1.0))
    assert validate({}, grid)["wrong_side"] == ["made of nothing"]
    grid = trials_of(lambda: sum(range(2000)), lambda: sum(range(20_000)), predicted=(1.0, 2.0))
    assert validate({}, grid)["wrong_side"] == []


def trials_of(
    native: Callable[[], object], emulated: Callable[[], object], predicted: tuple[float, float]
) -> list[Any]:
    from gemmulate.model.host.validate import Trial

    return [Trial("made", "of nothing", lambda t: predicted[0], lambda t: predicted[1], lambda: (native, emulated))]


def test_refusals_of_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, part in (
        (["calibrate", "-o", str(tmp_path / "host.json")], ".toml"),
        (["calibrate", "-o", str(tmp_path / "no" / "host.toml")], "does not exist"),
        (["validate", "--calibration", str(tmp_path / "none.toml")], "No such file"),
        (["validate", "--json", "--csv"], "exclude"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["model", *arguments])
        out, err = capsys.readouterr()
        assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
        assert part in err
    assert not list(tmp_path.iterdir())
