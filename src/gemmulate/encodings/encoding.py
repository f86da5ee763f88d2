"""Encodings: one exact product written as few products of narrow values."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gemmulate import formats
from gemmulate.encodings.domain import Domain, join_key, split_key
from gemmulate.encodings.limbs import Ints, Matrix, limb_table, plane_values


@dataclass(frozen=True)
class Encoding:
    """Σ_t λ_t·P_t(x)·Q_t(y) = divisor·x·y (modulo the key's modulus) for x, y in the key's domains.

    x = Σ_i weights_left[i]·a_i(x) and P_t = Σ_i planes_left[t][i]·a_i, likewise y and Q with b_j; every P_t(x) and
    Q_t(y) is in the format's alphabet and of magnitude at most `plane_max`. Each limb is itself a plane, so a look-up
    table follows: of all limb vectors of x, the one with the smallest largest plane is taken. Immutable; `verify`
    proves it. Source of the form: adaptive weight encodings, arXiv 2609.24519.

    >>> from gemmulate import encodings
    >>> e = encodings.get("int8.int8.fp4_e2m1")
    >>> e.products, e.planes("left").shape
    (6, (6, 256))
    """

    key: str
    weights_left: tuple[int, ...]
    weights_right: tuple[int, ...]
    planes_left: Matrix
    planes_right: Matrix
    coefficients: tuple[int, ...]
    divisor: int = 1
    plane_max: int | None = None
    bound: int = 1
    bound_by: str = "trivial"
    provenance: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    @cached_property
    def _parsed(self) -> tuple[Domain, Domain, str]:
        return split_key(self.key)

    @property
    def left(self) -> Domain:
        return self._parsed[0]

    @property
    def right(self) -> Domain:
        return self._parsed[1]

    @property
    def format(self) -> formats.Format:
        return formats.get(self._parsed[2])

    @property
    def modulus(self) -> int | None:
        return self.left.modulus

    @property
    def products(self) -> int:
        """How many narrow products one wide product costs."""
        return len(self.coefficients)

    @property
    def status(self) -> str:
        """ "optimal" when the proven lower bound is met, else "best known"."""
        return "optimal" if self.products == self.bound else "best known"

    @property
    def freedom_bits(self) -> float:
        """log2(m / covered residues): what a partial cover costs per operand; 0 for a full one."""
        return float(np.log2(self.modulus / self.left.size)) if self.modulus else 0.0

    @cached_property
    def alphabet(self) -> formats.Alphabet:
        """What the planes may hold: the format's alphabet, cut to `plane_max`."""
        full = self.format.alphabet
        return full if self.plane_max is None else full.limited(self.plane_max)

    @property
    def plane_max_of_class(self) -> int | None:
        """The cut of the alphabet that a search declared: 32 for FP6 and FP8, whose sums stay exact to k = 16,384."""
        return 32 if self.format.name.startswith(("fp6", "fp8")) else None

    def max_depth(self, accumulator: str | None = None) -> int:
        """The largest k whose sum of plane products is exact in `accumulator` (default: the format's own)."""
        return formats.accumulator(accumulator or self.format.accumulator).max_depth(self.alphabet, self.alphabet)

    @property
    def depth_limits(self) -> dict[str, int]:
        """`max_depth` of every accumulator in which at least one product is exact."""
        depths = {name: self.max_depth(name) for name in formats.ACCUMULATORS}
        return {name: depth for name, depth in depths.items() if depth >= 1}

    def side(self, side: str) -> tuple[Domain, tuple[int, ...], Matrix]:
        """Domain, weights and plane forms of the "left" or the "right" operand."""
        if side == "left":
            return self.left, self.weights_left, self.planes_left
        if side == "right":
            return self.right, self.weights_right, self.planes_right
        raise ValueError(f'side = {side!r}: choose "left" or "right"')

    def limbs(self, side: str) -> tuple[Ints, Ints]:
        """Values x (n,) and their limb vectors (n, limbs), both int64; x that no limb vector reaches are absent."""
        self.side(side)
        return self._tables[side]

    @cached_property
    def _tables(self) -> dict[str, tuple[Ints, Ints]]:
        tables = {}
        for side in ("left", "right"):
            domain, weights, planes = self.side(side)
            tables[side] = limb_table(weights, planes, self.alphabet, domain)
        return tables

    def planes(self, side: str) -> Ints:
        """Plane values (products, n), int64, column per covered value in the order of `limbs(side)[0]`."""
        domain, _, forms = self.side(side)
        return plane_values(self.limbs(side)[1], forms, self.alphabet, domain.modulus)

    def transposed(self) -> "Encoding":
        """The encoding of y·x: both sides exchanged."""
        return replace(
            self,
            key=join_key(self.right, self.left, self.format.name),
            weights_left=self.weights_right,
            weights_right=self.weights_left,
            planes_left=self.planes_right,
            planes_right=self.planes_left,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything a user needs as plain JSON types: what `encodings show --json` prints."""
        return {
            "key": self.key,
            "format": self.format.name,
            "modulus": self.modulus,
            "covered": self.left.size if self.modulus else None,
            "range_left": None if self.modulus else [self.left.low, self.left.high],
            "range_right": None if self.modulus else [self.right.low, self.right.high],
            "products": self.products,
            "status": self.status,
            "bound": self.bound,
            "bound_by": self.bound_by,
            "max_depth": self.max_depth(),
            "depth_limits": self.depth_limits,
            "weights_left": list(self.weights_left),
            "weights_right": list(self.weights_right),
            "planes_left": [list(row) for row in self.planes_left],
            "planes_right": [list(row) for row in self.planes_right],
            "coefficients": list(self.coefficients),
            "divisor": self.divisor,
            "plane_max": self.plane_max,
            "provenance": dict(self.provenance),
        }
