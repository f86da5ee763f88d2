"""JAX: the product in traced code, with derivatives.

`gm.matmul` takes JAX arrays as it takes NumPy's. Here is the same with the one option more that JAX users need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    import jax
except ImportError as error:
    raise ImportError("gemmulate.jax needs jax: pip install jax") from error

import numpy as np

from gemmulate.plan.jax_arrays import multiply_jax
from gemmulate.plan.matmul import Accuracy, Overflow, check_options
from gemmulate.schemes.accuracy import Bits

__all__ = ["matmul"]


def matmul(
    a: Any,
    b: Any,
    *,
    accuracy: Accuracy | Bits = "fp64",
    modulus: int | None = None,
    overflow: Overflow = "raise",
    dtype: Any = None,
    engine: str | None = None,
    threads: int | None = None,
    formats: str | Sequence[str] | None = None,
) -> jax.Array:
    """`gm.matmul(a, b, …)` as a JAX array on the operands' device: bits, shapes, grades and errors are the same.

    Outside of compiled code the product runs at once. Within jit, scan and the like it is a callback to the host
    (`jax.pure_callback`): an error there, such as a result that does not fit, ends the program as JAX's
    `JaxRuntimeError` with our message in it. Products of floats and complex numbers with accuracy=gm.Bits(n) need no
    host: on a GPU (not run on one so far), and with engine="jax" on a processor as well, they become XLA's own
    operations, with the same bits. Any other product with engine="jax" is refused in traced code.

    `jax.vmap` makes stacks, whose matrices are multiplied each for itself. Derivatives forwards and backwards, of any
    order, work for floats and complex numbers, each a product at the same accuracy, in JAX's convention (no
    conjugates).

    Types are those of `gm.matmul`, not of JAX: integers give int64 (uint64), int32 with float32 gives float64. Where
    64-bit types are off (`jax_enable_x64`), a result of such a type is a TypeError, never narrowed. What remains for
    integers then: `dtype` (an integer type; a value that does not fit raises ResultOverflow), overflow="wrap", and
    modulus ≤ 2^31, whose residues are int32. float16, bfloat16, float32 and complex64 are not concerned.

    >>> import gemmulate as gm, jax.numpy as jnp
    >>> a = jnp.array([[1e8, 1.0, -1e8]], dtype=jnp.float32)
    >>> gm.jax.matmul(a, jnp.ones((3, 1), dtype=jnp.float32), accuracy="exact")
    Array([[1.]], dtype=float32)
    >>> gm.jax.matmul(jnp.arange(3), jnp.arange(3), dtype=jnp.int32)
    Array(5, dtype=int32)
    """
    check_options(accuracy, modulus, overflow)
    name = None if dtype is None else np.dtype(dtype).name
    options = {"accuracy": accuracy, "modulus": modulus, "overflow": overflow, "threads": threads, "formats": formats}
    result: jax.Array = multiply_jax(a, b, None, engine, **options, dtype=name)
    return result
