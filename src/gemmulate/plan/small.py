"""Small correctly rounded products: the long accumulator for every element, where the record says it is faster."""

from __future__ import annotations

import numpy as np

from gemmulate.engines.base import Array, Engine
from gemmulate.schemes.special import fill_special

# Beyond it residues win on every machine known: 4 to 5 ns a term against 2 ps for each of about 17 INT8 products.
MOST_TERMS = 1 << 20


def multiply_small_exact(engine: Engine, a: Array, bt: Array, out: Array) -> bool:
    """Write the correctly rounded product of a (m, k) and bt (n, k) to out, if the long accumulator is the faster way.

    Returns whether it did. Either way the result is the one correctly rounded value, so no bit depends on the record.
    """
    (m, k), n = a.shape, bt.shape[0]
    if m * k * n > MOST_TERMS:
        return False
    from gemmulate.plan import host  # the record and its model load with the first product that needs them

    if not host.long_is_faster(engine.name, m, k, n):
        return False
    multiply_long(engine, a, bt, out)
    return True


def multiply_long(engine: Engine, a: Array, bt: Array, out: Array) -> None:
    """Every element by the long accumulator, NaN and infinities by the rules of IEEE 754."""
    m, n = a.shape[0], bt.shape[0]
    at = np.indices((m, n)).reshape(2, -1).T
    engine.exact_dots(a, bt, np.ascontiguousarray(at, dtype=np.int64), out)
    special = [np.asarray(~np.isfinite(x).all(axis=1)) for x in (a, bt)]
    if special[0].any() or special[1].any():
        fill_special(a, bt, special[0], special[1], out)
