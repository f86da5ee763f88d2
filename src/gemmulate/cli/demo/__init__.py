"""`gemmulate demo`: real matrices multiplied exactly, beside what NumPy makes of them."""

import time

import cyclopts

from gemmulate.cli.matmul import Json
from gemmulate.cli.output import examples, print_json, progress

_EXAMPLES = examples(
    ("gemmulate demo", "about a minute: exactness, reproducibility, speed and a plan, all computed now"),
    ("gemmulate demo --json > demo.json", "every figure with its unit"),
)


def register(app: cyclopts.App) -> None:
    """Add `demo` to the application."""
    app.command(demo, help_epilogue=_EXAMPLES)


def demo(*, as_json: Json = False) -> None:
    """Multiply real matrices exactly and show beside it what NumPy gets wrong, and what exactness costs.

    The matrices come with the package (SuiteSparse Matrix Collection, CC BY 4.0). Nothing shown is stored: exactness is
    checked against Python integers and fractions, and times are medians on this machine, measured now.
    """
    import msgspec

    import gemmulate as gm
    from gemmulate.cli.demo import machine, reproducibility, rounding, speed, walks
    from gemmulate.data import path_of
    from gemmulate.io import read_matrix

    start = time.perf_counter()
    records: dict[str, object] = {}
    for part in (machine, walks, rounding, reproducibility, speed):
        with progress(part.TITLE):
            record = part.measure()
        records[part.__name__.rpartition(".")[2]] = msgspec.to_builtins(record)
        if not as_json:
            part.show(record)
            print(flush=True)
    stiffness = read_matrix(path_of("bcsstk13"))
    plan = gm.plan(stiffness, stiffness, accuracy="exact")
    seconds = time.perf_counter() - start
    if as_json:
        print_json(records | {"plan": msgspec.json.decode(plan.to_json()), "time_s": seconds})
        return
    print("The plan of the correctly rounded bcsstk13 · bcsstk13 (gemmulate plan A.mtx A.mtx --accuracy exact)")
    print(plan.explain())
    print(f"\nAll of this took {seconds:.0f} s. Next: gemmulate matmul --help, gemmulate doctor, README.md")
