"""Alphabets: the integers that a format holds exactly once its scale is removed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

# Listing an alphabet is meant for narrow formats; FP16's 4,097 integers still fit, FP64's 2^54 must not be tried.
_LARGEST_LISTED = 1 << 17


@dataclass(frozen=True, slots=True)
class Alphabet:
    """A finite set of integers, listed in increasing order or given as a range.

    >>> Alphabet((-2, 0, 1, 2)).max_abs
    2
    """

    values: tuple[int, ...] | range

    def __post_init__(self) -> None:
        if not len(self.values):
            raise ValueError("values = () is empty: an alphabet holds at least one integer")
        if isinstance(self.values, tuple) and list(self.values) != sorted(set(self.values)):
            raise ValueError("values must increase strictly: sort them and drop duplicates")

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)

    @property
    def smallest(self) -> int:
        return self.values[0]

    @property
    def largest(self) -> int:
        return self.values[-1]

    @property
    def max_abs(self) -> int:
        return max(abs(self.values[0]), abs(self.values[-1]))

    @property
    def quantum(self) -> int:
        """Greatest common divisor of all members (1 for every format here; larger for a restricted plane)."""
        if isinstance(self.values, range):
            return abs(math.gcd(self.values[0], self.values[-1], self.values.step if len(self.values) > 1 else 0)) or 1
        return math.gcd(*self.values) or 1

    def limited(self, bound: int) -> "Alphabet":
        """The members of magnitude at most `bound`; a smaller plane allows a deeper exact sum."""
        if bound < 0:
            raise ValueError(f"bound = {bound} is negative; give a magnitude >= 0")
        if isinstance(self.values, range):
            if self.values.step != 1:
                raise ValueError("only ranges of step 1 can be limited")
            return Alphabet(range(max(self.smallest, -bound), min(self.largest, bound) + 1))
        return Alphabet(tuple(v for v in self.values if abs(v) <= bound))

    def array(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """All members as int64, increasing; raises ValueError for alphabets too wide to list."""
        if len(self.values) > _LARGEST_LISTED:
            raise ValueError(
                f"an alphabet of {len(self.values)} integers is not listed; limit it first with .limited()"
            )
        return np.array(self.values, dtype=np.int64)
