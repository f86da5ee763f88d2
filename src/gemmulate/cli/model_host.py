"""`gemmulate model calibrate` and `validate`: this host or a device measured, predictions held against real runs."""

from typing import Annotated

import cyclopts
import msgspec
from cyclopts import Parameter

from gemmulate.cli.matmul import Json
from gemmulate.cli.model import Csv, cell, machine_readable, print_records
from gemmulate.cli.output import examples, print_json, print_table, progress

_CALIBRATE_EXAMPLES = examples(
    ("gemmulate model calibrate", "measure this host: from then on plans are priced by its own record"),
    ("gemmulate model calibrate -o host.toml", "measure this host; the file then serves as a device"),
    ("gemmulate model calibrate -o host.toml --json", "the same, and what was measured as JSON"),
    ("gemmulate model calibrate --device cuda", "measure a GPU through torch; plans take the record as a device"),
    ("gemmulate model calibrate --device cpu --sizes 128,256 -o rehearsal.toml", "a rehearsal of that without a GPU"),
)
_VALIDATE_EXAMPLES = examples(
    ("gemmulate model validate", "calibrate, then predict and run every kernel, native and emulated"),
    ("gemmulate model validate --calibration host.toml --json", "with a calibration made before, as JSON"),
)


def add_to(group: cyclopts.App) -> None:
    """Add both commands to the group `model`."""
    group.command(calibrate, help_epilogue=_CALIBRATE_EXAMPLES)
    group.command(validate, help_epilogue=_VALIDATE_EXAMPLES)


def calibrate(
    *,
    output: Annotated[str | None, Parameter(name=["--output", "-o"])] = None,
    device: str | None = None,
    sizes: str | None = None,
    passes: int | None = None,
    as_json: Json = False,
) -> None:
    """Measure this host on one thread, or a GPU, and write it as a device file: rates, phases, terms of the model.

    Without --output the file becomes this host's record, by which `gm.plan` and `matmul` price what they choose
    (device "host"); before that a shipped record counts. Needs SciPy and threadpoolctl, and the native engine. Takes
    about a minute and a half.

    With --device a GPU is measured through torch: FP64 and INT8 products, copies, and the phases of an "fp64" product,
    from which the model's terms are fitted. `gm.plan(…, device=FILE)` takes the record. On Hopper two kernels of the
    Triton engine are tried first, in processes of their own, a minute or so each; products take them from then on where
    they gave the right digits and are the fastest. Not run on a GPU so far.

    Args:
        output: The .toml file to write; if not given, gemmulate/host.toml (or the device's name) in $XDG_CONFIG_HOME or
            ~/.config.
        device: cuda, cuda:1, …; cpu is a rehearsal, torch's processor measured as if it were a device.
        sizes: Of the n × n products of a device, 65 or more; if not given 1024,2048,4096,8192 (cpu: 128,256,512).
        passes: Passes over all sizes of this host, 3 if not given; the least time of each size counts.
    """
    from gemmulate.cli.app import CommandError

    if device is not None and passes is not None:
        raise CommandError(f"--passes {passes} is for this host; leave it out with --device")
    if device is not None:
        _calibrate_device(device, sizes, output, as_json)
        return
    if sizes is not None:
        raise CommandError(f"--sizes {sizes} is for devices; give --device too, or leave it out for this host")
    from gemmulate.io.atomic import check_target, write_atomically
    from gemmulate.model.device import host_file
    from gemmulate.model.host.calibrate import calibrate as measured
    from gemmulate.model.host.calibrate import device_file
    from gemmulate.model.host.conditions import PASSES, one_thread
    from gemmulate.plan.calibration import engines_section, measure_engines

    _check(passes)
    command = "gemmulate model calibrate" + (f" -o {output}" if output else "")
    if output is None:
        host_file().parent.mkdir(parents=True, exist_ok=True)
        output = str(host_file())
    if not output.endswith(".toml"):
        raise CommandError(f"--output {output} does not end in .toml, by which commands know a device file")
    check_target(output)  # before the work, not after
    with one_thread() as engine, progress("calibrating") as report:
        spread = measured(engine, report, PASSES if passes is None else passes)
        found = measure_engines(report)
    with write_atomically(output) as file:
        file.write((device_file(spread, command) + engines_section(found)).encode())
    if as_json:
        print_json({"output": output, "phases": spread, "engines": msgspec.to_builtins(found)})
        return
    rows = [
        [name, f"{size:g}", f"{least:.3e}", f"{median:.3e}"]
        for name, points in spread.items()
        for size, least, median in points
    ]
    print_table(["phase", "size", "least s", "median s"], rows, title="Processor seconds, one thread", right=[1, 2, 3])
    print()
    columns = ["call", "dec", "mma", "rec", "dot"]
    terms = [
        [name, f"{rates.call['fp64']:.2e}", *(f"{getattr(rates, key):.2e}" for key in columns[1:])]
        for name, rates in found.items()
    ]
    title = "Engines: seconds a call, input and modulus, multiply-add, output and modulus, exact term"
    print_table(["engine", *columns], terms, title=title, right=range(1, 6))
    print(f"written to {output}")


def _calibrate_device(device: str, sizes: str | None, output: str | None, as_json: bool) -> None:
    import datetime
    from importlib.util import find_spec

    from gemmulate.cli.app import CommandError
    from gemmulate.io.atomic import check_target, write_atomically
    from gemmulate.model.device import calibrated_file
    from gemmulate.plan.device_calibration import calibrate_device, instructions_c_q
    from gemmulate.plan.device_record import record_text

    if find_spec("torch") is None:
        raise CommandError(f"--device {device} is measured through torch, which is not installed; pip install torch")
    from gemmulate.engines.torch_device import TorchDevice

    chosen = None if sizes is None else _sizes(sizes)
    target = TorchDevice(device)
    command = f"gemmulate model calibrate --device {device}" + (f" --sizes {sizes}" if sizes else "")
    if output is None:
        path = calibrated_file(target.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        output = str(path)
    if not output.endswith(".toml"):
        raise CommandError(f"--output {output} does not end in .toml, by which commands know a device file")
    check_target(output)
    with progress("trying kernels in processes of their own"):
        target.try_residue_products()
    with progress("calibrating") as report:
        found = calibrate_device(target, chosen, progress=report)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with write_atomically(output) as file:
        file.write(record_text(found, command, date).encode())
    counted, where = instructions_c_q(found.facts.get("capability", ""))
    if as_json:
        import msgspec

        record = {
            "output": output, "facts": dict(found.facts), "phases": found.phases, "moduli": found.moduli,
            "fits": msgspec.to_builtins(found.fits), "c_q": found.cost("conversion"),
            "c_rec": found.cost("reconstruction"), "int32": found.int32, "int32_known": found.known_int32 is not None,
            "conversion_share": found.conversion_share, "c_q_instructions": counted, "c_q_instructions_of": where,
        }  # fmt: skip
        print_json(record)
        return
    rows = [
        [name, f"{size:g}", f"{least:.3e}", f"{median:.3e}"]
        for name, points in found.phases.items()
        for size, least, median in points
    ]
    print_table(["phase", "n", "least s", "median s"], rows, title=f'"fp64" products on {found.name}', right=[1, 2, 3])
    print()
    rates = [
        [name, f"{least:.3e}", f"{median:.3e}", unit]
        for name, (least, median), unit in (
            ("FP64 product", found.fp64, "FLOP/s"),
            ("INT8 product", found.int8, "OP/s"),
            ("copy", found.memory, "B/s"),
        )
    ]
    print_table(["rate", "of least time", "of median", "unit"], rates, right=[1, 2])
    print()
    for name, term in (("c_q", "conversion"), ("c_rec", "reconstruction")):
        least = found.fits[term][0]
        print(
            f"{term}: {least.unit_s:.3e} s an entry and modulus, fitted within {least.worst:.0%}; {name} in time ",
            end="",
        )
        known = found.known_int32
        print(
            f"{found.cost(term)[0]:.3g}" if known else f"not known: no P_int; {found.cost(term)[0]:.3g} where c_q is 6"
        )
    print("c_q in instructions:", f"not counted: {where}" if counted is None else f"{counted:.3g}, {where}")
    print(f"conversion, survey included: {found.conversion_share:.1%} of the largest product")
    if not found.on_gpu:
        print("a rehearsal on the processor: not run on a GPU")
    print(f"written to {output}")


def _check(passes: int | None) -> None:
    from gemmulate.cli.app import CommandError

    if passes is not None and passes < 1:
        raise CommandError(f"--passes {passes} is not a number of passes; give 1 or more")


def _sizes(text: str) -> list[int]:
    from gemmulate.cli.app import CommandError

    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise CommandError(f"--sizes {text} is not a list of sizes; give for example 1024,2048")
    return [int(word) for word in words]


def validate(
    *, calibration: str | None = None, passes: int | None = None, as_json: Json = False, as_csv: Csv = False
) -> None:
    """Predict and run GEMM, GEMV, SpMV and a stencil on this host, native and emulated; also hold published GEMMs.

    Times are processor seconds on one thread, least of a few calls in each of some passes. Predictions come from the
    calibrated phases, at sizes that these were not calibrated at. Dense kernels are emulated on the native engine, SpMV
    and stencil by residues in NumPy and SciPy. Published measurements are predicted from data sheets, nothing fitted.
    Takes two to three minutes.

    Args:
        calibration: A file of `gemmulate model calibrate`; if not given, phases are measured anew, in turns with the
            kernels, so that both saw the machine in the same state.
        passes: Passes over all kernels, 3 if not given.
    """
    from gemmulate.model.host.calibrate import calibrated_table
    from gemmulate.model.host.conditions import PASSES, one_thread
    from gemmulate.model.host.validate import trials
    from gemmulate.model.host.validate import validate as compared
    from gemmulate.model.published import against_measurements

    machine_readable(as_json, as_csv)
    _check(passes)
    phases = None if calibration is None else calibrated_table(calibration)
    with one_thread() as engine, progress("validating") as report:
        record = compared(engine, trials(engine), phases, report, PASSES if passes is None else passes)
    record["published"] = against_measurements()
    head = ["kernel", "size", "method", "predicted_s", "measured_s", "ratio"]
    cells = [[cell(row[key]) for key in head] for row in record["rows"]]
    if as_json or as_csv:
        print_records(record, head, cells, as_json)
        return
    numbers = [
        [row["kernel"], row["size"], row["method"], *(f"{row[key]:.3e}" for key in head[3:5]), f"{row['ratio']:.2f}"]
        for row in record["rows"]
    ]
    print_table(head, numbers, title="This host, one thread", right=[3, 4, 5])
    print()
    print_table(
        ["kernel", "size", "predicted", "measured"],
        [[s["kernel"], s["size"], f"{s['predicted']:.3g}", f"{s['measured']:.3g}"] for s in record["speedups"]],
        title="Emulated over native, speed-up",
        right=[2, 3],
    )
    print()
    published = [
        [row["kernel"], row["size"], row["device"], *(f"{row[key]:.3e}" for key in head[3:5]), f"{row['ratio']:.2f}"]
        for row in record["published"]
    ]
    columns = ["kernel", "size", "device", *head[3:]]
    print_table(columns, published, title="Published measurements, from data sheets", right=[3, 4, 5])
    print()
    print(
        f"this host: median error {record['median_error']:.1%}, worst {record['worst_error']:.1%}; "
        f"wrong side of 1: {', '.join(record['wrong_side']) or 'none'}"
    )
