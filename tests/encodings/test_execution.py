"""Products through planes: integers exactly Python's, floats bit for bit those of the INT8 route, depths enforced.

Oracles: Python integers, Fractions, and the library's own INT8 route for bits (which its suite holds to Fractions).
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import gemmulate as gm
from gemmulate import encodings, formats
from gemmulate.encodings.fold import fold
from gemmulate.engines.registry import get_engine
from gemmulate.schemes.encoded import Digits, exact_sums, multiply_direct, multiply_folded, numpy_product, planes_of
from gemmulate.schemes.encoded_engine import EncodedEngine
from gemmulate.schemes.multiword import recombine
from gemmulate.schemes.partial import Cover, partial_design, round_to_cover

FORMATS = ["fp4_e2m1", "int4", "fp6_e3m2", "fp8_e4m3", "int8", "uint8", "fp4_e2m1,fp8_e4m3", "int8,uint8"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("accuracy", ["fp64", "exact"])
def test_floats_equal_the_int8_route_bit_for_bit(name: str, accuracy: str) -> None:
    rng = np.random.default_rng(7)
    # The last one is beyond the size up to which every grade rounds correctly.
    for shape in ((1, 1, 1), (3, 40, 5), (9, 17, 2), (70, 64, 61)):
        m, k, n = shape
        a = rng.standard_normal((m, k)) * np.exp(5 * rng.standard_normal((m, k)))
        b = rng.standard_normal((k, n))
        planes = gm.matmul(a, b, accuracy=accuracy, formats=name)
        assert planes.tobytes() == gm.matmul(a, b, accuracy=accuracy).tobytes()


def test_special_values_and_float32_equal_the_int8_route() -> None:
    a = np.array([[np.nan, 1.0], [np.inf, 0.0], [-0.0, 0.0], [5e-324, 1e308], [1e308, 1e308]])
    b = np.array([[0.0, 1.0, -1.0], [2.0, -0.0, 10.0]])
    with np.errstate(over="ignore"):
        single = a.astype(np.float32), b.astype(np.float32)
    for x, y in ((a, b), single):
        planes, plain = gm.matmul(x, y, formats="fp4_e2m1"), gm.matmul(x, y)
        assert planes.dtype == plain.dtype
        assert np.array_equal(planes, plain, equal_nan=True)
        assert np.array_equal(np.signbit(planes), np.signbit(plain))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64, bool])
def test_integers_are_exact(name: str, dtype: type) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype) if dtype is not bool else None
    low, high = (int(info.min), int(info.max)) if info else (0, 1)
    a = np.array([[low, high, high], [high, low, low], [low, low, high]], dtype=dtype)
    b = np.array(rng.integers(low, high, (3, 4), dtype=dtype, endpoint=True))
    exact = a.astype(object).astype(object) @ b.astype(object)
    if dtype is bool:
        exact = a.astype(int) @ b.astype(int)
    assert (gm.matmul(a, b, formats=name, overflow="object") == exact).all()


def test_every_pair_of_int8_through_six_products() -> None:
    e = encodings.get("int8.int8.fp4_e2m1")
    x = np.arange(-128, 128)
    assert (multiply_direct(x[:, None], x[None, :], e) == np.multiply.outer(x, x)).all()
    assert (
        gm.matmul(x[:, None].astype(np.int8), x[None, :].astype(np.int8), formats="fp4_e2m1") == np.outer(x, x)
    ).all()


@pytest.mark.parametrize("accumulator", ["fp32", "fp8_13bit", "fp16"])
def test_no_sum_exceeds_the_accumulator(accumulator: str) -> None:
    """A recording product sees every partial sum that the unit would hold, at worst-case planes."""
    e = encodings.get("mod169.fp4_e2m1")
    depth, limit = e.max_depth(accumulator), formats.accumulator(accumulator).sum_limit()
    k = 3 * depth + 1 if depth < 2000 else depth + 1
    left = np.full((e.products, 1, k), 12, dtype=np.int8)
    right = np.full((e.products, k, 1), -12, dtype=np.int8)
    seen: list[tuple[int, int]] = []

    def product(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        out = numpy_product(p, q)
        seen.append((p.shape[1], int(np.abs(out).max())))
        return out

    sums = exact_sums(e, left, right, product, accumulator)
    assert (sums == -144 * k).all()
    assert max(n for n, _ in seen) == depth
    assert all(peak <= limit for _, peak in seen)
    assert 144 * (depth + 1) > limit


def test_a_sum_that_no_accumulator_holds_is_refused() -> None:
    from dataclasses import replace

    e = replace(encodings.get("mod49.fp8_e5m2"), plane_max=57344)
    with pytest.raises(ValueError, match="no exact sum"):
        exact_sums(e, np.zeros((e.products, 1, 1), np.int8), np.zeros((e.products, 1, 1), np.int8), numpy_product)


@pytest.mark.parametrize(
    "values", [[0], [-1], [2**63 - 1, -(2**63)], [2**64 - 1], [10**60, -(10**60), 1 - 2**26, -(2**26)]]
)
def test_digits_have_the_right_residues(values: list[int]) -> None:
    x = np.array([values], dtype=object)
    for m in (2, 13, 97, 509):
        assert Digits.of_integers(x).residues(m).tolist() == [[v % m for v in values]]


def test_wide_integers_recombine_at_the_edge_of_the_window() -> None:
    moduli = (13, 17, 89)
    whole = 13 * 17 * 89
    values = [0, 1, -1, whole // 2, -(whole // 2), whole // 2 - 1]
    residues = [np.array([[v % m for v in values]]) for m in moduli]
    assert recombine(residues, moduli).tolist() == [values]


@pytest.mark.parametrize(
    "key", ["int4.int8.fp4_e2m1", "pm8.pm16.fp4_e2m1", "mod13.fp4_e2m1", "mod89.fp4_e2m1", "mod169.fp4_e2m1"]
)
def test_folding_into_block_scales_is_exact_at_the_worst_depth(key: str) -> None:
    e = encodings.get(key)
    f = fold(e)
    scales = set(formats.get_block("nvfp4").scales)
    assert scales.issuperset(f.left + f.right)
    for c, s, t, sign in zip(e.coefficients, f.left, f.right, f.signs, strict=True):
        error = sign * s * t - f.factor * c
        assert error % e.modulus == 0 if e.modulus else error == 0
    rng = np.random.default_rng(5)
    domains = [(0, e.modulus - 1)] * 2 if e.modulus else [(e.left.low, e.left.high), (e.right.low, e.right.high)]
    k = f.max_depth + 7 if f.max_depth < 10000 else 500
    a = rng.integers(*domains[0], (2, k), endpoint=True)
    b = rng.integers(*domains[1], (k, 2), endpoint=True)
    a[0], b[:, 0] = domains[0][0], domains[1][0]
    error = multiply_folded(a, b, e, f) - a.astype(object) @ b.astype(object)
    assert not (error % e.modulus if e.modulus else error).any()
    worst = sum(
        s * t * int(np.abs(p).max()) * int(np.abs(q).max())
        for s, t, p, q in zip(f.left, f.right, e.planes("left"), e.planes("right"), strict=True)
    )
    assert f.max_depth == 2**24 // worst


def test_folding_refuses_with_the_reason() -> None:
    with pytest.raises(ValueError, match="coefficient 891"):
        fold(encodings.get("int8.int8.fp4_e2m1"))
    with pytest.raises(ValueError, match="holds fp4_e2m1"):
        fold(encodings.get("mod17.int4"))
    with pytest.raises(ValueError, match="unknown block format"):
        fold(encodings.get("mod17.fp4_e2m1"), "nvfp5")


def brute_nearest(x: float, cover: Cover) -> Fraction:
    """Distance to the nearest covered integer, by looking at all integers within 60."""
    center = round(x)
    best = None
    for v in range(center - 60, center + 61):
        if all(mask[v % m] for m, mask in cover.masks):
            distance = abs(Fraction(x) - v)
            best = distance if best is None else min(best, distance)
    assert best is not None
    return best


@pytest.mark.parametrize("freedom", [0.25, 1.0, 2.6])
def test_rounding_takes_the_nearest_covered_integer(freedom: float) -> None:
    cover = partial_design(2 << 121, ("fp4_e2m1",), freedom)
    assert cover is not None
    rng = np.random.default_rng(11)
    x = np.concatenate([rng.uniform(-(2.0**50), 2.0**50, 300), [0.0, 0.5, -0.5, 1.5, 2.0**60, -(2.0**60), 1e-300]])
    found = round_to_cover(x, cover)
    assert cover.holds(found.values).all()
    for value, chosen, error in zip(x.tolist(), found.values.tolist(), found.errors.tolist(), strict=True):
        assert abs(Fraction(value) - chosen) == brute_nearest(value, cover)
        assert error == pytest.approx(float(abs(Fraction(value) - chosen)), rel=1e-15)
    for v in (r for r in range(-50, 50) if cover.holds(np.array([r]))[0]):
        assert round_to_cover(np.array([float(v)]), cover).values[0] == v


def test_fast_through_partial_covers_keeps_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmulate.schemes import encoded_engine

    products: list[int] = []
    plain = encoded_engine.multiply_partial

    def spy(*arguments: object) -> object:
        found = plain(*arguments)  # type: ignore[arg-type]
        products.append(found.products if found else 0)
        return found

    monkeypatch.setattr(encoded_engine, "multiply_partial", spy)
    rng = np.random.default_rng(2)
    for k in (33, 200):
        a = rng.standard_normal((4, k)) * np.exp(200 * rng.uniform(-1, 1, (4, 1)))
        b = np.exp(3 * rng.standard_normal((k, 3)))
        c = gm.matmul(a, b, accuracy="fast", formats="fp4_e2m1")
        for i, j in np.ndindex(4, 3):
            exact = sum(Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j], strict=True))
            bound = Fraction(k, 2**52) * Fraction(abs(a[i]).max()) * Fraction(abs(b[:, j]).max())
            assert abs(Fraction(c[i, j]) - exact) <= bound
    # Both went through partial covers, with fewer products than any full cover of the same window.
    assert len(products) == 2
    assert all(0 < n < 59 for n in products)


def test_partial_covers_are_kept_out_of_other_grades_and_of_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmulate.schemes import encoded_engine

    def never(*arguments: object) -> None:
        raise AssertionError("partial covers outside accuracy='fast'")

    monkeypatch.setattr(encoded_engine, "multiply_partial", never)
    a = np.random.default_rng(1).standard_normal((66, 65))
    with pytest.raises(AssertionError, match="outside"):
        gm.matmul(a, a.T, accuracy="fast", formats="fp4_e2m1")
    for accuracy in ("fp64", "exact"):
        gm.matmul(a, a.T, accuracy=accuracy, formats="fp4_e2m1")
    gm.matmul(np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2), formats="fp4_e2m1")


@pytest.mark.parametrize("name", ["fp4", "", "fp16", "nope", [], "fp4_e2m1,"])
def test_bad_formats_are_refused(name: object) -> None:
    with pytest.raises((ValueError, LookupError)):
        gm.matmul(np.eye(2), np.eye(2), formats=name)


@pytest.mark.parametrize("name", [5, b"fp4_e2m1"])
def test_formats_that_are_no_names_are_refused(name: object) -> None:
    with pytest.raises(TypeError, match="name formats as in"):
        gm.matmul(np.eye(2), np.eye(2), formats=name)
    with pytest.raises(TypeError, match="name formats as in"):
        encodings.design(formats=name)


def test_a_format_named_twice_counts_once() -> None:
    assert EncodedEngine("int8,fp4_e2m1,int8", get_engine()).formats == ("int8", "fp4_e2m1")


@pytest.mark.parametrize("k", [33024, 33025, 33026, 66051])
def test_unsigned_planes_at_the_depth_of_their_accumulator(k: int) -> None:
    a, b = np.full((1, k), 255, dtype=np.uint8), np.full((k, 2), 255, dtype=np.uint8)
    for engine in (None, "reference"):
        assert gm.matmul(a, b, formats="uint8", engine=engine).tolist() == [[255 * 255 * k] * 2]


def test_an_encoding_with_holes_never_runs() -> None:
    holes = replace(encodings.get("int8.int8.fp4_e2m1"), plane_max=4)
    assert not encodings.verify(holes)
    with pytest.raises(ValueError, match="reaches 252 of 256 values"):
        multiply_direct(np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64), holes)


def test_empty_products_keep_numpys_shapes() -> None:
    for m, k, n in ((0, 3, 2), (2, 0, 3), (2, 3, 0)):
        for dtype in (np.float64, np.int8):
            out = gm.matmul(np.zeros((m, k), dtype), np.zeros((k, n), dtype), formats="fp4_e2m1")
            assert out.shape == (m, n)
            assert not out.any()


def test_planes_are_in_the_alphabet() -> None:
    letters = set(formats.get("fp4_e2m1").alphabet)
    for key in ("sig11.sig11.fp4_e2m1", "mod157.fp4_e2m1", "mod117.fp4_e2m1"):
        e = encodings.get(key)
        for side in ("left", "right"):
            values = e.limbs(side)[0]
            assert letters.issuperset(planes_of(e, side, values).ravel().tolist())


def test_modular_and_complex_products_equal_the_int8_route() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(-(2**62), 2**62, (3, 7)), rng.integers(-(2**62), 2**62, (7, 2))
    for p in (2, 97, 2**31 - 1, 2**61 - 1):
        expected = (a.astype(object) @ b.astype(object)) % p
        assert (gm.matmul(a, b, modulus=p, formats="fp4_e2m1") == expected).all()
    small = rng.integers(-5, 6, (3, 4), dtype=np.int8)
    assert (
        gm.matmul(small, small.T, modulus=11, formats="fp4_e2m1") == small.astype(int) @ small.T.astype(int) % 11
    ).all()
    x = rng.standard_normal((3, 5)) + 1j * rng.standard_normal((3, 5))
    assert gm.matmul(x, x.T, formats="fp4_e2m1").tobytes() == gm.matmul(x, x.T).tobytes()
