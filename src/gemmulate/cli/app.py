"""The command-line application: registers the command groups and turns errors into one line and an exit status.

Exit status: 0 success, 1 a negative verdict that was asked for, 2 bad input, 130 interrupted.
"""

import sys
from importlib import import_module

import cyclopts

from gemmulate import __version__
from gemmulate.errors import GemmulateError

app = cyclopts.App(
    name="gemmulate",
    version=__version__,
    help="Exact and reproducible wide matrix products from narrow matrix units.",
)

# Each module has `register(app)`; a new group of commands is one more name here.
_GROUPS: tuple[str, ...] = ()


class CommandError(GemmulateError):
    """Bad input to a command: printed as one line, exit status 2."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    for name in _GROUPS:
        import_module(f"gemmulate.cli.{name}").register(app)
    try:
        status = app(argv, exit_on_error=False, print_error=True)
    except cyclopts.CycloptsError:
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except (GemmulateError, ValueError, TypeError, OSError, OverflowError) as error:
        print(f"gemmulate: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)
