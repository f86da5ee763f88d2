"""Contract: the catalogue holds the sheets' numbers; files are read strictly and refused with file, key and rule."""

from pathlib import Path

import pytest

from gemmulate.encodings.rates import of_device
from gemmulate.errors import FileError
from gemmulate.model import ModelError, device_names, load_device
from gemmulate.model.device import DIMENSIONS
from gemmulate.model.units import PLAUSIBLE, UNITS, to_si

T = 1e12
# Typed from the vendors' sheets as collected: (FP64, FP64 tensor, FP32, INT8, FP8, FP4, bytes/s, SMs, INT32 lanes, FP64
# lanes); a tuple where sources disagree.
CATALOGUE: dict[str, tuple[object, ...]] = {
    "a100": (9.7, 19.5, 19.5, 624, None, None, 2.0, 108, 64, 32),
    "h100": (34, 67, 67, 1979, 1979, None, 3.35, 132, 64, 64),
    "h200": (34, 67, 67, 1979, 1979, None, (4.3, 4.8), 132, 64, 64),
    "b200": ((37, 40), None, (75, 80), 4500, 4500, 9000, (7.7, 8.0), 148, 64, 64),
    "b300": ((1.25, 1.3), None, (75, 80), (125, 165), (4500, 5000), (13100, 15000), (7.7, 8.0), (148, 160), 64, 2),
    "rubin": (33, None, 130, (250, 2500), (4000, 17500), 35000, 22, None, None, None),
    "rtx4090": (1.29, None, 82.6, 660, 330, None, 1.01, 128, 64, 2),
    "rtx5090": (1.64, None, 104.8, 838, 419, 1676, 1.79, 170, 64, 2),
    "rtxpro6000": (1.95, None, 125, 1000, 500, 2000, 1.79, 188, 64, 2),
    "l40s": (1.43, None, 91.6, 733, 733, None, 0.86, 142, 64, 2),
    "mi300x": (81.7, 163.4, 163.4, 2600, 2610, None, 5.3, 304, None, None),
    "mi355x": (78.6, None, 157.3, 5000, 5000, 10100, 8.0, 256, None, None),
}
COLUMNS = (
    "fp64",
    "fp64_tensor",
    "fp32",
    "int8",
    "fp8",
    "fp4",
    "memory",
    "sms",
    "int32_lanes_per_sm",
    "fp64_lanes_per_sm",
)

GOOD = """
name = "mine"
fp64 = { value = 1.3, unit = "TFLOP/s", source = "sheet", status = "datasheet" }
memory = { value = 8.0, unit = "TB/s", source = "sheet", status = "measured" }
fp8 = [
    { value = 5, unit = "PFLOP/s", source = "one", status = "datasheet" },
    { value = 4500, unit = "TFLOP/s", source = "other", status = "inferred" },
]
int32 = { value = 20.8, unit = "TOP/s", source = "counted", status = "measured" }
"""


@pytest.mark.parametrize("name", device_names())
def test_catalogue(name: str) -> None:
    device = load_device(name)
    for column, expected in zip(COLUMNS, CATALOGUE[name], strict=True):
        if expected is None:
            assert column not in device.si
            continue
        scale = 1 if DIMENSIONS[column] == "count" else T
        low, high = expected if isinstance(expected, tuple) else (expected, expected)
        assert device.span(column) == pytest.approx((low * scale, high * scale), rel=1e-15), column
    for values in device.figures.values():
        for figure in values:
            assert figure.source
            assert figure.status in ("datasheet", "measured", "inferred")
    assert device.uncertain() == tuple(key for key, values in device.si.items() if len(values) > 1)


def test_catalogue_is_complete() -> None:
    assert set(device_names()) == set(CATALOGUE)
    assert load_device("RTX PRO 6000") is load_device("rtxpro6000")


def test_fp8_modes_of_consumer_cards() -> None:
    # Exact sums need FP32 accumulation; the faster FP16 mode is listed beside it.
    for name, fast in (("rtx4090", 660), ("rtx5090", 838), ("rtxpro6000", 1000)):
        assert load_device(name).si["fp8_fp16_accumulate"] == (fast * T,)


def test_integer_rate_from_lanes() -> None:
    # 160 SMs · 64 lanes · f with 1.3 TFLOP/s = 160 · 2 lanes · 2 · f.
    assert load_device("b300").nominal().int32 == pytest.approx(16 * 1.3e12)
    assert load_device("mi300x").nominal().int32 is None


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_user_device(tmp_path: Path) -> None:
    device = load_device(write(tmp_path, GOOD))
    assert device.nominal().fp8 == 5e15
    assert device.span("fp8") == (4.5e15, 5e15)
    assert device.nominal().int32 == pytest.approx(2.08e13, rel=1e-15)
    assert [rates.fp8 for rates in device.corners()] == [4.5e15, 5e15]
    assert load_device(str(tmp_path / "mine.toml")) == device


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("value = 1.3", 'value = "1.3"', ["fp64.value", "float"]),
        ("value = 1.3", "value = true", ["fp64.value", "float"]),
        ("value = 1.3", "value = -1.3", ["fp64:", "-1.3 TFLOP/s", "outside"]),
        ("value = 1.3", "value = 0", ["fp64:", "outside"]),
        ("value = 1.3", "value = nan", ["fp64:", "outside"]),
        ("value = 1.3", "value = inf", ["fp64:", "outside"]),
        ("value = 1.3", "value = 1.3e12", ["fp64:", "outside", "check value and unit"]),
        ("value = 1.3,", "", ["fp64:", "value"]),
        ('unit = "TB/s"', 'unit = "TFLOP/s"', ["memory:", "'TFLOP/s'", "TB/s"]),
        ('unit = "TB/s"', 'unit = "tb/s"', ["memory:", "'tb/s'"]),
        ('unit = "TOP/s"', 'unit = "TFLOP/s"', ["int32:", "'TFLOP/s'", "TOP/s"]),
        ('status = "measured" }\nfp8', 'status = "guessed" }\nfp8', ["memory.status", "guessed"]),
        ('source = "counted"', 'source = " "', ["int32.source", "empty"]),
        ('source = "other"', "sauce = 3", ["fp8[1]", "sauce"]),
        ('name = "mine"', "", ["name"]),
        ('name = "mine"', 'name = ""', ["name", "empty"]),
        ('name = "mine"', 'name = "mine"\nfp65 = 3', ["fp65"]),
        ('name = "mine"', 'name = "mine"\nkind = "tpu"', ["kind", "tpu"]),
        ('name = "mine"', 'name = "mine"\nsms = []', ["sms", "empty list"]),
        ('name = "mine"', 'name = "mine"\nname = "again"', ["TOML", "line"]),
        ('name = "mine"', "name = mine", ["TOML", "line 2"]),
    ],
)
def test_refused_with_file_and_key(tmp_path: Path, old: str, new: str, parts: list[str]) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(FileError) as refused:
        load_device(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    for part in parts:
        assert part in message, message


def test_other_bad_files(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.toml", "No such file"), (tmp_path, "regular file")):
        with pytest.raises(FileError, match=reason):
            load_device(path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not TOML"):
        load_device(binary)
    with pytest.raises(FileError, match=r"binary\.toml"):
        load_device(binary)
    deep = tmp_path / "deep.toml"
    deep.write_text("name = " + "[" * 100_000)
    with pytest.raises(FileError):
        load_device(deep)
    with pytest.raises(ModelError, match="'b3000' is not one of a100"):
        load_device("b3000")


def test_units() -> None:
    assert to_si(1300, "GFLOP/s", "flop_rate") == to_si(1.3, "TFLOP/s", "flop_rate")
    assert to_si(1, "GiB/s", "traffic") == 2**30
    assert to_si(1, "PB/s", "traffic") == 1e15
    assert to_si(2.5, "us", "time") == pytest.approx(2.5e-6, rel=2**-50)
    assert set(UNITS) == set(PLAUSIBLE) == set(DIMENSIONS.values())
    with pytest.raises(ValueError, match="'Tflops' is not one of"):
        to_si(1, "Tflops", "flop_rate")


@pytest.mark.parametrize("name", device_names())
def test_encodings_are_priced_by_the_same_catalogue(name: str) -> None:
    """Two readers of one file: the model's, in SI units with every check, and the designs', in exact fractions."""
    device, rates = load_device(name), of_device(name)
    for format_name, unit in (("int8", "int8"), ("fp8_e4m3", "fp8"), ("fp4_e2m1", "fp4")):
        assert (format_name in rates.ops_per_s) == (unit in device.si)
        if unit in device.si:
            assert float(rates.of(format_name)) == device.si[unit][0]
            assert float(of_device(name, 1).of(format_name)) == device.si[unit][-1]
    assert rates.accumulators.get("fp8_e4m3", "") == device.fp8_accumulator
