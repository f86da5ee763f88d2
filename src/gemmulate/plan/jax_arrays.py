"""Products of JAX arrays: the result is a JAX array on the operands' device, with the bits of NumPy's route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmulate.engines import get_engine
from gemmulate.engines.base import Array, Engine, dtype_name
from gemmulate.plan.exchanged import multiply_exchanged, takes_exchange
from gemmulate.plan.operands import INEXACT, as_operand, as_stack, is_array_of, result_dtype
from gemmulate.schemes.accuracy import Bits
from gemmulate.schemes.fixed_bits import fixed_system


def is_jax_array(x: Any) -> bool:
    """Whether x is a JAX array, traced ones included; JAX itself is not imported for that."""
    return is_array_of(x, "jax", "Array")


@dataclass(frozen=True)
class Options:
    """Of `gm.matmul`; `dtype` is the integer type of the result, by name."""

    accuracy: str | Bits
    modulus: int | None
    overflow: str
    engine: str | Engine | None
    threads: int | None
    formats: str | tuple[str, ...] | None
    wide: bool  # whether JAX has 64-bit types
    dtype: str | None = None

    def multiply(self, a: Array, b: Array) -> Array:
        """The product of NumPy arrays."""
        from gemmulate.plan.matmul import matmul

        out: Any = None
        if self.dtype is not None:
            out = np.empty(as_stack(as_operand(a, "a"), as_operand(b, "b")).shape, dtype=self.dtype)
        result = matmul(
            *(a, b),
            accuracy=self.accuracy,  # type: ignore[arg-type]  # matmul names the values that there are
            modulus=self.modulus,
            overflow=self.overflow,  # type: ignore[arg-type]
            out=out,
            engine=self.engine,
            threads=self.threads,
            formats=self.formats,
        )
        # Residues below 2^31 where JAX has no wider integers.
        small = self.modulus is not None and self.modulus <= 1 << 31 and self.dtype is None
        return np.asarray(result, dtype=np.int32) if small and not self.wide else np.asarray(result)

    def on_device(self, a: Any, b: Any) -> Any:
        """The product of traced stacks of floats or complex numbers in JAX's operations, for `Bits`."""
        from gemmulate.engines.jax_fixed_bits import multiply

        assert isinstance(self.accuracy, Bits)
        dtype = result_dtype(np.dtype(a.dtype), np.dtype(b.dtype))
        system = fixed_system(a.shape[-1] << (dtype.kind == "c"), self.accuracy.n)
        return multiply(a, b, system, self.accuracy.n, dtype)

    @property
    def exchanges(self) -> bool:
        """Whether the result has the type that torch gives it."""
        return self.dtype is None and (self.modulus is None or self.wide)

    def result_of(self, a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
        """The result's type: that of a product of two zeros, which also names options that do not fit the types."""
        return self.multiply(np.zeros((1, 1), dtype=a), np.zeros((1, 1), dtype=b)).dtype

    def shape_of(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        """The result's shape; ValueError where operands of these shapes have no product."""
        x, y = (np.broadcast_to(np.zeros((), dtype=np.int8), shape) for shape in (a, b))
        return as_stack(as_operand(x, "a"), as_operand(y, "b")).shape


def multiply_jax(a: Any, b: Any, out: Any, engine: str | Engine | None, **options: Any) -> Any:
    """`matmul(a, b, …)` where a or b is a JAX array; NumPy arrays and nested lists may stand beside it."""
    from gemmulate.engines import jax_ops

    if out is not None:
        raise TypeError("out cannot be written: JAX arrays do not change; take the result")
    formats: str | Sequence[str] | None = options.pop("formats", None)
    listed = formats if formats is None or isinstance(formats, str) else tuple(formats)
    chosen = Options(engine=engine, formats=listed, wide=jax_ops.wide_types(), **options)
    if chosen.dtype is not None and np.dtype(chosen.dtype).kind not in "iu":
        raise TypeError(f"dtype = {chosen.dtype} is no integer type; the types of float results follow the operands'")
    if jax_ops.is_traced(a) or jax_ops.is_traced(b):
        return _multiply_traced(chosen, a, b)
    jax_ops.check_devices(a, b)
    if takes_exchange(engine, options) and jax_ops.share_a_gpu(a, b) and chosen.exchanges:
        typed = replace(chosen, engine=None)  # types are the host's to tell, and no engine's affair
        jax_ops.check_type(typed.result_of(np.dtype(a.dtype), np.dtype(b.dtype)))
        settings = {name: getattr(chosen, name) for name in ("accuracy", "modulus", "overflow", "threads", "formats")}
        done = multiply_exchanged(a, b, None, engine, jax_ops.from_dlpack, wait=True, **settings)
        if done is not None:
            return done
    left, right = as_operand(jax_ops.to_host(a), "a"), as_operand(jax_ops.to_host(b), "b")
    jax_ops.check_type(chosen.result_of(left.dtype, right.dtype))
    return jax_ops.from_host(chosen.multiply(left, right), a, b)


def _multiply_traced(chosen: Options, a: Any, b: Any) -> Any:
    """The product where a or b is traced: of floats by `Bits` the device may compute it, else it is the host's."""
    from gemmulate.engines import jax_primitive

    name = chosen.engine.name if isinstance(chosen.engine, Engine) else chosen.engine
    x, y = (v if is_jax_array(v) else as_operand(v, label) for v, label in ((a, "a"), (b, "b")))
    inexact = all(isinstance(v.dtype, np.dtype) and dtype_name(v.dtype) in INEXACT for v in (x, y))
    takes = isinstance(chosen.accuracy, Bits) and inexact and chosen.formats is None
    if name == "jax" and not takes:
        raise ValueError(
            'engine = "jax" cannot run within a function that JAX traces: the product is then a callback to the host, '
            "where JAX may wait for itself; leave engine out, or multiply floats or complex numbers with "
            "accuracy=gm.Bits(n), whose work follows from shapes alone"
        )
    device = chosen.on_device if takes and name in (None, "jax") else None
    typed = chosen
    if name == "jax":  # its small products, which tell types, would be traced, too
        get_engine(chosen.engine, chosen.threads)
        typed = replace(chosen, engine=None)
    product = jax_primitive.Product(chosen.multiply, typed.result_of, chosen.shape_of, device, name == "jax")
    return jax_primitive.traced(product, x, y)
