"""Small SVG figures, written by hand: a linear axis and the marks drawn on it. No script, no font, no network."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 760
LEFT: Final = 110
RIGHT: Final = 20
# Two hues that people with colour-blindness tell apart (Okabe and Ito 2008).
BLUE: Final = "#0072b2"
ORANGE: Final = "#d55e00"
GREY: Final = "#777"


class Axis:
    """Maps values in [low, high] to pixels between `start` and `end`; a range without width is widened."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        if not high > low:
            middle = abs(low) or 1.0
            low, high = low - 0.05 * middle, high + 0.05 * middle
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 6) -> list[float]:
        """Round values, about `count` of them."""
        raw = (self.high - self.low) / count
        step = 10 ** math.floor(math.log10(raw))
        step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= raw)
        first = math.ceil(self.low / step)
        return [round(index * step, 12) for index in range(first, math.floor(self.high / step) + 1)]


def number(value: float) -> str:
    """A coordinate with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = "currentColor") -> str:
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, stroke: str = GREY, dash: str = "", width: float = 1) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" stroke="{stroke}" '
        f'stroke-width="{number(width)}"{dashes}/>'
    )


def rect(x: float, y: float, width: float, height: float, *, fill: str, opacity: float = 1.0) -> str:
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(width, 0))}" height="{number(height)}" '
        f'fill="{fill}" fill-opacity="{number(opacity)}"/>'
    )


def dot(x: float, y: float, *, fill: str, radius: float = 2.5) -> str:
    return f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" fill="{fill}" fill-opacity="0.75"/>'


def bottom_axis(axis: Axis, y: float, label: str) -> list[str]:
    """Ticks and a label under a figure."""
    parts = [line(axis.start, y, axis.end, y)]
    for value in axis.ticks():
        x = axis(value)
        parts += [line(x, y, x, y + 4), text(x, y + 16, f"{value:g}", anchor="middle")]
    return [*parts, text((axis.start + axis.end) / 2, y + 34, label, anchor="middle")]


def left_axis(axis: Axis, x: float, label: str) -> list[str]:
    """Ticks left of a figure, its label above."""
    parts = [line(x, axis.start, x, axis.end)]
    for value in axis.ticks(5):
        y = axis(value)
        parts += [line(x - 4, y, x, y), text(x - 7, y + 4, f"{value:g}", anchor="end")]
    return [*parts, text(4, min(axis.start, axis.end) - 8, label)]


def figure(height: float, title: str, parts: Sequence[str]) -> str:
    """An SVG element with a title for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {number(height)}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )
