"""The product in code that JAX traces: one primitive, with rules for derivatives, stacks and compilation.

It is bilinear. Derivatives in both directions are hence made of products of the same kind, to which all rules apply
again, in JAX's convention: of AB tangents are A'B + AB', cotangents G Bᵀ and Aᵀ G, without conjugates. A function with
`jax.custom_jvp` would need linear functions with transposes; those of JAX 0.10 (`linear_call`) have no rule for vmap.

Compiled code calls the host (`jax.pure_callback`), or runs `Product.on_device` as XLA's own operations. Both are traced
with 64-bit types while the program is put together for its device: the caller's types, and what derivatives and vmap
see, are those of operands and result alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from gemmulate.engines.jax_ops import WIDE, check_type, from_host, own_rules, to_host, wide_types

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Product:
    """One product with all its options; equal ones are compiled once.

    `multiply` takes NumPy arrays, `result_of` is the type of operands' types, `shape_of` the shape of their shapes.
    `on_device` multiplies stacks of matrices in JAX's operations, where there is a way that needs no data; `named` says
    that it was asked for on any device, else it is for GPUs.
    """

    multiply: Callable[[Array, Array], Array]
    result_of: Callable[[np.dtype[Any], np.dtype[Any]], np.dtype[Any]]
    shape_of: Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]
    on_device: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    named: bool = False

    def result(self, a: Any, b: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of the product of stacks."""
        return self.shape_of(a.shape, b.shape), self.result_of(np.dtype(a.dtype), np.dtype(b.dtype))


def traced(product: Product, a: Any, b: Any) -> jax.Array:
    """The product of arrays of which one is traced at least."""
    for name, x in (("a", a), ("b", b)):
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended):
            raise TypeError(f"{name} has dtype {x.dtype}, which is no number; for keys use jax.random.key_data({name})")
        if x.dtype.kind == "O":
            check_type(x.dtype)
        if not isinstance(x, jax.Array) and x.dtype.name in WIDE and not wide_types():
            raise TypeError(
                f"{name} has dtype {x.dtype}, which JAX does not have while 64-bit types are off; convert it, or "
                'switch them on with jax.config.update("jax_enable_x64", True)'
            )
    x, y = jnp.asarray(a), jnp.asarray(b)
    check_type(product.result_of(np.dtype(x.dtype), np.dtype(y.dtype)))
    shape = product.shape_of(x.shape, y.shape)  # ValueError names both shapes
    # Vectors as matrices of one row or one column, stacks of one rank: so one rule serves all.
    left, right = x[None, :] if x.ndim == 1 else x, y[:, None] if y.ndim == 1 else y
    rank = max(left.ndim, right.ndim)
    left, right = (v.reshape((1,) * (rank - v.ndim) + v.shape) for v in (left, right))
    result: jax.Array = _bind(left, right, product).reshape(shape)
    return result


matmul_p: Any = Primitive("gemmulate_matmul")


def _run(a: Any, b: Any, *, product: Product) -> Any:
    """Of known arrays, as vmap and derivatives ask for outside of compiled code."""
    dtype = product.result(a, b)[1]
    return from_host(np.asarray(product.multiply(to_host(a), to_host(b)), dtype=dtype), a, b)


def _abstract(a: Any, b: Any, *, product: Product) -> Any:
    return _whole(a, *product.result(a, b))


def _whole(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """That type, unsharded; within shard_map it varies as `like` does."""
    spec = PartitionSpec(*(None,) * len(shape))  # type: ignore[no-untyped-call]
    whole = NamedSharding(like.sharding.mesh, spec)
    return like.update(shape=shape, dtype=dtype, weak_type=False, sharding=whole)


def _bind(x: Any, y: Any, product: Product) -> Any:
    """The primitive's product. Within shard_map, which checks that, operands are to vary over the same axes."""
    axes = _axes(x), _axes(y)
    x, y = _varying(x, axes[1] - axes[0]), _varying(y, axes[0] - axes[1])
    return matmul_p.bind(x, y, product=product)


def _axes(x: Any) -> frozenset[str]:
    kind: Any = jax.typeof(x)
    axes: frozenset[str] = kind.mat.varying if hasattr(kind, "mat") else kind.vma  # JAX before 0.10
    return axes


def _varying(x: Any, axes: frozenset[str]) -> Any:
    """x, taken to differ along these axes, too."""
    if not axes:
        return x
    names = tuple(sorted(axes))
    if hasattr(lax, "pcast"):
        return lax.pcast(x, names, to="varying")
    return lax.pvary(x, names)  # type: ignore[attr-defined]  # JAX before 0.9


def _cotangent(product: Product, x: Any, y: Any, of: Any) -> Any:
    """The cotangent xy of one operand, summed over the stacks to which it was broadcast."""
    result = _bind(x, y, product)
    if not jnp.issubdtype(of.dtype, jnp.complexfloating):
        result = result.real
    stretched = tuple(i for i, size in enumerate(of.shape[:-2]) if size == 1 and result.shape[i] != 1)
    result = result.sum(axis=stretched, keepdims=True).astype(of.dtype)
    if any(of.sharding.spec):
        result = jax.sharding.reshard(result, of.sharding)  # type: ignore[no-untyped-call]
    return result


def _left_cotangent(cotangent: Any, a: Any, b: Any, *, product: Product) -> Any:
    return _cotangent(product, cotangent, jnp.swapaxes(b, -1, -2), a.aval)


def _right_cotangent(cotangent: Any, a: Any, b: Any, *, product: Product) -> Any:
    return _cotangent(product, jnp.swapaxes(a, -1, -2), cotangent, b.aval)


matmul_p.def_impl(_run)
matmul_p.def_abstract_eval(_abstract)
ad.defbilinear(matmul_p, _left_cotangent, _right_cotangent)  # type: ignore[no-untyped-call]


def _batched(operands: Any, axes: Any, *, product: Product) -> tuple[Any, int]:
    """A dimension that vmap maps is a stack's, before all others: each matrix is multiplied for itself."""
    a, b = (x[None] if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(operands, axes, strict=True))
    return matmul_p.bind(a, b, product=product), 0


batching.primitive_batchers[matmul_p] = _batched


def _by_callback(a: Any, b: Any, *, product: Product) -> Any:
    shape, dtype = product.result(a, b)
    types = [(x.shape, np.dtype(x.dtype)) for x in (a, b)]

    def on_host(*words: Any) -> Array:
        x, y = (_of_words(np.asarray(w), *of) for w, of in zip(words, types, strict=True))
        return _words(np.asarray(product.multiply(x, y), dtype=dtype))

    result = jax.eval_shape(_to_words, jax.ShapeDtypeStruct(shape, dtype))  # type: ignore[no-untyped-call]
    return _from_words(jax.pure_callback(on_host, result, _to_words(a), _to_words(b)), dtype)


# JAX converts a callback's operands and result to the types that its thread has, which is one of XLA's: with 64-bit
# types off where they were switched on for the caller's thread alone (`jax.enable_x64`), it narrows them. So 64-bit
# types pass as words of 32 bits, least first.


def _to_words(x: jax.Array) -> jax.Array:
    """Of traced arrays."""
    if np.dtype(x.dtype).name not in WIDE:
        return x
    x = jnp.stack([lax.real(x), lax.imag(x)], axis=-1) if jnp.iscomplexobj(x) else x
    return lax.bitcast_convert_type(x, jnp.uint32)


def _from_words(x: jax.Array, dtype: np.dtype[Any]) -> jax.Array:
    if dtype.name not in WIDE:
        return x
    parts = lax.bitcast_convert_type(x, np.float64 if dtype.kind == "c" else dtype)
    return lax.complex(parts[..., 0], parts[..., 1]) if dtype.kind == "c" else parts


def _words(x: Array) -> Array:
    """Of NumPy arrays."""
    if x.dtype.name not in WIDE:
        return x
    words = np.ascontiguousarray(x)[..., None].view(np.uint32)
    return words.reshape((*x.shape, 2, 2)) if x.dtype.kind == "c" else words


def _of_words(x: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.name not in WIDE:
        return x
    return np.ascontiguousarray(x).reshape((*shape, dtype.itemsize // 4)).view(dtype)[..., 0]


def _on_device(a: Any, b: Any, *, product: Product) -> Any:
    assert product.on_device is not None
    return product.on_device(a, b)


def _lower(context: Any, a: Any, b: Any, *, product: Product) -> Any:
    platforms = set(context.module_context.platforms)
    device = product.on_device is not None
    if device and product.named and "tpu" in platforms:
        raise ValueError('engine = "jax" cannot run on a TPU, whose float64 is not that of IEEE 754; leave it out')
    # A program for a GPU and a processor has no callbacks in JAX.
    device = device and (product.named or (bool(platforms & _GPUS) and "tpu" not in platforms))
    # Of whole operands: explicit shardings (`jax.sharding.AxisType`) have rules for every operation, which the steps
    # here need not follow; the result's type has none.
    context = context.replace(avals_in=[_whole(x, x.shape, x.dtype) for x in context.avals_in])
    with own_rules():
        lower = mlir.lower_fun(_on_device if device else _by_callback, multiple_results=False)
        return lower(context, a, b, product=product)


_GPUS = {"cuda", "rocm"}

# A callback's lowering is a program's own: it is not to be shared. JAX 0.10 can't put together rules of several
# platforms that are not: one rule serves all.
mlir.register_lowering(matmul_p, _lower, cacheable=False)
