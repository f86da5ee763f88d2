"""Option types that the commands share."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

from cyclopts import Parameter, Token


def _whole(kind: Any, tokens: Sequence[Token]) -> int:
    """A whole number, 1e7 included; the parser alone would cut 1.5 to 1."""
    text = tokens[0].value
    try:
        number = Decimal(text)
        if number == number.to_integral_value() and abs(number) < 10**40:
            return int(number)
    except ArithmeticError:
        pass
    raise ValueError(f"{text!r} is not a whole number")


Whole = Annotated[int, Parameter(converter=_whole)]
Count = Annotated[int | None, Parameter(converter=_whole)]
