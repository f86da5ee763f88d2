"""Checks of arguments: each refusal names the argument, its value and the rule."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Final

from gemmulate.errors import GemmulateError

MAX_SIZE: Final = 1 << 50  # a dimension beyond this is a typing error; products of three stay finite in float64
MAX_R: Final = 1024
MAX_NUMBER: Final = 1e6
MIN_NUMBER: Final = 1e-6  # of what is divided by


class ModelError(GemmulateError, ValueError):
    """A question that the time model cannot answer; the message names the argument, the value and the rule."""


def check_integer(name: str, value: int, high: int = MAX_SIZE) -> int:
    """An integer in 1 … high."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or not 1 <= number <= high:
        raise ModelError(f"{name} = {value!r} is not an integer in 1 … {high}")
    return number


def check_number(name: str, value: float, low: float = 0.0, *, exclusive: bool = False) -> float:
    """A finite number from `low` (itself excluded if `exclusive`) to 1e6."""
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not low <= number <= MAX_NUMBER or (exclusive and number == low):
        raise ModelError(
            f"{name} = {value!r} is not a number in {low:g} … {MAX_NUMBER:g}" + exclusive * f", {low:g} excluded"
        )
    return number


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """One of the choices."""
    known = tuple(choices)
    if value not in known:
        raise ModelError(f"{name} {value!r} is not one of {', '.join(known)}")
    return value
