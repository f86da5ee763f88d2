"""Matrix files: npy, npz, Matrix Market and CSV, read strictly and written whole or not at all."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmulate.io.atomic import check_target, write_atomically
    from gemmulate.io.files import check_output, read_matrix, write_matrix

__all__ = ["check_output", "check_target", "read_matrix", "write_atomically", "write_matrix"]

# Public name -> module: NumPy loads with the first matrix, not with `gemmulate --help`.
_LAZY = dict.fromkeys(("check_target", "write_atomically"), "atomic") | dict.fromkeys(
    ("check_output", "read_matrix", "write_matrix"), "files"
)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
