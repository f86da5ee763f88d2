"""float16 and bfloat16: every grade with the type's own u, one rounding of the exact value, IEEE's rules."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmulate as gm
from matmul.checks import assert_bits, assert_componentwise, assert_normwise
from matmul.inputs import LAYOUTS, floats
from matmul.oracles import Array, binary, correctly_rounded, stacked

Matmul = Callable[..., Any]
HALF, BRAIN = np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)
ACCURACIES = ["fast", "fp64", "exact"]
narrow = pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=lambda d: d.name)


def finite(x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # ml_dtypes warns where it meets a signalling NaN
        return np.isfinite(x)


def every_finite(dtype: np.dtype[Any]) -> Array:
    x = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(dtype)
    return np.asarray(x[finite(x)])


def check(mm: Matmul, a: Array, b: Array) -> None:
    assert_bits(mm(a, b, accuracy="exact"), correctly_rounded(a, b))
    assert_componentwise(mm(a, b), a, b)
    assert_normwise(mm(a, b, accuracy="fast"), a, b)


@narrow
def test_exponent_ranges(mm: Matmul, dtype: np.dtype[Any]) -> None:
    fmt, rng = binary(dtype), np.random.default_rng(51)
    for low, high in ((0, 0), (-3, 3), (-8, 7), (fmt.quantum, 0), (fmt.quantum, fmt.emax)):
        for m, k, n in ((1, 1, 1), (4, 7, 5), (9, 70, 11)):
            for zeros in (0.0, 0.5):
                check(mm, *(floats(rng, s, low, high, dtype, zeros=zeros) for s in ((m, k), (k, n))))


@narrow
def test_every_number_scaled_to_every_kind_of_result(mm: Matmul, is_fast: bool, dtype: np.dtype[Any]) -> None:
    """Products of every finite number: exact, rounded, subnormal, vanishing and overflowing ones."""
    fmt = binary(dtype)
    x = every_finite(dtype)[:: 1 if is_fast else 37, None]
    factors = [1.0, 1 + 2.0 ** (1 - fmt.p), -(2.0 ** (fmt.emin // 2)), 2.0**fmt.emin, 2.0 ** (fmt.emax // 2), 1.5]
    y = np.array([factors], dtype=dtype)
    want = correctly_rounded(x, y)
    assert np.isinf(want).any()
    for accuracy in ACCURACIES:  # one product for each element: every grade keeps all bits
        assert_bits(mm(x, y, accuracy=accuracy), want)


@narrow
def test_one_rounding_only(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """1 + ulp/2 + tiny: rounding to float32 or float64 first makes a tie of it, which then goes the wrong way."""
    fmt = binary(dtype)
    half_ulp, tiny = 2.0**-fmt.p, 2.0**fmt.quantum
    rows = [[1.0, w * half_ulp, s * tiny] for w in (1, 3, -0.5, -1.5) for s in (0, 1, -1)]
    a = np.array(rows, dtype=dtype)
    b = np.array([[1, -1], [1, -1], [tiny, tiny]], dtype=dtype)
    assert_bits(mm(a, b, accuracy="exact"), correctly_rounded(a, b))
    assert float(mm(a[1], b[:, 0], accuracy="exact")) == 1 + 2 * half_ulp  # above the tie
    assert float(mm(a[0], b[:, 0], accuracy="exact")) == 1.0  # the tie
    least = np.array([[tiny, tiny]], dtype=dtype)
    above = np.array([[0.5], [tiny]], dtype=dtype)
    assert_bits(mm(least, above, accuracy="exact"), least[:, :1])
    assert_bits(mm(least, np.array([[0.5], [0]], dtype=dtype), accuracy="exact"), np.zeros((1, 1), dtype))


@narrow
def test_overflow_only_where_the_exact_value_overflows(mm: Matmul, dtype: np.dtype[Any]) -> None:
    fmt = binary(dtype)
    top = (2 - 2.0 ** (1 - fmt.p)) * 2.0**fmt.emax
    half_gap, tiny = 2.0 ** (fmt.emax - fmt.p), 2.0**fmt.quantum
    rows = [
        ([top, top, -top, -top], 0.0),
        ([top, top, -top, 1], top),
        ([top, half_gap, 0, 0], np.inf),
        ([top, half_gap, -tiny, 0], top),
        ([-top, -half_gap, tiny, 0], -top),
        ([-top, -half_gap, 0, 0], -np.inf),
        ([top, top, top, top], np.inf),
    ]
    a, b = np.array([r for r, _ in rows], dtype=dtype), np.ones((4, 1), dtype=dtype)
    want = np.array([[w] for _, w in rows], dtype=dtype)
    assert_bits(correctly_rounded(a, b), want)
    check(mm, a, b)
    with np.errstate(all="ignore"):
        check(mm, a, np.full((4, 2), top, dtype=dtype))


@narrow
@pytest.mark.parametrize("accuracy", ACCURACIES)
def test_zeros_and_special_values(mm: Matmul, accuracy: str, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(52)
    for values in ([0.0, -0.0, 1.0, -1.0], [0.0, -0.0, 2.0, np.inf, -np.inf, np.nan]):
        pool = np.array(values, dtype=dtype)
        for k in (1, 2, 3, 8):
            a, b = rng.choice(pool, (25, k)), rng.choice(pool, (k, 25))
            assert_bits(mm(a, b, accuracy=accuracy), correctly_rounded(a, b))
    many = np.zeros((3, 300), dtype=dtype)
    assert_bits(mm(many, np.full((300, 2), -1, dtype), accuracy=accuracy), np.full((3, 2), -0.0, dtype))
    for shape in ((0, 3, 2), (2, 0, 3), (2, 3, 0)):
        m, k, n = shape
        got = mm(np.ones((m, k), dtype), np.ones((k, n), dtype), accuracy=accuracy)
        assert_bits(got, np.zeros((m, n), dtype))


@narrow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(mm: Matmul, layout: str, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(53)
    a, b = floats(rng, (7, 12), -3, 3, dtype), floats(rng, (12, 5), -3, 3, dtype)
    if layout == "byte_swapped" and dtype == BRAIN:
        pytest.skip("ml_dtypes has no byte-swapped bfloat16")
    got = mm(LAYOUTS[layout](a), LAYOUTS[layout](b), accuracy="exact")
    assert_bits(got, correctly_rounded(a, b))


@narrow
def test_vectors_stacks_and_out(mm: Matmul, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(54)
    a, b = floats(rng, (3, 1, 4, 6), -3, 3, dtype), floats(rng, (2, 6, 5), -3, 3, dtype)
    want = stacked(correctly_rounded, a, b)
    assert_bits(mm(a, b, accuracy="exact"), want)
    assert_bits(mm(a[0, 0, 0], b[0], accuracy="exact"), want[0, 0, 0])
    scalar = mm(a[0, 0, 0], b[0, :, 0], accuracy="exact")
    assert scalar.dtype == dtype
    assert scalar == want[0, 0, 0, 0]
    host = np.full((3, 2, 4, 11), 7, dtype=dtype)
    out = host[..., 10:0:-2]  # every second column, backwards
    assert mm(a, b, accuracy="exact", out=out) is out
    assert_bits(out, want)
    assert (host[..., 1::2] == 7).all()
    with pytest.raises(TypeError, match="out has dtype float32"):
        mm(a, b, out=np.empty(want.shape, np.float32))
    square = floats(rng, (6, 6), -2, 2, dtype)
    expected = correctly_rounded(square, square)
    assert_bits(mm(square, square, accuracy="exact", out=square), expected)  # out overlaps both inputs


def test_mixed_types(mm: Matmul) -> None:
    """NumPy's common types; float16 with bfloat16 is float32, bfloat16 with integers goes as float16 does."""
    rng = np.random.default_rng(55)
    types = {
        (HALF, BRAIN): "f4",
        (HALF, "f4"): "f4",
        (BRAIN, "f4"): "f4",
        (BRAIN, "f8"): "f8",
        (HALF, "i1"): "f2",
        (HALF, "i2"): "f4",
        (HALF, "i4"): "f8",
        (BRAIN, "?"): BRAIN,
        (BRAIN, "u1"): BRAIN,
        (BRAIN, "i2"): "f4",
        (BRAIN, "i8"): "f8",
        (BRAIN, "c8"): "c8",
        (HALF, "c16"): "c16",
    }
    for (left, right), result in types.items():
        a, b = floats(rng, (4, 6), -4, 4, left), rng.integers(0, 2, (6, 3)).astype(right)
        b = b if np.dtype(right).kind in "?biu" else b * np.asarray(3, right)
        if np.dtype(right).kind == "u":
            b += np.uint8(254)
        for x, y in ((a, b), (b.T, a.T)):
            got = mm(x, y, accuracy="exact")
            assert got.dtype == np.dtype(result), (left, right)
            kind = "c16" if np.dtype(result).kind == "c" else "f8"
            want = correctly_rounded(x.astype(kind).real.astype("f8"), y.astype(kind).real.astype("f8"), got.real.dtype)
            assert_bits(got.real + 0 if kind == "c16" else got, want + 0 if kind == "c16" else want)
    with pytest.raises(TypeError, match="Python ints"):
        mm(np.ones((2, 2), BRAIN), np.array([[1, 2], [3, 2**80]], dtype=object))
    with pytest.raises(TypeError, match=r"2\^53"):
        mm(np.ones((1, 1), BRAIN), np.array([[2**60]]))


@narrow
def test_rounded_operands_in_the_exact_grade(mm: Matmul, is_fast: bool, dtype: np.dtype[Any]) -> None:
    """Spreads too wide to keep every bit: roundings that stay open are found in the narrow format and repaired."""
    rng = np.random.default_rng(56)
    shape = (40, 200, 33) if is_fast else (6, 40, 5)
    for spread in (40, 100):
        low = max(-spread, binary(dtype).quantum)
        a = floats(rng, shape[:2], low, min(15, spread), dtype)
        b = floats(rng, shape[1:], low, min(15, spread), dtype)
        half = shape[1] // 2
        a[1, half : 2 * half] = -a[1, :half]
        b[half : 2 * half, 0] = b[:half, 0]  # cancels but for what is left
        assert_bits(mm(a, b, accuracy="exact"), correctly_rounded(a, b))


@settings(max_examples=80)
@given(data=st.data())
def test_small_matrices_of_any_bits(mm: Matmul, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([HALF, BRAIN]))
    m, k, n = (data.draw(st.integers(0, 5)) for _ in range(3))
    bits = st.integers(0, 2**16 - 1)
    a, b = (
        np.array(data.draw(st.lists(bits, min_size=s[0] * s[1], max_size=s[0] * s[1])), dtype=np.uint16)
        .view(dtype)
        .reshape(s)
        for s in ((m, k), (k, n))
    )
    want = correctly_rounded(a, b)
    assert_bits(mm(a, b, accuracy="exact"), want)
    finite_a, finite_b = a[finite(a).all(axis=1)], b[:, finite(b).all(axis=0)]
    assert_componentwise(mm(finite_a, finite_b), finite_a, finite_b)
    assert_normwise(mm(finite_a, finite_b, accuracy="fast"), finite_a, finite_b)


@narrow
def test_planes_of_other_formats_give_the_same_bits(mm: Matmul, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(57)
    a, b = floats(rng, (4, 9), -9, 9, dtype), floats(rng, (9, 3), -9, 9, dtype)
    for accuracy in (*ACCURACIES, gm.Bits(9)):
        assert_bits(mm(a, b, accuracy=accuracy, formats="fp4_e2m1"), mm(a, b, accuracy=accuracy))


@narrow
@pytest.mark.parametrize("accuracy", ACCURACIES)
def test_the_plan_names_the_type(dtype: np.dtype[Any], accuracy: Any) -> None:
    plan = gm.plan(np.ones((3, 4), dtype), np.ones((4, 2), dtype), accuracy=accuracy)
    assert plan.dtypes == (dtype.name,) * 3
    assert gm.plan(np.ones((3, 4), HALF), np.ones((4, 2), BRAIN), accuracy=accuracy).dtypes[2] == "float32"
