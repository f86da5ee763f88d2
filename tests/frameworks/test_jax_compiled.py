"""Contract of gm.Bits(n) in code that JAX compiles: XLA's own operations, no callback, the bits of every engine.

Oracle: gm.matmul of NumPy arrays, on the engine `native` where it is built. That GPUs get no callback is read from the
program that JAX puts together for CUDA; none has run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gemmulate as gm
from matmul.checks import assert_bits
from matmul.inputs import floats

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

BF16 = ml_dtypes.bfloat16
# Exponents of entries, down to subnormal ones and up to overflow of results.
EXPONENTS = {"float16": (-24, 15), "bfloat16": (-133, 127), "float32": (-149, 127), "float64": (-1074, 1023)}
PARTS = {"complex64": "float32", "complex128": "float64"}
SHAPES = [
    ((13, 300), (300, 9)),
    ((13, 1), (1, 9)),
    ((2, 1, 5, 7), (3, 7, 4)),
    ((7,), (7, 5)),
    ((6, 7), (7,)),
    ((3, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((0, 2, 3), (3, 4)),
]


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, special: bool) -> Any:
    """Of all exponents, with zeros of both signs; with NaN and infinities if asked for."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        x = np.empty(shape, dtype=dtype)
        x.real, x.imag = (operand(rng, shape, PARTS[dtype.name], special) for _ in range(2))
        return x
    x = floats(rng, shape, *EXPONENTS[dtype.name], dtype, zeros=0.3)
    x = np.where(rng.random(shape) < 0.1, dtype.type(-0.0), x).astype(dtype)
    if special and x.size > 20:
        x.flat[3], x.flat[x.size // 2], x.flat[x.size - 3] = np.nan, np.inf, -np.inf
    return x


def assert_same(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    for part in ("real", "imag") if want.dtype.kind == "c" else (None,):
        assert_bits(got if part is None else getattr(got, part), want if part is None else getattr(want, part))


def on_device(n: int, **options: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: gm.matmul(x, y, accuracy=gm.Bits(n), engine="jax", **options)


def by_host(n: int) -> Callable[[Any, Any], Any]:
    return lambda x, y: gm.matmul(x, y, accuracy=gm.Bits(n))


def program(function: Callable[..., Any], *arguments: Any, platform: str = "cpu") -> str:
    """What JAX hands to XLA."""
    text: str = jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()
    return text


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("types", "bits"),
    [
        (("f2", "f2"), 11),
        ((BF16, BF16), 9),
        (("f4", "f4"), 25),
        (("c8", "c8"), 17),
        (("f2", BF16), 8),
        (("f8", "f8"), 54),
        (("f8", "f8"), 1),
        (("c16", "c16"), 128),
        (("f4", "c16"), 40),
        (("f8", "f2"), 53),
    ],
    ids=str,
)
def test_the_bits_of_every_engine(types: tuple[Any, Any], bits: int, shapes: Any) -> None:
    rng, compiled = np.random.default_rng(1), jax.jit(on_device(bits))
    wide = any(np.dtype(t).name in ("float64", "complex128") for t in types)
    with jax.enable_x64(wide):  # where no operand is of 64 bits, the caller's are off
        for special in (False, True):
            a, b = (operand(rng, shape, dtype, special) for shape, dtype in zip(shapes, types, strict=True))
            assert_same(compiled(jnp.asarray(a), jnp.asarray(b)), gm.matmul(a, b, accuracy=gm.Bits(bits)))


def test_blocks_of_rows_columns_and_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmulate.engines import jax_fixed_bits

    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        for shapes, resident in ((((37, 20), (20, 41)), 1000), (((5, 3, 4), (5, 4, 6)), 1 << 30)):
            a, b = (operand(rng, shape, "f8", True) for shape in shapes)
            whole = program(on_device(30), a, b)
            with monkeypatch.context() as patch:
                patch.setattr(jax_fixed_bits, "_BLOCK", 60)
                patch.setattr(jax_fixed_bits, "_RESIDENT", resident)
                cut = on_device(30, threads=7)  # not the function that was compiled before
                assert program(cut, a, b).count("stablehlo.while") > whole.count("stablehlo.while")
                assert_same(jax.jit(cut)(a, b), gm.matmul(a, b, accuracy=gm.Bits(30)))


def test_a_depth_beyond_int32_sums() -> None:
    a = np.full((2, 140_001), 127.0, dtype="f4")
    a[1, ::3] *= -1
    assert_same(jax.jit(on_device(7))(a, a.T), gm.matmul(a, a.T, accuracy=gm.Bits(7)))


class _Callback(Exception):
    """A callback was about to become part of a program."""


def test_what_calls_the_host_and_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def callback(*_: Any, **__: Any) -> Any:
        raise _Callback

    x = jnp.ones((3, 3), dtype=jnp.float32)
    with jax.enable_x64(False):
        assert "callback" in program(by_host(20), x, x)
        monkeypatch.setattr(jax, "pure_callback", callback)  # JAX makes none for devices that it does not find
        for function, platform in (
            (by_host(20), "cpu"),
            (by_host(20), "tpu"),
            (lambda x, y: gm.matmul(x, y, accuracy=gm.Bits(20), engine="native"), "cuda"),
            (lambda x, y: gm.matmul(x, y), "cuda"),
            (lambda x, y: gm.matmul(x, y, accuracy=gm.Bits(20), formats="fp4_e2m1"), "cuda"),
            (lambda x, y: gm.matmul(x, y.astype(jnp.int8), accuracy=gm.Bits(20)), "cuda"),
        ):
            with pytest.raises(_Callback):
                program(function, x, x, platform=platform)
        transformed = jax.hessian(jax.vmap(lambda v: by_host(20)(v, by_host(20)(x, v))))
        stack = jnp.ones((2, 3), dtype=jnp.float32)
        for text in (
            program(by_host(20), x, x, platform="cuda"),
            program(by_host(20), x, x, platform="rocm"),
            program(on_device(20), x, x, platform="cuda"),
            program(on_device(20), x, x),
            program(transformed, stack, platform="cuda"),
        ):
            assert "callback" not in text
            assert "xi8>" in text  # INT8 products
        with pytest.raises(ValueError, match='engine = "jax" cannot run on a TPU'):
            program(on_device(20), x, x, platform="tpu")


def test_transformed_products_have_the_bits_of_the_hosts() -> None:
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        a, b = (jnp.asarray(operand(rng, shape, "f8", False) * 2.0**-600) for shape in ((3, 4, 5), (5, 5)))

        def cases(product: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
            return (
                jax.vmap(product, in_axes=(0, None))(a, b),
                jax.vmap(lambda x: product(b, x.T))(a),
                jax.grad(lambda x: product(x, b).sum())(a),
                jax.jvp(product, (a, b), (a[::-1], b.T)),
                jax.lax.scan(lambda c, _: (product(c, b), None), a, None, length=3)[0],
                jax.hessian(lambda v: product(v, product(b, v)))(b[0]),
            )

        # Two functions: one compiled program would not tell which product it holds.
        ours, theirs = (jax.jit(lambda a, b, p=p: cases(p, a, b))(a, b) for p in (on_device(40), by_host(40)))
        for got, want in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert_same(got, want)
        # Not compiled, vmap runs the engine itself.
        assert_same(jax.vmap(on_device(40), in_axes=(0, None))(a, b), theirs[0])


def test_what_the_device_cannot_do_alone_is_named() -> None:
    x, i = jnp.ones((3, 3), dtype=jnp.float32), jnp.ones((3, 3), dtype=jnp.int8)
    message = r'engine = "jax" cannot run within a function that JAX traces.*accuracy=gm\.Bits\(n\)'
    for a, options in (
        (x, {}),
        (x, {"accuracy": "exact"}),
        (i, {"accuracy": gm.Bits(8)}),
        (i, {"modulus": 5}),
        (x, {"accuracy": gm.Bits(8), "formats": "fp4_e2m1"}),
    ):
        with pytest.raises(ValueError, match=message):
            jax.jit(lambda a, options=options: gm.matmul(a, x, engine="jax", **options))(a)
    with jax.enable_x64(False), pytest.raises(TypeError, match="float64, which JAX does not have"):
        jax.jit(lambda y: on_device(8)(np.ones((3, 3)), y))(x)
