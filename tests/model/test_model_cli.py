"""Contract: `gemmulate model …` prints the agreed JSON keys, CSV and tables; bad input is one line and status 2."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gemmulate.cli import main


class Outcome(NamedTuple):
    """What a shell sees of a command."""

    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `gemmulate model ARGUMENTS…` and returns its exit status and output."""

    def call(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as stop:
            main(["model", *(str(argument) for argument in arguments)])
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Outcome(stop.value.code, out, err)

    return call


def parsed(run: Run, *arguments: object) -> Any:
    status, out, err = run(*arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_threshold(run: Run) -> None:
    record = parsed(run, "threshold", "--device", "b300", "--r", 12, "--c-q", 6)
    assert record["oi_star_flop_per_byte"] == 0.5625
    assert record["conversion_roof_bytes_per_s"] == pytest.approx(2.08e13 / 9)
    assert record["break_even_c_q"] == pytest.approx(8 / 3)
    assert record["memory_roof_c_q"] == pytest.approx(2.08 / 1.2)
    stencil = parsed(run, "threshold", "--device", "b300", "--r", 12, "--c-q", 6, "--kernel", "stencil7")
    assert stencil["break_even_c_q"] == pytest.approx(32 / 3)


def test_predict(run: Run) -> None:
    common = ("--device", "b300", "--scheme", "residues-fp8", "--r", 12, "--c-q", 6, "--composition", "published")
    record = parsed(run, "predict", "--kernel", "gemv", "--rhs", 1, *common)
    assert round(record["speedup"], 2) == 0.44
    assert record["speedup"] == record["native_s"] / record["emulated_s"]
    assert set(record["terms"]) == {"mma", "mem", "dec", "rec"}
    assert record["bound"] == "dec"
    kernels = {"gemm": ("--m", 8192, "--n", 8192, "--k", 8192), "spmv": (), "stencil7": ()}
    found = {name: parsed(run, "predict", "--kernel", name, *sizes, *common) for name, sizes in kernels.items()}
    assert {name: float(f"{record['speedup']:.3g}") for name, record in found.items()} == {
        "gemm": 104, "spmv": 0.296, "stencil7": 1.78
    }  # fmt: skip
    kept = parsed(run, "predict", "--kernel", "gemv", *common, "--precomputed")
    assert round(kept["speedup"], 2) == 0.41


def test_tables_and_csv(run: Run) -> None:
    status, out, err = run("table")
    assert (status, err) == (0, "")
    assert "7-point stencil" in out
    rows = parsed(run, "table")
    status, out, _ = run("table", "--csv")
    assert status == 0
    lines = list(csv.DictReader(io.StringIO(out)))
    assert [float(line["four_term"]) for line in lines] == [row["four_term"] for row in rows]
    for arguments in (
        ("devices",),
        ("predict", "--device", "h200", "--kernel", "gemm"),
        ("threshold", "--device", "h200"),
    ):
        status, out, _ = run(*arguments, "--csv")
        assert status == 0
        assert len({len(row) for row in csv.reader(io.StringIO(out))}) == 1
        assert run(*arguments)[0] == 0
        assert run(*arguments, "--json", "--csv").status == 2


def test_devices(run: Run) -> None:
    records = {record["device"]: record for record in parsed(run, "devices")}
    assert len(records) == 12
    assert records["b300"]["int32_ops_per_s"] == pytest.approx(2.08e13)
    figure = records["a100"]["figures"][0]
    assert figure == {
        "quantity": "fp64", "value": 9.7, "unit": "TFLOP/s", "status": "datasheet",
        "source": "NVIDIA A100 SXM data sheet, dense",
    }  # fmt: skip


def test_sensitivity(run: Run) -> None:
    record = parsed(run, "predict", "--device", "b300", "--kernel", "stencil7", "--sensitivity")
    assert record["sensitivity"][0]["quantity"] == "c_q"
    assert record["speedup_range"][0] < 1 < record["speedup"], "1.78 at c_q = 6, a loss at 15"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("predict", "--device", "b3", "--kernel", "gemv"), ["device 'b3'", "b300"]),
        (("predict", "--device", "none.toml", "--kernel", "gemv"), ["none.toml", "No such file"]),
        (("predict", "--kernel", "gemv"), ["--device"]),
        (("predict", "--device", "b300", "--kernel", "fft"), ["fft"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--r", 0), ["r = 0", "1 … 1024"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--r=-3"), ["r = -3"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--m", "1.5"), ["'1.5'", "whole number"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--m", "inf"), ["'inf'", "whole number"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--m", "many"), ["'many'", "whole number"]),
        (("predict", "--device", "/dev/zero", "--kernel", "gemv"), ["/dev/zero", "regular file"]),
        (("threshold", "--device", "b300", "--c-q", "1e-300"), ["c_q = 1e-300", "1e-06"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--c-q=-1"), ["c_q = -1"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--c-q", "nan"), ["c_q = nan"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--c-q", "1e300"), ["c_q = 1e+300"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--rhs", 0), ["rhs = 0"]),
        (("predict", "--device", "b300", "--kernel", "gemm", "--m", 10**30), ["m = 1000", "1 … "]),
        (("predict", "--device", "b300", "--kernel", "gemm", "--rhs", 2), ["--rhs", "gemm"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--reuse", 0.5), ["reuse = 0.5"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--alpha", 0), ["alpha = 0"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--reuse", 2, "--precomputed"), ["precomputed"]),
        (("predict", "--device", "b300", "--kernel", "stencil7", "--precomputed"), ["stencil7"]),
        (("predict", "--device", "b300", "--kernel", "gemv", "--pipeline", "staged"), ["staged", "gemv"]),
        (("predict", "--device", "b300", "--kernel", "gemm", "--pipeline", "staged", "--composition", "serial"),
         ["serial", "stages"]),
        (("predict", "--device", "a100", "--kernel", "gemv"), ["A100", "fp8"]),
        (("predict", "--device", "mi300x", "--kernel", "gemv"), ["MI300X", "integer rate", "three_term"]),
        (("predict", "--device", "b300", "--kernel", "spmv", "--columns", 5), ["columns", "rows"]),
        (("predict", "--device", "b300", "--kernel", "spmv", "--padding", 2), ["padding", "ell"]),
        (("threshold", "--device", "b300", "--c-q", 0), ["c_q = 0"]),
        (("threshold", "--device", "b300", "--r", 0), ["r = 0"]),
        (("threshold", "--device", "b300", "--kernel", "gemm"), ["--flop-per-input"]),
        (("threshold", "--device", "rubin"), ["Rubin", "integer rate"]),
        (("table", "--device", "a100"), ["A100", "fp8"]),
    ],
)  # fmt: skip
def test_bad_input(run: Run, arguments: tuple[object, ...], parts: list[str]) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err, err


def test_a_device_file_that_is_wrong(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('name = "bad"\nfp64 = { value = 1, unit = "TB/s", source = "x", status = "datasheet" }\n')
    for command in (("devices",), ("table",), ("threshold",), ("predict", "--kernel", "gemm")):
        status, out, err = run(*command, "--device", path)
        assert (status, out) == (2, "")
        assert str(path) in err
        assert "memory" in err or "fp64" in err
