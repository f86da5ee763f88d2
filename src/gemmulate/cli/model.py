"""`gemmulate model …`: what emulation would cost on a device, whether it pays, and where the numbers come from."""

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter

from gemmulate.cli.matmul import Json
from gemmulate.cli.options import Count, Whole
from gemmulate.cli.output import examples, print_json, print_table

if TYPE_CHECKING:
    from gemmulate.model import Kernel, Prediction

_HELP = "Predict native and emulated time on any device: GEMM, GEMV, SpMV, stencil; every number with its source."
_GROUP_EXAMPLES = examples(
    ("gemmulate model table", "the published B300 comparison, three terms against four"),
    ("gemmulate model predict --device h200 --kernel gemm --m 4096 --n 4096 --k 4096", "one kernel on one device"),
    ("gemmulate model devices --json", "the catalogue for a program, with sources"),
)
_DEVICES_EXAMPLES = examples(
    ("gemmulate model devices", "all devices, ranges where sources disagree"),
    ("gemmulate model devices --device b300", "every number of one device with its source and status"),
    ("gemmulate model devices --device my.toml --json", "check a device file of your own"),
)
_PREDICT_EXAMPLES = examples(
    ("gemmulate model predict --device b300 --kernel gemv --r 12 --c-q 6", "0.44 times native"),
    ("gemmulate model predict --device b300 --kernel gemv --scheme residues-int8 --precomputed", "residues kept"),
    ("gemmulate model predict --device b200 --kernel gemm --scheme residues-int8 --pipeline staged", "phase by phase"),
    ("gemmulate model predict --device b300 --kernel stencil7 --sensitivity --json", "what the answer hangs on"),
)
_THRESHOLD_EXAMPLES = examples(
    ("gemmulate model threshold --device b300 --r 12 --c-q 6", "OI*, conversion roof and break-even costs"),
    ("gemmulate model threshold --device my.toml --kernel stencil7 --json", "the same for your device and a stencil"),
)
_TABLE_EXAMPLES = examples(
    ("gemmulate model table", "B300 beside the published figures"),
    ("gemmulate model table --device rtx5090 --scheme residues-int8 --csv > table.csv", "another device, as CSV"),
)

KernelName = Literal["gemm", "gemv", "spmv", "stencil7"]
SchemeName = Literal["residues-int8", "residues-fp8", "residues-fp4", "slices-int8"]
Composition = Literal["published", "three_term", "shared_pipe", "serial"]
DeviceName = Annotated[str, Parameter(help="A catalogue name (`gemmulate model devices`) or a .toml file.")]
Csv = Annotated[bool, Parameter(name="--csv", negative="", show_default=False, help="Print CSV on standard output.")]


Flag = Annotated[bool, Parameter(negative="", show_default=False)]

# Sizes of each kernel: option -> default (None: optional).
_SIZES: dict[str, dict[str, Any]] = {
    "gemm": {"m": 16384, "n": 16384, "k": 16384, "batch": 1},
    "gemv": {"m": 16384, "n": 16384, "rhs": 1},
    "spmv": {"nnz": 10**7, "rows": None, "columns": None, "layout": "csr", "padding": 1.0, "convert": "bytes"},
    "stencil7": {"points": 512**3},
}


def register(app: cyclopts.App) -> None:
    """Add the group `model` to the application."""
    from gemmulate.cli import model_host

    group = cyclopts.App(name="model", help=_HELP, help_epilogue=_GROUP_EXAMPLES + "\n\nEach has `--json` and `--csv`.")
    group.command(devices, help_epilogue=_DEVICES_EXAMPLES)
    group.command(predict, help_epilogue=_PREDICT_EXAMPLES)
    group.command(threshold, help_epilogue=_THRESHOLD_EXAMPLES)
    group.command(table, help_epilogue=_TABLE_EXAMPLES)
    model_host.add_to(group)
    app.command(group)


def devices(*, device: DeviceName | None = None, as_json: Json = False, as_csv: Csv = False) -> None:
    """List the devices of the catalogue, or every number of one device with its source.

    Args:
        device: One device by name, or a .toml file, which is checked.
    """
    from gemmulate.model import device_names, load_device
    from gemmulate.model.device import DIMENSIONS

    chosen = [load_device(name) for name in (device_names() if device is None else [device])]
    figures = [
        [found.key, quantity, f"{figure.value:.12g}", figure.unit, figure.status, figure.source]
        for found in chosen
        for quantity, values in found.figures.items()
        for figure in values
    ]
    head = ["device", "quantity", "value", "unit", "status", "source"]
    if machine_readable(as_json, as_csv):
        records = [
            {
                "device": found.key,
                "name": found.name,
                "vendor": found.vendor,
                "kind": found.kind,
                "notes": found.notes,
                "figures": [dict(zip(head[1:], row[1:], strict=True)) | {"value": float(row[2])}
                            for row in figures if row[0] == found.key],
                "int32_ops_per_s": found.nominal().int32,
            }
            for found in chosen
        ]  # fmt: skip
        print_records(records, head, figures, as_json)
    elif device is None:
        shown = [key for key in DIMENSIONS if any(key in found.figures for found in chosen)]
        rows = [[found.key, *(_interval(found.figures.get(key)) for key in shown)] for found in chosen]
        units = {key: next(f.figures[key][0].unit for f in chosen if key in f.figures) for key in shown}
        columns = ["device", *(f"{key} {units[key]}" if units[key] != "1" else key for key in shown)]
        print_table(columns, rows, title="Devices", right=range(1, len(columns)))
    else:
        print_table(head, figures, title=f"{chosen[0].name}", right=[2])
        if chosen[0].notes:
            print(chosen[0].notes)


def predict(
    *,
    device: DeviceName,
    kernel: KernelName,
    scheme: SchemeName = "residues-fp8",
    r: Count = None,
    c_q: float | None = None,
    c_rec: float | None = None,
    alpha: float | None = None,
    residue_bytes: float | None = None,
    composition: Composition = "published",
    pipeline: Literal["fused", "staged"] = "fused",
    precomputed: Flag = False,
    reuse: float = 1.0,
    m: Count = None,
    n: Count = None,
    k: Count = None,
    batch: Count = None,
    rhs: Count = None,
    nnz: Count = None,
    rows: Count = None,
    columns: Count = None,
    layout: Literal["csr", "ell"] | None = None,
    padding: float | None = None,
    convert: Literal["bytes", "values"] | None = None,
    points: Count = None,
    sensitivity: Flag = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Predict one kernel's time, native FP64 and emulated, with the range that disagreeing sources leave.

    Args:
        kernel: gemm (--m --n --k --batch), gemv (--m --n --rhs), spmv (--nnz --rows --columns --layout --padding
            --convert) or stencil7 (--points).
        scheme: How it is emulated.
        r: Moduli, or slices; the scheme's number for FP64 if not given.
        c_q: 32-bit integer operations to convert one input to one modulus; if not given the published 6 (5.5 for
            slices) with a range up to what others count or measured.
        c_rec: The same to put one output together from one modulus; 0 fused (as published), 8 staged.
        alpha: Narrow operations for each FP64 operation; the scheme's if not given.
        residue_bytes: Bytes of one prepared input; the scheme's if not given.
        composition: How the terms combine: published max(mma, mem, dec) + rec; three_term without dec; shared_pipe
            max(mma, mem, dec + rec); serial, their sum.
        pipeline: fused, or staged: convert, multiply, requantise and recombine one after another through memory (gemm).
        precomputed: The matrix was converted before; its residues are read instead.
        reuse: Products that share one conversion of the matrix.
        m: Rows.
        n: Columns of the result (gemm), or of the matrix (gemv).
        k: Inner dimension.
        batch: Products of the same shape.
        rhs: Right-hand sides.
        nnz: Nonzeros.
        rows: Rows of the sparse matrix; without it vectors and row pointers are not counted, as published.
        columns: Columns of the sparse matrix.
        layout: csr or ell.
        padding: Stored entries for each nonzero in ell.
        convert: What is converted: bytes (every 8 bytes of entries, as published) or values.
        points: Grid points.
        sensitivity: Also say how far each uncertain number alone moves the speed-up.
    """
    from gemmulate.model import load_device
    from gemmulate.model import predict as predicted
    from gemmulate.model.predict import method
    from gemmulate.model.thresholds import sensitivity as tornado

    found = load_device(device)
    given = {
        "m": m, "n": n, "k": k, "batch": batch, "rhs": rhs, "nnz": nnz, "rows": rows, "columns": columns,
        "layout": layout, "padding": padding, "convert": convert, "points": points,
    }  # fmt: skip
    counted = _kernel(kernel, given)
    how = method(
        scheme, r=r, c_q=c_q, c_rec=c_rec, alpha=alpha, residue_bytes=residue_bytes, composition=composition,
        pipeline=pipeline, precomputed=precomputed, reuse=reuse,
    )  # fmt: skip
    result = predicted(found, counted, how)
    swings = tornado(found, counted, how) if sensitivity else ()
    if machine_readable(as_json, as_csv):
        record = result.to_dict()
        flat = {key: value for key, value in record.items() if isinstance(value, str | int | float | None)}
        flat |= {f"{key}_s": value for key, value in record["terms"].items()}
        if sensitivity:
            record["sensitivity"] = [
                {
                    "quantity": swing.quantity, "low": swing.low, "high": swing.high,
                    "speedup_low": swing.speedup_low, "speedup_high": swing.speedup_high,
                }
                for swing in swings
            ]  # fmt: skip
        print_records(record, list(flat), [[cell(value) for value in flat.values()]], as_json)
        return
    _explain(result)
    if sensitivity:
        print()
        print_table(
            ["quantity", "from", "to", "speed-up", "speed-up"],
            [
                [s.quantity, f"{s.low:.4g}", f"{s.high:.4g}", f"{s.speedup_low:.3g}", f"{s.speedup_high:.3g}"]
                for s in swings
            ],
            title="Sensitivity, each alone",
            right=range(1, 5),
        )


def threshold(
    *,
    device: DeviceName,
    r: Whole = 12,
    c_q: float = 6.0,
    kernel: KernelName = "gemv",
    flop_per_input: float | None = None,
    scheme: SchemeName = "residues-fp8",
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Say below what intensity, above what conversion cost and up to what size emulation cannot pay on a device.

    Args:
        r: Moduli.
        c_q: 32-bit integer operations to convert one input to one modulus.
        kernel: Whose FLOPs for each converted input the break-even cost is for; gemv has 2.
        flop_per_input: That number itself, instead of a kernel's.
        scheme: For the crossover size of a square GEMM.
    """
    from gemmulate.model import crossover, gemm, load_device, method, thresholds

    found = load_device(device)
    phi = _PHI[kernel] if flop_per_input is None else flop_per_input
    if phi is None:
        from gemmulate.cli.app import CommandError

        raise CommandError("gemm's FLOPs for each input grow with its size; give --flop-per-input instead of --kernel")
    result = thresholds(found, r=r, c_q=c_q, flop_per_input=phi)
    how = method(scheme, r=r, c_q=c_q)
    usable = how.scheme.rate(found.nominal()) is not None
    size = crossover(found, how, lambda edge: gemm(edge, edge, edge)) if usable else None
    record = {name: getattr(result, name) for name in result.__dataclass_fields__}
    record |= {"scheme": scheme, "crossover_gemm_n": size}
    if machine_readable(as_json, as_csv):
        flat = {key: value for key, value in record.items() if not isinstance(value, tuple)}
        print_records(record, list(flat), [[cell(value) for value in flat.values()]], as_json)
        return
    low, high = result.conversion_roof_range
    if size is None:
        square = f"never: {found.name} has no {how.scheme.unit} rate" if not usable else "never, at any n up to 2^24"
    else:
        square = f"n = {size}"
    lines = [
        ["OI*", f"{result.oi_star_flop_per_byte:.4g} FLOP/B", _span(result.oi_star_range),
         "below it native wins, whatever the matrix units do"],
        ["conversion roof", f"{result.conversion_roof_bytes_per_s / 1e12:.4g} TB/s", _span((low / 1e12, high / 1e12)),
         f"{result.conversion_roof_of_memory:.0%} of memory's rate"],
        ["break-even c_q", f"{result.break_even_c_q:.4g}", _span(result.break_even_range),
         f"at {result.flop_per_input:.4g} FLOP an input"],
        ["memory-roof c_q", f"{result.memory_roof_c_q:.4g}", _span(result.memory_roof_range),
         "up to it conversion keeps up with memory"],
        ["square GEMM pays from", square, "", f"{scheme}, operands converted once"],
    ]  # fmt: skip
    print_table(["threshold", "value", "range", "meaning"], lines, title=f"{found.name}, r = {r}, c_q = {c_q:g}")


_PHI: dict[str, float | None] = {"gemv": 2.0, "spmv": 4 / 3, "stencil7": 8.0, "gemm": None}


def table(
    *,
    device: DeviceName = "b300",
    scheme: SchemeName = "residues-fp8",
    r: Count = None,
    c_q: float = 6.0,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Compare three-term and four-term speed-ups for all kernels, beside the published figures where they apply.

    Args:
        scheme: How the kernels are emulated.
        r: Moduli, or slices; the scheme's number for FP64 if not given.
        c_q: 32-bit integer operations to convert one input to one modulus.
    """
    from gemmulate.model import load_device
    from gemmulate.model.published import table as compared

    found = load_device(device)
    rows = compared(found, scheme=scheme, r=r, c_q=c_q)
    head = list(rows[0])
    if machine_readable(as_json, as_csv):
        print_records(rows, head, [[cell(row[key]) for key in head] for row in rows], as_json)
        return
    shown = [
        [
            row["kernel"], f"{row['flop_per_input']:.3g}", f"{row['three_term']:.3g}",
            row["published_three_term"] or "–", f"{row['four_term']:.3g}", _span((row["low"], row["high"])),
            row["published_four_term"] or "–", row["bound"], row["note"] or "",
        ]
        for row in rows
    ]  # fmt: skip
    columns = ["kernel", "FLOP/input", "3 terms", "published", "4 terms", "range", "published", "bound", "note"]
    print_table(columns, shown, title=f"Speed-up over native FP64: {found.name}, {scheme}", right=range(1, 7))
    sources = {row["source"] for row in rows if row["source"]}
    if sources:
        print("published:", "; ".join(sorted(sources)))


def _kernel(name: str, given: dict[str, Any]) -> "Kernel":
    """The kernel with the sizes given; sizes of other kernels are refused."""
    from gemmulate.cli.app import CommandError
    from gemmulate.model.kernels import KERNELS

    own = _SIZES[name]
    for option, value in given.items():
        if value is not None and option not in own:
            raise CommandError(f"--{option} does not belong to kernel {name}, which has --" + " --".join(own))
    sizes = {option: default if given[option] is None else given[option] for option, default in own.items()}
    positional = [sizes.pop(option) for option in ("m", "n", "k", "nnz", "points") if option in sizes]
    return KERNELS[name](*positional, **sizes)


def _explain(result: "Prediction") -> None:
    terms = result.stages or result.terms
    longest = max(terms.values())
    rows = [[name, f"{seconds:.4g} s", "█" * round(24 * seconds / longest) or "·"] for name, seconds in terms.items()]
    what = f"{result.kernel} {result.size} on {result.device}, {result.scheme}, r = {result.r}, c_q = {result.c_q:g}"
    print_table(["stage" if result.stages else "term", "time", ""], rows, title=what, right=[1])
    print()
    span = [_span(value) for value in (result.native_range_s, result.emulated_range_s, result.speedup_range)]
    print_table(
        ["", "nominal", "range", ""],
        [
            ["native", f"{result.native_s:.4g} s", span[0], f"bound by {result.native_bound}"],
            ["emulated", f"{result.emulated_s:.4g} s", span[1], f"{result.composition}, bound by {result.bound}"],
            ["speed-up", f"{result.speedup:.3g}", span[2], "uncertain: " + (", ".join(result.uncertain) or "nothing")],
        ],
        right=[1, 2],
    )


def machine_readable(as_json: bool, as_csv: bool) -> bool:
    """Whether JSON or CSV was asked for; both is an error."""
    if as_json and as_csv:
        from gemmulate.cli.app import CommandError

        raise CommandError("--json and --csv exclude each other; give one")
    return as_json or as_csv


def print_records(records: Any, head: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool) -> None:
    """Print the records as JSON, or the rows as CSV."""
    if as_json:
        print_json(records)
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)


def cell(value: Any) -> str:
    """A value in CSV."""
    return "" if value is None else str(value)


def _span(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.3g}" for end in ends)
    return low if low == high else f"{low} – {high}"


def _interval(figures: Any) -> str:
    if not figures:
        return "–"
    values = sorted({figure.value for figure in figures})
    return "–".join(f"{value:.6g}" for value in values)
