"""Elements that IEEE's rules decide beside the exact sum, on a library's device: two INT8 products say which they are.

With σ = ±1 the sign of an entry and z = 1 where it is not zero, Σ (σ σ' + z z') is −k just where all k products of an
element are −0: such a term is −1, of opposite signs and with a zero; every other one is at least 0.

With i = ±1 of infinities, else 0, and s = σ z, T = Σ (i s' + s i'). Let U be the number of infinities in the row and in
the column. Without NaN in either an infinity counts ±1 in T where it meets what is not zero, 0 where it meets a zero;
where two meet, both count alike. So T = U > 0 where all such terms are +∞, T = −U where all are −∞, and |T| < U where
a term is ∞ · 0 or where both signs occur: NaN. With U = 0 the sum is finite and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gemmulate.engines.array_floats import storage_bits
from gemmulate.engines.array_library import Library, Tensor
from gemmulate.engines.rounding import BinaryFormat


class Classes(NamedTuple):
    """Of an operand's entries, int8 (vectors, 2 depth); of each vector, whether it holds NaN, and its infinities."""

    signs: Tensor  # σ, z
    terms: Tensor  # i, s of a left operand, s, i of a right one
    nan: Tensor
    infinities: Tensor


def _infinity(form: BinaryFormat) -> int:
    """The pattern of +∞; patterns above it are NaN."""
    return ((1 << storage_bits(form) - form.digits) - 1) << form.digits - 1


def classify(lib: Library, pattern: Tensor, form: BinaryFormat, left: bool) -> Classes:
    """The classes of bit patterns (signed integers of the format's size) of one block of vectors."""
    magnitude = pattern & (1 << storage_bits(form) - 1) - 1
    sign, nonzero = 1 - 2 * lib.astype(pattern < 0, "int8"), lib.astype(magnitude != 0, "int8")
    infinite = lib.astype(magnitude == _infinity(form), "int8")
    terms = [sign * infinite, sign * nonzero]
    return Classes(
        lib.concatenate([sign, nonzero], 1),
        lib.concatenate(terms if left else terms[::-1], 1),
        lib.amax(lib.astype(magnitude > _infinity(form), "int8"), 1) != 0,
        lib.sum(lib.astype(infinite, "int64"), 1),
    )


def join(lib: Library, blocks: Sequence[Classes]) -> Classes:
    """Blocks of vectors as one."""
    return Classes(*(lib.concatenate(field, 0) for field in zip(*blocks, strict=True)))


def decide(lib: Library, left: Classes, right: Classes, pattern: Tensor, form: BinaryFormat) -> Tensor:
    """The patterns (m, n) of results, int64 with their signs, where special values and zeros are as IEEE 754 has them.

    `pattern`: the roundings of the exact sums, NaN and infinities taken for 0, exact zeros +0.
    """
    depth, negative, infinity = left.signs.shape[1] // 2, -1 << storage_bits(form) - 1, _infinity(form)

    def flag(condition: Tensor) -> Tensor:
        return lib.astype(condition, "int64")

    signs = lib.int8_product(left.signs, right.signs)
    pattern = pattern + flag((pattern == 0) & (signs == -depth)) * negative
    terms = lib.int8_product(left.terms, right.terms)
    count = left.infinities[:, None] + right.infinities[None, :]
    nan = left.nan[:, None] | right.nan[None, :]
    special = nan | (count != 0)
    decided = infinity + flag(terms < 0) * negative
    # The quiet NaN that arithmetic gives: only the first bit of its fraction is set.
    nan = nan | ((terms != count) & (terms != -count))
    decided = decided + flag(nan) * (infinity + (1 << form.digits - 2) - decided)
    return pattern + flag(special) * (decided - pattern)
