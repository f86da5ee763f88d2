"""The published figures that the model must give, and published measurements that it is held against, unfitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gemmulate.model.device import Device, load_device
from gemmulate.model.kernels import Kernel, gemm, gemv, spmv, stencil7
from gemmulate.model.predict import Method, method, predict

TME: Final = "arXiv 2606.06510"
FOURTH: Final = "arXiv 2610.10924"

# Sizes at which vectors and conversions of vectors no longer show in two digits.
_N: Final = 16384


@dataclass(frozen=True)
class Case:
    """A row of the comparison table: a kernel, and what was published for it on B300 with FP8, r = 12, c_q = 6."""

    label: str
    kernel: Kernel
    claimed: str  # with three terms
    published: str  # with four terms
    note: str = ""


def cases() -> tuple[Case, ...]:
    """The rows of the published comparison."""
    return (
        Case("SpMV", spmv(10**7), "1.2", "0.30",
             "12 B a nonzero; 1.2 took 10 B (0.2 FLOP/B): 12 B give 1.03"),
        Case("SpMV, values converted", spmv(10**7, convert="values"), "1.2", "0.44", "indices are not converted"),
        Case("GEMV", gemv(_N, _N), "1.5", "0.44"),
        Case("GEMV, 2 right-hand sides", gemv(_N, _N, rhs=2), "3.1", "0.89"),
        Case("7-point stencil", stencil7(512**3), "3.1", "1.78"),
        Case("GEMV, 8 right-hand sides", gemv(_N, _N, rhs=8), "12 to 24", "3.6", "24 took 4 FLOP/B: one vector in 8"),
        Case("GEMM", gemm(_N, _N, _N), "104", "104", "380 in v1, with alpha = r = 10"),
    )  # fmt: skip


def claimed_speedup(oi: float, device: Device, *, alpha: float = 10.0) -> float:
    """The first version's claim min(P_low / α, B·OI) / P_fp64, OI in FLOP/byte: native is never memory-bound in it.

    Source: arXiv 2606.06510 v1, min(500, 8·OI)/1.3 on B300 (solved).

    >>> round(claimed_speedup(0.5, load_device("b300")), 1)
    3.1
    """
    rates = device.nominal()
    assert rates.fp8 is not None
    return min(rates.fp8 / alpha, rates.memory * oi) / rates.fp64


def table(device: Device, *, scheme: str = "residues-fp8", r: int | None = None, c_q: float | None = None,
          ) -> list[dict[str, Any]]:  # fmt: skip
    """The comparison for any device: three and four terms beside the published B300 figures where they apply."""
    three = method(scheme, r=r, c_q=c_q, composition="three_term")
    four = method(scheme, r=r, c_q=c_q)
    applies = device.key == "b300" and scheme == "residues-fp8" and four.r == 12 and four.c_q.value == 6
    rows = []
    for case in cases():
        claim, now = predict(device, case.kernel, three), predict(device, case.kernel, four)
        rows.append(
            {
                "kernel": case.label,
                "flop_per_input": case.kernel.flop_per_input,
                "three_term": claim.speedup,
                "four_term": now.speedup,
                "low": now.speedup_range[0],
                "high": now.speedup_range[1],
                "bound": now.bound,
                "published_three_term": case.claimed if applies else None,
                "published_four_term": case.published if applies else None,
                "source": f"{TME}; {FOURTH}" if applies else None,
                "note": case.note if applies else None,
            }
        )
    return rows


@dataclass(frozen=True)
class Measurement:
    """A GEMM that others measured: n³ on a device, in TFLOP/s."""

    where: str
    device: str  # the catalogue's device of the same silicon
    n: int
    what: str
    tflop_per_s: float
    scheme: str | None  # None: native
    r: int = 0


def _cublas(where: str, n: int, rows: tuple[tuple[str, float, int], ...]) -> tuple[Measurement, ...]:
    return tuple(Measurement(where, "b200", n, what, value, "slices-int8", s) for what, value, s in rows)


# cuBLAS: slices = ceil((bits + 1)/8). Rows without known slices ("automatic") or device (RTX 5080) are left out.
MEASUREMENTS: Final[tuple[Measurement, ...]] = (
    Measurement("B200", "b200", 8192, "native", 38.4, None),
    *_cublas("B200", 8192, (
        ("55 bits", 70.6, 7), ("47 bits", 86.7, 6), ("39 bits", 111.0, 5), ("31 bits", 145.0, 4))),
    Measurement("GB200", "b200", 16384, "native", 38.9, None),
    *_cublas("GB200", 16384, (
        ("6 slices", 123.5, 6), ("7 slices", 92.6, 7), ("8 slices", 73.0, 8), ("9 slices", 59.0, 9),
        ("11 slices", 41.8, 11))),
    Measurement("GB200", "b200", 16384, "INT8 residues, r = 15", 158.0, "residues-int8", 15),
    Measurement("GB200", "b200", 16384, "INT8 residues, r = 14", 181.0, "residues-int8", 14),
    Measurement("GB200", "b200", 16384, "FP8 residues, r = 12", 72.0, "residues-fp8", 12),
    Measurement("GH200", "h200", 8192, "native", 59.0, None),
    Measurement("GH200", "h200", 8192, "INT8 residues, r = 14", 77.0, "residues-int8", 14),
    Measurement("GH200", "h200", 32768, "INT8 residues, r = 14", 104.0, "residues-int8", 14),
)  # fmt: skip

# Measured conversion phases of the open INT8 library imply 13 to 15 slots; its sums are staged.
_C_Q_MEASURED: Final = 14.0


def against_measurements() -> list[dict[str, Any]]:
    """Predicted over measured seconds for every published measurement: data-sheet peaks, nothing fitted to them.

    Emulated products are predicted as a staged pipeline; c_q is 14 for residues (their measured conversion), 5.5 for
    slices (machine code).
    """
    rows = []
    for measured in MEASUREMENTS:
        device, kernel = load_device(measured.device), gemm(measured.n, measured.n, measured.n)
        how = _staged(measured)
        prediction = predict(device, kernel, how)
        predicted_s = prediction.native_s if measured.scheme is None else prediction.emulated_s
        measured_s = kernel.flops / (measured.tflop_per_s * 1e12)
        rows.append(
            {
                "kernel": f"gemm, {measured.what}",
                "size": f"{measured.n}^3",
                "device": measured.where,
                "predicted_s": predicted_s,
                "measured_s": measured_s,
                "ratio": predicted_s / measured_s,
            }
        )
    return rows


def _staged(measured: Measurement) -> Method:
    scheme = measured.scheme or "residues-int8"
    c_q = None if scheme == "slices-int8" else _C_Q_MEASURED
    return method(scheme, r=measured.r or None, c_q=c_q, pipeline="staged")
