"""The time model's page: one HTML file with its data, its formulas and its charts, that needs nothing beside itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from gemmulate import __version__
from gemmulate.model import Device, ModelError, device_names, load_device
from gemmulate.model.predict import MEASURED_SCHEME
from gemmulate.model.published import table as compared
from gemmulate.model.schemes import C_REC_FUSED, C_REC_STAGED, C_REQUANTISE, SCHEMES, default_c_q
from gemmulate.report.screening import table

# The rows of the comparison by the page's names: a test holds them to `gemmulate.model.published.cases`.
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("SpMV", "spmv", {"nnz": 10**7, "convert": "bytes"}),
    ("SpMV, values converted", "spmv", {"nnz": 10**7, "convert": "values"}),
    ("GEMV", "gemv", {"m": 16384, "n": 16384, "rhs": 1}),
    ("GEMV, 2 right-hand sides", "gemv", {"m": 16384, "n": 16384, "rhs": 2}),
    ("7-point stencil", "stencil7", {"points": 512**3}),
    ("GEMV, 8 right-hand sides", "gemv", {"m": 16384, "n": 16384, "rhs": 8}),
    ("GEMM", "gemm", {"m": 16384, "n": 16384, "k": 16384}),
)


def catalogue(extra: Sequence[Device] = ()) -> list[Device]:
    """The devices of the catalogue, and more."""
    return [*(load_device(name) for name in device_names()), *extra]


def model_page(devices: Sequence[Device], *, selected: str = "b300") -> str:
    """The page as HTML text. `selected` is the key of the device that it opens with.

    Raises ModelError where no device has that key, or two have the same one.
    """
    keys = [device.key for device in devices]
    if selected not in keys:
        raise ModelError(f"device {selected!r} is not one of {', '.join(keys)}")
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ModelError(f"two devices are called {twice!r}; rename one of the files")
    chosen = devices[keys.index(selected)]
    scheme, comparison = _comparison(chosen)
    options = "" if (selected, scheme) == ("b300", "residues-fp8") else f" --device {selected} --scheme {scheme}"
    assets = files("gemmulate.report") / "assets"

    def text(name: str) -> str:
        return (assets / name).read_text(encoding="utf-8")

    # A closing tag inside a script element would end it, whatever it stands in.
    data = json.dumps(page_data(devices, selected), allow_nan=False).replace("<", "\\u003c")
    return Template(text("page.html")).substitute(
        title="Emulated FP64: does it pay, and where",
        style=text("page.css"),
        data=data,
        model_js=text("model.js"),
        charts_js=text("charts.js"),
        page_js=text("page.js"),
        selected_name=escape(chosen.name),
        table_options=escape(options),
        comparison=comparison,
        catalogue=_sources(devices),
        schemes=_schemes(),
        c_rec=f"{C_REC_FUSED.value:g}",
        c_rec_staged=f"{C_REC_STAGED.value:g}",
        version=escape(__version__),
    )


def page_data(devices: Sequence[Device], selected: str) -> dict[str, Any]:
    """What the page's formulas read: devices in SI units, schemes, constants, the comparison's kernels."""
    schemes = {}
    for name, cost in SCHEMES.items():
        c_q = default_c_q(cost)
        schemes[name] = {
            "name": name, "unit": cost.unit, "r_default": cost.r_default, "quadratic": cost.quadratic,
            "slope": cost.products_slope, "offset": cost.products_offset, "bytes_per_r": cost.bytes_per_r,
            "c_q": {"value": c_q.value, "low": c_q.low, "high": c_q.high},
        }  # fmt: skip
    return {
        "selected": selected,
        "devices": [{"key": d.key, "name": d.name, "si": {k: list(v) for k, v in d.si.items()}} for d in devices],
        "schemes": schemes,
        "c_rec": {
            pipeline: {"value": cost.value, "low": cost.low, "high": cost.high}
            for pipeline, cost in (("fused", C_REC_FUSED), ("staged", C_REC_STAGED))
        },
        "c_requantise": C_REQUANTISE,
        "measured_scheme": MEASURED_SCHEME,
        "cases": [{"label": label, "kernel": kernel, "sizes": sizes} for label, kernel, sizes in CASES],
    }


def _comparison(device: Device) -> tuple[str, str]:
    """The scheme and the table of `gemmulate model table` for a device: FP8 where it has it, else INT8."""
    for scheme in ("residues-fp8", "residues-int8"):
        try:
            rows = compared(device, scheme=scheme, c_q=6.0)
        except ModelError as error:
            refused = str(error)
            continue
        head = ("kernel", "FLOP/input", "3 terms", "published", "4 terms", "published", "bound", "note")
        cells = [
            (
                row["kernel"], f"{row['flop_per_input']:.3g}", f"{row['three_term']:.3g}",
                row["published_three_term"] or "–", f"{row['four_term']:.3g}", row["published_four_term"] or "–",
                row["bound"], row["note"] or "",
            )
            for row in rows
        ]  # fmt: skip
        return scheme, table(head, cells)
    return "residues-int8", f"<p>{escape(refused)}</p>"


def _sources(devices: Sequence[Device]) -> str:
    rows = [
        (
            device.name, quantity, f"{figure.value:.6g} {figure.unit}".removesuffix(" 1"), figure.status, figure.source,
        )
        for device in devices
        for quantity, values in device.figures.items()
        for figure in values
    ]  # fmt: skip
    notes = [(device.name, "note", device.notes, "", "") for device in devices if device.notes]
    return table(("device", "quantity", "value", "status", "source"), [*rows, *notes])


def _schemes() -> str:
    rows = [
        (
            name, "r(r + 1)/2" if cost.quadratic else f"{cost.products_slope:.4g}·r + {cost.products_offset:g}",
            f"{cost.bytes_per_r:.4g}·r", str(cost.r_default), cost.source, default_c_q(cost).source,
        )
        for name, cost in SCHEMES.items()
    ]  # fmt: skip
    return table(("scheme", "α", "bytes of a prepared input", "r for FP64", "source", "c_q"), rows)
