"""Contract: `gm.plan` knows modulus= and formats= as `gm.matmul` does, and names the encodings that then run."""

import json
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from gemmulate import encodings, formats
from gemmulate.encodings import Encoding
from gemmulate.schemes import encoded_engine, partial


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Keys of the encodings of every product that really runs through planes."""
    keys: list[tuple[str, ...]] = []
    designs, covers = encoded_engine.multiply_prepared, partial.multiply_prepared
    direct = encoded_engine.multiply_direct

    def note_design(plain: Any) -> Any:
        def spy(left: Any, *rest: Any) -> Any:
            keys.append(tuple(e.key for e in left.design.encodings))
            return plain(left, *rest)

        return spy

    def note_direct(a: Any, b: Any, encoding: Encoding, *rest: Any) -> Any:
        keys.append((encoding.key,))
        return direct(a, b, encoding, *rest)

    monkeypatch.setattr(encoded_engine, "multiply_prepared", note_design(designs))
    monkeypatch.setattr(partial, "multiply_prepared", note_design(covers))
    monkeypatch.setattr(encoded_engine, "multiply_direct", note_direct)
    return keys


def floats(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


def integers(seed: int, bits: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-(2**bits), 2**bits, shape)


A, B = floats(1, 5, 40), floats(2, 40, 4)
I40, J40 = integers(3, 40, 5, 9), integers(4, 40, 9, 4)
SMALL = integers(5, 7, 5, 9).astype(np.int8)
HUGE = I40.astype(object) ** 2
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "fp64": (A, B, {"accuracy": "fp64"}),
    "exact": (A, B, {"accuracy": "exact"}),
    "fast": (A, B, {"accuracy": "fast"}),
    "bits": (A, B, {"accuracy": gm.Bits(20)}),
    "float32": (A.astype(np.float32), B.astype(np.float32), {}),
    "int64": (I40, J40, {"overflow": "object"}),
    "int8": (SMALL, SMALL.T, {}),
    "objects": (HUGE, J40.astype(object), {}),
    "modulus": (I40, J40, {"modulus": 2**61 - 1}),
    "small modulus": (I40, J40, {"modulus": 97}),
    "modulus of objects": (HUGE, J40.astype(object), {"modulus": 2**63}),
    "double-double": (gm.DoubleDouble(1 + abs(A), A * 2.0**-55), 1 + abs(B), {}),
}


@pytest.mark.parametrize("name", ["fp4_e2m1", "fp4_e2m1,fp8_e4m3", "int4"])
@pytest.mark.parametrize("case", CASES)
def test_the_planned_encodings_are_those_that_run(case: str, name: str, ran: list[tuple[str, ...]]) -> None:
    a, b, options = CASES[case]
    plan = gm.plan(a, b, formats=name, **options)
    assert not ran  # no product yet
    result = plan.run(a, b)
    assert ran == [plan.encodings]
    expected = gm.matmul(a, b, formats=name, **options)
    if isinstance(result, gm.DoubleDouble):
        assert (result.hi == expected.hi).all()
        assert (result.lo == expected.lo).all()
    else:
        assert (result == expected).all()
    chosen = [encodings.get(key) for key in plan.encodings]
    assessed = "assessment" in plan.explain() or case == "double-double"
    assert plan.products == sum(e.products for e in chosen) + assessed
    assert plan.moduli == tuple(e.modulus for e in chosen if e.modulus)
    assert set(plan.formats) <= set(name.split(","))
    # Planes: different linear forms of the limbs, counted here from the look-up tables' rows.
    for side, count in zip(("left", "right"), plan.planes, strict=True):
        assert count == sum(len({tuple(row) for row in e.planes(side).tolist()}) for e in chosen)


def test_explain_shows_products_planes_and_encodings() -> None:
    text = gm.plan(A, B, formats="fp4_e2m1").explain()
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert {"products", "planes", "encodings", "scheme", "engine"} <= set(lines)
    assert "fp4_e2m1" in lines["products"]
    depth = formats.accumulator("fp32").max_depth(*[formats.get("fp4_e2m1").alphabet] * 2)
    assert f"{depth:,} terms" in lines["products"]
    assert "mod169:3" in lines["encodings"]


def test_a_cheaper_direct_encoding_is_one_encoding() -> None:
    plan = gm.plan(SMALL, SMALL.T, formats="fp4_e2m1")
    assert (plan.scheme, plan.moduli, plan.encodings, plan.products) == ("direct", (), ("int8.int8.fp4_e2m1",), 6)


def test_fast_says_that_its_bits_differ() -> None:
    fast, proven = (gm.plan(A, B, accuracy=x, formats="fp4_e2m1").explain() for x in ("fast", "fp64"))
    assert "partial covers" in fast
    assert "other bits" in fast
    assert "other bits" not in proven


@pytest.mark.parametrize("p", [2, 97, 2**31 - 1, 2**61 - 1, 2**63])
def test_the_plan_of_a_modular_product(p: int) -> None:
    plan = gm.plan(I40, J40, modulus=p)
    exact = I40.astype(object) @ J40.astype(object)
    assert (plan.run(I40, J40) == exact % p).all()
    assert plan.modulus == p
    assert plan.dtypes[2] == "int64"
    # |reduced| ≤ p/2, and no wider than the data.
    assert 1 << max(plan.bits) <= max(2, min(p, 2**41))
    assert f"mod {p}" in plan.explain()
    assert json.loads(plan.to_json())["modulus"] == p


@pytest.mark.parametrize(
    ("p", "scheme", "products", "planes"),
    [(251, "digits", 1, 1), (2**14, "digits", 3, 3), (65521, "digits", 4, 2), (2**21, "digits", 6, 6)],
)
def test_the_plan_of_a_product_by_digits(p: int, scheme: str, products: int, planes: int) -> None:
    plan = gm.plan(I40, J40, modulus=p, engine="native")
    assert (plan.scheme, plan.products, plan.planes, plan.moduli) == (scheme, products, (planes, planes), ())
    assert f"digits, {products} INT8 product" in plan.explain()
    assert gm.plan(I40, J40, modulus=p, engine="reference").scheme in ("residues", "direct")


def test_the_plan_of_bytes_modulo_p_is_one_product() -> None:
    x = np.full((4, 4), 200, dtype=np.uint8)
    plan = gm.plan(x, x, modulus=65521)
    assert (plan.scheme, plan.products) == ("direct", 1)
    assert "as they are" in plan.explain()


def test_no_modulus_and_no_formats_stay_as_they_were() -> None:
    plan = gm.plan(A, B, engine="reference")
    assert (plan.modulus, plan.encodings, plan.plane_formats) == (None, (), None)
    assert plan.formats == ("int8", "uint8")
    assert plan.planes == (len(plan.moduli), len(plan.moduli))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"modulus": 7}, TypeError, "modulus = 7 needs integer operands, a is float64"),
        ({"modulus": 1}, ValueError, r"modulus = 1 is not in 2 … 2\^63"),
        ({"modulus": 7.0}, TypeError, "modulus = 7.0 is not an integer"),
        ({"formats": "fp16"}, LookupError, "formats = 'fp16'"),
        ({"formats": "nope"}, ValueError, "unknown format 'nope'"),
        ({"formats": []}, ValueError, "formats is empty"),
    ],
)
def test_refusals_are_those_of_matmul(options: dict[str, Any], error: type[Exception], words: str) -> None:
    for call in (gm.plan, gm.matmul):
        with pytest.raises(error, match=words):
            call(A, B, **options)


def test_empty_products_have_a_plan() -> None:
    for dtype in (float, int):
        plan = gm.plan(np.zeros((2, 0), dtype), np.zeros((0, 3), dtype), formats="fp4_e2m1")
        assert (plan.scheme, plan.encodings) == ("empty", ())
    assert gm.plan(np.zeros((2, 0), int), np.zeros((0, 3), int), modulus=5).scheme == "empty"
