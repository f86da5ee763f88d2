"""All residue encodings of a format: the cheapest class that works for each modulus, then partial covers."""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import gcd

from gemmulate import formats
from gemmulate.encodings.bounds import lower_bound
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.search import modular
from gemmulate.encodings.search.modular import Rejected


@dataclass(frozen=True, slots=True)
class Reach:
    """What is searched for one format.

    `plane_max` keeps sums of planes exact to 2^24/plane_max² (FP8 at 32: 16,384); `largest` is the largest modulus;
    `partial` the moduli of partial covers by one, three and four products; `every` keeps moduli that a larger one with
    the same primes and no more products makes useless in a selection.
    """

    plane_max: int | None
    largest: int
    partial_one: range = range(0)
    partial_pair: range = range(0)
    partial_school: range = range(0)
    cubes: tuple[int, ...] = ()
    every: bool = False


REACH = {
    "fp4_e2m1": Reach(None, 169, range(10, 32), range(60, 226), range(158, 226), (729, 1331, 2197), every=True),
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
        lambda: modular.cube(m, fmt, alphabet),
    )
    for attempt in classes:
        found = attempt()
        if isinstance(found, Encoding):
            return found, tuple(rejected)
        rejected.append(found)
    return None, tuple(rejected)


def one_partial(task: tuple[int, str, str]) -> Encoding | None:
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


def _primes(m: int) -> frozenset[int]:
    return frozenset(p for p in range(2, m + 1) if m % p == 0 and all(p % q for q in range(2, int(p**0.5) + 1)))


def _useful(found: dict[int, Encoding]) -> dict[int, Encoding]:
    """Drop a modulus when a larger one over some of its primes costs no more: no selection would take it."""
    primes = {m: _primes(m) for m in found}
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
    format_name: str, *, processes: int = 1, progress: Callable[[str], None] = lambda _: None
) -> list[Encoding]:
    """Every useful residue encoding of a format, full covers first; the same result for any number of processes."""
    fmt, reach = formats.get(format_name), REACH[format_name]
    moduli = [*range(2, reach.largest + 1), *reach.cubes]
    partial = [(m, format_name, "one") for m in reach.partial_one]
    partial += [(m, format_name, "pair") for m in reach.partial_pair]
    partial += [(m, format_name, "school") for m in reach.partial_school]
    found: dict[int, Encoding] = {}
    with ProcessPoolExecutor(processes) as pool:
        for m, (encoding, _) in zip(
            moduli, pool.map(one_modulus, [(m, format_name) for m in moduli], chunksize=8), strict=True
        ):
            progress(f"{format_name} mod {m}")
            if encoding:
                found[m] = encoding
        found = _with_splits(found, fmt, range(2, reach.largest + 1))
        if not reach.every:
            found = _useful(found)
        covers = [e for e in pool.map(one_partial, partial, chunksize=8) if e]
        # A partial cover that a full encoding matches at the same price has no use.
        covers = [e for e in covers if e.modulus not in found or found[e.modulus].products > e.products]
        return list(pool.map(bounded, [found[m] for m in sorted(found)], chunksize=4)) + covers
