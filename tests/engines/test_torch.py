"""PyTorch's engine beyond the contract suite: shape rules of devices, depth, strides, and equal bits at every grade.

Oracles: Python integers, and the native or else the reference engine where the contract says the same bits. CUDA's
shape rules run here on the processor; nothing of this was run on a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gemmulate as gm
from gemmulate.engines import get_engine
from gemmulate.engines.array_library import INT32_DEPTH, ProductRules
from gemmulate.engines.residue_system import residue_system

torch = pytest.importorskip("torch")

from gemmulate.engines.array_engine import ArrayEngine  # noqa: E402
from gemmulate.engines.torch import _SHARE, CPU_RULES, CUDA_RULES, TorchLibrary, in_memory  # noqa: E402

OTHER = gm.engines()[0].name if gm.engines()[0].available else "reference"


def exact(a: Any, b: Any) -> Any:
    return a.astype(object) @ b.astype(object).T


class Strict(TorchLibrary):
    """Refuses shapes that the rules do not allow, as CUDA does; blocks of few elements."""

    def __init__(self, rules: ProductRules, block: int = 1 << 17) -> None:
        super().__init__("cpu", rules)
        self.block = block
        self.shapes: list[tuple[int, int, int]] = []

    def int8_matmul(self, a: Any, b: Any) -> Any:
        (m, k), n, rules = a.shape, b.shape[0], self.rules
        assert b.shape[1] == k
        assert m >= rules.least_rows
        assert rules.least_depth <= k <= rules.depth
        assert k % rules.multiple == n % rules.multiple == 0
        self.shapes.append((m, k, n))
        return super().int8_matmul(a, b)


RULES = [CPU_RULES, CUDA_RULES, ProductRules(17, 8, 8, 16), ProductRules(1, 2, 1, 5), ProductRules(5, 3, 3, 3)]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 9), (16, 7, 8), (17, 8, 8), (17, 9, 16), (3, 40, 5), (2, 0, 3)])
def test_products_are_padded_to_the_rules(rules: ProductRules, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-128, 128, (v, k), dtype=np.int8) for v in (m, n))
    a[0], b[-1] = -128, -128
    library = Strict(rules)
    got = library.to_numpy(library.int8_product(library.load(a), library.load(b)))
    assert got.shape == (m, n)
    assert (got == (exact(a, b) if k else np.zeros((m, n), dtype=int))).all()
    assert library.shapes


@pytest.mark.parametrize("depth", [0, -8, INT32_DEPTH + 8, 12])
def test_rules_beyond_the_accumulator_are_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=f"depth = {depth} is not"):
        ProductRules(multiple=8, depth=depth)


def test_the_depth_is_the_accumulators() -> None:
    """k 128² fits int32 up to the depth, and not a multiple further."""
    assert INT32_DEPTH * 128 * 128 < 2**31 <= (INT32_DEPTH + 8) * 128 * 128


@pytest.mark.parametrize("k", [INT32_DEPTH, INT32_DEPTH + 1, 2 * INT32_DEPTH + 3])
def test_sums_beyond_int32(k: int) -> None:
    a = np.full((2, k), -128, dtype=np.int8)
    a[1] = 127
    library = Strict(CPU_RULES)
    got = library.to_numpy(library.int8_product(library.load(a), library.load(a)))
    assert got.tolist() == [[16384 * k, -128 * 127 * k], [-128 * 127 * k, 127 * 127 * k]]
    assert len(library.shapes) == -(-k // INT32_DEPTH)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("block", [1, 50, 1 << 17])
def test_blocks_and_rules_change_no_bit(rules: ProductRules, block: int) -> None:
    engine = ArrayEngine("torch", Strict(rules, block))
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-(2**40), 2**40, (v, 21), endpoint=True) for v in (7, 5))
    a[0], b[0] = 2**40, -(2**40)
    system = residue_system(21 << 80)
    assert system is not None
    out = np.empty((7, 5), dtype=np.int64)
    left, right = engine.pack_integers(True, a, system, 40), engine.pack_integers(False, b, system, 40)
    longest = engine.multiply_integers(left, right, system, out)
    want = exact(a, b)
    assert (out.astype(object) == (want + 2**63) % 2**64 - 2**63).all()
    assert longest == max((v if v >= 0 else ~v).bit_length() + 1 for v in want.flat)
    engine.multiply_modular(left, right, system, 2**63, out)
    assert (out.astype(object) == want % 2**63).all()
    assert left.nbytes == len(system.moduli) * a.size


@pytest.mark.parametrize("modulus", [2, 3, 255, 2**31 - 1, 2**32, 2**53 + 1, 2**61 - 1, 2**62 + 1, 2**63 - 1, 2**63])
def test_every_size_of_modulus(modulus: int) -> None:
    """Integers about multiples of the modulus and of its half, positive and negative, up to 300 bits."""
    engine = get_engine("torch")
    system = residue_system(1 << 302)
    assert system is not None
    rng = np.random.default_rng(modulus % 1000)
    values = [s * v for s in (1, -1) for v in (0, 1, modulus - 1, modulus, modulus + 1, (1 << 300) - 1, 1 << 300)]
    for size in (70, 110, 200, 230):
        q = int.from_bytes(rng.bytes(28), "little") % (1 << size)
        values += [s * (q * modulus + d) for s in (1, -1) for d in (-1, 0, 1, modulus // 2, (modulus + 1) // 2)]
    words = np.array([[[v >> 32 * w & 0xFFFFFFFF for w in range(10)]] for v in values], dtype=np.uint32)
    left = engine.pack_words(True, words, system, 300)
    right = engine.pack_integers(False, np.ones((1, 1), dtype=np.int64), system, 1)
    out = np.empty((len(values), 1), dtype=np.int64)
    engine.multiply_modular(left, right, system, modulus, out)
    assert out[:, 0].tolist() == [v % modulus for v in values]


def test_direct_products_beyond_64_bits_and_with_a_modulus() -> None:
    engine = get_engine("torch")
    rng = np.random.default_rng(4)
    a = rng.integers(2**64 - 256, 2**64, (6, 9), dtype=np.uint64)
    b = rng.integers(-(2**63), -(2**63) + 255, (5, 9), endpoint=True)
    left, right = engine.pack_direct(True, a, 2**64 - 256), engine.pack_direct(False, b, -(2**63) + 128)
    out, want = np.empty((6, 5), dtype=np.uint64), exact(a, b)
    longest = engine.multiply_direct(left, right, out)
    assert (out.astype(object) == want % 2**64).all()
    assert longest == max((~v).bit_length() + 1 for v in want.flat)
    residues = np.empty((6, 5), dtype=np.int64)
    engine.multiply_direct(left, right, residues, 2**61 - 1)
    assert (residues.astype(object) == want % (2**61 - 1)).all()


def hostile(rng: np.random.Generator, shape: tuple[int, int], dtype: Any, spread: int, *, special: bool = True) -> Any:
    """Wide exponents, subnormal numbers, both zeros, rows and columns of zeros, NaN and infinities."""
    info = ml_dtypes.finfo(dtype)
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape))
    with np.errstate(over="ignore", under="ignore"):
        x = x.astype(dtype)
    x[rng.random(shape) < 0.2] = 0.0
    x[rng.random(shape) < 0.1] = -0.0
    x[rng.random(shape) < 0.1] = info.smallest_subnormal
    x[2], x[:, 3] = -0.0, 0.0
    x[4] = x[5] = info.smallest_subnormal
    x[6] = info.max
    if special:
        x[7, 1], x[8, 2], x[9, :2] = np.nan, np.inf, -np.inf
    return x


def bits(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.uint8)


def layouts(a: Any) -> list[Any]:
    wide = np.zeros((2 * a.shape[0], 3 * a.shape[1]), dtype=a.dtype)
    wide[::2, ::3] = a
    backwards = np.ascontiguousarray(a[::-1, ::-1])
    locked = a.copy()
    locked.flags.writeable = False
    return [a, np.asfortranarray(a), wide[::2, ::3], backwards[::-1, ::-1], locked]


@pytest.mark.parametrize("grade", ["fast", "fp64", "exact", gm.Bits(30), gm.Bits(75)], ids=str)
@pytest.mark.parametrize(("dtype", "spread"), [(np.float64, 3), (np.float64, 40), (np.float64, 500), (np.float32, 30)])
def test_bits_of_floats(grade: Any, dtype: Any, spread: int) -> None:
    if dtype is np.float32 and grade == "fp64":
        grade = "fp32"
    rng = np.random.default_rng(spread)
    for m, k, n in ((11, 17, 12), (70, 65, 67)):
        a, b = hostile(rng, (m, k), dtype, spread), hostile(rng, (n, k), dtype, spread).T
        want = gm.matmul(a, b, accuracy=grade, engine=OTHER)
        for x, y in zip(layouts(a), layouts(b), strict=True):
            assert (bits(gm.matmul(x, y, accuracy=grade, engine="torch")) == bits(want)).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("grade", ["fast", "exact"])
def test_bits_of_narrow_floats(dtype: Any, grade: Any) -> None:
    rng = np.random.default_rng(6)
    a, b = hostile(rng, (71, 66), dtype, 12), hostile(rng, (66, 69), dtype, 12)
    want = gm.matmul(a, b, accuracy=grade, engine=OTHER)
    assert want.dtype == dtype
    assert (bits(gm.matmul(a, b, accuracy=grade, engine="torch")) == bits(want)).all()


@pytest.mark.parametrize("grade", ["fast", "fp64", "exact"])
def test_bits_of_complex(grade: Any) -> None:
    rng = np.random.default_rng(7)
    a, b = np.empty((2, 66, 70), dtype=np.complex128)
    for x in (a, b):
        x.real, x.imag = hostile(rng, (66, 70), np.float64, 20), hostile(rng, (66, 70), np.float64, 20)
    want = gm.matmul(a, b.T, accuracy=grade, engine=OTHER)
    assert (bits(gm.matmul(a, b.T, accuracy=grade, engine="torch")) == bits(want)).all()


def test_bits_of_double_double() -> None:
    rng = np.random.default_rng(8)
    sides = []
    for _ in range(2):
        high = hostile(rng, (31, 40), np.float64, 60, special=False)
        low = np.where(np.abs(high) < 1e300, high, 0) * 2.0**-54 * rng.choice([0.0, 1.0, -0.75], high.shape)
        total = high + low
        sides.append(gm.DoubleDouble(total, np.where(np.isfinite(total), low - (total - high), 0)))
    a, b = sides
    want = gm.matmul(a, b.T, engine=OTHER)
    got = gm.matmul(a, b.T, engine="torch")
    assert (bits(got.hi) == bits(want.hi)).all()
    assert (bits(got.lo) == bits(want.lo)).all()


@pytest.mark.parametrize(
    ("left", "right"),
    [("int8", "int8"), ("uint8", "int16"), ("uint16", "uint32"), ("int64", "int32"), ("uint64", "uint64")],
)
def test_integers_against_python(left: str, right: str) -> None:
    rng = np.random.default_rng(9)

    def whole(dtype: str, shape: tuple[int, int]) -> Any:
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        x.flat[0], x.flat[-1] = info.min, info.max
        return x

    a, b = whole(left, (19, 70)), whole(right, (23, 70))
    want = exact(a, b)
    for x, y in zip(layouts(a), layouts(b.T), strict=True):
        wrapped = gm.matmul(x, y, overflow="wrap", engine="torch")
        assert wrapped.dtype == np.result_type(a, b)
        assert ((wrapped.astype(object) - want) % (1 << 8 * wrapped.itemsize) == 0).all()
        for modulus in (2, 65521, 2**61 - 1, 2**63):
            got = gm.matmul(x, y, modulus=modulus, engine="torch")
            assert (got.astype(object) == want % modulus).all()
    huge = a.astype(object) * 3**60
    assert (gm.matmul(huge, b.T.astype(object), engine="torch") == want * 3**60).all()


def test_threads_are_left_to_torch() -> None:
    before = torch.get_num_threads()
    a = np.random.default_rng(1).standard_normal((70, 70))
    assert (gm.matmul(a, a, engine="torch", threads=1) == gm.matmul(a, a, engine="torch", threads=2)).all()
    assert torch.get_num_threads() == before


def test_operands_of_other_engines_are_refused() -> None:
    system = residue_system(100)
    assert system is not None
    one, out = np.ones((1, 1), dtype=np.int64), np.empty((1, 1), dtype=np.int64)
    foreign = get_engine(OTHER).pack_integers(True, one, system, 1)
    engine = get_engine("torch")
    with pytest.raises(TypeError, match="prepared by another engine"):
        engine.multiply_integers(foreign, engine.pack_integers(False, one, system, 1), system, out)


@pytest.mark.skipif(OTHER == "reference", reason="needs the native core")
def test_other_engines_do_without_torch() -> None:
    code = "import sys, gemmulate as gm; gm.matmul([[1.5]], [[2.5]], engine='native'); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"


@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE", "DEFAULT"])
def test_products_on_older_processors(isa: str) -> None:
    """oneDNN's kernels without VNNI saturate; PyTorch then gives wrong INT8 products, and the engine right ones."""
    code = (
        "import numpy as np; from gemmulate.engines import get_engine; e = get_engine('torch').library;"
        "a = np.random.default_rng(1).integers(-128, 128, (70, 600), dtype=np.int8); a[:9] = -128;"
        "got = e.to_numpy(e.int8_product(e.load(a), e.load(a))); w = a.astype(np.int64); print((got == w @ w.T).all())"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": isa}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "True"


def test_a_kernel_that_saturates_is_found_and_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmulate.engines import torch as module

    def saturating(a: Any, b: Any) -> Any:
        pairs = a.to(torch.int64)[:, None, :] * b.to(torch.int64).T[None, :, :]
        return (pairs[..., ::2] + pairs[..., 1::2]).clip(-32768, 32767).sum(-1).to(torch.int32)

    monkeypatch.setattr(torch, "_int_mm", saturating)
    module._int_mm_is_exact.cache_clear()
    try:
        library = TorchLibrary("cpu")
        a = np.full((3, 64), -128, dtype=np.int8)
        assert (library.to_numpy(library.int8_product(library.load(a), library.load(a))) == 64 * 16384).all()
    finally:
        module._int_mm_is_exact.cache_clear()


class Scarce(TorchLibrary):
    """A device with so many bytes."""

    def __init__(self, size: int) -> None:
        super().__init__("cpu", CUDA_RULES)
        self.size, self.largest = size, 0

    def memory(self) -> int:
        return self.size

    def int8_matmul(self, a: Any, b: Any) -> Any:
        self.largest = max(self.largest, a.shape[0])
        return super().int8_matmul(a, b)


def test_little_memory_means_blocks_and_too_little_an_error() -> None:
    x, y = (np.random.default_rng(7).integers(-(2**28), 2**28, s) for s in ((700, 40), (40, 900)))
    ample, scarce, poor = (Scarce(size) for size in (1 << 30, 600_000, 100_000))
    for library in (ample, scarce):
        assert (gm.matmul(x, y, engine=ArrayEngine("device", library)) == x.astype(object) @ y.astype(object)).all()
    assert scarce.largest < ample.largest == 700
    with pytest.raises(MemoryError, match=r"take 5\.7e-05 GiB, engine device has 9\.3e-05 GiB; split k"):
        gm.matmul(x, y, engine=ArrayEngine("device", poor))


class Crowded(Scarce):
    """A device that has less than it says: products of many rows run out of memory."""

    def __init__(self, rows: int, error: Exception | None = None) -> None:
        super().__init__(1 << 30)
        self.rows, self.tried = rows, 0
        self.error = error or torch.OutOfMemoryError("CUDA out of memory")

    def memory(self) -> int:
        return int((1 << 25) * _SHARE.get())

    def int8_matmul(self, a: Any, b: Any) -> Any:
        if a.shape[0] > self.rows:
            self.tried += 1
            raise self.error
        return super().int8_matmul(a, b)


def test_a_device_without_memory_gets_smaller_blocks_and_then_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    x, y = (torch.from_numpy(np.random.default_rng(8).standard_normal(s)) for s in ((700, 40), (40, 900)))
    want = gm.matmul(x, y, engine="native").numpy().tobytes()
    for rows, failures in ((700, 0), (300, 1), (100, 2)):
        library = Crowded(rows)
        engine = ArrayEngine("device", library)
        emptied.clear()
        assert gm.matmul(x, y, engine=engine).numpy().tobytes() == want
        assert (len(emptied), library.tried, _SHARE.get()) == (failures, failures, 1.0)
    with pytest.raises(MemoryError, match=r'does not fit the memory of cpu .* engine="native" \(CUDA out of memory'):
        gm.matmul(x, y, engine=ArrayEngine("device", Crowded(10)))
    with pytest.raises(ValueError, match="must equal"):
        gm.matmul(x, x, engine=ArrayEngine("device", Crowded(700)))


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasLtCreate(handle)`",
    ],
)
def test_memory_that_lacks_beside_the_tensors_counts_too(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA and Triton load code when a kernel is first launched, in memory that torch's cache may hold."""
    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    x = torch.from_numpy(np.random.default_rng(9).standard_normal((700, 40)))
    want = gm.matmul(x, x.T, engine="native").numpy().tobytes()
    got = gm.matmul(x, x.T, engine=ArrayEngine("device", Crowded(300, RuntimeError(text))))
    assert (got.numpy().tobytes(), len(emptied)) == (want, 1)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        gm.matmul(x, x.T, engine=ArrayEngine("device", Crowded(300, RuntimeError("CUDA error: illegal memory access"))))


def test_a_product_that_failed_holds_nothing_while_the_cache_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[Any]] = []
    alive: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(held[-1]() is not None))

    def product() -> None:
        planes = torch.zeros(3)
        held.append(weakref.ref(planes))
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryError, match="CUDA out of memory") as caught:
        in_memory(ArrayEngine("device", Scarce(1 << 30)), product)
    assert alive == [False, False, False]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_smaller_blocks_are_those_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    library = Crowded(0)
    engine, seen = ArrayEngine("device", library), []

    def product() -> None:
        seen.append(library.memory())
        # Another thread's product begins and ends within this one.
        other = threading.Thread(target=lambda: seen.append(in_memory(engine, library.memory)))
        other.start()
        other.join()
        seen.append(library.memory())
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryError):
        in_memory(engine, product)
    whole = 1 << 25
    assert seen == [v for share in (1, 4, 16) for v in (whole // share, whole, whole // share)]


def test_a_share_without_room_for_one_block_tells_what_lacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    x = torch.ones((20, 30_000), dtype=torch.float64)
    with pytest.raises(MemoryError, match=r"does not fit the memory of cpu .* \(CUDA out of memory\)"):
        gm.matmul(x, x.T, engine=ArrayEngine("device", Crowded(10)))


def test_operands_of_a_device_begin_at_aligned_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes of 5 · 8 bytes: the second one begins at byte 40 of its memory."""
    seen: list[tuple[int, int]] = []
    product = torch._int_mm

    def int_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append((a.storage_offset() % 16, b.storage_offset() % 16))
        return product(a, b)

    monkeypatch.setattr(torch, "_int_mm", int_mm)
    library = TorchLibrary("cpu")
    library._integer = True
    planes = torch.arange(80, dtype=torch.int8).reshape(2, 5, 8)
    want = planes[1].double() @ planes[1].double().T
    for device, offset in (("cpu", 8), ("meta", 0)):
        library.device = torch.device(device)
        assert library.int8_matmul(planes[1], planes[1]).tolist() == want.tolist()
        assert seen.pop() == (offset, offset)
