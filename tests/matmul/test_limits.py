"""Contract: nothing breaks where one scheme ends and the next begins, nor where operands are unusual."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import gemmulate as gm


@pytest.mark.parametrize("bits", [*range(336, 354), 360, 365, 400, 700, 1000])
def test_results_around_the_widest_residue_system(engine: str, bits: int) -> None:
    a = np.array([[2**bits, -(2**bits) + 1], [1, 2 ** (bits - 1)]], dtype=object)
    b = np.array([[3, -1], [2, 7]], dtype=object)
    assert (gm.matmul(a, b, engine=engine) == a @ b).all()
    assert gm.plan(a, b, engine=engine).exactness == "exact integers"


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (
            [0.5033808260714742, -0.5028312107061466, 1.2158136124180826e-30],
            [0.500973445639222, 0.49779184097267337, 0.5],
        ),
        (
            [0.5156804095100208, 0.5165254530176171, 1.0539737869591038e-30],
            [0.5053887484169085, 0.4900322403076454, 0.5],
        ),
    ],
)
def test_fast_means_the_operands_own_maxima(engine: str, row: list[float], column: list[float]) -> None:
    """An inner scaling changes the maxima that the normwise bound is made of."""
    got = gm.matmul([row], np.array(column)[:, None], accuracy="fast", engine=engine)[0, 0]
    exact = sum((Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)), Fraction(0))
    largest = Fraction(max(map(abs, row))) * Fraction(max(map(abs, column)))
    assert abs(Fraction(float(got)) - exact) <= 3 * largest / 2**52


def test_empty_lists_are_floats_as_in_numpy() -> None:
    assert gm.matmul([], np.zeros(0)) == 0.0
    assert gm.matmul([[]], np.zeros((0, 3))).dtype == np.float64


def test_lists_of_floats_and_wide_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="a mixes floats with integers"):
        gm.matmul([[2**53 + 1, 0.5]], [[1.0], [1.0]])


def test_residues_go_to_any_out_that_holds_them(engine: str) -> None:
    ones, out = np.ones((3, 3), dtype=int), np.zeros((3, 3), dtype=np.int8)
    gm.matmul(ones, ones, modulus=2**62, out=out, engine=engine)
    assert (out == 3).all()
    with pytest.raises(gm.ResultOverflow):
        gm.matmul(ones * 1000, ones, modulus=2**62, out=out, engine=engine)
    assert (out == 3).all()
