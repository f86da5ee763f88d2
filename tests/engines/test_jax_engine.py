"""JAX's engine beyond the contract suite, which runs on the processor with NumPy's arrays around JAX's products.

On other devices every operation is JAX's own. That way runs here on the processor: for few shapes, since XLA compiles
each operation for each shape. Oracles: Python integers, and the default engine where the contract says the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate.engines import Engine, get_engine

jax = pytest.importorskip("jax")

from gemmulate.engines.jax import JaxEngine, JaxHostLibrary, JaxLibrary  # noqa: E402

M, K, N = 4, 6, 3


@pytest.fixture(scope="module")
def on_device() -> Engine:
    """As on a GPU: every array is JAX's."""
    return JaxEngine("jax on a device", JaxLibrary(jax.devices("cpu")[0]))


def bits_of(x: Any) -> bytes:
    return np.asarray(x).tobytes()


def hostile(rng: np.random.Generator, dtype: str) -> tuple[Any, Any]:
    """Subnormals, which XLA may flush, zeros of both signs, cancellation, NaN and infinities."""
    low = -1074 if dtype == "f8" else -149
    a, b = (np.ldexp(rng.standard_normal(s), rng.integers(-8, 9, s)).astype(dtype) for s in ((M, K), (K, N)))
    a[0] = np.ldexp(rng.integers(1, 9, K).astype("f8"), low).astype(dtype)
    b[:, 0], b[0, 1] = [1, 0.5, 3, -1, 2, 0.25], -0.0
    a[1] = [1, -1, 1, -1, 1, -1]
    a[2, 3], a[3, 1] = np.nan, -np.inf
    return a, b


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("accuracy", ["exact", "fp64", gm.Bits(20)], ids=str)
def test_floats_on_a_device(on_device: Engine, dtype: str, accuracy: Any) -> None:
    a, b = hostile(np.random.default_rng(1), dtype)
    assert bits_of(gm.matmul(a, b, accuracy=accuracy, engine=on_device)) == bits_of(gm.matmul(a, b, accuracy=accuracy))


def test_bits_that_elements_need_on_a_device(on_device: Engine) -> None:
    """The assessment of "fp64", whose order of operations is part of the contract."""
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((M, K)), rng.standard_normal((N, K))
    found = []
    for engine in (on_device, get_engine("reference")):
        tops = engine.scan(x, None).top, engine.scan(y, None).top
        sums = engine.norms(x, tops[0], None).sum, engine.norms(y, tops[1], None).sum
        packed = engine.pack_magnitudes(True, x, tops[0], None), engine.pack_magnitudes(False, y, tops[1], None)
        need = np.empty((M, N), dtype=np.uint8)
        found.append((need, engine.assess(*packed, *sums, 2.0**-52, need)))
    assert (found[0][0] == found[1][0]).all()
    assert (found[0][1] == found[1][1]).all()


def test_integers_on_a_device(on_device: Engine) -> None:
    rng = np.random.default_rng(3)
    limits = np.iinfo(np.int64)
    a, b = (rng.integers(limits.min, limits.max, s, endpoint=True) for s in ((M, K), (K, N)))
    a[0, 0], b[0, 0] = limits.min, limits.min
    exact = a.astype(object) @ b.astype(object)
    assert (gm.matmul(a, b, overflow="object", engine=on_device) == exact).all()
    assert (gm.matmul(a, b, overflow="wrap", engine=on_device) == a @ b).all()
    for p in (2, 2**31 - 1, 2**63):
        assert (gm.matmul(a, b, modulus=p, engine=on_device) == exact % p).all()
    small = a >> 60
    assert (gm.matmul(small, b >> 60, engine=on_device) == small.astype(object) @ (b >> 60).astype(object)).all()


def test_double_double_on_a_device(on_device: Engine) -> None:
    rng = np.random.default_rng(4)
    pairs = [gm.DoubleDouble(x, x * 2.0**-60) for x in (rng.standard_normal((M, K)), rng.standard_normal((K, N)))]
    got, want = (gm.matmul(*pairs, engine=engine) for engine in (on_device, None))
    assert bits_of(got.hi) == bits_of(want.hi)
    assert bits_of(got.lo) == bits_of(want.lo)


@pytest.mark.parametrize("setting", [False, True])
def test_the_callers_setting_of_64_bit_types_stays(on_device: Engine, setting: bool) -> None:
    with jax.enable_x64(setting):
        assert on_device.integer_range(np.array([[2**62, -3]])) == (-3, 2**62)
        assert (jax.numpy.arange(2).dtype == np.int64) is setting


def test_sizes_that_xla_compiles_are_few() -> None:
    library, rng = JaxHostLibrary(jax.devices("cpu")[0]), np.random.default_rng(5)
    for m, k, n in ((1, 1, 1), (33, 5, 70), (513, 40, 3), (2, 1100, 2), (0, 3, 2), (2, 0, 3)):
        a, b = (rng.integers(-128, 128, s, dtype=np.int8) for s in ((m, k), (n, k)))
        assert (library.int8_product(a, b) == a.astype(int) @ b.astype(int).T).all()
    from gemmulate.engines.jax import _int8_product

    before = _int8_product._cache_size()
    for m in range(1, 32):
        library.int8_product(np.ones((m, m), np.int8), np.ones((m, m), np.int8))
    assert _int8_product._cache_size() <= before + 1


def test_a_tpu_has_no_engine_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmulate.engines import frameworks

    monkeypatch.setattr(frameworks, "_has_nvidia_driver", lambda: True)
    for backend, available in (("tpu", False), ("cuda", True)):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        record = frameworks._jax_record()
        assert (record.device, record.available) == (backend, available)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert "leave engine out" in frameworks._jax_record().reason
