"""NaN and infinity: elements whose row or column holds one are computed by the rules of IEEE 754."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gemmulate.blas import finite_matmul
from gemmulate.engines.base import Array, DeviceArray, Engine


def fill_special(engine: Engine, a: Array, bt: Array, special_a: Array, special_b: Array, out: Array) -> None:
    """Overwrite the elements of out (m, n) that a NaN or an infinity decides.

    A dot product is NaN if a term is (NaN · anything, ∞ · 0) or if terms +∞ and −∞ meet; else ±∞ if a term is;
    else the finite value that is already there. `special_*` flag rows of a (m, k) and of bt (n, k). Arrays of a device
    are decided there, by its engine.
    """
    rows, columns = np.flatnonzero(special_a), np.flatnonzero(special_b)
    if isinstance(out, DeviceArray):
        if rows.size or columns.size:
            engine.settle(a, bt, out)
        return
    if rows.size:
        out[rows] = decide(special_terms(a[rows], bt), out[rows])
    if columns.size:
        out[:, columns] = decide(special_terms(a, bt[columns]), out[:, columns])


class SpecialTerms(NamedTuple):
    """Of each element: whether a term is NaN, +∞, −∞. Of parts of a sum over k: whether any part says so."""

    nan: Array
    plus: Array
    minus: Array


def meet(x: Array, y: Array) -> Array:
    """Whether masks x (m, k) and y (n, k) both hold at some k: (m, n). Counts of ones are exact in float64."""
    return np.asarray(finite_matmul(x.astype(np.float64), y.astype(np.float64).T) > 0)


def special_terms(a: Array, bt: Array) -> SpecialTerms:
    """The terms of the product of a (m, k) and bt (n, k) that are not finite."""
    every_a, every_b = np.ones_like(a, dtype=bool), np.ones_like(bt, dtype=bool)
    inf_a, inf_b = np.isinf(a), np.isinf(bt)
    nan = meet(np.isnan(a), every_b) | meet(every_a, np.isnan(bt)) | meet(inf_a, bt == 0) | meet(a == 0, inf_b)
    plus = minus = np.zeros(nan.shape, dtype=bool)
    for inf_x, inf_y in ((inf_a, np.ones_like(inf_b)), (np.ones_like(inf_a), inf_b)):
        plus = plus | meet(inf_x & (a > 0), inf_y & (bt > 0)) | meet(inf_x & (a < 0), inf_y & (bt < 0))
        minus = minus | meet(inf_x & (a > 0), inf_y & (bt < 0)) | meet(inf_x & (a < 0), inf_y & (bt > 0))
    return SpecialTerms(nan, plus, minus)


def decide(terms: SpecialTerms, finite: Array) -> Array:
    """The finite values, overwritten where terms are not finite."""
    result = np.where(terms.plus, np.inf, np.where(terms.minus, -np.inf, finite.astype(np.float64)))
    return np.where(terms.nan | (terms.plus & terms.minus), np.nan, result).astype(finite.dtype)
