"""Matrices from practice (SuiteSparse Matrix Collection): rows spanning 2^113, walk counts beyond int64, wide ranges.

The oracle multiplies the sparse entries as Python integers and, for sampled elements, as Fractions.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import flint
import numpy as np
import pytest
import scipy.io

import gemmulate as gm
from gemmulate.data import path_of
from matmul.checks import assert_bits, assert_componentwise, sample
from matmul.conftest import require
from matmul.oracles import Array, binary, correctly_rounded, int_matmul, round_scaled, split_float

Matmul = Callable[..., Any]


@cache
def matrix(name: str) -> Array:
    dense = np.ascontiguousarray(scipy.io.mmread(path_of(name)).toarray())
    dense.flags.writeable = False
    return dense


def sparse_product_rounded(x: Array, rows: Array) -> Array:
    """x[rows] @ x correctly rounded, from its non-zero entries as integers times one power of two."""
    significand, exponent = split_float(x)
    lowest = int(exponent[significand != 0].min())
    entries = [
        [(int(j), int(significand[i, j]) << int(exponent[i, j] - lowest)) for j in np.flatnonzero(x[i])]
        for i in range(len(x))
    ]
    c, fmt = np.zeros((len(rows), x.shape[1])), binary("f8")
    for r, i in enumerate(rows):
        total: dict[int, int] = {}
        for p, value in entries[i]:
            for j, other in entries[p]:
                total[j] = total.get(j, 0) + value * other
        for j, n in total.items():
            c[r, j] = round_scaled(n, 2 * lowest, fmt)
    return c


def test_bcsstk13_rows_span_what_the_sources_say() -> None:
    a = np.abs(matrix("bcsstk13"))
    exponents = np.where(a > 0, np.frexp(a)[1].astype(float), np.nan)
    spans = np.nanmax(exponents, axis=1) - np.nanmin(exponents, axis=1)
    assert a.shape == (2003, 2003)
    assert spans.max() >= 112


def test_bcsstk13_squared_is_correctly_rounded() -> None:
    """All 2003² elements."""
    a, engine = matrix("bcsstk13"), require("native")
    c = gm.matmul(a, a, accuracy="exact", engine=engine)
    assert_bits(c, sparse_product_rounded(a, np.arange(len(a))))


def test_bcsstk13_rows_are_correctly_rounded_against_fractions(mm: Matmul, engine: str) -> None:
    a = matrix("bcsstk13")
    exponents = np.where(a != 0, np.frexp(a)[1].astype(float), np.nan)
    widest = np.argsort(np.nanmin(exponents, axis=1) - np.nanmax(exponents, axis=1))[:3]
    rows = np.unique(np.concatenate([widest, sample(len(a), np.random.default_rng(91), 5)]))
    rows = rows if engine != "reference" else widest[:1]
    c = mm(a[rows], a, accuracy="exact")
    assert_bits(c, sparse_product_rounded(a, rows))
    for r in range(len(rows)):
        for j in np.flatnonzero(c[r])[::7]:
            both = np.flatnonzero((a[rows[r]] != 0) & (a[:, j] != 0))
            total = sum(Fraction(float(a[rows[r], p])) * Fraction(float(a[p, j])) for p in both)
            assert c[r, j] == total.numerator / total.denominator  # CPython divides integers correctly rounded
    inner = np.flatnonzero(a[widest[0]])
    narrow = a[:, ::20]
    assert_componentwise(mm(a[widest[:1]], narrow), a[np.ix_(widest[:1], inner)], narrow[inner], depth=len(a))


@pytest.mark.parametrize("name", ["bcsstk13", "cryg2500", "zenios"])
def test_default_grade_on_real_ranges(name: str) -> None:
    a, engine = matrix(name), require("native")
    a = a.astype(np.float64)
    c = gm.matmul(a, a, engine=engine)
    rng = np.random.default_rng(92)
    used = np.flatnonzero(np.abs(a).sum(axis=1))
    rows, columns = (
        rng.choice(used, 8, replace=False),
        rng.choice(np.flatnonzero(np.abs(a).sum(axis=0)), 60, replace=False),
    )
    inner = np.flatnonzero(np.abs(a[rows]).sum(axis=0))  # the other columns of these rows are zero
    part = np.ascontiguousarray(c[np.ix_(rows, columns)])
    assert_componentwise(part, a[np.ix_(rows, inner)], a[np.ix_(inner, columns)], depth=len(a))
    magnitude = np.abs(a) @ np.abs(a)
    assert not c[magnitude == 0].any(), "zero where no product is non-zero"


@pytest.mark.parametrize("name", ["cryg2500", "zenios"])
def test_squares_are_correctly_rounded(name: str) -> None:
    a, engine = matrix(name).astype(np.float64), require("native")
    assert_bits(gm.matmul(a, a, accuracy="exact", engine=engine), sparse_product_rounded(a, np.arange(len(a))))


@pytest.mark.parametrize("name", ["cryg2500", "zenios"])
def test_rows_are_correctly_rounded(mm: Matmul, engine: str, name: str) -> None:
    a = matrix(name).astype(np.float64)
    used = np.flatnonzero(np.abs(a).sum(axis=1))
    rows = np.sort(np.random.default_rng(93).choice(used, 1 if engine == "reference" else 6, replace=False))
    columns = np.arange(0, len(a), 8 if engine == "reference" else 1)
    got = mm(a[rows], a[:, columns], accuracy="exact")
    assert_bits(got, sparse_product_rounded(a, rows)[:, columns])


def test_float32_bcsstk13(mm: Matmul) -> None:
    a = matrix("bcsstk13").astype(np.float32)
    rows = np.array([0, 700, 2002])
    assert_bits(mm(a[rows], a[:, ::9], accuracy="exact"), correctly_rounded(a[rows], a[:, ::9]))


def test_karate_walk_counts(mm: Matmul) -> None:
    """A^n counts walks of length n between members of the club: A^23 still fits int64, A^24 does not."""
    pattern = matrix("karate")
    assert pattern.shape == (34, 34)
    a = (pattern != 0).astype(np.int64)
    assert (a == a.T).all()
    assert a.sum() == 156, "78 edges, both ways"
    table = flint.fmpz_mat(34, 34, [int(v) for v in a.ravel()])

    def walks(n: int) -> Array:
        return np.array([int(v) for v in (table**n).entries()], dtype=object).reshape(34, 34)

    power = a
    for n in range(2, 24):
        power = mm(power, a)
        assert_bits(power, walks(n).astype(np.int64))
    for left, right in ((power, a), (walks(20).astype(np.int64), walks(4).astype(np.int64))):
        with pytest.raises(gm.ResultOverflow) as caught:
            mm(left, right)
        assert caught.value.bits in (64, 65), "the largest count has 64 bits"
        wrapped = [(v + 2**63) % 2**64 - 2**63 for v in walks(24).flat]
        assert_bits(mm(left, right, overflow="wrap"), np.array(wrapped).reshape(34, 34))
        assert_bits(mm(left, right, overflow="object"), walks(24))
    assert_bits(mm(power.astype(np.uint64), a.astype(np.uint64)), walks(24).astype(np.uint64))
    assert_bits(mm(walks(24), walks(40)), walks(64))
    assert_bits(mm(a.astype(bool), a.astype(bool)), int_matmul(a, a).astype(np.int64))
    assert_bits(mm(a.astype(bool), a.astype(bool), overflow="wrap"), walks(2) > 0)
