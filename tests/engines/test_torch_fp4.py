"""Products on FP4 planes: packing and scale layout against a decoder of the documentation, exactness against integers.

Not run on a GPU. What torch would be given there goes through torch's own checks of shapes and types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gemmulate as gm  # noqa: E402 - torch is optional
from gemmulate.engines import frameworks, get_engine  # noqa: E402
from gemmulate.engines.array_engine import ArrayEngine  # noqa: E402
from gemmulate.engines.fp4_residues import digits_of_int8, fp4_system  # noqa: E402
from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem  # noqa: E402
from gemmulate.engines.torch import on_device  # noqa: E402
from gemmulate.engines.torch_fp4 import Fp4Engine, Fp4Library, packed_codes, stand_in, swizzled  # noqa: E402

# OCP Microscaling Formats v1.0: the values of E2M1's codes.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def e4m3(code: int) -> float:
    """OCP OFP8 v1.0: bias 7, three fraction bits, subnormals below 2^-6."""
    exponent, fraction = code >> 3 & 15, code & 7
    value = fraction * 2.0**-9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10)
    return -value if code >> 7 else value


def decoded(data: Any, scales: Any) -> Any:
    """Values of an NVFP4 operand, element by element.

    c10/util/Float4_e2m1fn_x2.h: element 2 i in the low half of byte i. cuBLAS documentation, "1D Block Scaling Factors
    Layout": the scale of row `outer` and block `inner` of a tile of 128 × 4 lies at (outer % 32) * 16 + (outer / 32) *
    4 + inner, tiles of 512 bytes follow each other along k first.
    """
    rows, size = data.shape
    tiles = (2 * size + 63) // 64
    out = np.zeros((rows, 2 * size))
    for i in range(rows):
        for k in range(2 * size):
            code = int(data[i, k // 2]) >> 4 * (k % 2) & 15
            outer, inner = i % 128, k // 16 % 4
            at = 512 * (i // 128 * tiles + k // 64) + (outer % 32) * 16 + (outer // 32) * 4 + inner
            out[i, k] = E2M1[code] * e4m3(int(scales[at]))
    return out


@pytest.mark.parametrize(("rows", "depth"), [(1, 32), (3, 96), (128, 64), (130, 160), (260, 32)])
def test_packing_and_scale_layout(rows: int, depth: int) -> None:
    rng = np.random.default_rng(rows)
    codes = rng.integers(0, 16, (rows, depth), dtype=np.uint8)
    scales = rng.integers(0, 0x7F, (rows, depth // 16), dtype=np.uint8)  # 0x7F is NaN
    data = packed_codes(torch.from_numpy(codes))
    flat = swizzled(torch.from_numpy(scales))
    assert data.shape == (rows, depth // 2)
    assert flat.shape == (-(-rows // 128) * 128 * (-(-depth // 64) * 4),)
    assert flat.is_contiguous()
    want = [[E2M1[codes[i, k]] * e4m3(int(scales[i, k // 16])) for k in range(depth)] for i in range(rows)]
    assert (decoded(data.numpy(), flat.numpy()) == np.array(want)).all()


def test_the_stand_in_takes_scales_and_codes_as_the_unit_does() -> None:
    """Whole scales, so that FP32 sums are exact: |Σ| ≤ 64 · 36 · 15² < 2^24 quarters."""
    rng = np.random.default_rng(5)
    operands = []
    for rows in (131, 9):
        codes = rng.integers(0, 16, (rows, 64), dtype=np.uint8)
        scales = torch.from_numpy(rng.integers(1, 16, (rows, 4)).astype(np.float32)).to(torch.float8_e4m3fn)
        operands.append((packed_codes(torch.from_numpy(codes)), swizzled(scales.view(torch.uint8))))
    (a, sa), (b, sb) = operands
    got = stand_in(a, b, sa.view(torch.float8_e4m3fn), sb.view(torch.float8_e4m3fn))
    assert (got.numpy() == decoded(a.numpy(), sa.numpy()) @ decoded(b.numpy(), sb.numpy()).T).all()


@pytest.mark.parametrize("depth", [32, 96, 116_480])
@pytest.mark.parametrize("k", [1, 2, 31, 32, 33, 95, 96, 97, 300])
def test_products(depth: int, k: int) -> None:
    lib = Fp4Library("cpu", depth)
    rng = np.random.default_rng(k)
    x, y = (rng.integers(-128, 128, (rows, k), dtype=np.int8) for rows in (5, 7))
    x[0], y[0], x[1], y[1] = -128, -128, 127, -128
    got = lib.to_numpy(lib.int8_product(lib.load(x), lib.load(y)))
    want = [[sum(p * q for p, q in zip(u, v, strict=True)) for v in y.tolist()] for u in x.tolist()]
    assert got.tolist() == want


@pytest.mark.parametrize("k", [116_480, 116_508, 116_509, 131_072])
def test_at_and_beyond_the_depth_of_fp32(k: int) -> None:
    """Codes 7 (the value 6) alone, whose sums grow fastest; FP32 would round the odd multiples of 36 beyond 2^22."""
    lib = Fp4Library()
    codes = np.zeros((2, -(-k // 32) * 32), dtype=np.uint8)
    codes[0, :k] = 7
    codes[1, :k] = 15
    codes[1, k - 1] = 1
    planes = packed_codes(torch.from_numpy(codes))
    want = [[144 * k, -144 * (k - 1) + 12], [-144 * (k - 1) + 12, 144 * (k - 1) + 1]]
    assert lib.fp4_product(planes, planes).tolist() == want


def test_int8_products_beyond_the_depth() -> None:
    lib, k = Fp4Library(), 116_480 + 37
    x = np.full((2, k), -128, dtype=np.int8)
    x[1] = 127
    want = [[k * 16384, -k * 16256], [-k * 16256, k * 16129]]
    assert lib.to_numpy(lib.int8_product(lib.load(x), lib.load(x))).tolist() == want


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (5, 96, 7), (129, 40, 17), (3, 200, 300)])
def test_what_the_unit_is_given(monkeypatch: pytest.MonkeyPatch, m: int, k: int, n: int) -> None:
    """What torch._scaled_mm is called with passes torch's own checks for CUDA, and decodes to the product."""
    from torch import _meta_registrations as meta

    monkeypatch.setattr(meta, "device_hint", lambda x: "cuda")

    def unit(a: Any, b: Any, *, scale_a: Any, scale_b: Any, out_dtype: Any) -> Any:
        checked = meta.meta_scaled_mm(a, b, scale_a, scale_b, out_dtype=out_dtype)
        assert (a.dtype, b.dtype, scale_a.dtype) == (torch.float4_e2m1fn_x2,) * 2 + (torch.float8_e4m3fn,)
        left = decoded(a.view(torch.uint8).numpy(), scale_a.view(torch.uint8).numpy())
        right = decoded(b.T.view(torch.uint8).numpy(), scale_b.view(torch.uint8).numpy())
        sums = torch.from_numpy(left @ right.T).to(out_dtype)
        assert checked.shape == sums.shape
        assert checked.dtype == sums.dtype
        return sums

    monkeypatch.setattr(torch, "_scaled_mm", unit)
    lib = Fp4Library()
    lib.on_unit = True
    rng = np.random.default_rng(m)
    x, y = (rng.integers(-128, 128, (v, k), dtype=np.int8) for v in (m, n))
    got = lib.to_numpy(lib.int8_product(lib.load(x), lib.load(y)))
    assert (got == x.astype(np.int64) @ y.astype(np.int64).T).all()


def test_operands_are_half_bytes() -> None:
    """One code for each product of the modulus and entry, two to a byte, rows padded to 32 entries."""
    engine = get_engine("torch-fp4")
    system = ResidueSystem(INT8_MODULI[:15])
    own = fp4_system(system)
    packed = engine.pack_integers(True, np.ones((3, 70), dtype=np.int64), system, 1)
    assert packed.nbytes == 58 * 3 * 96 // 2
    assert len(own.moduli) == 19


@pytest.mark.parametrize("shape", [(2, 0, 3), (1, 1, 1), (3, 5, 0)])
def test_small_and_empty_operands(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    engine, system = get_engine("torch-fp4"), ResidueSystem(INT8_MODULI[:3])
    sides = [np.full((v, k), -5, dtype=np.int64) for v in (m, n)]
    left, right = (engine.pack_integers(side, x, system, 3) for side, x in zip((True, False), sides, strict=True))
    out = np.full((m, n), 7, dtype=np.int64)
    engine.multiply_integers(left, right, system, out)
    assert (out == 25 * k).all()


def test_on_another_device_the_planes_stay_fp4() -> None:
    engine = on_device(get_engine("torch-fp4"), torch.device("cpu", 0))
    assert isinstance(engine, Fp4Engine)
    assert engine.library.device == torch.device("cpu", 0)


@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact", gm.Bits(75)], ids=str)
def test_floats_have_the_native_bits(accuracy: Any) -> None:
    rng = np.random.default_rng(8)
    x, y = (rng.standard_normal(s) * 2.0 ** rng.integers(-20, 20, s) for s in ((70, 90), (90, 65)))
    x[3, 4], y[5, 6], x[8] = np.nan, -np.inf, 0.0
    for dtype in (np.float64, np.float32):
        a, b = x.astype(dtype), y.astype(dtype)
        got = gm.matmul(a, b, accuracy=accuracy, engine="torch-fp4")
        assert got.tobytes() == gm.matmul(a, b, accuracy=accuracy).tobytes()
    z = x + 1j * x[::-1]
    assert (
        gm.matmul(z, y, accuracy=accuracy, engine="torch-fp4").tobytes() == gm.matmul(z, y, accuracy=accuracy).tobytes()
    )


def test_pairs_have_the_native_bits() -> None:
    rng = np.random.default_rng(9)
    a, b = (gm.DoubleDouble(x, x * 2.0**-54 * rng.random(x.shape)) for x in rng.standard_normal((2, 66, 66)))
    got, want = gm.matmul(a, b, engine="torch-fp4"), gm.matmul(a, b)
    assert got.hi.tobytes() == want.hi.tobytes()
    assert got.lo.tobytes() == want.lo.tobytes()


def test_integers_are_those_of_python() -> None:
    rng = np.random.default_rng(10)
    a, b = rng.integers(-(2**62), 2**62, (9, 70)), rng.integers(-(2**62), 2**62, (70, 8))
    exact = a.astype(object) @ b.astype(object)
    for p in (2, 65521, 2**61 - 1, 2**63):
        assert (gm.matmul(a, b, modulus=p, engine="torch-fp4") == exact % p).all()
    assert (gm.matmul(a, b, overflow="object", engine="torch-fp4") == exact).all()
    assert (
        gm.matmul(a >> 40, b >> 40, engine="torch-fp4") == (a >> 40).astype(object) @ (b >> 40).astype(object)
    ).all()
    huge = a.astype(object) * 3**300
    assert (gm.matmul(huge, b.astype(object), engine="torch-fp4") == exact * 3**300).all()


def test_the_sums_of_a_modulus_fit_what_holds_them() -> None:
    """int32 up to the depth where the bound passes 2^31, and int64 beyond: six products weigh 1,256 · 144 a step."""
    digits, k = digits_of_int8(), 11_904
    assert digits.bound(11_873) < 2**31 <= digits.bound(11_874)
    lib = Fp4Library()
    x = torch.full((1, k), -128, dtype=torch.int8)
    assert lib.int8_matmul(x, x).dtype == torch.int64
    assert lib.int8_matmul(x[:, :1024], x[:, :1024]).dtype == torch.int32
    assert lib.int8_matmul(x, x).item() == k * 16384


@pytest.mark.parametrize(("capability", "available"), [((9, 0), False), ((10, 3), True), ((12, 0), True)])
def test_gpus_without_fp4_units_are_told_so(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], available: bool
) -> None:
    monkeypatch.setattr(frameworks, "_has_nvidia_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *a: capability)
    record = next(r for r in gm.engines() if r.name == "torch-cuda-fp4")
    assert (record.device, record.formats, record.available) == ("cuda", ("fp4_e2m1",), available)
    if not available:
        assert record.reason == "this GPU (compute capability 9.0) has no FP4 units, those of 10.x and 12.x have"
        with pytest.raises(
            gm.EngineUnavailable, match=r"'torch-cuda-fp4' cannot run here: this GPU .* has no FP4 units"
        ):
            get_engine("torch-cuda-fp4")


def test_an_older_pytorch_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "_has_nvidia_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *a: (10, 0))
    monkeypatch.delattr(torch, "float4_e2m1fn_x2")
    record = next(r for r in gm.engines() if r.name == "torch-cuda-fp4")
    assert not record.available
    assert "has no FP4 products; install 2.8 or newer" in record.reason


def test_the_engine_is_the_array_engine_on_other_planes() -> None:
    assert isinstance(get_engine("torch-fp4"), ArrayEngine)
    assert get_engine("torch-fp4").memory() == ArrayEngine("mine", Fp4Library()).memory() // 3
