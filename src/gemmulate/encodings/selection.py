"""Selection of moduli: pairwise coprime, product above the window, least cost, with proof."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import log2, prod
from typing import Any

import numpy as np

from gemmulate.encodings.bounds.selection import Duals, Item, dual_bound, round_up
from gemmulate.errors import GemmulateError

# A freedom budget is quoted to two digits but is a sum of logarithms (54 products need 0.5427): read it this loosely.
FREEDOM_SLACK = Fraction(1, 64)
# Logarithms of float64 err below 1e-13 per set; this slack never excludes a set, and exact integers decide afterwards.
_LOG_SLACK = 1e-7
_TIME_LIMIT_S = 60.0


class WindowTooLarge(GemmulateError, ValueError):
    """No set of the candidate moduli exceeds the window; `reach_bits` is what they reach."""

    def __init__(self, message: str, *, reach_bits: float) -> None:
        super().__init__(message)
        self.reach_bits = reach_bits


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen candidates (indices), their cost, the proven lower bound and how it was proven."""

    chosen: tuple[int, ...]
    cost: Fraction
    bound: Fraction
    proof: str
    duals: Duals
    budget: Fraction  # of freedom, its slack included

    @property
    def optimal(self) -> bool:
        return self.cost == self.bound


def exceeds(items: Sequence[Item], window: int) -> bool:
    """Π c²/m > window in exact integers: for full covers (c = m) the product of the moduli exceeds the window."""
    return prod(i.covered**2 for i in items) > window * prod(i.modulus for i in items)


def freedom_bits(item: Item) -> float:
    return log2(item.modulus / item.covered) if item.covered < item.modulus else 0.0


def gain_bits(item: Item) -> float:
    """log2 m less twice the freedom: what the modulus adds to the window."""
    return log2(item.modulus) - 2 * freedom_bits(item)


def undominated(items: Sequence[Item]) -> list[int]:
    """Indices of candidates that no other replaces (primes among theirs, no dearer, no less gain, no more freedom)."""
    facts = [np.array([float(i.cost), -gain_bits(i), freedom_bits(i)]) for i in items]
    order = sorted(range(len(items)), key=lambda n: (*facts[n], len(items[n].primes), -items[n].modulus, n))
    kept: list[int] = []
    for n in order:
        if not any(items[k].primes <= items[n].primes and (facts[k] <= facts[n]).all() for k in kept):
            kept.append(n)
    return sorted(kept)


def select(items: Sequence[Item], window: int, budget: float = 0.0) -> Selection:
    """The cheapest admissible set of `items`, by integer programming (HiGHS), checked and bounded in exact arithmetic.

    `window` is an integer the product must exceed; `budget` limits Σ log2(m/covered). Raises WindowTooLarge when no
    set suffices and ImportError with the way out when scipy is absent.
    """
    loose = Fraction(budget) + FREEDOM_SLACK if budget > 0 else Fraction(0)
    allowed = [n for n, i in enumerate(items) if freedom_bits(i) <= loose]
    pool = [allowed[n] for n in undominated([items[n] for n in allowed])]
    program = _Program([items[n] for n in pool], window, loose)
    picked, solver_bound = program.solve()
    cost = sum((program.items[n].cost for n in picked), Fraction(0))
    duals = program.duals()
    bound = round_up(dual_bound(program.items, window, loose, duals), [i.cost for i in program.items])
    proof = "linear-programming dual, checked in rational arithmetic"
    if bound < cost and solver_bound >= float(cost) * (1 - 1e-9):
        bound, proof = cost, "branch and bound (HiGHS), logarithms rounded in its favour"
    chosen = tuple(sorted((pool[n] for n in picked), key=lambda n: (items[n].modulus, n)))
    return Selection(chosen, cost, bound, proof, duals, loose)


class _Program:
    """The integer program over undominated candidates."""

    def __init__(self, items: list[Item], window: int, budget: Fraction) -> None:
        try:
            from scipy import optimize
        except ImportError as error:
            raise ImportError("selecting moduli needs scipy: pip install 'gemmulate[search]'") from error
        self.items, self.window, self.budget, self.optimize = items, window, budget, optimize
        self.primes = sorted(set().union(*(i.primes for i in items)) if items else ())
        self.gains = np.array([gain_bits(i) for i in items])
        self.freedoms = np.array([freedom_bits(i) for i in items])
        self.costs = np.array([float(i.cost) for i in items])
        self.conflicts = np.array([[float(p in i.primes) for i in items] for p in self.primes])
        self.need = log2(window)

    def _milp(self, objective: Any, extra: list[Any]) -> Any:
        constraints = [
            self.optimize.LinearConstraint(self.conflicts, -np.inf, 1),
            self.optimize.LinearConstraint(self.freedoms[None, :], -np.inf, float(self.budget)),
            *extra,
        ]
        with _silent():
            return self.optimize.milp(
                objective,
                constraints=constraints,
                integrality=np.ones(len(self.items)),
                bounds=self.optimize.Bounds(0, 1),
                options={"mip_rel_gap": 0.0, "time_limit": _TIME_LIMIT_S},
            )

    def solve(self) -> tuple[list[int], float]:
        """Chosen indices and the solver's own lower bound; sets that exact integers refute are cut off."""
        if not self.items:
            raise WindowTooLarge("no candidate moduli", reach_bits=0.0)
        wide = self.optimize.LinearConstraint(self.gains[None, :], self.need - _LOG_SLACK, np.inf)
        cuts: list[Any] = []
        for _ in range(64):
            result = self._milp(self.costs, [wide, *cuts])
            if result.x is None:
                break
            picked = np.flatnonzero(result.x > 0.5).tolist()
            if exceeds([self.items[n] for n in picked], self.window):
                return picked, float(result.mip_dual_bound)
            row = -np.ones(len(self.items))
            row[picked] = 1.0
            cuts.append(self.optimize.LinearConstraint(row[None, :], -np.inf, len(picked) - 1))
        reach = -float(self._milp(-self.gains, []).fun)
        raise WindowTooLarge(
            f"a window of {self.need:.2f} bits exceeds the {reach:.2f} bits that all pairwise coprime moduli reach",
            reach_bits=reach,
        )

    def duals(self) -> Duals:
        """Multipliers of the linear relaxation, as exact fractions of the solver's floats; never negative."""
        with _silent():
            result = self.optimize.linprog(
                self.costs,
                A_ub=np.vstack([self.conflicts, -self.gains[None, :], self.freedoms[None, :]]),
                b_ub=np.concatenate([np.ones(len(self.primes)), [-self.need, float(self.budget)]]),
                bounds=(0, 1),
            )
        if result.status != 0:
            return Duals(Fraction(0), Fraction(0), {})
        values = [Fraction(max(0.0, -float(v))) for v in result.ineqlin.marginals]
        return Duals(values[-2], values[-1], dict(zip(self.primes, values[:-2], strict=True)))


@contextmanager
def _silent() -> Iterator[None]:
    """HiGHS 1.12 writes debugging lines to the process's standard output, which must stay clean for --json."""
    sys.stdout.flush()
    saved, sink = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(sink)
