"""The command line: `gemmulate …`. One file per group of commands."""

from gemmulate.cli.app import main

__all__ = ["main"]
