"""The command-line application: registers the command groups and turns errors into one line and an exit status.

Exit status: 0 success, 1 a negative verdict that was asked for, 2 bad input, 130 interrupted.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import FrameType
from typing import NoReturn

import cyclopts

from gemmulate import __version__
from gemmulate.cli.output import console, prepare_streams
from gemmulate.errors import GemmulateError

# Each module has `register(app)`; a new group of commands is one more name here.
_GROUPS: tuple[str, ...] = (
    "demo",
    "matmul",
    "plan",
    "encodings",
    "model",
    "report",
    "screen",
    "occupancy",
    "compiled",
    "profile",
    "compare",
    "doctor",
)

_EPILOGUE = """Exit status: 0 success; 1 a negative verdict that was asked for; 2 bad input, with one line on standard
error; 130 interrupted. Every command has `--help` with examples, and `--json` (`encodings export`: `--as json`)."""


class CommandError(GemmulateError):
    """Bad input to a command: printed as one line, exit status 2."""


def application() -> cyclopts.App:
    """The application with every command group registered."""
    app = cyclopts.App(
        name="gemmulate",
        version=__version__,
        help="Exact and reproducible wide matrix products from narrow matrix units.",
        help_format="markdown",
        help_epilogue=_EPILOGUE,
        console=console(),
        # main() decides about errors, interruption and exit status, in one place.
        suppress_keyboard_interrupt=False,
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
    )
    for name in _GROUPS:
        import_module(f"gemmulate.cli.{name}").register(app)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    prepare_streams()
    try:
        with _terminable():
            status = application()(list(sys.argv[1:] if argv is None else argv))
            print(end="", flush=True)  # a full disk or a closed pipe shows now; standard output may be closed
    except KeyboardInterrupt:
        print("gemmulate: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (`| head`) has gone: no message, and no second one when Python flushes at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        _fail(": ".join(str(part) for part in (error.filename, error.strerror or str(error)) if part))
    except MemoryError as error:
        _fail(f"out of memory ({error})" if str(error) else "out of memory")
    except (cyclopts.CycloptsError, GemmulateError, ArithmeticError, TypeError, ValueError) as error:
        _fail(str(error))
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> NoReturn:
    # File names may hold anything: what would steer the terminal is shown escaped.
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.split()))
    print(f"gemmulate: {line}", file=sys.stderr)
    sys.exit(2)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C does, so that they too leave no temporary file."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not the main thread: whoever runs it decides
        yield
        return
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
