"""Contract of JAX arrays: gm.matmul's bits as JAX arrays, in jit, vmap and grad, with 64-bit types on and off.

Oracles: gm.matmul of NumPy arrays (held to oracles of its own), and JAX's own derivatives of jnp.matmul, on integers
that every float type here holds exactly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gemmulate as gm
from matmul.checks import assert_bits
from matmul.inputs import floats, integers
from matmul.oracles import correctly_rounded

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

# Operands of every shape that numpy.matmul takes.
SHAPES = [
    ((7,), (7,)),
    ((7,), (7, 5)),
    ((6, 7), (7,)),
    ((6, 7), (7, 5)),
    ((3, 6, 7), (7, 5)),
    ((2, 1, 6, 7), (3, 7, 5)),
    ((3, 6, 7), (7,)),
    ((7,), (3, 7, 5)),
    ((1, 6, 7), (4, 7, 5)),
    ((0, 7), (7, 5)),
    ((6, 0), (0, 5)),
]


@pytest.fixture(params=[False, True], ids=["x64 off", "x64 on"])
def wide(request: pytest.FixtureRequest) -> Iterator[bool]:
    with jax.enable_x64(request.param):
        yield request.param


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def hostile(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    x = floats(rng, shape, -12, 12, dtype, zeros=0.2)
    if x.size > 4:
        x.flat[1], x.flat[4] = np.nan, -np.inf
    return x


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f2", ml_dtypes.bfloat16, "f4", "c8", "i1", "?"], ids=str)
def test_the_bits_of_numpys_route(wide: bool, dtype: Any, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(1)
    real = np.dtype("f4" if dtype == "c8" else dtype)
    if real.kind in "bi":
        a, b = (integers(rng, shape, dtype) for shape in shapes)
        options: dict[str, Any] = {} if wide else {"overflow": "wrap"}
    else:
        a, b = (hostile(rng, shape, real) for shape in shapes)
        options = {"accuracy": "exact"}
        if dtype == "c8":
            a, b = (complex_of(x, x[::-1]) for x in (a, b))
    want = np.asarray(gm.matmul(a, b, **options))
    x, y = jnp.asarray(a), jnp.asarray(b)
    for product in (gm.matmul, gm.jax.matmul, jax.jit(lambda p, q: gm.matmul(p, q, **options))):
        got = product(x, y) if product not in (gm.matmul, gm.jax.matmul) else product(x, y, **options)
        assert isinstance(got, jax.Array)
        assert_same(np.asarray(got), want)


def complex_of(real: Any, imag: Any) -> Any:
    x = np.empty(real.shape, dtype="c8")
    x.real, x.imag = real, imag
    return x


def assert_same(got: Any, want: Any) -> None:
    if want.dtype.kind == "c":
        assert got.dtype == want.dtype
        assert_bits(got.real, want.real)
        assert_bits(got.imag, want.imag)
    else:
        assert_bits(got, want)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact", gm.Bits(20)], ids=str)
def test_float64_at_every_grade(accuracy: Any) -> None:
    rng = np.random.default_rng(2)
    a, b = floats(rng, (70, 80), -200, 200), floats(rng, (80, 60), -200, 200)
    a[3], b[:, 4] = floats(rng, (80,), -1074, -1023), 1.0
    want = gm.matmul(a, b, accuracy=accuracy)
    got = jax.jit(lambda x, y: gm.matmul(x, y, accuracy=accuracy))(jnp.asarray(a), jnp.asarray(b))
    assert_bits(np.asarray(got), want)
    if accuracy == "exact":
        assert_bits(np.asarray(got), correctly_rounded(a, b))


@pytest.mark.usefixtures("x64")
def test_integers_modulus_and_overflow() -> None:
    rng = np.random.default_rng(3)
    a, b = integers(rng, (5, 6), "i8"), integers(rng, (6, 4), "i8")
    x, y = jnp.asarray(a), jnp.asarray(b)
    for options in ({"modulus": 2**63 - 25}, {"modulus": 2**63}, {"overflow": "wrap"}):
        assert_bits(np.asarray(jax.jit(lambda p, q, o=options: gm.matmul(p, q, **o))(x, y)), gm.matmul(a, b, **options))
    with pytest.raises(gm.ResultOverflow, match="bits"):
        gm.matmul(x, y)
    with pytest.raises(Exception, match=r"ResultOverflow: a result needs \d+ bits"):
        jax.block_until_ready(jax.jit(gm.matmul)(x, y))
    with pytest.raises(TypeError, match="Python ints, which JAX does not have"):
        gm.matmul(x, y, overflow="object")


@pytest.mark.parametrize("traced", [False, True])
def test_types_that_jax_lacks_are_errors_and_say_the_way_out(traced: bool) -> None:
    def product(a: Any, b: Any, **options: Any) -> Any:
        run = lambda x, y: gm.jax.matmul(x, y, **options)  # noqa: E731
        return jax.jit(run)(a, b) if traced else run(a, b)

    i, f = jnp.arange(6, dtype=jnp.int32).reshape(2, 3), jnp.ones((3, 2), dtype=jnp.float32)
    with jax.enable_x64(False):
        with pytest.raises(TypeError, match=r'int64, which JAX does not have.*jax_enable_x64", True.*dtype=jnp\.int32'):
            product(i, i.T)
        with pytest.raises(TypeError, match=r"float64, which JAX does not have.*narrower float"):
            product(i, f)  # NumPy's common type
        assert_bits(np.asarray(product(i, i.T, dtype=jnp.int32)), np.asarray(i) @ np.asarray(i).T)
        assert_bits(np.asarray(product(i, i.T, overflow="wrap")), np.asarray(i) @ np.asarray(i).T)
        assert_bits(np.asarray(product(i, i.T, modulus=2**31)), np.asarray(i) @ np.asarray(i).T)
        with pytest.raises(TypeError, match="int64, which JAX does not have"):
            product(i, i.T, modulus=2**31 + 1)
        with pytest.raises(Exception, match=r"a result needs .* bits"):
            jax.block_until_ready(product(i * 2**28, i.T, dtype=jnp.int32))
    with jax.enable_x64(True):
        assert product(i, i.T).dtype == jnp.int64
        assert product(i, i.T, modulus=5).dtype == jnp.int64
        assert product(i, f).dtype == jnp.float64


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtypes", [("f8", "f8"), ("c16", "c16"), ("f8", "c16"), ("c8", "f4"), ("f4", "f8")], ids=str)
def test_derivatives_are_jaxs_own(dtypes: tuple[str, str], shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Of small integers: every sum is exact, so that both are equal bit for bit."""
    rng = np.random.default_rng(4)
    a, b = (small(rng, shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
    value, ours = jax.vjp(gm.matmul, a, b)
    same, theirs = jax.vjp(jnp.matmul, a, b)
    assert value.dtype == same.dtype
    cotangent = small(rng, value.shape, value.dtype)
    for got, want in zip(ours(cotangent), theirs(cotangent), strict=True):
        assert got.dtype == want.dtype
        assert (np.asarray(got) == np.asarray(want)).all()
    for got, want in zip(jax.jit(lambda c: jax.vjp(gm.matmul, a, b)[1](c))(cotangent), theirs(cotangent), strict=True):
        assert (np.asarray(got) == np.asarray(want)).all()


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    x = rng.integers(-5, 6, shape).astype(dtype)
    return jnp.asarray(x + 1j * rng.integers(-5, 6, shape) if np.dtype(dtype).kind == "c" else x, dtype=dtype)


@pytest.mark.usefixtures("x64")
def test_derivatives_are_products_of_the_same_grade() -> None:
    """A cancellation that only correct rounding sees: x, y, −x with y below the others' last places."""
    g = jnp.asarray([[2.0**60, 1.0, -(2.0**60)]])
    a, b = jnp.ones((1, 4)), jnp.ones((4, 3))
    grad = jax.grad(lambda x: (gm.matmul(x, b, accuracy="exact") * g).sum())(a)
    assert (np.asarray(grad) == 1.0).all()


@pytest.mark.usefixtures("x64")
def test_second_derivatives_and_integers_beside_floats() -> None:
    rng = np.random.default_rng(5)
    a, b = small(rng, (3, 4), "f8"), small(rng, (4, 2), "f8")
    ours, theirs = (jax.jacrev(jax.grad(lambda x, m=m: (m(x, b) ** 3).sum()))(a) for m in (gm.matmul, jnp.matmul))
    assert (np.asarray(ours) == np.asarray(theirs)).all()
    i = jnp.arange(8).reshape(4, 2)
    grad = jax.grad(lambda x: gm.matmul(x, i).sum())(a)
    assert (np.asarray(grad) == np.asarray(i).sum(axis=1)).all()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shapes", [s for s in SHAPES if 0 not in s[0]], ids=str)
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (-1, 0)], ids=str)
def test_vmap_multiplies_each_matrix_for_itself(axes: Any, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(6)
    batch = 3

    def operand(shape: tuple[int, ...], axis: int | None) -> Any:
        if axis is None:
            return floats(rng, shape, -9, 9)
        return np.moveaxis(floats(rng, (batch, *shape), -9, 9), 0, axis)

    a, b = (operand(shape, axis) for shape, axis in zip(shapes, axes, strict=True))
    got = jax.vmap(gm.matmul, in_axes=axes)(jnp.asarray(a), jnp.asarray(b))
    compiled = jax.jit(jax.vmap(gm.matmul, in_axes=axes))(jnp.asarray(a), jnp.asarray(b))
    for i in range(batch):
        x, y = (v if axis is None else np.take(v, i, axis) for v, axis in ((a, axes[0]), (b, axes[1])))
        assert_bits(np.asarray(got[i]), np.asarray(gm.matmul(x, y)))
        assert_bits(np.asarray(compiled[i]), np.asarray(gm.matmul(x, y)))


@pytest.mark.usefixtures("x64")
def test_nested_vmap_grad_and_scan() -> None:
    rng = np.random.default_rng(7)
    a, b = small(rng, (2, 3, 4, 5), "f8"), small(rng, (3, 5, 2), "f8")
    twice = jax.vmap(jax.vmap(gm.matmul), in_axes=(0, None))(a, b)
    assert (np.asarray(twice) == np.asarray(a) @ np.asarray(b)).all()
    grads = jax.vmap(jax.grad(lambda x, y: gm.matmul(x, y).sum()), in_axes=(0, 0))(a[0], b)
    want = jax.vmap(jax.grad(lambda x, y: jnp.matmul(x, y).sum()), in_axes=(0, 0))(a[0], b)
    assert (np.asarray(grads) == np.asarray(want)).all()
    m = jnp.asarray([[1, 1], [1, 0]])
    power, _ = jax.lax.scan(lambda p, _: (gm.matmul(p, m), None), m, None, length=80)
    assert int(power[0, 1]) == 37889062373143906  # the 81st Fibonacci number


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", ["f8", "c16", "i8", "u8"])
def test_a_callback_on_a_thread_of_xla_has_64_bits(dtype: str) -> None:
    """Here they are on for this thread alone, and a product that waits for its operand runs on another one."""
    large = jnp.ones((1200, 1200))
    slow = jax.jit(lambda x: x + jnp.asarray(0 * (large @ large @ large).sum(), x.dtype))
    x = jnp.asarray(np.array([[2**52 + 1, 3], [5, 7]], dtype=dtype) * (1j if dtype == "c16" else 1))
    options: dict[str, Any] = {"modulus": 2**31 - 1, "dtype": "int32"} if dtype == "i8" else {}
    product = jax.jit(lambda x: gm.jax.matmul(x, jnp.eye(2, dtype=dtype), **options)).lower(x).compile()
    want = np.asarray(x) if dtype != "i8" else (np.asarray(x) % (2**31 - 1)).astype("i4")
    for _ in range(3):
        assert_same(np.asarray(product(slow(x))), want)


@pytest.mark.usefixtures("x64")
def test_numpy_arrays_may_stand_beside() -> None:
    a, b = np.arange(6.0).reshape(2, 3), jnp.ones((3, 2))
    for got in (gm.matmul(a, b), jax.jit(lambda y: gm.matmul(a, y))(b), gm.matmul(b, a), gm.jax.matmul(a, a.T)):
        assert isinstance(got, jax.Array)
    assert (np.asarray(gm.matmul(a, b)) == a @ np.ones((3, 2))).all()


def test_a_wide_numpy_array_is_not_narrowed_unseen() -> None:
    a, b = np.full((2, 2), 1e300), jnp.ones((2, 2), dtype=jnp.float32)
    with jax.enable_x64(False):
        for product in (lambda y: gm.matmul(a, y), jax.jit(lambda y: gm.matmul(a, y))):
            with pytest.raises(TypeError, match="float64, which JAX does not have"):
                product(b)


def test_bad_input_is_named() -> None:
    a = jnp.ones((2, 3), dtype=jnp.float32)
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ValueError, r"a has shape \(2, 3\) and b has shape \(2, 3\)", lambda: gm.matmul(a, a)),
        (ValueError, r"a has shape \(2, 3\) and b has shape \(2, 3\)", lambda: jax.jit(gm.matmul)(a, a)),
        (ValueError, "b is 0-dimensional", lambda: jax.jit(gm.matmul)(a, jnp.float32(1))),
        (ValueError, "accuracy = 'fp65' is unknown", lambda: gm.jax.matmul(a, a.T, accuracy="fp65")),
        (ValueError, "engine = 'none' is unknown", lambda: jax.jit(lambda x: gm.matmul(x, x.T, engine="none"))(a)),
        (ValueError, 'engine = "jax" cannot run', lambda: jax.jit(lambda x: gm.matmul(x, x.T, engine="jax"))(a)),
        (TypeError, "modulus = 7 needs integer operands", lambda: jax.jit(lambda x: gm.matmul(x, x.T, modulus=7))(a)),
        (TypeError, "dtype = float32 is no integer type", lambda: gm.jax.matmul(a, a.T, dtype=jnp.float32)),
        (TypeError, "JAX arrays do not change", lambda: gm.matmul(a, a.T, out=np.empty((2, 2), np.float32))),
    ]
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()


def test_matmul_of_numpy_arrays_imports_no_jax() -> None:
    code = "import sys, gemmulate as gm; gm.matmul([[1]], [[2]]); gm.engines(); print('jax' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"


def test_operands_that_are_no_numbers_in_traced_code() -> None:
    keys = jax.random.split(jax.random.key(0), 4).reshape(2, 2)
    with pytest.raises(TypeError, match=r"a has dtype key<fry>, .*jax.random.key_data\(a\)"):
        jax.jit(gm.matmul)(keys, keys)
    with pytest.raises(TypeError, match="Python ints, which JAX does not have"):
        jax.jit(lambda x: gm.matmul([[2**70, 1]], x))(jnp.ones((2, 1), jnp.int8))


@pytest.mark.usefixtures("x64")
def test_torchs_engines_multiply_arrays_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's processor and JAX's stand for the GPU that both see."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from gemmulate.engines import jax_ops
    from gemmulate.plan import jax_arrays

    seen: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    exchange = jax_arrays.multiply_exchanged
    monkeypatch.setattr(jax_arrays, "multiply_exchanged", lambda *a, **o: seen.append(exchange(*a, **o)) or seen[-1])
    rng = np.random.default_rng(11)
    a, b = floats(rng, (3, 5, 6), -300, 300), floats(rng, (6, 4), -300, 300)
    x, y = jnp.asarray(a), jnp.asarray(b)
    assert_same(gm.matmul(x, y, accuracy="exact"), gm.matmul(a, b, accuracy="exact"))
    assert not seen  # the processor's arrays are the host's
    monkeypatch.setattr(jax_ops, "share_a_gpu", lambda *_: True)
    for options in ({"accuracy": "exact"}, {"accuracy": gm.Bits(20)}):
        got = gm.matmul(x, y, **options)
        assert isinstance(got, jax.Array)
        assert_same(got, gm.matmul(a, b, **options))
    i, j = (rng.integers(-99, 99, s) for s in ((4, 5), (5, 3)))
    assert_same(gm.matmul(jnp.asarray(i), jnp.asarray(j), modulus=97), gm.matmul(i, j, modulus=97))
    assert len(seen) == 3
    assert all(found is not None for found in seen)
    gm.matmul(x, y, engine="reference")
    gm.jax.matmul(jnp.asarray(i), jnp.asarray(j), dtype=jnp.int32)
    assert len(seen) == 3
    with pytest.raises(ValueError, match="must equal"):
        gm.matmul(x, x)


_PLACES = """
import jax, numpy as np, gemmulate as gm
first, second = jax.devices()
x = jax.numpy.ones((2, 2))
there, further = jax.device_put(x, second), jax.device_put(x, first)
for a, b in ((there, x), (x, there), (np.ones((2, 2), np.float32), there)):
    assert gm.matmul(a, b).devices() == {second}
    assert jax.vmap(gm.matmul, (None, 0))(jax.numpy.asarray(a), jax.numpy.asarray(b)[None]).devices() == {second}
with jax.default_device(second):
    y = jax.numpy.ones((2, 2))
assert gm.matmul(y, y).devices() == {second}
for free in (gm.matmul(x, x), gm.matmul(y, y), gm.matmul(np.ones((2, 2), np.float32), x)):
    assert (free + there).devices() == {second}  # not committed, as JAX's own results
    assert (free + further).devices() == {first}
try:
    gm.matmul(there, further)
except ValueError as error:
    assert "a is on" in str(error) and "device_put" in str(error), error
else:
    raise AssertionError("operands of two devices were multiplied")
"""


def test_results_lie_where_jaxs_own_would() -> None:
    environment = dict(os.environ, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    subprocess.run([sys.executable, "-c", _PLACES], check=True, env=environment)
