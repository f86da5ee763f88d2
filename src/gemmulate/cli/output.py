"""What all commands print with: JSON, tables, plain lines, a progress bar; and files written whole or not at all."""

import codecs
import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gemmulate.io.atomic import check_target, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "check_target",
    "console",
    "dimensions",
    "examples",
    "print_json",
    "print_table",
    "progress",
    "write_atomically",
]

# What a terminal without Unicode shows for the signs that our texts use.
_ASCII = str.maketrans(
    {
        "×": "x", "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "·": "*", "…": "...", "→": "->", "≠": "!=",
        "≈": "~", "±": "+-", "Σ": "sum ", "²": "^2", "³": "^3", "µ": "u", "✓": "ok", "✗": "no", "⌀": "-", "⁵": "^5",
        "─": "-", "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": ":", "▍": ":", "▎": ":", "▏": ":",
    }
)  # fmt: skip


def prepare_streams() -> None:
    """Make standard output and error accept every character, whatever the terminal's encoding is."""
    codecs.register_error("gemmulate", _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="gemmulate")


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return bad.translate(_ASCII).encode("ascii", "backslashreplace"), error.end


def console() -> "Console":
    """A rich console on standard output; it colours on a terminal only."""
    from rich.console import Console

    class PipeConsole(Console):
        # Rich would exit with 1, which is the status of a verdict.
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipeConsole(highlight=False)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output: strict (no NaN), ASCII, indented."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", right: Sequence[int] = ()
) -> None:
    """Print a table: ruled and coloured on a terminal, blank-separated columns that never wrap elsewhere.

    Args:
        columns: Headings.
        rows: One text per column each.
        title: A line above.
        right: Indices of columns set flush right (numbers).
    """
    out = console()
    if out.is_terminal:
        from rich import box
        from rich.table import Table

        if title:
            out.print(title, style="bold", soft_wrap=True)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for index, name in enumerate(columns):
            table.add_column(name, justify="right" if index in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        out.print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if title:
        print(title)
    for row in (columns, *rows):
        cells = (
            text.rjust(width) if index in right else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def examples(*pairs: tuple[str, str]) -> str:
    """The end of a command's help: command lines, each with what it does (`help_epilogue=` of `app.command`)."""
    return "\n".join(("**Examples**\n", *(f"- `{command}`  \n  {meaning}" for command, meaning in pairs)))


def dimensions(shape: Sequence[int]) -> str:
    """A shape as people write it: 3×4, or `scalar`."""
    return "×".join(map(str, shape)) or "scalar"


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error while the block runs, if that is a terminal; a function to report (done, total).

    Until the first report the bar only shows that work goes on. A count that falls begins another phase.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    last, phase = 0, 1

    def report(done: int, total: int) -> None:
        nonlocal last, phase
        phase += done < last
        last = done
        bar.update(task, completed=done, total=total, description=what if phase == 1 else f"{what}, phase {phase}")

    fields = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    # transient: a finished bar leaves the terminal as it was.
    with Progress(*fields, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield report
