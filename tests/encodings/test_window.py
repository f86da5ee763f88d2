"""Windows from data enclose the true largest Σ|a'||b'| in exact arithmetic and are invariant under powers of two."""

from fractions import Fraction

import numpy as np
import pytest

from gemmulate.encodings import design
from gemmulate.encodings.window import a_priori, of_matrices


def scaled_integers(row: np.ndarray, bits: int) -> list[int]:
    """round(|x|·2^(bits − top)) with 2^top > max|x|, in Fractions."""
    values = [abs(Fraction(float(v))) for v in row]
    largest = max(values)
    if not largest:
        return [0] * len(values)
    scale = Fraction(1)
    while largest * scale < Fraction(2**bits, 2):
        scale *= 2
    while largest * scale >= 2**bits:
        scale /= 2
    return [round(v * scale) for v in values]


@pytest.mark.parametrize("bits", [4, 24, 53])
@pytest.mark.parametrize("spread", [0, 1, 30])
def test_the_window_covers_the_rounded_operands(bits: int, spread: float) -> None:
    rng = np.random.default_rng(bits)
    a = rng.standard_normal((5, 12)) * np.exp(spread * rng.standard_normal((5, 12)))
    b = rng.standard_normal((12, 4)) * np.exp(spread * rng.standard_normal((12, 4)))
    left, right = [scaled_integers(r, bits) for r in a], [scaled_integers(c, bits) for c in b.T]
    true = 2 * max(sum(x * y for x, y in zip(r, c, strict=True)) for r in left for c in right)
    window = of_matrices(a, b, bits)
    assert true < window <= a_priori(bits, 12)
    assert of_matrices(a * 2.0**100, b * 2.0**-300, bits) == window


def test_data_save_products() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 1024)), rng.standard_normal((1024, 64))
    plain, informed = design(bits=53, k=1024), design(bits=53, a=a, b=b)
    assert plain.products == 57
    assert informed.products <= plain.products - 2
    assert informed.k == 1024


def test_extremes() -> None:
    assert of_matrices(np.zeros((2, 3)), np.zeros((3, 2)), 53) > 0
    assert of_matrices(np.full((1, 1), 5e-324), np.full((1, 1), 1.7e308), 53) <= a_priori(53, 1)
    assert of_matrices(np.zeros((0, 3)), np.zeros((3, 2)), 8) == a_priori(8, 3)
    assert of_matrices(np.full((1, 1), 0.0), np.full((1, 1), 1.0), 53) > 0


def test_integers_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(9)
    for dtype in (np.int8, np.uint8, np.int64, np.uint64, bool):
        high = 1 if dtype is bool else np.iinfo(dtype).max
        low = 0 if dtype is bool else np.iinfo(dtype).min
        a = rng.integers(0, 2, (3, 5)).astype(dtype) if dtype is bool else rng.integers(low, high, (3, 5), dtype=dtype)
        a[0, 0] = low
        true = 2 * (abs(a.astype(object)) @ abs(a.T.astype(object))).max()
        assert true < of_matrices(a, a.T, 53) <= true * 2 + 2 * 25


@pytest.mark.parametrize("bad", [np.array([[np.nan]]), np.array([[np.inf]]), np.array([[1j]]), np.array([["x"]])])
def test_what_has_no_window_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"dtype|NaN"):
        of_matrices(bad, np.ones((1, 1)), 8)
    with pytest.raises(ValueError, match="shape"):
        of_matrices(np.ones((2, 3)), np.ones((2, 3)), 8)
    with pytest.raises(ValueError, match="both"):
        design(a=np.ones((2, 2)))
    with pytest.raises(ValueError, match="window"):
        design(window=0)
