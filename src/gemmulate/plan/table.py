"""The table of a priced plan: one line a candidate, its terms as bars to one scale, and why it is not chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gemmulate.plan.candidates import REASONS, Candidate, PricedPlan

_WIDTH: Final = 12  # characters of the longest bar
_SPAN: Final = 4.0  # the longest bar is at most this many times the chosen candidate's time
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_TERMS: Final = ("mma", "mem", "dec", "rec")


def seconds(value: float) -> str:
    """A time with a unit that suits it.

    >>> seconds(0.0123)
    '12.3 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def bar(value: float, longest: float, width: int = _WIDTH) -> str:
    """A bar of eighths of a character; a value that is not zero shows at least one eighth.

    >>> bar(1.5, 3.0, 4)
    '██'
    """
    eighths = round(8 * width * value / longest) if longest > 0 else 0
    if value > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def explain(plan: PricedPlan) -> str:
    """The whole table as text."""
    head = [f"{plan.problem}, {plan.accuracy}, on {plan.device}"]
    if plan.window_bits is not None and plan.bits is not None:
        head.append(f"bits kept {plan.bits[0]} and {plan.bits[1]}, window {plan.window_bits} bits; {plan.composition}")
    drawn = [max(c.terms.values(), default=0.0) for c in plan.candidates if c.status != "rejected"]
    # A candidate thousands of times slower would leave no bar of the others: longer bars are cut.
    longest = min(max(drawn, default=0.0), _SPAN * (plan.time_s or 0.0))
    terms = [*_TERMS, *(["call"] if any("call" in c.terms for c in plan.candidates) else [])]
    columns = ["candidate", "products", "time", *terms, "verdict"]
    rows = [columns, *(_row(c, longest, terms) for c in plan.candidates)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns) - 1)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    lines.insert(1, "  ".join(["─" * width for width in widths] + ["─" * len(columns[-1])]))
    end = "no candidate is left"
    if plan.chosen is not None:
        end = f"chosen: {plan.chosen.name}"
        if plan.chosen.scheme != "native" and plan.speedup is not None:
            end += f", predicted {plan.speedup:.3g} times as fast as native FP64"
    return "\n".join([*head, "", *(line.rstrip() for line in lines), "", end])


def _row(c: Candidate, longest: float, shown: Sequence[str]) -> list[str]:
    products = f"{c.products:g}" if c.products else "–"
    time = seconds(c.time_s) if c.time_s is not None else "–"
    if c.range_s is not None and c.range_s[1] > 1.005 * c.range_s[0]:
        time += f" ({seconds(c.range_s[0])} – {seconds(c.range_s[1])})"
    return [c.name, products, time, *_bars(c.terms, longest, shown), _verdict(c)]


def _bars(terms: Mapping[str, float], longest: float, shown: Sequence[str]) -> list[str]:
    values = [terms.get(name, 0.0) for name in shown]
    return [bar(min(value, longest), longest) + ("…" if value > 1.001 * longest else "") for value in values]


def _verdict(c: Candidate) -> str:
    if c.status == "rejected":
        assert c.reason is not None
        return f"rejected ({c.reason}): {c.detail or REASONS[c.reason]}"
    bound = f", bound by {c.bound}" if c.bound else ""
    return f"{c.status}{bound}" + (f"; {c.detail}" if c.detail else "")
