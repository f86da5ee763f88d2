"""Python ints to machine words and back: object arrays in, two's complement out, through the native core if built."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gemmulate.engines import native

Array = npt.NDArray[Any]


def int_bounds(x: Array) -> tuple[int, int] | None:
    """(min(0, least), max(0, largest)) of an object array; None where an element is not exactly an int."""
    values, core = x.ravel().tolist(), native.load()
    if core is not None:
        found: tuple[int, int] | None = core.int_bounds(values)
        return found
    if not all(type(v) is int for v in values):
        return None
    return min(0, min(values, default=0)), max(0, max(values, default=0))


def ints_to_int64(x: Array) -> npt.NDArray[np.int64]:
    """Python ints as int64; OverflowError where one does not fit."""
    core = native.load()
    if core is None:
        return x.astype(np.int64)
    result: npt.NDArray[np.int64] = core.ints_to_int64(x.ravel().tolist()).reshape(x.shape)
    return result


def ints_to_words(x: Array, words: int, limb_words: int = 1, limbs: int = 1) -> npt.NDArray[np.uint32]:
    """Two's complement words of 32 bits, shape (*x.shape, words), least first.

    With more limbs than one they are balanced: words [0, limb_words), [limb_words, 2 limb_words), …, the last with all
    that is left, are two's complement numbers by themselves and add up to x. ValueError where the words do not hold an
    int.
    """
    core = native.load()
    if core is not None:
        result: npt.NDArray[np.uint32] = core.ints_to_words(x.ravel().tolist(), words, limb_words, limbs)
        return result.reshape(*x.shape, words)
    half = sum(1 << 32 * limb_words * limb - 1 for limb in range(1, limbs))
    try:
        data = b"".join(((v + half) ^ half).to_bytes(4 * words, "little", signed=True) for v in x.ravel().tolist())
    except OverflowError:
        raise ValueError("an int has more bits than the words hold") from None
    return np.frombuffer(data, dtype="<u4").astype(np.uint32).reshape(*x.shape, words)


def words_to_ints(words: npt.NDArray[np.uint64]) -> Array:
    """Two's complement words of 64 bits, shape (…, words), least first, as an object array of Python ints."""
    *shape, count = words.shape
    flat, core = np.ascontiguousarray(words).reshape(-1, count), native.load()
    out = np.empty(len(flat), dtype=object)
    if core is not None:
        out[:] = core.words_to_ints(flat)
    else:
        data, size = flat.astype("<u8").tobytes(), 8 * count
        out[:] = [int.from_bytes(data[i : i + size], "little", signed=True) for i in range(0, len(data), size)]
    return out.reshape(shape)
