"""Products of finite floats that must not warn."""

import warnings

import numpy as np
import pytest

from gemmulate.blas import finite_matmul


def test_a_flag_of_the_processor_is_not_a_warning() -> None:
    # What a kernel may compute beyond the edge of a matrix, here within it: ∞ · 0 sets the same flag.
    stray = np.array([[np.inf, 1.0]]), np.array([[0.0], [1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="invalid value encountered in matmul"):
            np.matmul(*stray)
        assert np.isnan(finite_matmul(*stray))


def test_product_and_out() -> None:
    a, b = np.array([[1.5, -2.0], [0.25, 8.0]]), np.array([[4.0, 1.0], [0.5, -3.0]])
    out = np.empty((2, 2))
    assert finite_matmul(a, b, out=out) is out
    assert out.tolist() == [[5.0, 7.5], [5.0, -23.75]]
    assert finite_matmul(a, b).tolist() == out.tolist()
