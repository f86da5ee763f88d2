"""What an engine offers that chooses bits and moduli on its device: float products of any grade without the host.

`schemes.resident` says in which order. All values are the engine's own, on its device; nothing here is read by the
host, and what is launched follows from shapes and types alone, so that a CUDA graph can hold it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy.typing as npt

Array = npt.NDArray[Any]
Value = Any  # on the device


class ChoiceRules(NamedTuple):
    """What a choice of bits weighs, besides the data."""

    grade: str  # "fast", "componentwise" or "exact"
    digits: int  # of the result's significand
    least_bits: int  # for truncations whose bound is to hold
    most_bits: int
    dot_cost: int  # of one exact dot product for each element, in INT8 products
    few_moduli: int  # that are not worth an assessment
    samples: tuple[int, int]  # vectors of either operand whose depths were counted


class ResidentFloats(ABC):
    """Steps of one product of a (m, k) and bt (n, k), arrays of the device; `x` is either."""

    moduli: int  # bytes for each entry of packed operands: as many as a choice may take

    @abstractmethod
    def survey(self, x: Array) -> Value:
        """Exponents, norms and what follows from them, of one operand."""

    @abstractmethod
    def scaled(self, a: Array, bt: Array, left: Value, right: Value, limit: int) -> tuple[Value, Value, Value]:
        """Both surveys and exponents along k: an inner scaling where more than `limit` bits are asked and it helps."""

    @abstractmethod
    def assess(self, a: Array, bt: Array, left: Value, right: Value, inner: Value, budget: float) -> Value:
        """The bits that each element asks for (`Engine.assess`), and their histogram."""

    @abstractmethod
    def choose(
        self,
        a: Array,
        bt: Array,
        left: Value,
        right: Value,
        inner: Value,
        asked: Value,
        steps: tuple[int, int],
        rules: ChoiceRules,
    ) -> Value:
        """Bits, moduli, and which elements are left to exact dot products; depths of every so many-th vector count."""

    @abstractmethod
    def marks(self, m: int, n: int) -> Value:
        """A mark for each element, none set."""

    @abstractmethod
    def pack(self, is_left: bool, x: Array, side: Value, inner: Value, choice: Value, vectors: slice) -> Value:
        """Residues of some vectors."""

    @abstractmethod
    def multiply(
        self, left: Value, right: Value, choice: Value, out: Array, marks: Value, rows: slice, columns: slice
    ) -> None:
        """Write results of packed rows and columns, and mark those whose rounding stays open."""

    @abstractmethod
    def exact_dots(self, a: Array, bt: Array, asked: Value, marks: Value, choice: Value, out: Array) -> None:
        """Overwrite elements that ask for more bits than the choice keeps, or are marked, by exact dot products."""
