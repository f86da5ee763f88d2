"""`gemmulate occupancy`: resident CTAs of a kernel, what bounds them, and the largest register count that launches."""

from typing import Annotated

import cyclopts
from cyclopts import Parameter

from gemmulate.cli.output import print_json, print_table


def register(app: cyclopts.App) -> None:
    app.command(occupancy)


def occupancy(
    *,
    arch: str,
    threads: int,
    registers: int,
    shared: int = 0,
    barriers: int = 1,
    carveout: int | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
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
    as_json
        Print JSON.
    """
    from gemmulate.screen import occupancy as rules

    result = rules(arch, threads=threads, registers=registers, shared=shared, barriers=barriers, carveout=carveout)
    if as_json:
        print_json(result)
        return 0
    print(
        f"{result.ctas_per_sm} CTAs per SM on {result.arch}, {result.resident_warps} warps "
        f"({result.theoretical_occupancy:.1%}); limited by {', '.join(result.limiters)}"
    )
    print_table(("limit", "CTAs"), [(name, str(count)) for name, count in result.limits.items()])
    print(result.arithmetic)
    print(f"largest register count that launches with {threads} threads: {result.max_registers}")
    return 0
