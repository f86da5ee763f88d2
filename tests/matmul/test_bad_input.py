"""Bad input gets one clear error that names the argument and the way out: no crash, no hang, no wrong number."""

import decimal
import fractions
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse

import gemmulate as gm
from matmul.checks import assert_bits, result_or_refusal
from matmul.oracles import correctly_rounded, int_matmul

Matmul = Callable[..., Any]
EYE = np.eye(3)


def names(argument: str, message: str) -> bool:
    """`argument` stands in the message as a name; for "a" and "b", not as an English article."""
    if argument not in ("a", "b"):
        return re.search(rf"\b{argument}\b", message) is not None
    quoted = rf"['\"`]{argument}['\"`]"
    used = rf"(?<![\w'])\(?{argument}(?:[.:,@\[)]| ?[=×@]| (?:has|is|holds|must|contains|of shape|with|and b|at)\b)"
    return re.search(f"{quoted}|{used}", message) is not None


def assert_refused(
    call: Callable[[], Any], errors: type[Exception] | tuple[type[Exception], ...], argument: str, *parts: str
) -> None:
    with pytest.raises(errors) as caught:
        call()
    message = str(caught.value)
    assert names(argument, message), f"the error does not name {argument}: {message}"
    for part in parts:
        assert part in message, f"{part!r} is missing: {message}"
    assert "\n" not in message.strip(), "an error is one line"
    assert len(message) < 500


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3), (4, 5)),
        ((2, 3), (2, 3)),
        ((3,), (4,)),
        ((3,), (2, 3)),
        ((2, 3), (2,)),
        ((2, 0), (1, 2)),
        ((2, 2, 3), (3, 3, 4)),
        ((2, 5, 2, 3), (3, 5, 3, 4)),
        ((2, 2, 3), (3, 2, 4)),
    ],
)
@pytest.mark.parametrize("dtype", ["f8", "i8", "?", "O"])
def test_shapes_that_do_not_fit(mm: Matmul, left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(ValueError, match=r"matmul|mismatch|broadcast"):
        np.matmul(np.ones(left), np.ones(right))
    a, b = np.ones(left, dtype=dtype), np.ones(right, dtype=dtype)
    for argument in ("a", "b"):
        assert_refused(lambda: mm(a, b), ValueError, argument, str(left), str(right))


@pytest.mark.parametrize("scalar", [3, 2.5, np.float64(1), np.int8(1), np.array(7), True, np.array(1, dtype=object)])
def test_scalars_are_no_matrices(mm: Matmul, scalar: Any) -> None:
    assert_refused(lambda: mm(scalar, EYE), ValueError, "a")
    assert_refused(lambda: mm(EYE, scalar), ValueError, "b")


def objects(*values: Any) -> np.ndarray[Any, Any]:
    x = np.empty((1, len(values)), dtype=object)
    x[0] = values
    return x


WRONG = {
    "text": [["a", "b"]],
    "string": "1 2; 3 4",
    "bytes": np.array([[b"1", b"2"]]),
    "unicode array": np.array([["1", "2"]]),
    "dates": np.array([["2026-01-01", "2026-01-02"]], dtype="M8[D]"),
    "durations": np.array([[1, 2]], dtype="m8[s]"),
    "None": None,
    "a list of None": [[None, 1]],
    "a set": {1, 2},
    "a dictionary": {"x": 1},
    "an object": object(),
    "a function": len,
    "a generator": (x for x in (1, 2)),
    "a record": np.zeros((2, 2), dtype=[("x", "f8"), ("y", "i4")]),
    "void": np.zeros((1, 2), dtype="V3"),
    "float objects": objects(1.5, 2.5),
    "whole float objects": objects(1.0, 2.0),
    "NumPy float objects": objects(np.float64(1), 2),
    "fractions": objects(fractions.Fraction(1, 2), 1),
    "decimals": objects(decimal.Decimal("0.1"), 1),
    "complex objects": objects(1j, 1),
    "strings in objects": objects("3", 1),
    "None in objects": objects(None, 1),
    "arrays in objects": objects(np.ones(2), np.ones(2)),
    "a sparse matrix": scipy.sparse.csr_array(np.eye(2)),
    "one float late among ints": np.array([[1, 2, 3, 4.5]], dtype=object),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_values_that_are_no_numbers(mm: Matmul, name: str) -> None:
    value = WRONG[name]
    for overflow in ("raise", "object", "wrap"):
        assert_refused(
            lambda o=overflow: mm(value, np.ones((2, 2), dtype=np.int64), overflow=o), (TypeError, ValueError), "a"
        )
        assert_refused(
            lambda o=overflow: mm(np.ones((2, 1), dtype=np.int64), value, overflow=o), (TypeError, ValueError), "b"
        )
    two_dimensional = np.ndim(value) == 2 if not isinstance(value, (set, dict)) else False
    if two_dimensional:  # the shape is fine, so it is the type that is wrong
        k = np.shape(value)[1]
        assert_refused(lambda: mm(value, np.ones((k, 2), dtype=np.int64)), TypeError, "a")
        assert_refused(lambda: mm(np.ones((2, np.shape(value)[0]), dtype=np.int64), value), TypeError, "b")


@pytest.mark.parametrize("dtype", ["g", "G"])
def test_dtypes_without_an_exact_product_yet(mm: Matmul, dtype: str) -> None:
    x = np.ones((3, 3), dtype=dtype)
    if np.dtype(dtype) in (np.dtype("f8"), np.dtype("c16")):
        pytest.skip("long double is float64 on this platform")
    assert_refused(lambda: mm(x, EYE), TypeError, "a", str(x.dtype))
    assert_refused(lambda: mm(EYE, x), TypeError, "b", str(x.dtype))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_narrower_types_are_exact_or_refused(mm: Matmul, dtype: Any) -> None:
    x = np.array([[1.5, -3.0], [0.25, 2.0]], dtype=dtype)
    got, refused = result_or_refusal(lambda: mm(x, x, accuracy="exact"), TypeError)
    if refused is not None:
        assert names("a", refused)
        assert str(x.dtype) in refused
        return
    assert got.dtype == x.dtype
    assert got.astype(float).tolist() == [[1.5, -10.5], [0.875, 3.25]]


def test_other_holders_of_integers(mm: Matmul) -> None:
    """Anything numpy.asarray takes as integers, and NumPy's own integers inside an object array."""

    class Holder:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
            return np.array([[1, 2], [3, 4]])

    assert_bits(mm(Holder(), [[1], [1]]), np.array([[3], [7]]))
    assert_bits(mm(memoryview(np.array([[1, 2]])), range(2)), np.array([2]))
    mixed = objects(np.int64(2**62), np.uint8(255), 2**80)
    assert_bits(mm(mixed, objects(4, 2, 1).T), int_matmul(mixed, objects(4, 2, 1).T))


def test_ragged_lists(mm: Matmul) -> None:
    ragged = [[1, 2], [3]]
    assert_refused(lambda: mm(ragged, [[1], [2]]), (TypeError, ValueError), "a")
    assert_refused(lambda: mm([[1, 2]], ragged), (TypeError, ValueError), "b")


def test_masked_arrays_do_not_lose_their_mask(mm: Matmul) -> None:
    masked = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    for a, b, argument in ((masked, np.eye(2), "a"), (np.eye(2), masked, "b")):
        assert_refused(lambda a=a, b=b: mm(a, b), TypeError, argument, "mask")


def test_matrix_subclass_gives_the_right_values(mm: Matmul) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix([[1, 2], [3, 4]])
    got, refused = result_or_refusal(lambda: mm(matrix, matrix), TypeError)
    if refused is not None:
        assert names("a", refused)
        return
    assert np.array_equal(np.asarray(got), [[7, 10], [15, 22]])


@pytest.mark.parametrize("left", ["f4", "f8"])
@pytest.mark.parametrize("right", ["?", "i1", "u2", "i4", "u4", "i8", "u8", "O"])
def test_integers_beside_floats_are_exact_or_refused(mm: Matmul, left: str, right: str) -> None:
    """Never an integer that was rounded on its way: 2^62 + 1 is no float64."""
    a = np.array([[1.5, -2.0, 0.25]], dtype=left)
    top = {"?": 1, "i1": 127, "u2": 65535, "i4": 2**31 - 1, "u4": 2**32 - 1, "O": 2**70 + 1}.get(right, 2**62 + 1)
    b = np.array([[top], [1], [0]], dtype=right)
    for x, y in ((a, b), (b.T, a.T)):
        got, refused = result_or_refusal(lambda x=x, y=y: mm(x, y, accuracy="exact"), TypeError)
        if refused is not None:
            assert names("a", refused) or names("b", refused)
            assert "float" in refused
            continue
        assert got.dtype == np.result_type(a, b)
        exact = fractions.Fraction(3 * top - 4, 2)
        want = correctly_rounded(np.array([[1.0]]), np.array([[float(exact)]]), got.dtype)  # float() rounds once
        assert_bits(got, want)


def test_signed_beside_unsigned_64_bit(mm: Matmul) -> None:
    """NumPy goes to float64 here; the exact result is int64 where it fits."""
    a, b = np.array([[-3, 2**62]]), np.array([[2**63 + 5], [2]], dtype=np.uint64)
    assert_bits(mm(a, b, overflow="object"), int_matmul(a, b))
    with pytest.raises(gm.ResultOverflow):
        mm(a, b)
    assert_bits(mm(a[:, :1], b[1:]), np.array([[-6]]))


@pytest.mark.parametrize("value", ["exakt", "", "EXACT", "fp128", 64, None, 1.0, ["exact"], b"exact"])
@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_unknown_accuracy(mm: Matmul, value: Any, dtype: str) -> None:
    x = EYE.astype(dtype)
    assert_refused(
        lambda: mm(x, x, accuracy=value), (ValueError, TypeError), "accuracy", repr(value), "exact", "fp64", "fast"
    )


@pytest.mark.parametrize("value", ["ignore", "", "Wrap", None, 0, ["wrap"]])
@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_unknown_overflow(mm: Matmul, value: Any, dtype: str) -> None:
    x = EYE.astype(dtype)
    assert_refused(
        lambda: mm(x, x, overflow=value), (ValueError, TypeError), "overflow", repr(value), "raise", "wrap", "object"
    )


@pytest.mark.parametrize("value", ["cuda-9000", "", "Native", 3, ["native"]])
def test_unknown_engine(value: Any) -> None:
    assert_refused(
        lambda: gm.matmul(EYE, EYE, engine=value), (ValueError, TypeError), "engine", repr(value), "reference"
    )


@pytest.mark.parametrize("value", [0, -1, -(2**70), 1.5, 2.0, "2", [1], np.nan])
def test_thread_counts_that_are_none(mm: Matmul, value: Any) -> None:
    for x in (EYE, EYE.astype(int), np.empty((0, 0))):
        assert_refused(lambda x=x: mm(x, x, threads=value), (ValueError, TypeError), "threads", repr(value))


def test_thread_counts_that_are_fine(mm: Matmul) -> None:
    for value in (None, 1, 2, np.int64(3), np.uint8(4), 8, 64):
        assert_bits(mm(EYE, EYE, threads=value), EYE)
    for value in (10**6, 2**31, 2**70):  # more than any machine has: as many as there are, or refused
        got, refused = result_or_refusal(lambda v=value: mm(EYE, EYE, threads=v), ValueError)
        if refused is None:
            assert_bits(got, EYE)
        else:
            assert "threads" in refused


def test_unknown_keywords_and_missing_operands() -> None:
    with pytest.raises(TypeError):
        gm.matmul(EYE, EYE, acuracy="exact")
    with pytest.raises(TypeError):
        gm.matmul(EYE)
    with pytest.raises(TypeError):
        gm.matmul(EYE, EYE, "exact")


def test_a_failed_call_leaves_nothing_behind(mm: Matmul) -> None:
    out = np.full((3, 3), 55.0)
    for call in (
        lambda: mm(EYE, np.ones((4, 3)), out=out),
        lambda: mm(EYE, EYE, accuracy="none", out=out),
        lambda: mm(EYE, objects(1.5, 1, 2).T, out=out),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
        assert (out == 55).all()
    assert_bits(mm(EYE, EYE), EYE)


HUGE = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
import numpy as np, gemmulate as gm
engine, dtype, m, k, n = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
one = np.ones((1, 1), dtype=dtype)
a, b = np.broadcast_to(one, (m, k)), np.broadcast_to(one, (k, n))
start = time.monotonic()
try:
    c = gm.matmul(a, b, engine=engine)
except (ValueError, MemoryError, OverflowError) as error:
    print("refused", time.monotonic() - start, type(error).__name__, error)
else:
    assert c.shape == (m, n) and (c == k).all(), c
    print("computed", time.monotonic() - start)
"""


@pytest.mark.parametrize(
    ("dtype", "m", "k", "n", "may_compute"),
    [
        ("i1", 1, 2**33, 1, True),
        ("f8", 1, 2**33, 1, True),
        ("i8", 2, 2**31 + 1, 2, True),
        ("i1", 1, 2**62, 1, False),
        ("f8", 1, 2**59, 1, False),
        ("f8", 2**31, 1, 2**31, False),
        ("i1", 2**40, 1, 2**40, False),
        ("i8", 2**40, 0, 2**40, False),
    ],
)
def test_sizes_beyond_memory(engine: str, dtype: str, m: int, k: int, n: int, may_compute: bool) -> None:
    """Zero-stride operands of any depth take no memory: the product is computed or refused, never a crash or a hang."""
    if engine not in ("native", "reference"):
        pytest.skip("sizes are judged before the instruction set is chosen")
    run = subprocess.run(
        [sys.executable, "-c", HUGE, engine, dtype, str(m), str(k), str(n)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert run.returncode == 0, f"exit {run.returncode}: {run.stderr[-2000:]}"
    verdict, seconds, *reason = run.stdout.split()
    if verdict == "computed":
        assert may_compute
    else:
        assert float(seconds) < 5
        assert re.search(r"\b(k|a|b|memory|allocate|bytes|large|big|GiB|shape)\b", " ".join(reason)), run.stdout
