"""The short way of small products against the general way: the same bits, types and errors, whatever is asked."""

import itertools
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate.engines import get_engine
from gemmulate.engines.base import Engine
from gemmulate.plan import small

from .checks import assert_bits
from .oracles import correctly_rounded

Array = np.ndarray[Any, Any]
TYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"overflow": "wrap"},
    {"overflow": "object"},
    {"modulus": 97},
    {"modulus": 2**31 - 1},
    {"modulus": 2**61 - 1, "overflow": "wrap"},
    {"modulus": 2**63},
]


def outcome(a: Any, b: Any, engine: str, options: dict[str, Any]) -> Any:
    """The result, or the error with everything that it says."""
    try:
        return gm.matmul(a, b, engine=engine, **options)
    except (TypeError, ValueError, gm.ResultOverflow) as error:
        return type(error), str(error), getattr(error, "bits", None)


def both(monkeypatch: pytest.MonkeyPatch, a: Any, b: Any, engine: str, options: dict[str, Any]) -> Any:
    """The outcome of the short way, after comparing it with the general way's."""
    got = outcome(a, b, engine, options)
    with monkeypatch.context() as patch:
        patch.setattr(small, "LARGEST", 0)
        want = outcome(a, b, engine, options)
    if isinstance(want, tuple):
        assert got == want
    else:
        assert type(got) is type(want)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert got.strides == want.strides
        assert got.flags.writeable == want.flags.writeable
        assert got.base is None or got.base.size == got.size
        if got.dtype.kind == "f":
            assert_bits(got, want)
        else:
            assert (got == want).all()
    return got


@pytest.mark.parametrize("left", TYPES)
def test_integers(monkeypatch: pytest.MonkeyPatch, engine: str, left: str) -> None:
    rng = np.random.default_rng(ord(left[0]) + len(left))
    for right, bits, options in itertools.product(TYPES, (7, 30, 64), OPTIONS):
        m, k, n = rng.integers(1, 12, 3)
        a, b = (
            rng.integers(0, 2, size).astype(bool)
            if t == "?"
            else rng.integers(
                max(int(np.iinfo(t).min), -(1 << bits - 1)),
                min(int(np.iinfo(t).max), (1 << bits - 1) - 1),
                size,
                dtype=t,
                endpoint=True,
            )
            for t, size in ((left, (m, k)), (right, (k, n)))
        )
        both(monkeypatch, a, b, engine, options)


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -1, 0, 2**31])
def test_errors_say_the_same(monkeypatch: pytest.MonkeyPatch, engine: str, value: int) -> None:
    a = np.full((3, 4), value)
    a[1] = 1
    for b in (a.T, np.ones((4, 2), dtype=np.int64), np.full((4, 2), 2**64 - 1, dtype=np.uint64)):
        for options in OPTIONS:
            both(monkeypatch, a, b, engine, options)
    unsigned = np.full((3, 4), 2**64 - 1, dtype=np.uint64)
    error = both(monkeypatch, unsigned, unsigned.T, engine, {})
    assert error[0] is gm.ResultOverflow
    assert error[2] == (4 * (2**64 - 1) ** 2).bit_length() + 1


FLOATS: dict[str, Any] = {
    "gaussian": lambda rng, s: rng.standard_normal(s),
    "integral": lambda rng, s: np.rint(3 * rng.standard_normal(s)),
    "sparse": lambda rng, s: np.where(rng.random(s) < 0.8, -0.0, rng.standard_normal(s)),
    "zeros": lambda rng, s: np.where(rng.random(s) < 0.5, -0.0, 0.0),
    "wide": lambda rng, s: rng.standard_normal(s) * 2.0 ** rng.integers(-60, 60, s),
    "tiny": lambda rng, s: rng.standard_normal(s) * 2.0**-70,
    "huge": lambda rng, s: rng.standard_normal(s) * 2.0**66,
    "far apart": lambda rng, s: rng.standard_normal(s) * 2.0 ** rng.choice([-400, 0, 400], s),
    "powers": lambda rng, s: 2.0 ** rng.integers(-30, 30, s) * rng.choice([-1, 1], s),
    "special": lambda rng, s: rng.choice([0.0, -0.0, 1.0, -1.5, 2.0, 0.1, np.inf, -np.inf, np.nan], s),
}


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("kind", FLOATS)
def test_floats(monkeypatch: pytest.MonkeyPatch, engine: str, kind: str, dtype: str) -> None:
    rng = np.random.default_rng(len(kind))
    for m, k, n in [(1, 1, 1), (4, 4, 4), (3, 5, 9), (8, 17, 16), (16, 1, 33), (1, 200, 1), (12, 40, 24)]:
        with np.errstate(all="ignore"):
            a, b = (FLOATS[kind](rng, s).astype(dtype) for s in ((m, k), (k, n)))
        for accuracy in ("fast", "exact"):
            got = both(monkeypatch, a, b, engine, {"accuracy": accuracy})
        if np.isfinite(a).all() and np.isfinite(b).all():
            assert_bits(got, correctly_rounded(a, b))
    both(monkeypatch, a, b, engine, {"accuracy": gm.Bits(20)})
    both(monkeypatch, a, b, engine, {"modulus": 7})


def test_halfway_cases_and_cancellation(engine: str) -> None:
    """Sums on a rounding boundary of the result type, or beside it by the last bit of the least product."""
    for dtype, digits, least in (("f8", 53, 2.0**-120), ("f4", 24, 2.0**-100)):
        odd = 2.0 ** (digits - 1) + 1
        rows = [[s * odd, s * 0.5, t * least] for s in (1, -1) for t in (1, 0, -1)]
        rows += [[s * 2.0**digits, -s * 0.5, t * least] for s in (1, -1) for t in (1, 0, -1)]
        rows += [[odd, -odd, t * least] for t in (1, 0, -1)]
        a, b = np.array(rows, dtype=dtype), np.array([[1, -1], [1, -1], [1, 1]], dtype=dtype)
        assert_bits(gm.matmul(a, b, engine=engine), correctly_rounded(a, b))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i1", "u2", "?"])
def test_layouts(monkeypatch: pytest.MonkeyPatch, engine: str, dtype: str) -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 2 if dtype == "?" else 100, s).astype(dtype) for s in ((8, 8), (8, 8)))
    raw = np.zeros(8 * 8 * a.itemsize + 1, dtype=np.uint8)
    unaligned = raw[1:].view(dtype).reshape(8, 8)
    unaligned[...] = a
    frozen = a.copy()
    frozen.flags.writeable = False
    record = np.zeros((8, 8), dtype=[("pad", "u1"), ("x", dtype)])
    record["x"] = a
    odd_stride = np.lib.stride_tricks.as_strided(a, (8, 1), (a.itemsize * 8, 5))  # of a length that has no stride
    swapped = a.astype(a.dtype.newbyteorder(">"))
    for x in (a, a.T, a[::-1], a[:, ::-2], unaligned, frozen, record["x"], swapped, np.broadcast_to(a[0], (8, 8))):
        both(monkeypatch, x, b[: x.shape[1]], engine, {})
        both(monkeypatch, b[:, : x.shape[0]], x, engine, {})
    both(monkeypatch, odd_stride, b[:1], engine, {})
    both(monkeypatch, a.tolist(), b, engine, {})
    both(monkeypatch, a[0], b, engine, {})
    both(monkeypatch, a, b[:5], engine, {})
    both(monkeypatch, a[:0], b, engine, {})
    both(monkeypatch, a[:, :0], b[:0], engine, {})
    both(monkeypatch, np.ma.masked_array(a), b, engine, {})
    both(monkeypatch, a.view(type("Subclass", (np.ndarray,), {})), b, engine, {})


def test_small_products_take_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    native = get_engine("native")
    for name in ("exact_product", "exact_integer_product"):
        method = getattr(type(native), name)

        def counted(self: Engine, *args: Any, name: str = name, method: Any = method, **named: Any) -> bool:
            calls.append(name)
            return bool(method(self, *args, **named))

        monkeypatch.setattr(type(native), name, counted)
    x = np.arange(16.0).reshape(4, 4) + 0.1
    gm.matmul(x, x, engine="native")
    assert calls == ["exact_product"]
    for options in ({}, {"modulus": 5}, {"overflow": "wrap"}):
        gm.matmul(x.astype(int), x.astype(int), engine="native", **options)
    assert calls[1:] == ["exact_integer_product"] * 3
    gm.matmul(np.ones((65, 64)), np.ones((64, 64)), engine="native")
    assert len(calls) == 4
