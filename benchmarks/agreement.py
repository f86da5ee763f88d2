"""When two results of a benchmark agree: equal where both sides are exact, else within the sum of both error bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

U = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


def equal_modulo(modulus: int) -> Callable[[Any, Any, Any, Any], bool]:
    """Both results are the same integers modulo `modulus`."""

    def agree(ours: Any, theirs: Any, a: Any, b: Any) -> bool:
        return bool(np.all((ours.astype(object) - np.asarray(theirs).astype(object)) % modulus == 0))

    return agree


def within_bounds(ours: Any, theirs: Any, a: Any, b: Any) -> bool:
    """Conventional sums of depth k err by k·u·|A||B| to first order (Higham 2002, section 3.1), twice that for complex
    numbers in either part, whatever the order; ours by no more than 2u·k·max|row|·max|column| in every grade."""
    k = a.shape[1] * (4 if np.iscomplexobj(a) else 1)
    x, y = np.abs(a).astype(np.float64), np.abs(b).astype(np.float64)
    u = U[np.finfo(a.dtype).dtype]
    bound = k * u * 1.01 * (x @ y) + 2 * k * u * np.outer(x.max(axis=1), y.max(axis=0))
    difference = np.asarray(ours) - np.asarray(theirs)
    return bool(np.all(np.abs(difference) <= bound))


def pairs_within(ours: Any, theirs: tuple[Any, Any], a: Any, b: Any) -> bool:
    """Ours errs by 2^-104·|A||B|; the least precise peer is a double-double sum, whose every operation errs by
    2^-102 at most (2^-103 for additions and 2^-102 for products: Joldes, Muller, Popescu 2017), k + 1 of them."""
    bound = (2.0**-104 + (a.shape[1] + 1) * 2.0**-102) * (np.abs(a.hi) @ np.abs(b.hi)) * 1.01
    difference = (ours.hi - theirs[0]) + (ours.lo - theirs[1])
    return bool(np.all(np.abs(difference) <= bound))
