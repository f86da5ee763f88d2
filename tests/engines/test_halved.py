"""One level of Strassen's algorithm over residues, and half of a symmetric product: the same bits as without."""

from dataclasses import replace

import numpy as np
import pytest

from gemmulate.engines import Engine
from gemmulate.engines.residue_system import residue_system
from gemmulate.schemes import blocks, floats
from gemmulate.schemes.integers import choose_integers, multiply_integers

SHAPES = [(1, 1, 1), (2, 3, 2), (24, 8, 64), (25, 9, 65), (23, 7, 63), (97, 260, 131), (3, 33000, 5)]


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("bits", [3, 40, 62])
def test_integers(engine: Engine, m: int, k: int, n: int, bits: int) -> None:
    if engine.name == "reference" and k > 1000:
        pytest.skip("the reference engine has one way for both and is slow at this depth")
    rng = np.random.default_rng(m + k)
    a, bt = (rng.integers(-(2**bits), 2**bits, size, endpoint=True) for size in ((m, k), (n, k)))
    a[0, :], bt[-1, :] = 2**bits, -(2**bits)  # the extremes, where every residue has its largest magnitude or wraps
    plain = residue_system(k << 2 * bits)
    assert plain is not None
    exact = a.astype(object) @ bt.astype(object).T
    low = (exact % 2**64).astype(np.uint64).view(np.int64)
    system = replace(plain, halved=True)
    out = np.empty((m, n), dtype=np.int64)
    operands = engine.pack_integers(True, a, system, bits), engine.pack_integers(False, bt, system, bits)
    largest = engine.multiply_integers(*operands, system, out)
    assert (out == low).all()
    assert largest == max(int(v if v >= 0 else ~v).bit_length() + 1 for v in exact.flat)
    p = 2**61 - 1
    engine.multiply_modular(*operands, system, p, out)
    assert (out == (exact % p).astype(np.int64)).all()


@pytest.mark.parametrize("grade", ["fast", "componentwise", "exact"])
def test_floats(engine: Engine, grade: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine.name == "reference":
        pytest.skip("the reference engine has one way for both")
    rng = np.random.default_rng(9)
    a, bt = rng.standard_normal((71, 150)), rng.standard_normal((133, 150)) * np.exp2(rng.integers(-9, 9, (133, 1)))
    choice = floats.choose_floats(engine, a, bt, grade, anchored=False)  # type: ignore[arg-type]
    plain, fast = np.empty((71, 133)), np.empty((71, 133))
    floats.multiply_floats(engine, a, bt, choice, plain)
    monkeypatch.setattr(floats, "halved", lambda _engine, system, *_: replace(system, halved=True))
    floats.multiply_floats(engine, a, bt, choice, fast)
    assert (plain.view(np.int64) == fast.view(np.int64)).all()


def test_a_symmetric_product_is_multiplied_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """a aᵀ and aᵀ a: the same bits as with a copy of a, with fewer blocks multiplied."""
    monkeypatch.setattr(blocks, "SYMMETRIC_PANEL", 24)
    rng = np.random.default_rng(10)
    for a in (rng.standard_normal((100, 30)), rng.standard_normal((30, 110)).T):
        for grade in ("fast", "componentwise", "exact"):
            got, want = np.empty((len(a), len(a))), np.empty((len(a), len(a)))
            for out, bt in ((got, a), (want, a.copy())):
                choice = floats.choose_floats(engine, a, bt, grade)  # type: ignore[arg-type]
                floats.multiply_floats(engine, a, bt, choice, out)
            assert (got.view(np.int64) == want.view(np.int64)).all()
    for bits in (7, 20, 62):
        x = rng.integers(-(2**bits), 2**bits, (90, 40))
        results = []
        for bt in (x, x.copy()):
            out = np.full((90, 90), 7)
            multiply_integers(engine, x, bt, choose_integers(engine, x, bt), out)
            results.append(out)
        assert (results[0] == results[1]).all()
    covered: list[tuple[int, int]] = []
    blocks.for_blocks(
        engine,
        100,
        100,
        30,
        lambda s: s,
        lambda s: s,
        lambda _l, _r, rows, columns: covered.append((rows.start, columns.start)),
        symmetric=True,
    )
    assert len(covered) == 15  # of 25 blocks
    assert all(i <= j for i, j in covered)
