"""Where emulation starts to pay: OI*, the conversion roof, break-even costs, crossover sizes, sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmulate.model.checks import MAX_R, MIN_NUMBER, ModelError, check_integer, check_number
from gemmulate.model.device import Device
from gemmulate.model.kernels import FLOAT64, Kernel
from gemmulate.model.predict import Method, check, evaluate, own_costs, relevant


def oi_star(c_q: float, r: float, fp64_per_s: float, int_ops_per_s: float) -> float:
    """OI* = c_q·r·P_fp64 / (8·P_int) FLOP/byte: below it emulation cannot match native (arXiv 2610.10924).

    >>> oi_star(6, 12, 1.3e12, 16 * 1.3e12)
    0.5625
    """
    return c_q * r * fp64_per_s / (FLOAT64 * int_ops_per_s)


def conversion_roof(c_q: float, r: float, int_ops_per_s: float) -> float:
    """B_conv = 8·P_int / (c_q·r) bytes/s: the fastest that float64 inputs can be taken apart (arXiv 2610.10924)."""
    return FLOAT64 * int_ops_per_s / (c_q * r)


def break_even_c_q(flop_per_input: float, r: float, fp64_per_s: float, int_ops_per_s: float) -> float:
    """c_q = φ·P_int / (r·P_fp64): the largest with which a compute-bound kernel still breaks even."""
    return flop_per_input * int_ops_per_s / (r * fp64_per_s)


def memory_roof_c_q(r: float, bytes_per_s: float, int_ops_per_s: float) -> float:
    """c_q = 8·P_int / (r·B): the largest with which conversion keeps up with memory."""
    return FLOAT64 * int_ops_per_s / (r * bytes_per_s)


@dataclass(frozen=True)
class Thresholds:
    """The four thresholds of a device at r and c_q, nominal and as ranges over the device's uncertain figures."""

    device: str
    r: int
    c_q: float
    flop_per_input: float
    oi_star_flop_per_byte: float
    conversion_roof_bytes_per_s: float
    conversion_roof_of_memory: float
    break_even_c_q: float
    memory_roof_c_q: float
    oi_star_range: tuple[float, float]
    conversion_roof_range: tuple[float, float]
    break_even_range: tuple[float, float]
    memory_roof_range: tuple[float, float]


def thresholds(device: Device, *, r: int, c_q: float, flop_per_input: float = 2.0, tensor: bool = False) -> Thresholds:
    """The thresholds of a device.

    r: moduli, 1 … 1024. c_q > 0: 32-bit integer operations for each input and modulus. flop_per_input > 0: φ, 2 for a
    matrix-vector product. tensor: compare with the FP64 matrix unit, where there is one.

    Raises:
        ModelError: a number outside its range, or a device without integer rate.

    >>> from gemmulate.model import load_device
    >>> round(thresholds(load_device("b300"), r=12, c_q=6).oi_star_flop_per_byte, 4)
    0.5625
    """
    r = check_integer("r", r, MAX_R)
    c_q = check_number("c_q", c_q, MIN_NUMBER)
    flop_per_input = check_number("flop_per_input", flop_per_input, exclusive=True)
    if device.nominal().int32 is None:
        raise ModelError(
            f"{device.name} has no integer rate (int32, or sms with int32_lanes_per_sm and fp64_lanes_per_sm), which "
            "the thresholds need; give a .toml file with it"
        )

    def at(memory: float, fp64: float, int32: float) -> tuple[float, float, float, float]:
        return (
            oi_star(c_q, r, fp64, int32),
            conversion_roof(c_q, r, int32),
            break_even_c_q(flop_per_input, r, fp64, int32),
            memory_roof_c_q(r, memory, int32),
        )

    rates = [device.nominal(), *device.corners()]
    values = [
        at(q.memory, (q.fp64_tensor or q.fp64) if tensor else q.fp64, q.int32) for q in rates if q.int32 is not None
    ]
    spans = [(min(column), max(column)) for column in zip(*values, strict=True)]
    return Thresholds(
        device.name, r, c_q, flop_per_input, values[0][0], values[0][1], values[0][1] / rates[0].memory,
        values[0][2], values[0][3], spans[0], spans[1], spans[2], spans[3],
    )  # fmt: skip


def crossover(device: Device, how: Method, sized: Callable[[int], Kernel], *, limit: int = 1 << 24) -> int | None:
    """The least n up to `limit` from which on the kernel `sized(n)` is emulated no slower than native, or None.

    Takes the sign of speedup − 1 to change once as n grows, as it does for square products: conversion is n², the
    product n³. Nominal rates.

    >>> from gemmulate.model import gemm, load_device, method
    >>> crossover(load_device("b200"), method("residues-int8", r=15, c_q=6), lambda n: gemm(n, n, n)) > 1
    True
    """

    def pays(n: int) -> bool:
        point = evaluate(device.nominal(), sized(n), how, how.c_q.value, how.c_rec.value)
        return point.emulated_s <= point.native_s

    how = own_costs(device, how)
    check(device, sized(1), how)
    if not pays(limit):
        return None
    low, high = 0, limit  # pays(high), not pays(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Swing:
    """How far one quantity alone moves the speed-up: its two ends and the speed-ups there."""

    quantity: str
    low: float
    high: float
    speedup_low: float
    speedup_high: float

    @property
    def width(self) -> float:
        """The distance of the two speed-ups."""
        return abs(self.speedup_high - self.speedup_low)


def sensitivity(device: Device, kernel: Kernel, how: Method) -> tuple[Swing, ...]:
    """A tornado table: each uncertain quantity moved over its span with the rest nominal, widest swing first."""
    how = own_costs(device, how)
    check(device, kernel, how)
    swings = []
    for key in relevant(device, kernel, how):
        ends = []
        for value in device.span(key):
            moved = device.at({key: value})
            point = evaluate(moved, kernel, how, how.c_q.value, how.c_rec.value)
            ends.append((value, point.native_s / point.emulated_s))
        swings.append(Swing(key, ends[0][0], ends[1][0], ends[0][1], ends[1][1]))
    if how.c_q.low < how.c_q.high:
        ends = []
        for value in (how.c_q.low, how.c_q.high):
            point = evaluate(device.nominal(), kernel, how, value, how.c_rec.value)
            ends.append((value, point.native_s / point.emulated_s))
        swings.append(Swing("c_q", ends[0][0], ends[1][0], ends[0][1], ends[1][1]))
    return tuple(sorted(swings, key=lambda swing: -swing.width))
