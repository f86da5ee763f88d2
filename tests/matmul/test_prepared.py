"""Prepared operands: the bits of the originals, surveys and packing done once."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate.engines import get_engine
from gemmulate.engines.base import Engine

from .checks import assert_bits


def operands() -> list[tuple[Any, list[Any]]]:
    rng = np.random.default_rng(71)
    a = rng.standard_normal((90, 130))
    wide = rng.integers(-(2**62), 2**62, (40, 70))
    return [
        (a, [rng.standard_normal((130, 60)), rng.standard_normal((130, 60)) * 2.0**40, rng.standard_normal(130)]),
        (wide, [rng.integers(-9, 9, (70, 30)), rng.integers(-(2**62), 2**62, (70, 3))]),
        (wide.astype(np.int8), [wide.T.astype(np.int8)]),
        (wide.astype(object), [wide.T.astype(object) * 2**70]),
        (a.astype(np.complex128), [a.T + 1j]),
        (rng.standard_normal((3, 20, 30)).astype(np.float32), [rng.standard_normal((30, 8)).astype(np.float32)]),
    ]


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize("engine", ["native", "reference"])
def test_bits_are_those_of_the_original(case: int, engine: str) -> None:
    a, others = operands()[case]
    prepared = gm.prepare(a)
    integer = np.asarray(a).dtype.kind in "iO"
    for options in [{"overflow": "object"}, {"modulus": 97}] if integer else [{}, {"accuracy": "exact"}]:
        for b in [*others, *others]:
            assert_bits(gm.matmul(prepared, b, engine=engine, **options), gm.matmul(a, b, engine=engine, **options))
            if a.ndim == 2 and b.ndim == 2:
                got = gm.matmul(b.T, gm.prepare(a.T), engine=engine, **options)
                assert_bits(got, gm.matmul(b.T, a.T, engine=engine, **options))


def test_survey_and_packing_happen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = get_engine("native", 1)
    calls: list[str] = []
    for name in ("scan", "norms", "pack_floats", "pack_anchored", "pack_integers", "integer_range"):
        original = getattr(engine, name)

        def spy(*arguments: Any, name: str = name, original: Any = original) -> Any:
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(engine, name, spy)

    def fixed(*_: Any) -> Engine:
        return engine

    monkeypatch.setattr(import_module("gemmulate.plan.matmul"), "engine_for", fixed)
    rng = np.random.default_rng(72)
    for a, b, options in (
        (rng.standard_normal((200, 150)), rng.standard_normal((150, 90)), {}),
        (rng.standard_normal((200, 150)), rng.standard_normal((150, 90)), {"accuracy": "exact"}),
        (rng.integers(-(2**60), 2**60, (50, 60)), rng.integers(-(2**60), 2**60, (60, 40)), {"overflow": "object"}),
    ):
        prepared = gm.prepare(a)
        gm.matmul(prepared, b, **options)
        first = len(calls)
        calls.clear()
        gm.matmul(prepared, b, **options)
        assert 0 < len(calls) <= first / 2  # only b's
        calls.clear()


def test_later_changes_are_not_seen_and_values_cannot_be_written() -> None:
    a = np.arange(6.0).reshape(2, 3)
    prepared = gm.prepare(a)
    before = prepared @ np.ones(3)
    a[:] = 7
    assert_bits(prepared @ np.ones(3), before)
    assert_bits(np.ones(2) @ prepared, np.array([3.0, 5.0, 7.0]))
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(prepared)[0, 0] = 1
    assert prepared.shape == (2, 3)
    assert prepared.dtype == np.float64
    assert gm.prepare(prepared) is prepared


def test_what_is_kept_is_bounded() -> None:
    rng = np.random.default_rng(73)
    a = rng.integers(-(2**40), 2**40, (60, 300))
    small, large = gm.prepare(a, max_bytes=400_000), gm.prepare(a)
    for bits in range(3, 41, 3):
        b = rng.integers(-(2**bits), 2**bits, (300, 5))
        b[0, 0] = 2**bits
        want = gm.matmul(a, b, overflow="object")
        assert_bits(gm.matmul(small, b, overflow="object"), want)
        assert_bits(gm.matmul(large, b, overflow="object"), want)
    assert small.nbytes <= a.nbytes + 400_000 + 300_000  # at most one packed form above the bound
    assert large.nbytes > small.nbytes
    with pytest.raises(ValueError, match="max_bytes = -1"):
        gm.prepare(a, max_bytes=-1)
    with pytest.raises(TypeError, match="a is a str"):
        gm.prepare("no matrix")


def test_numbers_of_bytes_of_any_integer_type() -> None:
    a = np.eye(3)
    for limit in (np.int64(0), np.uint8(7), 10**30):
        assert_bits(gm.prepare(a, max_bytes=limit) @ a, a)
    for wrong in (True, np.True_, 1.5, "1", None, np.int64(-1)):
        with pytest.raises(ValueError, match="max_bytes = "):
            gm.prepare(a, max_bytes=wrong)  # type: ignore[arg-type]


def test_what_cannot_be_prepared_or_shared_is_said() -> None:
    with pytest.raises(TypeError, match=r"a is a DoubleDouble.*pass it to gm\.matmul"):
        gm.prepare(gm.DoubleDouble(np.eye(2)))
    prepared = gm.prepare(np.eye(2))
    assert prepared.__array__(np.float32).dtype == np.float32
    assert prepared.__array__(np.float64, copy=False) is prepared.__array__()
    with pytest.raises(ValueError, match="only by a copy"):
        prepared.__array__(np.float32, copy=False)
