"""Lower bound on the cost of a set of moduli, from dual multipliers that anybody can check.

Selection: choose pairwise coprime moduli with Σ gain_m ≥ window and Σ freedom_m ≤ budget at least cost. For any
y, φ, π_p ≥ 0, weak duality gives

    cost ≥ y·window − φ·budget − Σ_p π_p − Σ_m max(0, y·gain_m − φ·freedom_m − Σ_{p|m} π_p − cost_m).

A linear-programming solver proposes the multipliers; this module evaluates the bound in rational arithmetic with
logarithms rounded against it, so nothing depends on floating point or on the solver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil, gcd, lcm

# Decimal.ln is correctly rounded; at 40 digits two logarithms and a quotient err by less than 10^-35 for n < 10^30.
_LOG_ERROR = Fraction(1, 10**30)


def log2_bounds(numerator: int, denominator: int = 1) -> tuple[Fraction, Fraction]:
    """Rational lower and upper bounds of log2(numerator/denominator), at most 2·10^-30 apart."""
    with localcontext() as context:
        context.prec = 60
        log = Fraction((Decimal(numerator).ln() - Decimal(denominator).ln()) / Decimal(2).ln())
    return log - _LOG_ERROR, log + _LOG_ERROR


@dataclass(frozen=True, slots=True)
class Item:
    """One candidate modulus: m, covered residues, exact cost and the primes that divide m."""

    modulus: int
    covered: int
    cost: Fraction
    primes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Duals:
    """The certificate: multipliers of the window, of the freedom budget, and of each prime."""

    window: Fraction
    freedom: Fraction
    primes: dict[int, Fraction]


def dual_bound(items: Sequence[Item], window: int, budget: Fraction, duals: Duals) -> Fraction:
    """A cost that no admissible set of `items` undercuts, exact; ValueError for negative multipliers."""
    if min([duals.window, duals.freedom, *duals.primes.values()]) < 0:
        raise ValueError("dual multipliers must not be negative")
    total = duals.window * log2_bounds(window)[0] - duals.freedom * budget - sum(duals.primes.values())
    for item in items:
        gain = log2_bounds(item.covered**2, item.modulus)[1]  # log2 m − 2·log2(m/c)
        freedom = log2_bounds(item.modulus, item.covered)[0]
        excess = duals.window * gain - duals.freedom * max(freedom, Fraction(0)) - item.cost
        excess -= sum((duals.primes.get(p, Fraction(0)) for p in item.primes), Fraction(0))
        total -= max(Fraction(0), excess)
    return total


def round_up(bound: Fraction, costs: Sequence[Fraction]) -> Fraction:
    """The bound raised to the grid on which every sum of costs lies."""
    if not costs:
        return bound
    denominator = 1
    for cost in costs:
        denominator = lcm(denominator, cost.denominator)
    grid = 0
    for cost in costs:
        grid = gcd(grid, int(cost * denominator))
    step = Fraction(grid, denominator)
    return ceil(bound / step) * step
