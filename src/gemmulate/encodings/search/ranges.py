"""All integer-range encodings of a format: for each pair of ranges the class with the fewest products."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from gemmulate import formats
from gemmulate.encodings.domain import Domain
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.search import integer
from gemmulate.encodings.search.journal import Journal, Progress, Task, silent
from gemmulate.encodings.search.modular import Rejected
from gemmulate.encodings.search.residues import bounded
from gemmulate.encodings.verify import verify

_FP4_PAIRS = (
    "pm8.pm16 pm8.pm32 pm8.pm64 pm8.pm128 pm16.pm16 pm16.pm32 pm16.pm64 pm16.pm128 pm32.pm32 pm32.pm64 pm64.pm64 "
    "pm64.pm128 int2.int2 int2.int8 int3.int3 int4.int4 int4.int8 int5.int5 int5.int8 int6.int6 int6.int8 int7.int7 "
    "int8.int8 uint4.int8 uint4.uint4 uint8.int8 uint8.uint8 int9.int9 sig8.sig8 int10.int10 int11.int11 sig11.sig11 "
    "int12.int12 int13.int13 int14.int14"
)
_WIDE_PAIRS = (
    "int4.int4 int4.int8 int6.int6 int8.int8 uint8.int8 uint8.uint8 sig8.sig8 int10.int10 sig11.sig11 int12.int12"
)
PAIRS = {
    "fp4_e2m1": _FP4_PAIRS,
    "int4": _WIDE_PAIRS,
    "fp6_e2m3": _WIDE_PAIRS,
    "fp6_e3m2": _WIDE_PAIRS,
    "fp8_e4m3": _WIDE_PAIRS,
    "fp8_e5m2": _WIDE_PAIRS,
    "int8": "int8.int8 int4.int8 uint8.int8 uint8.uint8 sig8.sig8 int10.int10 sig11.sig11 int12.int12 int14.int14",
}


def attempts(left: Domain, right: Domain, fmt: formats.Format) -> list[tuple[int, Callable[[], Encoding | Rejected]]]:
    """The classes worth trying, each with the products it gives, fewest first."""
    narrow, wide = sorted((left, right), key=lambda d: d.size)
    classes: list[tuple[int, Callable[[], Encoding | Rejected]]] = [
        (1, lambda: integer.one(left, right, fmt)),
        (3, lambda: integer.tight2(left, right, fmt)),
        (4, lambda: integer.tight3(narrow, wide, fmt)),
        (6, lambda: integer.pairs(left, right, fmt, 3, largest_weight=60)),
        (12, lambda: integer.nested(left, right, fmt)),
    ]
    for rows in range(1, 5):
        for columns in range(1, 5):
            classes.append((rows * columns, lambda r=rows, c=columns: integer.schoolbook(left, right, fmt, r, c)))  # type: ignore[misc]
    return sorted(classes, key=lambda item: item[0])


def one_pair(task: tuple[str, str]) -> tuple[Encoding | None, tuple[Rejected, ...]]:
    """The first class that encodes a pair "int4.int8" over a format, verified, and why cheaper classes do not."""
    pair, name = task
    left, right = map(Domain.parse, pair.split("."))
    rejected: list[Rejected] = []
    for _, attempt in attempts(left, right, formats.get(name)):
        found = attempt()
        if isinstance(found, Rejected):
            rejected.append(found)
            continue
        if found.key != f"{pair}.{name}":
            found = found.transposed()
        certificate = verify(found)
        if certificate:
            return bounded(replace(found, plane_max=found.plane_max)), tuple(rejected)
        rejected.append(Rejected(found.provenance["search"], certificate.failure))
    return None, tuple(rejected)


def cheapest_pair(task: Task) -> Encoding | None:
    """`one_pair` without its reasons."""
    return one_pair((task[0], task[1]))[0]


def search_ranges(
    format_name: str,
    *,
    processes: int = 1,
    journal: Journal | None = None,
    progress: Progress = silent,
) -> list[Encoding]:
    """An encoding of every listed pair of ranges over a format; the same result for any number of processes."""
    tasks = [(pair, format_name) for pair in PAIRS.get(format_name, "").split()]
    with ProcessPoolExecutor(processes) as pool:
        return [e for e in (journal or Journal()).map(pool, cheapest_pair, tasks, progress) if e]
