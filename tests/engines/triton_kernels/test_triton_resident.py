"""Float products whose bits are chosen on the device: the host's choice and bits, and nothing is read by the host."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from triton_inputs import bits, hostile, refuse_reads

import gemmulate as gm
from gemmulate.engines import get_engine
from gemmulate.engines.base import NO_EXPONENT, Norms, Scan
from gemmulate.engines.resident import ChoiceRules
from gemmulate.engines.residue_system import residue_system
from gemmulate.engines.torch_array import TorchArray
from gemmulate.engines.triton import choose
from gemmulate.engines.triton.engine import TritonEngine
from gemmulate.engines.triton.floating import layout_of
from gemmulate.engines.triton.resident import TritonResident
from gemmulate.schemes import floats, resident
from gemmulate.schemes.anchored import span

OTHER = "native" if next(r for r in gm.engines() if r.name == "native").available else "reference"
SPANS = (1, 5, 20, 40, 53, 60, 78, 90, 120, 160, 199, 200, 201, 400, 2000)


def made_up_side(rng: np.random.Generator, vectors: int, exact: int, k: int) -> floats.Side:
    """Norms as some matrix might have them, of vectors of which some are zero."""
    top = rng.integers(-50, 50, vectors).astype(np.int32)
    lsb = (top - rng.integers(1, exact + 1, vectors)).astype(np.int32)
    lsb[0] = top[0] - exact
    peak = rng.integers(1 << 14, (1 << 15) + 1, vectors).astype(np.uint64)
    rms = peak * rng.uniform(0.01, 1, vectors)
    square = np.maximum((rms * rms * k).astype(np.uint64), peak * peak)
    total = np.maximum((rms * 0.8 * k).astype(np.uint64), peak)
    zero = rng.random(vectors) < 0.2
    zero[0] = False
    top[zero], lsb[zero] = NO_EXPONENT, -NO_EXPONENT
    for x in (peak, square, total):
        x[zero] = 0
    scan = Scan(top, lsb, np.zeros(vectors, dtype=np.uint8))
    return floats.Side(scan, Norms(total, square, peak), span(scan))


def on_device(side: floats.Side) -> tuple[torch.Tensor, torch.Tensor]:
    scan = np.stack([side.scan.top, -side.scan.lsb, np.zeros_like(side.scan.top)])
    return torch.from_numpy(scan), torch.from_numpy(np.stack([x.view(np.int64) for x in side.norms]))


def hosts_choice(kept: floats.KeptBits, left: floats.Side, right: floats.Side) -> tuple[int, ...]:
    """The fields as `choose_floats` would have them."""
    if kept.t is None:
        return 0, 0, 0, -1, 0
    here = min(kept.t, left.exact_bits), min(kept.t, right.exact_bits)
    system = residue_system(floats.window(left, right, *here))
    if system is None:
        return 0, 0, 0, -1, 0
    rounds = here != (left.exact_bits, right.exact_bits)
    return len(system.moduli), *here, kept.t if kept.repairs else 255, int(kept.grade == "exact" and rounds)


@pytest.mark.parametrize("grade", ["fast", "componentwise", "exact"])
def test_the_choice_is_the_hosts(grade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, kinds = np.random.default_rng(20261130), Counter[tuple[Any, ...]]()
    for case in range(50 if grade == "componentwise" else 25):
        m, n = (int(v) for v in rng.integers(2, 700, 2))
        k = 1 if case == 0 else int(2 ** rng.uniform(0, 20))
        spans = [int(e) for e in rng.choice(SPANS, 2)]
        left, right = (made_up_side(rng, v, e, k) for v, e in zip((m, n), spans, strict=True))
        curve = np.exp(-0.5 * ((np.arange(256) - rng.integers(20, 120)) / rng.uniform(0.3, 20)) ** 2)
        asked = rng.multinomial(m * n, curve / curve.sum()).astype(np.int64)
        asked[255] += int(rng.integers(0, 5)) if case % 3 == 0 else 0
        depths = []
        for vectors, exact in zip((m, n), spans, strict=True):
            count = min(255, exact) + 1
            curve = rng.random(count) ** rng.integers(1, 8) * np.exp(-rng.uniform(0, 0.3) * np.arange(count))
            depths.append(np.zeros(256, dtype=np.int64))
            depths[-1][:count] = rng.multinomial(k * floats.samples(vectors), curve / curve.sum())
        cost = int(rng.choice([2500, 2500, 12, 25]))  # where dots are cheap, they may be all
        monkeypatch.setattr(floats, "EXACT_DOT_COST", float(cost))
        digits = int(rng.choice([53, 24, 11, 8]))
        host = floats.choose_kept_bits(
            grade, left, right, k, digits, lambda _, a=asked: a, lambda d=depths: (d[0], d[1])
        )
        (scan_a, norms_a), (scan_b, norms_b) = on_device(left), on_device(right)
        rules = ChoiceRules(
            *(grade, digits, floats.least_truncation(k), floats.MAX_BITS, cost, floats.FEW_MODULI),
            (floats.samples(m), floats.samples(n)),
        )
        known = [torch.from_numpy(d) for d in depths]
        if grade == "fast":
            known = [choose.classes(norms_a), choose.classes(norms_b)]
        facts = choose.facts(scan_a, norms_a), choose.facts(scan_b, norms_b)
        got = choose.choose(*facts, torch.from_numpy(asked), known[0], known[1], (m, k, n), rules)
        want = hosts_choice(host, left, right)
        assert tuple(got[:5].tolist()) == want, (case, m, k, n, spans, digits, cost)
        kinds[host.grade, host.t is None, host.repairs, want[4]] += 1
    # Every way that a choice can take was taken.
    ways = {"fast": 1, "exact": 3, "componentwise": 4}
    assert len(kinds) >= ways[grade], kinds


def test_roots_of_products_of_two_words() -> None:
    cases = [0, 1, 2, 3, 2**31 - 1, 2**32, 2**32 + 1, 2**62, 2**63 - 1, 123456789123456789]
    x, y = (torch.tensor([v[i] for v in ((a, b) for a in cases for b in cases)] + [0] * 28) for i in range(2))
    out = torch.zeros(128, dtype=torch.int64)
    root_kernel[(1,)](x, y, out)
    assert out.tolist() == [math.isqrt(a * b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]


@choose.triton.jit
def root_kernel(x, y, out):  # type: ignore[no-untyped-def]
    at = choose.tl.arange(0, 128)
    root = choose.root_of_product(choose.tl.load(x + at), choose.tl.load(y + at))
    choose.tl.store(out + at, root.to(choose.tl.int64, bitcast=True))


def test_depths_are_counted_as_the_host_counts() -> None:
    rng = np.random.default_rng(4)
    for dtype in (np.float64, np.float32):
        x = hostile(rng, dtype, (9, 70))
        x[5, 3], x[6, 4], x[7] = np.nan, np.inf, 0.0
        reference = get_engine("reference")
        inner = rng.integers(-9, 9, 70).astype(np.int32)
        top = reference.scan(x, inner).top
        pattern = torch.from_numpy(x.view(f"i{x.itemsize}"))
        got = choose.depths(pattern, layout_of(x.dtype.name), torch.from_numpy(top), torch.from_numpy(inner))
        assert got.tolist() == reference.depths(x, top, inner, choose.BINS).tolist()
        assert got.sum() > 400


def gaussian(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Any, Any]:
    return rng.standard_normal((m, k)), rng.standard_normal((k, n))


def wide(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Any, Any]:
    """A row and a column whose elements all go to the exact dot products, at some grades."""
    a, b = gaussian(rng, m, k, n)
    a[0] *= 2.0 ** rng.integers(-90, 90, k)
    b[:, 1] *= 2.0 ** rng.integers(-90, 90, k)
    return a, b


def scaled_along_k(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Any, Any]:
    a, b = gaussian(rng, m, k, n)
    e = rng.integers(-60, 60, k)
    return a * 2.0**e, b * 2.0 ** -e[:, None]


def cancelling(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Any, Any]:
    a, b = gaussian(rng, m, k, n)
    half = k // 2
    b[half : 2 * half] = -b[:half]
    a[:2, half : 2 * half] = a[:2, :half] * (1 + 2.0**-45 * rng.integers(0, 3, (2, half)))
    return a, b


def single_rows(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Any, Any]:
    a, b = gaussian(rng, m, k, n)
    b[:, 0] *= 2.0 ** rng.integers(-60, 0, k)
    a[1] *= 2.0 ** rng.integers(-90, 0, k)
    a[2], b[:, 3], a[3, 4], a[4, 5] = 0.0, -0.0, np.nan, np.inf
    return a, b


def integers(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Any, Any]:
    return rng.integers(-9, 9, (m, k)).astype(float), rng.integers(-9, 9, (k, n)).astype(float)


@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact"])
@pytest.mark.parametrize("data", [gaussian, wide, scaled_along_k, cancelling, single_rows, integers])
def test_products_have_the_hosts_bits_and_it_reads_nothing(
    accuracy: Any, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, engine = np.random.default_rng(5), TritonEngine("triton", "cpu")
    dtype = np.float32 if data in (wide, cancelling) and accuracy != "exact" else np.float64
    with np.errstate(all="ignore"):
        a, b = (x.astype(dtype) for x in data(rng, 66, 70, 65))
    want = gm.matmul(a, b, accuracy=accuracy, engine=OTHER)
    whole = torch.full((132, 67), 7.0, dtype=torch.from_numpy(want).dtype)
    with monkeypatch.context() as patch:
        refuse_reads(patch)
        gm.matmul(*(torch.from_numpy(x) for x in (a, b)), accuracy=accuracy, engine=engine, out=whole[::2, 1:66])
    assert bits(whole[::2, 1:66]) == bits(want)
    assert (whole[1::2] == 7).all()
    assert (whole[:, [0, 66]] == 7).all()


@pytest.mark.parametrize("dtype", [np.complex128, np.float16])
def test_other_types_and_stacks(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((2, 5, 33), (33, 4)))
    if dtype == np.complex128:
        a = a + 1j * rng.standard_normal(a.shape)
    want = gm.matmul(a, b, accuracy="exact", engine=OTHER)
    with monkeypatch.context() as patch:
        refuse_reads(patch)
        got = gm.matmul(*(torch.from_numpy(x) for x in (a, b)), accuracy="exact", engine=TritonEngine("triton", "cpu"))
    assert bits(got) == bits(want)


def test_the_host_chooses_where_memory_has_no_room_for_all_moduli(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TritonEngine("triton", "cpu")
    a, b = (TorchArray(torch.ones(s, dtype=torch.float64)) for s in ((70, 80), (90, 80)))
    out = TorchArray(torch.empty(70, 90, dtype=torch.float64))
    assert resident.takes_resident(engine, a, b, out)
    assert not resident.takes_resident(engine, a, b, np.empty((70, 90)))
    needed = (70 + 90) * 80 * 49
    for memory, takes in ((2 * needed, True), (2 * needed - 2, False)):
        monkeypatch.setattr(TritonEngine, "memory", lambda _, memory=memory: memory)
        assert resident.takes_resident(engine, a, b, out) == takes
    monkeypatch.setattr(TritonEngine, "capturing", True)
    assert resident.takes_resident(engine, a, b, out)
    # Within a capture there is no other way: it ends before anything is launched.
    for step in ("survey", "choose", "marks", "pack"):
        monkeypatch.delattr(TritonResident, step)
    with pytest.raises(MemoryError, match="split k"):
        resident.multiply_resident(engine, a, b, "exact", out)


@pytest.mark.parametrize("shape", [(1, 1, 1), (20, 1, 30), (1, 300, 2)])
def test_shapes(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = (x * 3.3 for x in gaussian(np.random.default_rng(7), m, k, n))
    for accuracy in ("fast", "fp64", "exact"):
        want = gm.matmul(a, b, accuracy=accuracy, engine=OTHER)  # type: ignore[arg-type]
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        got = gm.matmul(x, y, accuracy=accuracy, engine=TritonEngine("triton", "cpu"))  # type: ignore[arg-type]
        assert bits(got) == bits(want)


def test_nothing_but_zeros() -> None:
    zero = torch.zeros(40, 70, dtype=torch.float64)
    zero[0] = -0.0
    for accuracy in ("fast", "fp64", "exact"):
        got = gm.matmul(zero, zero.T, accuracy=accuracy, engine=TritonEngine("triton", "cpu"))  # type: ignore[arg-type]
        assert bits(got) == bits(gm.matmul(zero.numpy(), zero.T.numpy(), accuracy=accuracy, engine=OTHER))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_small_products_are_exact_dot_products_alone(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, engine = np.random.default_rng(8), TritonEngine("triton", "cpu")
    engine._small_by_dots = True
    monkeypatch.setattr(TritonEngine, "resident", None)
    a, b = hostile(rng, dtype, (6, 34)), hostile(rng, dtype, (5, 34)).T
    a[5, 3], b[2, 4], a[1] = np.nan, -np.inf, -0.0
    want = gm.matmul(a, b, engine=OTHER)
    with monkeypatch.context() as patch:
        refuse_reads(patch)
        got = gm.matmul(torch.from_numpy(a), torch.from_numpy(b), engine=engine)
    assert bits(got) == bits(want)
    assert bits(gm.matmul(a, b, engine=engine)) == bits(want)  # of NumPy's arrays the host's choice
