"""Contract: a priced plan prices every way that the model can, says why the others are out, and takes the cheapest."""

import json
from pathlib import Path

import numpy as np
import pytest

import gemmulate as gm
from gemmulate import model
from gemmulate.errors import EngineUnavailable
from gemmulate.plan.candidates import REASONS, PricedPlan
from gemmulate.plan.problem import GAUSSIAN_BITS
from gemmulate.plan.table import bar, seconds

pytest.importorskip("scipy", reason="designs select moduli by SciPy")

SQUARE = gm.Problem(4096, 4096, 4096)


def out(plan: PricedPlan) -> dict[str, str]:
    """Rejected candidates: scheme and formats -> reason."""
    return {f"{c.scheme} {'+'.join(c.formats)}": str(c.reason) for c in plan.candidates if c.status == "rejected"}


@pytest.mark.parametrize("device", model.device_names())
@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact", gm.Bits(30)])
def test_order_choice_and_reasons(device: str, accuracy: object) -> None:
    plan = gm.plan(SQUARE, device=device, accuracy=accuracy)  # type: ignore[call-overload]
    kinds = [c.status for c in plan.candidates]
    priced = [c for c in plan.candidates if c.status != "rejected"]
    assert kinds == ["chosen"] * bool(priced) + ["slower"] * (len(priced) - 1) + ["rejected"] * kinds.count("rejected")
    times = [c.time_s for c in priced]
    assert times == sorted(times)
    for c in priced:
        assert c.range_s is not None
        assert c.range_s[0] <= c.time_s <= c.range_s[1]
        assert set(c.terms) == {"mma", "mem", "dec", "rec"}
        assert max(c.terms.values()) <= c.time_s <= sum(c.terms.values()) * (1 + 1e-12)
    for c in plan.candidates:
        assert (c.reason in REASONS) == (c.status == "rejected")
    text = plan.explain()
    assert all(c.name in text for c in plan.candidates)
    record = json.loads(plan.to_json())
    assert len(record["candidates"]) == len(plan.candidates)
    assert record["chosen"] == (record["candidates"][0] if priced else None)


def test_prices_are_the_models() -> None:
    """INT8 residues: r by the window's own arithmetic, and T_mma = r·2mnk/P by the data sheet's rate."""
    plan = gm.plan(gm.Problem(2048, 1024, 512, bits=(53, 53)), device="h200", c_q=6)
    found = next(c for c in plan.candidates if c.scheme == "residues" and c.formats == ("int8",))
    # The product of r pairwise coprime moduli ≤ 256 must exceed 2·k·2^106 = 2^117: 8 bits each make 15 or more.
    assert 15 <= found.moduli <= 16
    assert found.products == found.moduli
    assert found.terms["mma"] == pytest.approx(found.moduli * 2 * 2048 * 1024 * 512 / 1979e12)
    assert found.terms["mem"] == pytest.approx(8 * (2048 * 1024 + 1024 * 512 + 2048 * 512) / 4.8e12)
    lanes = 34e12 * 64 / (2 * 64)  # 64 integer lanes beside 64 FP64 lanes, two FLOP a lane and cycle
    assert found.terms["dec"] == pytest.approx(6 * found.moduli * (2048 * 1024 + 1024 * 512) / lanes)
    native = next(c for c in plan.candidates if c.scheme == "native")
    assert native.time_s == pytest.approx(2 * 2048 * 1024 * 512 / 67e12)
    assert plan.speedup == pytest.approx(native.time_s / plan.chosen.time_s)


def test_kernels_of_the_dispute() -> None:
    """B300 at c_q = 6: native wins GEMV, as published; GEMM is emulated."""
    gemv = gm.plan(model.gemv(16384, 16384), device="b300", c_q=6)
    assert gemv.chosen.scheme == "native"
    fp8 = next(c for c in gemv.candidates if c.formats == ("fp8_e4m3",))
    assert round(gemv.time_s / fp8.time_s, 2) == 0.44
    assert fp8.bound == "dec"
    claimed = gm.plan(model.gemv(16384, 16384), device="b300", c_q=6, composition="three_term")
    assert claimed.chosen.scheme != "native", "what the original claimed"
    assert gm.plan(SQUARE, device="b300", c_q=6).speedup > 50


def test_reasons() -> None:
    exact = gm.plan(SQUARE, device="h200", accuracy="exact")
    assert out(exact) == {
        "native fp64": "accuracy", "residues fp8_e4m3": "accumulator", "residues fp4_e2m1": "no-unit",
        "slices int8": "accuracy",
    }  # fmt: skip
    assert out(gm.plan(SQUARE, device="rubin"))["residues int8"] == "no-integer-rate"
    wide = gm.plan(gm.Problem(64, 64, 64, "int64"), device="b200")
    assert out(wide)["native fp64"] == "inexact"
    assert out(wide)["direct int8"] == "too-wide"
    assert out(wide)["direct fp4_e2m1"] == "no-encoding"
    assert out(wide)["slices int8"] == "inexact"
    fast = gm.plan(SQUARE, device="h200", accuracy="fast")
    assert "slices int8" not in out(fast)
    assert out(gm.plan(SQUARE, device="h200", accuracy=gm.Bits(60)))["native fp64"] == "accuracy"


def test_narrow_integers_take_one_product() -> None:
    plan = gm.plan(gm.Problem(4096, 4096, 4096, ("uint8", "int8")), device="h200")
    assert (plan.chosen.scheme, plan.chosen.products) == ("direct", 1)
    fp4 = gm.plan(gm.Problem(4096, 4096, 4096, "int8"), device="b300")
    six = next(c for c in fp4.candidates if c.scheme == "direct" and c.formats == ("fp4_e2m1",))
    assert six.products == 6, "INT8 x INT8 on FP4: six products, and five do not exist"


def test_a_device_of_the_users(tmp_path: Path) -> None:
    def figure(value: float, unit: str) -> str:
        return f'{{ value = {value}, unit = "{unit}", source = "made", status = "inferred" }}'

    path = tmp_path / "mine.toml"
    path.write_text(
        f'name = "mine"\nfp8_accumulator = "fp8_13bit"\nfp64 = {figure(1, "TFLOP/s")}\nmemory = {figure(1, "TB/s")}\n'
        f"int8 = {figure(100, 'TOP/s')}\nfp8 = {figure(100, 'TFLOP/s')}\nint32 = {figure(10, 'TOP/s')}\n"
    )
    plan = gm.plan(SQUARE, device=path)
    assert plan.device == "mine"
    assert plan.chosen.formats == ("int8",)
    assert out(plan)["residues fp8_e4m3"] == "accumulator"


def test_data_on_a_device() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-99, 100, (60, 50)), rng.integers(-99, 100, (50, 40))
    plan = gm.plan(a, b, device="b300")
    assert plan.bits == (7, 7), "|x| ≤ 99 < 2^7"
    assert plan.window_bits == (50 << 14).bit_length() + 1
    z = rng.standard_normal((3, 4)) + 1j
    assert "3×8 times 8×3" in gm.plan(z, z.T, device="b300").problem, "real and imaginary part, twice the depth"
    with pytest.raises(EngineUnavailable, match=r"B300.*gm\.matmul"):
        plan.run(a, b)


def test_gaussian_bits() -> None:
    """The bits assumed without data are those that data of that kind take, within three."""
    rng = np.random.default_rng(5)
    for (dtype, accuracy), bits in GAUSSIAN_BITS.items():
        a, b = (rng.standard_normal((256, 256)).astype(dtype) for _ in range(2))
        found = gm.plan(a, b, accuracy=accuracy, engine="reference").bits  # type: ignore[call-overload]
        assert max(abs(bits - one) for one in found) <= 3, (dtype, accuracy, found)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        ((0, 1, 1), {}, ValueError, "m = 0"),
        ((1, 1, 1.5), {}, TypeError, r"n = 1\.5"),
        ((1, True, 1), {}, TypeError, "k = True"),
        ((1, 1, 1), {"dtypes": "complex128"}, TypeError, "complex128"),
        ((1, 1, 1), {"dtypes": ("int8", "float64")}, TypeError, "one integer and one float"),
        ((1, 1, 1), {"dtypes": "no"}, TypeError, "'no'"),
        ((1, 1, 1), {"dtypes": ("int8",)}, TypeError, "dtypes"),
        ((1, 1, 1), {"bits": (129, 1)}, ValueError, "128"),
        ((1, 1, 1), {"bits": (1.5, 1)}, TypeError, "bits"),
        ((1, 1, 1), {"batch": -1}, ValueError, "batch = -1"),
    ],
)
def test_bad_problems(arguments: tuple[int, ...], options: dict, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        gm.Problem(*arguments, **options)


def test_bad_requests() -> None:
    a = np.ones((2, 2))
    for call, error, match in (
        (lambda: gm.plan(SQUARE, a), TypeError, "leave b out"),
        (lambda: gm.plan(a), TypeError, "b is missing|a and b|NoneType"),
        (lambda: gm.plan(a, device="b300"), TypeError, "b is missing"),
        (lambda: gm.plan(SQUARE, device="b3"), model.ModelError, "b300"),
        (lambda: gm.plan(SQUARE, device="b300", engine="native"), ValueError, "engine = 'native'"),
        (lambda: gm.plan(SQUARE, device="b300", composition="four"), model.ModelError, "composition 'four'"),
        (lambda: gm.plan(SQUARE, device="b300", c_q=-1), model.ModelError, "c_q = -1"),
        (lambda: gm.plan(SQUARE, accuracy="best"), ValueError, "accuracy = 'best'"),
        (lambda: gm.plan(np.array([[1]], object), np.array([[1]], object), device="b300"), TypeError, "floats|priced"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_bars_and_times() -> None:
    assert [len(bar(value, 8.0, 8)) for value in (0.0, 0.001, 1.0, 7.9, 8.0)] == [0, 1, 1, 8, 8]
    assert [seconds(value) for value in (2.0, 0.05, 3e-6, 4e-10)] == ["2 s", "50 ms", "3 µs", "0.4 ns"]
