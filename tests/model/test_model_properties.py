"""Contract: the model is monotone in every rate, scale-free, orders its compositions, and OI* is where it crosses 1."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmulate.model import (
    COMPOSITIONS,
    SCHEMES,
    Device,
    Kernel,
    crossover,
    gemm,
    gemv,
    method,
    predict,
    sensitivity,
    spmv,
    stencil7,
    thresholds,
)
from gemmulate.model.thresholds import oi_star

quick = settings(max_examples=150, deadline=None)

RATES = ("fp64", "int8", "fp8", "fp4", "int32", "memory")
rate = st.floats(1e9, 1e17)
rates = st.fixed_dictionaries(dict.fromkeys(RATES, rate))
size = st.integers(1, 100_000)
kernels = st.one_of(
    st.builds(gemm, size, size, size, batch=st.integers(1, 100)),
    st.builds(gemv, size, size, rhs=st.integers(1, 64)),
    st.builds(spmv, size, rows=st.none() | size, convert=st.sampled_from(["bytes", "values"])),
    st.builds(spmv, size, layout=st.just("ell"), padding=st.floats(1, 10)),
    st.builds(stencil7, size),
)
costs = st.fixed_dictionaries(
    {
        "scheme": st.sampled_from(sorted(SCHEMES)),
        "r": st.integers(1, 40),
        "c_q": st.floats(0, 100),
        "c_rec": st.floats(0, 100),
        "composition": st.sampled_from(sorted(COMPOSITIONS)),
    }
)


def made(si: Mapping[str, tuple[float, ...]]) -> Device:
    """A device of SI figures, without a file."""
    return Device("made", "made", "", "gpu", "", {}, dict(si))


def single(values: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    return {name: (value,) for name, value in values.items()}


@quick
@given(rates, kernels, costs, st.sampled_from(RATES), st.floats(1, 1000))
def test_monotone_in_every_rate(
    base: dict[str, float], kernel: Kernel, how: dict[str, object], name: str, factor: float
) -> None:
    slow = predict(made(single(base)), kernel, method(**how))  # type: ignore[arg-type]
    fast = predict(made(single(base | {name: base[name] * factor})), kernel, method(**how))  # type: ignore[arg-type]
    assert fast.native_s <= slow.native_s
    assert fast.emulated_s <= slow.emulated_s
    if name == "fp64":
        assert fast.speedup <= slow.speedup
    elif name != "memory":
        assert fast.speedup >= slow.speedup


@quick
@given(rates, kernels, costs, st.integers(-20, 20))
def test_scale_free(base: dict[str, float], kernel: Kernel, how: dict[str, object], power: int) -> None:
    """Another unit of time for all rates at once (a power of two, so exactly) changes times alone."""
    once = predict(made(single(base)), kernel, method(**how))  # type: ignore[arg-type]
    scaled = {name: math.ldexp(value, power) for name, value in base.items()}
    again = predict(made(single(scaled)), kernel, method(**how))  # type: ignore[arg-type]
    assert again.emulated_s == math.ldexp(once.emulated_s, -power)
    assert again.speedup == once.speedup
    assert again.bound == once.bound


@quick
@given(rates, kernels, costs)
def test_compositions_are_ordered(base: dict[str, float], kernel: Kernel, how: dict[str, object]) -> None:
    seconds = {
        name: predict(made(single(base)), kernel, method(**how | {"composition": name})).emulated_s  # type: ignore[arg-type]
        for name in COMPOSITIONS
    }
    assert seconds["three_term"] <= seconds["published"] <= seconds["serial"] * (1 + 2**-50)
    assert seconds["shared_pipe"] <= seconds["published"] * (1 + 2**-50)


@quick
@given(rates, st.integers(1, 40), st.floats(0.01, 100), st.floats(1e3, 1e12))
def test_oi_star_is_the_crossing(base: dict[str, float], r: int, c_q: float, inputs: float) -> None:
    """A compute-bound kernel of OI* FLOP a byte breaks even; with less it loses, with more it wins."""
    base |= {"fp8": 1e40, "memory": 1e40}  # whatever the matrix units do
    star = oi_star(c_q, r, base["fp64"], base["int32"])
    speedups = []
    for factor in (0.99, 1.0, 1.01):
        kernel = Kernel("made", "", factor * star * 8 * inputs, 0.0, inputs, 0.0, 0.0, 8 * inputs, False)
        speedups.append(predict(made(single(base)), kernel, method("residues-fp8", r=r, c_q=c_q)).speedup)
    assert speedups[0] < 1 < speedups[2]
    assert speedups[1] == pytest.approx(1, rel=2**-48)
    found = thresholds(made(single(base)), r=r, c_q=c_q, flop_per_input=1)
    assert found.oi_star_flop_per_byte == star
    assert found.break_even_c_q * 8 * star == pytest.approx(c_q, rel=2**-48)


@quick
@given(rates, kernels, costs, st.data())
def test_ranges_hold_every_choice_of_figures(
    base: dict[str, float], kernel: Kernel, how: dict[str, object], data: st.DataObject
) -> None:
    wide = {name: (value, value * data.draw(st.floats(1, 10))) for name, value in base.items()}
    inside = {name: (data.draw(st.floats(low, high)),) for name, (low, high) in wide.items()}
    span = predict(made(wide), kernel, method(**how))  # type: ignore[arg-type]
    point = predict(made(inside), kernel, method(**how))  # type: ignore[arg-type]
    slack = 1 + 2**-45
    for value, (low, high) in (
        (point.native_s, span.native_range_s),
        (point.emulated_s, span.emulated_range_s),
        (point.speedup, span.speedup_range),
    ):
        assert low / slack <= value <= high * slack


@quick
@given(rates, st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 16), st.floats(1, 1000))
def test_reuse_lies_between_converting_and_precomputed(
    base: dict[str, float], m: int, n: int, rhs: int, uses: float
) -> None:
    device, kernel = made(single(base)), gemv(m, n, rhs=rhs)
    kept = predict(device, kernel, method("residues-int8", precomputed=True))
    shared = predict(device, kernel, method("residues-int8", reuse=uses))
    assert kept.terms["dec"] <= shared.terms["dec"] * (1 + 2**-50)
    if uses > 1:
        assert kept.beta <= shared.beta * (1 + 2**-50)
    assert predict(device, kernel, method("residues-int8", reuse=1)).beta == 1


def test_crossover_is_the_first_size_that_pays() -> None:
    device = made(single({"fp64": 1e12, "int8": 1e14, "int32": 1e12, "memory": 1e12}))
    how = method("residues-int8", r=15, c_q=14, pipeline="staged")

    def pays(n: int) -> bool:
        return predict(device, gemm(n, n, n), how).speedup >= 1

    found = crossover(device, how, lambda n: gemm(n, n, n))
    assert found is not None
    assert [pays(n) for n in (found - 1, found, found + 1, 4 * found)] == [False, True, True, True]
    slow = made(single({"fp64": 1e14, "int8": 1e14, "int32": 1e12, "memory": 1e12}))
    assert crossover(slow, how, lambda n: gemm(n, n, n)) is None


def test_sensitivity_moves_one_figure_at_a_time() -> None:
    device = made({"fp64": (1e12, 2e12), "fp8": (1e15,), "int32": (1e13, 3e13), "memory": (1e15,)})
    swings = {swing.quantity: swing for swing in sensitivity(device, gemv(4096, 4096), method("residues-fp8", c_q=6))}
    assert set(swings) == {"fp64", "int32"}
    assert swings["int32"].speedup_high == pytest.approx(3 * swings["int32"].speedup_low)
