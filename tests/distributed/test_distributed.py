"""Contract of gm.distributed: a lazy dask array whose bits are gm.matmul's of the whole operands, for any chunks.

gm.matmul is held to oracles of its own elsewhere; here correct rounding, wide integers and residues also meet oracles
that share no code with the package (Python ints, python-flint).
"""

import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gemmulate as gm
from gemmulate.distributed import graph
from gemmulate.engines import get_engine
from gemmulate.schemes.floats import choose_floats, sampled_depths
from matmul.checks import assert_bits
from matmul.inputs import INTEGER_DTYPES, floats, integers
from matmul.oracles import Array, correctly_rounded, int_matmul

ml_dtypes = pytest.importorskip("ml_dtypes")
da = pytest.importorskip("dask.array")

settings.register_profile(
    "distributed",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
GRADES: tuple[Any, ...] = ("fast", "fp64", "exact", gm.Bits(8), gm.Bits(30), gm.Bits(128))
FLOATS = [np.dtype(t) for t in ("f2", ml_dtypes.bfloat16, "f4", "f8")]
# m k n above 64³, so that "fast" and "fp64" choose bits instead of rounding correctly; odd sizes.
M, K, N = 67, 83, 59


def cuts(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """Chunks of one dimension; some may be empty."""
    inner = sorted(draw(st.lists(st.integers(0, size), max_size=4)))
    return tuple(b - a for a, b in itertools.pairwise([0, *inner, size]))


@st.composite
def chunkings(draw: st.DrawFn, m: int, k: int, n: int) -> tuple[Any, Any]:
    """Chunks of a (m, k) and of b (k, n), which need not agree on k."""
    return (cuts(draw, m), cuts(draw, k)), (cuts(draw, k), cuts(draw, n))


def distributed(a: Array, b: Array, chunks: tuple[Any, Any], **options: Any) -> Array:
    x, y = da.from_array(a, chunks=chunks[0]), da.from_array(b, chunks=chunks[1])
    product = gm.distributed.matmul(x, y, **options)
    assert isinstance(product, da.Array)
    result = product.compute(scheduler="sync")
    assert product.dtype == result.dtype
    assert product.shape == result.shape
    return np.asarray(result)


def signed(rng: np.random.Generator, shape: tuple[int, ...], spread: float) -> Array:
    """Gaussian values times e^(spread · Gaussian), within float64's range."""
    return np.asarray(rng.standard_normal(shape) * np.exp(np.clip(rng.normal(size=shape) * spread, -300, 300)))


def scaled_inside(rng: np.random.Generator) -> tuple[Array, Array]:
    """Operands that only a scaling along k makes easy."""
    d = np.ldexp(1.0, rng.integers(-300, 300, K))
    return signed(rng, (M, K), 0) * d, signed(rng, (K, N), 0) / d[:, None]


def few_need_more(rng: np.random.Generator) -> tuple[Array, Array]:
    """Two elements whose large factor meets zeros: those need far more bits than the rest."""
    a, b = signed(rng, (3 * M, K), 0), signed(rng, (K, 3 * N), 0)
    a[5, 7], b[7, 3:5] = 1e30, 0.0
    return a, b


def hostile(rng: np.random.Generator) -> tuple[Array, Array]:
    """Subnormals, zeros of both signs, cancellation, the largest numbers, NaN and infinities."""
    a, b = floats(rng, (M, K), -40, 40, zeros=0.3), floats(rng, (K, N), -40, 40, zeros=0.3)
    a[3] = floats(rng, (K,), -1074, -1023)
    a[4, ::2], a[4, 1::2] = 1.5, -1.5
    b[:, 4] = 1.0
    a[5], b[:, 5] = -0.0, 2.0
    a[6], b[:, 6] = 1e300, 1e300
    a[7, 70], a[8, 11], b[60, 9], b[2, 10] = np.nan, np.inf, -np.inf, np.nan
    a[9], a[:, 20] = 0.0, -0.0
    return a, b


DATA: dict[str, Callable[[np.random.Generator], tuple[Array, Array]]] = {
    "gaussian": lambda rng: (signed(rng, (M, K), 0), signed(rng, (K, N), 0)),
    "wide": lambda rng: (signed(rng, (M, K), 12), signed(rng, (K, N), 12)),
    "widest": lambda rng: (signed(rng, (M, K), 150), signed(rng, (K, N), 150)),
    "scaled along k": scaled_inside,
    "few elements": few_need_more,
    "hostile": hostile,
    "integers": lambda rng: (rng.integers(-9, 9, (M, K)).astype("f8"), rng.integers(-9, 9, (K, N)).astype("f8")),
}


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("accuracy", GRADES, ids=str)
@settings(settings.get_profile("distributed"), max_examples=4)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_floats_are_those_of_the_whole_product(kind: str, accuracy: Any, data: st.DataObject, seed: int) -> None:
    a, b = DATA[kind](np.random.default_rng(seed))
    got = distributed(a, b, data.draw(chunkings(*a.shape, b.shape[1])), accuracy=accuracy)
    assert_bits(got, gm.matmul(a, b, accuracy=accuracy))
    if accuracy == "exact":
        assert_bits(got, correctly_rounded(a, b))


@pytest.mark.parametrize(
    ("kind", "scaled", "repairs"),
    [("gaussian", False, False), ("scaled along k", True, False), ("few elements", False, True)],
)
def test_these_data_take_every_way(kind: str, scaled: bool, repairs: bool) -> None:
    """Else the test of "fp64" would pass by rounding correctly, and leave scaling and repairs untried."""
    a, b = DATA[kind](np.random.default_rng(1))
    choice = choose_floats(get_engine(), a, b.T, "componentwise")
    assert (choice.grade, choice.rounds_operands) == ("componentwise", True)
    assert (choice.inner is not None, choice.repair.size > 0) == (scaled, repairs)
    fast, fp64, exact = (gm.matmul(a, b, accuracy=accuracy) for accuracy in ("fast", "fp64", "exact"))
    assert len({fast.tobytes(), fp64.tobytes(), exact.tobytes()}) == 3


def test_sampled_depths_of_blocks_add_up() -> None:
    """Of 1030 vectors every fourth is counted, wherever a block begins."""
    rng = np.random.default_rng(15)
    x, engine = floats(rng, (1030, 7), -30, 30), get_engine()
    top = engine.scan(x, None).top
    whole = sampled_depths(engine, x, top, None, 0, len(x))
    assert whole.sum() == 258 * 7
    edges = [0, 1, 6, 7, 500, 503, 1030]
    parts = [sampled_depths(engine, x[i:j], top[i:j], None, i, len(x)) for i, j in itertools.pairwise(edges)]
    assert_bits(sum(parts), whole)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact", gm.Bits(5)], ids=str)
@settings(settings.get_profile("distributed"), max_examples=4)
@given(chunks=chunkings(M, K, N), seed=st.integers(0, 2**32 - 1))
def test_narrower_floats(dtype: np.dtype[Any], accuracy: Any, chunks: tuple[Any, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = floats(rng, (M, K), -9, 9, dtype, zeros=0.1), floats(rng, (K, N), -9, 9, dtype, zeros=0.1)
    a[1, 2], b[3, 4], a[6, 7] = np.nan, np.inf, -np.inf
    got = distributed(a, b, chunks, accuracy=accuracy)
    assert_bits(got, gm.matmul(a, b, accuracy=accuracy))
    if accuracy == "exact":
        assert_bits(got, correctly_rounded(a, b, dtype))


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact", gm.Bits(30)], ids=str)
@settings(settings.get_profile("distributed"), max_examples=3)
@given(chunks=chunkings(M, K, N), seed=st.integers(0, 2**32 - 1))
def test_complex(dtype: str, accuracy: Any, chunks: tuple[Any, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = (signed(rng, (M, K), 3) + 1j * signed(rng, (M, K), 3)).astype(dtype)
    b = (signed(rng, (K, N), 3) + 1j * signed(rng, (K, N), 3)).astype(dtype)
    a[3, 4], b[5, 6] = complex(np.nan, 1), complex(0, np.inf)
    got, want = distributed(a, b, chunks, accuracy=accuracy), gm.matmul(a, b, accuracy=accuracy)
    assert_bits(got.real, want.real)
    assert_bits(got.imag, want.imag)


@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
@settings(settings.get_profile("distributed"), max_examples=60)
def test_integers_of_every_type(data: st.DataObject, seed: int) -> None:
    m, k, n = (data.draw(st.integers(0, 9)) for _ in range(3))
    chunks = data.draw(chunkings(m, k, n))
    types = st.sampled_from(INTEGER_DTYPES)
    rng = np.random.default_rng(seed)
    a, b = integers(rng, (m, k), data.draw(types)), integers(rng, (k, n), data.draw(types))
    if m * k * n:
        want = int_matmul(a.astype(object), b.astype(object))
        assert_bits(distributed(a, b, chunks, overflow="object"), want)
        p = data.draw(st.sampled_from([2, 251, 2**31 - 1, 2**63 - 25, 2**63]))
        assert_bits(distributed(a, b, chunks, modulus=p), (want % p).astype(np.int64))
    try:
        expected = gm.matmul(a, b)
    except gm.ResultOverflow:
        with pytest.raises(gm.ResultOverflow, match=r"rows .* columns .* bits"):
            distributed(a, b, chunks)
    else:
        assert_bits(distributed(a, b, chunks), expected)
    if np.result_type(a, b).kind in "biu":
        assert_bits(distributed(a, b, chunks, overflow="wrap"), a @ b)


def test_parts_may_exceed_what_their_sum_fits() -> None:
    """Each part over k overflows 64 bits, the result does not."""
    a, b = np.array([[2**62, 2**62, 5]]), np.array([[2**62], [-(2**62)], [7]])
    assert distributed(a, b, (((1,), (1, 1, 1)), ((1, 1, 1), (1,)))).tolist() == [[35]]
    top = np.array([[2**63]], dtype=np.uint64), np.array([[1]], dtype=np.uint64)
    assert distributed(*top, (((1,), (1,)), ((1,), (1,)))).tolist() == [[2**63]]


def test_an_overflow_names_block_and_bits() -> None:
    a = np.array([[1, 1], [2**40, 2**40]])
    b = np.array([[1, 2**40], [1, 2**40]])
    x, y = da.from_array(a, chunks=1), da.from_array(b, chunks=1)
    product = gm.distributed.matmul(x, y)
    assert product[:1].compute(scheduler="sync").tolist() == [[2, 2**41]]
    with pytest.raises(gm.ResultOverflow, match="rows 1…1, columns 1…1 needs 83 bits") as caught:
        product.compute(scheduler="sync")
    assert caught.value.bits == 83


def test_python_ints_of_any_size() -> None:
    rng = np.random.default_rng(3)
    a, b = (integers(rng, shape, "i8").astype(object) ** 7 for shape in ((5, 6), (6, 4)))
    want = int_matmul(a, b)
    chunks = ((2, 3), (1, 5)), ((4, 2), (4,))
    assert_bits(distributed(a, b, chunks), want)
    assert_bits(distributed(a, b, chunks, modulus=2**61 - 1), (want % (2**61 - 1)).astype(np.int64))


@pytest.mark.parametrize("kind", ["f8", "i4", "mixed"])
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((7,), (7,)), ((7,), (7, 5)), ((6, 7), (7,)), ((3, 6, 7), (7, 5)), ((2, 1, 6, 7), (3, 7, 5)), ((3, 6, 7), (7,)),
     ((0, 7), (7, 5)), ((6, 0), (0, 5)), ((2, 6, 0), (0, 5)), ((0, 6, 7), (7, 5))],
)  # fmt: skip
@pytest.mark.parametrize("chunk", [2, -1])
def test_vectors_and_stacks(kind: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...], chunk: int) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-50, 50, shape).astype("f8" if kind == "mixed" else kind) for shape in (a_shape, b_shape))
    if kind == "mixed":
        b = b.astype("i8")
    x, y = da.from_array(a, chunks=chunk), da.from_array(b, chunks=chunk)
    assert_bits(gm.distributed.matmul(x, y).compute(scheduler="sync"), gm.matmul(a, b))


def test_operands_that_are_no_dask_arrays() -> None:
    a = np.arange(6).reshape(2, 3)
    assert_bits(gm.distributed.matmul(a, da.from_array(a.T, chunks=1)).compute(scheduler="sync"), gm.matmul(a, a.T))
    assert_bits(gm.distributed.matmul([[2**70]], [[2]]).compute(scheduler="sync"), np.array([[2**71]], dtype=object))


def test_nothing_is_read_before_it_is_computed() -> None:
    reads = []

    def block(block_info: Any = None) -> Array:
        reads.append(block_info)
        return np.ones((20, 30))

    for accuracy in ("fp64", "exact"):
        x = da.map_blocks(block, chunks=((20, 20, 20), (30, 30, 30)), dtype="f8", meta=np.empty((0, 0)))
        product = gm.distributed.matmul(x, x.T, accuracy=accuracy)
        assert not reads
        assert product.chunks == ((20, 20, 20), (20, 20, 20))
        assert (product.compute(scheduler="sync") == 90).all()
        assert reads
        reads.clear()


@pytest.mark.parametrize("kind", ["fast", "fp64", "exact", "integers", "modulus"])
def test_no_task_holds_more_than_a_few_blocks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """k of 40 chunks: a task that gathered a row of blocks would hold 40 of them."""
    largest = 0

    def size(x: Any) -> int:
        if isinstance(x, np.ndarray):
            return x.nbytes
        if isinstance(x, (list, tuple)):
            return sum(map(size, x))
        return sum(map(size, vars(x).values())) if hasattr(x, "__dict__") else 0

    def measure(function: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal largest
        result = function(*arguments)
        largest = max(largest, size(list(arguments)) + size(result))
        return result

    add = graph.Tasks.add
    monkeypatch.setattr(
        graph.Tasks, "add", lambda tasks, function, *arguments: add(tasks, measure, function, *arguments)
    )
    rng = np.random.default_rng(7)
    block = 32
    whole = floats(rng, (2 * block, 40 * block), -3, 3)
    options: dict[str, Any] = {"accuracy": kind}
    if kind in ("integers", "modulus"):
        whole = integers(rng, whole.shape, "i2").astype("i8")
        options = {"modulus": 2**61 - 1} if kind == "modulus" else {}
    x = da.from_array(whole, chunks=block)
    product = gm.distributed.matmul(x, x.T, **options)
    assert_bits(product.compute(scheduler="sync"), gm.matmul(whole, whole.T, **options))
    # Eight parts, of three words an element at most, and their sum; 160 kB are what survives of surveys: vectors.
    assert 0 < largest < (graph.FAN_IN + 1) * 3 * 8 * block**2 + 160_000 < 40 * 8 * block**2 * 2


def test_the_same_bits_in_other_processes() -> None:
    a, b = hostile(np.random.default_rng(9))
    x, y = da.from_array(a, chunks=30), da.from_array(b, chunks=40)
    got = gm.distributed.matmul(x, y).compute(scheduler="processes", num_workers=2)
    assert_bits(got, gm.matmul(a, b))


def test_the_same_bits_in_many_threads_on_every_engine() -> None:
    a, b = few_need_more(np.random.default_rng(11))
    x, y = da.from_array(a, chunks=30), da.from_array(b, chunks=40)
    for engine in (None, "reference"):
        got = gm.distributed.matmul(x, y, engine=engine).compute(scheduler="threads", num_workers=4)
        assert_bits(got, gm.matmul(a, b))


def test_a_product_of_products_is_one_graph() -> None:
    rng = np.random.default_rng(13)
    a = rng.integers(-9, 9, (6, 6))
    x = da.from_array(a, chunks=4)
    y = gm.distributed.matmul(gm.distributed.matmul(x, x), x) + 1
    assert_bits(y.compute(scheduler="sync"), a @ a @ a + 1)


def test_bad_input_is_named_at_once() -> None:
    x = da.ones((4, 5), chunks=2)
    unknown = x[x[:, 0] > 0]
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ValueError, r"a has chunks of unknown size.*a\.compute_chunk_sizes\(\)", lambda: (unknown, x.T, {})),
        (ValueError, r"shape \(4, 5\) and b has shape \(4, 5\).*\(5\) must equal.*\(4\)", lambda: (x, x, {})),
        (ValueError, "b is 0-dimensional", lambda: (x, x.sum(), {})),
        (ValueError, "accuracy = 'fp65' is unknown", lambda: (x, x.T, {"accuracy": "fp65"})),
        (ValueError, "engine = 'none' is unknown", lambda: (x, x.T, {"engine": "none"})),
        (TypeError, "modulus = 7 needs integer operands, a is float64", lambda: (x, x.T, {"modulus": 7})),
        (TypeError, "b has dtype <U1", lambda: (x, da.from_array(np.full((5, 2), "x")), {})),
        (TypeError, "a is a masked array", lambda: (np.ma.masked_array([[1.0]], [[True]]), x, {})),
        (ValueError, "do not broadcast", lambda: (da.ones((2, 4, 5)), da.ones((3, 5, 4)), {})),
    ]  # fmt: skip
    for error, message, operands in cases:
        a, b, options = operands()
        with pytest.raises(error, match=message):
            gm.distributed.matmul(a, b, **options)


def test_integers_that_floats_do_not_hold_are_named_when_computed() -> None:
    x = da.from_array(np.array([[2**53 + 1]]), chunks=1)
    product = gm.distributed.matmul(x, da.ones((1, 1)))
    with pytest.raises(TypeError, match=r"a is int64 with values beyond 2\^53"):
        product.compute(scheduler="sync")


def test_without_dask_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(ImportError, match=r'pip install "dask\[array\]"'):
        gm.distributed.matmul(np.eye(2), np.eye(2))
