"""Figures as other tools print them: thousands separators, decimal commas, and units with decimal prefixes."""

import math
import re
from collections.abc import Iterable
from typing import Final

_NUMBER = re.compile(r"[-+]?\d[\d.,\u00a0\u202f'\u2019 ]*(?:[eE][-+]?\d+)?")
# How tools say that there is no figure; the profiler marks some of them with "(!)".
_NOTHING = re.compile(r"(?:\(!\)\s*)?(?:n/a|[-+]?nan|[-+]?inf(?:inity)?|-*)", re.IGNORECASE)
_PREFIXES: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIMES: Final = {
    name: factor
    for names, factor in (
        (("ns", "nsecond"), 1e-9),
        (("us", "usecond", "µs", "μs"), 1e-6),
        (("ms", "msecond"), 1e-3),
        (("s", "second"), 1.0),
    )
    for name in names
}
_SCALABLE: Final = ("byte", "byte/s", "byte/block", "hz", "inst", "inst/s", "sector", "cycle")


class MixedStyles(ValueError):
    """Some figures write the decimal as a point and others as a comma."""


def decimal_mark(values: Iterable[str]) -> str:
    """ "." or ",", whichever the figures of a file prove to be its decimal mark; "." when nothing tells.

    Proof is a mark after another kind of mark, a repeated other mark, or digits behind it that are no group of three.
    Raises MixedStyles when figures prove both.

    >>> decimal_mark(["1,926,642", "0.52"]), decimal_mark(["1.926.642", "0,52"]), decimal_mark(["27,200"])
    ('.', ',', '.')
    """
    proof: dict[str, str] = {}
    for value in values:
        mark = _proven_mark(value.strip())
        if mark:
            proof.setdefault(mark, value.strip())
            if len(proof) == 2:
                raise MixedStyles(f"{proof['.']!r} and {proof[',']!r} use different decimal marks")
    return next(iter(proof), ".")


def _proven_mark(value: str) -> str:
    if not _NUMBER.fullmatch(value):
        return ""
    body = re.split("[eE]", value.lstrip("+-"))[0]
    point, comma = body.count("."), body.count(",")
    if point and comma:
        return "." if body.rfind(".") > body.rfind(",") else ","
    if not point and not comma:
        return ""
    mark, other = (".", ",") if point else (",", ".")
    if max(point, comma) > 1:
        return other
    whole, part = body.split(mark)
    if len(part) != 3 or len(whole) > 3 or whole.startswith("0") or not whole:
        return mark
    return ""


def parse_number(text: str, mark: str) -> float | None:
    """The value of a figure with the given decimal mark; None when it is none or too large for a float.

    >>> parse_number("13,987,268,476.89", "."), parse_number("1.926.642,5", ","), parse_number("n/a", ".")
    (13987268476.89, 1926642.5, None)
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    for group in (",", ".", "\u00a0", "\u202f", "'", "\u2019", " "):
        if group != mark:
            text = text.replace(group, "")
    try:
        value = float(text.replace(mark, "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def says_nothing(text: str) -> bool:
    """Whether a tool says that there is no figure, as against one that is not understood.

    >>> says_nothing("(!) n/a"), says_nothing(""), says_nothing("nan"), says_nothing("12;5")
    (True, True, True, False)
    """
    return _NOTHING.fullmatch(text.strip()) is not None


def base_unit(unit: str) -> tuple[str, float]:
    """The base unit of a profiler unit and the factor to it: prefixes are decimal, times become seconds.

    >>> base_unit("Kbyte/block"), base_unit("ms"), base_unit("Ghz"), base_unit("%"), base_unit("Gbyte/second")
    (('byte/block', 1000.0), ('s', 0.001), ('hz', 1000000000.0), ('%', 1.0), ('byte/s', 1000000000.0))
    """
    unit = re.sub(r"/second\b", "/s", unit.strip())
    if unit in _TIMES:
        return "s", _TIMES[unit]
    for plain in _SCALABLE:
        if unit == plain:
            return plain, 1.0
        if unit[1:] == plain and unit[0] in _PREFIXES:
            return plain, _PREFIXES[unit[0]]
    return unit, 1.0
