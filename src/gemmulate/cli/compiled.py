"""`gemmulate compiled`: registers, spills, stack and shared memory from compiler listings, or from compiling a .cu."""

from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from gemmulate.cli.matmul import Json
from gemmulate.cli.output import examples, print_json, print_table

_EXAMPLES = examples(
    ("gemmulate compiled kernel.cu --arch 90a,120a", "compile for two architectures and read registers and spills"),
    ("gemmulate compiled ptxas.log --json", "the functions of a ptxas -v log as JSON"),
)


def register(app: cyclopts.App) -> None:
    """Add `compiled` to the application."""
    app.command(compiled, help_epilogue=_EXAMPLES)


def compiled(
    *files: Path,
    arch: str = "",
    nvcc_flags: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    as_json: Json = False,
) -> int:
    """Read what the compiler says about each function.

    Parameters
    ----------
    files
        ptxas -v logs, cuobjdump --dump-resource-usage listings, or .cu files, which nvcc compiles.
    arch
        Architectures to compile .cu files for, separated by commas (90a,120a); for a cuobjdump listing that names no
        architecture, the one that it is of.
    nvcc_flags
        Further flags for nvcc, as one string.
    """
    import shlex

    from gemmulate.screen.compiled import read_compiled
    from gemmulate.screen.nvcc import compile_and_read
    from gemmulate.screen.text_file import plain

    if not files:
        raise ValueError("no file given; name a ptxas log, a cuobjdump listing or a .cu file")
    archs = [name for name in arch.split(",") if name.strip()]
    functions = []
    for file in files:
        if file.suffix in (".cu", ".ptx"):
            found = compile_and_read(file, archs, shlex.split(nvcc_flags))
        else:
            if len(archs) > 1:
                raise ValueError(f"--arch {arch}: a listing is of one architecture; give one")
            found = read_compiled(file, arch)
        functions += [(str(file), function) for function in found]
    if as_json:
        import msgspec

        print_json({"functions": [{"file": name, **msgspec.to_builtins(function)} for name, function in functions]})
        return 0
    shown = [
        (
            plain(one.function if len(one.function) <= 60 else one.function[:57] + "..."),
            one.arch or "?",
            *("-" if value is None else str(value) for value in (one.registers, one.spill_store_bytes)),
            *("-" if value is None else str(value) for value in (one.spill_load_bytes, one.stack_bytes)),
            "-" if one.shared_bytes is None else str(one.shared_bytes),
        )
        for _, one in functions
    ]
    print_table(("function", "arch", "registers", "spill stores", "spill loads", "stack", "shared"), shown)
    for note in sorted({one.note for _, one in functions if one.note and one.note != "device"}):
        print(f"note: {note}")
    return 0
