"""The product as JAX sees it: arrays to the host and back, one callback in traced code, and its derivative.

A product of traced arrays (jit, vmap, grad, scan, …) is a `jax.pure_callback` to the host. Its derivative is made of
two products of the same kind, in JAX's convention: the cotangents of AB are G Bᵀ and Aᵀ G, without conjugates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_WIDE = ("int64", "uint64", "float64", "complex128")


def wide_types() -> bool:
    """Whether 64-bit types are on, here and now."""
    return bool(jax.dtypes.canonicalize_dtype(np.int64) == np.int64)


def is_traced(x: Any) -> bool:
    """Whether x stands for values that are not known yet."""
    return isinstance(x, jax.core.Tracer)


def to_host(x: Any) -> Any:
    """A JAX array as a NumPy array, of the same memory where it is the processor's; anything else as it is."""
    return np.asarray(x) if isinstance(x, jax.Array) else x


def from_host(x: Array, like: Any) -> Any:
    """A NumPy array as a JAX array on the device of `like`, where that is a JAX array on one device; else the default.

    TypeError where JAX does not have the type while 64-bit types are off.
    """
    check_type(x.dtype)
    devices: Any = like.devices() if isinstance(like, jax.Array) else set()
    return jax.device_put(x, next(iter(devices)) if len(devices) == 1 else None)


def check_type(dtype: np.dtype[Any]) -> None:
    """TypeError for a result's type that JAX would silently narrow."""
    if dtype.kind == "O":
        raise TypeError("the product is of Python ints, which JAX does not have; multiply NumPy arrays instead")
    if dtype.name in _WIDE and not wide_types():
        ways = {
            "i": ', or pass dtype=jnp.int32 (checked), overflow="wrap", or a modulus up to 2^31',
            "u": ', or pass dtype=jnp.uint32 (checked), overflow="wrap", or a modulus up to 2^31',
        }.get(dtype.kind, ", or convert the operands to a narrower float type")
        raise TypeError(
            f"the product has dtype {dtype}, which JAX does not have while 64-bit types are off; switch them on with "
            f'jax.config.update("jax_enable_x64", True){ways}'
        )


@dataclass(frozen=True)
class Product:
    """One product with all its options: `multiply` of NumPy arrays, `result_of` the type of operands' types."""

    multiply: Callable[[Array, Array], Array]
    result_of: Callable[[np.dtype[Any], np.dtype[Any]], np.dtype[Any]]
    shape_of: Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]


def traced(product: Product, a: Any, b: Any) -> jax.Array:
    """The product of arrays of which one is traced at least."""
    for name, x in (("a", a), ("b", b)):
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended):
            raise TypeError(f"{name} has dtype {x.dtype}, which is no number; for keys use jax.random.key_data({name})")
        if x.dtype.kind == "O":
            check_type(x.dtype)
        if not isinstance(x, jax.Array) and x.dtype.name in _WIDE and not wide_types():
            raise TypeError(
                f"{name} has dtype {x.dtype}, which JAX does not have while 64-bit types are off; convert it, or "
                'switch them on with jax.config.update("jax_enable_x64", True)'
            )
    x, y = jnp.asarray(a), jnp.asarray(b)
    check_type(product.result_of(np.dtype(x.dtype), np.dtype(y.dtype)))
    product.shape_of(x.shape, y.shape)  # ValueError names both shapes
    result: jax.Array = _product(product, x, y)
    return result


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(product: Product, a: jax.Array, b: jax.Array) -> jax.Array:
    left, right = _matrices(a, b)
    rank = max(left.ndim, right.ndim)
    # Stacks of one rank: a dimension that vmap puts before both then is a stack's, too.
    left, right = (x.reshape((1,) * (rank - x.ndim) + x.shape) for x in (left, right))
    shape = (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1])
    dtype = product.result_of(np.dtype(a.dtype), np.dtype(b.dtype))

    def on_host(x: Any, y: Any) -> Array:
        return np.asarray(product.multiply(np.asarray(x), np.asarray(y)), dtype=dtype)

    struct = jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]
    result: jax.Array = jax.pure_callback(on_host, struct, left, right, vmap_method="expand_dims")
    return result.reshape(product.shape_of(a.shape, b.shape))


def _matrices(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Vectors as matrices of one row or one column."""
    return a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b


def _forward(product: Product, a: jax.Array, b: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(product, a, b), (a, b)


def _backward(product: Product, kept: tuple[jax.Array, jax.Array], cotangent: jax.Array) -> tuple[Any, Any]:
    a, b = kept
    left, right = _matrices(a, b)
    full = cotangent[..., None] if b.ndim == 1 else cotangent
    full = full[..., None, :] if a.ndim == 1 else full
    return (
        _cotangent(product, full, jnp.swapaxes(right, -1, -2), a, left.shape),
        _cotangent(product, jnp.swapaxes(left, -1, -2), full, b, right.shape),
    )


def _cotangent(product: Product, x: jax.Array, y: jax.Array, of: jax.Array, matrix: tuple[int, ...]) -> Any:
    """The cotangent xy of one operand, summed over the stacks to which it was broadcast."""
    if not jnp.issubdtype(of.dtype, jnp.inexact):
        return np.zeros(of.shape, dtype=jax.dtypes.float0)
    result = _product(product, x, y)
    if not jnp.issubdtype(of.dtype, jnp.complexfloating):
        result = result.real
    result = result.sum(axis=tuple(range(result.ndim - len(matrix))))
    stretched = tuple(i for i, size in enumerate(matrix[:-2]) if size == 1 and result.shape[i] != 1)
    return result.sum(axis=stretched, keepdims=True).reshape(of.shape).astype(of.dtype)


_product.defvjp(_forward, _backward)
