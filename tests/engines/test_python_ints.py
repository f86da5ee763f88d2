"""Contract of the conversion of Python ints: exact both ways, with the native core and without, and one clear refusal.

Oracle: int.to_bytes, int.from_bytes and arithmetic of Python ints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmulate.engines import native
from gemmulate.engines.python_ints import int_bounds, ints_to_int64, ints_to_words, words_to_ints

INTS = st.integers(-(2**400), 2**400) | st.integers(-5, 5)


@pytest.fixture(params=["native", "plain"], autouse=True, scope="module")
def core(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "plain":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "load", lambda: None)
            yield
    elif native.load() is None:
        pytest.skip("the native core is not built")
    else:
        yield


def objects(values: list[int]) -> Any:
    return np.array([*values, None], dtype=object)[:-1]


EDGES = [s * ((1 << b) + d) for b in (0, 1, 29, 30, 31, 32, 59, 60, 61, 62, 63, 64, 90, 127, 128) for s in (1, -1)
         for d in (-1, 0, 1)]  # fmt: skip


@given(st.lists(INTS, max_size=6))
def test_bounds(values: list[int]) -> None:
    assert int_bounds(objects(values)) == (min(0, *values, 0), max(0, *values, 0))


def test_bounds_of_something_else() -> None:
    class Own(int):
        pass

    for other in (True, 1.5, "1", None, np.int64(3), Own(2)):
        assert int_bounds(np.array([1, other, 3], dtype=object)) is None
    assert int_bounds(np.array([[5, -(2**90)], [2**90, -7]], dtype=object)[:, ::-1].T) == (-(2**90), 2**90)


@given(st.lists(INTS | st.sampled_from(EDGES), min_size=1, max_size=6), st.integers(0, 3))
def test_words_round_trip(values: list[int], extra: int) -> None:
    words = max((v if v >= 0 else ~v).bit_length() for v in values) // 32 + 1 + extra
    got = ints_to_words(objects(values), words)
    assert got.dtype == np.uint32
    assert got.tobytes() == b"".join(v.to_bytes(4 * words, "little", signed=True) for v in values)
    count = -(-words // 2)
    wide = np.frombuffer(b"".join(v.to_bytes(8 * count, "little", signed=True) for v in values), dtype=np.uint64)
    back = words_to_ints(wide.reshape(1, len(values), count))
    assert back.tolist() == [values]
    assert all(type(v) is int for v in back.flat)
    assert [hash(v) for v in back.flat] == [hash(v) for v in values]  # normalised: equal ints are the same numbers
    assert [v + 1 for v in back.flat] == [v + 1 for v in values]


@given(
    st.lists(INTS | st.sampled_from(EDGES), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(0, 2),
)
def test_balanced_limbs(values: list[int], limb_words: int, limbs: int, extra: int) -> None:
    words = max((max(v.bit_length() for v in values) + 2) // 32 + 1, limb_words * (limbs - 1) + 1) + extra
    got = ints_to_words(objects(values), words, limb_words, limbs)
    for v, row in zip(values, got, strict=True):
        pieces = [row[limb_words * i : limb_words * (i + 1) if i + 1 < limbs else None] for i in range(limbs)]
        signed = [int.from_bytes(piece.tobytes(), "little", signed=True) for piece in pieces]
        assert sum(limb << 32 * limb_words * i for i, limb in enumerate(signed)) == v


def test_int64() -> None:
    x = np.array([[2**63 - 1, -(2**63)], [0, -1]], dtype=object)
    assert ints_to_int64(x.T).tolist() == x.T.tolist()
    with pytest.raises(OverflowError):
        ints_to_int64(objects([2**63]))


def test_words_that_are_too_few() -> None:
    for value, words in ((2**31, 1), (-(2**31) - 1, 1), (2**32, 1), (2**95, 3), (-(2**95) - 1, 3), (2**4000, 5)):
        with pytest.raises(ValueError, match="more bits"):
            ints_to_words(objects([1, value]), words)
