"""Contract: complex products keep each grade for the real and for the imaginary part. Oracle: Fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import gemmulate as gm


def sample(rng: np.random.Generator, shape: tuple[int, int], dtype: type, spread: int) -> Any:
    real = rng.standard_normal((2, *shape)) * 2.0 ** rng.integers(-spread, spread + 1, (2, *shape))
    return (real[0] + 1j * real[1]).astype(dtype)


def exact_parts(a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """Exact real and imaginary parts of a b, and of the sums of magnitudes of their terms."""
    fractions = np.vectorize(lambda t: Fraction(float(t)), otypes=[object])
    ar, ai, br, bi = (fractions(part) for x in (a, b) for part in (x.real, x.imag))
    size = [abs(x) for x in (ar, ai, br, bi)]
    return (
        ar @ br - ai @ bi,
        ar @ bi + ai @ br,
        size[0] @ size[2] + size[1] @ size[3],
        size[0] @ size[3] + size[1] @ size[2],
    )


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("spread", [0, 6, 30])
def test_grades(engine: str, dtype: type, spread: int) -> None:
    rng = np.random.default_rng(spread)
    a, b = sample(rng, (7, 19), dtype, spread), sample(rng, (19, 5), dtype, spread)
    a[2] = 1j * a[3]
    real, imag, real_size, imag_size = exact_parts(a, b)
    part = np.float32 if dtype is np.complex64 else np.float64
    u = Fraction(1, 2 ** (24 if part is np.float32 else 53))
    rounded = gm.matmul(a, b, accuracy="exact", engine=engine)
    assert rounded.dtype == dtype
    # float(Fraction) rounds correctly to float64; to float32 there is a rounding in between, so compare distances.
    for got, exact in ((rounded.real, real), (rounded.imag, imag)):
        for x, y in zip(got.flat, exact.flat, strict=True):
            lower, upper = (Fraction(float(np.nextafter(x, part(s)))) for s in (-np.inf, np.inf))
            assert abs(Fraction(float(x)) - y) <= min(abs(lower - y), abs(upper - y))
    graded = gm.matmul(a, b, engine=engine)
    for got, exact, size in ((graded.real, real, real_size), (graded.imag, imag, imag_size)):
        for x, y, s in zip(got.flat, exact.flat, size.flat, strict=True):
            assert abs(Fraction(float(x)) - y) <= 2 * 19 * u * s


def test_special_values_stay_in_their_row(engine: str) -> None:
    a = np.ones((3, 2), dtype=complex)
    a[1, 0] = complex(np.inf, 0)
    c = gm.matmul(a, np.ones((2, 2)), engine=engine)
    assert c[1].real.tolist() == [np.inf, np.inf]
    assert np.isnan(c[1].imag).all()  # inf · 0, as IEEE arithmetic has it
    assert (c[[0, 2]] == 2).all()


def test_out_and_mixed_types(engine: str) -> None:
    rng = np.random.default_rng(0)
    a, b = sample(rng, (4, 6), np.complex128, 1), rng.standard_normal((6, 3))
    out = np.empty((4, 3), dtype=complex)
    assert gm.matmul(a, b, out=out, accuracy="exact", engine=engine) is out
    assert (out == gm.matmul(a, b.astype(complex), accuracy="exact", engine=engine)).all()
    with pytest.raises(TypeError, match="out has dtype float64"):
        gm.matmul(a, b, out=np.empty((4, 3)), engine=engine)
