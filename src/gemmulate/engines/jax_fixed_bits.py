"""Bits(n) of stacks as operations of XLA, in code that JAX traces with 64-bit types; nothing goes to the host.

The steps are those of the array engine (`schemes/fixed_bits.py`), on the same functions. But arrays here do not change,
and a loop of Python would be compiled once for each turn: matrices of a stack, rows and columns are worked on in blocks
of one size, one after the other, by `lax.map`. A temporary holds `_BLOCK` entries, or one vector's, 8 bytes for each
modulus or digit; to these come `_RESIDENT` bytes of the right operand's residues, and four bytes for each of their
entries, which say what special values and signs of zeros decide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from gemmulate.engines import array_crt as crt
from gemmulate.engines import array_floats as floats
from gemmulate.engines import array_special as special
from gemmulate.engines.array_library import Tensor
from gemmulate.engines.base import NO_EXPONENT, dtype_name
from gemmulate.engines.jax import JaxLibrary
from gemmulate.engines.residue_system import ResidueSystem, digits_for
from gemmulate.engines.rounding import FLOAT_FORMATS, BinaryFormat

_BLOCK = 1 << 21  # entries that are worked on at a time
_RESIDENT = 1 << 30  # bytes


class _TracedLibrary(JaxLibrary):
    """Tables stay NumPy's, which are constants of any program: a copy on the device would belong to one trace."""

    def __init__(self) -> None:
        self.block = _BLOCK

    def load(self, x: npt.NDArray[Any]) -> Tensor:
        return x


_LIBRARY = _TracedLibrary()


class _Vectors(NamedTuple):
    """Bit patterns of vectors (count, depth), signed integers of the format's size."""

    pattern: Tensor
    form: BinaryFormat


class _Side(NamedTuple):
    """One operand taken apart; vectors come first everywhere."""

    planes: Tensor  # residues, int8 (vectors, moduli, depth)
    shift: Tensor  # integers are entries times 2^shift of their vector
    classes: special.Classes


def multiply(a: jax.Array, b: jax.Array, system: ResidueSystem, bits: int, dtype: np.dtype[Any]) -> jax.Array:
    """The product (…, m, n) of float or complex stacks a (…, m, k) and b (…, k, n) of one rank, in their common type.

    `bits` of each operand are kept; `system` covers the sums of their integers, 2k for complex operands.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if 0 in (*batch, m, k, n):
        return jnp.zeros((*batch, m, n), dtype=dtype)

    def flat(x: jax.Array) -> jax.Array:
        return jnp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape((-1, *x.shape[-2:]))

    one = partial(_multiply_matrices, system=system, bits=bits, dtype=dtype)
    size = max(1, _BLOCK // max(m * k, n * k, m * n))  # of one chunk of the stack
    product = _by_blocks(jax.vmap(one), (flat(a), flat(jnp.swapaxes(b, -1, -2))), size)
    result: jax.Array = product.reshape((*batch, m, n))
    return result


def _by_blocks(run: Callable[..., Any], operands: tuple[Tensor, ...], size: int) -> Any:
    """run(*operands), whose results begin with the operands' first dimension, `size` of it at a time."""
    count = operands[0].shape[0]
    blocks = -(-count // size)
    if blocks <= 1:
        return run(*operands)
    size = -(-count // blocks)

    def cut(x: Tensor) -> Tensor:
        filled = jnp.pad(x, ((0, blocks * size - count), *((0, 0),) * (x.ndim - 1)))
        return filled.reshape((blocks, size, *x.shape[1:]))

    found = lax.map(lambda parts: run(*parts), tuple(map(cut, operands)))
    return jax.tree.map(lambda y: y.reshape((blocks * size, *y.shape[2:]))[:count], found)


def _multiply_matrices(
    a: jax.Array, bt: jax.Array, system: ResidueSystem, bits: int, dtype: np.dtype[Any]
) -> jax.Array:
    """The product of a (m, k) and bt (n, k)."""
    part = np.dtype(np.float32 if dtype == np.complex64 else np.float64) if dtype.kind == "c" else dtype
    one = partial(_multiply_patterns, system=system, bits=bits, form=FLOAT_FORMATS[dtype_name(part)])
    (left, left_imag), (right, right_imag) = _patterns(a), _patterns(bt)
    if dtype.kind != "c":
        return lax.bitcast_convert_type(one(left, right), part)
    # As plan/matmul.py: each element of either part is one dot product of depth 2k.
    sign = -1 << floats.storage_bits(left_imag.form) - 1
    minus = _Vectors(left_imag.pattern ^ sign, left_imag.form)
    products = (
        one(_beside(left, minus), _beside(right, right_imag)),
        one(_beside(left, left_imag), _beside(right_imag, right)),
    )
    return lax.complex(*(lax.bitcast_convert_type(product, part) for product in products))


def _patterns(x: jax.Array) -> tuple[_Vectors, _Vectors]:
    """Real and imaginary part."""
    real, imag = (lax.real(x), lax.imag(x)) if jnp.iscomplexobj(x) else (x, jnp.zeros_like(x))
    form = FLOAT_FORMATS[dtype_name(np.dtype(real.dtype))]
    integer = np.dtype(f"i{real.dtype.itemsize}")
    first, second = (_Vectors(lax.bitcast_convert_type(v, integer), form) for v in (real, imag))
    return first, second


def _beside(x: _Vectors, y: _Vectors) -> _Vectors:
    return _Vectors(jnp.concatenate([x.pattern, y.pattern], axis=1), x.form)


def _multiply_patterns(left: _Vectors, right: _Vectors, system: ResidueSystem, bits: int, form: BinaryFormat) -> Tensor:
    """The product's patterns (m, n), integers of the format's size."""
    lib, depth = _LIBRARY, left.pattern.shape[1]
    take_apart = partial(_take_apart, system=system, bits=bits)

    def columns(y: Tensor) -> Tensor:
        other: _Side = _by_blocks(
            lambda part: take_apart(_Vectors(part, right.form), left=False), (y,), max(1, _BLOCK // depth)
        )
        planes = jnp.moveaxis(other.planes, 1, 0)

        def rows(x: Tensor) -> Tensor:
            here = take_apart(_Vectors(x, left.form), left=True)
            sums = jax.vmap(lib.int8_product, in_axes=(1, 0))(here.planes, planes)
            exponent = -(here.shift[:, None] + other.shift[None, :])
            rounded = floats.round_limbs(lib, crt.combine(lib, sums, system), exponent, form)
            decided = special.decide(lib, here.classes, other.classes, rounded.signed(lib, form), form)
            return lib.astype(decided, f"int{floats.storage_bits(form)}")

        return _by_blocks(rows, (left.pattern,), max(1, _BLOCK // max(2 * depth, len(y)))).T

    return _by_blocks(columns, (right.pattern,), max(1, _RESIDENT // (depth * system.bytes_per_entry))).T


def _take_apart(x: _Vectors, system: ResidueSystem, bits: int, left: bool) -> _Side:
    lib, parts = _LIBRARY, floats.decode(_LIBRARY, x.pattern, x.form, None)
    top = lib.amax(floats.tops(lib, parts), 1)
    shift = (bits - top) * lib.astype(top != NO_EXPONENT, "int64")
    digits = floats.scaled_digits(lib, floats.to_integers(lib, parts, shift[:, None]), digits_for(bits), True)
    planes = crt.residues_of_digits(lib, digits, system, left)
    return _Side(jnp.moveaxis(planes, 0, 1), shift, special.classify(lib, x.pattern, x.form, left))
