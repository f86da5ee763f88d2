"""`gemmulate profile`: the evidence items of profiled kernels from Nsight Compute exports."""

from pathlib import Path

import cyclopts

from gemmulate.cli.matmul import Json
from gemmulate.cli.output import examples, print_table

_EXAMPLES = examples(
    ("gemmulate profile export.csv", "the evidence items of every kernel, and the metric for each that is missing"),
)


def register(app: cyclopts.App) -> None:
    """Add `profile` to the application."""
    app.command(profile, help_epilogue=_EXAMPLES)


def profile(
    *files: Path,
    as_json: Json = False,
) -> int:
    """Read the evidence that a candidate owes from profiler exports.

    Parameters
    ----------
    files
        Nsight Compute CSV exports (details, metrics or raw page) or .ncu-rep reports.
    """
    import json

    import msgspec

    from gemmulate.screen.profile import read_profile
    from gemmulate.screen.text_file import plain

    if not files:
        raise ValueError("no file given; name an Nsight Compute CSV export or an .ncu-rep report")
    kernels = [(str(file), kernel) for file in files for kernel in read_profile(file)]
    if as_json:
        # One kernel a line: the export of a whole application has thousands.
        print(f'{{"kernel_count": {len(kernels)}, "kernels": [')
        for index, (name, kernel) in enumerate(kernels):
            one = {"file": name, **msgspec.to_builtins(kernel)}
            print(json.dumps(one, allow_nan=False) + ("," if index < len(kernels) - 1 else ""))
        print("]}")
        return 0
    for name, kernel in kernels:
        print(
            f"{name}: kernel {plain(kernel.id)}, compute capability {plain(kernel.compute_capability)}, "
            f"{plain(kernel.kernel[:80])}"
        )
        rows = [
            (
                one.item,
                "-" if one.value is None else f"{one.value:g} {plain(one.unit)}".rstrip(),
                one.metric if one.value is not None else one.note,
            )
            for one in kernel.evidence
        ]
        print_table(("item", "value", "metric"), rows)
        print()
    print(f"kernels: {len(kernels)}")
    return 0
