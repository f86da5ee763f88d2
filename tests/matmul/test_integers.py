"""Integer products are exact: int64, or uint64 for two unsigned operands; too large a result is an error, NumPy's
wrapped result, or Python ints, as `overflow` asks. The oracle is Python integers."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmulate as gm
from matmul.checks import assert_bits
from matmul.inputs import INTEGER_DTYPES, integers, limits
from matmul.oracles import Array, int_matmul

Matmul = Callable[..., Any]
PAIRS = [pytest.param(x, y, id=f"{x}-{y}") for x, y in itertools.product(INTEGER_DTYPES, repeat=2)]


def result_dtypes(a: Array, b: Array) -> set[np.dtype[Any]]:
    """uint64 for two unsigned operands, else int64. A bool beside an unsigned operand may count as either."""
    kinds = {a.dtype.kind, b.dtype.kind}
    if kinds == {"u"}:
        return {np.dtype("u8")}
    return {np.dtype("u8"), np.dtype("i8")} if kinds == {"b", "u"} else {np.dtype("i8")}


def check_raise(mm: Matmul, a: Array, b: Array, exact: Array, **options: Any) -> None:
    """The exact result where it fits its dtype, else ResultOverflow with the bit length and the ways out."""
    largest = max((int(v) for v in exact.flat), default=0)
    smallest = min((int(v) for v in exact.flat), default=0)
    fits = {d for d in result_dtypes(a, b) if limits(d)[0] <= smallest and largest <= limits(d)[1]}
    if fits == result_dtypes(a, b):
        c = mm(a, b, **options)
        assert c.dtype in fits
        assert_bits(c, exact.astype(c.dtype))
        return
    if fits:  # bool beside uint64: whichever of the two dtypes it is must be right
        try:
            c = mm(a, b, **options)
        except gm.ResultOverflow:
            return
        assert_bits(c, exact.astype(c.dtype))
        return
    with pytest.raises(gm.ResultOverflow) as caught:
        mm(a, b, **options)
    bits = max(abs(largest).bit_length(), abs(smallest).bit_length())
    assert caught.value.bits in (bits, bits + 1), f"{caught.value.bits} bits named, largest magnitude has {bits}"
    message = str(caught.value)
    assert isinstance(caught.value, OverflowError)
    for part in (str(caught.value.bits), "wrap", "object"):
        assert part in message


def wrapped(exact: Array, dtype: np.dtype[Any]) -> Array:
    """The exact result modulo 2^w in a w-bit dtype; NumPy's bool product is the logical one."""
    if dtype.kind == "b":
        return (exact != 0).astype(bool)
    modulus = 1 << (8 * dtype.itemsize)
    residues = [int(v) % modulus for v in exact.flat]
    return np.array(residues, dtype=f"u{dtype.itemsize}").view(dtype).reshape(exact.shape)


def check_wrap(mm: Matmul, a: Array, b: Array, exact: Array) -> None:
    with np.errstate(all="ignore"):
        numpys = np.matmul(a, b)
    if numpys.dtype.kind in "biu":  # int64 with uint64 is float64 in NumPy: nothing to be bit-for-bit with
        want = wrapped(exact, numpys.dtype)
        assert_bits(want, numpys)
        assert_bits(mm(a, b, overflow="wrap"), want)


def check_all_modes(mm: Matmul, a: Array, b: Array) -> None:
    exact = int_matmul(a, b)
    check_raise(mm, a, b, exact)
    check_wrap(mm, a, b, exact)
    assert_bits(mm(a, b, overflow="object"), exact)


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_every_pair_of_dtypes(mm: Matmul, left: np.dtype[Any], right: np.dtype[Any]) -> None:
    rng = np.random.default_rng(11)
    for m, k, n in ((1, 1, 1), (3, 5, 4), (17, 70, 33)):
        check_all_modes(mm, integers(rng, (m, k), left), integers(rng, (k, n), right))
    # Small values, so that the result fits whatever the dtypes.
    small = [rng.integers(0 if d.kind in "bu" else -2, 2, (9, 9)).astype(d) for d in (left, right)]
    check_all_modes(mm, *small)


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_extremes_of_every_pair(mm: Matmul, left: np.dtype[Any], right: np.dtype[Any]) -> None:
    for x, y in itertools.product(limits(left), limits(right)):
        for m, k, n in ((1, 1, 1), (2, 3, 5), (5, 129, 2)):
            check_all_modes(mm, np.full((m, k), x, dtype=left), np.full((k, n), y, dtype=right))


@pytest.mark.parametrize("k", [65_792, 65_793, 65_794, 131_073])
@pytest.mark.parametrize(
    ("left", "x", "right", "y"),
    [
        ("i1", -128, "i1", -128),
        ("i1", 127, "i1", -128),
        ("u1", 255, "i1", -128),
        ("i1", -128, "u1", 255),
        ("u1", 255, "u1", 255),
        ("?", True, "i1", -128),
        ("i2", -(2**15), "i2", -(2**15)),
        ("u2", 2**16 - 1, "u2", 2**16 - 1),
        ("i4", -(2**31), "i4", 2**31 - 1),
        ("u4", 2**32 - 1, "i4", -(2**31)),
        ("i8", -(2**63), "i8", -(2**63)),
        ("u8", 2**64 - 1, "u8", 2**64 - 1),
        ("i8", -(2**63), "u8", 2**64 - 1),
    ],
)
def test_depths_around_the_int32_accumulators_limit(mm: Matmul, k: int, left: str, x: int, right: str, y: int) -> None:
    """255·128·65,793 is the last depth at which u8×s8 sums fit int32; all products are extreme and of one sign."""
    a, b = np.full((2, k), x, dtype=left), np.full((k, 3), y, dtype=right)
    exact = np.full((2, 3), int(x) * int(y) * k, dtype=object)
    check_raise(mm, a, b, exact)
    check_wrap(mm, a, b, exact)
    assert_bits(mm(a, b, overflow="object"), exact)


def test_results_at_the_edge_of_the_result_dtype(mm: Matmul) -> None:
    """±2^63, 2^64 and their neighbours, reached by one product and by a sum that leaves the range on its way."""
    edges = [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 0]
    for edge in edges:
        half = edge // 2
        a = np.array([[half, edge - half, 2**62, -(2**62)]])
        b = np.array([[1], [1], [3], [3]])
        check_raise(mm, a, b, int_matmul(a, b))
    for edge in (2**64 - 1, 2**64, 2**63):
        a = np.array([[edge - edge // 2, edge // 2]], dtype=np.uint64)
        b = np.ones((2, 1), dtype=np.uint64)
        check_raise(mm, a, b, int_matmul(a, b))
    a, b = np.array([[2**32, 2**32]]), np.array([[2**31], [-(2**31)]])
    assert_bits(mm(a, b), np.array([[0]]))
    a, b = np.array([[-(2**63)]]), np.array([[1]])
    assert_bits(mm(a, b), a)
    assert_bits(mm(np.array([[2**32]]), np.array([[-(2**31)]])), np.array([[-(2**63)]]))
    with pytest.raises(gm.ResultOverflow):
        mm(np.array([[-(2**63)]]), np.array([[-1]]))


def test_one_overflowing_element_among_many_is_found(mm: Matmul) -> None:
    rng = np.random.default_rng(12)
    for i, j in ((0, 0), (69, 130), (35, 64), (69, 0)):
        a, b = rng.integers(-9, 9, (70, 40)), rng.integers(-9, 9, (40, 131))
        a[i], b[:, j] = 0, 0
        a[i, 7], b[7, j] = 2**33, 2**30  # their product is 2^63, one above the largest int64
        check_raise(mm, a, b, int_matmul(a, b))
        b[7, j] = -(2**30)  # and −2^63 fits
        check_raise(mm, a, b, int_matmul(a, b))


@pytest.mark.parametrize("sign", ["random", "equal", "minimum"])
def test_widths_come_from_the_data(mm: Matmul, sign: str) -> None:
    """All widths of both operands, with every entry at the edge of its width: the largest result of that width."""
    rng = np.random.default_rng(13)
    for w in range(1, 64):
        for v in (1, 8, 16, 31, 53, 63):
            for k in (1, 31, 257) if w % 8 in (0, 7) else (1, 31):
                x, y = (1 << w) - 1, (1 << v) - 1
                if sign == "minimum":
                    x, y = -(1 << w), -(1 << v)
                a, b = np.full((2, k), x, dtype=np.int64), np.full((k, 2), y, dtype=np.int64)
                if sign == "random":
                    a, b = (np.where(rng.random(z.shape) < 0.5, -z, z) for z in (a, b))
                exact = int_matmul(a, b)
                assert_bits(mm(a, b, overflow="object"), exact)
                check_raise(mm, a, b, exact)
                check_wrap(mm, a, b, exact)


def test_rows_and_columns_of_different_widths(mm: Matmul) -> None:
    rng = np.random.default_rng(14)
    a = integers(rng, (64, 50), "i8") >> np.arange(64)[:, None]
    b = integers(rng, (50, 64), "i8") >> np.arange(64)[None, :]
    check_all_modes(mm, a, b)
    check_all_modes(mm, a[40:], b[:, 40:])


def test_python_ints_of_any_size(mm: Matmul) -> None:
    rng = np.random.default_rng(15)

    def big(shape: tuple[int, int], bits: int) -> Array:
        flat = [int.from_bytes(rng.bytes(bits // 8), "little", signed=True) for _ in range(shape[0] * shape[1])]
        return np.array([*flat, None], dtype=object)[:-1].reshape(shape)

    for bits in (8, 56, 64, 72, 128, 256, 1024, 4096):
        a, b = big((5, 9), bits), big((9, 4), 64)
        for overflow in ("raise", "object"):
            assert_bits(mm(a, b, overflow=overflow), int_matmul(a, b))
            assert_bits(mm(b.T, a.T, overflow=overflow), int_matmul(b.T, a.T))
    for bits in (8, 64, 200):
        extreme = np.full((3, 300), 1 << bits, dtype=object)
        assert_bits(mm(extreme, -extreme.T), int_matmul(extreme, -extreme.T))
        assert_bits(mm(extreme - 1, extreme.T - 1), int_matmul(extreme - 1, extreme.T - 1))
    one_wide = big((6, 20), 8)
    one_wide[3, 5] = 1 << 3000
    assert_bits(mm(one_wide, one_wide.T), int_matmul(one_wide, one_wide.T))
    zero = np.full((2, 3), 0, dtype=object)
    assert_bits(mm(zero, zero.T), int_matmul(zero, zero.T))


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=str)
def test_python_ints_beside_a_fixed_width(mm: Matmul, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(16)
    a, b = integers(rng, (4, 6), dtype), integers(rng, (6, 5), "i8").astype(object) << 40
    assert_bits(mm(a, b), int_matmul(a, b))
    assert_bits(mm(b.T, a.T), int_matmul(b.T, a.T))


def test_lists_are_arrays(mm: Matmul) -> None:
    assert_bits(mm([[1, 2], [3, 4]], [[5], [6]]), np.array([[17], [39]]))
    assert_bits(mm([[2**70]], [[-3]]), np.array([[-3 * 2**70]], dtype=object))
    assert_bits(mm(((True, False),), ((True,), (True,))), np.array([[1]]))


@pytest.mark.parametrize("kind", ["i1", "u1", "i4", "i8", "u8", "?"])
def test_every_size_to_20(mm: Matmul, engine: str, kind: str) -> None:
    """All m, n and k in 0…20, as views into larger arrays whose other entries must not matter."""
    rng = np.random.default_rng(17)
    a, b = integers(rng, (20, 20), kind), integers(rng, (20, 20), kind)
    if shift := {"i4": 4, "i8": 40, "u8": 40}.get(kind):  # so that every result fits
        a, b = a >> shift, b >> shift
    if engine != "native" and kind not in ("i1", "i8"):
        pytest.skip("one direct product and one by residues sweep every micro-kernel")
    dtype = np.uint64 if kind[0] == "u" else np.int64
    for k in range(21):
        full = int_matmul(a[:, :k], b[:k]).astype(dtype)
        for m, n in itertools.product(range(21), repeat=2):
            c = mm(a[:m, :k], b[:k, :n])
            if c.dtype != dtype or not np.array_equal(c, full[:m, :n]):
                assert_bits(c, full[:m, :n])


EDGES = sorted({e + d for e in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512) for d in (-1, 0, 1)})


@pytest.mark.parametrize("kind", ["i1", "u1", "i8"])
@pytest.mark.parametrize("axis", ["m", "n", "k"])
def test_sizes_around_tile_edges(mm: Matmul, engine: str, kind: str, axis: str) -> None:
    if engine == "reference":
        pytest.skip("it has no tiles; every size to 20 and deep products run on it")
    rng = np.random.default_rng(18)
    a, b = integers(rng, (513, 513), kind), integers(rng, (513, 513), kind)
    for other in (1, 3, 32, 49):
        whole = {"m": (513, other, other), "n": (other, 513, other), "k": (other, other, 513)}[axis]
        full = None if axis == "k" else int_matmul(a[: whole[0], :other], b[:other, : whole[1]])
        for edge in EDGES:
            m, n, k = {"m": (edge, other, other), "n": (other, edge, other), "k": (other, other, edge)}[axis]
            exact = int_matmul(a[:m, :k], b[:k, :n]) if full is None else full[:m, :n]
            assert_bits(mm(a[:m, :k], b[:k, :n], overflow="wrap"), wrapped(exact, np.dtype(kind)))
            if kind == "i8":
                assert_bits(mm(a[:m, :k], b[:k, :n], overflow="object"), exact)
            else:
                assert_bits(mm(a[:m, :k], b[:k, :n]), exact.astype("i8" if kind == "i1" else "u8"))


def test_sizes_at_tile_edges_in_all_three_directions(mm: Matmul, engine: str) -> None:
    if engine == "reference":
        pytest.skip("it has no tiles; every size to 20 and deep products run on it")
    rng = np.random.default_rng(19)
    a, b = integers(rng, (129, 257), "i8"), integers(rng, (257, 129), "i8")
    for m, n, k in itertools.product((31, 33, 65, 129), (33, 64, 97, 129), (63, 65, 129, 257)):
        with np.errstate(over="ignore"):
            want = a[:m, :k] @ b[:k, :n]
        assert_bits(mm(a[:m, :k], b[:k, :n], overflow="wrap"), want)
        narrow_a, narrow_b = a[:m, :k] >> 48, b[:k, :n] >> 48
        assert_bits(mm(narrow_a, narrow_b), narrow_a @ narrow_b)


@settings(max_examples=60)
@given(data=st.data())
def test_small_matrices_of_any_python_ints(mm: Matmul, data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(0, 4)) for _ in range(3))
    bits = data.draw(st.sampled_from([3, 31, 63, 64, 65, 200, 1500]))
    values = st.one_of(
        st.sampled_from([1 << bits, -(1 << bits), (1 << bits) - 1]), st.integers(-(1 << bits), 1 << bits)
    )

    def draw(rows: int, columns: int) -> Array:
        flat = data.draw(st.lists(values, min_size=rows * columns, max_size=rows * columns))
        return np.array([*flat, None], dtype=object)[:-1].reshape(rows, columns)

    a, b = draw(m, k), draw(k, n)
    for overflow in ("raise", "wrap", "object"):
        assert_bits(mm(a, b, overflow=overflow), int_matmul(a, b))


@settings(max_examples=60)
@given(data=st.data())
def test_small_matrices_of_any_values(mm: Matmul, data: st.DataObject) -> None:
    left, right = (data.draw(st.sampled_from(INTEGER_DTYPES)) for _ in range(2))
    m, k, n = (data.draw(st.integers(0, 5)) for _ in range(3))

    def draw(shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
        low, high = limits(dtype)
        values = st.one_of(st.sampled_from([low, high, low // 2]), st.integers(low, high))
        count = shape[0] * shape[1]
        return np.array(data.draw(st.lists(values, min_size=count, max_size=count)), dtype=dtype).reshape(shape)

    check_all_modes(mm, draw((m, k), left), draw((k, n), right))
