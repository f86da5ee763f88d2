"""`gemmulate report`: the time model as one self-contained page."""

from typing import Annotated

import cyclopts
from cyclopts import Parameter

from gemmulate.cli.matmul import Json
from gemmulate.cli.output import check_target, examples, print_json, write_atomically

_EXAMPLES = examples(
    ("gemmulate report -o report.html", "roofline, speed-ups, sensitivity and sources of all devices, opened at B300"),
    ("gemmulate report -o report.html --device rtx5090", "the same, opened at another device"),
    ("gemmulate report -o report.html --device my.toml", "with a device of your own"),
)


def register(app: cyclopts.App) -> None:
    """Add `report` to the application."""
    app.command(report, help_epilogue=_EXAMPLES)


def report(
    *,
    output: Annotated[str, Parameter(name=["--output", "-o"])],
    device: str = "b300",
    as_json: Json = False,
) -> None:
    """Write the time model as one HTML page that needs nothing beside itself, and prints.

    Roofline with the conversion roof, speed-up by kernel and device, sensitivity, all devices with their sources, and
    controls for device, kernel, size, r and c_q, which evaluate the same formulas as `gemmulate model predict`.

    Args:
        output: The .html file to write; it appears when it is complete, or not at all.
        device: The device that the page opens with: a catalogue name, host, or a .toml file, which is added.
    """
    from gemmulate.cli.app import CommandError
    from gemmulate.model import load_device
    from gemmulate.report.model import catalogue, model_page

    if not output.endswith((".html", ".htm")):
        raise CommandError(f"--output {output} does not end in .html")
    check_target(output)
    chosen, devices = load_device(device), catalogue()
    if chosen not in devices:
        devices.append(chosen)
    page = model_page(devices, selected=chosen.key).encode()
    with write_atomically(output) as file:
        file.write(page)
    if as_json:
        print_json({"output": output, "bytes": len(page), "devices": [found.key for found in devices]})
    else:
        print(f"{output}: {len(page) / 1024:.0f} KiB, {len(devices)} devices")
