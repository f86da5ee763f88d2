"""Measure a device through torch: rates, the phases of an "fp64" product, and from these the terms of the time model.

Not run on a GPU: the tests take the processor for a device.

The terms are fitted over sizes n as a constant and a multiple of the work, least squares of relative errors:

- conversion, survey + both conversions = constant + d · r · 2n²: c_q = d · P_int;
- reconstruction, multiplication of the packed operands without its INT8 products, and the componentwise test without
  its one INT8 product, which the model has no term for = constant + e · r · n²: c_rec = e · P_int.

P_int comes from the catalogue, where it knows the device. Elsewhere it is set so that c_q is 6, as for hosts: T_dec and
T_rec are the measured ones either way.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from gemmulate.engines import spans
from gemmulate.model.device import Device, catalogue_key, load_device
from gemmulate.model.host.calibrate import C_Q, Spread
from gemmulate.model.machine_code import count_instructions
from gemmulate.plan.matmul import matmul
from gemmulate.plan.tensors import device_engine
from gemmulate.schemes.floats import choose_floats

if TYPE_CHECKING:
    from gemmulate.engines.base import Engine
    from gemmulate.engines.stopwatch import Stopwatch
    from gemmulate.engines.torch_device import TorchDevice

GPU_SIZES: Final = (1024, 2048, 4096, 8192)
CPU_SIZES: Final = (128, 256, 512)
# Below 65 every grade takes another way: one call of anchored sums (schemes/floats.py).
LEAST_SIZE: Final = 65
# Bytes copied: past the L2 caches of all devices (126 MiB on B200), and few enough for any of them.
COPY_BYTES: Final = {"cuda": 1 << 31, "cpu": 1 << 26}
MODULI: Final = 15  # at which c_q in instructions is given: the model's number for FP64

PHASES: Final = ("survey", "assess", "convert_a", "convert_b", "products", "recombine", "other", "total")


@dataclass(frozen=True)
class Fit:
    """seconds = constant + unit · work over the measured sizes, and the largest relative error of that."""

    unit_s: float
    constant_s: float
    worst: float


@dataclass(frozen=True)
class DeviceCalibration:
    """What was measured of a device, and what follows. Phases: name -> (size, least, median seconds), as `Spread`.

    Rates are (from the least, from the median time), in operations or bytes a second; `fits` those of least and median
    times of "conversion" and "reconstruction". `moduli`: size -> r of its product.
    """

    name: str
    facts: Mapping[str, str]
    phases: Spread
    moduli: Mapping[int, int]
    fp64: tuple[float, float]
    int8: tuple[float, float]
    memory: tuple[float, float]
    call_s: tuple[float, float]
    fits: Mapping[str, tuple[Fit, Fit]]

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU was measured, and not the processor in a rehearsal."""
        return self.facts["device"].startswith("cuda")

    @property
    def catalogued(self) -> Device | None:
        """The catalogue's record of this device."""
        key = catalogue_key(self.name) if self.on_gpu else None
        return None if key is None else load_device(key)

    @property
    def known_int32(self) -> float | None:
        """P_int of the catalogue, in operations a second."""
        return None if self.catalogued is None else self.catalogued.nominal().int32

    @property
    def int32(self) -> float:
        """P_int: the catalogue's, or what makes c_q 6."""
        return self.known_int32 or C_Q / self.fits["conversion"][0].unit_s

    def cost(self, term: str) -> tuple[float, float]:
        """c_q ("conversion") or c_rec ("reconstruction") from least and median times."""
        least, median = self.fits[term]
        return least.unit_s * self.int32, median.unit_s * self.int32

    @property
    def conversion_share(self) -> float:
        """Survey and conversions over the whole product, of the largest size, median times."""
        at = {name: points[-1][2] for name, points in self.phases.items()}
        return (at["survey"] + at["convert_a"] + at["convert_b"]) / at["total"]


def calibrate_device(
    device: TorchDevice,
    sizes: Sequence[int] | None = None,
    *,
    budget_s: float = 0.5,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DeviceCalibration:
    """Measure a device at some sizes of n × n products, two at least; each phase for about `budget_s` a size.

    Raises ValueError for sizes below 65 or fewer than two.
    """
    sizes = sorted(set(sizes if sizes is not None else GPU_SIZES if device.on_gpu else CPU_SIZES))
    if len(sizes) < 2 or sizes[0] < LEAST_SIZE:
        raise ValueError(f"sizes = {','.join(map(str, sizes))}: give two or more from {LEAST_SIZE} on")
    watch, steps = device.watch, len(sizes) + 4
    with device.current():
        engine = default_engine(device)
        phases: dict[str, list[tuple[float, float, float]]] = {}
        moduli: dict[int, int] = {}
        for done, n in enumerate(sizes):
            progress(done, steps)
            found, moduli[n] = product_phases(device, n, budget_s, engine)
            for name, seconds in found.items():
                phases.setdefault(name, []).append((float(n), *seconds))
        largest = sizes[-1]
        measured: list[tuple[float, float]] = []
        runs: tuple[Callable[[], Callable[[], object]], ...] = (
            lambda: device.gemm_fp64(largest),
            lambda: device.gemm_int8(largest),
            lambda: device.copy(COPY_BYTES[device.device.type]),
            lambda: device.gemm_fp64(8),
        )
        for done, make in enumerate(runs, start=len(sizes)):
            progress(done, steps)
            measured.append(least_and_median(watch, make(), budget_s))
        progress(steps, steps)
    spread = {name: tuple(points) for name, points in phases.items()}
    gemm, int8, copied, call = measured
    return DeviceCalibration(
        name=device.name, facts=device.facts() | {"engine": engine.name}, phases=spread, moduli=moduli,
        fp64=_rates(2.0 * largest**3, gemm), int8=_rates(2.0 * largest**3, int8),
        memory=_rates(2.0 * COPY_BYTES[device.device.type], copied), call_s=call, fits=fitted(spread, moduli),
    )  # fmt: skip


def _rates(work: float, seconds: tuple[float, float]) -> tuple[float, float]:
    return work / seconds[0], work / seconds[1]


def repeated(watch: Stopwatch, run: Callable[[], object], budget_s: float) -> Iterator[float]:
    """Seconds of calls after a first one that is not timed: three at least, then as many as the budget holds."""
    run()
    used, count = 0.0, 0
    while count < 3 or (used < budget_s and count < 1000):
        seconds, _ = watch.time(run)
        used, count = used + seconds, count + 1
        yield max(seconds, 1e-9)


def least_and_median(watch: Stopwatch, run: Callable[[], object], budget_s: float) -> tuple[float, float]:
    """Least and median seconds of `repeated`."""
    seen = list(repeated(watch, run, budget_s))
    return min(seen), statistics.median(seen)


def default_engine(device: TorchDevice) -> Engine:
    """The engine that multiplies tensors of the device unless another is named; of a processor torch's, a rehearsal."""
    return (device_engine(device.device, None, None) if device.on_gpu else None) or device.engine


def product_phases(
    device: TorchDevice, n: int, budget_s: float, engine: Engine | None = None
) -> tuple[dict[str, tuple[float, float]], int]:
    """Least and median seconds of the phases of an "fp64" product of n × n Gaussian matrices, and its moduli."""
    from gemmulate.engines.torch_array import TorchArray

    engine, (a, b) = engine or default_engine(device), (TorchArray(x) for x in device.normal_pair(n))
    moduli = choose_floats(engine, a, b.T, "componentwise").products  # type: ignore[arg-type]
    found: dict[str, list[float]] = {name: [] for name in PHASES}
    options: dict[str, Any] = {"accuracy": "fp64", "engine": engine}
    for seconds in recorded(device.watch, lambda: matmul(a, b, **options), budget_s):
        for name, value in seconds.items():
            found[name].append(value)
    # A phase that this product does not have takes the least time that a record holds.
    return {name: (max(min(seen), 1e-9), max(statistics.median(seen), 1e-9)) for name, seen in found.items()}, moduli


def recorded(watch: Stopwatch, run: Callable[[], object], budget_s: float) -> Iterator[dict[str, float]]:
    """The phases of each of `repeated` calls, in seconds: their sum is the total."""
    recorder: list[spans.Recorder] = []

    def once() -> None:
        with spans.recording(watch) as here:
            run()
        recorder[:] = [here]

    for total in repeated(watch, once, budget_s):
        at = recorder[0].seconds()
        products = at.get(f"{spans.MULTIPLY}/{spans.PRODUCTS}", 0.0)
        seconds = {
            "survey": at.get(spans.SURVEY, 0.0),
            "assess": at.get(spans.ASSESS, 0.0),
            "convert_a": at.get(spans.CONVERT_A, 0.0),
            "convert_b": at.get(spans.CONVERT_B, 0.0),
            "products": products,
            "recombine": at.get(spans.MULTIPLY, 0.0) - products,
        }
        yield seconds | {"other": max(total - sum(seconds.values()), 0.0), "total": total}


def fitted(phases: Spread, moduli: Mapping[int, int]) -> dict[str, tuple[Fit, Fit]]:
    """The model's terms from the phases, by least and by median times."""
    sizes = [int(size) for size, _, _ in phases["total"]]
    found: dict[str, list[Fit]] = {"conversion": [], "reconstruction": []}
    for column in (1, 2):
        at = {name: [point[column] for point in points] for name, points in phases.items()}
        r = [moduli[n] for n in sizes]
        conversion = [s + x + y for s, x, y in zip(at["survey"], at["convert_a"], at["convert_b"], strict=True)]
        test = [max(s - p / count, 0.0) for s, p, count in zip(at["assess"], at["products"], r, strict=True)]
        reconstruction = [s + t for s, t in zip(at["recombine"], test, strict=True)]
        inputs = [2.0 * count * n * n for n, count in zip(sizes, r, strict=True)]
        found["conversion"].append(fit(inputs, conversion))
        found["reconstruction"].append(fit([work / 2 for work in inputs], reconstruction))
    return {term: (fits[0], fits[1]) for term, fits in found.items()}


def fit(work: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Constant ≥ 0 and unit > 0 that minimise Σ ((constant + unit · work − seconds) / seconds)².

    >>> found = fit([1.0, 2.0, 4.0], [3.0, 5.0, 9.0])
    >>> round(found.unit_s, 9), round(found.constant_s, 9)
    (2.0, 1.0)
    """
    x = [w / s for w, s in zip(work, seconds, strict=True)]  # unit's column; the constant's is 1/s, the target 1
    c = [1 / s for s in seconds]
    cc, cx, xx = (sum(p * q for p, q in zip(u, v, strict=True)) for u, v in ((c, c), (c, x), (x, x)))
    determinant = cc * xx - cx * cx
    constant = unit = 0.0
    if determinant > 0:
        constant = (sum(c) * xx - sum(x) * cx) / determinant
        unit = (sum(x) * cc - sum(c) * cx) / determinant
    if constant < 0 or unit <= 0:  # noise: through the origin
        constant, unit = 0.0, sum(x) / xx
    worst = max(abs((constant + unit * w) / s - 1) for w, s in zip(work, seconds, strict=True))
    return Fit(unit, constant, worst)


def instructions_c_q(capability: str, moduli: int = MODULI) -> tuple[float | None, str]:
    """c_q of the Triton conversion kernel in instructions of its machine code, and where it comes from or why not.

    capability: of the device, "9.0"; "" for a processor. The kernel of 54 bits is compiled for it, which needs no GPU.
    """
    if not capability:
        return None, "a processor has no machine code of the kernel"
    if find_spec("torch") is None or find_spec("triton") is None or find_spec("gemmulate.engines.triton") is None:
        return None, "Triton or its kernels are not installed"
    ahead = import_module("gemmulate.engines.triton.ahead")
    number = int(capability.replace(".", ""))
    try:
        variant = next(v for v in ahead.variants(number) if v.name == "deconstruct float64, 54 bits")
        sass = ahead.disassemble(ahead.compile_variant(variant, number).cubin)
        entries = variant.constants["BLOCK_V"] * variant.constants["BLOCK_K"] // variant.threads
        counted = count_instructions(sass)
    except Exception as error:  # whatever compilers raise: a calibration stands without this count
        return None, f"the kernel could not be counted: {error}"
    where = f"{ahead.architecture_name(number)}, {counted.outside} + {counted.body} r instructions for {entries} inputs"
    return counted.c_q(entries, moduli), where
