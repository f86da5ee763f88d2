"""Problem: a product by its shapes and types alone, for plans before there are data."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Final, SupportsIndex, final

import numpy as np

from gemmulate.model.kernels import Kernel, gemm
from gemmulate.schemes.accuracy import MOST_BITS, Bits

# Significand bits that Gaussian entries take in each grade, as `gm.plan` finds them for k = 256 (tests/plan): float32
# entries are kept whole, since few moduli do it.
GAUSSIAN_BITS: Final[dict[tuple[str, str], int]] = {
    ("float64", "fast"): 52, ("float64", "fp64"): 56, ("float64", "exact"): 67,
    # "fast" of float32: 25 at k = 256, 28 at 2,048, by its floor of 16 bits and those of k.
    ("float32", "fast"): 27, ("float32", "fp64"): 42, ("float32", "exact"): 42,
}  # fmt: skip


@final
@dataclass(frozen=True)
class Problem:
    """A product (m, k) times (k, n), `batch` of them, of the given dtypes (a, b).

    bits: magnitude bits of the integers (|x| ≤ 2^bits), or significand bits kept of the floats, of a and b. If not
    given: all that an integer dtype holds; for floats what Gaussian entries take in the grade asked for.

    Raises TypeError or ValueError for sizes below 1, dtypes that are neither real floats of 32 or 64 bits nor
    integers, one integer and one float, and bits outside 0 … 128.

    >>> Problem(64, 32, 16).kernel().flops
    65536.0
    """

    m: int
    k: int
    n: int
    dtypes: tuple[str, str] = ("float64", "float64")
    bits: tuple[int, int] | None = None
    batch: int = 1

    def __post_init__(self) -> None:
        for name in ("m", "k", "n", "batch"):
            object.__setattr__(self, name, _positive(name, getattr(self, name)))
        names = (self.dtypes, self.dtypes) if isinstance(self.dtypes, str) else self.dtypes
        if not isinstance(names, tuple | list) or len(names) != 2:
            raise TypeError(f"dtypes = {self.dtypes!r}: give the dtypes of a and b, or one for both")
        object.__setattr__(self, "dtypes", tuple(_dtype(name) for name in names))
        if len({np.dtype(name).kind == "f" for name in self.dtypes}) == 2:
            raise TypeError(f"dtypes = {self.dtypes}: one integer and one float; say what both are converted to")
        if self.bits is not None:
            given = self.bits
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise TypeError(f"bits = {given!r}: give the bits of a and b as a pair")
            for count in given:
                if isinstance(count, bool) or not isinstance(count, SupportsIndex):
                    raise TypeError(f"bits = {given!r}: give two integers")
                if not 0 <= operator.index(count) <= MOST_BITS:
                    raise ValueError(f"bits = {given!r}: each must be in 0 … {MOST_BITS}")
            object.__setattr__(self, "bits", tuple(operator.index(count) for count in given))

    @property
    def integer(self) -> bool:
        """Whether the operands are integers."""
        return np.dtype(self.dtypes[0]).kind in "biu"

    @property
    def elements(self) -> tuple[int, int, int]:
        """Entries of a, of b and of the result, over the batch."""
        return self.batch * self.m * self.k, self.batch * self.k * self.n, self.batch * self.m * self.n

    def kept(self, accuracy: str | Bits) -> tuple[int, int]:
        """Bits of a and b that count in a grade."""
        if self.bits is not None:
            return self.bits
        if self.integer:
            left, right = (_magnitude_bits(name) for name in self.dtypes)
            return left, right
        if isinstance(accuracy, Bits):
            return accuracy.n, accuracy.n
        common = str(np.result_type(*self.dtypes))
        kept = GAUSSIAN_BITS[common, "fp64" if accuracy == "fp32" else accuracy]
        return kept, kept

    def window(self, accuracy: str | Bits) -> int:
        """W = k · 2^(bits of a + bits of b): integer results x keep to |x| ≤ W."""
        return self.k << sum(self.kept(accuracy))

    def kernel(self) -> Kernel:
        """The model's counts of it, of float64 size."""
        return gemm(self.m, self.n, self.k, batch=self.batch)

    def __str__(self) -> str:
        many = f", {self.batch} of them" if self.batch > 1 else ""
        return f"{self.m}×{self.k} times {self.k}×{self.n}, {self.dtypes[0]} and {self.dtypes[1]}{many}"


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} = {value!r} is not an integer; give a positive one")
    count = operator.index(value)
    if not 1 <= count <= 1 << 31:
        raise ValueError(f"{name} = {count} is not in 1 … 2^31")
    return count


def _dtype(name: Any) -> str:
    try:
        found = np.dtype(name)
    except TypeError:
        raise TypeError(f"dtypes: {name!r} is no dtype") from None
    if found.kind not in "biu" and found.name not in ("float32", "float64"):
        raise TypeError(f"dtypes: {found.name} is not priced; give bool, (u)int8 … (u)int64, float32 or float64")
    return str(found.name)


def _magnitude_bits(name: str) -> int:
    """Least b with |x| ≤ 2^b for all values of an integer dtype."""
    found = np.dtype(name)
    return 0 if found.kind == "b" else 8 * found.itemsize - (found.kind == "i")
