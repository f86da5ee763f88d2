"""All residue encodings of a format: the cheapest class that works for each modulus, then partial covers."""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

from gemmulate import formats
from gemmulate.encodings.bounds import lower_bound
from gemmulate.encodings.bounds.lower import prime_factors
from gemmulate.encodings.bounds.selection import Item
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.search import modular, three_limbs
from gemmulate.encodings.search.journal import Journal, Progress, Task, silent
from gemmulate.encodings.search.modular import Rejected
from gemmulate.encodings.selection import undominated


@dataclass(frozen=True, slots=True)
class Reach:
    """What is searched for one format.

    `plane_max` keeps sums of planes exact to 2^24/plane_max² (FP8 at 32: 16,384); `largest` is the largest modulus;
    `partial` the moduli of partial covers by one, three and four products; `five` and `six`
    the ranges whose prime powers are searched for as many products; `every` keeps moduli that a larger one with
    the same primes and no more products makes useless in a selection.
    """

    plane_max: int | None
    largest: int
    partial_one: range = range(0)
    partial_pair: range = range(0)
    partial_school: range = range(0)
    cubes: tuple[int, ...] = ()
    five: range = range(0)
    six: range = range(0)
    every: bool = False


REACH = {
    "fp4_e2m1": Reach(
        None,
        169,
        range(10, 32),
        range(60, 226),
        range(158, 226),
        (729, 1331, 2197),
        range(163, 400),
        range(163, 560),
        every=True,
    ),
    "int4": Reach(None, 256, range(17, 33), range(80, 181)),
    "fp6_e2m3": Reach(32, 511, range(50, 80)),
    "fp6_e3m2": Reach(32, 400, range(24, 48)),
    "fp8_e4m3": Reach(32, 511, range(50, 80)),
    "fp8_e5m2": Reach(32, 400, range(24, 48)),
    "int8": Reach(None, 256, range(257, 300)),
    "uint8": Reach(None, 256, range(257, 300)),
}
# Alphabets beyond 16 letters: all p, q would take hours and only small ones leave many limb pairs.
_SMALL_FORMS = 2


def _in(m: int, wanted: range) -> bool:
    return m in wanted and len(prime_factors(m)) == 1


def _outside(search: str, wanted: range) -> Rejected:
    if not wanted:
        return Rejected(search, "not searched over this format")
    return Rejected(search, f"searched for prime powers in {wanted.start} … {wanted.stop - 1} only")


def cheapest_modulus(task: Task) -> Encoding | None:
    """`one_modulus` without its reasons."""
    return one_modulus((task[0], task[1]))[0]


def one_modulus(task: tuple[int, str]) -> tuple[Encoding | None, tuple[Rejected, ...]]:
    """The cheapest class that encodes all residues mod m over a format, with the reasons of those that do not."""
    m, name = task
    fmt, reach = formats.get(name), REACH[name]
    alphabet = fmt.alphabet if reach.plane_max is None else fmt.alphabet.limited(reach.plane_max)
    rejected: list[Rejected] = []
    small = None if len(alphabet) <= 16 else _SMALL_FORMS
    classes: tuple[Callable[[], Encoding | Rejected], ...] = (
        lambda: modular.one_product(m, fmt, alphabet),
        lambda: modular.square(m, fmt, alphabet),
        lambda: modular.pair(m, fmt, alphabet, small=small),
        lambda: modular.schoolbook(m, fmt, alphabet),
        lambda: three_limbs.five(m, fmt, alphabet) if _in(m, reach.five) else _outside("five", reach.five),
        lambda: modular.cube(m, fmt, alphabet),
        lambda: three_limbs.six(m, fmt, alphabet) if _in(m, reach.six) else _outside("six", reach.six),
    )
    for attempt in classes:
        found = attempt()
        if isinstance(found, Encoding):
            return found, tuple(rejected)
        rejected.append(found)
    return None, tuple(rejected)


def one_partial(task: Task) -> Encoding | None:
    """The largest partial cover of m by one, three or four products ("one", "pair", "school"), None if complete."""
    m, name, kind = task
    fmt, reach = formats.get(name), REACH[name]
    alphabet = fmt.alphabet if reach.plane_max is None else fmt.alphabet.limited(reach.plane_max)
    if kind == "one":
        found: Encoding | Rejected = modular.one_product(m, fmt, alphabet, partial=True)
    elif kind == "school":
        found = modular.schoolbook(m, fmt, alphabet, partial=True)
    else:
        found = modular.pair(m, fmt, alphabet, small=None if len(alphabet) <= 16 else _SMALL_FORMS, partial=True)
    return found if isinstance(found, Encoding) and found.left.partial else None


def _with_splits(found: dict[int, Encoding], fmt: formats.Format, moduli: Iterable[int]) -> dict[int, Encoding]:
    """Replace (or add) composites whose coprime factors cost fewer products together."""
    result = dict(found)
    for m in moduli:
        for d in range(2, m):
            if d * d > m:
                break
            if m % d == 0 and gcd(d, m // d) == 1 and d in result and m // d in result:
                cost = result[d].products + result[m // d].products
                if m not in result or cost < result[m].products:
                    result[m] = modular.split(m, fmt, (result[d], result[m // d]))
    return result


def _useful(found: dict[int, Encoding]) -> dict[int, Encoding]:
    """Drop a modulus when a larger one over some of its primes costs no more: no selection would take it."""
    primes = {m: set(prime_factors(m)) for m in found}
    return {
        m: e
        for m, e in found.items()
        if not any(n > m and found[n].products <= e.products and primes[n] <= primes[m] for n in found)
        and "split" not in e.provenance["search"]
    }


def bounded(encoding: Encoding) -> Encoding:
    """The encoding with its proven lower bound filled in."""
    bound = lower_bound(encoding.left, encoding.right, encoding.format, encoding.plane_max_of_class)
    return replace(encoding, bound=bound.products, bound_by=bound.by)


def search_residues(
    format_name: str,
    *,
    processes: int = 1,
    journal: Journal | None = None,
    progress: Progress = silent,
) -> list[Encoding]:
    """Every useful residue encoding of a format, full covers first; the same result for any number of processes."""
    fmt, reach = formats.get(format_name), REACH[format_name]
    journal = journal or Journal()
    wide = [m for m in range(reach.largest + 1, max(reach.five.stop, reach.six.stop)) if _in(m, reach.six)]
    moduli = [*range(2, reach.largest + 1), *wide, *reach.cubes]
    partial = [(m, format_name, "one") for m in reach.partial_one]
    partial += [(m, format_name, "pair") for m in reach.partial_pair]
    partial += [(m, format_name, "school") for m in reach.partial_school]
    with ProcessPoolExecutor(processes) as pool:
        full = journal.map(pool, cheapest_modulus, [(m, format_name) for m in moduli], progress)
        found = {m: e for m, e in zip(moduli, full, strict=True) if e}
        found = _with_splits(found, fmt, range(2, reach.largest + 1))
        if not reach.every:
            found = _useful(found)
        covers = [e for e in journal.map(pool, one_partial, partial, progress) if e]
        encodings = list(pool.map(bounded, [found[m] for m in sorted(found)], chunksize=4))
    return encodings + _useful_covers(covers, encodings)


def _useful_covers(covers: list[Encoding], full: list[Encoding]) -> list[Encoding]:
    """Partial covers that no other encoding replaces at the same price, gain and freedom."""
    everything = full + covers
    items = [
        Item(e.modulus or 0, e.left.size, Fraction(e.products), frozenset(prime_factors(e.modulus or 0)))
        for e in everything
    ]
    return [everything[n] for n in undominated(items) if everything[n].left.partial]
