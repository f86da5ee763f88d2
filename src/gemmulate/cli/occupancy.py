"""`gemmulate occupancy`: resident CTAs of a kernel, what bounds them, and the largest register count that launches."""

import cyclopts
import msgspec

from gemmulate.cli.matmul import Json
from gemmulate.cli.options import Count, Whole
from gemmulate.cli.output import examples, print_json, print_table

_EXAMPLES = examples(
    ("gemmulate occupancy --arch 9.0 --threads 320 --registers 176", "a block that cannot launch, and why"),
    ("gemmulate occupancy --arch sm_120a --threads 128 --registers 72 --shared 8192 --json", "the limits as JSON"),
)


def register(app: cyclopts.App) -> None:
    """Add `occupancy` to the application."""
    app.command(occupancy, help_epilogue=_EXAMPLES)


def occupancy(
    *,
    arch: str,
    threads: Whole,
    registers: Whole,
    shared: Whole = 0,
    barriers: Whole = 1,
    carveout: Count = None,
    as_json: Json = False,
) -> int:
    """Say how many CTAs fit on an SM and which resource binds.

    Parameters
    ----------
    arch
        Compute capability: 9.0, sm_90a, 120.
    threads
        Threads per block, 1 to 1024.
    registers
        Registers per thread, 1 to 255.
    shared
        Shared memory per block in bytes, static and dynamic, without the system's reserve.
    barriers
        Named barriers per block.
    carveout
        Shared memory configured on the SM in bytes; all of it when not given.
    """
    from gemmulate.screen import occupancy as rules
    from gemmulate.screen.architecture import architecture

    result = rules(arch, threads=threads, registers=registers, shared=shared, barriers=barriers, carveout=carveout)
    if as_json:
        print_json(msgspec.to_builtins(result))
        return 0
    print(
        f"{result.ctas_per_sm} CTAs per SM on {result.arch}, {result.resident_warps} warps "
        f"({result.theoretical_occupancy:.1%}); limited by {', '.join(result.limiters)}"
    )
    print_table(("limit", "CTAs"), [(name, str(count)) for name, count in result.limits.items()])
    print(result.arithmetic)
    most = architecture(arch).shared_per_cta
    if result.shared > most:
        print(f"shared: {result.shared:,} bytes per block exceed the {most:,} that one block can opt in to")
    print(f"largest register count that launches with {threads} threads: {result.max_registers}")
    return 0
