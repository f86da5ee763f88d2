"""Design: the cheapest verified set of residue encodings for a width, a depth and a device."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log2, prod
from numbers import Real
from typing import Any

import numpy as np

from gemmulate import formats
from gemmulate.encodings import rates as rate_tables
from gemmulate.encodings.bounds.lower import prime_factors
from gemmulate.encodings.bounds.selection import Item
from gemmulate.encodings.catalogue import Catalogue, UnknownEncoding
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.rates import Rates
from gemmulate.encodings.selection import Selection, WindowTooLarge, exceeds, select
from gemmulate.encodings.window import Array, a_priori, check_bits, check_k, of_matrices

# An exact sum shorter than this leaves the matrix unit too often; deeper k is summed in chunks outside it.
_DEEPEST_REQUIRED = 16384


@dataclass(frozen=True)
class Design:
    """A set of residue encodings whose moduli are pairwise coprime and exceed a window.

    `cost` counts products of `cost_unit`, the fastest format asked for: Σ products · its rate / the format's rate.
    """

    bits: int
    k: int
    window: int
    encodings: tuple[Encoding, ...]
    cost: Fraction
    cost_unit: str
    bound: Fraction
    proof: str
    rates: Rates
    selection: Selection
    formats: tuple[str, ...]

    @property
    def moduli(self) -> tuple[int, ...]:
        return tuple(e.modulus or 0 for e in self.encodings)

    @property
    def products(self) -> int:
        return sum(e.products for e in self.encodings)

    @property
    def products_by_format(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for e in self.encodings:
            counts[e.format.name] = counts.get(e.format.name, 0) + e.products
        return counts

    @property
    def optimal(self) -> bool:
        """Whether no set of the catalogue's moduli is cheaper, by the proof that `proof` names."""
        return self.cost == self.bound

    @property
    def freedom_bits(self) -> float:
        """Σ log2(m/covered): bits of freedom that partial covers spend per operand."""
        return sum(e.freedom_bits for e in self.encodings)

    @property
    def window_bits(self) -> float:
        """log2 of the window, raised by twice the freedom spent."""
        return log2(self.window) + 2 * self.freedom_bits

    @property
    def product_bits(self) -> float:
        """log2 of the product of the moduli."""
        return log2(prod(self.moduli))

    @property
    def max_depth(self) -> int:
        """The largest k that every product of the design sums exactly on the device's accumulators."""
        return min(e.max_depth(self.rates.accumulator(e.format.name)) for e in self.encodings)

    @property
    def ops_per_s(self) -> float | None:
        """The device's rate divided among the products: a ceiling for wide operations per second."""
        if self.rates.device is None:
            return None
        per_operation = sum(Fraction(n) / self.rates.of(name) for name, n in self.products_by_format.items())
        return float(1 / per_operation)

    def _certificate(self) -> dict[str, Any]:
        """What `bounds.selection` proves `cost_bound` with, unless `proof` names the solver: exact numbers as text.

        With multipliers y (window), φ (freedom) and π_p (primes) it is the formula of `bounds.selection` over every
        modulus m of the catalogue in these formats whose depth is at least `depth` and whose freedom is at most the
        budget. m costs its products times `price` of its format. The right-hand side rounds up to the next multiple
        of the costs' greatest common divisor.
        """
        duals = self.selection.duals
        unit = self.rates.of(self.cost_unit)
        return {
            "window": str(self.window),
            "depth": min(self.k, _DEEPEST_REQUIRED),
            "budget": str(self.selection.budget),
            "price": {name: str(unit / self.rates.of(name)) for name in self.formats},
            "multipliers": {
                "window": str(duals.window),
                "freedom": str(duals.freedom),
                "primes": {str(p): str(v) for p, v in duals.primes.items() if v},
            },
        }

    def to_dict(self) -> dict[str, Any]:
        """What `encodings design --json` prints. `bits` is log2 of the product of the moduli."""
        return {
            "products": self.products,
            "moduli": list(self.moduli),
            "window_bits": round(self.window_bits, 6),
            "bits": round(self.product_bits, 6),
            "optimal": self.optimal,
            "cost": round(float(self.cost), 6),
            "cost_unit": self.cost_unit,
            "cost_bound": round(float(self.bound), 6),
            "proof": self.proof,
            "certificate": self._certificate(),
            "operand_bits": self.bits,
            "k": self.k,
            "freedom_bits": round(self.freedom_bits, 6),
            "products_by_format": self.products_by_format,
            "max_depth": self.max_depth,
            "device": self.rates.device,
            "ops_per_s": self.ops_per_s,
            "encodings": [
                {
                    "key": e.key,
                    "modulus": e.modulus,
                    "covered": e.left.size,
                    "products": e.products,
                    "max_depth": e.max_depth(self.rates.accumulator(e.format.name)),
                    "weights_left": list(e.weights_left),
                    "weights_right": list(e.weights_right),
                    "planes_left": [list(row) for row in e.planes_left],
                    "planes_right": [list(row) for row in e.planes_right],
                    "coefficients": list(e.coefficients),
                }
                for e in self.encodings
            ],
        }


def design(
    bits: int = 53,
    k: int = 16384,
    device: str | Rates | None = None,
    formats: str | Sequence[str] | None = None,
    *,
    freedom: float = 0.0,
    window: int | None = None,
    a: Array | None = None,
    b: Array | None = None,
    catalogue: Catalogue | str | os.PathLike[str] | None = None,
) -> Design:
    """The cheapest set of moduli for exact sums of k products of `bits`-bit integers, over one or several formats.

    `device` names a device of `rates.devices()` (or gives Rates) and prices each format by its rate; without it a
    format of half the width counts half. `formats` defaults to those the device has (or FP4). `freedom` allows
    partial-cover moduli up to that many bits per operand: for rounded float operands alone, never for integers.
    `window`, an integer that the product of the moduli must exceed, or the matrices `a`, `b` (m, k), (k, n) replace
    the a-priori window 2·k·2^(2·bits). Raises ValueError for bad
    arguments and WindowTooLarge when all moduli together do not reach the window.

    >>> from gemmulate import encodings
    >>> d = encodings.design(bits=53, k=16384, formats="fp4_e2m1")
    >>> d.products, d.optimal
    (59, True)
    """
    bits, k = check_bits(bits), check_k(k)
    if isinstance(freedom, bool) or not isinstance(freedom, Real) or not 0 <= freedom <= 64:
        raise ValueError(f"freedom = {freedom!r}: bits of freedom per operand, in 0 … 64")
    if device is None:
        table = rate_tables.by_width()
    else:
        table = device if isinstance(device, Rates) else rate_tables.of_device(device)
    names = _format_names(formats, table)
    if (a is None) != (b is None):
        raise ValueError("a window from data needs both a and b")
    if a is not None and b is not None:
        a, b = np.asarray(a), np.asarray(b)
        k = max(1, a.shape[1]) if a.ndim == 2 else k
    fixed = window is not None
    if window is None:
        window = a_priori(bits, k) if a is None or b is None else of_matrices(a, b, bits)
    elif isinstance(window, bool) or not isinstance(window, int) or window < 1 or a is not None:
        raise ValueError(f"window = {window!r}: a positive integer, and not together with matrices")
    source = catalogue if isinstance(catalogue, Catalogue) else Catalogue(catalogue)
    required = min(k, _DEEPEST_REQUIRED)
    candidates = [
        e for name in names for e in source.residues(name) if e.max_depth(table.accumulator(name)) >= required
    ]
    if not candidates:
        if not any(source.residues(name) for name in names):
            raise UnknownEncoding(f"the catalogue has no residue encodings over {', '.join(names)}; choose others")
        limits = ", ".join(f"{name} in {table.accumulator(name)}" for name in names)
        deepest = max((e.max_depth(table.accumulator(n)) for n in names for e in source.residues(n)), default=0)
        raise UnknownEncoding(
            f"no residue encoding sums k = {required} products exactly over {limits} (the deepest sums {deepest}); "
            "choose other formats or a smaller k"
        )
    unit = max(names, key=table.of)
    items = [
        Item(
            e.modulus or 0,
            e.left.size,
            e.products * table.of(unit) / table.of(e.format.name),
            frozenset(prime_factors(e.modulus or 0)),
        )
        for e in candidates
    ]
    try:
        chosen = select(items, window, freedom)
    except WindowTooLarge as error:
        possible = int((error.reach_bits - 1 - log2(k)) // 2)
        reach = f"a window of {log2(window):.2f} bits; the moduli over {', '.join(names)} reach {error.reach_bits:.2f}"
        if fixed:
            advice = f"the request needs {reach}: add formats"
        elif possible < 1:
            advice = f"bits = {bits} at k = {k} needs {reach}, too few for any bits at this k: add formats"
        else:
            advice = f"bits = {bits} at k = {k} needs {reach}: at most bits = {possible} at this k, or add formats"
        raise WindowTooLarge(advice, reach_bits=error.reach_bits) from None
    if not exceeds([items[n] for n in chosen.chosen], window):
        raise AssertionError("the selected moduli do not exceed the window")
    picked = tuple(candidates[n] for n in chosen.chosen)
    return Design(bits, k, window, picked, chosen.cost, unit, chosen.bound, chosen.proof, table, chosen, tuple(names))


def _format_names(wanted: str | Sequence[str] | None, table: Rates) -> list[str]:
    if wanted is None:
        usual = ("fp4_e2m1", "fp8_e4m3", "int8")
        return [n for n in usual if n in table.ops_per_s] if table.device else ["fp4_e2m1"]
    if isinstance(wanted, bytes) or not isinstance(wanted, Iterable):
        raise TypeError(f'formats = {wanted!r}: name formats as in "fp4_e2m1,fp8_e4m3" or ["fp4_e2m1", "fp8_e4m3"]')
    listed = wanted.split(",") if isinstance(wanted, str) else list(wanted)
    names = [formats.get(name.strip() if isinstance(name, str) else name).name for name in listed]
    if not names:
        raise ValueError("formats = () is empty: name at least one, e.g. fp4_e2m1")
    for name in names:
        table.of(name)
    return list(dict.fromkeys(names))
