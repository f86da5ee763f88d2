"""JAX in the array engine: INT8 products by lax.dot_general with int32 sums.

XLA compiles every operation anew for every shape: seconds for the some hundred operations of one product. On a
processor, whose memory NumPy shares, only the INT8 product is therefore JAX's, for a few sizes to which zeros fill
operands up. On other devices all is jax.numpy's; that way is tested on the processor, and was not run on a GPU.
In code that JAX compiles as a whole `jax_fixed_bits.py` takes the engine's place.

The kernels need 64-bit types. They are switched on around each kernel, for its thread alone: the caller's setting
(`jax_enable_x64`) stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.array_library import Library, Tensor
from gemmulate.engines.array_namespace import NamespaceLibrary
from gemmulate.engines.base import Engine
from gemmulate.engines.jax_ops import own_rules

# Sizes of INT8 products up to here are powers of two, beyond multiples of it: at most twice the work, and few shapes.
_LARGEST_POWER = 512


@jax.jit
def _int8_product(a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)


def _rounded_up(size: int) -> int:
    if size <= _LARGEST_POWER:
        return max(32, 1 << (size - 1).bit_length())
    return -(-size // _LARGEST_POWER) * _LARGEST_POWER


class JaxHostLibrary(NamespaceLibrary):
    """NumPy's arrays, and INT8 products by JAX on the processor."""

    def __init__(self, device: jax.Device) -> None:
        super().__init__(np)
        self.device = device

    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        (m, k), n = a.shape, b.shape[0]
        if 0 in (m, k, n):
            return np.zeros((m, n), dtype=np.int32)
        rows, depth, columns = map(_rounded_up, (m, k, n))
        operands = (self.pad(a, rows - m, depth - k), self.pad(b, columns - n, depth - k))
        product = _int8_product(*(jax.device_put(x, self.device) for x in operands))
        return np.asarray(product)[:m, :n]


_DTYPES = {
    "int8": jnp.int8,
    "int16": jnp.int16,
    "int32": jnp.int32,
    "int64": jnp.int64,
    "float64": jnp.float64,
}


class JaxLibrary(Library):
    """Arrays on one of JAX's devices; its methods need 64-bit types."""

    xp = jnp

    def __init__(self, device: jax.Device) -> None:
        self.device = device
        self.block = 1 << 23

    def load(self, x: npt.NDArray[Any]) -> Tensor:
        return jax.device_put(np.ascontiguousarray(x), self.device)

    def to_numpy(self, x: Tensor) -> npt.NDArray[Any]:
        return np.asarray(x)

    def astype(self, x: Tensor, dtype: str) -> Tensor:
        return lax.convert_element_type(x, _DTYPES[dtype])

    def bitcast(self, x: Tensor, dtype: str) -> Tensor:
        return lax.bitcast_convert_type(x, _DTYPES[dtype])

    def amax(self, x: Tensor, axis: int) -> Tensor:
        return jnp.max(x, axis=axis)

    def amin(self, x: Tensor, axis: int) -> Tensor:
        return jnp.min(x, axis=axis)

    def argwhere(self, x: Tensor) -> npt.NDArray[np.int64]:
        return np.argwhere(np.asarray(x))

    def bincount(self, x: Tensor, bins: int) -> npt.NDArray[np.int64]:
        return np.asarray(jnp.bincount(x.reshape(-1), length=bins), dtype=np.int64)

    def int8_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return _int8_product(a, b)

    def pad(self, x: Tensor, rows: int, columns: int) -> Tensor:
        return jnp.pad(x, ((0, rows), (0, columns)))

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


class JaxEngine(ArrayEngine):
    """The array engine with 64-bit types in every kernel."""


def _in_64_bits(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def run(self: JaxEngine, *arguments: Any, **options: Any) -> Any:
        device: Any = self.library.device  # type: ignore[attr-defined]
        with own_rules(), jax.default_device(device):
            return kernel(self, *arguments, **options)

    return run


_MORE_KERNELS = {"pack_wrapped", "multiply_wrapped", "positions_above"}
for _name in sorted((Engine.__abstractmethods__ | _MORE_KERNELS) - {"widest_bits"}):
    setattr(JaxEngine, _name, _in_64_bits(getattr(ArrayEngine, _name)))


def jax_engine(name: str, device: jax.Device | None = None) -> ArrayEngine:
    """The array engine on one of JAX's devices, the default one unless given."""
    where = jax.devices()[0] if device is None else device
    if where.platform == "cpu":
        return ArrayEngine(name, JaxHostLibrary(where))
    return JaxEngine(name, JaxLibrary(where))
