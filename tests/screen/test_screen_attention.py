"""Contract: the reference is attention, its FP8 conversion is the standard's, and the gate sees a changed order."""

import math
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from gemmulate.screen.attention import (
    TILE,
    Accumulator,
    Inputs,
    Order,
    Softmax,
    Trace,
    attention,
    from_e4m3,
    role_split,
    to_bfloat16,
    to_e4m3,
)
from gemmulate.screen.equality import PATTERNS, check_equality, make_inputs


def test_every_e4m3_code_and_every_middle() -> None:
    codes = np.arange(256, dtype=np.uint8)
    finite = codes[(codes & 0x7F) != 0x7F]
    assert np.array_equal(from_e4m3(finite), finite.view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    with pytest.raises(ValueError, match="NaN code"):
        from_e4m3(codes)
    values = from_e4m3(np.arange(127, dtype=np.uint8))
    middles = (values[:-1] + values[1:]) / 2
    below, above = np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(1e9))
    for numbers in (values, middles, below, above, np.geomspace(1e-6, 448, 10_001).astype(np.float32)):
        expected = numbers.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        assert np.array_equal(to_e4m3(numbers), expected)
    # Saturation: the cast of the kernel is satfinite, where the plain type has no number.
    assert to_e4m3(np.array([448, 464, 465, 1e30], np.float32)).tolist() == [0x7E] * 4


def test_bfloat16_conversion() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate((rng.normal(size=10_000) * 10.0 ** rng.integers(-30, 30, 10_000), [0.0, -0.0, 1.00390625]))
    values = values.astype(np.float32)
    assert np.array_equal(to_bfloat16(values), values.astype(ml_dtypes.bfloat16).view(np.uint16))


def exact(inputs: Inputs) -> Any:
    """Softmax attention in float64, straight from the definition."""
    scale = np.repeat(inputs.k_scale, TILE)[: len(inputs.k), None].astype(float)
    scores = (inputs.q * float(inputs.q_scale)) @ (inputs.k * scale).T / math.sqrt(inputs.q.shape[1])
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    values = from_e4m3(inputs.v).astype(float) * inputs.v_scale
    return p @ values, p @ np.abs(values)


@pytest.mark.parametrize("iterations", [1, 2, 3, 7])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_reference_is_attention(iterations: int, pattern: str) -> None:
    inputs = make_inputs(iterations, pattern, seed=3)
    output = (attention(inputs).output.astype(np.uint32) << 16).view(np.float32)
    expected, magnitude = exact(inputs)
    # A normal E4M3 has 3 stored bits, so P is off by 2^-4 of itself, or by half a subnormal step 2^-10 of at most
    # 448 in 448 ≈ 2^-9 …; bfloat16 adds 2^-9. The denominator holds the unrounded P.
    absolute = 2.0**-10 / 448 * np.abs(from_e4m3(inputs.v) * inputs.v_scale).sum(axis=0)
    assert (np.abs(output - expected) <= (2.0**-4 + 2.0**-8) * magnitude + absolute + 2.0**-9 * np.abs(expected)).all()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_role_split_equals_the_baseline(depth: int) -> None:
    result = check_equality(lambda inputs: role_split(inputs, depth=depth))
    assert result.equal
    assert result.difference is None
    assert result.compared > 500_000


def test_the_note_s_number_of_iterations() -> None:
    inputs = make_inputs(591, "random", rows=2, keys=37_761)
    assert inputs.tiles == 591
    ours, theirs = role_split(inputs), attention(inputs)
    assert all(np.array_equal(a, b) for a, b in zip(ours.p, theirs.p, strict=True))
    assert np.array_equal(ours.output, theirs.output)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"tiles": "descending"}, "P"),
        ({"scaling": "folded"}, "normalised output"),
        ({"denominator": "rounded"}, "normalised output"),
        ({"rescale": "fused"}, "RO"),
        ({"normalise": "division"}, "normalised output"),
        ({"conversion": "truncate"}, "output"),
    ],
)
def test_every_changed_order_is_seen(change: dict[str, str], where: str) -> None:
    result = check_equality(lambda inputs: role_split(inputs, order=Order(**change)))
    assert result.difference is not None
    assert result.difference.where == where
    assert result.difference.expected != result.difference.found
    assert f"0x{result.difference.found:02x} found" in result.difference.text


def test_the_first_differing_byte_is_reported() -> None:
    def flipped(inputs: Inputs) -> Trace:
        trace = attention(inputs)
        if inputs.tiles == 3:
            trace.p[1][4, 37] ^= 1
            trace.p[1][9, 2] ^= 1
            trace.p[2][0, 0] ^= 1
        return trace

    result = check_equality(flipped)
    assert result.difference is not None
    assert (result.difference.iterations, result.difference.tile) == (3, 1)
    assert (result.difference.row, result.difference.column) == (4, 37)
    assert result.difference.expected ^ result.difference.found == 1

    def output_only(inputs: Inputs) -> Trace:
        trace = attention(inputs)
        trace.output[5, 7] += 1
        return Trace(trace.p, trace.output)

    result = check_equality(output_only)
    assert result.difference is not None
    assert (result.difference.where, result.difference.row, result.difference.column) == ("output", 5, 7)


def test_roles_that_own_each_other_s_state_are_seen() -> None:
    """A late rescale: PV applies the rescale of a tile after adding it, because the handoff brought it too late."""

    def late(inputs: Inputs) -> Trace:
        softmax, accumulator = Softmax(inputs, Order()), Accumulator(inputs, Order())
        p, waiting = [], np.ones(len(inputs.q), np.float32)
        for tile in range(inputs.tiles):
            rescale, codes = softmax.step(tile, tile)
            accumulator.step(tile, waiting, codes)
            waiting = rescale
            p.append(codes)
        return accumulator.finish(softmax.denominator(), p)

    result = check_equality(late)
    assert result.difference is not None
    assert result.difference.where == "RO"
    assert result.difference.iterations == 2


def test_a_trace_of_another_shape_is_an_error() -> None:
    def short(inputs: Inputs) -> Trace:
        trace = attention(inputs)
        return Trace(trace.p[:-1], trace.output)

    with pytest.raises(ValueError, match="P of 0 tiles, the reference of 1"):
        check_equality(short)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("p", lambda p: [tile[:1] for tile in p]),
        ("p", lambda p: [tile.astype(np.float32) for tile in p]),
        ("p", lambda p: [tile.tolist() for tile in p]),
        ("ro", lambda ro: ro.astype(np.float64)),
        ("ro", lambda ro: ro[:1]),
        ("normal", lambda normal: normal[:, :1]),
        ("output", lambda output: output.astype(np.int64)),
    ],
)
def test_values_of_another_shape_or_type_are_no_bytes(part: str, change: Any) -> None:
    """NumPy would broadcast the one and compare the other by value; either could call different bytes equal."""

    def changed(inputs: Inputs) -> Trace:
        trace = attention(inputs)
        return msgspec.structs.replace(trace, **{part: change(getattr(trace, part))})

    with pytest.raises(ValueError, match=r"in the trace, .* in the reference"):
        check_equality(changed)


def test_equality_of_nothing_is_refused() -> None:
    for arguments in ({"iterations": ()}, {"seeds": 0}, {"iterations": (0, 1)}):
        with pytest.raises(ValueError, match="at least one of each"):
            check_equality(attention, **arguments)


def test_layout_in_memory_does_not_matter() -> None:
    def transposed(inputs: Inputs) -> Trace:
        trace = attention(inputs)
        return msgspec.structs.replace(trace, output=np.asfortranarray(trace.output))

    assert check_equality(transposed, iterations=(2,)).equal


@pytest.mark.parametrize("keys", [1, 2, 63, 64, 65, 127, 129])
def test_odd_lengths_and_one_row(keys: int) -> None:
    inputs = make_inputs(-(-keys // TILE), "random", rows=1, keys=keys, depth=1)
    ours, theirs = role_split(inputs), attention(inputs)
    assert np.array_equal(ours.output, theirs.output)
    # Masked columns hold no probability.
    assert not theirs.p[-1][:, keys - (inputs.tiles - 1) * TILE :].any()


def test_bad_arguments() -> None:
    inputs = make_inputs(2, "random")
    with pytest.raises(ValueError, match="room for one tile"):
        role_split(inputs, depth=0)
    with pytest.raises(ValueError, match="tiles = 'sideways'"):
        Order(tiles="sideways")
    with pytest.raises(ValueError, match="pattern = 'odd'"):
        make_inputs(2, "odd")
    for field, value in (("k_scale", inputs.k_scale[:1]), ("v", inputs.v[:-1]), ("q", inputs.q[:, :-1])):
        arguments = {name: getattr(inputs, name) for name in Inputs.__struct_fields__} | {field: value}
        with pytest.raises(ValueError, match=r"shapes|k_scale"):
            Inputs(**arguments)


def with_field(**changes: Any) -> Inputs:
    return Inputs(**{name: getattr(make_inputs(2, "random"), name) for name in Inputs.__struct_fields__} | changes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -0.01])
@pytest.mark.parametrize("field", ["q_scale", "k_scale", "v_scale"])
def test_a_scale_that_is_no_positive_number(field: str, value: float) -> None:
    """NaN would give P of NaN, which the cast to E4M3 turned into 448 without a word."""
    scale = np.array(getattr(make_inputs(2, "random"), field))
    scale[(-1,) * scale.ndim] = value
    with pytest.raises(ValueError, match=f"{field} is not positive, finite float32"):
        with_field(**{field: np.float32(scale) if scale.ndim == 0 else scale})


def test_inputs_of_another_type_or_size() -> None:
    inputs = make_inputs(2, "random")
    for field, value, words in (
        ("q", inputs.q.astype(np.int16), "q has dtype int16"),
        ("k", inputs.k.astype(np.float32), "k has dtype float32"),
        ("v", inputs.v.view(np.int8), "v has dtype int8"),
        ("v", inputs.v | np.uint8(0x7F), "NaN code"),
        ("q", inputs.q[:0], "shapes"),
        ("k_scale", inputs.k_scale.astype(np.float64), "k_scale is not positive, finite float32"),
        ("q_scale", np.ones(2, np.float32), "q_scale has shape"),
    ):
        with pytest.raises(ValueError, match=words):
            with_field(**{field: value})
    with pytest.raises(ValueError, match="depth = 1024 is above 1023"):
        make_inputs(1, "random", depth=1024)
    assert attention(make_inputs(1, "random", depth=1023, rows=2)).output.shape == (2, 48)


def test_what_is_no_probability_has_no_e4m3_code() -> None:
    for value in (float("nan"), -1.0, float("-inf")):
        with pytest.raises(ValueError, match="negative or NaN"):
            to_e4m3(np.array([1.0, value], np.float32))
    assert to_e4m3(np.array([np.inf, 0.0, -0.0, 2.0**-10, 2.0**-149], np.float32)).tolist() == [0x7E, 0, 0, 0, 0]
