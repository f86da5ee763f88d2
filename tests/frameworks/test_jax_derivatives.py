"""Contract of derivatives of products in JAX: forwards and backwards, composed in any order, with vmap, jit and scan.

Oracles: JAX's own derivatives of jnp.matmul, on integers that every type here holds exactly and whose sums are exact;
closed forms; finite differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import gemmulate as gm

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

SHAPES = [
    ((7,), (7,)),
    ((7,), (7, 5)),
    ((6, 7), (7,)),
    ((6, 7), (7, 5)),
    ((2, 1, 6, 7), (3, 7, 5)),
    ((3, 6, 7), (7,)),
    ((7,), (3, 7, 5)),
    ((1, 6, 7), (4, 7, 5)),
    ((0, 7), (7, 5)),
    ((6, 0), (0, 5)),
]
TYPES = [("f8", "f8"), ("c16", "c16"), ("f8", "c16"), ("c8", "f4"), ("f2", "f4")]
ORDERS = {
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "forward over reverse": jax.hessian,
    "reverse over forward": lambda f: jax.jacrev(jax.jacfwd(f)),
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(f)),
}


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    x = rng.integers(-5, 6, shape).astype(dtype)
    return jnp.asarray(x + 1j * rng.integers(-5, 6, shape) if np.dtype(dtype).kind == "c" else x, dtype=dtype)


def assert_equal(got: Any, want: Any) -> None:
    """Of numbers; signs of zeros are the order's of JAX's own sums."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert (np.asarray(got) == np.asarray(want)).all()


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtypes", TYPES, ids=str)
def test_forward_derivatives_are_jaxs_own(dtypes: tuple[str, str], shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(1)
    a, b, da, db = (small(rng, shape, dtype) for shape, dtype in zip(shapes * 2, dtypes * 2, strict=True))
    want = jax.jvp(jnp.matmul, (a, b), (da, db))
    for got, of in zip(jax.jvp(gm.matmul, (a, b), (da, db)), want, strict=True):
        assert_equal(got, of)

    @jax.jit
    def compiled(a: Any, b: Any, da: Any, db: Any) -> Any:
        value, linear = jax.linearize(gm.matmul, a, b)
        one_sided = jax.jvp(lambda x: gm.matmul(x, b), (a,), (da,))[1]
        return value, linear(da, db), one_sided, *jax.jvp(gm.matmul, (a, b), (da, db))

    value, linear, one_sided, *both = compiled(a, b, da, db)
    for got, of in zip((value, linear, *both), (*want, *want), strict=True):
        assert_equal(got, of)
    assert_equal(one_sided, jnp.matmul(da, b))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_the_second_derivative_of_a_quadratic_form_is_its_matrix(order: str, compiled: bool) -> None:
    """Of xᵀQx: Q + Qᵀ, with entries that only exact products keep apart."""
    q = jnp.asarray([[2.0**60, 1.0, 3.0], [5.0, -(2.0**60), 7.0], [0.5, -9.0, 2.0**-40]])
    x = jnp.asarray([1.0, -2.0, 3.0])
    second = ORDERS[order](lambda v: gm.matmul(v, gm.matmul(q, v, accuracy="exact"), accuracy="exact"))
    got = (jax.jit(second) if compiled else second)(x)
    assert (np.asarray(got) == np.asarray(q) + np.asarray(q).T).all()


def test_the_second_derivative_with_32_bits() -> None:
    with jax.enable_x64(False):
        q, x = jnp.arange(16, dtype=jnp.float32).reshape(4, 4), jnp.ones(4, dtype=jnp.float32)
        got = jax.hessian(lambda v: gm.matmul(v, gm.matmul(q, v)))(x)
        assert got.dtype == jnp.float32
        assert (np.asarray(got) == np.asarray(q + q.T)).all()


@pytest.mark.parametrize("order", ["forward over reverse", "reverse over forward"])
def test_higher_derivatives_of_stacks(order: str) -> None:
    rng = np.random.default_rng(2)
    a, b = small(rng, (2, 1, 2, 3), "f8"), small(rng, (2, 3, 2), "f8")

    def third(product: Callable[..., Any]) -> Any:
        second = ORDERS[order](lambda x, y: (product(x, y) ** 3).sum())
        return jax.jit(jax.jacfwd(second, argnums=(0, 1)))(a, b)

    for got, want in zip(third(gm.matmul), third(jnp.matmul), strict=True):
        assert_equal(got, want)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_finite_differences_agree(dtype: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape) for shape in ((2, 1, 3, 4), (3, 4, 2)))
    if dtype == "c16":
        a, b = a + 1j * a[::-1], b - 1j * b[::-1]
    check_grads(jax.jit(gm.matmul), (jnp.asarray(a), jnp.asarray(b)), order=2, modes=("fwd", "rev"))


def test_tangents_are_products_of_the_same_accuracy() -> None:
    """A cancellation that only correct rounding sees, and what so few bits lose."""
    a, b, large = jnp.ones((1, 3)), jnp.ones((3, 1)), jnp.asarray([[2.0**60, 1.0, -(2.0**60)]])
    for accuracy, want in (("exact", 1.0), (gm.Bits(20), 0.0)):
        product = lambda x, y, accuracy=accuracy: gm.matmul(x, y, accuracy=accuracy)  # noqa: E731
        for run in (product, jax.jit(product)):
            assert jax.jvp(lambda x, run=run: run(x, b), (a,), (large,))[1].item() == want
            assert jax.jvp(lambda y, run=run: run(a, y), (b,), (large.T,))[1].item() == want
            assert jax.jacfwd(lambda t, run=run: run(a + t * large, b))(0.0).item() == want


def test_integers_have_no_tangents() -> None:
    rng = np.random.default_rng(4)
    a, i = small(rng, (3, 4), "f8"), jnp.arange(8).reshape(4, 2)
    none = np.zeros(i.shape, dtype=jax.dtypes.float0)
    assert_equal(jax.jvp(gm.matmul, (a, i), (a, none))[1], jnp.matmul(a, i.astype("f8")))
    value, tangent = jax.jvp(gm.matmul, (i.T, i), (none.T, none))
    assert (value.dtype, tangent.dtype, tangent.shape) == (jnp.int64, jax.dtypes.float0, (2, 2))
    got = jax.hessian(lambda x: (gm.matmul(x, i) ** 2).sum())(a)
    assert_equal(got, 2 * jnp.einsum("ab,kn,ln->akbl", np.eye(3), i, i))


def test_derivatives_and_vmap_in_any_order() -> None:
    rng = np.random.default_rng(5)
    a, b, da = small(rng, (3, 2, 4), "f8"), small(rng, (4, 2), "f8"), small(rng, (3, 2, 4), "f8")

    def cases(product: Callable[..., Any], a: Any, da: Any) -> list[Any]:
        value = lambda x: (product(x, b) ** 2).sum()  # noqa: E731
        tangent = lambda x, dx: jax.jvp(lambda v: product(v, b), (x,), (dx,))[1]  # noqa: E731
        return [
            jax.vmap(tangent)(a, da),
            jax.vmap(jax.jit(tangent))(a, da),
            jax.jvp(jax.vmap(lambda x: product(x, b)), (a,), (da,))[1],
            jax.vmap(jax.hessian(value))(a),
            jax.hessian(lambda x: jax.vmap(value)(x).sum())(a),
            jax.vmap(jax.jacrev(jax.vmap(lambda v: product(v, b))))(a),
            jax.linear_transpose(lambda x: product(x, b), a)(jnp.ones((3, 2, 2)))[0],
            jax.hessian(jax.checkpoint(value))(a),
        ]

    ours, theirs = (jax.jit(partial(cases, product))(a, da) for product in (gm.matmul, jnp.matmul))
    for got, want in zip(ours, theirs, strict=True):
        assert_equal(got, want)
    assert_equal(jax.vmap(jax.hessian(lambda x: (gm.matmul(x, b) ** 2).sum()))(a), theirs[3])  # not compiled


def test_derivatives_through_scan() -> None:
    rng = np.random.default_rng(6)
    m, x = small(rng, (3, 3), "f8"), small(rng, (3,), "f8")

    def iterated(product: Callable[..., Any]) -> Callable[..., Any]:
        return lambda m, x: (jax.lax.scan(lambda v, _: (product(m, v), None), x, None, length=3)[0] ** 2).sum()

    for derivative in (jax.hessian, jax.jacfwd, jax.grad):
        ours, theirs = (jax.jit(derivative(iterated(p)))(m, x) for p in (gm.matmul, jnp.matmul))
        assert_equal(ours, theirs)
