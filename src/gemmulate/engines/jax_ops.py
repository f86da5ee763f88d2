"""JAX arrays to the host and back, and which types JAX has at the moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.dlpack
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

WIDE = ("int64", "uint64", "float64", "complex128")


def wide_types() -> bool:
    """Whether 64-bit types are on, here and now."""
    return bool(jax.dtypes.canonicalize_dtype(np.int64) == np.int64)


@contextmanager
def own_rules() -> Iterator[None]:
    """64-bit types, and the promotion of types and ranks that code here is written for, whatever the caller has set."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def is_traced(x: Any) -> bool:
    """Whether x stands for values that are not known yet."""
    return isinstance(x, jax.core.Tracer)


def to_host(x: Any) -> Any:
    """A JAX array as a NumPy array, of the same memory where it is the processor's; anything else as it is."""
    return np.asarray(x) if isinstance(x, jax.Array) else x


def share_a_gpu(a: Any, b: Any) -> bool:
    """Whether both are JAX arrays of numbers on one and the same GPU."""
    if not all(isinstance(x, jax.Array) and isinstance(x.dtype, np.dtype) for x in (a, b)):
        return False
    devices = a.devices() | b.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "gpu"


def check_devices(a: Any, b: Any) -> None:
    """ValueError where both are committed to one device each, and not to the same: so it is with JAX's products."""
    placed = [x.devices() for x in (a, b) if isinstance(x, jax.Array) and x.committed and len(x.devices()) == 1]
    if len(placed) == 2 and placed[0] != placed[1]:
        left, right = (next(iter(devices)) for devices in placed)
        raise ValueError(f"a is on {left}, b on {right}; move one of them by jax.device_put")


def from_dlpack(tensor: Any) -> jax.Array:
    """The tensor's values in memory of JAX's own, when they are there: torch would use its own again too early."""
    array: jax.Array = jnp.copy(jax.dlpack.from_dlpack(tensor)).block_until_ready()
    return array


def from_host(x: Array, *operands: Any) -> Any:
    """A NumPy array as a JAX array where JAX would have computed it from the operands.

    That is the device of the first operand that is committed to one device, or else, not committed either, of the first
    that lies on one; without such, the default. TypeError where JAX does not have the type while 64-bit types are off.
    """
    check_type(x.dtype)
    placed = [y for y in operands if isinstance(y, jax.Array) and len(y.devices()) == 1]
    for y in placed:
        if y.committed:
            return jax.device_put(x, next(iter(y.devices())))
    if not placed:
        return jax.device_put(x)
    with jax.default_device(next(iter(placed[0].devices()))):
        return jax.device_put(x)


def check_type(dtype: np.dtype[Any]) -> None:
    """TypeError for a result's type that JAX would silently narrow."""
    if dtype.kind == "O":
        raise TypeError("the product is of Python ints, which JAX does not have; multiply NumPy arrays instead")
    if dtype.name in WIDE and not wide_types():
        ways = {
            "i": ', or pass dtype=jnp.int32 (checked), overflow="wrap", or a modulus up to 2^31',
            "u": ', or pass dtype=jnp.uint32 (checked), overflow="wrap", or a modulus up to 2^31',
        }.get(dtype.kind, ", or convert the operands to a narrower float type")
        raise TypeError(
            f"the product has dtype {dtype}, which JAX does not have while 64-bit types are off; switch them on with "
            f'jax.config.update("jax_enable_x64", True){ways}'
        )
