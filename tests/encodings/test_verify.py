"""Verification finds every single change of a valid encoding that breaks the identity, and never raises.

Oracle: the identity itself, evaluated pair by pair in Python integers.
"""

from dataclasses import replace

import pytest

from gemmulate import encodings
from gemmulate.encodings import Encoding, verify

KEYS = [
    "int4.int8.fp4_e2m1",
    "mod13.fp4_e2m1",
    "mod89.fp4_e2m1",
    "mod97c95.fp4_e2m1",
    "mod169.fp4_e2m1",
    "mod91.fp4_e2m1",
]


def holds(e: Encoding) -> bool:
    """Every pair, in Python integers, from the tables that a kernel would use."""
    (xs, _), (ys, _) = e.limbs("left"), e.limbs("right")
    left, right = e.planes("left").T.tolist(), e.planes("right").T.tolist()
    letters = set(e.format.alphabet)
    for x, p in zip(xs.tolist(), left, strict=True):
        for y, q in zip(ys.tolist(), right, strict=True):
            error = sum(c * u * v for c, u, v in zip(e.coefficients, p, q, strict=True)) - e.divisor * x * y
            if error % e.modulus if e.modulus else error:
                return False
    return letters.issuperset(v for row in left + right for v in row)


@pytest.mark.parametrize("key", KEYS)
def test_valid_entries_hold_pair_by_pair(key: str) -> None:
    e = encodings.get(key)
    certificate = verify(e)
    assert certificate
    assert certificate.pairs == e.left.size * e.right.size
    assert holds(e)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("field", ["coefficients", "weights_left", "weights_right"])
def test_a_changed_number_is_refuted(key: str, field: str) -> None:
    e = encodings.get(key)
    values = list(getattr(e, field))
    for i in range(len(values)):
        changed = [*values[:i], values[i] + 1, *values[i + 1 :]]
        certificate = verify(replace(e, **{field: tuple(changed)}))
        assert not certificate
        assert certificate.failure


@pytest.mark.parametrize("key", KEYS)
def test_a_changed_plane_is_refuted(key: str) -> None:
    e = encodings.get(key)
    for t, row in enumerate(e.planes_left):
        for i in range(len(row)):
            planes = [list(r) for r in e.planes_left]
            planes[t][i] += 1
            assert not verify(replace(e, planes_left=tuple(map(tuple, planes))))


def test_structural_faults_have_names() -> None:
    e = encodings.get("int8.int8.fp4_e2m1")
    assert "matrix" in verify(replace(e, planes_left=e.planes_left[:-1])).failure
    assert "no products" in verify(replace(e, coefficients=())).failure
    assert "divisor" in verify(replace(e, divisor=0)).failure
    assert "coefficient is 0" in verify(replace(e, coefficients=(0, *e.coefficients[1:]))).failure
    assert "no limbs" in verify(replace(e, plane_max=4)).failure
    assert "bound" in verify(replace(e, bound=7)).failure


def test_a_wider_range_than_the_limbs_reach_is_refuted() -> None:
    e = replace(encodings.get("int8.int8.fp4_e2m1"), key="int12.int12.fp4_e2m1")
    assert "no limbs" in verify(e).failure


def test_a_partial_cover_must_state_its_size_exactly() -> None:
    e = encodings.get("mod97c95.fp4_e2m1")
    assert "covered" in verify(replace(e, key="mod97c94.fp4_e2m1")).failure
    assert not verify(replace(e, key="mod97.fp4_e2m1"))
