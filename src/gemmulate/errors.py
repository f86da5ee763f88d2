"""Exceptions that gemmulate raises beside the built-in ones."""


class GemmulateError(Exception):
    """Base of the library's own errors."""


class ResultOverflow(GemmulateError, OverflowError):
    """An exact integer result does not fit its output dtype.

    `bits` is the largest bit length seen, the sign included.
    """

    def __init__(self, message: str, *, bits: int) -> None:
        super().__init__(message)
        self.bits = bits


class EngineUnavailable(GemmulateError, RuntimeError):
    """The engine asked for cannot run here; the message says why."""


class FileError(GemmulateError, ValueError):
    """A file cannot be read or written; the message names the file, the line if there is one, and the rule."""
