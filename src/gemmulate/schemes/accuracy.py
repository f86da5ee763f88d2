"""What a caller may ask of a float product: a named grade, or a number of bits."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal, SupportsIndex, final

Grade = Literal["fast", "componentwise", "exact"]

# 2 · 128 bits and the 31 of the deepest product stay below the 341 of the INT8 residue systems, so that these bits
# can always be kept as they are asked for.
MOST_BITS = 128


@final
@dataclass(frozen=True)
class Bits:
    """Accuracy of a float product by the n significand bits kept of each operand (1 ≤ n ≤ 128).

    With α_i = max_p |a_ip| in [2^(e−1), 2^e), row i of A is rounded to the nearest multiples of 2^(e−n), ties to even:
    a' = a + δ, |δ| ≤ 2^-n α_i; columns of B likewise, with β_j. The result is A'B', correctly rounded to the result's
    type (unit roundoff u) in one rounding, hence normwise

        |C − AB|_ij ≤ (2^(1−n) + 2^(−2n)) k α_i β_j + u |A'B'|_ij

    (and half the least subnormal where the result is subnormal). Small entries beside large ones lose all their bits:
    the bound is relative to the largest, not componentwise. Where n bits hold every entry, the result is correctly
    rounded. Of complex matrices the largest of the real and imaginary parts counts.

    One bit more than the type has, n = 54 of float64 and 25 of float32, keeps the bound of "fast" as well: an entry of
    at least α_i/2 is kept, any other changes by |δ| ≤ u α_i/2. With the result's rounding a term then costs at most
    u α_i β_j, or (1 + u) u α_i β_j where one of its factors was rounded, of the 2u α_i β_j that "fast" allows.

    Bits and work follow from shapes and n alone. Products of tensors on a device therefore read nothing on the host,
    and a CUDA graph can hold them.

    Raises TypeError or ValueError for an n that is not an integer in 1 … 128.

    Source: the truncation of Ozaki scheme II (Ozaki, Uchino, Imamura 2025), with rounding to nearest.

    >>> import gemmulate as gm, numpy as np
    >>> gm.matmul(np.array([[1.0, 0.125]]), np.array([[1.0], [1.0]]), accuracy=gm.Bits(3))
    array([[1.]])
    >>> gm.matmul(np.array([[1.0, 0.125]]), np.array([[1.0], [1.0]]), accuracy=gm.Bits(4))
    array([[1.125]])
    """

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, SupportsIndex):
            raise TypeError(f"n = {self.n!r} is not an integer; give the number of bits to keep, 1 … {MOST_BITS}")
        count = operator.index(self.n)
        if not 1 <= count <= MOST_BITS:
            raise ValueError(f'n = {count} is not in 1 … {MOST_BITS}; accuracy="exact" keeps whatever is needed')
        object.__setattr__(self, "n", count)

    def __str__(self) -> str:
        return f"Bits({self.n})"
