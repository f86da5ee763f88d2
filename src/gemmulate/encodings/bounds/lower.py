"""Lower bounds: how few products any encoding of a domain over an alphabet can have.

All of them allow planes that are arbitrary functions of x and y, not only linear ones in limbs:

counting   x is a linear combination of the left planes (set y = 1), so R planes reach at most |S|^R values.
rank       Over a field the matrix (x·y) has rank 1, hence by Sylvester R ≥ r_A + r_B − 1, and r planes that
           determine x need |S|^r ≥ |X|. One plane suffices only if a multiple of X lies in S.
squarefree Modulo a squarefree m, two products split m = m1·m2 into coprime factors that one plane completes each:
           for every prime p | m the rank argument modulo p leaves x mod p to a single plane, and the planes' primes
           multiply up to m1 and m2 (Chinese remainder).
pairs      Modulo a prime m > |S|, three products force ranks (2, 2). With U = {u : c·u = 0} and ker x spanned by k,
           Σ λ_t u_t v_t = x(u)·y(v) makes V = (Λk)^⊥ and ker y = Λ⁻¹c; a zero in c or k makes x or y a function of
           one plane. So c and k have no zero, the encoding exists iff (U, x) alone is complete, and trying every
           plane p·a + q·b with every x = a + β·b is exhaustive (`search.modular.pair`).
enumeration  Three planes reach a range only as far as `bounds.three_products` finds.
             INT8 × INT8 on FP4 has no five products: `bounds.five_products`, with a certificate.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from gemmulate.encodings.bounds.three_products import reachable
from gemmulate.encodings.domain import Domain
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.search.modular import Rejected, pair
from gemmulate.formats import Alphabet, Format


@dataclass(frozen=True, slots=True)
class Bound:
    """At least `products` are needed, by the argument named in `by`."""

    products: int
    by: str


def prime_factors(m: int) -> dict[int, int]:
    factors: dict[int, int] = {}
    p = 2
    while p * p <= m:
        while m % p == 0:
            factors[p] = factors.get(p, 0) + 1
            m //= p
        p += 1
    if m > 1:
        factors[m] = factors.get(m, 0) + 1
    return factors


def complete(alphabet: Alphabet, m: int) -> bool:
    """Whether one plane reaches every residue mod m."""
    return bool(np.unique(alphabet.array() % m).size == m)


def _one_plane_range(domain: Domain, alphabet: Alphabet) -> bool:
    """Whether some nonzero multiple t·X of the range lies in the alphabet (x = P/t; t may be negative).

    A range of two or more integers has two neighbours, so t is a difference of letters; t integral loses nothing.
    """
    if domain.size == 1:
        return True
    letters = set(alphabet)
    widest = alphabet.largest - alphabet.smallest
    return any(
        all(t * x in letters for x in range(domain.low, domain.high + 1)) for t in range(-widest, widest + 1) if t
    )


def planes_needed(domain: Domain, alphabet: Alphabet) -> int:
    """The least number of planes of which x can be a linear function: r with |S|^r ≥ |X|, and ≥ 2 unless t·X ⊂ S."""
    r = 1
    while len(alphabet) ** r < domain.size:
        r += 1
    return max(r, 1 if _one_plane_range(domain, alphabet) else 2)


@lru_cache(maxsize=4096)
def lower_bound(left: Domain, right: Domain, fmt: Format, plane_max: int | None = None) -> Bound:
    """The best lower bound on products that these arguments give, with planes in the alphabet up to `plane_max`.

    Partial covers have the trivial bound 1. Source: Sylvester's rank inequality; arXiv 2609.24519 uses it likewise.
    """
    alphabet = fmt.alphabet if plane_max is None else fmt.alphabet.limited(plane_max)
    if left.modulus is None:
        r_left, r_right = planes_needed(left, alphabet), planes_needed(right, alphabet)
        rank = Bound(r_left + r_right - 1, f"rank: {r_left} + {r_right} − 1")
        if rank.products < 6 and fmt.name == "fp4_e2m1" and all(d.low <= -128 and d.high >= 127 for d in (left, right)):
            return Bound(6, "enumeration: no five products of FP4 give INT8 × INT8 (bounds.five_products)")
        if (r_left, r_right) == (2, 2) and len(alphabet) <= 16 and alphabet.smallest == -alphabet.largest:
            for domain in (left, right):
                reach = max(-domain.low, domain.high)
                if domain.low <= 0 <= domain.high and 2 * reach >= len(alphabet) and not reachable(alphabet, reach):
                    return Bound(4, f"enumeration: no three planes reach ±{reach} (bounds.three_products)")
        return rank
    m = left.modulus
    if left.partial:
        return Bound(1, "trivial")
    if complete(alphabet, m):
        return Bound(1, "trivial")
    factors = prime_factors(m)
    if factors == {m: 1}:
        r, reached = 2, np.unique(alphabet.array() % m).size
        while reached**r < m:
            r += 1
        if r == 2 and len(alphabet) <= 16 and m <= _LARGEST_EXHAUSTIVE and isinstance(pair(m, fmt, alphabet), Rejected):
            return Bound(4, "pairs: no third plane p·a + q·b leaves a complete residue system")
        return Bound(2 * r - 1, f"rank: {r} + {r} − 1 modulo a prime")
    if all(e == 1 for e in factors.values()) and not _splits(m, alphabet):
        return Bound(3, "squarefree: no two coprime factors that one plane completes each")
    return Bound(2, "counting: one plane is not complete")


def check_bound(encoding: Encoding) -> str:
    """Why the stated lower bound does not follow from these arguments, or "" if it does.

    The bound must hold for all planes up to the larger of the entry's cut and its class's (32 for FP6 and FP8).
    """
    e = encoding
    cut = e.plane_max_of_class
    if cut is not None and (e.plane_max is None or e.plane_max > cut):
        cut = e.plane_max
    derived = lower_bound(e.left, e.right, e.format, cut)
    if e.bound <= derived.products:
        return ""
    return f"the stated lower bound {e.bound} ({e.bound_by}) is not derived: only {derived.products} ({derived.by}) is"


# Enumerating all planes costs about m³/4·|S|² steps; beyond 256 the bound 3 is kept.
_LARGEST_EXHAUSTIVE = 256


def _splits(m: int, alphabet: Alphabet) -> bool:
    return any(
        m % d == 0 and gcd(d, m // d) == 1 and complete(alphabet, d) and complete(alphabet, m // d)
        for d in range(1, m + 1)
    )
