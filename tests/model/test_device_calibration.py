"""Contract: a device is measured phase by phase, its record survives its file, and plans price by what was measured.

A rehearsal: torch's processor is measured as if it were a device. Not run on a GPU. Nothing here asserts speed.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate.cli import main
from gemmulate.errors import EngineUnavailable, FileError
from gemmulate.model import ModelError, gemm, load_device, method, predict
from gemmulate.model.machine_code import count_instructions
from gemmulate.plan import device_calibration
from gemmulate.plan.device_calibration import PHASES, DeviceCalibration, calibrate_device, default_engine, fit
from gemmulate.plan.device_record import record_text

torch = pytest.importorskip("torch")

from gemmulate.engines.torch_device import TorchDevice  # noqa: E402 - imports torch

SIZES = (72, 96)


@pytest.fixture(scope="module")
def measured() -> DeviceCalibration:
    """Every phase run for real, once."""
    return calibrate_device(TorchDevice("cpu"), SIZES, budget_s=0.0)


@pytest.fixture
def record(measured: DeviceCalibration, tmp_path: Path) -> Path:
    path = tmp_path / "rehearsal.toml"
    path.write_text(record_text(measured, "made by a test", "2026-01-02"))
    return path


def test_phases_add_up_to_the_product(measured: DeviceCalibration) -> None:
    assert set(measured.phases) == set(PHASES)
    for index, n in enumerate(SIZES):
        least = {name: points[index][1] for name, points in measured.phases.items()}
        assert all(points[index][0] == n for points in measured.phases.values())
        for name in ("survey", "assess", "convert_a", "convert_b", "products", "recombine"):
            assert least[name] > 1e-8, name  # was run
        assert sum(least[name] for name in PHASES if name != "total") <= least["total"] * 1.0001


def test_phases_of_one_call_are_its_total() -> None:
    from gemmulate.plan.device_calibration import recorded

    device = TorchDevice("cpu")
    a, b = device.normal_pair(80)
    for seconds in recorded(device.watch, lambda: gm.matmul(a, b, engine="torch"), 0.0):
        assert sum(v for name, v in seconds.items() if name != "total") == pytest.approx(seconds["total"])


def test_recording_changes_no_bit() -> None:
    from gemmulate.engines import spans

    device = TorchDevice("cpu")
    a, b = device.normal_pair(80)
    with spans.recording(device.watch) as recorder:
        watched = gm.matmul(a, b, engine="torch")
    assert np.array_equal(watched.numpy().view(np.int64), gm.matmul(a.numpy(), b.numpy()).view(np.int64))
    assert {"survey", "assess", "convert a", "convert b", "multiply", "multiply/products"} <= set(recorder.seconds())


def test_moduli_are_those_of_the_plan(measured: DeviceCalibration) -> None:
    for n in SIZES:
        a, b = (x.numpy() for x in TorchDevice("cpu").normal_pair(n))
        assert measured.moduli[n] == len(gm.plan(a, b, accuracy="fp64").moduli)


def test_the_record_holds_what_was_measured(measured: DeviceCalibration, record: Path) -> None:
    device = load_device(record)
    assert device.kind == "cpu"
    assert "Not run on a GPU" in device.notes
    for key in ("fp64", "int8", "memory", "c_q", "c_rec", "call_overhead"):
        for figure in device.figures[key]:
            assert figure.status == "measured"
            assert "made by a test" in figure.source
            assert "2026-01-02" in figure.source
    assert device.si["fp64"] == pytest.approx(measured.fp64, rel=1e-5)
    assert device.si["memory"] == pytest.approx(measured.memory, rel=1e-5)
    assert device.si["int8"][:2] == pytest.approx(measured.int8, rel=1e-5)
    assert device.calibration is not None
    assert {n: tuple(p) for n, p in device.calibration.phases.items()} == dict(measured.phases)


def test_predictions_take_the_measured_terms(measured: DeviceCalibration, record: Path) -> None:
    """T_dec and T_rec are the fitted seconds, whatever P_int they are written in; what is given counts instead."""
    device, kernel = load_device(record), gemm(300, 400, 500)
    inputs, outputs, r = 300 * 500 + 500 * 400, 300 * 400, 15
    found = predict(device, kernel, method("residues-int8", r=r, composition="serial"))
    assert found.terms["dec"] == pytest.approx(measured.fits["conversion"][0].unit_s * r * inputs, rel=1e-5)
    assert found.terms["rec"] == pytest.approx(measured.fits["reconstruction"][0].unit_s * r * outputs, rel=1e-5)
    constants = sum(fits[0].constant_s for fits in measured.fits.values())
    assert found.emulated_s == pytest.approx(sum(found.terms.values()) + measured.call_s[0] + constants, rel=1e-5)
    assert found.sources["c_q"] == device.figures["c_q"][0].source
    given = predict(device, kernel, method("residues-int8", r=r, c_q=2 * found.c_q))
    assert given.terms["dec"] == pytest.approx(2 * found.terms["dec"])
    assert given.terms["rec"] == found.terms["rec"]


def test_plans_use_the_record(measured: DeviceCalibration, record: Path) -> None:
    found = gm.plan(gm.Problem(512, 256, 384), device=record, composition="serial")
    assert found.device == measured.name
    (residues,) = [c for c in found.candidates if c.scheme == "residues" and c.status != "rejected"]
    assert residues.terms is not None
    inputs = 512 * 256 + 256 * 384
    assert residues.terms["dec"] == pytest.approx(
        measured.fits["conversion"][0].unit_s * residues.moduli * inputs, rel=1e-5
    )
    native = next(c for c in found.candidates if c.scheme == "native")
    work = 2 * 512 * 256 * 384 / measured.fp64[0]
    assert native.time_s == pytest.approx(measured.call_s[0] + work, rel=1e-4)
    assert gm.plan(gm.Problem(512, 256, 384), device="h200").device == "H200"


def test_a_gpu_of_the_catalogue_keeps_its_integer_rate(measured: DeviceCalibration, tmp_path: Path) -> None:
    """c_q in time is the fitted seconds times the catalogue's P_int; the matrix unit's rate is the measured one."""
    import dataclasses

    facts = dict(measured.facts) | {"device": "cuda:0", "driver_version": "999.1"}
    fits = {  # as fast as a GPU may be
        term: tuple(dataclasses.replace(one, unit_s=one.unit_s * 1e-5) for one in both)
        for term, both in measured.fits.items()
    }
    gpu = dataclasses.replace(measured, name="NVIDIA H200", facts=facts, fits=fits)
    path = tmp_path / "nvidia-h200.toml"
    path.write_text(record_text(gpu, "made by a test", "2026-01-02"))
    device, known = load_device(path), load_device("h200")
    assert device.kind == "gpu"
    assert "999.1" in device.figures["int8"][0].source
    assert device.nominal().int32 == pytest.approx(known.nominal().int32)
    assert device.nominal().fp64_tensor == pytest.approx(gpu.fp64[0], rel=1e-5)
    assert device.nominal().fp64 == known.nominal().fp64
    known_int32 = known.nominal().int32
    assert known_int32 is not None
    assert device.si["c_q"][0] == pytest.approx(gpu.fits["conversion"][0].unit_s * known_int32, rel=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("c_q = [", "c_q = 5\nrest = [", "c_q"),
        ("c_rec = [", "c_rec = []\nc_wreck = [", "c_"),
        ('unit = "1"', 'unit = "s"', "unit 's'"),
        ("threads = 1", 'threads = "one"', "threads"),
    ],
)
def test_damaged_records_are_refused(record: Path, old: str, new: str, part: str) -> None:
    text = record.read_text()
    assert old in text
    record.write_text(text.replace(old, new, 1))
    with pytest.raises(FileError, match=r"rehearsal\.toml") as error:
        load_device(record)
    assert part in str(error.value)


def test_fits() -> None:
    """Exact lines come back; noise that would make a term negative leaves a line through the origin."""
    found = fit([1.0, 10.0, 100.0], [5.0, 14.0, 104.0])
    assert (found.unit_s, found.constant_s) == (pytest.approx(1.0), pytest.approx(4.0))
    assert found.worst < 1e-12
    assert fit([1.0, 10.0], [1.0, 100.0]).constant_s == 0
    falling = fit([1.0, 10.0], [3.0, 2.0])
    assert falling.constant_s == 0
    assert falling.unit_s > 0
    one = fit([2.0], [3.0])
    assert (one.unit_s, one.constant_s) == (1.5, 0.0)


LISTING = """
        .headerflags    @"EF_CUDA_SM90"
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;                /* 0x00000a00ff017b82 */
                                                                         /* 0x000fe20000000800 */
        /*0010*/              @!P1 EXIT ;                                /* 0x000000000000994d */
.L_x_0:
        /*0020*/                   FFMA R2, R3, R4, R5 ;                 /* 0x0 */
        /*0030*/                   STG.E.U8 desc[UR4][R2.64], R7 ;       /* 0x0 */
        /*0040*/               @P1 BRA `(.L_x_0) ;                       /* 0x0 */
        /*0050*/                   EXIT ;                                /* 0x0 */
.L_x_1:
        /*0060*/                   BRA `(.L_x_1);                        /* 0x0 */
        /*0070*/                   NOP;                                  /* 0x0 */
"""


def test_instructions_are_counted_by_modulus() -> None:
    """Three instructions before and after the loop, three in it; the branch to itself and NOPs are padding."""
    counted = count_instructions(LISTING)
    assert (counted.outside, counted.body) == (3, 3)
    assert counted.c_q(entries=2, moduli=15) == (3 + 15 * 3) / 30
    with pytest.raises(ModelError, match="no instructions"):
        count_instructions("nothing")
    with pytest.raises(ModelError, match="has 0 loops"):
        count_instructions(LISTING.replace("@P1 BRA `(.L_x_0)", "@P1 BRA `(.L_x_1)"))


def cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["model", "calibrate", *arguments])
    out, err = capsys.readouterr()
    return stop.value.code, out, err


@pytest.mark.timeout(120)
def test_the_command_writes_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without -o it is kept by the device's name, not as the host's record."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setitem(calibrate_device.__kwdefaults__, "budget_s", 0.0)
    code, out, err = cli(capsys, "--device", "cpu", "--sizes", "72,96", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    path = Path(found["output"])
    assert path.parent == tmp_path / "gemmulate"
    assert path.name.startswith("torch-on-")
    device = load_device(path)
    assert device.si["c_q"] == pytest.approx(found["c_q"], rel=1e-5)
    assert found["c_q"][0] == pytest.approx(6.0)  # no P_int is known of it
    assert not found["int32_known"]
    assert found["c_q_instructions"] is None
    assert 0 < found["conversion_share"] < 1
    assert device.calibration is not None
    assert device.calibration.command == "gemmulate model calibrate --device cpu --sizes 72,96"
    code, out, err = cli(capsys, "--device", "cpu", "--sizes", "72,96", "-o", str(tmp_path / "mine.toml"))
    assert (code, err) == (0, "")
    assert "not run on a GPU" in out
    assert "c_q in instructions" in out
    assert load_device(tmp_path / "mine.toml").name == device.name


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--device", "mps"), "cuda"),
        (("--device", "no such"), "no such"),
        (("--device", "cpu", "--sizes", "96"), "two or more"),
        (("--device", "cpu", "--sizes", "64,96"), "from 65"),
        (("--device", "cpu", "--sizes", "1e3"), "1e3"),
        (("--device", "cpu", "-o", "record.json"), ".toml"),
        (("--sizes", "96,128"), "--device"),
    ],
)
def test_refusals(
    arguments: tuple[str, ...], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert part in err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = cli(capsys, "--device", "cuda:1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "sees no CUDA device" in err
    assert '"cpu"' in err  # the way out
    with pytest.raises(EngineUnavailable):
        TorchDevice("cuda")


def test_the_mode_prefers_a_measured_record(
    measured: DeviceCalibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`emulate_fp64` asks the record of the device, where there is one; a damaged one is passed over."""
    from gemmulate.model.device import calibrated_file
    from gemmulate.torch import emulation_pays

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    emulation_pays.cache_clear()
    name = "Voodoo 2"
    path = calibrated_file(name)
    path.parent.mkdir()
    text = record_text(measured, "made by a test", "2026-01-02")
    assert emulation_pays(name, 1024, 1024, 1024)  # nothing is known of it
    emulation_pays.cache_clear()
    path.write_text("not = [ TOML")
    assert emulation_pays(name, 1024, 1024, 1024)
    emulation_pays.cache_clear()
    start, _, rest = text.partition("c_q = [")
    _, _, rest = rest.partition("\n]\n")
    path.write_text(start + 'c_q = { value = 1e5, unit = "1", source = "a test", status = "measured" }\n' + rest)
    assert load_device(path).si["c_q"] == (1e5,)
    assert not emulation_pays(name, 1024, 1024, 1024)
    emulation_pays.cache_clear()


def test_c_q_in_instructions() -> None:
    """Of the real kernel, compiled for a GPU that is not here: at least an instruction for each of the products,
    roundings and stores of a residue."""
    from gemmulate.plan.device_calibration import instructions_c_q

    assert instructions_c_q("") == (None, "a processor has no machine code of the kernel")
    pytest.importorskip("gemmulate.engines.triton.ahead", reason="there are no Triton kernels")
    counted, where = instructions_c_q("9.0", 15)
    assert counted is not None, where
    assert where.startswith("sm_90a")
    assert 4 < counted < 100  # four digits are multiplied; none of it runs twice
    more, _ = instructions_c_q("9.0", 30)
    assert more is not None
    assert more < counted  # what is done once is shared by more moduli


def test_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the tool: its values, or "not readable" where it fails or says something else."""
    from gemmulate.engines.torch_device import _nvidia_smi

    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for line, driver, clock in (
        ("echo 550.54.15, 345 MHz, 1980 MHz, 2619 MHz, 700.00 W, 31", "550.54.15", "345 MHz"),
        ("exit 6", "not readable", "not readable"),
        ("echo no devices", "not readable", "not readable"),
        ("true", "not readable", "not readable"),
    ):
        tool.write_text(f"#!/bin/sh\n{line}\n")
        tool.chmod(0o755)
        found = _nvidia_smi("GPU-1")
        assert (found["driver_version"], found["clocks.sm"]) == (driver, clock)
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert set(_nvidia_smi("GPU-1").values()) == {"not readable"}


def test_what_is_measured_is_the_engine_that_multiplies_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        device_calibration, "device_engine", lambda *a: asked.append(a) or "the first that proves itself"
    )
    device = TorchDevice("cpu")
    assert default_engine(device) is device.engine
    assert not asked
    device.on_gpu = True
    assert default_engine(device) == "the first that proves itself"
    assert asked == [(device.device, None, None)]
